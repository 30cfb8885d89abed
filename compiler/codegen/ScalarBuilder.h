//===- ScalarBuilder.h - short names for scalar arithmetic ------------------------------===//

#ifndef MPC_CODEGEN_SCALARBUILDER_H
#define MPC_CODEGEN_SCALARBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"

namespace mpc {

/// f32 and i32 arithmetic. Sums and products inside of a function may be contracted to fused
/// operations.
struct ScalarBuilder {
  mlir::OpBuilder &b;
  mlir::Location loc;
  using Value = mlir::Value;
  static constexpr auto kContract = mlir::arith::FastMathFlags::contract;

  Value f(float value) const {
    return mlir::arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
  }
  Value i(int32_t value) const {
    return mlir::arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(value));
  }
  Value add(Value x, Value y) const { return mlir::arith::AddFOp::create(b, loc, x, y, kContract); }
  Value sub(Value x, Value y) const { return mlir::arith::SubFOp::create(b, loc, x, y, kContract); }
  Value mul(Value x, Value y) const { return mlir::arith::MulFOp::create(b, loc, x, y, kContract); }
  Value div(Value x, Value y) const { return mlir::arith::DivFOp::create(b, loc, x, y); }
  Value absolute(Value x) const { return mlir::math::AbsFOp::create(b, loc, x); }
  Value copySign(Value x, Value sign) const {
    return mlir::math::CopySignOp::create(b, loc, x, sign);
  }
  Value compare(mlir::arith::CmpFPredicate predicate, Value x, Value y) const {
    return mlir::arith::CmpFOp::create(b, loc, predicate, x, y);
  }
  Value greater(Value x, Value y) const { return compare(mlir::arith::CmpFPredicate::OGT, x, y); }
  Value less(Value x, Value y) const { return compare(mlir::arith::CmpFPredicate::OLT, x, y); }
  Value equal(Value x, Value y) const { return compare(mlir::arith::CmpFPredicate::OEQ, x, y); }
  Value select(Value condition, Value x, Value y) const {
    return mlir::arith::SelectOp::create(b, loc, condition, x, y);
  }

  Value addi(Value x, Value y) const { return mlir::arith::AddIOp::create(b, loc, x, y); }
  Value subi(Value x, Value y) const { return mlir::arith::SubIOp::create(b, loc, x, y); }
  Value andi(Value x, Value y) const { return mlir::arith::AndIOp::create(b, loc, x, y); }
  Value ori(Value x, Value y) const { return mlir::arith::OrIOp::create(b, loc, x, y); }
  Value shl(Value x, int32_t by) const { return mlir::arith::ShLIOp::create(b, loc, x, i(by)); }
  Value shru(Value x, int32_t by) const { return mlir::arith::ShRUIOp::create(b, loc, x, i(by)); }
  Value shrs(Value x, int32_t by) const { return mlir::arith::ShRSIOp::create(b, loc, x, i(by)); }
  Value compare(mlir::arith::CmpIPredicate predicate, Value x, Value y) const {
    return mlir::arith::CmpIOp::create(b, loc, predicate, x, y);
  }
  Value bits(Value x) const { return mlir::arith::BitcastOp::create(b, loc, b.getI32Type(), x); }
  Value fromBits(Value x) const {
    return mlir::arith::BitcastOp::create(b, loc, b.getF32Type(), x);
  }
  Value toFloat(Value x) const { return mlir::arith::SIToFPOp::create(b, loc, b.getF32Type(), x); }

  /// coefficients[0] · x^n + … + coefficients[n]
  Value polynomial(Value x, llvm::ArrayRef<float> coefficients) const {
    Value sum = f(coefficients.front());
    for (float c : coefficients.drop_front())
      sum = add(mul(sum, x), f(c));
    return sum;
  }
};

} // namespace mpc

#endif // MPC_CODEGEN_SCALARBUILDER_H
