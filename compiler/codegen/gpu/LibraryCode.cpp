//===- LibraryCode.cpp - what executes library commands without a library ---------------===//

#include "compiler/codegen/gpu/LibraryCode.h"
#include "compiler/codegen/gpu/Attention.h"
#include "compiler/codegen/gpu/Product.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace mpc::gpu {

template <typename Op> static Attention attentionOf(Op op, AttentionKind kind) {
  auto query = cast<RankedTensorType>(op.getQuery().getType()),
       value = cast<RankedTensorType>(op.getValue().getType());
  Attention attention{kind,
                      query.getDimSize(0),
                      query.getDimSize(2),
                      query.getDimSize(1),
                      value.getDimSize(1),
                      query.getDimSize(3),
                      value.getDimSize(3),
                      query.getElementType(),
                      op.getScale().convertToFloat()};
  if (Value bias = op.getBias())
    attention.setBias(cast<RankedTensorType>(bias.getType()), op.getBiasDimensions());
  if (op.getState())
    attention.dropoutRatio = op.getRatio()->convertToDouble();
  attention.isSafe = op.getSafe();
  return attention;
}

/// None for a product.
static std::optional<Attention> attentionOf(Operation *command) {
  if (auto op = dyn_cast<AttentionOp>(command))
    return attentionOf(op, AttentionKind::forward);
  if (auto op = dyn_cast<AttentionGradOp>(command))
    return attentionOf(op, AttentionKind::gradient);
  return std::nullopt;
}

SmallVector<Function, 3> libraryFunctions(Operation *command) {
  if (std::optional<Attention> attention = attentionOf(command))
    return attentionFunctions(*attention);
  return SmallVector<Function, 3>(productFunctions(command));
}

SmallVector<Operation *> distinctLibraryCommands(ModuleOp module) {
  SmallVector<Operation *> commands;
  llvm::StringSet<> names;
  module.walk([&](Operation *op) {
    if (!isProduct(op) && !attentionOf(op))
      return;
    SmallVector<Function, 3> functions = libraryFunctions(op);
    if (!functions.empty() && names.insert(functions[0].name).second)
      commands.push_back(op);
  });
  return commands;
}

int64_t libraryScratchBytes(Operation *command) {
  if (std::optional<Attention> attention = attentionOf(command))
    return attentionScratchBytes(*attention);
  return isProduct(command) ? productScratchBytes(command) : 0;
}

LogicalResult emitLibraryCode(Operation *command, unsigned architecture) {
  if (std::optional<Attention> attention = attentionOf(command)) {
    OpBuilder builder(command->getParentOfType<func::FuncOp>());
    return emitAttention(builder, command->getLoc(), *attention, architecture);
  }
  return emitProduct(command, architecture);
}

} // namespace mpc::gpu
