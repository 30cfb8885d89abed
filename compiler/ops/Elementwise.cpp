//===- Elementwise.cpp - arithmetic, comparisons, choices ------------------------===//
//
// Pointwise ONNX operators become arith and math on tensors of one shape. Derivatives:
// ElementwiseGrad.cpp; activations: Activations.cpp.
//
//===----------------------------------------------------------------------------===//

#include "Pointwise.h"
#include "Rows.h"
#include "Unsigned.h"

using namespace mlir;

namespace mpc {

// The frame. --------------------------------------------------------------------------------

std::optional<SmallVector<Value>> broadcastOperands(NodeContext &node, unsigned count,
                                                    bool widenHalves) {
  SmallVector<Value> operands;
  for (unsigned i = 0; i < count; ++i) {
    operands.push_back(node.operand(i));
    if (!operands.back())
      return std::nullopt;
  }
  return broadcastOperands(node, operands, widenHalves);
}

std::optional<SmallVector<Value>> broadcastOperands(NodeContext &node, ArrayRef<Value> values,
                                                    bool widenHalves) {
  SmallVector<Value> operands;
  SmallVector<int64_t> shape;
  for (auto [i, v] : llvm::enumerate(values)) {
    auto joined = broadcastShape(shape, shapeOf(v));
    if (!joined) {
      node.error() << "operand " << i << " of type " << v.getType()
                   << " cannot be broadcast with those before it";
      return std::nullopt;
    }
    shape = *joined;
    operands.push_back(widenHalves ? widen(node.b, node.loc, v) : v);
  }
  for (Value &v : operands)
    v = broadcastTo(node.b, node.loc, v, shape);
  return operands;
}

LogicalResult pointwiseResult(NodeContext &node, Value value, Type resultElementType) {
  return node.results({castTo(node.b, node.loc, value, resultElementType)});
}

static bool isFloat(Value v) { return isa<FloatType>(elementType(v)); }

OnnxHandler unaryHandler(std::function<Expr(NodeContext &, Expr)> formula) {
  return [formula = std::move(formula)](NodeContext &node) -> LogicalResult {
    Value x = node.operand(0);
    if (!x)
      return failure();
    if (!isFloat(x)) {
      node.error() << "is supported for floats, not for " << x.getType();
      return failure();
    }
    Expr wide(node.b, node.loc, widen(node.b, node.loc, x));
    return pointwiseResult(node, formula(node, wide), elementType(x));
  };
}

template <typename Op> static OnnxHandler unary() {
  return unaryHandler([](NodeContext &, Expr x) { return x.unary<Op>(); });
}

/// Operators on floats and on integers, of two operands or a variable number.
template <typename FloatOp, typename IntegerOp, typename Uint64Op = IntegerOp>
static OnnxHandler arithmetic() {
  return [](NodeContext &node) -> LogicalResult {
    if (node.operandCount() == 0) {
      node.error() << "has no operand";
      return failure();
    }
    auto xs = broadcastOperands(node, node.operandCount());
    if (!xs)
      return failure();
    Value result = xs->front();
    for (Value x : ArrayRef(*xs).drop_front())
      result = isFloat(x)          ? node.b.createOrFold<FloatOp>(node.loc, result, x)
               : isUint64(node, 0) ? node.b.createOrFold<Uint64Op>(node.loc, result, x)
                                   : node.b.createOrFold<IntegerOp>(node.loc, result, x);
    return pointwiseResult(node, result, elementType(node.operand(0)));
  };
}

// Arithmetic. -------------------------------------------------------------------------------

static LogicalResult convertMean(NodeContext &node) {
  auto xs = broadcastOperands(node, node.operandCount());
  if (!xs || xs->empty())
    return failure();
  Expr sum(node.b, node.loc, xs->front());
  for (Value x : ArrayRef(*xs).drop_front())
    sum = sum + sum.with(x);
  return pointwiseResult(node, sum / double(xs->size()), elementType(node.operand(0)));
}

static LogicalResult convertNeg(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  if (!isFloat(x))
    return node.results({sub(node.b, node.loc, node.splat(x.getType(), 0), x)});
  return unary<arith::NegFOp>()(node);
}

static LogicalResult convertAbs(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  if (unsignedBits(node.op.getInputs()[0]))
    return node.results({x});
  if (!isFloat(x))
    return node.results({node.b.createOrFold<math::AbsIOp>(node.loc, x)});
  return unary<math::AbsFOp>()(node);
}

static LogicalResult convertSign(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  if (isUint64(node, 0))
    return node.results(
        {node.b.createOrFold<arith::MinUIOp>(node.loc, x, node.splat(x.getType(), 1))});
  if (!isFloat(x)) { // min(max(x, -1), 1)
    Value low = node.b.createOrFold<arith::MaxSIOp>(node.loc, x, node.splat(x.getType(), -1));
    return node.results(
        {node.b.createOrFold<arith::MinSIOp>(node.loc, low, node.splat(x.getType(), 1))});
  }
  // x · 0 keeps NaN, and has no gradient.
  return unaryHandler(
      [](NodeContext &, Expr x) { return select(x > 0, 1, select(x < 0, -1, x * 0)); })(node);
}

/// x / y towards zero, or x mod y with the dividend's sign, for every y: processors trap where the
/// quotient does not exist (y = 0) or does not fit (the lowest number / -1). As in numpy a division
/// by 0 gives 0, and x / -1 is -x, which wraps around. y is never 0 or -1 in what is executed.
static Value integerDivision(OpBuilder &b, Location loc, Value x, Value y, bool remainder) {
  auto divide = [&](Value divisor) -> Value {
    return remainder ? b.createOrFold<arith::RemSIOp>(loc, x, divisor)
                     : b.createOrFold<arith::DivSIOp>(loc, x, divisor);
  };
  DenseElementsAttr constant;
  if (matchPattern(y, m_Constant(&constant)) && constant.isSplat())
    if (APInt divisor = constant.getSplatValue<APInt>(); !divisor.isZero() && !divisor.isAllOnes())
      return divide(y);
  auto number = [&](int64_t value) { return splat(b, loc, y.getType(), double(value)); };
  auto is = [&](int64_t value) -> Value {
    return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, y, number(value));
  };
  auto select = [&](Value condition, Value yes, Value no) -> Value {
    return b.createOrFold<arith::SelectOp>(loc, condition, yes, no);
  };
  Value zero = is(0), minusOne = is(-1);
  Value result = divide(select(zero, number(1), select(minusOne, number(1), y)));
  if (remainder) // by 1: 0
    return result;
  result = select(minusOne, sub(b, loc, number(0), x), result);
  return select(zero, number(0), result);
}

