//===- Train.h - the training loop ---------------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_TRAIN_H
#define MPC_RUNTIME_TRAIN_TRAIN_H

#include "runtime/core/Device.h"
#include "runtime/data/DatasetSpec.h"
#include "runtime/train/Hyperparameters.h"
#include <optional>
#include <set>

namespace mpc {

struct TrainOptions {
  DatasetSpec data;
  std::optional<DatasetSpec> valid;
  Hyperparameters hyper;
  int64_t epochs = 0, steps = 0; ///< totals; 0: not given
  std::set<std::string> given;   ///< option names (without --) that the user wrote
  std::string checkpoint;        ///< weights to start from
  std::string out;               ///< folder for checkpoints; empty: none are written
  int64_t checkpointEvery = 0;   ///< steps; 0: each epoch
  int64_t keep = 3;
  bool resume = false, overwrite = false;
  bool tune = false;     ///< time products and convolutions
  int64_t stopAfter = 0; ///< steps of this call; 0: to the end
  std::string metrics;
  int64_t logEvery = 100;
};

/// Trains; returns the exit code: 0, or 130/143 after SIGINT/SIGTERM. Throws Error or UsageError.
int train(const Program &program, Device &device, const TrainOptions &options);

/// How a run of `samples` samples is cut up.
struct EpochPlan {
  int64_t samples;       ///< used per epoch
  int64_t stepsPerEpoch; ///< optimizer steps
  /// Throws Error where the last, smaller batch cannot be trained.
  EpochPlan(const Program &program, const Hyperparameters &hyper, int64_t samples);
};

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_TRAIN_H
