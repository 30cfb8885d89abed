//===- MathApproximations.cpp - elementary functions of f32 that vectorize -------------===//
//
// A call into libm per element would keep LLVM from vectorizing a loop. These are range
// reductions and polynomials without branches, right within a few units in the last place
// everywhere, also at infinities, NaN and subnormal numbers (test/unit/CodegenTest.cpp
// compares them with libm). f64 stays with libm.
//
// Coefficients: S. Moshier, Cephes (expf, logf, tanhf); erf: N. Juffa, public domain.
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/Passes.h"
#include "compiler/codegen/ScalarBuilder.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <cmath>

using namespace mlir;

namespace mpc {

namespace {
/// x = n · ln 2 + r:  exp(x) = 2^n · (1 + q),  q = exp(r) - 1.
struct ExpParts {
  Value n; ///< i32
  Value q;
};

ExpParts reduceExp(const ScalarBuilder &s, Value x) {
  // Adding 1.5 · 2^23 rounds to an integer, which then stands in the low bits.
  Value magic = s.f(12582912.0f);
  Value shifted = s.add(s.mul(x, s.f(1.44269504088896341f)), magic);
  Value n = s.sub(shifted, magic);
  // ln 2 in two parts, the first short enough for n · part to be exact.
  Value r = s.sub(s.sub(x, s.mul(n, s.f(0.693359375f))), s.mul(n, s.f(-2.12194440e-4f)));
  Value p = s.polynomial(r, {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                             1.6666665459e-1f, 5.0000001201e-1f});
  return {s.subi(s.bits(shifted), s.bits(magic)), s.add(s.mul(s.mul(r, r), p), r)};
}

/// 2^n for -126 ≤ n ≤ 127.
Value powerOfTwo(const ScalarBuilder &s, Value n) {
  return s.fromBits(s.shl(s.addi(n, s.i(127)), 23));
}

/// y · 2^n in two steps, so that overflow and subnormal results come out right.
Value scale(const ScalarBuilder &s, Value y, Value n) {
  Value half = s.shrs(n, 1);
  return s.mul(s.mul(y, powerOfTwo(s, half)), powerOfTwo(s, s.subi(n, half)));
}

/// Beyond these exp is infinity or zero; NaN passes.
Value clampExp(const ScalarBuilder &s, Value x) {
  Value high = s.f(89.0f), low = s.f(-104.0f);
  x = s.select(s.greater(x, high), high, x);
  return s.select(s.less(x, low), low, x);
}

Value expOf(const ScalarBuilder &s, Value x) {
  auto [n, q] = reduceExp(s, clampExp(s, x));
  return scale(s, s.add(q, s.f(1.0f)), n);
}

/// exp(x) - 1 = 2^n · q + (2^n - 1).
Value expm1Of(const ScalarBuilder &s, Value x) {
  Value low = s.f(-40.0f), one = s.f(1.0f);
  Value bounded = clampExp(s, s.select(s.less(x, low), low, x));
  auto [n, q] = reduceExp(s, bounded);
  Value large = scale(s, s.add(q, one), n);
  Value limit = s.i(64);
  Value power = powerOfTwo(s, s.select(s.compare(arith::CmpIPredicate::sgt, n, limit), limit, n));
  Value small = s.add(s.mul(power, q), s.sub(power, one));
  // x itself for tiny x keeps -0 and subnormals.
  small = s.select(s.less(s.absolute(x), s.f(1e-10f)), x, small);
  return s.select(s.greater(x, s.f(30.0f)), large, small);
}

/// x = 2^e · (1 + m), √½ ≤ 1 + m < √2:  log x = e · ln 2 + log(1 + m).
Value logOf(const ScalarBuilder &s, Value x) {
  Value smallestNormal = s.f(0x1p-126f), zero = s.f(0.0f), infinity = s.f(INFINITY);
  Value isSmall = s.less(x, smallestNormal);
  Value normal = s.select(isSmall, s.mul(x, s.f(0x1p23f)), x);
  Value bits = s.bits(normal);
  Value e = s.subi(s.shrs(bits, 23), s.select(isSmall, s.i(126 + 23), s.i(126)));
  Value m = s.fromBits(s.ori(s.andi(bits, s.i(0x007fffff)), s.i(0x3f000000))); // [½, 1)
  Value isLow = s.less(m, s.f(0.707106781186547524f));
  e = s.select(isLow, s.subi(e, s.i(1)), e);
  m = s.sub(s.select(isLow, s.add(m, m), m), s.f(1.0f));
  Value exponent = s.toFloat(e), square = s.mul(m, m);
  Value p = s.polynomial(m, {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f,
                             -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                             2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f});
  Value y = s.mul(s.mul(p, m), square);
  y = s.add(y, s.mul(exponent, s.f(-2.12194440e-4f)));
  y = s.sub(y, s.mul(square, s.f(0.5f)));
  y = s.add(s.add(m, y), s.mul(exponent, s.f(0.693359375f)));
  y = s.select(s.equal(x, infinity), infinity, y);
  y = s.select(s.equal(x, zero), s.f(-INFINITY), y);
  Value isValid = s.compare(arith::CmpFPredicate::OGE, x, zero);
  return s.select(isValid, y, s.f(NAN));
}

/// u = 1 + x:  log1p(x) = log u · x / (u - 1), which takes the rounding of u back.
Value log1pOf(const ScalarBuilder &s, Value x) {
  Value one = s.f(1.0f), infinity = s.f(INFINITY);
  Value u = s.add(x, one), back = s.sub(u, one);
  Value y = s.mul(logOf(s, u), s.div(x, back));
  y = s.select(s.equal(back, s.f(0.0f)), x, y);
  return s.select(s.equal(x, infinity), infinity, y);
}

/// |x| < 0.625: an odd polynomial; else 1 - 2 / (exp 2|x| + 1).
Value tanhOf(const ScalarBuilder &s, Value x) {
  Value size = s.absolute(x), square = s.mul(x, x), one = s.f(1.0f);
  Value p = s.polynomial(square, {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                                  1.33314422036e-1f, -3.33332819422e-1f});
  Value near = s.add(s.mul(s.mul(p, square), x), x);
  Value far = s.sub(one, s.div(s.f(2.0f), s.add(expOf(s, s.add(size, size)), one)));
  return s.select(s.less(size, s.f(0.625f)), near, s.copySign(far, x));
}

/// |x| < 0.9277: an odd polynomial; else 1 - exp(-polynomial in |x|).
Value erfOf(const ScalarBuilder &s, Value x) {
  Value t = s.absolute(x), square = s.mul(x, x);
  Value near = s.polynomial(square, {-5.96761703e-4f, 4.99119423e-3f, -2.67681349e-2f,
                                     1.12819925e-1f, -3.76125336e-1f, 1.28379166e-1f});
  near = s.add(s.mul(near, x), x);
  Value bounded = s.select(s.greater(t, s.f(4.0f)), s.f(4.0f), t); // erf(4) rounds to 1
  Value far =
      s.polynomial(bounded, {-1.72853470e-5f, 3.83197126e-4f, -3.88396438e-3f, 2.42546219e-2f,
                             -1.06777877e-1f, -6.34846687e-1f, -1.28717512e-1f});
  far = s.sub(s.mul(far, bounded), bounded);
  far = s.copySign(s.sub(s.f(1.0f), expOf(s, far)), x);
  return s.select(s.greater(t, s.f(0.927734375f)), far, near);
}

template <typename Op, Value (*approximate)(const ScalarBuilder &, Value)>
struct Approximate : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    if (!op.getType().isF32())
      return rewriter.notifyMatchFailure(op, "not f32");
    rewriter.replaceOp(op, approximate(ScalarBuilder{rewriter, op.getLoc()}, op.getOperand()));
    return success();
  }
};

