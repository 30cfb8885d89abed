//===- Build.cpp - small builders that every op family uses ---------------------===//
//
// Everything folds at once where its operands are constants: after the conversion no
// shape arithmetic is left, whatever chain of nodes an exporter wrote for it.
//
//===----------------------------------------------------------------------------===//

#include "Build.h"
#include "OperatorText.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace mpc {

bool isHalf(Type elementType) { return elementType.isF16() || elementType.isBF16(); }

Type computeType(Type elementType) {
  return isHalf(elementType) ? Float32Type::get(elementType.getContext()) : elementType;
}

StringRef nodeOf(Operation *op) {
  auto name = op->getAttrOfType<StringAttr>(MpcDialect::kNodeAttr);
  return name ? name.getValue() : "";
}

StringRef operatorOf(Operation *op) {
  auto type = op->getAttrOfType<StringAttr>(MpcDialect::kOpAttr);
  return type ? type.getValue() : op->getName().getStringRef();
}

std::string operatorText(Operation *op) {
  std::string text = "(" + operatorOf(op).str();
  auto module = op->getParentOfType<ModuleOp>();
  if (auto opset = module ? module->getAttrOfType<IntegerAttr>("mpc.opset") : IntegerAttr())
    text += ", opset " + std::to_string(opset.getInt());
  return text + ")";
}

Value splat(OpBuilder &b, Location loc, Type tensorType, double value) {
  auto type = cast<RankedTensorType>(tensorType);
  Attribute element;
  if (auto floatType = dyn_cast<FloatType>(type.getElementType())) {
    element = FloatAttr::get(floatType, value);
  } else {
    auto width = type.getElementTypeBitWidth();
    APInt integer =
        width == 1 ? APInt(1, value != 0) : APInt(64, int64_t(value), true).sextOrTrunc(width);
    element = IntegerAttr::get(type.getElementType(), integer);
  }
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, element));
}

Value scalarTensor(OpBuilder &b, Location loc, Type elementType, double value) {
  return splat(b, loc, RankedTensorType::get({}, elementType), value);
}

Value neutralTensor(OpBuilder &b, Location loc, ReductionKind kind, Type tensorType) {
  auto type = cast<RankedTensorType>(tensorType);
  if (kind == ReductionKind::sum || kind == ReductionKind::product)
    return splat(b, loc, type, kind == ReductionKind::product);
  bool lowest = kind == ReductionKind::max;
  if (isa<FloatType>(type.getElementType())) {
    double infinity = std::numeric_limits<double>::infinity();
    return splat(b, loc, type, lowest ? -infinity : infinity);
  }
  unsigned width = type.getElementTypeBitWidth();
  APInt value = lowest ? APInt::getSignedMinValue(width) : APInt::getSignedMaxValue(width);
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, value));
}

// Shapes. -----------------------------------------------------------------------------------

Value reshape(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> shape) {
  if (shapeOf(v) == shape)
    return v;
  return b.createOrFold<ReshapeOp>(loc, tensorType(v).clone(shape), v);
}

Value transpose(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> shape;
  bool identity = true;
  for (auto [i, from] : llvm::enumerate(permutation)) {
    shape.push_back(shapeOf(v)[from]);
    identity &= from == int64_t(i);
  }
  if (identity)
    return v;
  return b.createOrFold<TransposeOp>(loc, tensorType(v).clone(shape), v,
                                     b.getDenseI64ArrayAttr(permutation));
}

Value broadcast(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> dimensions,
                ArrayRef<int64_t> shape) {
  if (shapeOf(v) == shape)
    return v;
  return b.createOrFold<BroadcastOp>(loc, tensorType(v).clone(shape), v,
                                     b.getDenseI64ArrayAttr(dimensions));
}

