//===- BatchNorm.cpp - batch normalization -----------------------------------===//
//
// mpc.batch_norm, its gradient and its inference form in primitive operations. Statistics
// count the samples that are there, `samples` of the batch's N: their number is read from
// memory, so that a smaller last batch runs the same program.
//
// Sums over samples and positions are written as the kernels take them: with channels last,
// one reduction over all leading dimensions; with channels first, over the positions and
// then over the samples.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/ConvShape.h"

using namespace mlir;
using namespace mpc;

namespace {
/// A tensor with one statistic per channel.
struct Channels {
  OpBuilder &b;
  Location loc;
  SmallVector<int64_t> shape;
  int64_t axis;
  Type type; ///< of all arithmetic
  int64_t positions;

  Channels(OpBuilder &b, Location loc, Value input, bool channelsLast)
      : b(b), loc(loc), shape(shapeOf(input)),
        axis(shape.size() < 2 ? 0 : ImageLayout{channelsLast}.channelAxis(shape.size())),
        type(computeType(elementType(input))),
        positions(shape[axis] ? llvm::product_of(shape) / (shape[0] * shape[axis]) : 1) {}

  Value wide(Value v) { return castTo(b, loc, v, type); }
  Value perChannel(Value v) { return broadcast(b, loc, wide(v), {axis}, shape); }

  Value sum(Value v) {
    SmallVector<int64_t> before = llvm::to_vector(llvm::seq<int64_t>(0, axis));
    SmallVector<int64_t> after = llvm::to_vector(llvm::seq<int64_t>(axis + 1, shape.size()));
    return reduce(b, loc, ReductionKind::sum, reduce(b, loc, ReductionKind::sum, v, after), before);
  }

  /// Zero for the samples that are not there.
  Value masked(Value v, Value samples) {
    return MaskSamplesOp::create(b, loc, v.getType(), v, samples, 0, 1);
  }

  /// How many elements of a channel count, per channel: samples · positions.
  Value count(Value samples) {
    Value n = castTo(b, loc, samples, type);
    n = mul(b, loc, n, splat(b, loc, n.getType(), static_cast<double>(positions)));
    return broadcastScalar(b, loc, n, {shape[axis]});
  }

  /// √(variance + ε)
  Value deviation(Value variance, double epsilon) {
    Value v = wide(variance);
    return math::SqrtOp::create(b, loc, add(b, loc, v, splat(b, loc, v.getType(), epsilon)));
  }
  Value oneOver(Value v) { return div(b, loc, splat(b, loc, v.getType(), 1), v); }

