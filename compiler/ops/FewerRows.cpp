//===- FewerRows.cpp - values that hold for a smaller batch too -------------------===//
//
// Follows one part of an axis back through index maps and elementwise arithmetic, to the
// broadcasts, constants and indices that do not ask how many there are.
//
//===------------------------------------------------------------------------------===//

#include "FewerRows.h"
#include "Build.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace mpc {

std::optional<AxisPart> locate(AxisPart part, ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  int64_t before = part.outer; // elements of the index before the part
  for (int64_t d = 0; d < part.axis; ++d)
    before *= from[d];
  int64_t passed = 1;
  for (auto [axis, size] : llvm::enumerate(to)) {
    int64_t outer = before / passed, taken = outer * part.count;
    if (before % passed == 0 && taken <= size && size % taken == 0)
      return AxisPart{int64_t(axis), outer, part.count, size / taken};
    passed *= size;
    if (passed > before)
      break;
  }
  return std::nullopt;
}

static bool isRepeatedConstant(DenseElementsAttr value, AxisPart part) {
  if (value.isSplat() || !value.getElementType().isIntOrFloat())
    return value.isSplat();
  ArrayRef<int64_t> shape = value.getType().getShape();
  int64_t inner = part.inner; // consecutive elements of one index
  for (int64_t size : shape.drop_front(part.axis + 1))
    inner *= size;
  // In [before, count, inner], each row is the row in front of it. Bits are compared: 0 is not -0.
  int64_t width = value.getElementType().getIntOrFloatBitWidth(), block = part.count * inner;
  auto same = [&](auto element) {
    for (int64_t i = 0, n = value.getNumElements(); i < n; ++i)
      if (i % block >= inner && element(i) != element(i - inner))
        return false;
    return true;
  };
  if (width % 8 != 0) {
    auto bits = value.value_begin<bool>();
    return width == 1 && same([&](int64_t i) { return bool(*(bits + i)); });
  }
  int64_t bytes = width / 8;
  return same(
      [&](int64_t i) { return StringRef(value.getRawData().data() + i * bytes, size_t(bytes)); });
}

/// Expressions are followed this far back: no stack is deep enough for all.
constexpr int kMostOperations = 2000;

bool FewerRows::hold(Value v, AxisPart part) {
  if (part.count == 1 || shapeOf(v).empty())
    return true;
  if (depth == 0) // what was asked before may be gone, and others in its place
    known.clear();
  Key key = {part.axis, part.outer, part.count, part.inner};
  auto found = known.find({v.getAsOpaquePointer(), key});
  if (found != known.end())
    return found->second;
  if (depth == kMostOperations)
    return false;
  ++depth;
  bool holds = holdIn(v, part);
  --depth;
  return known[{v.getAsOpaquePointer(), key}] = holds;
}

// Rows, columns and leading dimensions of a product stay apart.
bool FewerRows::holdInMatmul(MatmulOp op, AxisPart part) {
  int64_t last = shapeOf(op.getResult()).size() - 1;
  if (part.axis < last - 1)
    return hold(op.getLhs(), part) && hold(op.getRhs(), part);
  if (part.axis == last - 1) {
    part.axis = op.getTransposeLhs() ? last : last - 1;
    return hold(op.getLhs(), part);
  }
  bool biasHolds = !op.getBias() || hold(op.getBias(), {0, part.outer, part.count, part.inner});
  part.axis = op.getTransposeRhs() ? last - 1 : last;
  return biasHolds && hold(op.getRhs(), part);
}

bool FewerRows::holdInGather(GatherOp op, AxisPart part) {
  int64_t axis = op.getAxis(), rank = shapeOf(op.getIndices()).size();
  if (part.axis >= axis && part.axis < axis + rank) {
    part.axis -= axis;
    return hold(op.getIndices(), part);
  }
  part.axis -= part.axis < axis ? 0 : rank - 1;
  return hold(op.getInput(), part);
}

