//===- Slice.cpp - slice, pad and concat ------------------------------------===//
//
// Views of a part of a tensor, and their opposites: verifiers, folders and derivatives. A
// slice's gradient is a pad, a pad's is a slice. The ONNX operators that become these are in
// SliceHandlers.cpp.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/Build.h"
#include "compiler/ops/ConstantFold.h"

using namespace mlir;
using namespace mpc;

static Value zeroScalar(OpBuilder &b, Location loc, Type type) {
  return arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
}

static Value zeroPad(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> low,
                     ArrayRef<int64_t> high, ArrayRef<int64_t> interior) {
  SmallVector<int64_t> shape;
  for (auto [n, l, h, i] : llvm::zip_equal(shapeOf(v), low, high, interior))
    shape.push_back(l + n + (n - 1) * i + h);
  return b.createOrFold<PadOp>(loc, RankedTensorType::get(shape, elementType(v)), v,
                               zeroScalar(b, loc, elementType(v)), low, high, interior);
}

//===----------------------------------------------------------------------===//
// Slice
//===----------------------------------------------------------------------===//

LogicalResult SliceOp::verify() {
  ArrayRef<int64_t> in = shapeOf(getInput()), out = shapeOf(getResult());
  if (elementType(getInput()) != elementType(getResult()))
    return emitOpError("changes the element type");
  if (in.size() != out.size() || getStarts().size() != in.size() || getSteps().size() != in.size())
    return emitOpError("needs one start, one step and one result dimension per operand dimension");
  for (auto [i, n, m, start, step] : llvm::enumerate(in, out, getStarts(), getSteps())) {
    if (step == 0)
      return emitOpError("has the step 0 in dimension ") << i;
    int64_t last = start + (m - 1) * step;
    if (m > 0 && (start < 0 || start >= n || last < 0 || last >= n))
      return emitOpError("reads elements ")
             << start << " to " << last << " of dimension " << i << " of size " << n;
  }
  return success();
}

OpFoldResult SliceOp::fold(FoldAdaptor adaptor) {
  // Same shape and forward steps: every step is 1 where there is more than one element.
  if (getInput().getType() == getType() &&
      llvm::all_of(llvm::zip_equal(shapeOf(getResult()), getSteps()), [](auto dimension) {
        return std::get<0>(dimension) <= 1 || std::get<1>(dimension) == 1;
      }))
    return getInput();
  // slice(slice(x)): element i is x[s₁ + t₁·(s₂ + t₂·i)].
  if (auto inner = getInput().getDefiningOp<SliceOp>()) {
    SmallVector<int64_t> starts, steps;
    for (auto [s1, t1, s2, t2] :
         llvm::zip_equal(inner.getStarts(), inner.getSteps(), getStarts(), getSteps())) {
      starts.push_back(s1 + t1 * s2);
      steps.push_back(t1 * t2);
    }
    setStarts(starts);
    setSteps(steps);
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return foldView(
      adaptor.getInput(), cast<RankedTensorType>(getType()),
      [&](ArrayRef<int64_t> index, size_t d) { return getStarts()[d] + index[d] * getSteps()[d]; });
}

// The cotangent goes back to where its elements came from: with step t, |t| - 1 zeros between
// neighbors; a dimension that was read backwards is reversed first.
SmallVector<Value> SliceOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0] || hasNoElements(getResult()))
    return {Value()};
  ArrayRef<int64_t> in = shapeOf(getInput()), out = shapeOf(getResult());
  SmallVector<int64_t> reverseStarts, reverseSteps, low, high, interior;
  for (auto [n, m, start, step] : llvm::zip_equal(in, out, getStarts(), getSteps())) {
    bool backwards = step < 0 && m > 1;
    reverseStarts.push_back(backwards ? m - 1 : 0);
    reverseSteps.push_back(backwards ? -1 : 1);
    int64_t first = backwards ? start + (m - 1) * step : start, stride = m > 1 ? std::abs(step) : 1;
    low.push_back(first);
    interior.push_back(stride - 1);
    high.push_back(n - first - ((m - 1) * stride + 1));
  }
  Value forwards = slice(b, getLoc(), cotangents[0], reverseStarts, reverseSteps, out);
  return {castTo(b, getLoc(), zeroPad(b, getLoc(), forwards, low, high, interior), wanted[0])};
}

//===----------------------------------------------------------------------===//
// Pad
//===----------------------------------------------------------------------===//

LogicalResult PadOp::verify() {
  ArrayRef<int64_t> in = shapeOf(getInput()), out = shapeOf(getResult());
  if (elementType(getInput()) != elementType(getResult()) ||
      elementType(getInput()) != getValue().getType())
    return emitOpError("needs one element type for operand, value and result");
  if (in.size() != out.size() || getLow().size() != in.size() || getHigh().size() != in.size() ||
      getInterior().size() != in.size())
    return emitOpError(
        "needs one amount of each kind and one result dimension per operand dimension");
  for (auto [i, n, m, low, high, interior] :
       llvm::enumerate(in, out, getLow(), getHigh(), getInterior())) {
    if (interior < 0)
      return emitOpError("has a negative interior amount in dimension ") << i;
    if (n == 0 && interior > 0)
      return emitOpError("puts values between the elements of dimension ")
             << i << ", which has none";
    int64_t size = low + n + std::max<int64_t>(n - 1, 0) * interior + high;
    if (m != size)
      return emitOpError("makes ") << size << " elements of dimension " << i << ", not " << m;
  }
  return success();
}