/// The same of uint64.
static Value uint64Division(OpBuilder &b, Location loc, Value x, Value y, bool remainder) {
  Value zero = splat(b, loc, y.getType(), 0), one = splat(b, loc, y.getType(), 1);
  Value isZero = b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, y, zero);
  Value divisor = b.createOrFold<arith::SelectOp>(loc, isZero, one, y);
  if (remainder)
    return b.createOrFold<arith::RemUIOp>(loc, x, divisor);
  return b.createOrFold<arith::SelectOp>(loc, isZero, zero,
                                         b.createOrFold<arith::DivUIOp>(loc, x, divisor));
}

static LogicalResult convertDiv(NodeContext &node) {
  auto xs = broadcastOperands(node, 2);
  if (!xs)
    return failure();
  Value x = (*xs)[0], y = (*xs)[1];
  auto integers = isUint64(node, 0) ? uint64Division : integerDivision;
  Value quotient = isFloat(x) ? div(node.b, node.loc, x, y)
                              : integers(node.b, node.loc, x, y, /*remainder=*/false);
  return pointwiseResult(node, quotient, elementType(node.operand(0)));
}

/// Remainder: with the divisor's sign (Python's), or with `fmod` the dividend's (C's).
static LogicalResult convertMod(NodeContext &node) {
  auto xs = broadcastOperands(node, 2);
  if (!xs)
    return failure();
  OpBuilder &b = node.b;
  Value x = (*xs)[0], y = (*xs)[1];
  Type element = elementType(node.operand(0));
  bool fmod = node.intAttr("fmod", 0) != 0;
  if (isFloat(x)) {
    Expr remainder(b, node.loc, b.createOrFold<arith::RemFOp>(node.loc, x, y));
    if (!fmod) { // floored division: the divisor's sign
      Expr divisor = remainder.with(y), wrong = remainder * divisor < 0;
      remainder = select(wrong, remainder + divisor, remainder);
    }
    return pointwiseResult(node, remainder, element);
  }
  if (isUint64(node, 0))
    return node.results({uint64Division(b, node.loc, x, y, /*remainder=*/true)});
  Value remainder = integerDivision(b, node.loc, x, y, /*remainder=*/true);
  if (!fmod) {
    Value zero = node.splat(x.getType(), 0);
    auto compare = [&](arith::CmpIPredicate predicate, Value left, Value right) {
      return b.createOrFold<arith::CmpIOp>(node.loc, predicate, left, right);
    };
    Value signsDiffer =
        b.createOrFold<arith::XOrIOp>(node.loc, compare(arith::CmpIPredicate::slt, remainder, zero),
                                      compare(arith::CmpIPredicate::slt, y, zero));
    Value wrong = b.createOrFold<arith::AndIOp>(node.loc, signsDiffer,
                                                compare(arith::CmpIPredicate::ne, remainder, zero));
    remainder =
        b.createOrFold<arith::SelectOp>(node.loc, wrong, add(b, node.loc, remainder, y), remainder);
  }
  return pointwiseResult(node, remainder, element);
}

