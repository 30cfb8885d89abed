//===- Resume.h - where a run starts -------------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_RESUME_H
#define MPC_RUNTIME_TRAIN_RESUME_H

#include "runtime/train/Checkpoint.h"
#include "runtime/train/Train.h"

namespace mpc {

/// A run's first state. Throws UsageError where --lr or the number of steps is missing or the
/// options contradict each other.
RunState freshState(const Program &program, const TrainOptions &options, int64_t samples);

/// The state in a checkpoint, if the program, the data and the options given agree with it. Throws
/// Error naming what does not.
RunState resumedState(const Program &program, const TrainOptions &options,
                      const CheckpointFile &file, int64_t samples);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_RESUME_H
