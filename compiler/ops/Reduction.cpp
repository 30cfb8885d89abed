//===- Reduction.cpp - mpc.reduce, and ONNX's reductions over axes ----------------===//

#include "Pointwise.h"
#include "Unsigned.h"

using namespace mlir;

namespace mpc {

// mpc.reduce. -------------------------------------------------------------------------------

LogicalResult ReduceOp::verify() {
  ArrayRef<int64_t> axes = getAxes(), from = shapeOf(getInput());
  SmallVector<int64_t> expected;
  for (auto [i, axis] : llvm::enumerate(axes))
    if (axis < 0 || axis >= int64_t(from.size()) || (i && axes[i - 1] >= axis))
      return emitOpError("axes must be increasing and in [0, ") << from.size() << ")";
  for (auto [i, size] : llvm::enumerate(from))
    if (!llvm::is_contained(axes, int64_t(i)))
      expected.push_back(size);
  if (shapeOf(getResult()) != ArrayRef(expected))
    return emitOpError("result must have the shape of the dimensions that are left");
  Type in = elementType(getInput()), out = elementType(getResult());
  bool wider = getKind() == ReductionKind::sum && isa<FloatType>(in) && isa<FloatType>(out) &&
               in.getIntOrFloatBitWidth() < out.getIntOrFloatBitWidth();
  if (in != out && !wider)
    return emitOpError("result must have the operand's element type; only a sum's may be wider");
  return success();
}

/// Combines integers, or floats in the accumulator's precision.
template <typename T> static T combine(ReductionKind kind, const T &x, const T &y) {
  if constexpr (std::is_same_v<T, APInt>) {
    switch (kind) {
    case ReductionKind::sum:
      return x + y;
    case ReductionKind::product:
      return x * y;
    case ReductionKind::max:
      return llvm::APIntOps::smax(x, y);
    case ReductionKind::min:
      return llvm::APIntOps::smin(x, y);
    }
  } else {
    switch (kind) {
    case ReductionKind::sum:
      return x + y;
    case ReductionKind::product:
      return x * y;
    case ReductionKind::max:
      return llvm::maximum(x, y);
    case ReductionKind::min:
      return llvm::minimum(x, y);
    }
  }
  llvm_unreachable("a reduction kind");
}

template <typename T>
static SmallVector<T> reduceConstant(ReductionKind kind, ArrayRef<int64_t> shape,
                                     ArrayRef<int64_t> axes, ArrayRef<T> values,
                                     int64_t resultCount) {
  // The result's stride of each operand dimension; 0 where it is reduced.
  SmallVector<int64_t> strides(shape.size(), 0);
  int64_t stride = 1;
  for (int64_t i = shape.size() - 1; i >= 0; --i)
    if (!llvm::is_contained(axes, i)) {
      strides[i] = stride;
      stride *= shape[i];
    }
  SmallVector<std::optional<T>> result(resultCount);
  for (auto [flat, value] : llvm::enumerate(values)) {
    int64_t rest = flat, to = 0;
    for (int64_t i = shape.size() - 1; i >= 0; --i) {
      to += rest % shape[i] * strides[i];
      rest /= shape[i];
    }
    result[to] = result[to] ? combine(kind, *result[to], value) : value;
  }
  SmallVector<T> complete;
  for (auto &value : result)
    complete.push_back(*value);
  return complete;
}

OpFoldResult ReduceOp::fold(FoldAdaptor adaptor) {
  if (getAxes().empty() && getInput().getType() == getResult().getType())
    return getInput();
  // Only shape arithmetic and small constants: weights are no attributes.
  auto value = dyn_cast_if_present<DenseElementsAttr>(adaptor.getInput());
  auto resultType = tensorType(getResult());
  if (!value || value.getNumElements() == 0 || value.getNumElements() > (1 << 16))
    return {};
  ArrayRef<int64_t> shape = shapeOf(getInput());
  if (isa<IntegerType>(value.getElementType())) {
    if (value.getElementType().isInteger(1))
      return {};
    SmallVector<APInt> values(value.getValues<APInt>());
    return DenseElementsAttr::get(
        resultType,
        reduceConstant<APInt>(getKind(), shape, getAxes(), values, resultType.getNumElements()));
  }
  auto accumulator = cast<FloatType>(computeType(resultType.getElementType()));
  SmallVector<APFloat> values;
  bool ignored;
  for (APFloat x : value.getValues<APFloat>()) {
    x.convert(accumulator.getFloatSemantics(), APFloat::rmNearestTiesToEven, &ignored);
    values.push_back(x);
  }
  SmallVector<APFloat> sums =
      reduceConstant<APFloat>(getKind(), shape, getAxes(), values, resultType.getNumElements());
  for (APFloat &x : sums)
    x.convert(cast<FloatType>(resultType.getElementType()).getFloatSemantics(),
              APFloat::rmNearestTiesToEven, &ignored);
  return DenseElementsAttr::get(resultType, ArrayRef<APFloat>(sums));
}

/// The dimensions that a reduction over `axes` leaves.
static SmallVector<int64_t> keptDimensions(int64_t rank, ArrayRef<int64_t> axes) {
  SmallVector<int64_t> kept;
  for (int64_t i = 0; i < rank; ++i)
    if (!llvm::is_contained(axes, i))
      kept.push_back(i);
  return kept;
}

SmallVector<Value> ReduceOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0])
    return {Value()};
  Location loc = getLoc();
  ArrayRef<int64_t> shape = shapeOf(getInput());
  SmallVector<int64_t> kept = keptDimensions(shape.size(), getAxes());
  auto spread = [&](Value v) { return broadcast(b, loc, v, kept, shape); };
  if (getKind() == ReductionKind::sum)
    return {spread(castTo(b, loc, cotangents[0], wanted[0]))};

  Expr dy(b, loc, widen(b, loc, cotangents[0])), x = dy.with(widen(b, loc, getInput())),
                                                 y = dy.with(widen(b, loc, getResult()));
  auto sum = [&](const Expr &v) {
    return v.with(reduce(b, loc, ReductionKind::sum, v, getAxes()));
  };
  Expr gradient;
  if (getKind() == ReductionKind::product) {
    // dx_i = dy · Π_{j≠i} x_j: y / x_i without zeros; with one zero, the product of the others, for
    // the zero only; else 0.
    Expr isZero = equal(x, 0), one = x.number(1);
    Expr zeros = sum(select(isZero, one, 0)),
         others = x.with(reduce(b, loc, ReductionKind::product, select(isZero, one, x), getAxes()));
    Expr whole = select(equal(zeros, 0), dy * others, 0),
         single = select(equal(zeros, 1), dy * others, 0);
    Expr nonZero = select(isZero, one, x);
    gradient = select(isZero, x.with(spread(single)), x.with(spread(whole)) / nonZero);
  } else {
    // All elements that are the extremum share the gradient evenly.
    Expr wins = equal(x, x.with(spread(y)));
    Expr share = dy / sum(select(wins, x.number(1), 0));
    gradient = select(wins, x.with(spread(share)), 0);
  }
  return {castTo(b, loc, gradient, wanted[0])};
}

