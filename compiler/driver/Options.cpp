//===- Options.cpp - the command line of mpc ----------------------------------------===//

#include "Options.h"
#include "compiler/driver/Version.h"
#include "compiler/target/cuda/CudaTarget.h"
#include "runtime/core/Arguments.h"
#include "runtime/core/RegexCheck.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include <CLI/CLI.hpp>

using namespace mpc;

namespace {

const std::map<std::string, Stage> kStages = {
    {"onnx", Stage::onnx},    {"core", Stage::core},
    {"loss", Stage::loss},    {"precision", Stage::precision},
    {"grad", Stage::grad},    {"train", Stage::train},
    {"plan", Stage::plan},    {"llvm", Stage::llvm},
    {"asm", Stage::assembly}, {"ptx", Stage::ptx},
    {"obj", Stage::object},   {"exe", Stage::executable}};

constexpr const char kEmptyRegex[] =
    "an empty expression matches everything: leave the option out, or write '.'";

std::string checkRegex(const std::string &text) {
  if (text.empty())
    return kEmptyRegex;
  std::string why = regexProblem(text);
  return why.empty() ? "" : "'" + text + "' is not a POSIX extended regular expression: " + why;
}

std::string checkLossScale(const std::string &text) {
  double value;
  if (text == "dynamic" || text == "none")
    return "";
  if (llvm::StringRef(text).getAsDouble(value) || !(value >= 1e-30 && value <= 1e38))
    return "expected dynamic, none or a number from 1e-30 to 1e38, not '" + text + "'";
  return "";
}

} // namespace

std::string mpc::parseDim(const std::string &text, std::map<std::string, int64_t> &dims) {
  auto [name, number] = llvm::StringRef(text).rsplit('=');
  int64_t value;
  if (name.empty() || number.getAsInteger(10, value) || value < 1)
    return "--dim: expected NAME=N with a positive N, not '" + text + "'";
  if (auto [known, isNew] = dims.insert({name.str(), value}); !isNew && known->second != value)
    return "--dim: '" + name.str() + "' is given twice, with different values";
  return "";
}

static std::string architectureList(llvm::ArrayRef<unsigned> architectures) {
  return llvm::join(llvm::map_range(architectures,
                                    [](unsigned number) { return "sm_" + std::to_string(number); }),
                    ",");
}

/// The architectures of --target=cuda:LIST; returns what is wrong, or nothing.
static std::string parseArchitectures(llvm::StringRef list, CompileOptions &o) {
  if (!list.consume_front(":"))
    return "'cuda" + list.str() + "' is no target; there are cpu, cuda and cuda:sm_NN,…";
  llvm::SmallVector<llvm::StringRef> names;
  list.split(names, ',');
  for (llvm::StringRef name : names) {
    unsigned number = 0;
    llvm::StringRef digits = name;
    if (!digits.consume_front("sm_") || digits.getAsInteger(10, number) ||
        !llvm::is_contained(kKnownArchitectures, number))
      return "'" + name.str() + "' is no architecture that kernels are generated for; there are " +
             architectureList(kKnownArchitectures);
    o.architectures.push_back(number);
  }
  llvm::sort(o.architectures);
  o.architectures.erase(llvm::unique(o.architectures), o.architectures.end());
  return "";
}

std::string mpc::parseTarget(const std::string &text, CompileOptions &o) {
  llvm::StringRef list = text;
  o.target = list.consume_front("cuda") ? "cuda" : "cpu";
  if (o.target == "cpu") {
    if (text != "cpu")
      return "'" + text + "' is no target; there are cpu, cuda and cuda:sm_NN,…";
    return o.stage == Stage::ptx ? "cpu has no PTX: --emit=ptx needs --target=cuda" : "";
  }
  if (list.empty())
    o.architectures.assign(std::begin(kDefaultArchitectures), std::end(kDefaultArchitectures));
  else if (std::string problem = parseArchitectures(list, o); !problem.empty())
    return problem;
  if (o.precision == "fp64")
    return "--precision=fp64 is for checking, on the CPU only: --target=cpu";
  if (o.precision == "bf16") {
    auto hasBf16 = [](unsigned architecture) { return architecture >= kFirstBf16Architecture; };
    std::vector<unsigned> able;
    llvm::copy_if(o.architectures, std::back_inserter(able), hasBf16);
    if (!list.empty() && able.size() < o.architectures.size())
      return "--precision=bf16 needs sm_" + std::to_string(kFirstBf16Architecture) +
             " or later: use " +
             (able.empty() ? "" : "--target=cuda:" + architectureList(able) + " or ") +
             "--precision=fp16";
    o.architectures = able; // cuda alone stands for all that can
  }
  if (o.stage == Stage::assembly)
    return "cuda has no assembly of this CPU: --emit=ptx shows its kernels";
  return "";
}

