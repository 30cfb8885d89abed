//===- Stepper.h - one optimizer step ------------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_STEPPER_H
#define MPC_RUNTIME_TRAIN_STEPPER_H

#include "runtime/data/Batcher.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/State.h"
#include <vector>

namespace mpc {

/// Runs the program's entry points in the order of one optimizer step. The host decides nothing
/// inside a step: whether it is applied, the next scale and the counters are the program's. So it
/// can launch() a step before it has taken the result of the one before: a device that runs beside
/// the host (Device::isAsynchronous()) never waits for it.
class Stepper {
public:
  struct Result {
    int64_t step, epoch; ///< which step it was: of the run from 1 on, and its epoch from 0 on
    double loss;         ///< mean over the micro-batches' loss elements that count; NaN: none does
    double count;        ///< of these
    int64_t samples;     ///< of the step
    double scale;        ///< loss scale that the step ran with
    double gradNorm;
    bool applied;
  };

  Stepper(const Program &program, Device &device, const Dataset &dataset,
          const Hyperparameters &hyper);

  /// Puts the program's state where a run stands: scale, counters, hyperparameters, working
  /// statistics. Weights and optimizer states are there already.
  void prepare(const RunState &state);
  /// Up to `accumulate` micro-batches of samples order[position … end-1]; advances position,
  /// micro_batches and step of `state`.
  void launch(RunState &state, const std::vector<int64_t> &order, int64_t end);
  /// Steps whose results were not taken yet.
  size_t pending() const { return steps.size(); }
  /// The result of the oldest of them; advances applied_steps of `state`. Waits for the device.
  Result take(RunState &state);
  /// What only the program knows, for a checkpoint. No step is pending.
  void readBack(RunState &state) const;

  /// What made the step overflow whose result was taken last: the first parameter whose gradient is
  /// not finite.
  const std::string &firstOverflow() const { return overflow; }

private:
  struct MicroBatch {
    uint64_t mark; ///< of the device, behind it
    int64_t samples;
  };
  /// A step that was launched.
  struct Step {
    int64_t step = 0, epoch = 0, samples = 0;
    uint64_t mark = 0;                    ///< of the device, behind all of it
    std::vector<MicroBatch> microBatches; ///< of several, those that are not in the sums yet
    double lossSum = 0, count = 0;
  };
  /// Fills the next batch and runs it; returns its samples.
  int64_t microBatch(RunState &state, const std::vector<int64_t> &order, int64_t end,
                     const Device::EntryList &entries);
  void addMicroBatch(Step &step);
  std::string findOverflow(uint64_t mark) const;

  const Program &program;
  Device &device;
  Hyperparameters hyper;
  Batcher batcher;
  Scalar loss, count, ok, norm, scale, tracker, applied, accumulatedCount;
  const TensorInfo *random = nullptr;
  std::vector<Step> steps; ///< oldest first; two at most
  double scaleNow = 1;     ///< after the step whose result was taken last
  std::string overflow;
};

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_STEPPER_H