/// x to a small constant power, by products; null where powf is better.
static Value constantPower(OpBuilder &b, Location loc, Value x, double exponent) {
  auto times = [&](Value u, Value v) { return mul(b, loc, u, v); };
  if (exponent == 1)
    return x;
  if (exponent == 2)
    return times(x, x);
  if (exponent == 3)
    return times(times(x, x), x);
  if (exponent == 4)
    return constantPower(b, loc, times(x, x), 2);
  if (exponent == 0)
    return splat(b, loc, x.getType(), 1);
  if (!isFloat(x))
    return {};
  Expr e(b, loc, x);
  if (exponent == 0.5)
    return sqrt(e);
  if (exponent == -0.5)
    return 1 / sqrt(e);
  if (exponent == -1)
    return 1 / e;
  if (exponent == -2)
    return 1 / (e * e);
  return {};
}

/// xⁿ of integers, modulo 2⁶⁴, by squaring over the bits of n. x⁻ⁿ is 1 / xⁿ without its fraction:
/// 0, but for 1 and -1. n is a signed integer, or a uint64.
static Value integerPower(OpBuilder &b, Location loc, Value x, Value n, bool isUint64) {
  Type i64 = b.getI64Type();
  x = castTo(b, loc, x, i64);
  n = castTo(b, loc, n, i64);
  auto number = [&](int64_t value) { return splat(b, loc, x.getType(), double(value)); };
  auto is = [&](arith::CmpIPredicate predicate, Value v, int64_t value) -> Value {
    return b.createOrFold<arith::CmpIOp>(loc, predicate, v, number(value));
  };
  auto select = [&](Value condition, Value yes, Value no) -> Value {
    return b.createOrFold<arith::SelectOp>(loc, condition, yes, no);
  };
  auto odd = [&](int64_t bit) {
    Value shifted = b.createOrFold<arith::ShRSIOp>(loc, n, number(bit));
    return is(arith::CmpIPredicate::ne, b.createOrFold<arith::AndIOp>(loc, shifted, number(1)), 0);
  };
  int64_t bits = isUint64 ? 64 : 63;
  if (DenseElementsAttr constant; matchPattern(n, m_Constant(&constant))) {
    bits = 0;
    for (const APInt &value : constant.getValues<APInt>())
      bits = std::max<int64_t>(bits, value.isNegative() && !isUint64 ? 0 : value.getActiveBits());
  }
  Value power = number(1), square = x;
  for (int64_t bit = 0; bit < bits; ++bit) {
    power = select(odd(bit), mul(b, loc, power, square), power);
    square = mul(b, loc, square, square);
  }
  if (isUint64)
    return power;
  Value sign = select(odd(0), number(-1), number(1));
  Value inverse = select(is(arith::CmpIPredicate::eq, x, 1), number(1),
                         select(is(arith::CmpIPredicate::eq, x, -1), sign, number(0)));
  return select(is(arith::CmpIPredicate::slt, n, 0), inverse, power);
}

