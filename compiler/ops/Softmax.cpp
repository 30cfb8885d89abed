//===- Softmax.cpp - softmax, log_softmax and their gradients ---------------------===//
//
// Half in, half out, f32 inside. In primitive form the axis comes last, so that a row of the
// kernel is one distribution.
//
//===----------------------------------------------------------------------------===//

#include "OnnxConversion.h"
#include "Rows.h"
#include <limits>

using namespace mlir;

namespace mpc {

// Rows: an axis as the last one. ---------------------------------------------------------------

Rows::Rows(OpBuilder &b, Location loc, ArrayRef<int64_t> shape, int64_t axis) : b(b), loc(loc) {
  for (int64_t i = 0; i < int64_t(shape.size()); ++i)
    if (i != axis)
      toLast.push_back(i);
  toLast.push_back(axis);
  back.resize(toLast.size());
  for (auto [i, from] : llvm::enumerate(toLast)) {
    back[from] = i;
    rowShape.push_back(shape[from]);
  }
  for (int64_t i = 0; i + 1 < int64_t(shape.size()); ++i)
    outer.push_back(i);
}

Expr Rows::in(Value v) const { return {b, loc, transpose(b, loc, widen(b, loc, v), toLast)}; }
Value Rows::out(const Expr &v, Type elementType) const {
  return transpose(b, loc, castTo(b, loc, v, elementType), back);
}
Expr Rows::reduce(ReductionKind kind, const Expr &v) const {
  return v.with(mpc::reduce(b, loc, kind, v, {int64_t(rowShape.size()) - 1}));
}
Expr Rows::spread(const Expr &v) const { return v.with(broadcast(b, loc, v, outer, rowShape)); }

Expr Rows::shifted(const Expr &x) const { return x - spread(reduce(ReductionKind::max, x)); }

//   exp(-∞ - lowest) = 0;  0 / 1 = 0
Expr safeLargest(const Expr &largest) {
  auto type = cast<FloatType>(elementType(largest));
  auto lowest = llvm::APFloat::getLargest(type.getFloatSemantics(), /*Negative=*/true);
  return max(largest, lowest.convertToDouble());
}
Expr safeSum(const Expr &sum) { return select(equal(sum, 0.0), 1, sum); }

// Derivatives and primitive forms. -------------------------------------------------------------

template <typename GradOp, typename Op>
static SmallVector<Value> softmaxVjp(Op op, OpBuilder &b, ValueRange cotangents,
                                     ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0])
    return {Value()};
  auto type = tensorType(op.getInput()).clone(wanted[0]);
  return {GradOp::create(b, op.getLoc(), type, cotangents[0], op.getResult(), op.getAxisAttr())};
}

SmallVector<Value> SoftmaxOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  return softmaxVjp<SoftmaxGradOp>(*this, b, cotangents, wanted);
}
SmallVector<Value> LogSoftmaxOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  return softmaxVjp<LogSoftmaxGradOp>(*this, b, cotangents, wanted);
}

SmallVector<Value> SoftmaxOp::expand(OpBuilder &b) { // exp(x - max) / Σ exp(x - max)
  Rows rows(b, getLoc(), shapeOf(getInput()), getAxis());
  Expr x = rows.in(getInput()), largest = rows.reduce(ReductionKind::max, x);
  Expr e = exp(x - rows.spread(getSafe() ? safeLargest(largest) : largest)), sum = rows.sum(e);
  return {rows.out(e / rows.spread(getSafe() ? safeSum(sum) : sum), elementType(getResult()))};
}

SmallVector<Value> SoftmaxGradOp::expand(OpBuilder &b) { // y · (dy - Σ dy · y)
  Rows rows(b, getLoc(), shapeOf(getOutput()), getAxis());
  Expr dy = rows.in(getOutputGradient()), y = rows.in(getOutput());
  return {rows.out(y * (dy - rows.spread(rows.sum(dy * y))), elementType(getResult()))};
}

SmallVector<Value> LogSoftmaxOp::expand(OpBuilder &b) { // x - max - log Σ exp(x - max)
  Rows rows(b, getLoc(), shapeOf(getInput()), getAxis());
  Expr x = rows.shifted(rows.in(getInput()));
  return {rows.out(x - rows.spread(log(rows.sum(exp(x)))), elementType(getResult()))};
}

