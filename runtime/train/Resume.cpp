//===- Resume.cpp - where a run starts -----------------------------------------------===//
//
// A resumed run must be the run that was left, so whatever steers it comes from the checkpoint,
// and an option that says otherwise is refused rather than ignored or obeyed.
//
//===----------------------------------------------------------------------------===//

#include "runtime/train/Resume.h"
#include "runtime/core/Error.h"
#include "runtime/train/State.h"

using namespace mpc;
using nlohmann::json;

RunState mpc::freshState(const Program &program, const TrainOptions &options, int64_t samples) {
  if (!options.given.count("lr"))
    throw UsageError("--lr is required");
  if ((options.epochs == 0) == (options.steps == 0))
    throw UsageError("one of --epochs and --steps is required");
  RunState state;
  state.precision = program.precision;
  state.optimizer = program.optimizer;
  state.loss_scale_mode = program.loss_scale_mode;
  state.batch = program.batch;
  state.samples = samples;
  state.hyper = options.hyper;
  state.steps = options.steps;
  state.epochs = options.epochs;
  state.loss_scale = initialLossScale(program, options.hyper);
  return state;
}

static std::string textOf(const json &value) {
  return value.is_null()     ? "none"
         : value.is_string() ? printable(value.get<std::string>())
                             : value.dump();
}

[[noreturn]] static void differs(const CheckpointFile &file, const std::string &what,
                                 const std::string &here, const std::string &there) {
  throw Error("--resume: " + what + " is " + here + " here and " + there + " in " +
              quote(file.path()));
}

RunState mpc::resumedState(const Program &program, const TrainOptions &options,
                           const CheckpointFile &file, int64_t samples) {
  RunState state = file.state();
  if (program.precision != state.precision)
    differs(file, "the program's precision", program.precision, printable(state.precision));
  if (program.optimizer != state.optimizer)
    differs(file, "the program's optimizer", program.optimizer, printable(state.optimizer));
  if (program.loss_scale_mode != state.loss_scale_mode)
    differs(file, "the program's loss scale", program.loss_scale_mode,
            printable(state.loss_scale_mode));
  if (program.batch != state.batch)
    differs(file, "the program's batch", std::to_string(program.batch),
            std::to_string(state.batch));
  if (samples != state.samples)
    differs(file, "the number of training samples", std::to_string(samples),
            std::to_string(state.samples));

  json here = toJson(options.hyper), there = toJson(state.hyper);
  for (const auto &[name, value] : there.items())
    if (options.given.count(name) && here.at(name) != value)
      differs(file, "--" + name, textOf(here.at(name)), textOf(value));

  // The total may change, except where the learning rate depends on it.
  bool total = options.steps || options.epochs;
  if (options.steps && options.epochs)
    throw UsageError("--epochs and --steps exclude each other");
  if (total && (options.steps != state.steps || options.epochs != state.epochs)) {
    const char *name = options.steps ? "--steps" : "--epochs";
    std::string now = std::to_string(options.steps ? options.steps : options.epochs);
    std::string then = state.steps ? "--steps " + std::to_string(state.steps)
                                   : "--epochs " + std::to_string(state.epochs);
    if (state.hyper.schedule == "linear" || state.hyper.schedule == "cosine")
      throw Error(std::string("--resume: ") + name + " " + now + " here and " + then + " in " +
                  quote(file.path()) + ": the " + state.hyper.schedule +
                  " schedule runs over the whole run, whose length cannot change (--stop-after "
                  "splits a run)");
    state.steps = options.steps;
    state.epochs = options.epochs;
  }
  return state;
}
