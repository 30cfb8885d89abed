//===- Activations.cpp - activations, and mpc's pointwise operations -------------===//
//
// Most activations are written out in arith and math. sigmoid, softplus and gelu stay whole
// up to expand-composites: written out, their intermediate values overflow or cancel, and
// their derivatives are better than the parts'.
//
//===----------------------------------------------------------------------------===//

#include "Pointwise.h"
#include <numbers>

using namespace mlir;

namespace mpc {

// stop_gradient: the operand itself, and no gradient for it. ----------------------------------

SmallVector<Value> StopGradientOp::vjp(OpBuilder &, ValueRange, ArrayRef<Type>) {
  return {Value()};
}

SmallVector<Value> StopGradientOp::expand(OpBuilder &) { return {getInput()}; }

// sigmoid, softplus, gelu: derivatives and primitive forms. -----------------------------------

/// The frame of a derivative: `formula` gets the cotangent, operand and result, widened.
template <typename Op, typename Formula>
static SmallVector<Value> unaryVjp(Op op, OpBuilder &b, ValueRange cotangents,
                                   ArrayRef<Type> wanted, Formula formula) {
  if (!cotangents[0] || !wanted[0])
    return {Value()};
  auto wide = [&](Value v) { return Expr(b, op.getLoc(), widen(b, op.getLoc(), v)); };
  return {castTo(b, op.getLoc(),
                 formula(wide(cotangents[0]), wide(op.getInput()), wide(op.getResult())),
                 wanted[0])};
}

template <typename Op, typename Formula>
static SmallVector<Value> unaryExpand(Op op, OpBuilder &b, Formula formula) {
  Expr x(b, op.getLoc(), widen(b, op.getLoc(), op.getInput()));
  return {castTo(b, op.getLoc(), formula(x), elementType(op.getResult()))};
}

SmallVector<Value> SigmoidOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  return unaryVjp(*this, b, cotangents, wanted,
                  [](Expr dy, Expr, Expr y) { return dy * (y * (1 - y)); });
}

SmallVector<Value> SigmoidOp::expand(OpBuilder &b) {
  return unaryExpand(*this, b, [](Expr x) { // exp of what is not positive cannot overflow
    Expr e = exp(-abs(x));
    return select(x >= 0, 1, e) / (1 + e);
  });
}

SmallVector<Value> SoftplusOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  return unaryVjp(*this, b, cotangents, wanted,
                  [](Expr dy, Expr x, Expr) { return dy * x.unary<SigmoidOp>(); });
}

SmallVector<Value> SoftplusOp::expand(OpBuilder &b) {
  return unaryExpand(*this, b, [](Expr x) { return max(x, 0) + log1p(exp(-abs(x))); });
}

static const double kGeluScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi; // √(2/π)
static const double kGeluCubic = 0.044715;

/// tanh(√(2/π) · (x + 0.044715 x³))
static Expr geluTanh(const Expr &x) { return tanh(kGeluScale * (x + kGeluCubic * (x * x * x))); }

/// Φ(x), the normal distribution function
static Expr normalCdf(const Expr &x) { return 0.5 * (1 + erf(x * (1 / std::numbers::sqrt2))); }

SmallVector<Value> GeluOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  bool approximate = getApproximate();
  return unaryVjp(*this, b, cotangents, wanted, [&](Expr dy, Expr x, Expr) {
    if (approximate) {
      // ½(1 + t) + ½x(1 - t²)·√(2/π)(1 + 3·0.044715 x²). Beyond ±100, where x² may overflow, 1 - t²
      // is 0.
      Expr t = geluTanh(x), bounded = min(max(x, -100), 100);
      Expr inner = kGeluScale * (1 + 3 * kGeluCubic * (bounded * bounded));
      return dy * (0.5 * (1 + t) + 0.5 * bounded * (1 - t * t) * inner);
    }
    // Φ(x) + x·φ(x)
    Expr density = exp(-0.5 * (x * x)) * (0.5 * kGeluScale);
    return dy * (normalCdf(x) + x * density);
  });
}

SmallVector<Value> GeluOp::expand(OpBuilder &b) {
  bool approximate = getApproximate();
  return unaryExpand(*this, b, [&](Expr x) {
    return approximate ? 0.5 * x * (1 + geluTanh(x)) : x * normalCdf(x);
  });
}

// Handlers. ---------------------------------------------------------------------------------

static LogicalResult convertRelu(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  if (isa<IntegerType>(elementType(x)))
    return node.results(
        {node.b.createOrFold<arith::MaxSIOp>(node.loc, x, node.splat(x.getType(), 0))});
  return unaryHandler([](NodeContext &, Expr x) { return max(x, 0); })(node); // NaN stays
}

