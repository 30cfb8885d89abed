//===- Rows.h - computing over one axis, in f32, with that axis last -------------===//

#ifndef MPC_OPS_ROWS_H
#define MPC_OPS_ROWS_H

#include "Expression.h"

namespace mpc {

/// The view of tensors of one shape in which `axis` is the last dimension: what a row kernel wants.
struct Rows {
  Rows(OpBuilder &b, Location loc, ArrayRef<int64_t> shape, int64_t axis);

  Expr in(Value v) const;                               ///< widened, axis last
  Value out(const Expr &v, Type elementType) const;     ///< rounded once, axis back in its place
  Expr reduce(ReductionKind kind, const Expr &v) const; ///< over the last dimension
  Expr sum(const Expr &v) const { return reduce(ReductionKind::sum, v); }
  Expr spread(const Expr &v) const;  ///< one value per row, repeated along the last dimension
  Expr shifted(const Expr &x) const; ///< x - max(x): exp of it cannot overflow

  OpBuilder &b;
  Location loc;
  llvm::SmallVector<int64_t> toLast, back; ///< permutations
  llvm::SmallVector<int64_t> rowShape;     ///< the shape with the axis last
  llvm::SmallVector<int64_t> outer;        ///< 0, 1, …: the dimensions before the last
};

/// Of a softmax that is 0 in rows of -∞ throughout: what stands for their largest element, and for
/// the sum of their exponentials. Others keep theirs, NaN too.
Expr safeLargest(const Expr &largest);
Expr safeSum(const Expr &sum);

class NodeContext;
/// Where(c, 0, p) and Where(c, p, 0), p = softmax(x), with a gradient of zero in rows of -∞
/// throughout: as PyTorch writes attention whose masks may leave nothing of a row, and ONNX its
/// Attention. Replaces c and p among the node's operands; other choices stay.
void makeSoftmaxSafe(NodeContext &node, llvm::MutableArrayRef<Value> operands);

} // namespace mpc

#endif // MPC_OPS_ROWS_H