// Handlers. ---------------------------------------------------------------------------------

namespace {
/// The axes and the form of the result, as every reduction of ONNX has them.
struct Reduction {
  NodeContext &node;
  Expr x; ///< the operand, widened
  SmallVector<int64_t> axes;
  bool keepDims = true;

  Expr over(ReductionKind kind, const Expr &v) const {
    return v.with(reduce(node.b, node.loc, kind, v, axes));
  }
  Expr sum(const Expr &v) const { return over(ReductionKind::sum, v); }
  /// A value of the reduced shape, repeated to the operand's.
  Expr spread(const Expr &v) const {
    ArrayRef<int64_t> shape = shapeOf(x);
    return v.with(broadcast(node.b, node.loc, v, keptDimensions(shape.size(), axes), shape));
  }
  /// Of integers: formed in 64 bits, in which their sum fits.
  Expr mean(const Expr &v) const {
    Expr total = sum(isa<FloatType>(elementType(v)) ? v : v.cast(node.b.getI64Type()));
    Value count = node.countAlong(node.operand(0), axes, elementType(total));
    return total / v.with(broadcastScalar(node.b, node.loc, count, shapeOf(total)));
  }
};
} // namespace

/// Axes are an attribute up to opset 12 or 17, then an operand.
static std::optional<Reduction> readReduction(NodeContext &node) {
  Value operand = node.operand(0);
  if (!operand)
    return std::nullopt;
  Reduction r{node,
              Expr(node.b, node.loc, widen(node.b, node.loc, operand)),
              {},
              node.intAttr("keepdims", 1) != 0};
  int64_t rank = shapeOf(operand).size();
  auto given = node.intsAttr("axes");
  if (!given && node.has(1)) {
    given = node.integers(1);
    if (!given)
      return std::nullopt;
  }
  if ((!given || given->empty()) && node.intAttr("noop_with_empty_axes", 0) == 0)
    given = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  for (int64_t axis : given.value_or(SmallVector<int64_t>())) {
    int64_t positive = axis < 0 ? axis + rank : axis;
    if (positive < 0 || positive >= rank) {
      node.error() << "axis " << axis << " is not one of " << operand.getType();
      return std::nullopt;
    }
    r.axes.push_back(positive);
  }
  llvm::sort(r.axes);
  r.axes.erase(llvm::unique(r.axes), r.axes.end());
  return r;
}

static OnnxHandler reduction(std::function<Expr(const Reduction &)> formula,
                             bool floatsOnly = false) {
  return [formula = std::move(formula), floatsOnly](NodeContext &node) -> LogicalResult {
    auto r = readReduction(node);
    if (!r)
      return failure();
    if (floatsOnly && !isa<FloatType>(elementType(r->x))) {
      node.error() << "is supported for floats, not for " << node.operand(0).getType();
      return failure();
    }
    Value result = formula(*r);
    if (r->keepDims) {
      SmallVector<int64_t> shape(shapeOf(r->x));
      for (int64_t axis : r->axes)
        shape[axis] = 1;
      result = reshape(node.b, node.loc, result, shape);
    }
    return pointwiseResult(node, result, elementType(node.operand(0)));
  };
}

