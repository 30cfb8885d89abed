//===- AssignLayout.h - the parts of assign-layout -----------------------------------===//

#ifndef MPC_PASSES_ASSIGNLAYOUT_H
#define MPC_PASSES_ASSIGNLAYOUT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpc {

/// Transposes at the operands and results of matrix products become their transpose flags
/// (MatmulTransposes.cpp).
void moveTransposesIntoMatmuls(mlir::func::FuncOp function);

} // namespace mpc

#endif // MPC_PASSES_ASSIGNLAYOUT_H
