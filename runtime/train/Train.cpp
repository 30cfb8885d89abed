//===- Train.cpp - the training loop -------------------------------------------------===//
//
// The order of things between two steps matters for resuming: an epoch ends (its line, then
// validation), then a checkpoint is written, then the run may stop. So a checkpoint at an epoch's
// end stands at the beginning of the next one. A validation that a signal ends is made up for when
// the run is resumed.
//
//===----------------------------------------------------------------------------===//

#include "runtime/train/Train.h"
#include "runtime/core/Error.h"
#include "runtime/cpu/Memory.h"
#include "runtime/data/Shuffle.h"
#include "runtime/train/Eval.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/Progress.h"
#include "runtime/train/Resume.h"
#include "runtime/train/Schedule.h"
#include "runtime/train/Signals.h"
#include "runtime/train/Stepper.h"
#include <algorithm>
#include <deque>
#include <filesystem>

using namespace mpc;

/// Overflows in a row, at a scale that cannot fall any further, after which a run is given up.
static constexpr int64_t kMaxOverflows = 8;

EpochPlan::EpochPlan(const Program &program, const Hyperparameters &hyper, int64_t all)
    : samples(all) {
  int64_t batch = program.batch;
  if (hyper.drop_tail)
    samples -= samples % batch;
  else
    requireWholeBatches(program, samples, "--drop-tail leaves the last batch of each epoch out");
  if (samples == 0)
    throw Error("--drop-tail: " + std::to_string(all) + " samples do not fill one batch of " +
                std::to_string(batch));
  int64_t microBatches = (samples + batch - 1) / batch;
  stepsPerEpoch = (microBatches + hyper.accumulate - 1) / hyper.accumulate;
}

namespace {

class TrainingRun {
public:
  TrainingRun(const Program &program, Device &device, const TrainOptions &options);
  int run();

private:
  void claimFolder();
  void requireOwnMetrics() const;
  void start();
  std::string regionText(Region region) const;
  void oneStep();
  void finishSteps(size_t running);
  void finish(const Stepper::Result &result, double milliseconds);
  void report(const Stepper::Result &result, double milliseconds);
  void checkOverflow(const Stepper::Result &result);
  void warnNoLabel(const Stepper::Result &result);
  void endEpoch();
  void validate(int64_t epoch);
  void save();
  void writeEnd(const char *reason, int64_t step);
  void finish(const char *reason);

