//===- NormHandlers.cpp - ONNX normalizations --------------------------------===//
//
// LayerNormalization and BatchNormalization have operations of their own. The others are
// layer normalizations of a reshaped tensor with a scale per channel (Instance- and
// GroupNormalization), or are written out (RMSNormalization).
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/Axis.h"
#include "compiler/ops/Build.h"
#include "compiler/ops/OnnxConversion.h"
#include "compiler/ops/Statistics.h"

using namespace mlir;
using namespace mpc;

static bool checkFloat(NodeContext &node, Value x) {
  if (isa<FloatType>(elementType(x)))
    return true;
  node.error() << "normalizes floats, not " << x.getType();
  return false;
}

// A scale or bias: of the normalized dimensions' shape, or, where it has more of them, of all of
// x's, as PyTorch's exporter makes the ones of a norm without parameters. 1s are stretched. Null
// after an error.
static Value normalizedOperand(NodeContext &node, unsigned i, Value x, int64_t axis) {
  Value v = node.operand(i);
  if (!v)
    return {};
  ArrayRef<int64_t> whole = shapeOf(x), inner = whole.drop_front(axis);
  SmallVector<int64_t> shape(shapeOf(v));
  while (shape.size() > inner.size() && shape.front() == 1)
    shape.erase(shape.begin());
  ArrayRef<int64_t> wanted = shape.size() > inner.size() ? whole : inner;
  if (shape.size() > wanted.size() || elementType(v) != elementType(x) ||
      broadcastShape(shape, wanted) != SmallVector<int64_t>(wanted)) {
    node.error() << "operand " << i << " of type " << v.getType()
                 << " does not fit the normalized dimensions of " << x.getType();
    return {};
  }
  return broadcastTo(node.b, node.loc, reshape(node.b, node.loc, v, shape), wanted);
}

static std::optional<int64_t> readAxis(NodeContext &node, Value x) {
  return normalizedAxis(node, node.intAttr("axis", -1), shapeOf(x).size());
}

// stash_type names the type of the statistics: float, which is what they are here.
static bool checkStashType(NodeContext &node) {
  constexpr int64_t kFloat = 1;
  if (node.intAttr("stash_type", kFloat) == kFloat)
    return true;
  node.unsupported() << "stash_type " << node.intAttr("stash_type", kFloat)
                     << " is not supported; statistics are float (1)";
  return false;
}

static LayerNormOp layerNorm(NodeContext &node, Value x, Value scale, Value bias, int64_t axis,
                             double epsilon) {
  auto statistic = RankedTensorType::get(shapeOf(x).take_front(axis), computeType(elementType(x)));
  return LayerNormOp::create(node.b, node.loc, TypeRange{x.getType(), statistic, statistic}, x,
                             scale, bias, node.b.getI64IntegerAttr(axis),
                             node.b.getF64FloatAttr(epsilon));
}

//===----------------------------------------------------------------------===//
// LayerNormalization, RMSNormalization
//===----------------------------------------------------------------------===//

// y = (x - mean) · rstd · scale + bias. Where scale or bias are not the same for all rows, that is
// written out behind the normalization.
static LogicalResult convertLayerNormalization(NodeContext &node) {
  OpBuilder &b = node.b;
  Value x = node.operand(0);
  if (!x || !checkFloat(node, x) || !checkStashType(node))
    return failure();
  std::optional<int64_t> axis = readAxis(node, x);
  if (!axis)
    return failure();
  ArrayRef<int64_t> shape = shapeOf(x), inner = shape.drop_front(*axis);
  Value scale = normalizedOperand(node, 1, x, *axis), bias;
  if (!scale || (node.has(2) && !(bias = normalizedOperand(node, 2, x, *axis))))
    return failure();
  double epsilon = node.floatAttr("epsilon", 1e-5f);
  bool isFused = shapeOf(scale) == inner && (!bias || shapeOf(bias) == inner);
  Value wide = isFused ? x : widen(b, node.loc, x);
  Value rowScale = isFused ? scale : node.splat(RankedTensorType::get(inner, elementType(wide)), 1);
  LayerNormOp op = layerNorm(node, wide, rowScale, isFused ? bias : Value(), *axis, epsilon);
  // ONNX keeps the normalized dimensions in the statistics, with size 1.
  SmallVector<int64_t> kept(shape.take_front(*axis));
  kept.resize(shape.size(), 1);
  SmallVector<Value> results{op.getResult(), Value(), Value()};
  if (node.resultUsed(1))
    results[1] = reshape(b, node.loc, op.getMean(), kept);
  if (node.resultUsed(2))
    results[2] = reshape(b, node.loc, op.getRstd(), kept);
  if (isFused)
    return node.results(results);
  auto wideOperand = [&](Value v) {
    return broadcastTo(b, node.loc, widen(b, node.loc, v), shape);
  };
  results[0] = mul(b, node.loc, results[0], wideOperand(scale));
  if (bias)
    results[0] = add(b, node.loc, results[0], wideOperand(bias));
  results[0] = castTo(b, node.loc, results[0], elementType(x));
  return node.results(results);
}

