//===- Pointwise.h - the frame of every pointwise handler -----------------------===//
//
// Numpy broadcasting, and arithmetic in f32 where the model itself holds halves: operands
// are widened, one formula is built, and its result is rounded once.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_OPS_POINTWISE_H
#define MPC_OPS_POINTWISE_H

#include "Expression.h"
#include "OnnxConversion.h"

namespace mpc {

/// The operands that the node has, or what stands for them, broadcast to one shape (halves widened
/// first where `widenHalves`). An error is emitted and nothing returned if one is missing or does
/// not fit.
std::optional<llvm::SmallVector<Value>> broadcastOperands(NodeContext &node, unsigned count,
                                                          bool widenHalves = true);
std::optional<llvm::SmallVector<Value>>
broadcastOperands(NodeContext &node, llvm::ArrayRef<Value> values, bool widenHalves = true);

/// One result: the formula's value, rounded to `resultElementType`.
mlir::LogicalResult pointwiseResult(NodeContext &node, Value value, Type resultElementType);

/// A handler of a function of one float tensor.
OnnxHandler unaryHandler(std::function<Expr(NodeContext &, Expr)> formula);

} // namespace mpc

#endif // MPC_OPS_POINTWISE_H
