//===- Export.h - the trained model as ONNX ------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_EXPORT_H
#define MPC_RUNTIME_TRAIN_EXPORT_H

#include "runtime/train/Checkpoint.h"

namespace mpc {

/// Writes the program's model with the checkpoint's weights and statistics (null: the initial
/// ones) to `output`. Needs no device. Throws Error.
void exportModel(const Program &program, const CheckpointFile *checkpoint,
                 const std::string &output);

/// Refuses a program without weights (--external-weights) where no checkpoint is given.
void requireWeights(const Program &program, bool checkpoint, const std::string &command);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_EXPORT_H
