//===- CombineSamples.cpp - softmax and cumulative sums along the samples -----------===//
//
// Of a sample that is not there an operation along the samples reads the neutral element, and
// would make 0 or -∞ of it, which the model computes for no sample: further on it might become
// infinite, and times the zero that is its gradient NaN. So these are written such that it gets
// what it would have among those that are there; it is a copy of the first.
//
//   softmax x            →  e / Σ e                e = exp d
//   log_softmax x        →  d - log Σ exp d        d = x - max x
//   cumsum x, reversed   →  x + Σ of those behind it
//
// max and Σ are of the samples that are there (CountSamples.cpp).
//
//===--------------------------------------------------------------------------------===//

#include "Expression.h"
#include "OnnxConverter.h"

using namespace mlir;
using namespace mpc;

static Expr reducedAlong(ReductionKind kind, const Expr &x, int64_t axis, OpBuilder &b,
                         Location loc) {
  ArrayRef<int64_t> shape = shapeOf(x);
  SmallVector<int64_t> others;
  for (int64_t d = 0, rank = shape.size(); d < rank; ++d)
    if (d != axis)
      others.push_back(d);
  return x.with(broadcast(b, loc, reduce(b, loc, kind, x, {axis}), others, shape));
}

static Value softmaxAlong(Operation *op, int64_t axis, OpBuilder &b) {
  Location loc = op->getLoc();
  Expr x(b, loc, widen(b, loc, op->getOperand(0)));
  // Any number would do in its place, so that it has no gradient.
  Expr d = x - reducedAlong(ReductionKind::max, x, axis, b, loc).unary<StopGradientOp>();
  Expr e = exp(d), sum = reducedAlong(ReductionKind::sum, e, axis, b, loc);
  Expr y = isa<SoftmaxOp>(op) ? e / sum : d - log(sum);
  return y.cast(elementType(op->getResult(0)));
}

Value OnnxConverter::alongSamples(Operation *op) {
  auto softmax = isa<SoftmaxOp, LogSoftmaxOp>(op);
  auto sums = dyn_cast<CumSumOp>(op);
  if (!softmax && !(sums && sums.getReverse() && !sums.getExclusive()))
    return {};
  int64_t axis = op->getAttrOfType<IntegerAttr>("axis").getInt();
  if (!analysis.of(op->getOperand(0)).on(axis))
    return {};
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  if (softmax)
    return softmaxAlong(op, axis, b);
  Value x = op->getOperand(0), behind = CumSumOp::create(b, op->getLoc(), x.getType(), x, axis,
                                                         /*exclusive=*/true, /*reverse=*/true);
  return add(b, op->getLoc(), x, behind);
}
