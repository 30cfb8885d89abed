//===- OperationFacts.cpp - what clustering asks of an operation ---------------------===//

#include "passes/OperationFacts.h"
#include "compiler/ops/Build.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mpc;

bool mpc::isLibraryOp(Operation *op) {
  return isa<MatmulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp, AttentionOp,
             AttentionGradOp>(op);
}

bool mpc::isIndexMap(Operation *op) {
  return isa<BroadcastOp, ReshapeOp, TransposeOp, SliceOp, PadOp, ConcatOp>(op);
}

bool mpc::isDataConstant(Value v) {
  auto constant = v.getDefiningOp<arith::ConstantOp>();
  return constant && isa<RankedTensorType>(v.getType()) &&
         (hasNoElements(v) || !isa<SplatElementsAttr>(constant.getValue()));
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

/// For each window that can cover it, an element of a pool's gradient compares (or divides) and
/// selects; for each but one it also reads again, and adds. Unless the channels come last, the
/// innermost loop runs across windows, and reads of them are scattered.
static int poolGradientCost(Operation *op) {
  constexpr int kMost = 1000, kScattered = 32, kAnother = 3;
  PoolWindow window(op);
  auto output = cast<RankedTensorType>(op->getOperand(0).getType());
  int64_t windows = 1;
  for (size_t d = 0; d < window.rank(); ++d)
    windows *= window.covering(d, output.getDimSize(window.first + d));
  int64_t each = (isa<AveragePoolGradOp>(op) ? 4 : 2) + (window.channelsLast() ? 0 : kScattered);
  return std::min<int64_t>(windows * each + (windows - 1) * kAnother, kMost);
}

int mpc::elementCost(Operation *op) {
  if (isa<arith::ExtFOp, arith::TruncFOp>(op) || isIndexMap(op) ||
      isa<arith::ConstantOp, IotaOp>(op))
    return 0;
  if (isa<arith::DivFOp, arith::RemFOp, arith::DivSIOp, arith::RemSIOp, arith::DivUIOp,
          arith::RemUIOp, math::SqrtOp, math::RsqrtOp>(op))
    return 3;
  if (isa<math::FmaOp>(op)) // as the product and the sum that it was
    return 2;
  if (isa<math::AbsFOp, math::AbsIOp, math::FloorOp, math::CeilOp, math::RoundOp, math::RoundEvenOp,
          math::TruncOp, math::CopySignOp, math::IsFiniteOp, math::IsNaNOp, math::IsInfOp>(op))
    return 1;
  if (isa<GatherOp>(op))
    return 2;
  if (isPoolGradient(op))
    return poolGradientCost(op);
  return isa_and_nonnull<math::MathDialect>(op->getDialect()) ? 16 : 1;
}

static bool windowsOverlap(const PoolWindow &window) {
  for (auto [kernel, stride, dilation] : llvm::zip(window.kernel, window.strides, window.dilations))
    if ((kernel - 1) * dilation + 1 > stride)
      return true;
  return false;
}

bool mpc::isPool(Operation *op) { return isa<MaxPoolOp, AveragePoolOp>(op); }

bool mpc::isPoolGradient(Operation *op) { return isa<MaxPoolGradOp, AveragePoolGradOp>(op); }

bool mpc::movesNothing(TransposeOp transpose) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(transpose.getInput().getType()).getShape();
  int64_t last = -1;
  for (int64_t dimension : transpose.getPermutation()) {
    if (shape[dimension] == 1)
      continue;
    if (dimension < last)
      return false;
    last = dimension;
  }
  return true;
}

bool mpc::rereads(Operation *op, unsigned i) {
  if (isa<BroadcastOp>(op))
    return elementCount(op->getResult(0)) > elementCount(op->getOperand(0));
  if (isPool(op))
    return windowsOverlap(PoolWindow(op));
  if (isa<ScatterAddOp>(op))
    return i == 0;
  return isa<GatherOp>(op) || isPoolGradient(op) ||
         (isa<RandomUniformOp>(op) && elementCount(op->getResult(0)) > 1);
}

void mpc::forEachReader(Value v, llvm::function_ref<void(OpOperand &)> visit) {
  for (OpOperand &use : v.getUses())
    if (isa<ReshapeOp, TransposeOp, SliceOp, PadOp, ConcatOp>(use.getOwner()))
      forEachReader(use.getOwner()->getResult(0), visit);
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
  forEachReader(v,
                [&](OpOperand &use) { reread |= rereads(use.getOwner(), use.getOperandNumber()); });
  return reread;
}
