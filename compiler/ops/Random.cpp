//===- Random.cpp - Dropout -------------------------------------------------------===//
//
// The mask is a function of the run's seed, the number of micro-batches run so far, the
// operator and the position, so backward computes it again instead of storing it. A Dropout
// that an exporter left in the graph is active in training, whatever its training_mode says:
// prepare-training takes it out of @predict.
//
//===----------------------------------------------------------------------------===//

#include "Expression.h"
#include "OnnxConversion.h"

using namespace mlir;

namespace mpc {

/// Where the element is kept: uniform >= ratio, f32 whatever the operand's type, so that the mask
/// is the same in every precision.
static Value keptElements(OpBuilder &b, Location loc, Value state, ArrayRef<int64_t> shape,
                          double ratio, int64_t operatorId, int64_t seed) {
  auto type = RankedTensorType::get(shape, b.getF32Type());
  Expr uniform(b, loc,
               RandomUniformOp::create(b, loc, type, state, b.getI64IntegerAttr(operatorId),
                                       b.getI64IntegerAttr(seed)));
  return uniform >= ratio;
}

SmallVector<Value> DropoutOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0])
    return {Value(), Value()};
  Value dy = castTo(b, getLoc(), cotangents[0], wanted[0]);
  return {DropoutOp::create(b, getLoc(), dy.getType(), dy, getState(), getRatioAttr(),
                            getOperatorIdAttr(), getSeedAttr()),
          Value()};
}

SmallVector<Value> DropoutOp::expand(OpBuilder &b) {
  Location loc = getLoc();
  double ratio = getRatio().convertToDouble();
  if (ratio >= 1)
    return {splat(b, loc, getResult().getType(), 0)};
  Expr x(b, loc, widen(b, loc, getInput()));
  Expr kept(b, loc,
            keptElements(b, loc, getState(), shapeOf(x), ratio, getOperatorId(), getSeed()));
  return {castTo(b, loc, select(kept, x * (1 / (1 - ratio)), 0), elementType(getResult()))};
}

static LogicalResult convertDropout(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  double ratio = node.floatAttr("ratio", 0.5);
  if (node.version() >= 12 && node.has(1)) {
    auto value = node.scalar(1);
    if (!value) {
      node.unsupported()
          << "the ratio must be known at compile time; make it an initializer or a constant";
      return failure();
    }
    ratio = *value;
  }
  if (!(ratio >= 0 && ratio <= 1)) {
    node.error() << "the ratio is " << ratio << "; it must be between 0 and 1";
    return failure();
  }
  auto maskType = tensorType(x).clone(node.b.getI1Type());
  if (ratio == 0)
    return node.results(
        {x, node.resultUsed(1) ? node.rowsLike(node.splat(maskType, 1), x) : Value()});

  OpBuilder &b = node.b;
  Value state = node.randomState();
  int64_t id = node.nextRandomOperator(), seed = node.intAttr("seed", 0);
  Value y = DropoutOp::create(b, node.loc, x.getType(), x, state, b.getF64FloatAttr(ratio),
                              b.getI64IntegerAttr(id), b.getI64IntegerAttr(seed));
  Value mask;
  if (node.resultUsed(1))
    mask = node.rowsLike(keptElements(b, node.loc, state, shapeOf(x), ratio, id, seed), x);
  return node.results({y, mask});
}

void registerRandomHandlers(OnnxRegistry &r) {
  r.add("Dropout", {7, 10, 12, 13, 22}, convertDropout);
}

} // namespace mpc