// y = x / √(mean(x²) + ε) · scale
static LogicalResult convertRmsNormalization(NodeContext &node) {
  OpBuilder &b = node.b;
  Value x = node.operand(0);
  if (!x || !checkFloat(node, x) || !checkStashType(node))
    return failure();
  std::optional<int64_t> axis = readAxis(node, x);
  if (!axis)
    return failure();
  ArrayRef<int64_t> shape = shapeOf(x);
  Value scale = normalizedOperand(node, 1, x, *axis);
  if (!scale)
    return failure();
  SmallVector<int64_t> rows = llvm::to_vector(llvm::seq<int64_t>(0, *axis)),
                       axes = llvm::to_vector(llvm::seq<int64_t>(*axis, shape.size()));
  Value wide = widen(b, node.loc, x);
  Value sum = reduce(b, node.loc, ReductionKind::sum, mul(b, node.loc, wide, wide), axes);
  Value count = node.countAlong(x, axes, elementType(sum));
  Value mean = div(b, node.loc, sum, broadcastScalar(b, node.loc, count, shapeOf(sum)));
  Value shifted =
      add(b, node.loc, mean, node.splat(mean.getType(), node.floatAttr("epsilon", 1e-5f)));
  Value rms = broadcast(b, node.loc, math::SqrtOp::create(b, node.loc, shifted), rows, shape);
  Value factor = broadcastTo(b, node.loc, widen(b, node.loc, scale), shape);
  Value y = mul(b, node.loc, div(b, node.loc, wide, rms), factor);
  return node.results({castTo(b, node.loc, y, elementType(x))});
}

//===----------------------------------------------------------------------===//
// BatchNormalization
//===----------------------------------------------------------------------===//

// Training mode: the attribute since opset 14; before, the node has outputs for the statistics.
static bool isTraining(NodeContext &node) {
  if (node.version() >= 14)
    return node.intAttr("training_mode", 0);
  for (unsigned i = 1; i < node.resultCount(); ++i)
    if (node.resultUsed(i))
      return true;
  return false;
}

// A running statistic as the program keeps it: one of a model in half is f32 itself, and only read
// rounded.
static Value unroundedStatistic(Value v) {
  auto rounding = v.getDefiningOp<arith::TruncFOp>();
  return rounding && isa<BlockArgument>(statisticBehind(rounding.getIn())) ? rounding.getIn() : v;
}

static LogicalResult convertBatchNormalization(NodeContext &node) {
  Value x = node.operand(0);
  if (!x || !checkFloat(node, x))
    return failure();
  if (shapeOf(x).size() < 2)
    return node.error() << "needs an input [N, C, ...], not " << x.getType();
  if (!node.intAttr("spatial", 1))
    return node.unsupported() << "spatial = 0 (a statistic per element) is not supported";
  int64_t channels = shapeOf(x)[1];
  SmallVector<Value> operands{x};
  for (unsigned i = 1; i < 5; ++i) {
    Value v = node.operand(i);
    if (!v)
      return failure();
    if (!isa<FloatType>(elementType(v)) || shapeOf(v) != ArrayRef<int64_t>(channels))
      return node.error() << "operand " << i << " has the type " << v.getType() << " for "
                          << channels << " channels";
    if (i > 2)
      v = unroundedStatistic(v);
    operands.push_back(castTo(node.b, node.loc, v, computeType(elementType(x))));
  }
  Value y = BatchNormInferenceOp::create(
      node.b, node.loc, x.getType(), x, operands[1], operands[2], operands[3], operands[4],
      node.b.getF64FloatAttr(node.floatAttr("epsilon", 1e-5f)),
      node.b.getF64FloatAttr(node.floatAttr("momentum", 0.9f)),
      isTraining(node) ? node.b.getUnitAttr() : UnitAttr(), UnitAttr());
  SmallVector<Value> results{y, node.operand(3), node.operand(4)};
  for (unsigned i : {1u, 2u}) {
    Value statistic = statisticBehind(unroundedStatistic(results[i]));
    if (!isTraining(node) || !node.resultUsed(i) || !isa<BlockArgument>(statistic))
      continue;
    auto updated = StopGradientOp::create(node.b, node.loc, statistic.getType(), statistic);
    updated->setAttr(kNewStatisticAttr, node.b.getUnitAttr());
    results[i] = castTo(node.b, node.loc, updated, elementType(results[i]));
  }
  return node.results(results);
}