Value broadcastTo(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> shape) {
  ArrayRef<int64_t> from = shapeOf(v);
  if (from == shape)
    return v;
  // Leading 1s beyond the result's rank cannot be; stretched 1s are dropped, so that the
  // gradient is one reduction.
  int64_t offset = int64_t(shape.size()) - int64_t(from.size());
  assert(offset >= 0 && "broadcast to a smaller rank");
  SmallVector<int64_t> kept, dimensions;
  for (auto [i, size] : llvm::enumerate(from)) {
    if (size == 1 && shape[offset + i] != 1)
      continue;
    kept.push_back(size);
    dimensions.push_back(offset + i);
  }
  return broadcast(b, loc, reshape(b, loc, v, kept), dimensions, shape);
}

Value broadcastScalar(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> shape) {
  return broadcast(b, loc, v, {}, shape);
}

std::optional<SmallVector<int64_t>> broadcastShape(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  if (a.size() < b.size())
    std::swap(a, b);
  SmallVector<int64_t> shape(a);
  size_t offset = a.size() - b.size();
  for (auto [i, size] : llvm::enumerate(b)) {
    int64_t &into = shape[offset + i];
    if (into == 1)
      into = size;
    else if (size != 1 && size != into)
      return std::nullopt;
  }
  return shape;
}

Value slice(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> starts, ArrayRef<int64_t> steps,
            ArrayRef<int64_t> shape) {
  bool whole = shapeOf(v) == shape && llvm::all_of(starts, [](int64_t s) { return s == 0; }) &&
               llvm::all_of(steps, [](int64_t s) { return s == 1; });
  if (whole)
    return v;
  return b.createOrFold<SliceOp>(loc, tensorType(v).clone(shape), v, b.getDenseI64ArrayAttr(starts),
                                 b.getDenseI64ArrayAttr(steps));
}

Value reduce(OpBuilder &b, Location loc, ReductionKind kind, Value v, ArrayRef<int64_t> axes,
             Type resultElementType) {
  Type element = resultElementType ? resultElementType : elementType(v);
  if (axes.empty())
    return castTo(b, loc, v, element);
  SmallVector<int64_t> sorted(axes), shape;
  llvm::sort(sorted);
  for (auto [i, size] : llvm::enumerate(shapeOf(v)))
    if (!llvm::is_contained(sorted, int64_t(i)))
      shape.push_back(size);
  return b.createOrFold<ReduceOp>(loc, RankedTensorType::get(shape, element),
                                  ReductionKindAttr::get(b.getContext(), kind), v,
                                  b.getDenseI64ArrayAttr(sorted));
}

// Casts. ------------------------------------------------------------------------------------

/// arith's folders leave a cast that rounds; a constant is rounded here, once, to nearest even.
static DenseElementsAttr castConstant(DenseElementsAttr value, Type to) {
  Type from = value.getElementType();
  auto toFloat = dyn_cast<FloatType>(to);
  bool ignored;
  if (isa<FloatType>(from)) {
    auto convert = [&](const APFloat &x) -> APInt {
      if (toFloat) {
        APFloat y = x;
        y.convert(toFloat.getFloatSemantics(), APFloat::rmNearestTiesToEven, &ignored);
        return y.bitcastToAPInt();
      }
      if (to.isInteger(1))
        return APInt(1, !x.isZero());
      APSInt y(to.getIntOrFloatBitWidth(), /*isUnsigned=*/false);
      x.convertToInteger(y, APFloat::rmTowardZero, &ignored);
      return y;
    };
    return cast<DenseFPElementsAttr>(value).mapValues(to, convert);
  }
  bool isBool = from.isInteger(1);
  auto convert = [&](const APInt &x) -> APInt {
    if (toFloat) {
      APFloat y(toFloat.getFloatSemantics());
      y.convertFromAPInt(x, /*IsSigned=*/!isBool, APFloat::rmNearestTiesToEven);
      return y.bitcastToAPInt();
    }
    if (to.isInteger(1))
      return APInt(1, !x.isZero());
    unsigned width = to.getIntOrFloatBitWidth();
    return isBool ? x.zextOrTrunc(width) : x.sextOrTrunc(width);
  };
  return cast<DenseIntElementsAttr>(value).mapValues(to, convert);
}

