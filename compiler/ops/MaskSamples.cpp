//===- MaskSamples.cpp - nothing in place of the samples that are not there -------===//
//
// What is not there changes no result: it is zero where it is added, and its gradient is zero
// whatever it was replaced with.
//
//===------------------------------------------------------------------------------===//

#include "Expression.h"

using namespace mlir;

namespace mpc {

SmallVector<Value> MaskSamplesOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0])
    return {Value(), Value()};
  Value dy = castTo(b, getLoc(), cotangents[0], wanted[0]);
  if (getKeep())
    return {dy, Value()};
  return {MaskSamplesOp::create(b, getLoc(), dy.getType(), dy, getSamples(), getAxisAttr(),
                                getFactorAttr()),
          Value()};
}

/// select(row < samples · factor, x, neutral); the comparison is per row, in i32.
SmallVector<Value> MaskSamplesOp::expand(OpBuilder &b) {
  if (getKeep())
    return {getInput()};
  Location loc = getLoc();
  ArrayRef<int64_t> shape = shapeOf(getInput());
  int64_t axis = getAxis();
  Value present = presentRows(b, loc, getSamples(), shape[axis], getFactor());
  Value mask = broadcast(b, loc, present, {axis}, shape);
  Value absent = neutralTensor(b, loc, getNeutral(), getInput().getType());
  return {arith::SelectOp::create(b, loc, mask, getInput(), absent)};
}

Value presentRows(OpBuilder &b, Location loc, Value samples, int64_t rows, int64_t factor) {
  Type i32 = b.getI32Type();
  Value row = IotaOp::create(b, loc, RankedTensorType::get({rows}, i32), b.getI64IntegerAttr(0));
  Value limit = castTo(b, loc, samples, i32);
  if (factor != 1)
    limit = mul(b, loc, limit, scalarTensor(b, loc, i32, factor));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, row,
                               broadcastScalar(b, loc, limit, {rows}));
}

} // namespace mpc