SmallVector<Value> LogSoftmaxGradOp::expand(OpBuilder &b) { // dy - exp(y) · Σ dy
  Rows rows(b, getLoc(), shapeOf(getOutput()), getAxis());
  Expr dy = rows.in(getOutputGradient()), y = rows.in(getOutput());
  return {rows.out(dy - exp(y) * rows.spread(rows.sum(dy)), elementType(getResult()))};
}

// Handlers. ---------------------------------------------------------------------------------

static bool isZero(NodeContext &node, unsigned operand) {
  auto elements = dyn_cast_if_present<DenseFPElementsAttr>(node.constant(operand));
  return elements && elements.isSplat() && elements.getSplatValue<APFloat>().isZero();
}

static bool isNaNTest(Value condition, SoftmaxOp softmax) {
  auto test = condition.getDefiningOp<arith::CmpFOp>();
  if (!test || test.getPredicate() != arith::CmpFPredicate::UNO || test.getLhs() != test.getRhs())
    return false;
  auto widened = test.getLhs().getDefiningOp<arith::ExtFOp>();
  return (widened ? widened.getIn() : test.getLhs()) == softmax.getResult();
}

/// Where x is -∞ along the axis of the softmax.
static Value isEmpty(OpBuilder &b, Location loc, SoftmaxOp softmax) {
  Value x = widen(b, loc, softmax.getInput());
  auto axis = static_cast<int64_t>(softmax.getAxis());
  SmallVector<int64_t> others;
  for (int64_t i = 0; i < int64_t(shapeOf(x).size()); ++i)
    if (i != axis)
      others.push_back(i);
  Expr largest(b, loc, reduce(b, loc, ReductionKind::max, x, {axis}));
  return broadcast(b, loc, equal(largest, -std::numeric_limits<double>::infinity()), others,
                   shapeOf(x));
}

// Where a row of x is -∞ throughout, p is NaN, and so is its gradient, although a choice of zeros
// leaves nothing that depends on it. So p is a safe softmax, NaN is put in its place, and no
// gradient comes through that. A test for NaN asks the safe one at once: rows of NaN are left.
void makeSoftmaxSafe(NodeContext &node, MutableArrayRef<Value> operands) {
  for (unsigned side : {1u, 2u}) {
    auto softmax = operands[side].getDefiningOp<SoftmaxOp>();
    if (!softmax || !isZero(node, 3 - side))
      continue;
    OpBuilder &b = node.b;
    auto safe = cast<SoftmaxOp>(b.clone(*softmax));
    safe.setSafe(true);
    for (StringRef name : {MpcDialect::kNodeAttr, MpcDialect::kOpAttr}) // it stays that node's
      if (Attribute value = softmax->getAttr(name))
        safe->setAttr(name, value);
    Value p = safe.getResult();
    if (side == 2 && isNaNTest(operands[0], softmax)) {
      Value wide = widen(b, node.loc, p);
      operands[0] = compare(b, node.loc, arith::CmpFPredicate::UNO, wide, wide);
    } else {
      Value none = splat(b, node.loc, p.getType(), std::numeric_limits<double>::quiet_NaN());
      p = arith::SelectOp::create(b, node.loc, isEmpty(b, node.loc, softmax), none, p);
    }
    operands[side] = p;
    return;
  }
}

/// Up to opset 12 the operand is flattened to two dimensions at `axis` (1 if not given), and the
/// softmax is over all of the second.
template <typename Op> static LogicalResult convertSoftmax(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  ArrayRef<int64_t> shape = shapeOf(x);
  bool flattens = node.version() < 13;
  int64_t rank = shape.size(), given = node.intAttr("axis", flattens ? 1 : -1),
          axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis > rank || (axis == rank && !flattens)) {
    node.error() << "axis " << given << " is not one of " << x.getType();
    return failure();
  }
  if (!flattens || axis == rank - 1)
    return node.results({Op::create(node.b, node.loc, x.getType(), x, axis)});
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < rank; ++i)
    (i < axis ? outer : inner) *= shape[i];
  Value flat = reshape(node.b, node.loc, x, {outer, inner});
  Value y = Op::create(node.b, node.loc, flat.getType(), flat, 1);
  return node.results({reshape(node.b, node.loc, y, shape)});
}

void registerSoftmaxHandlers(OnnxRegistry &r) {
  r.add("Softmax", {1, 11, 13}, convertSoftmax<SoftmaxOp>);
  r.add("LogSoftmax", {1, 11, 13}, convertSoftmax<LogSoftmaxOp>);
}

} // namespace mpc
