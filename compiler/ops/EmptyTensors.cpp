//===- EmptyTensors.cpp - tensors without elements ------------------------------===//
//
// A tensor with a dimension 0 is legal ONNX: exporters write them for what is not there (an
// empty Slice in front of a Concat). Its value is known, so everything that makes one becomes
// a constant, and what reads one and has elements itself becomes what it is then:
//
//   sum over no elements = 0        product = 1        matmul over no columns = 0 + bias
//
// Kernels, gradients and library calls never see a tensor without elements.
//
//===----------------------------------------------------------------------------===//

#include "Build.h"
#include "OnnxConverter.h"
#include "OperatorText.h"
#include "Unsupported.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace mpc {

static bool isEmpty(Value v) { return hasNoElements(v); } // one of the two, for none_of

/// What an operation with elements is where one of its operands has none; null: not known.
static Value valueWithout(OpBuilder &b, Operation *op) {
  Location loc = op->getLoc();
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  if (auto reduction = dyn_cast<ReduceOp>(op))
    return neutralTensor(b, loc, reduction.getKind(), type);
  if (auto product = dyn_cast<MatmulOp>(op)) {
    if (!product.getBias())
      return splat(b, loc, type, 0);
    return broadcastTo(b, loc, castTo(b, loc, product.getBias(), type.getElementType()),
                       type.getShape());
  }
  if (auto scatter = dyn_cast<ScatterAddOp>(op))
    return scatter.getInit() ? scatter.getInit() : splat(b, loc, type, 0);
  Attribute value;
  if (auto pad = dyn_cast<PadOp>(op); pad && matchPattern(pad.getValue(), m_Constant(&value)))
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, value));
  return {};
}

LogicalResult foldEmptyTensors(func::FuncOp forward) {
  Block &block = forward.front();
  OpBuilder b(forward.getContext());
  bool bad = false;
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
    if (op.hasTrait<OpTrait::ConstantLike>())
      continue;
    b.setInsertionPoint(&op);
    bool hasElements = false;
    for (Value result : op.getResults())
      if (isEmpty(result))
        result.replaceAllUsesWith(splat(b, op.getLoc(), result.getType(), 0));
      else
        hasElements |= !result.use_empty();
    // A Concat leaves its empty operands out by itself.
    if (!hasElements || isa<ConcatOp>(op) || llvm::none_of(op.getOperands(), isEmpty))
      continue;
    if (Value value = valueWithout(b, &op)) {
      op.getResult(0).replaceAllUsesWith(value);
      continue;
    }
    InFlightDiagnostic error = emitError(op.getLoc());
    error << nodeOf(&op) << " " << operatorText(&op)
          << ": reads a tensor without elements, which is not supported for this operator; export "
             "the model with sizes above 0";
    markUnsupported(error);
    bad = true;
  }
  b.setInsertionPointToStart(&block);
  for (BlockArgument argument : block.getArguments())
    if (isEmpty(argument) && !argument.use_empty())
      argument.replaceAllUsesWith(splat(b, argument.getLoc(), argument.getType(), 0));
  return failure(bad);
}

} // namespace mpc
