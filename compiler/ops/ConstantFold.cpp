//===- ConstantFold.cpp - index maps applied to constants -------------------===//
//
// Elements are copied as bytes, so that every bit pattern (NaN payloads too) survives; only
// i1, whose storage is the attribute's own affair, goes through bool.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/ConstantFold.h"
#include "compiler/ops/Build.h"

using namespace mlir;

namespace mpc {

DenseElementsAttr foldableElements(Attribute attribute) {
  auto elements = dyn_cast_if_present<DenseElementsAttr>(attribute);
  if (!elements || !elements.getElementType().isIntOrFloat())
    return {};
  if (!elements.isSplat() && elements.getNumElements() > kMaxFoldedElements)
    return {};
  return elements;
}

void forEachIndex(ArrayRef<int64_t> shape, function_ref<void(ArrayRef<int64_t>)> visit) {
  if (llvm::is_contained(shape, 0))
    return;
  SmallVector<int64_t> index(shape.size(), 0);
  while (true) {
    visit(index);
    int64_t d = static_cast<int64_t>(shape.size()) - 1;
    for (; d >= 0 && ++index[d] == shape[d]; --d)
      index[d] = 0;
    if (d < 0)
      return;
  }
}

SmallVector<int64_t> rowMajorStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (int64_t d = static_cast<int64_t>(shape.size()) - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * shape[d + 1];
  return strides;
}

int64_t linearIndex(ArrayRef<int64_t> index, ArrayRef<int64_t> strides) {
  int64_t position = 0;
  for (auto [i, stride] : llvm::zip_equal(index, strides))
    position += i * stride;
  return position;
}

// Every element of every source has this value (and so has the fill).
static bool allOneSplat(ArrayRef<DenseElementsAttr> sources, Attribute fill) {
  if (!llvm::all_of(sources, [](DenseElementsAttr source) { return source.isSplat(); }))
    return false;
  Attribute value = fill ? fill : sources.front().getSplatValue<Attribute>();
  return llvm::all_of(sources, [&](DenseElementsAttr source) {
    return source.getSplatValue<Attribute>() == value;
  });
}

static DenseElementsAttr mapBooleans(ArrayRef<DenseElementsAttr> sources, RankedTensorType type,
                                     function_ref<SourceElement(ArrayRef<int64_t>)> map,
                                     Attribute fill) {
  SmallVector<SmallVector<bool>> values;
  for (DenseElementsAttr source : sources)
    values.emplace_back(source.getValues<bool>());
  bool fillValue = fill && !cast<IntegerAttr>(fill).getValue().isZero();
  SmallVector<bool> result;
  forEachIndex(type.getShape(), [&](ArrayRef<int64_t> index) {
    SourceElement element = map(index);
    result.push_back(element.position < 0 ? fillValue : values[element.source][element.position]);
  });
  return DenseElementsAttr::get(type, ArrayRef<bool>(result));
}

DenseElementsAttr mapConstants(ArrayRef<DenseElementsAttr> sources, RankedTensorType type,
                               function_ref<SourceElement(ArrayRef<int64_t>)> map, Attribute fill) {
  if (sources.empty())
    return {};
  if (hasNoElements(type))
    return DenseElementsAttr::get(type, ArrayRef<Attribute>());
  if (allOneSplat(sources, fill)) {
    DenseElementsAttr splat = sources.front();
    return splat.resizeSplat(type);
  }
  if (type.getNumElements() > kMaxFoldedElements)
    return {};
  if (type.getElementType().isInteger(1))
    return mapBooleans(sources, type, map, fill);

  size_t bytes = llvm::divideCeil(type.getElementTypeBitWidth(), 8u);
  SmallVector<char> fillBytes;
  if (fill)
    llvm::append_range(
        fillBytes, DenseElementsAttr::get(RankedTensorType::get({}, type.getElementType()), fill)
                       .getRawData());
  std::vector<char> result;
  result.reserve(bytes * type.getNumElements());
  forEachIndex(type.getShape(), [&](ArrayRef<int64_t> index) {
    SourceElement element = map(index);
    ArrayRef<char> from = fillBytes;
    if (element.position >= 0) {
      DenseElementsAttr source = sources[element.source];
      from = source.getRawData().slice(source.isSplat() ? 0 : element.position * bytes, bytes);
    }
    result.insert(result.end(), from.begin(), from.end());
  });
  return DenseElementsAttr::getFromRawBuffer(type, result);
}

DenseElementsAttr mapConstant(DenseElementsAttr source, RankedTensorType type,
                              function_ref<int64_t(ArrayRef<int64_t>)> map) {
  return mapConstants(source, type,
                      [&](ArrayRef<int64_t> index) { return SourceElement{0, map(index)}; });
}

DenseElementsAttr foldView(Attribute input, RankedTensorType type,
                           function_ref<int64_t(ArrayRef<int64_t>, size_t)> coordinate) {
  DenseElementsAttr elements = foldableElements(input);
  if (!elements)
    return {};
  SmallVector<int64_t> strides = rowMajorStrides(elements.getType().getShape());
  return mapConstant(elements, type, [&](ArrayRef<int64_t> index) {
    int64_t position = 0;
    for (auto [d, stride] : llvm::enumerate(strides))
      position += coordinate(index, d) * stride;
    return position;
  });
}

} // namespace mpc