//===----------------------------------------------------------------------===//
// InstanceNormalization, GroupNormalization
//===----------------------------------------------------------------------===//

// y = normalized · scale + bias, both per channel (axis 1). `normalized` is f32 (f64).
static Value scaledByChannel(NodeContext &node, Value normalized, Value scale, Value bias) {
  ArrayRef<int64_t> shape = shapeOf(normalized);
  auto perChannel = [&](Value v) {
    return broadcast(node.b, node.loc, widen(node.b, node.loc, v), {1}, shape);
  };
  return add(node.b, node.loc, mul(node.b, node.loc, normalized, perChannel(scale)),
             perChannel(bias));
}

// x normalized over each of `groups` groups of channels.
static Value groupNormalized(NodeContext &node, Value x, int64_t groups) {
  ArrayRef<int64_t> shape = shapeOf(x);
  int64_t inner = tensorType(x).getNumElements() / std::max<int64_t>(shape[0] * groups, 1);
  Value rows = reshape(node.b, node.loc, x, {shape[0] * groups, inner});
  Value ones = node.splat(RankedTensorType::get({inner}, elementType(x)), 1);
  Value y = layerNorm(node, rows, ones, Value(), 1, node.floatAttr("epsilon", 1e-5f)).getResult();
  return reshape(node.b, node.loc, y, shape);
}

static LogicalResult convertGroupNormalization(NodeContext &node) {
  Value x = node.operand(0);
  if (!x || !checkFloat(node, x) || !checkStashType(node))
    return failure();
  if (shapeOf(x).size() < 2)
    return node.error() << "needs an input [N, C, ...], not " << x.getType();
  bool instance = node.type() == "InstanceNormalization";
  int64_t channels = shapeOf(x)[1], groups = instance ? channels : node.intAttr("num_groups", 0);
  if (groups < 1 || channels % groups)
    return node.error() << "has num_groups = " << groups << " for " << channels << " channels";
  Value scale = node.operand(1), bias = node.operand(2);
  if (!scale || !bias)
    return failure();
  // Opset 18 has a scale and a bias per group; since 21 they are per channel.
  bool perGroup = !instance && node.version() < 21;
  int64_t expected = perGroup ? groups : channels;
  for (Value *v : {&scale, &bias}) {
    if (shapeOf(*v) != ArrayRef<int64_t>(expected) || elementType(*v) != elementType(x))
      return node.error() << "has a scale or bias of type " << v->getType() << " for " << expected
                          << (perGroup ? " groups" : " channels");
    if (perGroup)
      *v = reshape(node.b, node.loc,
                   broadcast(node.b, node.loc, *v, {0}, {groups, channels / groups}), {channels});
  }
  Value normalized = groupNormalized(node, widen(node.b, node.loc, x), groups);
  Value y = scaledByChannel(node, normalized, scale, bias);
  return node.results({castTo(node.b, node.loc, y, elementType(x))});
}

void mpc::registerNormHandlers(OnnxRegistry &r) {
  r.add("LayerNormalization", {17}, convertLayerNormalization);
  r.add("RMSNormalization", {23}, convertRmsNormalization);
  r.add("BatchNormalization", {7, 9, 14, 15}, convertBatchNormalization);
  r.add("InstanceNormalization", {6, 22}, convertGroupNormalization);
  r.add("GroupNormalization", {18, 21}, convertGroupNormalization);
}
