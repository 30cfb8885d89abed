//===- Statistics.h - running statistics after a step ------------------------------------===//
//
// A BatchNormalization in training mode has its new running statistics as outputs. For whoever
// reads them there is a mark behind the normalization: until prepare-training it holds the
// statistic itself, which inference mode does not change; in @forward it gets what the
// normalization makes of the one that it has read. It has no gradient, as in PyTorch.
//
//===------------------------------------------------------------------------------------===//

#ifndef MPC_OPS_STATISTICS_H
#define MPC_OPS_STATISTICS_H

#include "MpcDialect.h"

namespace mpc {

/// On a stop_gradient of a running statistic.
constexpr llvm::StringLiteral kNewStatisticAttr = "mpc.new_statistic";

inline bool isNewStatistic(mlir::Operation *op) {
  return mlir::isa_and_present<StopGradientOp>(op) && op->hasAttr(kNewStatisticAttr);
}

/// Behind such a mark, which is the statistic after an earlier normalization; else the value
/// itself.
inline mlir::Value statisticBehind(mlir::Value v) {
  mlir::Operation *op = v.getDefiningOp();
  return isNewStatistic(op) ? op->getOperand(0) : v;
}

} // namespace mpc

#endif // MPC_OPS_STATISTICS_H
