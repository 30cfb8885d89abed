//===- CommandOptions.cpp - options with exact numbers and shown defaults ------------===//
//
// An option that could have no effect (a momentum for Adam, a loss scale without scaling, a
// final rate for a constant one) is refused: whoever writes it believes that it does something.
// Writing down what holds anyway (--momentum 0 for Adam) is no such thing.
//
//===----------------------------------------------------------------------------===//

#include "runtime/train/CommandOptions.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include "runtime/train/Progress.h"
#include "runtime/train/State.h"
#include <algorithm>
#include <charconv>
#include <cstdlib>

using namespace mpc;

static constexpr int64_t kMany = int64_t(1) << 53;

CLI::Option *mpc::addReal(CLI::App &app, const std::string &name, double &value,
                          const std::string &description, double low, double high) {
  std::string standard = std::isinf(value) ? "none" : numberText(value);
  auto parse = [&value, name, low, high](const std::string &text) {
    char *end = nullptr;
    double parsed = strtod(text.c_str(), &end);
    if (text.empty() || *end != 0 || !(parsed >= low && parsed <= high))
      throw CLI::ValidationError(name, quote(text) + " is no number from " + numberText(low) +
                                           " to " + numberText(high));
    value = parsed;
  };
  return app.add_option_function<std::string>(name, parse, description)
      ->type_name("NUMBER")
      ->default_str(standard);
}

CLI::Option *mpc::addInteger(CLI::App &app, const std::string &name, int64_t &value,
                             const std::string &description, int64_t low, int64_t high) {
  auto parse = [&value, name, low, high](const std::string &text) {
    int64_t parsed = 0;
    auto end = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (end.ec != std::errc() || end.ptr != text.data() + text.size() || parsed < low ||
        parsed > high)
      throw CLI::ValidationError(name, quote(text) + " is no whole number from " +
                                           std::to_string(low) + " to " + std::to_string(high));
    value = parsed;
  };
  return app.add_option_function<std::string>(name, parse, description)
      ->type_name("N")
      ->default_str(std::to_string(value));
}

CLI::Option *mpc::addText(CLI::App &app, const std::string &name, std::string &value,
                          const std::string &description, const std::string &type) {
  return app.add_option(name, value, description)->type_name(type)->default_str(value);
}

TrainCommand::TrainCommand(CLI::App &app, const Program &program) : app(app), program(program) {
  Hyperparameters &h = options.hyper;
  if (program.optimizer == "adamw")
    h.weight_decay = 0.01;
  // The largest scale whose double is still finite in f32; numbers that the program can hold.
  constexpr double kMaxScale = 0x1p127;
  const double kHuge = program.precision == "fp64" ? 1e300 : 3e38;

  addText(app, "--data", data, "training set, see below", "DATASET")->required();
  addText(app, "--valid", valid, "validation set, evaluated after each epoch", "DATASET");
  addInteger(app, "--epochs", options.epochs, "train this many epochs in all", 1, kMany)
      ->default_str("");
  addInteger(app, "--steps", options.steps,
             "train this many optimizer steps in all, skipped ones included", 1, kMany)
      ->default_str("");
  addReal(app, "--lr", h.lr, "learning rate; required but for --resume", 0, kHuge)->default_str("");
  addReal(app, "--momentum", h.momentum, "momentum (sgd)", 0, kHuge);
  addReal(app, "--beta1", h.beta1, "decay of the first moment (adam)", 0, 1);
  addReal(app, "--beta2", h.beta2, "decay of the second moment (adam)", 0, 1);
  addReal(app, "--eps", h.eps, "added to the root of the second moment (adam)", 0, kHuge);
  addReal(app, "--weight-decay", h.weight_decay, "weight decay", 0, kHuge);
  addText(app, "--no-decay", h.no_decay, "parameters without weight decay", "REGEX")
      ->default_str("none");
  app.add_option("--schedule", h.schedule, "learning rate over applied steps")
      ->type_name("constant|step|linear|cosine")
      ->default_str(h.schedule)
      ->check(CLI::IsMember({"constant", "step", "linear", "cosine"}).description(""));
  addInteger(app, "--step-size", h.step_size, "applied steps between two decays (step)", 1, kMany)
      ->default_str("");
  addReal(app, "--gamma", h.gamma, "factor of each decay (step)", 0, kHuge);
  addReal(app, "--final-lr", h.final_lr, "last learning rate (linear, cosine)", 0, kHuge);
  addInteger(app, "--warmup", h.warmup, "applied steps in which the learning rate rises", 0, kMany);
  addReal(app, "--clip-norm", h.clip_norm, "largest global norm of the gradients", 1e-30, kHuge);
  addInteger(app, "--accumulate", h.accumulate, "micro-batches per optimizer step", 1,
             kMostMicroBatches);
  addInteger(app, "--seed", seed, "seed of shuffling, dropout, crops and flips", 0, INT64_MAX);
  app.add_flag("--no-shuffle", noShuffle, "samples in file order");
  app.add_flag("--drop-tail", h.drop_tail, "leave a smaller last batch out");
  addReal(app, "--loss-scale-init", h.loss_scale_init, "first dynamic loss scale", 1, kMaxScale);
  addInteger(app, "--growth-interval", h.growth_interval, "clean steps before the scale grows", 1,
             INT32_MAX);
  addReal(app, "--growth-factor", h.growth_factor, "factor of growth", 1, kMaxScale);
  addReal(app, "--backoff-factor", h.backoff_factor, "factor after an overflow", 1e-30, 1);
  addText(app, "--out", options.out, "folder for checkpoints", "DIR")->default_str("none");
  addInteger(app, "--checkpoint-every", options.checkpointEvery,
             "optimizer steps between checkpoints (default: one per epoch)", 1, kMany)
      ->default_str("");
  addInteger(app, "--keep", options.keep, "checkpoints that stay", 1, 1 << 20);
  app.add_flag("--resume", options.resume, "continue from the newest checkpoint in --out");
  app.add_flag("--overwrite", options.overwrite, "remove the checkpoints in --out first");
  addInteger(app, "--stop-after", options.stopAfter,
             "write a checkpoint and stop after this many steps of this call", 1, kMany)
      ->default_str("");
  app.add_flag(
      "--tune", options.tune,
      "GPUs: time the ways to execute each product, convolution and attention, and keep the "
      "fastest");
  addText(app, "--metrics", options.metrics, "file for one JSON object per step", "FILE.jsonl")
      ->default_str("none");
  addInteger(app, "--log-every", options.logEvery, "steps between lines on the console; 0: none", 0,
             kMany);
  app.footer(
      "DATASET is npy:NAME=FILE.npy,...,labels=FILE.npy (or FILE.npz:KEY), idx:IMAGES,LABELS, "
      "cifar10:DIR or folder:DIR, then any of ;scale=F;mean=a,b,c;std=a,b,c;crop=PIXELS;flip. "
      "A backslash takes the next character literally.");
}

