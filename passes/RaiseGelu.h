//===- RaiseGelu.h - GELU written out -----------------------------------------===//

#ifndef MPC_PASSES_RAISEGELU_H
#define MPC_PASSES_RAISEGELU_H

#include "mlir/IR/Operation.h"
#include <optional>

namespace mpc {
/// The number that a constant tensor of floats repeats; nothing for others.
std::optional<double> numberOf(mlir::Value v);
/// Replaces the GELU that an erf or a tanh is the heart of; false if it is none.
bool raiseGelu(mlir::Operation *function);
} // namespace mpc

#endif // MPC_PASSES_RAISEGELU_H
