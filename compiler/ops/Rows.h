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

class NodeContext;
/// What a Where node chooses from a softmax and a test of it for NaN, with a derivative of zero in
/// rows of -∞ throughout; null where it is another choice.
Value safeSoftmax(NodeContext &node);

} // namespace mpc

#endif // MPC_OPS_ROWS_H