void mpc::requireDynamicScale(const Program &program, const char *option) {
  if (program.loss_scale_mode != "dynamic")
    throw UsageError(std::string("--") + option + ": this program was compiled with --loss-scale=" +
                     (program.loss_scale_mode.empty() ? "none" : program.loss_scale_mode));
}

void TrainCommand::checkOptimizer() const {
  bool adam = program.optimizer.starts_with("adam");
  auto refuse = [&](const char *name) {
    throw UsageError(std::string("--") + name + ": this program's optimizer is " +
                     program.optimizer + ", which has none");
  };
  if (adam && given("momentum") && options.hyper.momentum != 0)
    refuse("momentum");
  for (const char *name : {"beta1", "beta2", "eps"})
    if (!adam && given(name))
      refuse(name);
  if (adam && (options.hyper.beta1 >= 1 || options.hyper.beta2 >= 1))
    throw UsageError("--beta1 and --beta2 must be below 1");
  if (program.optimizer == "sgd-nesterov" && options.hyper.momentum == 0 && !options.resume)
    throw UsageError("--momentum must be above 0: this program's optimizer is sgd-nesterov");
  for (const char *name : {"loss-scale-init", "growth-interval", "growth-factor", "backoff-factor"})
    if (given(name))
      requireDynamicScale(program, name);
  if (!isUtf8(options.hyper.no_decay)) // it goes into checkpoints, which are JSON
    throw UsageError("--no-decay: " + quote(options.hyper.no_decay) +
                     " is not UTF-8, as the names of parameters are");
  if (!options.hyper.no_decay.empty()) {
    Regex exempt("--no-decay", options.hyper.no_decay);
    std::vector<uint32_t> decayed = program.all(Role::weight_decay);
    if (std::none_of(decayed.begin(), decayed.end(),
                     [&](uint32_t i) { return exempt.matches(program.tensors[i].name); }))
      throw UsageError("--no-decay=" + quote(options.hyper.no_decay) +
                       " matches no parameter; `info` lists their names");
  }
}

void TrainCommand::checkSchedule() const {
  const std::string &schedule = options.hyper.schedule;
  if (schedule == "step" && !options.hyper.step_size)
    throw UsageError("--schedule step needs --step-size");
  auto refuse = [&](const char *name, const char *owners) {
    if (given(name))
      throw UsageError(std::string("--") + name + " belongs to --schedule " + owners +
                       "; this run's is " + schedule);
  };
  if (schedule != "step") {
    refuse("step-size", "step");
    refuse("gamma", "step");
  }
  if (schedule != "linear" && schedule != "cosine")
    refuse("final-lr", "linear and cosine");
}

void TrainCommand::checkFolder() const {
  for (const char *name : {"resume", "overwrite", "checkpoint-every", "keep"})
    if (options.out.empty() && given(name))
      throw UsageError(std::string("--") + name + " needs --out DIR");
  if (options.resume && options.overwrite)
    throw UsageError("--resume and --overwrite exclude each other");
  if (options.resume && given("checkpoint"))
    throw UsageError("--resume and --checkpoint exclude each other: a resumed run starts from the "
                     "newest checkpoint in --out");
}

TrainOptions TrainCommand::finish() {
  for (const CLI::Option *option : app.get_options())
    if (option->count() && !option->get_lnames().empty())
      options.given.insert(option->get_lnames()[0]);
  options.hyper.shuffle = !noShuffle;
  options.hyper.seed = static_cast<uint64_t>(seed);
  options.data = parseDataset(data);
  if (!valid.empty())
    options.valid = parseDataset(valid);
  checkOptimizer();
  checkFolder();
  if (options.tune && program.target == "cpu")
    throw UsageError("--tune is for GPUs: this program was compiled for the CPU (--target=cpu)");
  if (options.epochs && options.steps)
    throw UsageError("--epochs and --steps exclude each other");
  if (options.resume)
    return options;
  if (!given("lr"))
    throw UsageError("--lr is required");
  if (!options.epochs && !options.steps)
    throw UsageError("one of --epochs and --steps is required");
  checkSchedule();
  return options;
}