std::optional<int> mpc::parseOptions(int argc, char **argv, CompileOptions &o) {
  CLI::App app{"mpc compiles an ONNX model into a training program.\n"
               "  mpc model.onnx --batch=64 -o trainer && ./trainer train --data DATASET --epochs "
               "5 --lr 1e-3"};
  app.failure_message(usageMessage("mpc: "));
  app.name("mpc");
  app.set_version_flag("--version", MPC_VERSION_TEXT);
  app.option_defaults()->always_capture_default();
  std::string stage = "exe", target = "cpu";
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
                   ->check(CLI::Range(-100, 100).description(""))
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
  auto *keep = app.add_option("--keep-fp32", o.keepFp32,
                              "nodes or tensors (regular expression) that stay fp32; repeatable")
                   ->check(checkRegex)
                   ->expected(1)
                   ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  auto *allow = app.add_option("--allow-half", o.allowHalf,
                               "nodes or tensors (regular expression) that become half; repeatable")
                    ->check(checkRegex)
                    ->expected(1)
                    ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--target", target,
                 "cpu, or cuda[:sm_NN[,sm_NN...]]: NVIDIA GPUs, sm_70 and later where none is "
                 "named");
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
      "stop there: onnx, core, loss, precision, grad, train, plan, llvm, asm, ptx, obj or exe");
  app.add_option("--report", o.reports, "tables on stdout: precision, memory, cost or all")
      ->check(CLI::IsMember({"precision", "memory", "cost", "all"}))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--bundle", o.bundle, "folder for the trainer and the shared libraries it needs");
  app.add_flag("--external-weights", o.externalWeights,
               "the trainer carries no weights; its commands need --checkpoint");
  app.add_flag("--simulate", o.simulate,
               "the trainer also runs without a GPU, on the simulator: --device sim (for tests)");
  app.add_flag("--list-ops", o.listOps, "print the support table and exit");
  // Documented for a version to come: refused by name, and not in --help.
  std::string memoryBudget;
  app.add_option("--memory-budget", memoryBudget)->group("");

  try {
    if (std::string empty = argumentWithoutValue(argc, argv); !empty.empty())
      throw CLI::ValidationError(empty, "a value is missing behind '='");
    app.parse(argc, argv);
    if (!kStages.count(stage))
      throw CLI::ValidationError("--emit", "'" + stage +
                                               "' is no stage: onnx, core, loss, precision, grad, "
                                               "train, plan, llvm, asm, ptx, obj or exe");
    o.stage = kStages.at(stage);
    for (auto [option, list] : {std::pair(keep, &o.keepFp32), std::pair(allow, &o.allowHalf)})
      if (option->count() && list->empty()) // CLI11 takes an empty text for an empty list
        throw CLI::ValidationError(option->get_name(), kEmptyRegex);
    for (const std::string &text : dims)
      if (std::string problem = parseDim(text, o.dims); !problem.empty())
        throw CLI::ValidationError(problem, CLI::ExitCodes::ValidationError);
    if (std::string problem = parseTarget(target, o); !problem.empty())
      throw CLI::ValidationError("--target", problem);
    if (!memoryBudget.empty())
      throw CLI::ValidationError("--memory-budget",
                                 "this version does not recompute activations yet: it keeps what "
                                 "the backward pass reads (--report=memory shows how much); a "
                                 "smaller --batch needs less");
    if (o.simulate && o.target != "cuda")
      throw CLI::ValidationError("--simulate", "it belongs to --target=cuda: a trainer for the CPU "
                                               "needs no simulator");
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
