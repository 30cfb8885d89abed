//===- Gather.cpp - gather and scatter_add ----------------------------------===//
//
// Reading by index tables, and its gradient. The gradient adds in index order in f32 (f64),
// so that it is the same bits in every run. The ONNX operators that become these are in
// GatherHandlers.cpp.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/Build.h"
#include "compiler/ops/ConstantFold.h"

using namespace mlir;
using namespace mpc;

// The shape of gather's result and of scatter_add's updates: the indices' dimensions stand in place
// of the axis.
static SmallVector<int64_t> gatheredShape(ArrayRef<int64_t> table, ArrayRef<int64_t> indices,
                                          int64_t axis) {
  SmallVector<int64_t> shape(table.take_front(axis));
  llvm::append_range(shape, indices);
  llvm::append_range(shape, table.drop_front(axis + 1));
  return shape;
}

static LogicalResult verifyIndexing(Operation *op, RankedTensorType table, Value indices,
                                    RankedTensorType rows, int64_t axis) {
  if (axis < 0 || axis >= table.getRank())
    return op->emitOpError("has an axis outside the rank ")
           << table.getRank() << " of what is indexed";
  if (!elementType(indices).isSignlessInteger())
    return op->emitOpError("needs integer indices, not ") << elementType(indices);
  if (rows.getShape() != ArrayRef<int64_t>(gatheredShape(table.getShape(), shapeOf(indices), axis)))
    return op->emitOpError("has the shape ")
           << rows << " where the indices stand in place of axis " << axis << " of " << table;
  if (rows.getElementType() != table.getElementType())
    return op->emitOpError("needs one element type, has ")
           << table.getElementType() << " and " << rows.getElementType();
  return success();
}

//===----------------------------------------------------------------------===//
// Gather
//===----------------------------------------------------------------------===//

LogicalResult GatherOp::verify() {
  return verifyIndexing(*this, tensorType(getInput()), getIndices(), tensorType(getResult()),
                        getAxis());
}

OpFoldResult GatherOp::fold(FoldAdaptor adaptor) {
  auto type = cast<RankedTensorType>(getType());
  DenseElementsAttr table = foldableElements(adaptor.getInput());
  if (!table)
    return {};
  if (table.isSplat() && tensorType(getInput()).getNumElements() > 0)
    return table.resizeSplat(type);
  DenseElementsAttr indices = foldableElements(adaptor.getIndices());
  if (!indices || type.getNumElements() > kMaxFoldedElements)
    return {};
  SmallVector<int64_t> positions;
  int64_t axis = getAxis(), size = shapeOf(getInput())[axis];
  for (const APInt &index : indices.getValues<APInt>())
    positions.push_back(std::clamp<int64_t>(index.getSExtValue(), 0, size - 1));
  ArrayRef<int64_t> indexShape = shapeOf(getIndices());
  SmallVector<int64_t> strides = rowMajorStrides(shapeOf(getInput())),
                       indexStrides = rowMajorStrides(indexShape);
  return mapConstant(table, type, [&](ArrayRef<int64_t> index) {
    ArrayRef<int64_t> before = index.take_front(axis), at = index.slice(axis, indexShape.size());
    ArrayRef<int64_t> after = index.drop_front(axis + indexShape.size());
    ArrayRef<int64_t> all = strides;
    return linearIndex(before, all.take_front(axis)) +
           positions[linearIndex(at, indexStrides)] * all[axis] +
           linearIndex(after, all.drop_front(axis + 1));
  });
}

SmallVector<Value> GatherOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  SmallVector<Value> gradients(2);
  if (!cotangents[0] || !wanted[0])
    return gradients;
  Type sum = computeType(wanted[0]);
  Value updates = castTo(b, getLoc(), cotangents[0], sum);
  Value table = ScatterAddOp::create(b, getLoc(), RankedTensorType::get(shapeOf(getInput()), sum),
                                     getIndices(), updates, Value(), getAxis());
  gradients[0] = castTo(b, getLoc(), table, wanted[0]);
  return gradients;
}

//===----------------------------------------------------------------------===//
// ScatterAdd
//===----------------------------------------------------------------------===//

LogicalResult ScatterAddOp::verify() {
  auto type = cast<RankedTensorType>(getType());
  if (isHalf(type.getElementType()))
    return emitOpError("sums in its result's element type, which cannot be ")
           << type.getElementType();
  if (getInit() && getInit().getType() != type)
    return emitOpError("starts from ") << getInit().getType() << " but makes " << type;
  return verifyIndexing(*this, type, getIndices(), tensorType(getUpdates()), getAxis());
}

// Each update is added at one place: its gradient is read there, and the table's is the result's.
SmallVector<Value> ScatterAddOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  SmallVector<Value> gradients(getNumOperands());
  if (!cotangents[0])
    return gradients;
  if (wanted[1]) {
    auto type = tensorType(getUpdates()).clone(elementType(cotangents[0]));
    Value updates = GatherOp::create(b, getLoc(), type, cotangents[0], getIndices(), getAxis());
    gradients[1] = castTo(b, getLoc(), updates, wanted[1]);
  }
  if (getInit() && wanted[2])
    gradients[2] = castTo(b, getLoc(), cotangents[0], wanted[2]);
  return gradients;
}
