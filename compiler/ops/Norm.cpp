//===- Norm.cpp - layer normalization ----------------------------------------===//
//
// mpc.layer_norm and its gradient in primitive operations. A row is the dimensions before
// `axis`; what is normalized are those from it on. The expansions are elementwise chains over
// the whole tensor with one reduction over the inner dimensions each, which is what a row
// kernel takes.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/Build.h"

using namespace mlir;
using namespace mpc;

namespace {
/// The rows of a tensor that is normalized over its dimensions from `axis` on.
struct Rows {
  OpBuilder &b;
  Location loc;
  SmallVector<int64_t> shape, outer, inner;
  Type type; ///< of all arithmetic
  double count = 1;

  Rows(OpBuilder &b, Location loc, Value input, int64_t axis)
      : b(b), loc(loc), shape(shapeOf(input)), type(computeType(elementType(input))) {
    for (int64_t d = 0, rank = shape.size(); d < rank; ++d) {
      (d < axis ? outer : inner).push_back(d);
      if (d >= axis)
        count *= static_cast<double>(shape[d]);
    }
  }
  Value wide(Value v) { return castTo(b, loc, v, type); }
  Value perRow(Value v) { return broadcast(b, loc, wide(v), outer, shape); }
  Value perElement(Value v) { return broadcast(b, loc, wide(v), inner, shape); }
  Value sumOfRow(Value v) { return reduce(b, loc, ReductionKind::sum, v, inner); }
  Value sumOverRows(Value v) { return reduce(b, loc, ReductionKind::sum, v, outer); }
  Value meanOfRow(Value v) {
    Value sum = sumOfRow(v);
    return div(b, loc, sum, splat(b, loc, sum.getType(), count));
  }
  /// (x - mean) · rstd
  Value normalized(Value x, Value mean, Value rstd) {
    return mul(b, loc, sub(b, loc, wide(x), perRow(mean)), perRow(rstd));
  }
};
} // namespace

// mean = Σx / n;  d = x - mean;  rstd = 1 / √(Σd² / n + ε);  y = d · rstd · scale + bias
SmallVector<Value> LayerNormOp::expand(OpBuilder &b) {
  Location loc = getLoc();
  Rows rows(b, loc, getInput(), getAxis());
  Value x = rows.wide(getInput());
  Value mean = rows.meanOfRow(x);
  Value d = sub(b, loc, x, rows.perRow(mean));
  Value variance = rows.meanOfRow(mul(b, loc, d, d));
  Value shifted =
      add(b, loc, variance, splat(b, loc, variance.getType(), getEpsilon().convertToDouble()));
  Value one = splat(b, loc, variance.getType(), 1);
  Value rstd = div(b, loc, one, math::SqrtOp::create(b, loc, shifted));
  Value y = mul(b, loc, mul(b, loc, d, rows.perRow(rstd)), rows.perElement(getScale()));
  if (getBias())
    y = add(b, loc, y, rows.perElement(getBias()));
  return {castTo(b, loc, y, elementType(getResult())), castTo(b, loc, mean, elementType(getMean())),
          castTo(b, loc, rstd, elementType(getRstd()))};
}

// Through y: one layer_norm_grad. Through the saved statistics, where a model uses them:
//   dmean/dx = 1 / n;  drstd/dx = -rstd² · x̂ / n
SmallVector<Value> LayerNormOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  Location loc = getLoc();
  SmallVector<Value> gradients(getNumOperands());
  Rows rows(b, loc, getInput(), getAxis());
  if (cotangents[0]) {
    auto vector = RankedTensorType::get(shapeOf(getScale()), rows.type);
    auto grad = LayerNormGradOp::create(b, loc, TypeRange{getInput().getType(), vector, vector},
                                        cotangents[0], getInput(), getScale(), getMean(), getRstd(),
                                        getAxis());
    for (unsigned i = 0; i < gradients.size(); ++i)
      if (wanted[i])
        gradients[i] = castTo(b, loc, grad.getResult(i), wanted[i]);
  }
  if (!wanted[0] || (!cotangents[1] && !cotangents[2]))
    return gradients;
  auto contribute = [&](Value term) {
    term = div(b, loc, term, splat(b, loc, term.getType(), rows.count));
    Value sum = gradients[0] ? add(b, loc, rows.wide(gradients[0]), term) : term;
    gradients[0] = castTo(b, loc, sum, wanted[0]);
  };
  if (cotangents[1])
    contribute(rows.perRow(cotangents[1]));
  if (cotangents[2]) {
    Value rstd = rows.wide(getRstd());
    Value factor = mul(b, loc, rows.wide(cotangents[2]), mul(b, loc, rstd, rstd));
    Value negative = sub(b, loc, splat(b, loc, factor.getType(), 0), factor);
    contribute(
        mul(b, loc, rows.perRow(negative), rows.normalized(getInput(), getMean(), getRstd())));
  }
  return gradients;
}

// x̂ = (x - mean) · rstd;  g = dy · scale
// dx = rstd · (g - mean(g) - x̂ · mean(g · x̂));  dscale = Σ dy · x̂;  dbias = Σ dy, both over the
// rows
SmallVector<Value> LayerNormGradOp::expand(OpBuilder &b) {
  Location loc = getLoc();
  Rows rows(b, loc, getInput(), getAxis());
  Value dy = rows.wide(getOutputGradient());
  Value normalized = rows.normalized(getInput(), getMean(), getRstd());
  Value g = mul(b, loc, dy, rows.perElement(getScale()));
  Value meanOfG = rows.meanOfRow(g), meanOfProduct = rows.meanOfRow(mul(b, loc, g, normalized));
  Value centered = sub(b, loc, sub(b, loc, g, rows.perRow(meanOfG)),
                       mul(b, loc, normalized, rows.perRow(meanOfProduct)));
  Value dx = mul(b, loc, centered, rows.perRow(getRstd()));
  Value dscale = rows.sumOverRows(mul(b, loc, dy, normalized)), dbias = rows.sumOverRows(dy);
  return {castTo(b, loc, dx, elementType(getInputGradient())),
          castTo(b, loc, dscale, elementType(getScaleGradient())),
          castTo(b, loc, dbias, elementType(getBiasGradient()))};
}