  const Program &program;
  Device &device;
  TrainOptions options;
  CheckpointFolder folder;
  RunState state;
  std::unique_ptr<CheckpointFile> resumed;
  Dataset data;
  std::optional<Dataset> validData;
  std::unique_ptr<EpochPlan> plan;
  std::unique_ptr<Stepper> stepper;
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<ScheduleTable> schedule;
  std::vector<int64_t> order;
  Metrics metrics;
  std::unique_ptr<Progress> progress;
  Progress::Clock::time_point began, epochBegan, flushed;
  std::deque<Progress::Clock::time_point> launched; ///< the steps whose results are not known yet
  Progress::Clock::time_point known;                ///< when the last result was
  int64_t total = 0;                                ///< steps of the whole run
  int64_t firstStep = 0;                            ///< of this call
  int64_t samplesDone = 0;                          ///< in this call
  int64_t skipped = 0, epochSkipped = 0;            ///< steps of this call, of this epoch's part
  int64_t savedStep = -1, validatedStep = -1;
  bool warnedNoLabel = false;
};

double secondsSince(Progress::Clock::time_point then) {
  return std::chrono::duration<double>(Progress::Clock::now() - then).count();
}

TrainingRun::TrainingRun(const Program &program, Device &device, const TrainOptions &options)
    : program(program), device(device), options(options), folder(options.out) {
  if (!options.out.empty())
    claimFolder();
  data = Dataset::load(options.data, program, inputsOf(program, {"gradients"}), true);
  if (options.valid)
    validData = Dataset::load(*options.valid, program, inputsOf(program, {"eval_step"}), false);
  state = resumed ? resumedState(program, options, *resumed, data.samples())
                  : freshState(program, options, data.samples());
  if (!state.tuned.empty())
    device.useTuned(state.tuned);
  if (options.tune)
    device.tune();
  plan = std::make_unique<EpochPlan>(program, state.hyper, data.samples());
  total = state.steps;
  if (total == 0 && __builtin_mul_overflow(state.epochs, plan->stepsPerEpoch, &total))
    throw UsageError("--epochs " + std::to_string(state.epochs) + " are more than 2^63 steps");
  if (state.position >= plan->samples)
    throw Error("--resume: " + quote(resumed->path()) + " stands at sample " +
                std::to_string(state.position) + " of an epoch of " +
                std::to_string(plan->samples));
  order.resize(static_cast<size_t>(data.samples()));
  stepper = std::make_unique<Stepper>(program, device, data, state.hyper);
  if (validData) {
    requireEntry(program, "eval_step", "--valid");
    evaluator = std::make_unique<Evaluator>(program, device, *validData);
  }
  device.addTuned(state.tuned); // all that this run executes has been prepared
}

/// Locked before anything in it is looked at: a run that ends there may still write.
void TrainingRun::claimFolder() {
  folder.lock();
  if (options.resume)
    resumed = folder.newest();
  else if (!options.overwrite && folder.hasCheckpoints())
    throw Error(quote(options.out) + " already has checkpoints: continue with --resume, start "
                                     "over with --overwrite, or choose another --out");
}

/// The metrics would be written over what the run reads, or over what an earlier one wrote.
void TrainingRun::requireOwnMetrics() const {
  auto refuse = [&](const std::string &file, const char *what) {
    std::error_code none; // one of them is not there
    if (std::filesystem::equivalent(options.metrics, file, none))
      throw Error("--metrics: " + quote(options.metrics) + " is " + what);
  };
  auto refuseCheckpoints = [&](const std::string &path) {
    std::error_code none;
    bool isFolder = std::filesystem::is_directory(path, none);
    for (const std::string &file :
         isFolder ? CheckpointFolder(path).files() : std::vector<std::string>{path})
      refuse(file, "a checkpoint");
  };
  for (const auto &[name, file] : options.data.files)
    refuse(file, "a file of the data");
  if (options.valid)
    for (const auto &[name, file] : options.valid->files)
      refuse(file, "a file of the data");
  refuseCheckpoints(options.checkpoint);
  refuseCheckpoints(options.out);
  // Nor a name in --out that is the run's own, now or later.
  auto place = std::filesystem::path(options.metrics);
  std::error_code none;
  bool isInside = !options.out.empty() &&
                  std::filesystem::equivalent(place.has_parent_path() ? place.parent_path() : ".",
                                              options.out, none);
  if (isInside && CheckpointFolder::isOwn(place.filename().string()))
    throw Error("--metrics: " + quote(options.metrics) + " is a name for the run's checkpoints");
}

std::string TrainingRun::regionText(Region region) const {
  return cpu::bytesText(program.region_bytes[static_cast<size_t>(region)]);
}

void TrainingRun::start() {
  if (resumed) {
    loadCheckpoint(*resumed, program, device, true);
    resumed.reset();
  } else if (!options.checkpoint.empty()) {
    loadCheckpoint(*openCheckpoint(options.checkpoint), program, device, false);
  } else {
    device.weightsChanged();
  }
  stepper->prepare(state);
  schedule =
      std::make_unique<ScheduleTable>(program, device, state.hyper, state.applied_steps, total);
  epochOrder(state.hyper.seed, static_cast<uint64_t>(state.epoch), state.hyper.shuffle, order);
  if (options.out.empty()) {
    warn("no --out: the trained weights will not be saved");
  } else {
    makeFolders(options.out);
    if (!options.resume) // the folder may be new
      claimFolder();
  }
  if (!options.metrics.empty()) {
    requireOwnMetrics();
    metrics.open(options.metrics, options.resume ? state.step : 0,
                 state.validation_due && evaluator);
  }
  if (!options.out.empty()) { // once nothing is left that may be refused
    folder.removeLeftover();
    if (options.overwrite && !options.resume)
      folder.removeAll();
  }
  progress = std::make_unique<Progress>(options.logEvery, program.loss_scale_mode == "dynamic");
  if (program.target != "cpu")
    progress->line(device.describe() + "; memory " + cpu::bytesText(device.memoryBytes()) +
                   " (parameters and optimizer " + regionText(Region::states) + ", step " +
                   regionText(Region::arena) + ", gradients " + regionText(Region::gradients) +
                   ")");
  if (std::string tuning = device.describeTuning(); !tuning.empty())
    progress->line(tuning);
  progress->begin(state.step);
  firstStep = state.step;
  savedStep = options.resume ? state.step : -1;
  began = epochBegan = flushed = Progress::Clock::now();
}

int TrainingRun::run() {
  SignalGuard guard;
  start();
  int signal = 0;
  bool stopped = false;
  auto mayGoOn = [&] { return !stopped && !signal && metrics.failure().empty(); };
  if (state.validation_due && evaluator) {
    validate(state.validation_due);
    signal = SignalGuard::received();
    if (!state.validation_due) { // a run that is killed from here on needs no second one
      savedStep = -1;
      save();
    }
  }
  while (state.step < total && mayGoOn()) {
    oneStep();
    bool epochEnded = state.position >= plan->samples;
    if (epochEnded)
      endEpoch();
    bool due = options.checkpointEvery ? state.step % options.checkpointEvery == 0 : epochEnded;
    stopped = options.stopAfter && state.step - firstStep >= options.stopAfter;
    signal = SignalGuard::received();
    if (due && state.step < total)
      save();
  }
  finishSteps(0);
  // The last epoch was not finished: its validation is still to come, also where this call's share
  // of the steps ends with the run.
  if (state.step >= total && evaluator && validatedStep != state.step && state.step > firstStep) {
    if (!signal && metrics.failure().empty())
      validate(state.epoch + 1);
    else if (!state.validation_due) // else: of the epoch that has just ended
      state.validation_due = state.epoch + 1;
    signal = SignalGuard::received();
  }
  save();
  finish(signal ? "signal" : state.step < total ? "stopped" : "finished");
  if (!metrics.failure().empty())
    throw Error(metrics.failure() + "; the run ended at step " + std::to_string(state.step) +
                (options.out.empty() ? "" : ", with a checkpoint: --resume goes on"));
  return signal ? 128 + signal : 0;
}

void TrainingRun::oneStep() {
  // The clock is only read where somebody wants to know.
  if (metrics.enabled())
    launched.push_back(Progress::Clock::now());
  state.validation_due = 0; // of weights that are gone now
  stepper->launch(state, order, plan->samples);
  finishSteps(device.isAsynchronous() ? 1 : 0);
}

/// Looks at the results of all steps but the last `running` ones, which the device is busy with.
void TrainingRun::finishSteps(size_t running) {
  while (stepper->pending() > running) {
    Stepper::Result result = stepper->take(state);
    double milliseconds = 0;
    if (metrics.enabled()) {
      // A step that was launched while another ran began when that one ended.
      milliseconds = secondsSince(std::max(known, launched.front())) * 1e3;
      known = Progress::Clock::now();
      launched.pop_front();
    }
    finish(result, milliseconds);
  }
}

void TrainingRun::finish(const Stepper::Result &result, double milliseconds) {
  schedule->advance(state.applied_steps);
  samplesDone += result.samples;
  if (!result.applied) {
    ++skipped;
    ++epochSkipped;
  }
  if (std::isfinite(result.loss) && result.count > 0) {
    state.epoch_loss += result.count * result.loss;
    state.epoch_count += result.count;
  }
  if (metrics.enabled() || progress->wants(result.step))
    report(result, milliseconds);
  if (result.count != 0)
    checkOverflow(result);
  else
    warnNoLabel(result);
}

void TrainingRun::report(const Stepper::Result &result, double milliseconds) {
  // A skipped step used no learning rate; it shows the one that waits.
  int64_t k = state.applied_steps - (result.applied ? 1 : 0);
  double lr = learningRate(state.hyper, k, total);
  if (metrics.enabled()) {
    JsonLine line("step");
    line.add("step", result.step).add("epoch", result.epoch + 1).add("loss", result.loss);
    line.add("lr", lr).add("grad_norm", result.gradNorm).add("loss_scale", result.scale);
    line.add("skipped", !result.applied).add("step_ms", milliseconds);
    line.add("samples_per_s", static_cast<double>(result.samples) / (milliseconds / 1e3));
    metrics.write(line);
    Progress::Clock::time_point now = Progress::Clock::now();
    if (now - flushed > std::chrono::seconds(1)) {
      metrics.flush();
      flushed = now;
    }
  }
  const char *skipped = result.applied ? nullptr : result.count != 0 ? "overflow" : "no label";
  if (progress->wants(result.step))
    progress->show({result.step, total, result.epoch + 1, result.loss, lr, result.scale, skipped},
                   samplesDone);
}

/// A step whose labels are all ignored has no loss. It is left out, and says so once.
void TrainingRun::warnNoLabel(const Stepper::Result &result) {
  if (!warnedNoLabel)
    progress->warning(
        "step " + std::to_string(result.step) + ": no label counts (all are the ignored one, " +
        std::to_string(program.ignore_index) + "): such a step has no loss and changes nothing");
  warnedNoLabel = true;
}

void TrainingRun::checkOverflow(const Stepper::Result &result) {
  bool floor = program.loss_scale_mode != "dynamic" || result.scale <= 1;
  state.overflows = result.applied || !floor ? 0 : state.overflows + 1;
  if (state.overflows < kMaxOverflows)
    return;
  writeEnd("overflow", result.step);
  std::string at = program.loss_scale_mode == "dynamic" ? " at loss scale 1" : "";
  bool half = program.precision == "fp16";
  throw Error("step " + std::to_string(result.step) + ": " + std::to_string(kMaxOverflows) +
              " steps in a row were not finite" + at + "; the first that overflowed: " +
              stepper->firstOverflow() + ". Lower --lr, or check the data" +
              (half ? ", or compile with --precision=bf16 or --keep-fp32 for its layer" : ""));
}

void TrainingRun::endEpoch() {
  finishSteps(0);
  double seconds = secondsSince(epochBegan);
  double loss = state.epoch_count > 0 ? state.epoch_loss / state.epoch_count : std::nan("");
  std::string text = "epoch " + std::to_string(state.epoch + 1) +
                     (state.epochs ? "/" + std::to_string(state.epochs) : "") + "  step " +
                     std::to_string(state.step) + "  loss " + numberText(loss) + "  " +
                     durationText(seconds);
  if (epochSkipped)
    text += "  " + std::to_string(epochSkipped) + " skipped";
  epochSkipped = 0;
  progress->line(text);
  if (evaluator)
    validate(state.epoch + 1);
  ++state.epoch;
  state.position = 0;
  state.epoch_loss = state.epoch_count = 0;
  epochOrder(state.hyper.seed, static_cast<uint64_t>(state.epoch), state.hyper.shuffle, order);
  metrics.flush();
  epochBegan = Progress::Clock::now();
}

void TrainingRun::validate(int64_t epoch) {
  std::optional<Evaluation> whole = evaluator->run([] { return SignalGuard::received() != 0; });
  state.validation_due = whole ? 0 : epoch;
  if (!whole)
    return;
  const Evaluation &evaluation = *whole;
  validatedStep = state.step;
  progress->line("validation  " + evaluationText(evaluation));
  if (metrics.enabled()) {
    JsonLine line("eval");
    line.add("step", state.step).add("epoch", epoch).add("loss", evaluation.loss);
    if (evaluation.hasAccuracy())
      line.add("accuracy", evaluation.accuracy);
    metrics.write(line);
  }
  if (!(evaluation.loss < state.best_loss))
    return;
  state.best_loss = evaluation.loss;
  if (options.out.empty())
    return;
  stepper->readBack(state);
  writeCheckpoint(folder.bestPath(), program, device, state);
}

void TrainingRun::save() {
  if (options.out.empty() || savedStep == state.step)
    return;
  finishSteps(0);
  // Before the checkpoint: a run that is killed behind it continues after the lines that are there.
  metrics.flush();
  stepper->readBack(state);
  writeCheckpoint(folder.stepPath(state.step), program, device, state);
  savedStep = state.step;
  folder.prune(options.keep, state.step);
}

void TrainingRun::writeEnd(const char *reason, int64_t step) {
  if (!metrics.enabled())
    return;
  double seconds = secondsSince(began);
  JsonLine line("end");
  // The epoch of the last step, which may have ended with it.
  int64_t epoch = state.epoch + (state.position > 0 ? 1 : 0);
  line.add("step", step).add("epoch", epoch).add("reason", reason);
  line.add("applied_steps", state.applied_steps).add("seconds", seconds);
  line.add("samples_per_s", static_cast<double>(samplesDone) / seconds);
  line.add("peak_memory_bytes", cpu::peakMemoryBytes());
  line.add("device", device.describe());
  line.add("device_memory_bytes", static_cast<int64_t>(device.memoryBytes()));
  // A step's products and convolutions, by who executes them.
  std::vector<std::string> commands = device.describeCommands("gradients");
  int64_t generated = std::count_if(commands.begin(), commands.end(), [](const std::string &how) {
    return how.find(": generated kernel") != std::string::npos;
  });
  line.add("library_commands", static_cast<int64_t>(commands.size()) - generated);
  line.add("generated_commands", generated);
  if (std::string tuning = device.describeTuning(); !tuning.empty())
    line.add("tuning", tuning);
  metrics.write(line);
  metrics.close();
}

void TrainingRun::finish(const char *reason) {
  double seconds = secondsSince(began);
  int64_t steps = state.step - firstStep;
  writeEnd(reason, state.step);
  std::string text = std::string(reason) + " at step " + std::to_string(state.step);
  if (state.step <= total)
    text += " of " + std::to_string(total);
  text += " (" + std::to_string(steps) + " in " + durationText(seconds);
  if (skipped)
    text += ", " + std::to_string(skipped) + " skipped";
  if (!options.out.empty())
    text += "; " + quote(folder.stepPath(state.step));
  progress->line(text + ")");
  if (steps > 0 && skipped == steps)
    progress->warning("no step changed a weight: the gradients of none were finite, or no label "
                      "counts; look at the data, --lr and --metrics");
}

} // namespace

int mpc::train(const Program &program, Device &device, const TrainOptions &options) {
  requireEntry(program, "gradients", "train");
  return TrainingRun(program, device, options).run();
}
