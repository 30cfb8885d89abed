//===- Expression.h - formulas on tensors, written as formulas ------------------===//
//
// An Expr is a float tensor with a builder: `dy * (1 - y * y)` builds the operations, with
// numbers as splat constants of the other operand's type. Used by derivatives and by the
// primitive forms of composite operations, whose comments are then hardly needed.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_OPS_EXPRESSION_H
#define MPC_OPS_EXPRESSION_H

#include "Build.h"

namespace mpc {

class Expr {
public:
  Expr() = default; ///< nothing: as a gradient, an exact zero
  Expr(OpBuilder &b, Location loc, Value v) : b(&b), loc(loc), v(v) {}
  explicit operator bool() const { return bool(v); }
  operator Value() const { return v; }

  Expr with(Value value) const { return {*b, *loc, value}; }
  Expr number(double x) const { return with(splat(*b, *loc, v.getType(), x)); }
  template <typename Op> Expr unary() const { return with(b->createOrFold<Op>(*loc, v)); }
  template <typename Op> Expr binary(const Expr &y) const {
    return with(b->createOrFold<Op>(*loc, v, y.v));
  }
  Expr compare(mlir::arith::CmpFPredicate predicate, const Expr &y) const {
    return with(mpc::compare(*b, *loc, predicate, v, y.v));
  }
  Expr cast(Type elementType) const { return with(castTo(*b, *loc, v, elementType)); }

  OpBuilder *b = nullptr;
  std::optional<Location> loc;
  Value v;
};

inline Expr operator+(const Expr &x, const Expr &y) { return x.with(add(*x.b, *x.loc, x, y)); }
inline Expr operator-(const Expr &x, const Expr &y) { return x.with(sub(*x.b, *x.loc, x, y)); }
inline Expr operator*(const Expr &x, const Expr &y) { return x.with(mul(*x.b, *x.loc, x, y)); }
inline Expr operator/(const Expr &x, const Expr &y) { return x.with(div(*x.b, *x.loc, x, y)); }
inline Expr operator+(const Expr &x, double y) { return x + x.number(y); }
inline Expr operator-(const Expr &x, double y) { return x - x.number(y); }
inline Expr operator*(const Expr &x, double y) { return x * x.number(y); }
inline Expr operator/(const Expr &x, double y) { return x / x.number(y); }
inline Expr operator+(double x, const Expr &y) { return y.number(x) + y; }
inline Expr operator-(double x, const Expr &y) { return y.number(x) - y; }
inline Expr operator*(double x, const Expr &y) { return y.number(x) * y; }
inline Expr operator/(double x, const Expr &y) { return y.number(x) / y; }
inline Expr operator-(const Expr &x) { return x.unary<mlir::arith::NegFOp>(); }

// Comparisons give i1 tensors; NaN compares false.
inline Expr operator>(const Expr &x, const Expr &y) {
  return x.compare(mlir::arith::CmpFPredicate::OGT, y);
}
inline Expr operator<(const Expr &x, const Expr &y) {
  return x.compare(mlir::arith::CmpFPredicate::OLT, y);
}
inline Expr operator>=(const Expr &x, const Expr &y) {
  return x.compare(mlir::arith::CmpFPredicate::OGE, y);
}
inline Expr operator<=(const Expr &x, const Expr &y) {
  return x.compare(mlir::arith::CmpFPredicate::OLE, y);
}
inline Expr operator>(const Expr &x, double y) { return x > x.number(y); }
inline Expr operator<(const Expr &x, double y) { return x < x.number(y); }
inline Expr operator>=(const Expr &x, double y) { return x >= x.number(y); }
inline Expr operator<=(const Expr &x, double y) { return x <= x.number(y); }
inline Expr equal(const Expr &x, const Expr &y) {
  return x.compare(mlir::arith::CmpFPredicate::OEQ, y);
}
inline Expr equal(const Expr &x, double y) { return equal(x, x.number(y)); }
inline Expr both(const Expr &p, const Expr &q) { return p.binary<mlir::arith::AndIOp>(q); }

inline Expr select(const Expr &condition, const Expr &yes, const Expr &no) {
  return yes.with(yes.b->createOrFold<mlir::arith::SelectOp>(*yes.loc, condition.v, yes.v, no.v));
}
inline Expr select(const Expr &condition, const Expr &yes, double no) {
  return select(condition, yes, yes.number(no));
}
inline Expr select(const Expr &condition, double yes, const Expr &no) {
  return select(condition, no.number(yes), no);
}

inline Expr exp(const Expr &x) { return x.unary<mlir::math::ExpOp>(); }
inline Expr expm1(const Expr &x) { return x.unary<mlir::math::ExpM1Op>(); }
inline Expr log(const Expr &x) { return x.unary<mlir::math::LogOp>(); }
inline Expr log1p(const Expr &x) { return x.unary<mlir::math::Log1pOp>(); }
inline Expr sqrt(const Expr &x) { return x.unary<mlir::math::SqrtOp>(); }
inline Expr abs(const Expr &x) { return x.unary<mlir::math::AbsFOp>(); }
inline Expr tanh(const Expr &x) { return x.unary<mlir::math::TanhOp>(); }
inline Expr erf(const Expr &x) { return x.unary<mlir::math::ErfOp>(); }
inline Expr max(const Expr &x, const Expr &y) { return x.binary<mlir::arith::MaximumFOp>(y); }
inline Expr min(const Expr &x, const Expr &y) { return x.binary<mlir::arith::MinimumFOp>(y); }
inline Expr max(const Expr &x, double y) { return max(x, x.number(y)); }
inline Expr min(const Expr &x, double y) { return min(x, x.number(y)); }

/// tensor<rows x i1>: the row belongs to one of the first `samples` samples, `factor` rows each
/// (MaskSamples.cpp).
Value presentRows(OpBuilder &b, Location loc, Value samples, int64_t rows, int64_t factor);

} // namespace mpc

#endif // MPC_OPS_EXPRESSION_H
