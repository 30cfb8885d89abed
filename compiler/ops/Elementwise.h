//===- Elementwise.h - derivatives of arith and math on tensors ----------------===//

#ifndef MPC_OPS_ELEMENTWISE_H
#define MPC_OPS_ELEMENTWISE_H

#include "mlir/IR/DialectRegistry.h"

namespace mpc {
/// Attaches DifferentiableOpInterface to the operations of `arith` and `math` that have a
/// derivative.
void registerElementwiseModels(mlir::DialectRegistry &registry);
} // namespace mpc

#endif // MPC_OPS_ELEMENTWISE_H
