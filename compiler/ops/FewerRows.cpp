//===- FewerRows.cpp - values that hold for a smaller batch too -------------------===//
//
// Follows one part of an axis back through index maps and elementwise arithmetic, to the
// broadcasts, constants and indices that do not ask how many there are.
//
//===------------------------------------------------------------------------------===//

#include "FewerRows.h"
#include "Build.h"
#include "mlir/IR/Matchers.h"

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

/// So many operations are looked at, then the answer is no: expressions share values, and a walk
/// over all paths would not end.
constexpr int kMostOperations = 256;

static bool holdsIn(Value v, AxisPart part, int &left);

static bool holdsBehindGather(GatherOp op, AxisPart part, int &left) {
  int64_t axis = op.getAxis(), rank = shapeOf(op.getIndices()).size();
  if (part.axis >= axis && part.axis < axis + rank) {
    part.axis -= axis;
    return holdsIn(op.getIndices(), part, left);
  }
  part.axis -= part.axis < axis ? 0 : rank - 1;
  return holdsIn(op.getInput(), part, left);
}

static bool holdsBehindSlice(SliceOp op, AxisPart part, int &left) {
  int64_t size = shapeOf(op.getInput())[part.axis];
  if (size == shapeOf(op.getResult())[part.axis] && op.getSteps()[part.axis] == 1)
    return holdsIn(op.getInput(), part, left);
  return holdsIn(op.getInput(), {part.axis, 1, size, 1}, left);
}

static bool holdsIn(Value v, AxisPart part, int &left) {
  DenseElementsAttr constant;
  if (part.count == 1 || shapeOf(v).empty())
    return true;
  if (matchPattern(v, m_Constant(&constant)))
    return isRepeatedConstant(constant, part);
  Operation *op = v.getDefiningOp();
  if (!op || left-- == 0)
    return false;
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    ArrayRef<int64_t> dimensions = broadcast.getDimensions();
    auto *from = llvm::find(dimensions, part.axis);
    if (from == dimensions.end())
      return true;
    part.axis = from - dimensions.begin();
    return holdsIn(broadcast.getInput(), part, left);
  }
  if (isa<ReshapeOp>(op)) {
    auto there = locate(part, shapeOf(v), shapeOf(op->getOperand(0)));
    return there && holdsIn(op->getOperand(0), *there, left);
  }
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    part.axis = transpose.getPermutation()[part.axis];
    return holdsIn(transpose.getInput(), part, left);
  }
  if (auto slice = dyn_cast<SliceOp>(op))
    return holdsBehindSlice(slice, part, left);
  if (auto gather = dyn_cast<GatherOp>(op))
    return holdsBehindGather(gather, part, left);
  if (auto reduce = dyn_cast<ReduceOp>(op)) {
    SmallVector<int64_t> axes(reduce.getAxes());
    llvm::sort(axes);
    for (int64_t axis : axes)
      part.axis += axis <= part.axis;
    return holdsIn(reduce.getInput(), part, left);
  }
  auto concat = dyn_cast<ConcatOp>(op);
  if (concat && part.axis == int64_t(concat.getAxis()))
    return false;
  if (auto iota = dyn_cast<IotaOp>(op))
    return part.axis != int64_t(iota.getAxis()) || part.outer == 1;
  if (!concat && !op->hasTrait<OpTrait::Elementwise>())
    return false;
  return llvm::all_of(op->getOperands(), [&](Value operand) {
    return !isa<RankedTensorType>(operand.getType()) || holdsIn(operand, part, left);
  });
}

bool holdsForFewer(Value v, AxisPart part) {
  int left = kMostOperations;
  return holdsIn(v, part, left);
}

} // namespace mpc
