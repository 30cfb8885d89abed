//===- Update.cpp - optimizer updates in primitive form ---------------------------===//
//
// PyTorch's formulas in f32, in its order of operations. Where `ok` is false every result keeps
// its old bits: the select is inside, so that the update is one kernel that writes in place.
//
//===----------------------------------------------------------------------------===//

#include "Expression.h"

using namespace mlir;

namespace mpc {

namespace {
/// Access to the scalars of an update, repeated to the parameter's shape where they are used.
struct Update {
  OpBuilder &b;
  Location loc;
  ArrayRef<int64_t> shape;

  Expr tensor(Value v) const { return {b, loc, v}; }
  Expr everywhere(Value scalar) const { return tensor(broadcastScalar(b, loc, scalar, shape)); }
  Expr element(Value vector, int64_t i) const {
    return tensor(reshape(b, loc, slice(b, loc, vector, {i}, {1}, {1}), {}));
  }
  Value keep(Value ok, const Expr &updated, Value old) const {
    return select(everywhere(ok), updated, tensor(old));
  }
};
} // namespace

SmallVector<Value> SgdUpdateOp::expand(OpBuilder &b) {
  Update u{b, getLoc(), shapeOf(getParameter())};
  Expr w = u.tensor(getParameter()), buffer = u.tensor(getMomentum());
  Expr momentum = u.everywhere(u.element(getHyper(), 0)),
       learningRate = u.everywhere(u.element(getRow(), 0));
  Expr g = u.tensor(getGradient()) * u.everywhere(getFactor()) + u.everywhere(getDecay()) * w;
  Expr m = momentum * buffer + g;
  Expr step = getNesterov() ? g + momentum * m : m;
  return {u.keep(getOk(), w - learningRate * step, getParameter()),
          u.keep(getOk(), m, getMomentum())};
}

/// m += (1-β₁)(g - m); v = β₂v + (1-β₂)g²; w -= lr/(1-β₁^k) · m / (√v/√(1-β₂^k) + ε)
SmallVector<Value> AdamUpdateOp::expand(OpBuilder &b) {
  Update u{b, getLoc(), shapeOf(getParameter())};
  Expr w = u.tensor(getParameter()), m = u.tensor(getExpAvg()), v = u.tensor(getExpAvgSq());
  Expr learningRate = u.element(getRow(), 0), stepSize = u.everywhere(u.element(getRow(), 1)),
       correction = u.everywhere(u.element(getRow(), 2));
  Expr beta1 = u.element(getHyper(), 0), beta2 = u.element(getHyper(), 1),
       epsilon = u.everywhere(u.element(getHyper(), 2));
  // 1 - f32(0.999) is 1.3e-5 off: the host gives 1 - β₂ rounded once, where it gives it.
  Expr given = u.element(getHyper(), 7), oneMinusBeta2 = select(given > 0, given, 1 - beta2),
       decay = u.tensor(getDecay());

  Expr g = u.tensor(getGradient()) * u.everywhere(getFactor());
  if (getDecoupled())
    w = w * u.everywhere(1 - learningRate * decay);
  else
    g = g + u.everywhere(decay) * w;
  Expr newM = m + u.everywhere(1 - beta1) * (g - m);
  Expr newV = u.everywhere(beta2) * v + u.everywhere(oneMinusBeta2) * (g * g);
  Expr newW = w - stepSize * (newM / (sqrt(newV) / correction + epsilon));
  return {u.keep(getOk(), newW, getParameter()), u.keep(getOk(), newM, getExpAvg()),
          u.keep(getOk(), newV, getExpAvgSq())};
}

} // namespace mpc
