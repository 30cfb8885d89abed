//===- BatchTrace.cpp - shape arithmetic for other batch sizes -------------------===//

#include "BatchTrace.h"
#include "Build.h"
#include "ConstantFold.h"

using namespace mlir;

namespace mpc {

void BatchTrace::start(int64_t batchSize) {
  batch = batchSize;
  if (batch > 1)
    others.push_back(batch - 1);
  if (batch > 2) // a size that models ask for: squeeze, broadcasting
    others.push_back(1);
}

void BatchTrace::record(Value v, DenseElementsAttr whole, Constants constants) {
  if (llvm::any_of(constants, [&](DenseElementsAttr other) { return other != whole; }))
    known[v] = std::move(constants);
}

SmallVector<int64_t> BatchTrace::shapeAt(int64_t samples, ArrayRef<int64_t> shape,
                                         const SamplePlaces &places) const {
  SmallVector<int64_t> result(shape);
  for (const SamplePlace &p : places.places)
    result[p.axis] = shape[p.axis] / batch * samples;
  return result;
}

bool BatchTrace::isRows(int64_t size, function_ref<int64_t(unsigned)> other) const {
  if (size <= 0 || size % batch != 0)
    return false;
  for (unsigned i = 0; i < others.size(); ++i)
    if (other(i) != size / batch * others[i])
      return false;
  return true;
}

bool isPartOf(DenseElementsAttr part, DenseElementsAttr whole) {
  if (part.isSplat() && whole.isSplat())
    return part.getSplatValue<Attribute>() == whole.getSplatValue<Attribute>();
  SmallVector<int64_t> strides = rowMajorStrides(whole.getType().getShape());
  auto compare = [&](auto from, auto in) {
    bool same = true;
    forEachIndex(part.getType().getShape(), [&](ArrayRef<int64_t> index) {
      auto x = *from++, y = *(in + linearIndex(index, strides));
      if constexpr (std::is_same_v<decltype(x), APFloat>)
        same &= x.bitwiseIsEqual(y);
      else
        same &= x == y;
    });
    return same;
  };
  if (isa<FloatType>(part.getElementType()))
    return compare(part.value_begin<APFloat>(), whole.value_begin<APFloat>());
  return compare(part.value_begin<APInt>(), whole.value_begin<APInt>());
}

std::optional<SmallVector<int64_t>> BatchTrace::rowAxes(Value v, DenseElementsAttr whole) const {
  Constants constants = known.lookup(v);
  ArrayRef<int64_t> shape = whole.getType().getShape();
  auto fits = [&](DenseElementsAttr part) {
    return part && part.getElementType() == whole.getElementType() &&
           part.getType().getRank() == int64_t(shape.size());
  };
  if (!llvm::all_of(constants, fits))
    return std::nullopt;
  SmallVector<int64_t> axes;
  for (auto [axis, size] : llvm::enumerate(shape)) {
    auto other = [&](unsigned i) { return constants[i].getType().getDimSize(axis); };
    bool same = llvm::all_of(llvm::seq<unsigned>(0, others.size()),
                             [&](unsigned i) { return other(i) == size; });
    if (!same && !isRows(size, other))
      return std::nullopt;
    if (!same)
      axes.push_back(axis);
  }
  if (!llvm::all_of(constants, [&](DenseElementsAttr part) { return isPartOf(part, whole); }))
    return std::nullopt;
  return axes;
}

} // namespace mpc