OpFoldResult PadOp::fold(FoldAdaptor adaptor) {
  auto none = [](ArrayRef<int64_t> amounts) {
    return llvm::all_of(amounts, [](int64_t amount) { return amount == 0; });
  };
  if (getInput().getType() == getType() && none(getLow()) && none(getHigh()) && none(getInterior()))
    return getInput();
  DenseElementsAttr elements = foldableElements(adaptor.getInput());
  auto value = dyn_cast_if_present<TypedAttr>(adaptor.getValue());
  if (!elements || !value)
    return {};
  ArrayRef<int64_t> in = shapeOf(getInput());
  SmallVector<int64_t> strides = rowMajorStrides(in);
  auto map = [&](ArrayRef<int64_t> index) -> SourceElement {
    int64_t position = 0;
    for (auto [i, low, interior, n, stride] :
         llvm::zip_equal(index, getLow(), getInterior(), in, strides)) {
      int64_t offset = i - low;
      if (offset < 0 || offset % (interior + 1) || offset / (interior + 1) >= n)
        return {0, -1};
      position += offset / (interior + 1) * stride;
    }
    return {0, position};
  };
  return mapConstants(elements, cast<RankedTensorType>(getType()), map, value);
}

// Input element i stands at low + i·(interior + 1) of the result. Where an amount is negative,
// elements were cropped: the cotangent is first extended by zeros for these. The value is a
// constant and has no gradient.
SmallVector<Value> PadOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  SmallVector<Value> gradients(2);
  if (!cotangents[0] || !wanted[0] || hasNoElements(getInput()))
    return gradients;
  SmallVector<int64_t> cropLow, cropHigh, none(getLow().size(), 0), starts, steps;
  for (auto [low, high, interior] : llvm::zip_equal(getLow(), getHigh(), getInterior())) {
    cropLow.push_back(std::max<int64_t>(-low, 0));
    cropHigh.push_back(std::max<int64_t>(-high, 0));
    starts.push_back(std::max<int64_t>(low, 0));
    steps.push_back(interior + 1);
  }
  Value whole = zeroPad(b, getLoc(), cotangents[0], cropLow, cropHigh, none);
  gradients[0] =
      castTo(b, getLoc(), slice(b, getLoc(), whole, starts, steps, shapeOf(getInput())), wanted[0]);
  return gradients;
}

//===----------------------------------------------------------------------===//
// Concat
//===----------------------------------------------------------------------===//

LogicalResult ConcatOp::verify() {
  if (getInputs().empty())
    return emitOpError("joins nothing");
  auto type = cast<RankedTensorType>(getType());
  int64_t axis = getAxis(), size = 0;
  if (axis < 0 || axis >= type.getRank())
    return emitOpError("has an axis outside its result's rank ") << type.getRank();
  for (Value input : getInputs()) {
    auto inputType = tensorType(input);
    if (inputType.getRank() != type.getRank() ||
        inputType.getElementType() != type.getElementType())
      return emitOpError("joins ") << inputType << " into " << type;
    for (int64_t d = 0; d < type.getRank(); ++d)
      if (d != axis && inputType.getDimSize(d) != type.getDimSize(d))
        return emitOpError("joins operands that differ in dimension ") << d;
    size += inputType.getDimSize(axis);
  }
  if (size != type.getDimSize(axis))
    return emitOpError("joins ") << size << " elements along its axis, not "
                                 << type.getDimSize(axis);
  return success();
}

OpFoldResult ConcatOp::fold(FoldAdaptor adaptor) {
  if (getInputs().size() == 1)
    return getInputs()[0];
  auto type = cast<RankedTensorType>(getType());
  int64_t axis = getAxis();
  SmallVector<Value> filled =
      llvm::filter_to_vector(getInputs(), [&](Value input) { return shapeOf(input)[axis] != 0; });
  if (!filled.empty() && filled.size() < getInputs().size()) {
    getInputsMutable().assign(filled);
    return getResult();
  }
  SmallVector<DenseElementsAttr> sources;
  SmallVector<SmallVector<int64_t>> strides;
  SmallVector<std::pair<int64_t, int64_t>>
      owners; // for every index along the axis: the operand, and the index there
  for (auto [k, attribute, input] : llvm::enumerate(adaptor.getInputs(), getInputs())) {
    sources.push_back(foldableElements(attribute));
    if (!sources.back())
      return {};
    strides.push_back(rowMajorStrides(shapeOf(input)));
    for (int64_t i = 0; i < shapeOf(input)[axis] && type.getNumElements() <= kMaxFoldedElements;
         ++i)
      owners.emplace_back(k, i);
  }
  return mapConstants(sources, type, [&](ArrayRef<int64_t> index) {
    auto [owner, i] = owners[index[axis]];
    SmallVector<int64_t> inner(index);
    inner[axis] = i;
    return SourceElement{owner, linearIndex(inner, strides[owner])};
  });
}

SmallVector<Value> ConcatOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  SmallVector<Value> gradients(getInputs().size());
  if (!cotangents[0])
    return gradients;
  SmallVector<int64_t> starts(shapeOf(getResult()).size(), 0), steps(starts.size(), 1);
  for (auto [i, input] : llvm::enumerate(getInputs())) {
    if (wanted[i])
      gradients[i] = castTo(
          b, getLoc(), slice(b, getLoc(), cotangents[0], starts, steps, shapeOf(input)), wanted[i]);
    starts[getAxis()] += shapeOf(input)[getAxis()];
  }
  return gradients;
}
