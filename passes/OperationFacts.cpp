//===- OperationFacts.cpp - what clustering asks of an operation ---------------------===//

#include "passes/OperationFacts.h"
#include "compiler/ops/Build.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mpc;

bool mpc::isLibraryOp(Operation *op) {
  return isa<MatmulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(op);
}

bool mpc::isPointwise(Operation *op) {
  return op->getNumResults() == 1 && isa<RankedTensorType>(op->getResult(0).getType()) &&
         isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
         !op->hasTrait<OpTrait::ConstantLike>();
}

bool mpc::isIndexMap(Operation *op) {
  return isa<BroadcastOp, ReshapeOp, TransposeOp, SliceOp, PadOp, ConcatOp>(op);
}

bool mpc::isDataConstant(Value v) {
  auto constant = v.getDefiningOp<arith::ConstantOp>();
  return constant && isa<RankedTensorType>(v.getType()) &&
         (hasNoElements(v) || !isa<SplatElementsAttr>(constant.getValue()));
}

Value mpc::stripReshapes(Value v) {
  while (auto reshape = v.getDefiningOp<ReshapeOp>())
    v = reshape.getInput();
  return v;
}

int64_t mpc::elementCount(Value v) { return cast<RankedTensorType>(v.getType()).getNumElements(); }

int64_t mpc::tensorBytes(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * std::max<int64_t>(1, tensor.getElementTypeBitWidth() / 8);
}

bool mpc::isOutside(Operation *op) {
  return isa<arith::ConstantOp>(op) &&
         (!isa<RankedTensorType>(op->getResult(0).getType()) || isDataConstant(op->getResult(0)));
}

int mpc::elementCost(Operation *op) {
  if (isa<arith::ExtFOp, arith::TruncFOp>(op) || isIndexMap(op) ||
      isa<arith::ConstantOp, IotaOp>(op))
    return 0;
  if (isa<arith::DivFOp, arith::RemFOp, arith::DivSIOp, arith::RemSIOp, arith::DivUIOp,
          arith::RemUIOp, math::SqrtOp, math::RsqrtOp>(op))
    return 3;
  if (isa<math::AbsFOp, math::AbsIOp, math::FloorOp, math::CeilOp, math::RoundOp, math::RoundEvenOp,
          math::TruncOp, math::FmaOp, math::CopySignOp, math::IsFiniteOp, math::IsNaNOp,
          math::IsInfOp>(op))
    return 1;
  if (isa<GatherOp>(op))
    return 2;
  return isa_and_nonnull<math::MathDialect>(op->getDialect()) ? 16 : 1;
}

template <typename PoolOp> static bool windowsOverlap(PoolOp pool) {
  for (auto [kernel, stride, dilation] :
       llvm::zip(pool.getKernel(), pool.getStrides(), pool.getDilations()))
    if ((kernel - 1) * dilation + 1 > stride)
      return true;
  return false;
}

bool mpc::isPool(Operation *op) {
  return isa<MaxPoolOp, MaxPoolGradOp, AveragePoolOp, AveragePoolGradOp>(op);
}

bool mpc::rereads(Operation *op, unsigned i) {
  if (isa<BroadcastOp>(op))
    return elementCount(op->getResult(0)) > elementCount(op->getOperand(0));
  if (auto pool = dyn_cast<MaxPoolOp>(op))
    return windowsOverlap(pool);
  if (auto pool = dyn_cast<AveragePoolOp>(op))
    return windowsOverlap(pool);
  if (isa<ScatterAddOp>(op))
    return i == 0;
  return isa<GatherOp, MaxPoolGradOp, AveragePoolGradOp>(op) ||
         (isa<RandomUniformOp>(op) && elementCount(op->getResult(0)) > 1);
}

/// Calls `visit` for each use of `v`, seen through the views that read each element once.
static void forEachUse(Value v, llvm::function_ref<void(OpOperand &)> visit) {
  for (OpOperand &use : v.getUses())
    if (isa<ReshapeOp, TransposeOp, SliceOp, PadOp, ConcatOp>(use.getOwner()))
      forEachUse(use.getOwner()->getResult(0), visit);
    else
      visit(use);
}

bool mpc::isStored(Value v) {
  return llvm::any_of(v.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    return isLibraryOp(user) || isa<func::ReturnOp>(user) ||
           (isa<ReshapeOp>(user) && isStored(user->getResult(0)));
  });
}

bool mpc::isReread(Value v) {
  bool reread = false;
  forEachUse(v, [&](OpOperand &use) { reread |= rereads(use.getOwner(), use.getOperandNumber()); });
  return reread;
}