/// MathToLLVM writes expm1 as exp - 1, and log1p as log(1 + x): not for f64.
template <typename Op> struct CallLibrary : OpRewritePattern<Op> {
  CallLibrary(MLIRContext *context, StringRef name) : OpRewritePattern<Op>(context), name(name) {}
  StringRef name;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    if (!op.getType().isF64())
      return rewriter.notifyMatchFailure(op, "not f64");
    auto module = op->template getParentOfType<ModuleOp>();
    auto function = module.template lookupSymbol<func::FuncOp>(name);
    if (!function) {
      OpBuilder::InsertionGuard guard(rewriter);
      rewriter.setInsertionPointToStart(module.getBody());
      function = func::FuncOp::create(rewriter, op.getLoc(), name,
                                      rewriter.getFunctionType({op.getType()}, {op.getType()}));
      function.setPrivate();
    }
    rewriter.replaceOpWithNewOp<func::CallOp>(op, function, op->getOperands());
    return success();
  }
};
} // namespace

void populateMathApproximations(RewritePatternSet &patterns) {
  patterns.add<Approximate<math::ExpOp, expOf>, Approximate<math::ExpM1Op, expm1Of>,
               Approximate<math::LogOp, logOf>, Approximate<math::Log1pOp, log1pOf>,
               Approximate<math::TanhOp, tanhOf>, Approximate<math::ErfOp, erfOf>>(
      patterns.getContext());
  patterns.add<CallLibrary<math::ExpM1Op>>(patterns.getContext(), "expm1");
  patterns.add<CallLibrary<math::Log1pOp>>(patterns.getContext(), "log1p");
}

} // namespace mpc
