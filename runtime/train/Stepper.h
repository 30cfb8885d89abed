//===- Stepper.h - one optimizer step ------------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_STEPPER_H
#define MPC_RUNTIME_TRAIN_STEPPER_H

#include "runtime/data/Batcher.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/State.h"

namespace mpc {

/// Runs the program's entry points in the order of one optimizer step. The host decides nothing
/// inside a step: whether it is applied, the next scale and the counters are the program's.
class Stepper {
public:
  struct Result {
    double loss;     ///< mean over the micro-batches' loss elements that count; NaN: none does
    double count;    ///< of these
    int64_t samples; ///< of the step
    double scale;    ///< loss scale that the step ran with
    bool applied;
  };

  Stepper(const Program &program, Device &device, const Dataset &dataset,
          const Hyperparameters &hyper);

  /// Puts the program's state where a run stands: scale, counters, hyperparameters, working
  /// statistics. Weights and optimizer states are there already.
  void prepare(const RunState &state);
  /// Up to `accumulate` micro-batches of samples order[position … end-1]; advances position,
  /// micro_batches, step and applied_steps of `state`.
  Result run(RunState &state, const std::vector<int64_t> &order, int64_t end);
  /// What only the program knows, for a checkpoint.
  void readBack(RunState &state) const;

  double gradNorm() const { return norm.real(std::nan("")); }
  double lossScale() const { return scale.real(1); }
  /// What made the last step overflow: the first parameter whose gradient is not finite.
  std::string firstOverflow() const;

private:
  void microBatch(RunState &state, const std::vector<int64_t> &order, int64_t end, Result &result);
  std::vector<double> squareSums() const;

  const Program &program;
  Device &device;
  Hyperparameters hyper;
  Batcher batcher;
  Scalar loss, count, ok, norm, scale, tracker, applied, accumulatedCount;
  const TensorInfo *random = nullptr;
  double scaleNow = 1; ///< as last read back
};

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_STEPPER_H
