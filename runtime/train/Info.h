//===- Info.h - what a trainer is ----------------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_INFO_H
#define MPC_RUNTIME_TRAIN_INFO_H

#include "runtime/core/Program.h"
#include "runtime/train/Checkpoint.h"

namespace mpc {

/// Inputs, outputs, parameters, precision, target, memory and build facts, as text.
std::string infoText(const Program &program);

/// Where the run of a checkpoint stands, as text.
std::string checkpointText(const CheckpointFile &file);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_INFO_H
