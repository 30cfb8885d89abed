//===- CombineSamples.cpp - softmax and cumulative sums along the samples -----------===//
//
// Of a sample that is not there an operation along the samples reads the neutral element, and
// would make 0 or -∞ of it, which the model computes for no sample: further on it might become
// infinite, and times the zero that is its gradient NaN. So these are written such that it gets
// what it would have among those that are there; it is a copy of the first, but for a dropout's
// random numbers.
//
//   softmax x        →  e / Σ e                e = exp d
//   log_softmax x    →  d - log Σ exp d        d = x - max x, at most 0
//   cumsum x         →  s, or s₀ of the first      s = cumsum x
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
  d = select(d > 0, 0, d); // where it is none of those that are there
  Expr e = exp(d), sum = reducedAlong(ReductionKind::sum, e, axis, b, loc);
  Expr y = isa<SoftmaxOp>(op) ? e / sum : d - log(sum);
  return y.cast(elementType(op->getResult(0)));
}

Value OnnxConverter::alongSamples(Operation *op) {
  if (!isa<SoftmaxOp, LogSoftmaxOp, CumSumOp>(op))
    return {};
  Location loc = op->getLoc();
  int64_t axis = op->getAttrOfType<IntegerAttr>("axis").getInt();
  SamplePlaces places = analysis.of(op->getOperand(0));
  const SamplePlace *place = places.on(axis);
  if (!place)
    return {};
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  if (!isa<CumSumOp>(op))
    return softmaxAlong(op, axis, b);
  // The mask is one of the samples, too: 1 for those that are there.
  return replaced(loc, b.clone(*op)->getResult(0), *place, [&](Value sums, int64_t axis) -> Value {
    Value ones = splat(b, loc, tensorType(sums).clone(b.getI1Type()), 1);
    Value there =
        MaskSamplesOp::create(b, loc, ones.getType(), ones, samples(), axis, place->inner);
    return arith::SelectOp::create(b, loc, there, sums,
                                   copiesOfFirst(loc, sums, axis, place->inner));
  });
}