static LogicalResult convertPow(NodeContext &node) {
  auto xs = broadcastOperands(node, 2);
  if (!xs)
    return failure();
  OpBuilder &b = node.b;
  Value x = (*xs)[0], exponent = (*xs)[1];
  Type element = elementType(node.operand(0));
  DenseElementsAttr constant;
  if (matchPattern(node.operand(1), m_Constant(&constant)) && constant.isSplat()) {
    Value one = castOperand(node, 1, node.operand(1), b.getF64Type());
    matchPattern(one, m_Constant(&constant));
    if (Value power =
            constantPower(b, node.loc, x, constant.getSplatValue<APFloat>().convertToDouble()))
      return pointwiseResult(node, power, element);
  }
  if (!isFloat(x) && !isFloat(exponent))
    return pointwiseResult(node, integerPower(b, node.loc, x, exponent, isUint64(node, 1)),
                           element);
  Type compute = isFloat(x) ? elementType(x) : elementType(exponent);
  Value power = b.createOrFold<math::PowFOp>(node.loc, castTo(b, node.loc, x, compute),
                                             castOperand(node, 1, exponent, compute));
  return pointwiseResult(node, power, element);
}

// Comparisons, logic. -----------------------------------------------------------------------

static OnnxHandler comparison(arith::CmpFPredicate floats, arith::CmpIPredicate integers) {
  return [=](NodeContext &node) -> LogicalResult {
    auto xs = broadcastOperands(node, 2);
    if (!xs)
      return failure();
    Value x = (*xs)[0], y = (*xs)[1];
    if (isFloat(x))
      return node.results({compare(node.b, node.loc, floats, x, y)});
    if (isUint64(node, 0)) {
      x = flipped(node.b, node.loc, x);
      y = flipped(node.b, node.loc, y);
    }
    return node.results({node.b.createOrFold<arith::CmpIOp>(node.loc, integers, x, y)});
  };
}

template <typename Op> static LogicalResult convertLogic(NodeContext &node) {
  auto xs = broadcastOperands(node, 2);
  if (!xs)
    return failure();
  return node.results({node.b.createOrFold<Op>(node.loc, (*xs)[0], (*xs)[1])});
}

/// Not and BitwiseNot: xor with all ones.
static LogicalResult convertNot(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  double ones = elementType(x).isInteger(1) ? 1 : -1;
  return node.results(
      {node.b.createOrFold<arith::XOrIOp>(node.loc, x, node.splat(x.getType(), ones))});
}

static LogicalResult convertIsNaN(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  x = widen(node.b, node.loc, x);
  return node.results({compare(node.b, node.loc, arith::CmpFPredicate::UNO, x, x)});
}

static LogicalResult convertIsInf(NodeContext &node) {
  Value operand = node.operand(0);
  if (!operand)
    return failure();
  Expr x(node.b, node.loc, widen(node.b, node.loc, operand));
  bool negative = node.intAttr("detect_negative", 1), positive = node.intAttr("detect_positive", 1);
  double infinity = std::numeric_limits<double>::infinity();
  if (negative && positive)
    return node.results({equal(abs(x), infinity)});
  if (!negative && !positive)
    return node.results({node.splat(tensorType(operand).clone(node.b.getI1Type()), 0)});
  return node.results({equal(x, positive ? infinity : -infinity)});
}

// Choices. ----------------------------------------------------------------------------------

static LogicalResult convertWhere(NodeContext &node) {
  if (!node.operand(0) || !node.operand(1) || !node.operand(2))
    return failure();
  std::array<Value, 3> operands{node.operand(0), node.operand(1), node.operand(2)};
  makeSoftmaxSafe(node, operands);
  auto xs = broadcastOperands(node, operands);
  if (!xs)
    return failure();
  Value chosen = node.b.createOrFold<arith::SelectOp>(node.loc, (*xs)[0], (*xs)[1], (*xs)[2]);
  return pointwiseResult(node, chosen, elementType(node.operand(1)));
}

