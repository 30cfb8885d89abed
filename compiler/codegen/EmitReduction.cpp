//===- EmitReduction.cpp - one step of a reduction ------------------------------------===//
//
// Loop-carried sums may be kept per vector lane (reassoc). A maximum over masked elements,
//
//   max(m, mask ? x : -inf)     e.g. a causal attention row
//
// becomes `mask ? max(m, x) : m` in LLVM, which its vectorizer does not take for floats. It
// is carried as an integer of the same order instead: for those of positive sign the bits,
// for the others the bits with all but the sign inverted.
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/Emitter.h"
#include "compiler/codegen/ScalarBuilder.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

using namespace mlir;

namespace mpc {

Type Emitter::accumulatorOf(ReduceOp reduce) {
  return accumulatorType(getElementTypeOrSelf(reduce.getInput().getType()),
                         getElementTypeOrSelf(reduce.getType()));
}

Value Emitter::identity(ReductionKind kind, Type type) {
  OpBuilder &b = at(0);
  TypedAttr value;
  if (auto integer = dyn_cast<IntegerType>(type)) {
    unsigned width = integer.getWidth();
    APInt bits = kind == ReductionKind::product ? APInt(width, 1)
                 : kind == ReductionKind::sum   ? APInt(width, 0)
                 : width == 1                   ? APInt(1, kind == ReductionKind::min)
                 : kind == ReductionKind::max   ? APInt::getSignedMinValue(width)
                                                : APInt::getSignedMaxValue(width);
    value = b.getIntegerAttr(type, bits);
  } else {
    double number = kind == ReductionKind::product ? 1
                    : kind == ReductionKind::sum   ? 0
                    : kind == ReductionKind::max   ? -INFINITY
                                                   : INFINITY;
    value = b.getFloatAttr(type, number);
  }
  return arith::ConstantOp::create(b, loc, value);
}

Value Emitter::accumulate(OpBuilder &b, ReductionKind kind, Value sum, Value x, bool reassociate) {
  using Flags = arith::FastMathFlags;
  Flags flags = reassociate ? Flags::reassoc | Flags::contract : Flags::contract;
  if (isa<FloatType>(sum.getType())) {
    switch (kind) {
    case ReductionKind::sum:
      return arith::AddFOp::create(b, loc, sum, x, flags);
    case ReductionKind::product:
      return arith::MulFOp::create(b, loc, sum, x, flags);
    case ReductionKind::max: // which of -0 and +0 wins is open
      return arith::MaximumFOp::create(b, loc, sum, x, Flags::nsz);
    case ReductionKind::min:
      return arith::MinimumFOp::create(b, loc, sum, x, Flags::nsz);
    }
  }
  bool isBool = sum.getType().isInteger(1);
  switch (kind) {
  case ReductionKind::sum:
    return arith::AddIOp::create(b, loc, sum, x);
  case ReductionKind::product:
    return arith::MulIOp::create(b, loc, sum, x);
  case ReductionKind::max:
    return isBool ? arith::OrIOp::create(b, loc, sum, x).getResult()
                  : arith::MaxSIOp::create(b, loc, sum, x).getResult();
  case ReductionKind::min:
    return isBool ? arith::AndIOp::create(b, loc, sum, x).getResult()
                  : arith::MinSIOp::create(b, loc, sum, x).getResult();
  }
  return {};
}

Value Emitter::operandOf(ReduceOp reduce, const Affine &at) {
  Value x = emit(reduce.getInput(), at);
  Type type = accumulatorOf(reduce);
  if (isa<IntegerType>(type) && type != x.getType()) { // a count: bits are unsigned
    OpBuilder &b = this->at(depth(at));
    return x.getType().isInteger(1) ? arith::ExtUIOp::create(b, loc, type, x).getResult()
                                    : arith::ExtSIOp::create(b, loc, type, x).getResult();
  }
  return convert(x, type, depth(at));
}

/// Whether an operand may be a select whose one side is the reduction's identity.
static bool isMasked(ReduceOp reduce) {
  Value value = reduce.getInput();
  while (Operation *op = value.getDefiningOp()) {
    if (auto select = dyn_cast<arith::SelectOp>(op))
      return llvm::any_of(
          ArrayRef<Value>{select.getTrueValue(), select.getFalseValue()}, [](Value side) {
            return matchPattern(side, m_NegInfFloat()) || matchPattern(side, m_PosInfFloat());
          });
    if (!isView(op) && !isa<arith::ExtFOp, arith::TruncFOp>(op))
      return false;
    value = op->getOperand(0);
  }
  return false;
}

static bool isCarriedAsInteger(ReduceOp reduce) {
  bool isExtreme = reduce.getKind() == ReductionKind::max || reduce.getKind() == ReductionKind::min;
  return isExtreme && Emitter::accumulatorOf(reduce).isF32() && isMasked(reduce);
}

/// bits ^ (bits < 0 ? 0x7fffffff : 0), which is its own inverse.
static Value reorder(const ScalarBuilder &s, Value bits) {
  Value flipped = s.andi(s.shrs(bits, 31), s.i(0x7fffffff));
  return arith::XOrIOp::create(s.b, s.loc, bits, flipped);
}

Value Emitter::startCarried(ReduceOp reduce) {
  Value start = identity(reduce.getKind(), accumulatorOf(reduce));
  if (!isCarriedAsInteger(reduce))
    return start;
  ScalarBuilder s{at(0), loc};
  return reorder(s, s.bits(start));
}

Value Emitter::carryOn(ReduceOp reduce, Value carried, Value x) {
  if (!isCarriedAsInteger(reduce))
    return accumulate(here(), reduce.getKind(), carried, x, /*reassociate=*/true);
  ScalarBuilder s{here(), loc};
  bool isMax = reduce.getKind() == ReductionKind::max;
  Value isNaN = s.compare(arith::CmpFPredicate::UNO, x, x);
  Value beyond =
      s.i(isMax ? 0x7fffffff : static_cast<int32_t>(0x80000000)); // NaN wins, and comes back as NaN
  Value key = s.select(isNaN, beyond, reorder(s, s.bits(x)));
  return isMax ? arith::MaxSIOp::create(here(), loc, carried, key).getResult()
               : arith::MinSIOp::create(here(), loc, carried, key).getResult();
}

Value Emitter::endCarried(ReduceOp reduce, Value carried) {
  if (isCarriedAsInteger(reduce)) {
    ScalarBuilder s{here(), loc};
    carried = s.fromBits(reorder(s, carried));
  }
  return carried;
}

} // namespace mpc
