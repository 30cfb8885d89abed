//===- Shape.cpp - broadcast, reshape, transpose and iota -------------------===//
//
// Views of all elements of a tensor: verifiers, folders and derivatives. The folders make
// exporters' shape arithmetic disappear, and chains of views become one view. The ONNX
// operators that become these are in ShapeHandlers.cpp.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/Build.h"
#include "compiler/ops/ConstantFold.h"

using namespace mlir;
using namespace mpc;

static LogicalResult verifySameElementType(Operation *op) {
  auto input = cast<RankedTensorType>(op->getOperand(0).getType()),
       result = cast<RankedTensorType>(op->getResult(0).getType());
  if (input.getElementType() != result.getElementType())
    return op->emitOpError("changes the element type from ")
           << input.getElementType() << " to " << result.getElementType();
  if (!input.hasStaticShape() || !result.hasStaticShape())
    return op->emitOpError("needs static shapes");
  return success();
}

//===----------------------------------------------------------------------===//
// Broadcast
//===----------------------------------------------------------------------===//

LogicalResult BroadcastOp::verify() {
  if (failed(verifySameElementType(*this)))
    return failure();
  ArrayRef<int64_t> in = shapeOf(getInput()), out = shapeOf(getResult()),
                    dimensions = getDimensions();
  if (dimensions.size() != in.size())
    return emitOpError("has ") << dimensions.size() << " dimensions for an operand of rank "
                               << in.size();
  for (auto [i, d] : llvm::enumerate(dimensions)) {
    if (d < 0 || d >= static_cast<int64_t>(out.size()) || (i && d <= dimensions[i - 1]))
      return emitOpError("has dimensions that do not increase strictly within the result's rank");
    if (in[i] != out[d])
      return emitOpError("maps dimension ")
             << i << " of size " << in[i] << " to one of size " << out[d];
  }
  return success();
}

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getType())
    return getInput();
  // broadcast(broadcast(x)): dimension i of x goes where the outer one sends what the inner one
  // made of it.
  if (auto inner = getInput().getDefiningOp<BroadcastOp>()) {
    SmallVector<int64_t> dimensions;
    for (int64_t d : inner.getDimensions())
      dimensions.push_back(getDimensions()[d]);
    setDimensions(dimensions);
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  auto type = cast<RankedTensorType>(getType());
  auto elements = dyn_cast_if_present<DenseElementsAttr>(adaptor.getInput());
  if (!elements || (!elements.isSplat() && type.getNumElements() > kMaxFoldedBroadcast))
    return {};
  return foldView(elements, type,
                  [&](ArrayRef<int64_t> index, size_t d) { return index[getDimensions()[d]]; });
}

// The gradient of a repetition is the sum over the dimensions that were new.
SmallVector<Value> BroadcastOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0])
    return {Value()};
  SmallVector<int64_t> axes;
  for (int64_t d = 0, rank = shapeOf(getResult()).size(); d < rank; ++d)
    if (!llvm::is_contained(getDimensions(), d))
      axes.push_back(d);
  // A sum's result may be wider than its operand, never narrower: the rounding to a narrower type
  // comes after it.
  Type from = elementType(cotangents[0]);
  bool widens = wanted[0].getIntOrFloatBitWidth() > from.getIntOrFloatBitWidth();
  return {castTo(
      b, getLoc(),
      reduce(b, getLoc(), ReductionKind::sum, cotangents[0], axes, widens ? wanted[0] : from),
      wanted[0])};
}

//===----------------------------------------------------------------------===//
// Reshape
//===----------------------------------------------------------------------===//

LogicalResult ReshapeOp::verify() {
  if (failed(verifySameElementType(*this)))
    return failure();
  int64_t from = tensorType(getInput()).getNumElements(),
          to = tensorType(getResult()).getNumElements();
  if (from != to)
    return emitOpError("makes ") << to << " elements of " << from;
  return success();
}

OpFoldResult ReshapeOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getType())
    return getInput();
  if (auto inner = getInput().getDefiningOp<ReshapeOp>()) {
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  if (DenseElementsAttr elements = foldableElements(adaptor.getInput()))
    return elements.reshape(cast<ShapedType>(getType()));
  return {};
}

SmallVector<Value> ReshapeOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0])
    return {Value()};
  return {castTo(b, getLoc(), reshape(b, getLoc(), cotangents[0], shapeOf(getInput())), wanted[0])};
}

//===----------------------------------------------------------------------===//
// Transpose
//===----------------------------------------------------------------------===//

LogicalResult TransposeOp::verify() {
  if (failed(verifySameElementType(*this)))
    return failure();
  ArrayRef<int64_t> in = shapeOf(getInput()), out = shapeOf(getResult()),
                    permutation = getPermutation();
  SmallVector<int64_t> sorted(permutation);
  llvm::sort(sorted);
  if (sorted != llvm::to_vector(llvm::seq<int64_t>(0, in.size())))
    return emitOpError("has a permutation that is none of 0 to ")
           << static_cast<int64_t>(in.size()) - 1;
  for (auto [i, p] : llvm::enumerate(permutation))
    if (i >= out.size() || out[i] != in[p])
      return emitOpError("has a result shape that is not the permuted operand shape");
  return success();
}

OpFoldResult TransposeOp::fold(FoldAdaptor adaptor) {
  if (llvm::equal(getPermutation(), llvm::seq<int64_t>(0, getPermutation().size())))
    return getInput();
  // transpose(transpose(x)): result dimension i is dimension inner[outer[i]] of x.
  if (auto inner = getInput().getDefiningOp<TransposeOp>()) {
    SmallVector<int64_t> permutation;
    for (int64_t p : getPermutation())
      permutation.push_back(inner.getPermutation()[p]);
    setPermutation(permutation);
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  SmallVector<int64_t> inverse(getPermutation().size());
  for (auto [i, p] : llvm::enumerate(getPermutation()))
    inverse[p] = i;
  return foldView(adaptor.getInput(), cast<RankedTensorType>(getType()),
                  [&](ArrayRef<int64_t> index, size_t d) { return index[inverse[d]]; });
}

SmallVector<Value> TransposeOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0])
    return {Value()};
  SmallVector<int64_t> inverse(getPermutation().size());
  for (auto [i, p] : llvm::enumerate(getPermutation()))
    inverse[p] = i;
  return {castTo(b, getLoc(), transpose(b, getLoc(), cotangents[0], inverse), wanted[0])};
}