static Value castFloat(OpBuilder &b, Location loc, Value v, Type to) {
  Type from = elementType(v);
  auto type = tensorType(v).clone(to);
  unsigned fromWidth = from.getIntOrFloatBitWidth(), toWidth = to.getIntOrFloatBitWidth();
  if (fromWidth == toWidth) // f16 and bf16: through f32, which holds both exactly
    return castFloat(b, loc, castFloat(b, loc, v, b.getF32Type()), to);
  if (fromWidth < toWidth)
    return arith::ExtFOp::create(b, loc, type, v);
  return arith::TruncFOp::create(b, loc, type, v);
}

Value castTo(OpBuilder &b, Location loc, Value v, Type to) {
  Type from = elementType(v);
  if (from == to)
    return v;
  auto type = tensorType(v).clone(to);
  bool fromFloat = isa<FloatType>(from), toFloat = isa<FloatType>(to);
  // Through 32 bits: what does not fit a narrower integer wraps around, wherever it is computed.
  if (fromFloat && !toFloat && !to.isInteger(1) && to.getIntOrFloatBitWidth() < 32)
    return castTo(b, loc, castTo(b, loc, v, b.getI32Type()), to);
  DenseElementsAttr constant;
  if (matchPattern(v, m_Constant(&constant)))
    return arith::ConstantOp::create(b, loc, castConstant(constant, to));
  if (fromFloat && toFloat)
    return castFloat(b, loc, v, to);
  if (to.isInteger(1)) {
    Value zero = splat(b, loc, v.getType(), 0);
    if (fromFloat)
      return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, v, zero);
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, v, zero);
  }
  if (fromFloat)
    return arith::FPToSIOp::create(b, loc, type, v);
  if (toFloat) {
    if (from.isInteger(1))
      return arith::UIToFPOp::create(b, loc, type, v);
    return arith::SIToFPOp::create(b, loc, type, v);
  }
  if (to.getIntOrFloatBitWidth() < from.getIntOrFloatBitWidth())
    return arith::TruncIOp::create(b, loc, type, v);
  if (from.isInteger(1))
    return arith::ExtUIOp::create(b, loc, type, v);
  return arith::ExtSIOp::create(b, loc, type, v);
}

Value widen(OpBuilder &b, Location loc, Value v) {
  return castTo(b, loc, v, computeType(elementType(v)));
}

// Arithmetic. -------------------------------------------------------------------------------

template <typename FloatOp, typename IntegerOp>
static Value arithmetic(OpBuilder &b, Location loc, Value x, Value y) {
  if (isa<FloatType>(elementType(x)))
    return b.createOrFold<FloatOp>(loc, x, y);
  return b.createOrFold<IntegerOp>(loc, x, y);
}

Value add(OpBuilder &b, Location loc, Value x, Value y) {
  return arithmetic<arith::AddFOp, arith::AddIOp>(b, loc, x, y);
}
Value sub(OpBuilder &b, Location loc, Value x, Value y) {
  return arithmetic<arith::SubFOp, arith::SubIOp>(b, loc, x, y);
}
Value mul(OpBuilder &b, Location loc, Value x, Value y) {
  return arithmetic<arith::MulFOp, arith::MulIOp>(b, loc, x, y);
}
Value div(OpBuilder &b, Location loc, Value x, Value y) {
  return arithmetic<arith::DivFOp, arith::DivSIOp>(b, loc, x, y);
}

Value compare(OpBuilder &b, Location loc, arith::CmpFPredicate predicate, Value x, Value y) {
  DenseFPElementsAttr left, right;
  if (matchPattern(x, m_Constant(&left)) && matchPattern(y, m_Constant(&right))) {
    auto type = tensorType(x).clone(b.getI1Type());
    if (left.isSplat() && right.isSplat())
      return splat(b, loc, type,
                   arith::applyCmpPredicate(predicate, left.getSplatValue<APFloat>(),
                                            right.getSplatValue<APFloat>()));
    SmallVector<bool> values;
    for (auto [l, r] : llvm::zip(left.getValues<APFloat>(), right.getValues<APFloat>()))
      values.push_back(arith::applyCmpPredicate(predicate, l, r));
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<bool>(values)));
  }
  return arith::CmpFOp::create(b, loc, predicate, x, y);
}

} // namespace mpc
