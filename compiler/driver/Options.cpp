//===- Options.cpp - the command line of mpc ----------------------------------------===//

#include "Options.h"
#include "compiler/driver/Version.h"
#include "llvm/ADT/StringRef.h"
#include <CLI/CLI.hpp>
#include <regex.h>

using namespace mpc;

namespace {

const std::map<std::string, Stage> kStages = {
    {"onnx", Stage::onnx},    {"core", Stage::core},
    {"loss", Stage::loss},    {"precision", Stage::precision},
    {"grad", Stage::grad},    {"train", Stage::train},
    {"plan", Stage::plan},    {"llvm", Stage::llvm},
    {"asm", Stage::assembly}, {"ptx", Stage::ptx},
    {"obj", Stage::object},   {"exe", Stage::executable}};

std::string checkRegex(const std::string &text) {
  regex_t compiled;
  int code = regcomp(&compiled, text.c_str(), REG_EXTENDED | REG_NOSUB);
  if (code == 0) {
    regfree(&compiled);
    return "";
  }
  char message[256];
  regerror(code, &compiled, message, sizeof message);
  return "'" + text + "' is not a POSIX extended regular expression: " + message;
}

std::string checkLossScale(const std::string &text) {
  double value;
  if (text == "dynamic" || text == "none")
    return "";
  if (llvm::StringRef(text).getAsDouble(value) || !(value > 0) || value > 3e38)
    return "expected dynamic, none or a positive number, not '" + text + "'";
  return "";
}

/// NAME=N; the name may hold '=' itself, the last one counts.
std::string parseDim(const std::string &text, std::map<std::string, int64_t> &dims) {
  auto [name, number] = llvm::StringRef(text).rsplit('=');
  int64_t value;
  if (name.empty() || number.getAsInteger(10, value) || value < 1)
    return "--dim: expected NAME=N with a positive N, not '" + text + "'";
  dims[name.str()] = value;
  return "";
}

} // namespace

std::optional<int> mpc::parseOptions(int argc, char **argv, CompileOptions &o) {
  CLI::App app{"mpc compiles an ONNX model into a training program.\n"
               "  mpc model.onnx --batch=64 -o trainer && ./trainer train --data DATASET --epochs "
               "5 --lr 1e-3"};
  app.name("mpc");
  app.set_version_flag("--version", MPC_VERSION_TEXT);
  app.option_defaults()->always_capture_default();
  std::string stage = "exe";
  std::vector<std::string> dims;
  int64_t batch = 0, classAxis = 0;

  app.add_option("MODEL", o.model, "the model, an ONNX file")->capture_default_str();
  app.add_option("-o,--output", o.output,
                 "file to write (the model's name without .onnx; text: stdout)");
  app.add_option("--loss", o.loss,
                 "loss attached to the model's output; PyTorch's definitions, mean reduction")
      ->check(CLI::IsMember({"cross-entropy", "nll", "mse", "l1", "smooth-l1", "bce",
                             "bce-with-logits", "output", "none"}));
  app.add_option("--loss-input", o.lossInput,
                 "graph output or tensor the loss reads (the first floating-point output)");
  auto *axis = app.add_option("--class-axis", classAxis,
                              "axis of the classes (1; the last for outputs of rank 3)")
                   ->always_capture_default(false)
                   ->default_str("");
  app.add_option("--ignore-index", o.ignoreIndex, "label left out of the loss and its mean");
  app.add_option("--optimizer", o.optimizer, "optimizer; PyTorch's definitions")
      ->check(CLI::IsMember({"sgd", "sgd-nesterov", "adam", "adamw"}));
  app.add_option("--precision", o.precision, "compute type; fp64 is slow and for checking")
      ->check(CLI::IsMember({"fp16", "bf16", "fp32", "fp64"}));
  app.add_option("--loss-scale", o.lossScale,
                 "dynamic, none or a number (dynamic for fp16, none otherwise)")
      ->check(checkLossScale);
  app.add_option("--keep-fp32", o.keepFp32,
                 "nodes or tensors (regular expression) that stay fp32; repeatable")
      ->check(checkRegex)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--allow-half", o.allowHalf,
                 "nodes or tensors (regular expression) that become half; repeatable")
      ->check(checkRegex)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--target", o.target, "cpu");
  app.add_option("--cpu", o.cpu, "CPU to generate code for: native, or a name as x86-64-v3");
  auto *batchOption =
      app.add_option("--batch", batch, "value of the first dynamic dimension: samples per step")
          ->check(CLI::Range(int64_t(1), int64_t(1) << 31))
          ->always_capture_default(false)
          ->default_str("");
  app.add_option("--dim", dims, "NAME=N: value of a named dimension; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option(
         "--train", o.trainRegex,
         "initializers (regular expression) that are parameters; default: by metadata and use")
      ->check(checkRegex);
  app.add_option("--freeze", o.freezeRegex, "parameters (regular expression) that are not trained")
      ->check(checkRegex);
  app.add_option(
      "--emit", stage,
      "stop there: onnx, core, loss, precision, grad, train, plan, llvm, asm, obj or exe");
  app.add_option("--report", o.reports, "tables on stdout: precision, memory, cost or all")
      ->check(CLI::IsMember({"precision", "memory", "cost", "all"}))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--bundle", o.bundle, "folder for the trainer and the shared libraries it needs");
  app.add_flag("--external-weights", o.externalWeights,
               "the trainer carries no weights; its commands need --checkpoint");
  app.add_flag("--list-ops", o.listOps, "print the support table and exit");
  // Documented for versions to come: refused by name, and not in --help.
  std::string memoryBudget;
  bool simulate = false;
  app.add_option("--memory-budget", memoryBudget)->group("");
  app.add_flag("--simulate", simulate)->group("");

  try {
    app.parse(argc, argv);
    if (!kStages.count(stage))
      throw CLI::ValidationError("--emit", "'" + stage +
                                               "' is no stage: onnx, core, loss, precision, grad, "
                                               "train, plan, llvm, asm, obj or exe");
    o.stage = kStages.at(stage);
    for (const std::string &text : dims)
      if (std::string problem = parseDim(text, o.dims); !problem.empty())
        throw CLI::ValidationError(problem, CLI::ExitCodes::ValidationError);
    if (llvm::StringRef(o.target).starts_with("cuda"))
      throw CLI::ValidationError("--target", "this version does not compile for cuda yet; "
                                             "--target=cpu does");
    if (o.target != "cpu")
      throw CLI::ValidationError("--target", "'" + o.target + "' is no target; there is cpu");
    if (o.stage == Stage::ptx)
      throw CLI::ValidationError("--emit", "ptx needs --target=cuda, which this version does not "
                                           "have yet");
    if (!memoryBudget.empty())
      throw CLI::ValidationError("--memory-budget",
                                 "this version does not recompute activations yet: it keeps what "
                                 "the backward pass reads (--report=memory shows how much); a "
                                 "smaller --batch needs less");
    if (simulate)
      throw CLI::ValidationError("--simulate", "it belongs to --target=cuda, which this version "
                                               "does not have yet");
    if (o.model.empty() && !o.listOps)
      throw CLI::RequiredError("MODEL");
  } catch (const CLI::ParseError &e) {
    int code = app.exit(e);
    return code == 0 ? 0 : 2;
  }
  if (batchOption->count())
    o.batch = batch;
  if (axis->count())
    o.classAxis = classAxis;
  return std::nullopt;
}