/// min(max(x, low), high): NaN stays; each bound may be left out. Before opset 11 the bounds are
/// attributes.
static LogicalResult convertClip(NodeContext &node) {
  Value operand = node.operand(0);
  if (!operand)
    return failure();
  OpBuilder &b = node.b;
  Value x = widen(b, node.loc, operand);
  auto bound = [&](unsigned i, StringRef name) -> Value {
    if (node.version() < 11)
      return node.attr(name) ? node.splat(x.getType(), node.floatAttr(name, 0)) : Value();
    if (!node.has(i))
      return {};
    Value v = reshape(b, node.loc, node.operand(i), {});
    return broadcastScalar(b, node.loc, castTo(b, node.loc, v, elementType(x)), shapeOf(x));
  };
  for (unsigned i : {1u, 2u})
    if (node.version() >= 11 && node.has(i) && tensorType(node.operand(i)).getNumElements() != 1) {
      node.error() << "bound " << i << " has " << tensorType(node.operand(i)).getNumElements()
                   << " elements; it must be a scalar";
      return failure();
    }
  bool isUnsigned = isUint64(node, 0);
  if (Value low = bound(1, "min"))
    x = isFloat(x)   ? b.createOrFold<arith::MaximumFOp>(node.loc, x, low)
        : isUnsigned ? b.createOrFold<arith::MaxUIOp>(node.loc, x, low)
                     : b.createOrFold<arith::MaxSIOp>(node.loc, x, low);
  if (Value high = bound(2, "max"))
    x = isFloat(x)   ? b.createOrFold<arith::MinimumFOp>(node.loc, x, high)
        : isUnsigned ? b.createOrFold<arith::MinUIOp>(node.loc, x, high)
                     : b.createOrFold<arith::MinSIOp>(node.loc, x, high);
  return pointwiseResult(node, x, elementType(operand));
}

// Casts. ------------------------------------------------------------------------------------

/// The type that holds ONNX's TensorProto.DataType; null where mpc has none.
static Type elementTypeOf(OpBuilder &b, int64_t dataType) {
  switch (dataType) {
  case 1:
    return b.getF32Type();
  case 3:
    return b.getI8Type();
  case 2: // uint8
  case 5:
    return b.getI16Type();
  case 4: // uint16
  case 6:
    return b.getI32Type();
  case 7:
  case 12: // uint32
  case 13: // uint64
    return b.getI64Type();
  case 9:
    return b.getI1Type();
  case 10:
    return b.getF16Type();
  case 11:
    return b.getF64Type();
  case 16:
    return b.getBF16Type();
  default:
    return {};
  }
}

/// Casts of operand 0; what does not fit an unsigned type wraps around in results().
static LogicalResult castResult(NodeContext &node, Value x, Type to) {
  if (isFloat(x) && unsignedBits(node.op->getResult(0)) == 64)
    return node.results({castToUint64(node, x)});
  return node.results({castOperand(node, 0, x, to)});
}

static LogicalResult convertCast(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  Type to = elementTypeOf(node.b, node.intAttr("to", 0));
  if (!to) {
    node.unsupported()
        << "casts to ONNX data type " << node.intAttr("to", 0)
        << ", which mpc does not have; it has float, double, float16, bfloat16, bool and "
           "integers of 8 to 64 bits";
    return failure();
  }
  return castResult(node, x, to);
}

static LogicalResult convertCastLike(NodeContext &node) {
  Value x = node.operand(0), like = x ? node.operand(1) : Value();
  return like ? castResult(node, x, elementType(like)) : failure();
}

// Registration. -----------------------------------------------------------------------------

