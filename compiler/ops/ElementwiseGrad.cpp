//===- ElementwiseGrad.cpp - derivatives of arith and math on tensors ------------===//
//
// One rule per operation, written as its formula. Arithmetic is in f32 (f64): halves are
// widened, each gradient gets its wanted type at the end.
//
// Where(c, sqrt(x), x) hands sqrt an exact zero where the branch was not taken; there the
// derivative may be infinite, and 0 · inf would be NaN. Rules with a pole therefore give 0
// for a zero cotangent: `guarded`.
//
//===----------------------------------------------------------------------------===//

#include "Elementwise.h"
#include "Expression.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"
#include <numbers>

using namespace mlir;

namespace mpc {
namespace {

/// What a rule sees: the cotangent, operands and result, all widened.
struct Grad {
  OpBuilder &b;
  Operation *op;
  ArrayRef<Type> wanted;
  Expr dy;

  bool wants(unsigned i) const { return bool(wanted[i]); }
  Expr value(Value v) const { return {b, op->getLoc(), widen(b, op->getLoc(), v)}; }
  Expr x(unsigned i = 0) const { return value(op->getOperand(i)); }
  Expr y() const { return value(op->getResult(0)); }
  /// 0 where the cotangent is an exact 0, whatever the derivative is there.
  Expr guarded(const Expr &gradient) const { return select(equal(dy, 0), 0, gradient); }
};

using Grads = SmallVector<Expr, 3>;

bool isNonZeroConstant(Value v) {
  DenseFPElementsAttr value;
  return matchPattern(v, m_Constant(&value)) &&
         (!value.isSplat() ? false : !value.getSplatValue<APFloat>().isZero());
}

/// Whether a factor may be infinite where its consumer is masked out: it comes, through
/// pointwise operations and index maps, from an operation with a pole.
bool mayBeInfinite(Value v, int depth = 12) {
  Operation *op = v.getDefiningOp();
  if (!op || depth == 0)
    return false;
  if (auto quotient = dyn_cast<arith::DivFOp>(op))
    return !isNonZeroConstant(quotient.getRhs()) || mayBeInfinite(quotient.getLhs(), depth - 1);
  if (isa<math::LogOp, math::Log1pOp, math::RsqrtOp, math::ExpOp, math::PowFOp, math::TanOp>(op))
    return true;
  if (!op->hasTrait<OpTrait::Elementwise>() &&
      !isa<BroadcastOp, ReshapeOp, TransposeOp, SliceOp>(op))
    return false;
  return llvm::any_of(op->getOperands(),
                      [&](Value operand) { return mayBeInfinite(operand, depth - 1); });
}

// arith. ------------------------------------------------------------------------------------

Grads rule(arith::AddFOp, Grad &g) { return {g.dy, g.dy}; }
Grads rule(arith::SubFOp, Grad &g) { return {g.dy, g.wants(1) ? -g.dy : Expr()}; }
Grads rule(arith::NegFOp, Grad &g) { return {-g.dy}; }
Grads rule(arith::ExtFOp, Grad &g) { return {g.dy}; }
Grads rule(arith::TruncFOp, Grad &g) { return {g.dy}; }
Grads rule(arith::RemFOp, Grad &g) {
  return {g.dy, g.wants(1) ? -(g.dy * (g.x(0) / g.x(1)).unary<math::TruncOp>()) : Expr()};
}

Grads rule(arith::MulFOp op, Grad &g) {
  auto one = [&](unsigned i) {
    if (!g.wants(i))
      return Expr();
    Expr gradient = g.dy * g.x(1 - i);
    return mayBeInfinite(op->getOperand(1 - i)) ? g.guarded(gradient) : gradient;
  };
  return {one(0), one(1)};
}

Grads rule(arith::DivFOp op, Grad &g) { // d(a/b) = da / b - db · (a/b) / b
  auto pole = [&](Expr gradient) {
    return isNonZeroConstant(op.getRhs()) ? gradient : g.guarded(gradient);
  };
  return {g.wants(0) ? pole(g.dy / g.x(1)) : Expr(),
          g.wants(1) ? pole(-(g.dy * g.y() / g.x(1))) : Expr()};
}

/// Maximum and minimum. At a tie: half each; but Clip passes the whole gradient on its bounds,
/// and Relu and its kin, which compare with a constant, none (as PyTorch does).
Grads extremum(Grad &g, arith::CmpFPredicate wins) {
  Expr x0 = g.x(0), x1 = g.x(1);
  StringRef kind = operatorOf(g.op);
  bool atBound = kind == "Clip";
  bool strict = matchPattern(g.op->getOperand(1), m_Constant()) && kind != "Max" && kind != "Min";
  if (atBound || strict) {
    auto orEqual =
        wins == arith::CmpFPredicate::OGT ? arith::CmpFPredicate::OGE : arith::CmpFPredicate::OLE;
    Expr first = x0.compare(atBound ? orEqual : wins, x1);
    return {g.wants(0) ? select(first, g.dy, 0) : Expr(),
            g.wants(1) ? select(first, 0, g.dy) : Expr()};
  }
  Expr tie = select(equal(x0, x1), g.dy * 0.5, 0);
  return {g.wants(0) ? select(x0.compare(wins, x1), g.dy, tie) : Expr(),
          g.wants(1) ? select(x1.compare(wins, x0), g.dy, tie) : Expr()};
}
Grads rule(arith::MaximumFOp, Grad &g) { return extremum(g, arith::CmpFPredicate::OGT); }
Grads rule(arith::MinimumFOp, Grad &g) { return extremum(g, arith::CmpFPredicate::OLT); }

Grads rule(arith::SelectOp op, Grad &g) { // exact zeros for the branch not taken
  Expr condition(g.b, op.getLoc(), op.getCondition());
  return {{},
          g.wants(1) ? select(condition, g.dy, 0) : Expr(),
          g.wants(2) ? select(condition, 0, g.dy) : Expr()};
}

// math: exponentials, logarithms, powers, roots. ---------------------------------------------

Grads rule(math::ExpOp, Grad &g) { return {g.guarded(g.dy * g.y())}; }
Grads rule(math::ExpM1Op, Grad &g) { return {g.guarded(g.dy * (g.y() + 1))}; }
Grads rule(math::LogOp, Grad &g) { return {g.guarded(g.dy / g.x())}; }
Grads rule(math::Log1pOp, Grad &g) { return {g.guarded(g.dy / (1 + g.x()))}; }
Grads rule(math::SqrtOp, Grad &g) { return {g.guarded(g.dy / (2 * g.y()))}; }
Grads rule(math::RsqrtOp, Grad &g) { return {g.guarded(g.dy * -0.5 * g.y() * g.y() * g.y())}; }
Grads rule(math::ErfOp, Grad &g) {
  return {g.dy * (2 * std::numbers::inv_sqrtpi) * exp(-(g.x() * g.x()))};
}

Grads rule(math::PowFOp,
           Grad &g) { // d(x^e) = e · x^(e-1) dx + x^e · log x de, 0 for e = 0 and for 0^e
  Grads result(2);
  Expr x = g.x(0), e = g.x(1);
  if (g.wants(0))
    result[0] = select(equal(e, 0), 0, g.guarded(g.dy * e * x.binary<math::PowFOp>(e - 1)));
  if (g.wants(1))
    result[1] = select(both(equal(x, 0), e >= 0), 0, g.guarded(g.dy * g.y() * log(x)));
  return result;
}

// math: trigonometry. ------------------------------------------------------------------------

Grads rule(math::SinOp, Grad &g) { return {g.dy * g.x().unary<math::CosOp>()}; }
Grads rule(math::CosOp, Grad &g) { return {-(g.dy * g.x().unary<math::SinOp>())}; }
Grads rule(math::TanOp, Grad &g) { return {g.guarded(g.dy * (1 + g.y() * g.y()))}; }
Grads rule(math::AsinOp, Grad &g) { return {g.guarded(g.dy / sqrt(1 - g.x() * g.x()))}; }
Grads rule(math::AcosOp, Grad &g) { return {g.guarded(-(g.dy / sqrt(1 - g.x() * g.x())))}; }
Grads rule(math::AtanOp, Grad &g) { return {g.dy / (1 + g.x() * g.x())}; }
Grads rule(math::SinhOp, Grad &g) { return {g.guarded(g.dy * g.x().unary<math::CoshOp>())}; }
Grads rule(math::CoshOp, Grad &g) { return {g.guarded(g.dy * g.x().unary<math::SinhOp>())}; }
Grads rule(math::TanhOp, Grad &g) { return {g.dy * (1 - g.y() * g.y())}; }
Grads rule(math::AsinhOp, Grad &g) { return {g.dy / sqrt(g.x() * g.x() + 1)}; }
Grads rule(math::AcoshOp, Grad &g) { return {g.guarded(g.dy / sqrt(g.x() * g.x() - 1))}; }
Grads rule(math::AtanhOp, Grad &g) { return {g.guarded(g.dy / (1 - g.x() * g.x()))}; }

// math: pieces that are linear or constant. ---------------------------------------------------

Grads rule(math::AbsFOp, Grad &g) { return {select(g.x() > 0, g.dy, select(g.x() < 0, -g.dy, 0))}; }
Grads rule(math::FloorOp, Grad &) { return {Expr()}; }
Grads rule(math::CeilOp, Grad &) { return {Expr()}; }
Grads rule(math::RoundEvenOp, Grad &) { return {Expr()}; }
Grads rule(math::TruncOp, Grad &) { return {Expr()}; }

// Attachment. --------------------------------------------------------------------------------

template <typename Op> struct Model : DifferentiableOpInterface::ExternalModel<Model<Op>, Op> {
  SmallVector<Value> vjp(Operation *op, OpBuilder &b, ValueRange cotangents,
                         ArrayRef<Type> wanted) const {
    SmallVector<Value> result(op->getNumOperands());
    if (!cotangents[0] || llvm::none_of(wanted, [](Type t) { return bool(t); }))
      return result;
    Location loc = op->getLoc();
    Grad g{b, op, wanted, Expr(b, loc, widen(b, loc, cotangents[0]))};
    Grads gradients = rule(cast<Op>(op), g);
    for (auto [i, gradient] : llvm::enumerate(gradients))
      if (gradient && wanted[i])
        result[i] = castTo(b, loc, gradient, wanted[i]);
    return result;
  }
};

/// Values that integers and truth values give have no gradient: no operation of theirs needs a
/// rule, but a float made from an integer stops there without an error.
template <typename Op>
struct ZeroModel : DifferentiableOpInterface::ExternalModel<ZeroModel<Op>, Op> {
  SmallVector<Value> vjp(Operation *op, OpBuilder &, const ValueRange &, ArrayRef<Type>) const {
    return SmallVector<Value>(op->getNumOperands());
  }
};

template <typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops>>(*context), ...);
}
template <typename... Ops> void attachZero(MLIRContext *context) {
  (Ops::template attachInterface<ZeroModel<Ops>>(*context), ...);
}

} // namespace

void registerElementwiseModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *, math::MathDialect *,
                            MpcDialect *) {
    attach<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp, arith::RemFOp,
           arith::MaximumFOp, arith::MinimumFOp, arith::SelectOp, arith::ExtFOp, arith::TruncFOp>(
        context);
    attach<math::ExpOp, math::ExpM1Op, math::LogOp, math::Log1pOp, math::SqrtOp, math::RsqrtOp,
           math::ErfOp, math::PowFOp>(context);
    attach<math::SinOp, math::CosOp, math::TanOp, math::AsinOp, math::AcosOp, math::AtanOp,
           math::SinhOp, math::CoshOp, math::TanhOp, math::AsinhOp, math::AcoshOp, math::AtanhOp>(
        context);
    attach<math::AbsFOp, math::FloorOp, math::CeilOp, math::RoundEvenOp, math::TruncOp>(context);
    attachZero<arith::SIToFPOp, arith::UIToFPOp, arith::FPToSIOp>(context);
  });
}

} // namespace mpc