  /// (x - mean) · (scale / √(variance + ε)) + bias
  Value normalize(Value x, Value mean, Value variance, Value scale, Value bias, double epsilon) {
    Value factor = div(b, loc, wide(scale), deviation(variance, epsilon));
    Value y = mul(b, loc, sub(b, loc, wide(x), perChannel(mean)), perChannel(factor));
    return add(b, loc, y, perChannel(bias));
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Training
//===----------------------------------------------------------------------===//

// One reading of x, with sums of d = x - shift, shift being the channel's first element: as exact
// as two passes unless the mean is many deviations away from every element, which then is what x
// itself does not resolve.
//   s₁ = Σd;  s₂ = Σd²;  mean = shift + s₁ / count;  variance = max((s₂ - s₁² / count) / count, 0)
SmallVector<Value> BatchNormOp::expand(OpBuilder &b) {
  Location loc = getLoc();
  Channels channels(b, loc, getInput(), getChannelsLast());
  SmallVector<int64_t> none(channels.shape.size(), 0), ones(channels.shape.size(), 1), first(ones);
  int64_t size = channels.shape[channels.axis];
  first[channels.axis] = size;
  Value shift =
      channels.wide(reshape(b, loc, slice(b, loc, getInput(), none, ones, first), {size}));

  Value d = channels.masked(sub(b, loc, channels.wide(getInput()), channels.perChannel(shift)),
                            getSamples());
  Value s1 = channels.sum(d), s2 = channels.sum(mul(b, loc, d, d));
  Value count = channels.count(getSamples());
  Value meanOfD = div(b, loc, s1, count);
  Value mean = add(b, loc, shift, meanOfD);
  Value spread = div(b, loc, sub(b, loc, s2, mul(b, loc, s1, meanOfD)), count);
  Value variance = arith::MaximumFOp::create(b, loc, spread, splat(b, loc, spread.getType(), 0));
  Value y = channels.normalize(getInput(), mean, variance, getScale(), getBias(),
                               getEpsilon().convertToDouble());
  return {castTo(b, loc, y, elementType(getResult())), castTo(b, loc, mean, elementType(getMean())),
          castTo(b, loc, variance, elementType(getVariance()))};
}

// The statistics go to the running averages, which are no part of the loss: only y has a cotangent.
SmallVector<Value> BatchNormOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  SmallVector<Value> gradients(getNumOperands());
  if (!cotangents[0])
    return gradients;
  auto vector = RankedTensorType::get(shapeOf(getScale()), computeType(elementType(getInput())));
  auto grad = BatchNormGradOp::create(
      b, getLoc(), TypeRange{getInput().getType(), vector, vector}, cotangents[0], getInput(),
      getScale(), getMean(), getVariance(), getSamples(), getEpsilonAttr(), getChannelsLastAttr());
  for (unsigned i = 0; i < 3; ++i)
    if (wanted[i])
      gradients[i] = castTo(b, getLoc(), grad.getResult(i), wanted[i]);
  return gradients;
}

// rstd = 1 / √(variance + ε);  x̂ = (x - mean) · rstd;  dbias = Σdy;  dscale = Σ dy · x̂
// dx = scale · rstd · (dy - dbias / count - x̂ · dscale / count); all over the samples that are
// there
SmallVector<Value> BatchNormGradOp::expand(OpBuilder &b) {
  Location loc = getLoc();
  Channels channels(b, loc, getInput(), getChannelsLast());
  Value dy = channels.masked(channels.wide(getOutputGradient()), getSamples());
  Value rstd = channels.oneOver(channels.deviation(getVariance(), getEpsilon().convertToDouble()));
  Value d = sub(b, loc, channels.wide(getInput()), channels.perChannel(getMean()));
  Value dbias = channels.sum(dy);
  Value dscale = mul(b, loc, channels.sum(mul(b, loc, dy, d)), rstd);

  Value count = channels.count(getSamples());
  Value meanOfDy = div(b, loc, dbias, count), slope = mul(b, loc, div(b, loc, dscale, count), rstd);
  Value factor = mul(b, loc, channels.wide(getScale()), rstd);
  Value centered = sub(b, loc, sub(b, loc, dy, channels.perChannel(meanOfDy)),
                       mul(b, loc, d, channels.perChannel(slope)));
  Value dx = channels.masked(mul(b, loc, centered, channels.perChannel(factor)), getSamples());
  return {castTo(b, loc, dx, elementType(getInputGradient())),
          castTo(b, loc, dscale, elementType(getScaleGradient())),
          castTo(b, loc, dbias, elementType(getBiasGradient()))};
}

//===----------------------------------------------------------------------===//
// Inference
//===----------------------------------------------------------------------===//

SmallVector<Value> BatchNormInferenceOp::expand(OpBuilder &b) {
  Channels channels(b, getLoc(), getInput(), getChannelsLast());
  Value y = channels.normalize(getInput(), getMean(), getVariance(), getScale(), getBias(),
                               getEpsilon().convertToDouble());
  return {castTo(b, getLoc(), y, elementType(getResult()))};
}

// With frozen statistics, per channel: rstd = 1 / √(variance + ε), p = Σ dy · (x - mean), q = Σ dy
//   dx = dy · scale · rstd;  dscale = p · rstd;  dbias = q;  dmean = -q · scale · rstd;  dvariance
//   = -½ · p · scale · rstd³
SmallVector<Value> BatchNormInferenceOp::vjp(OpBuilder &b, ValueRange cotangents,
                                             ArrayRef<Type> wanted) {
  Location loc = getLoc();
  SmallVector<Value> gradients(getNumOperands());
  if (!cotangents[0])
    return gradients;
  Channels channels(b, loc, getInput(), getChannelsLast());
  Value dy = channels.wide(cotangents[0]), scale = channels.wide(getScale());
  Value rstd = channels.oneOver(channels.deviation(getVariance(), getEpsilon().convertToDouble()));
  Value factor = mul(b, loc, scale, rstd), p, q;
  if (wanted[1] || wanted[4])
    p = channels.sum(
        mul(b, loc, dy, sub(b, loc, channels.wide(getInput()), channels.perChannel(getMean()))));
  if (wanted[2] || wanted[3])
    q = channels.sum(dy);
  if (wanted[0])
    gradients[0] = mul(b, loc, dy, channels.perChannel(factor));
  if (wanted[1])
    gradients[1] = mul(b, loc, p, rstd);
  if (wanted[2])
    gradients[2] = q;
  if (wanted[3])
    gradients[3] = mul(b, loc, mul(b, loc, q, factor), splat(b, loc, q.getType(), -1));
  if (wanted[4]) {
    Value slope = mul(b, loc, mul(b, loc, rstd, rstd), splat(b, loc, p.getType(), -0.5));
    gradients[4] = mul(b, loc, mul(b, loc, p, factor), slope);
  }
  for (auto [gradient, type] : llvm::zip_equal(gradients, wanted))
    if (gradient)
      gradient = castTo(b, loc, gradient, type);
  return gradients;
}
