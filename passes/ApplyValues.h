//===- ApplyValues.h - what insert-loss-scaling leaves for insert-optimizer -----===//

#ifndef MPC_PASSES_APPLYVALUES_H
#define MPC_PASSES_APPLYVALUES_H

#include "compiler/ops/Build.h"

namespace mpc {

/// Role of the result of @apply that insert-optimizer takes away: what a gradient is multiplied by
/// (unscale and clip in one).
inline constexpr llvm::StringLiteral kFactorRole = "factor";

/// Element `row` of the argument of role hyper, as a scalar tensor.
Value applyHyper(mlir::OpBuilder &b, Location loc, Value hyper, int64_t row);

} // namespace mpc

#endif // MPC_PASSES_APPLYVALUES_H