/// slope is broadcast to x, as in numpy, but never the other way round.
static LogicalResult convertPRelu(NodeContext &node) {
  Value x = node.operand(0), slope = x ? node.operand(1) : Value();
  if (!slope)
    return failure();
  if (broadcastShape(shapeOf(x), shapeOf(slope)) !=
      std::optional(SmallVector<int64_t>(shapeOf(x)))) {
    node.error() << "slope of type " << slope.getType() << " cannot be broadcast to "
                 << x.getType();
    return failure();
  }
  Expr wide(node.b, node.loc, widen(node.b, node.loc, x));
  Expr wideSlope =
      wide.with(broadcastTo(node.b, node.loc, widen(node.b, node.loc, slope), shapeOf(x)));
  return pointwiseResult(node, select(wide > 0, wide, wideSlope * wide), elementType(x));
}

static Expr leakyRelu(NodeContext &node, Expr x) {
  return select(x > 0, x, x * node.floatAttr("alpha", 0.01f));
}
static Expr elu(NodeContext &node, Expr x) {
  return select(x > 0, x, expm1(x) * node.floatAttr("alpha", 1));
}
static Expr selu(NodeContext &node, Expr x) {
  double alpha = node.floatAttr("alpha", 1.67326319217681884765625),
         gamma = node.floatAttr("gamma", 1.05070102214813232421875);
  return select(x > 0, x, expm1(x) * alpha) * gamma;
}
static Expr celu(NodeContext &node, Expr x) {
  double alpha = node.floatAttr("alpha", 1);
  return select(x > 0, x, expm1(x / alpha) * alpha);
}
static Expr thresholdedRelu(NodeContext &node, Expr x) {
  return select(x > node.floatAttr("alpha", 1), x, 0);
}
static Expr shrink(NodeContext &node, Expr x) {
  double lambda = node.floatAttr("lambd", 0.5), bias = node.floatAttr("bias", 0);
  return select(x < -lambda, x + bias, select(x > lambda, x - bias, 0));
}
static Expr hardSigmoid(NodeContext &node, Expr x) {
  return min(max(x * node.floatAttr("alpha", 0.2f) + node.floatAttr("beta", 0.5), 0), 1);
}
static Expr hardSwish(NodeContext &, Expr x) { return x * min(max(x * (1.0 / 6) + 0.5, 0), 1); }
static Expr softsign(NodeContext &, Expr x) { return x / (1 + abs(x)); }
static Expr mish(NodeContext &, Expr x) { return x * tanh(x.unary<SoftplusOp>()); }
static Expr swish(NodeContext &node, Expr x) {
  double alpha = node.floatAttr("alpha", 1);
  return x * (alpha == 1 ? x : x * alpha).unary<SigmoidOp>();
}

static LogicalResult convertGelu(NodeContext &node) {
  std::string approximate = node.stringAttr("approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    node.error() << "attribute approximate is \"" << approximate << "\"; it may be none or tanh";
    return failure();
  }
  return unaryHandler([&](NodeContext &, Expr x) {
    return x.with(GeluOp::create(*x.b, *x.loc, x.v.getType(), x.v, approximate == "tanh"));
  })(node);
}

void registerActivationHandlers(OnnxRegistry &r) {
  r.add("Relu", {6, 13, 14}, convertRelu);
  r.add("PRelu", {7, 9, 16}, convertPRelu);
  r.add("LeakyRelu", {6, 16}, unaryHandler(leakyRelu));
  r.add("Elu", {6, 22}, unaryHandler(elu));
  r.add("Selu", {6, 22}, unaryHandler(selu));
  r.add("Celu", {12}, unaryHandler(celu));
  r.add("ThresholdedRelu", {10, 22}, unaryHandler(thresholdedRelu));
  r.add("Shrink", {9}, unaryHandler(shrink));
  r.add("HardSigmoid", {6, 22}, unaryHandler(hardSigmoid));
  r.add("HardSwish", {14, 22}, unaryHandler(hardSwish));
  r.add("Sigmoid", {6, 13},
        unaryHandler([](NodeContext &, Expr x) { return x.unary<SigmoidOp>(); }));
  r.add("Tanh", {6, 13}, unaryHandler([](NodeContext &, Expr x) { return tanh(x); }));
  r.add("Softplus", {1, 22},
        unaryHandler([](NodeContext &, Expr x) { return x.unary<SoftplusOp>(); }));
  r.add("Softsign", {1, 22}, unaryHandler(softsign));
  r.add("Mish", {18, 22}, unaryHandler(mish));
  r.add("Swish", {24}, unaryHandler(swish));
  r.add("Gelu", {20}, convertGelu);
  r.add("com.microsoft:Gelu", {1}, convertGelu);
}

} // namespace mpc