bool FewerRows::holdInSlice(SliceOp op, AxisPart part) {
  int64_t size = shapeOf(op.getInput())[part.axis];
  if (size == shapeOf(op.getResult())[part.axis] && op.getSteps()[part.axis] == 1)
    return hold(op.getInput(), part);
  return hold(op.getInput(), {part.axis, 1, size, 1});
}

// What combines elements along other axes than the part's.
bool FewerRows::holdBesideAxis(Operation *op, AxisPart part) {
  bool apart = llvm::TypeSwitch<Operation *, bool>(op)
                   .Case<SoftmaxOp, LogSoftmaxOp, CumSumOp, MaskSamplesOp>([&](auto combined) {
                     return part.axis != static_cast<int64_t>(combined.getAxis());
                   })
                   .Case<LayerNormOp>([&](LayerNormOp norm) {
                     return part.axis < static_cast<int64_t>(norm.getAxis());
                   })
                   .Case<PadOp>([&](PadOp pad) {
                     return !pad.getLow()[part.axis] && !pad.getHigh()[part.axis] &&
                            !pad.getInterior()[part.axis];
                   })
                   .Case<BatchNormInferenceOp>([&](Operation *) { return part.axis != 1; })
                   .Case<MaxPoolOp, AveragePoolOp>([&](Operation *) { return part.axis <= 1; })
                   .Case<ConvOp, ConvBackwardDataOp>([&](Operation *) { return part.axis == 0; })
                   .Case<DropoutOp>([&](Operation *) { return true; }) // by the place in the batch
                   .Default(false);
  return apart && hold(op->getOperand(0), part);
}

bool FewerRows::holdIn(Value v, AxisPart part) {
  DenseElementsAttr constant;
  if (matchPattern(v, m_Constant(&constant)))
    return isRepeatedConstant(constant, part);
  if (auto argument = dyn_cast<BlockArgument>(v)) {
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    auto axes =
        function.getArgAttrOfType<DenseI64ArrayAttr>(argument.getArgNumber(), kRepeatedAttr);
    return axes && llvm::is_contained(axes.asArrayRef(), part.axis);
  }
  Operation *op = v.getDefiningOp();
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    ArrayRef<int64_t> dimensions = broadcast.getDimensions();
    auto *from = llvm::find(dimensions, part.axis);
    if (from == dimensions.end())
      return true;
    part.axis = from - dimensions.begin();
    return hold(broadcast.getInput(), part);
  }
  if (isa<ReshapeOp>(op)) {
    auto there = locate(part, shapeOf(v), shapeOf(op->getOperand(0)));
    return there && hold(op->getOperand(0), *there);
  }
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    part.axis = transpose.getPermutation()[part.axis];
    return hold(transpose.getInput(), part);
  }
  if (auto slice = dyn_cast<SliceOp>(op))
    return holdInSlice(slice, part);
  if (auto gather = dyn_cast<GatherOp>(op))
    return holdInGather(gather, part);
  if (auto matmul = dyn_cast<MatmulOp>(op))
    return holdInMatmul(matmul, part);
  if (auto reduce = dyn_cast<ReduceOp>(op)) {
    SmallVector<int64_t> axes(reduce.getAxes());
    llvm::sort(axes);
    for (int64_t axis : axes)
      part.axis += axis <= part.axis;
    return hold(reduce.getInput(), part);
  }
  auto concat = dyn_cast<ConcatOp>(op);
  if (concat && part.axis == static_cast<int64_t>(concat.getAxis()))
    return false;
  if (auto iota = dyn_cast<IotaOp>(op))
    return part.axis != static_cast<int64_t>(iota.getAxis()) || part.outer == 1;
  if (isa<RandomUniformOp>(op)) // a place in the batch has its own numbers
    return part.outer == 1;
  if (!concat && !op->hasTrait<OpTrait::Elementwise>())
    return holdBesideAxis(op, part);
  return llvm::all_of(op->getOperands(), [&](Value operand) {
    return !isa<RankedTensorType>(operand.getType()) || hold(operand, part);
  });
}

} // namespace mpc
