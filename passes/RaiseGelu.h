//===- RaiseGelu.h - GELU written out -----------------------------------------===//

#ifndef MPC_PASSES_RAISEGELU_H
#define MPC_PASSES_RAISEGELU_H

#include "mlir/IR/Operation.h"

namespace mpc {
/// Replaces the GELU that an erf or a tanh is the heart of; false if it is none.
bool raiseGelu(mlir::Operation *function);
} // namespace mpc

#endif // MPC_PASSES_RAISEGELU_H
