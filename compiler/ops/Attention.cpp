//===- Attention.cpp - fused attention --------------------------------------===//
//
// mpc.attention and its gradient: verifiers, derivative and cost. The gradient computes the
// weights again from the scores and their rows' log Σ exp, so that nothing of the size of the
// scores is kept (Dao et al., "FlashAttention", 2022).
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/Build.h"

using namespace mlir;
using namespace mpc;

namespace {
/// The extents that the operands agree on.
struct Extents {
  int64_t batch, heads, queries, keys, depth, width;

  Extents(Value query, Value value)
      : batch(shapeOf(query)[0]), heads(shapeOf(query)[2]), queries(shapeOf(query)[1]),
        keys(shapeOf(value)[1]), depth(shapeOf(query)[3]), width(shapeOf(value)[3]) {}

  using Shape = SmallVector<int64_t, 4>;
  Shape query() const { return {batch, queries, heads, depth}; }
  Shape key() const { return {batch, keys, heads, depth}; }
  Shape value() const { return {batch, keys, heads, width}; }
  Shape output() const { return {batch, queries, heads, width}; }
  Shape rows() const { return {batch, heads, queries}; }
  Shape statistics() const { return {2, batch, heads, queries}; }
  Shape scores() const { return {batch, heads, queries, keys}; }
  /// Multiply-adds of one product with the depth, or the width, count two.
  int64_t ofDepth() const { return 2 * batch * heads * queries * keys * depth; }
  int64_t ofWidth() const { return 2 * batch * heads * queries * keys * width; }
};
} // namespace

/// What both operations ask of their operands.
template <typename Op> static LogicalResult verifyOperands(Op op) {
  Type element = elementType(op.getQuery());
  if (!element.isF32() && !isHalf(element))
    return op.emitOpError("is for f32, f16 and bf16, not for ") << element;
  for (Value v : {op.getQuery(), op.getKey(), op.getValue()})
    if (shapeOf(v).size() != 4 || elementType(v) != element)
      return op.emitOpError("needs a query, key and value of rank 4 and one type");
  Extents e(op.getQuery(), op.getValue());
  if (shapeOf(op.getKey()) != ArrayRef(e.key()) || shapeOf(op.getValue()) != ArrayRef(e.value()))
    return op.emitOpError("has a query ")
           << op.getQuery().getType() << ", a key " << op.getKey().getType() << " and a value "
           << op.getValue().getType() << " that do not fit";
  bool isDropout = bool(op.getState());
  if (op.getRatio().has_value() != isDropout || bool(op.getStream()) != isDropout)
    return op.emitOpError("has dropout's state, stream and ratio all or none");
  if (isDropout) {
    double ratio = op.getRatio()->convertToDouble();
    if (!(ratio > 0 && ratio < 1))
      return op.emitOpError("needs a ratio of dropout above 0 and below 1, not ") << ratio;
  }
  ArrayRef<int64_t> dimensions = op.getBiasDimensions();
  if (!op.getBias())
    return dimensions.empty() ? success() : op.emitOpError("has dimensions of a bias, and none");
  ArrayRef<int64_t> bias = shapeOf(op.getBias());
  bool fits = bias.size() == dimensions.size() && elementType(op.getBias()).isF32() &&
              llvm::is_sorted(dimensions, std::less_equal<>()) &&
              llvm::all_of(dimensions, [](int64_t d) { return d >= 0 && d < 4; });
  for (size_t i = 0; fits && i < bias.size(); ++i)
    fits = bias[i] == e.scores()[dimensions[i]];
  return fits ? success()
              : op.emitOpError("has a bias ")
                    << op.getBias().getType() << " that does not repeat to its scores";
}

static LogicalResult verifyType(Operation *op, Value v, ArrayRef<int64_t> shape, Type element) {
  auto expected = RankedTensorType::get(shape, element);
  if (v.getType() == expected)
    return success();
  return op->emitOpError("has ") << v.getType() << " where " << expected << " belongs";
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyOperands(*this)))
    return failure();
  Extents e(getQuery(), getValue());
  Type element = elementType(getQuery());
  return success(
      succeeded(verifyType(*this, getResult(), e.output(), element)) &&
      succeeded(verifyType(*this, getLogSumExp(), e.rows(), computeType(element))) &&
      succeeded(verifyType(*this, getStatistics(), e.statistics(), computeType(element))));
}

LogicalResult AttentionGradOp::verify() {
  if (failed(verifyOperands(*this)))
    return failure();
  Extents e(getQuery(), getValue());
  Type element = elementType(getQuery());
  for (Value v : {getOutputGradient(), getOutput()})
    if (failed(verifyType(*this, v, e.output(), element)))
      return failure();
  return success(
      succeeded(verifyType(*this, getLogSumExp(), e.rows(), computeType(element))) &&
      succeeded(verifyType(*this, getStatistics(), e.statistics(), computeType(element))) &&
      succeeded(verifyType(*this, getQueryGradient(), e.query(), element)) &&
      succeeded(verifyType(*this, getKeyGradient(), e.key(), element)) &&
      succeeded(verifyType(*this, getValueGradient(), e.value(), element)));
}

int64_t AttentionOp::flops() {
  Extents e(getQuery(), getValue());
  return e.ofDepth() + e.ofWidth();
}

// Scores again, then the gradients of weights, value, query and key.
int64_t AttentionGradOp::flops() {
  Extents e(getQuery(), getValue());
  return 3 * e.ofDepth() + 2 * e.ofWidth();
}

SmallVector<Value> AttentionOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  SmallVector<Value> gradients(getNumOperands());
  // raise-attention takes no bias that has a gradient; nobody differentiates log Σ exp.
  assert(!cotangents[1] && !cotangents[2] && (!getBias() || !wanted[3]));
  if (!cotangents[0])
    return gradients;
  Value g = castTo(b, getLoc(), cotangents[0], elementType(getQuery()));
  auto grad = AttentionGradOp::create(
      b, getLoc(), TypeRange{getQuery().getType(), getKey().getType(), getValue().getType()}, g,
      getQuery(), getKey(), getValue(), getResult(), getLogSumExp(), getStatistics(), getBias(),
      getState(), getStream(), getScaleAttr(), getBiasDimensionsAttr(), getRatioAttr(),
      getSafeAttr());
  for (auto [i, gradient] : llvm::enumerate(grad.getResults()))
    if (wanted[i])
      gradients[i] = castTo(b, getLoc(), gradient, wanted[i]);
  return gradients;
}