static void registerArithmetic(OnnxRegistry &r) {
  r.add("Add", {7, 13, 14}, arithmetic<arith::AddFOp, arith::AddIOp>());
  r.add("Sub", {7, 13, 14}, arithmetic<arith::SubFOp, arith::SubIOp>());
  r.add("Mul", {7, 13, 14}, arithmetic<arith::MulFOp, arith::MulIOp>());
  r.add("Div", {7, 13, 14}, convertDiv);
  r.add("Sum", {6, 8, 13}, arithmetic<arith::AddFOp, arith::AddIOp>());
  r.add("Max", {6, 8, 12, 13}, arithmetic<arith::MaximumFOp, arith::MaxSIOp, arith::MaxUIOp>());
  r.add("Min", {6, 8, 12, 13}, arithmetic<arith::MinimumFOp, arith::MinSIOp, arith::MinUIOp>());
  r.add("Mean", {6, 8, 13}, convertMean);
  r.add("Mod", {10, 13}, convertMod);
  r.add("Pow", {7, 12, 13, 15}, convertPow);
  r.add("Neg", {6, 13}, convertNeg);
  r.add("Abs", {6, 13}, convertAbs);
  r.add("Sign", {9, 13}, convertSign);
  r.add("Reciprocal", {6, 13}, unaryHandler([](NodeContext &, Expr x) { return 1 / x; }));
  r.add("Sqrt", {6, 13}, unary<math::SqrtOp>());
  r.add("Exp", {6, 13}, unary<math::ExpOp>());
  r.add("Log", {6, 13}, unary<math::LogOp>());
  r.add("Erf", {9, 13}, unary<math::ErfOp>());
  r.add("Floor", {6, 13}, unary<math::FloorOp>());
  r.add("Ceil", {6, 13}, unary<math::CeilOp>());
  r.add("Round", {11, 22}, unary<math::RoundEvenOp>());
}

static void registerTrigonometry(OnnxRegistry &r) {
  r.add("Sin", {7, 22}, unary<math::SinOp>());
  r.add("Cos", {7, 22}, unary<math::CosOp>());
  r.add("Tan", {7, 22}, unary<math::TanOp>());
  r.add("Asin", {7, 22}, unary<math::AsinOp>());
  r.add("Acos", {7, 22}, unary<math::AcosOp>());
  r.add("Atan", {7, 22}, unary<math::AtanOp>());
  r.add("Sinh", {9, 22}, unary<math::SinhOp>());
  r.add("Cosh", {9, 22}, unary<math::CoshOp>());
  r.add("Asinh", {9, 22}, unary<math::AsinhOp>());
  r.add("Acosh", {9, 22}, unary<math::AcoshOp>());
  r.add("Atanh", {9, 22}, unary<math::AtanhOp>());
}

static void registerLogic(OnnxRegistry &r) {
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  r.add("Equal", {7, 11, 13, 19}, comparison(F::OEQ, I::eq));
  r.add("Greater", {7, 9, 13}, comparison(F::OGT, I::sgt));
  r.add("GreaterOrEqual", {12, 16}, comparison(F::OGE, I::sge));
  r.add("Less", {7, 9, 13}, comparison(F::OLT, I::slt));
  r.add("LessOrEqual", {12, 16}, comparison(F::OLE, I::sle));
  r.add("And", {7}, convertLogic<arith::AndIOp>);
  r.add("Or", {7}, convertLogic<arith::OrIOp>);
  r.add("Xor", {7}, convertLogic<arith::XOrIOp>);
  r.add("BitwiseAnd", {18}, convertLogic<arith::AndIOp>);
  r.add("BitwiseOr", {18}, convertLogic<arith::OrIOp>);
  r.add("BitwiseXor", {18}, convertLogic<arith::XOrIOp>);
  r.add("Not", {1}, convertNot);
  r.add("BitwiseNot", {18}, convertNot);
  r.add("IsNaN", {9, 13, 20}, convertIsNaN);
  r.add("IsInf", {10, 20}, convertIsInf);
}

void registerElementwiseHandlers(OnnxRegistry &r) {
  registerArithmetic(r);
  registerTrigonometry(r);
  registerLogic(r);
  r.add("Where", {9, 16}, convertWhere);
  r.add("Clip", {6, 11, 12, 13}, convertClip);
  r.add("Cast", {6, 9, 13, 19, 21, 23, 24, 25}, convertCast);
  r.add("CastLike", {15, 19, 21, 23, 24, 25}, convertCastLike);
}

} // namespace mpc
