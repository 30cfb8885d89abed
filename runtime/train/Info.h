//===- Info.h - what a trainer is ----------------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_INFO_H
#define MPC_RUNTIME_TRAIN_INFO_H

#include "runtime/core/Program.h"

namespace mpc {

/// Inputs, outputs, parameters, precision, target, memory and build facts, as text.
std::string infoText(const Program &program);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_INFO_H
