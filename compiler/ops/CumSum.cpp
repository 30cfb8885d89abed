//===- CumSum.cpp - cumulative sums ---------------------------------------------===//
//
// The primitive form is one reduction under a mask: each result sums the elements that it
// counts, in index order, so that nothing depends on the number of threads. The adjoint of a
// cumulative sum is the one in the other direction.
//
//===----------------------------------------------------------------------------===//

#include "OnnxConversion.h"
#include "Rows.h"

using namespace mlir;

namespace mpc {

/// y_i = Σ_{j≤i} x_j, so dx_j = Σ_{i≥j} dy_i: the same operation, reversed.
SmallVector<Value> CumSumOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0])
    return {Value()};
  Value dy = castTo(b, getLoc(), cotangents[0], wanted[0]);
  return {create(b, getLoc(), dy.getType(), dy, getAxis(), getExclusive(), !getReverse())};
}

/// y_i = Σ_j (j ≤ i ? x_j : 0), with the axis of j last: [rows…, i, j].
SmallVector<Value> CumSumOp::expand(OpBuilder &b) {
  using enum arith::CmpIPredicate;
  Location loc = getLoc();
  Rows rows(b, loc, shapeOf(getInput()), getAxis());
  Value x = rows.in(getInput()); // [rows…, j]
  int64_t last = rows.outer.size();
  SmallVector<int64_t> pairs(rows.rowShape), dimensions(rows.outer);
  pairs.push_back(rows.rowShape.back()); // [rows…, i, j]
  dimensions.push_back(last + 1);

  auto index = RankedTensorType::get(pairs, b.getI32Type());
  Value i = IotaOp::create(b, loc, index, last), j = IotaOp::create(b, loc, index, last + 1);
  auto counts = getReverse() ? (getExclusive() ? sgt : sge) : (getExclusive() ? slt : sle);
  Value spread = broadcast(b, loc, x, dimensions, pairs);
  Value counted = arith::SelectOp::create(b, loc, arith::CmpIOp::create(b, loc, counts, j, i),
                                          spread, splat(b, loc, spread.getType(), 0));
  Value sums = reduce(b, loc, ReductionKind::sum, counted, {last + 1});
  return {rows.out({b, loc, sums}, elementType(getResult()))};
}

static LogicalResult convertCumSum(NodeContext &node) {
  Value x = node.operand(0);
  auto axes = x ? node.integers(1) : std::nullopt;
  if (!axes)
    return failure();
  int64_t rank = shapeOf(x).size(), given = axes->size() == 1 ? axes->front() : rank,
          axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis >= rank) {
    node.error() << "axis " << given << " is not one of " << x.getType();
    return failure();
  }
  // Sums are made of all pairs along the axis.
  constexpr int64_t kLongest = 1 << 20;
  int64_t length = shapeOf(x)[axis];
  if (length > kLongest ||
      tensorType(x).getNumElements() > kMostElements / std::max<int64_t>(length, 1)) {
    node.error() << "sums along an axis of " << length << " elements of " << x.getType()
                 << ", which is too long";
    return failure();
  }
  return node.results(
      {CumSumOp::create(node.b, node.loc, x.getType(), x, axis, node.intAttr("exclusive", 0) != 0,
                        node.intAttr("reverse", 0) != 0)});
}

void registerCumSumHandlers(OnnxRegistry &r) { r.add("CumSum", {11, 14}, convertCumSum); }

} // namespace mpc