/// m + log Σ exp(x - m); m is the maximum, or 0 where that is infinite.
static Expr logSumExp(const Reduction &r) {
  Expr largest = r.over(ReductionKind::max, r.x);
  Expr m = select(abs(largest) < std::numeric_limits<double>::infinity(), largest, 0);
  return m + log(r.sum(exp(r.x - r.spread(m))));
}

/// √Σx², whose gradient x / √Σx² is taken as 0 where all x are 0, as in PyTorch.
static Expr euclideanNorm(const Expr &squares) {
  Expr isPositive = squares > 0.0;
  return select(isPositive, sqrt(select(isPositive, squares, 1.0)), squares);
}

/// The first (or last) index of the extremum, by comparing with it.
template <ReductionKind kind> static LogicalResult convertArg(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  OpBuilder &b = node.b;
  SmallVector<int64_t> shape(shapeOf(x));
  int64_t rank = shape.size(), given = node.intAttr("axis", 0),
          axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis >= rank) {
    node.error() << "axis " << given << " is not one of " << x.getType();
    return failure();
  }
  bool last = node.intAttr("select_last_index", 0) != 0, isFloat = isa<FloatType>(elementType(x));
  Value wide = isFloat ? widen(b, node.loc, x) : isUint64(node, 0) ? flipped(b, node.loc, x) : x;
  Value best = broadcast(b, node.loc, reduce(b, node.loc, kind, wide, {axis}),
                         keptDimensions(rank, {axis}), shape);
  Value wins =
      isFloat ? Value(arith::CmpFOp::create(b, node.loc, arith::CmpFPredicate::OEQ, wide, best))
              : Value(arith::CmpIOp::create(b, node.loc, arith::CmpIPredicate::eq, wide, best));
  auto indexType = RankedTensorType::get(shape, b.getI32Type());
  Value index = IotaOp::create(b, node.loc, indexType, b.getI64IntegerAttr(axis));
  Value none =
      node.splat(indexType, last ? 0 : shape[axis] - 1); // where nothing compares equal: NaN
  Value candidates = b.createOrFold<arith::SelectOp>(node.loc, wins, index, none);
  Value found =
      reduce(b, node.loc, last ? ReductionKind::max : ReductionKind::min, candidates, {axis});
  if (node.intAttr("keepdims", 1)) {
    shape[axis] = 1;
    found = reshape(b, node.loc, found, shape);
  }
  return pointwiseResult(node, found, b.getI64Type());
}

void registerSoftmaxHandlers(OnnxRegistry &registry); // Softmax.cpp
void registerCumSumHandlers(OnnxRegistry &registry);  // CumSum.cpp

void registerReductionHandlers(OnnxRegistry &r) {
  auto plain = [](ReductionKind kind) {
    return reduction([kind](const Reduction &n) { return n.over(kind, n.x); });
  };
  auto extremum = [](ReductionKind kind) {
    return reduction([kind](const Reduction &n) {
      if (!isUint64(n.node, 0))
        return n.over(kind, n.x);
      auto flip = [&](const Expr &v) { return v.with(flipped(n.node.b, n.node.loc, v)); };
      return flip(n.over(kind, flip(n.x)));
    });
  };
  r.add("ReduceSum", {1, 11, 13}, plain(ReductionKind::sum));
  r.add("ReduceProd", {1, 11, 13, 18}, plain(ReductionKind::product));
  r.add("ReduceMax", {1, 11, 12, 13, 18, 20}, extremum(ReductionKind::max));
  r.add("ReduceMin", {1, 11, 12, 13, 18, 20}, extremum(ReductionKind::min));
  SmallVector<int64_t> float18 = {1, 11, 13, 18};
  r.add("ReduceMean", float18, reduction([](const Reduction &n) { return n.mean(n.x); }));
  r.add("ReduceSumSquare", float18, reduction([](const Reduction &n) { return n.sum(n.x * n.x); }));
  r.add("ReduceL1", float18, reduction([](const Reduction &n) { return n.sum(abs(n.x)); }, true));
  r.add("ReduceL2", float18,
        reduction([](const Reduction &n) { return euclideanNorm(n.sum(n.x * n.x)); }, true));
  r.add("ReduceLogSum", {1, 11, 13, 18},
        reduction([](const Reduction &n) { return log(n.sum(n.x)); }, true));
  r.add("ReduceLogSumExp", {1, 11, 13, 18}, reduction(logSumExp, true));
  r.add("ArgMax", {1, 11, 12, 13}, convertArg<ReductionKind::max>);
  r.add("ArgMin", {1, 11, 12, 13}, convertArg<ReductionKind::min>);
  registerSoftmaxHandlers(r);
  registerCumSumHandlers(r);
}

} // namespace mpc
