//===- HalfConversions.cpp - f16 and bf16 by integer arithmetic ---------------------------===//
//
// Where the CPU has no instruction for a conversion, LLVM calls a library function per
// element. The same in integers vectorizes: round to nearest even, NaN stays NaN, subnormal
// f16 numbers are exact.
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/Passes.h"
#include "compiler/codegen/ScalarBuilder.h"

using namespace mlir;

namespace mpc {

namespace {
Value fromHalfBits(const ScalarBuilder &s,
                   Value half) { // i32 with the bits of a half in its low 16
  Value bits = arith::BitcastOp::create(s.b, s.loc, s.b.getI16Type(), half);
  return arith::ExtUIOp::create(s.b, s.loc, s.b.getI32Type(), bits);
}
Value toHalf(const ScalarBuilder &s, Value bits, Type type) {
  Value low = arith::TruncIOp::create(s.b, s.loc, s.b.getI16Type(), bits);
  return arith::BitcastOp::create(s.b, s.loc, type, low);
}

Value extendBf16(const ScalarBuilder &s, Value x) {
  return s.fromBits(s.shl(fromHalfBits(s, x), 16));
}

Value roundBf16(const ScalarBuilder &s, Value x, Type type) {
  Value bits = s.bits(x);
  Value odd = s.andi(s.shru(bits, 16), s.i(1));
  Value rounded = s.shru(s.addi(s.addi(bits, s.i(0x7fff)), odd), 16);
  Value quiet = s.ori(s.shru(bits, 16), s.i(0x40));
  Value isNaN = s.compare(arith::CmpFPredicate::UNO, x, x);
  return toHalf(s, s.select(isNaN, quiet, rounded), type);
}

// F. Giesen, "half to float done quic": the exponent is moved by addition; infinity, NaN and
// subnormals are mended.
Value extendF16(const ScalarBuilder &s, Value x) {
  Value half = fromHalfBits(s, x);
  Value sign = s.shl(s.andi(half, s.i(0x8000)), 16);
  Value shifted = s.shl(s.andi(half, s.i(0x7fff)), 13);
  Value exponent = s.andi(shifted, s.i(0x0f800000));
  Value normal = s.addi(shifted, s.i((127 - 15) << 23));
  Value special = s.addi(normal, s.i((128 - 16) << 23));
  Value subnormal =
      s.bits(s.sub(s.fromBits(s.addi(normal, s.i(1 << 23))), s.fromBits(s.i(113 << 23))));
  Value isSpecial = s.compare(arith::CmpIPredicate::eq, exponent, s.i(0x0f800000));
  Value isSubnormal = s.compare(arith::CmpIPredicate::eq, exponent, s.i(0));
  Value bits = s.select(isSpecial, special, s.select(isSubnormal, subnormal, normal));
  return s.fromBits(s.ori(bits, sign));
}

// The same author's float_to_half_fast3_rtne.
Value roundF16(const ScalarBuilder &s, Value x, Type type) {
  Value all = s.bits(x);
  Value sign = s.andi(s.shru(all, 16), s.i(0x8000));
  Value bits = s.andi(all, s.i(0x7fffffff));
  // Subnormal results: adding ½ aligns the mantissa and rounds it.
  Value magic = s.i(((127 - 15) + (23 - 10) + 1) << 23);
  Value subnormal = s.subi(s.bits(s.add(s.fromBits(bits), s.fromBits(magic))), magic);
  Value odd = s.andi(s.shru(bits, 13), s.i(1));
  Value bias = s.i(static_cast<int32_t>((static_cast<uint32_t>(15 - 127) << 23) + 0xfff));
  Value normal = s.shru(s.addi(s.addi(bits, bias), odd), 13);
  Value isNaN = s.compare(arith::CmpIPredicate::ugt, bits, s.i(0x7f800000));
  Value special = s.select(isNaN, s.i(0x7e00), s.i(0x7c00));
  Value isSpecial = s.compare(arith::CmpIPredicate::uge, bits, s.i((127 + 16) << 23));
  Value isSubnormal = s.compare(arith::CmpIPredicate::ult, bits, s.i(113 << 23));
  Value half = s.select(isSpecial, special, s.select(isSubnormal, subnormal, normal));
  return toHalf(s, s.ori(half, sign), type);
}

struct Extend : OpRewritePattern<arith::ExtFOp> {
  Extend(MLIRContext *context, HalfSupport half) : OpRewritePattern(context), half(half) {}
  HalfSupport half;
  LogicalResult matchAndRewrite(arith::ExtFOp op, PatternRewriter &rewriter) const override {
    Type from = op.getIn().getType(), to = op.getType();
    if (!(from.isBF16() || (from.isF16() && !half.f16)))
      return failure();
    ScalarBuilder s{rewriter, op.getLoc()};
    Value wide = from.isBF16() ? extendBf16(s, op.getIn()) : extendF16(s, op.getIn());
    if (!to.isF32())
      wide = arith::ExtFOp::create(rewriter, op.getLoc(), to, wide);
    rewriter.replaceOp(op, wide);
    return success();
  }
};

struct Round : OpRewritePattern<arith::TruncFOp> {
  Round(MLIRContext *context, HalfSupport half) : OpRewritePattern(context), half(half) {}
  HalfSupport half;
  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    Type to = op.getType();
    if (!op.getIn().getType().isF32() ||
        !((to.isBF16() && !half.bf16) || (to.isF16() && !half.f16)))
      return failure();
    ScalarBuilder s{rewriter, op.getLoc()};
    rewriter.replaceOp(op,
                       to.isBF16() ? roundBf16(s, op.getIn(), to) : roundF16(s, op.getIn(), to));
    return success();
  }
};
} // namespace

void populateHalfConversions(RewritePatternSet &patterns, HalfSupport half) {
  patterns.add<Extend, Round>(patterns.getContext(), half);
}

} // namespace mpc
