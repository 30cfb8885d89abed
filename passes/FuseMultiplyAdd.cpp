//===- FuseMultiplyAdd.cpp - products that one sum alone reads become part of it ----===//
//
//   a · b + c   →   fma(a, b, c)         c - a · b      →   fma(-a, b, c)
//   a · b - c   →   fma(a, b, -c)        -(a · b) + c   →   fma(-a, b, c)
//
// A fused product is not rounded. Whether it is must not depend on where it is computed: in
// p - min(p), p ≥ min(p) only if both read the same p, so that nothing is fused that has another
// reader. In a · b - c · d both are rounded, so that equal ones cancel, and in c - a², so that the
// mean of squares is no less than the square of a mean more often than it has to be. And it is
// decided here, once and for all targets, before clusters compute a tensor
// again for each of their readers: LLVM, allowed to contract, would look at what stands around in
// a block, and one tensor would have several values.
//
//===--------------------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/FunctionArguments.h"
#include "passes/Passes.h"

namespace mpc {
#define GEN_PASS_DEF_FUSEMULTIPLYADD
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {
struct FuseMultiplyAdd : mpc::impl::FuseMultiplyAddBase<FuseMultiplyAdd> {
  void runOnOperation() override;
};

/// left · right, or -(left · right); null for any other value.
struct Product {
  arith::MulFOp op;
  bool isNegative = false;
};
} // namespace

/// The product that a value is and that nothing else reads.
static Product productIn(Value value) {
  Product product;
  for (; value.hasOneUse(); value = value.getDefiningOp()->getOperand(0)) {
    if ((product.op = value.getDefiningOp<arith::MulFOp>()))
      return product;
    if (!value.getDefiningOp<arith::NegFOp>())
      break;
    product.isNegative = !product.isNegative;
  }
  return {};
}

static bool isProduct(Value value) {
  while (auto negation = value.getDefiningOp<arith::NegFOp>())
    value = negation.getOperand();
  return value.getDefiningOp<arith::MulFOp>() != nullptr;
}

static void fuse(Operation *sum) {
  bool isDifference = isa<arith::SubFOp>(sum);
  if (isProduct(sum->getOperand(0)) == isProduct(sum->getOperand(1)))
    return;
  unsigned at = isProduct(sum->getOperand(0)) ? 0 : 1;
  Product product = productIn(sum->getOperand(at));
  if (!product.op)
    return;
  bool isNegative = product.isNegative != (isDifference && at == 1);
  if (isNegative && product.op.getLhs() == product.op.getRhs())
    return;
  NodeAttributeListener listener;
  listener.setOrigin(sum);
  OpBuilder b(sum);
  b.setListener(&listener);
  Location loc = sum->getLoc();
  auto withSign = [&](Value v, bool isNegative) -> Value {
    return isNegative ? arith::NegFOp::create(b, loc, v).getResult() : v;
  };
  Value left = withSign(product.op.getLhs(), isNegative);
  Value added = withSign(sum->getOperand(1 - at), isDifference && at == 0);
  Value fused = math::FmaOp::create(b, loc, left, product.op.getRhs(), added);
  sum->getResult(0).replaceAllUsesWith(fused);
  sum->erase();
}

void FuseMultiplyAdd::runOnOperation() {
  for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
    SmallVector<Operation *> sums;
    function.walk([&](Operation *op) {
      bool isWide =
          op->getNumResults() == 1 && (getElementTypeOrSelf(op->getResult(0).getType()).isF32() ||
                                       getElementTypeOrSelf(op->getResult(0).getType()).isF64());
      if (isa<arith::AddFOp, arith::SubFOp>(op) && isWide)
        sums.push_back(op);
    });
    for (Operation *sum : sums)
      fuse(sum);
    eraseDeadOperations(function);
  }
}
