//===- SliceHandlers.cpp - ONNX operators that take, join and surround parts -===//
//
// Slice, Split, Concat, Pad, Trilu, and tensor sequences, which exist at compile time only:
// a sequence is a list of values, and a position in it is a constant.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/Axis.h"
#include "compiler/ops/Build.h"
#include "compiler/ops/ConstantFold.h"
#include "compiler/ops/OnnxConversion.h"

using namespace mlir;
using namespace mpc;

//===----------------------------------------------------------------------===//
// Slice
//===----------------------------------------------------------------------===//

// Starts, ends, axes and steps: attributes before opset 10, inputs since.
static LogicalResult readSlice(NodeContext &node, SmallVector<int64_t> &starts,
                               SmallVector<int64_t> &ends, SmallVector<int64_t> &axes,
                               SmallVector<int64_t> &steps) {
  bool attributes = node.version() < 10;
  std::optional<SmallVector<int64_t>> first =
      attributes ? node.intsAttr("starts") : node.integers(1);
  std::optional<SmallVector<int64_t>> last = attributes ? node.intsAttr("ends") : node.integers(2);
  if (!first || !last)
    return attributes ? node.error() << "starts or ends are missing" : failure();
  starts = *first;
  ends = *last;
  axes = llvm::to_vector(llvm::seq<int64_t>(0, starts.size()));
  steps.assign(starts.size(), 1);
  if (attributes) {
    axes = node.intsAttr("axes").value_or(axes);
  } else {
    if (node.has(3)) {
      std::optional<SmallVector<int64_t>> given = node.integers(3);
      if (!given)
        return failure();
      axes = *given;
    }
    if (node.has(4)) {
      std::optional<SmallVector<int64_t>> given = node.integers(4);
      if (!given)
        return failure();
      steps = *given;
    }
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return node.error() << "starts, ends, axes and steps differ in length";
  return success();
}

static LogicalResult convertSlice(NodeContext &node) {
  Value x = node.operand(0);
  SmallVector<int64_t> starts, ends, axes, steps;
  if (!x || failed(readSlice(node, starts, ends, axes, steps)))
    return failure();
  SmallVector<int64_t> shape(shapeOf(x)), from(shape.size(), 0), by(shape.size(), 1);
  for (auto [start, end, givenAxis, step] : llvm::zip_equal(starts, ends, axes, steps)) {
    std::optional<int64_t> axis = normalizedAxis(node, givenAxis, shape.size());
    if (!axis)
      return failure();
    if (step == 0)
      return node.error() << "the step along axis " << *axis << " is 0";
    int64_t size = shapeOf(x)[*axis];
    // Negative positions count from the back; INT64_MIN and INT64_MAX, "as far as it goes", stay
    // after the clamp.
    auto clamped = [&](int64_t position, int64_t low, int64_t high) {
      return std::clamp(position < 0 ? std::max(position, -size - 1) + size : position, low, high);
    };
    int64_t first =
        step > 0 ? clamped(start, 0, size) : clamped(start, 0, std::max<int64_t>(size - 1, 0));
    int64_t bound = step > 0 ? clamped(end, 0, size) : clamped(end, -1, size - 1);
    // ⌈(bound - first) / step⌉, without the overflow of extreme steps.
    int64_t distance = step > 0 ? bound - first : first - bound;
    int64_t stride = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
    int64_t count = size == 0 || distance <= 0 ? 0 : (distance - 1) / stride + 1;
    shape[*axis] = count;
    from[*axis] = count ? first : 0;
    by[*axis] = count > 1 ? step : 1;
  }
  return node.results({slice(node.b, node.loc, x, from, by, shape)});
}

//===----------------------------------------------------------------------===//
// Split and Concat
//===----------------------------------------------------------------------===//

// Consecutive parts of x along `axis`.
static SmallVector<Value> parts(NodeContext &node, Value x, int64_t axis, ArrayRef<int64_t> sizes) {
  SmallVector<int64_t> starts(shapeOf(x).size(), 0), steps(starts.size(), 1), shape(shapeOf(x));
  SmallVector<Value> result;
  for (int64_t size : sizes) {
    shape[axis] = size;
    result.push_back(slice(node.b, node.loc, x, starts, steps, shape));
    starts[axis] += size;
  }
  return result;
}

// Sizes ⌈size / count⌉, the last smaller, possibly none.
static SmallVector<int64_t> evenSizes(int64_t size, int64_t chunk, int64_t count) {
  SmallVector<int64_t> sizes;
  for (int64_t i = 0; i < count; ++i)
    sizes.push_back(std::clamp<int64_t>(size - i * chunk, 0, chunk));
  return sizes;
}

static LogicalResult checkSizes(NodeContext &node, ArrayRef<int64_t> sizes, int64_t size) {
  int64_t total = 0;
  for (int64_t part : sizes) {
    if (part < 0 || part > size)
      return node.error() << "a part has the size " << part << " along an axis of " << size;
    total += part;
  }
  if (total != size)
    return node.error() << "the parts have " << total << " elements along an axis of " << size;
  return success();
}

static LogicalResult convertSplit(NodeContext &node) {
  std::optional<AxisOperand> whole = axisOperand(node, 0);
  if (!whole)
    return failure();
  auto [x, axis] = *whole;
  int64_t size = shapeOf(x)[axis], count = node.resultCount();
  // An operand from opset 13 on, an attribute before; opset 1 has both.
  std::optional<SmallVector<int64_t>> sizes;
  if (node.has(1) && (node.version() >= 13 || node.version() == 1)) {
    sizes = node.integers(1);
    if (!sizes)
      return failure();
  } else if (node.version() < 13) {
    sizes = node.intsAttr("split");
  }
  if (!sizes) {
    // Opset 18 allows a last part that is smaller; before, the parts are equal.
    if (node.version() < 18 && size % count)
      return node.error() << "an axis of " << size << " elements does not split into " << count
                          << " equal parts";
    if (node.intAttr("num_outputs", count) != count)
      return node.error() << "num_outputs is " << node.intAttr("num_outputs", count) << " with "
                          << count << " outputs";
    sizes = evenSizes(size, llvm::divideCeil(size, count), count);
  }
  if (static_cast<int64_t>(sizes->size()) != count)
    return node.error() << "has " << sizes->size() << " sizes for " << count << " outputs";
  if (failed(checkSizes(node, *sizes, size)))
    return failure();
  return node.results(parts(node, x, axis, *sizes));
}

static LogicalResult joined(NodeContext &node, ArrayRef<Value> inputs, int64_t givenAxis) {
  if (inputs.empty())
    return node.error() << "joins no tensors";
  std::optional<int64_t> axis = normalizedAxis(node, givenAxis, shapeOf(inputs[0]).size());
  if (!axis)
    return failure();
  SmallVector<int64_t> shape(shapeOf(inputs[0]));
  shape[*axis] = 0;
  for (Value input : inputs) {
    SmallVector<int64_t> rest(shapeOf(input)), expected(shape);
    if (rest.size() != shape.size() || elementType(input) != elementType(inputs[0]))
      return node.error() << "joins " << inputs[0].getType() << " and " << input.getType();
    shape[*axis] += rest[*axis];
    rest[*axis] = expected[*axis] = 0;
    if (rest != expected)
      return node.error() << "joins " << inputs[0].getType() << " and " << input.getType()
                          << " along axis " << *axis;
  }
  auto type = RankedTensorType::get(shape, elementType(inputs[0]));
  return node.results({node.b.createOrFold<ConcatOp>(node.loc, type, inputs, *axis)});
}

static LogicalResult convertConcat(NodeContext &node) {
  SmallVector<Value> inputs;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    inputs.push_back(node.operand(i));
    if (!inputs.back())
      return failure();
  }
  if (node.version() >= 4 && !node.attr("axis"))
    return node.error() << "the attribute axis is missing";
  return joined(node, inputs, node.intAttr("axis", 1));
}

//===----------------------------------------------------------------------===//
// Pad
//===----------------------------------------------------------------------===//

// The amounts before and after every dimension: attributes before opset 11, inputs since; axes
// since opset 18.
static LogicalResult readPads(NodeContext &node, int64_t rank, SmallVector<int64_t> &low,
                              SmallVector<int64_t> &high) {
  std::optional<SmallVector<int64_t>> pads = node.version() == 1   ? node.intsAttr("paddings")
                                             : node.version() < 11 ? node.intsAttr("pads")
                                                                   : node.integers(1);
  if (!pads)
    return node.version() < 11 ? node.error() << "the attribute pads is missing" : failure();
  SmallVector<int64_t> axes = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  if (node.version() >= 18 && node.has(3)) {
    std::optional<SmallVector<int64_t>> given = node.integers(3);
    if (!given)
      return failure();
    axes = *given;
  }
  if (pads->size() != 2 * axes.size())
    return node.error() << "has " << pads->size() << " pads for " << axes.size() << " axes";
  low.assign(rank, 0);
  high.assign(rank, 0);
  for (auto [i, given] : llvm::enumerate(axes)) {
    std::optional<int64_t> axis = normalizedAxis(node, given, rank);
    if (!axis)
      return failure();
    low[*axis] = (*pads)[i];
    high[*axis] = (*pads)[i + axes.size()];
  }
  for (int64_t amount : *pads)
    if (std::abs(amount / 2) > kMostElements / 2)
      return node.error() << "a pad of " << amount << " elements is beyond the size of any tensor";
  return success();
}

// The positions that a padded axis of size n reads.
static LogicalResult mirroredPositions(NodeContext &node, StringRef mode, int64_t n, int64_t low,
                                       int64_t high, int64_t axis,
                                       SmallVector<int64_t> &positions) {
  int64_t widest = std::max(low, high);
  if (n == 0 && widest > 0)
    return node.error() << "cannot pad the empty axis " << axis << " in mode " << mode;
  if (mode == "reflect" && widest >= n && widest > 0)
    return node.error() << "reflects " << widest << " elements on axis " << axis
                        << ", which has only " << n << "; a reflection may be at most " << n - 1
                        << " wide";
  constexpr int64_t kMostPositions = 1 << 24; // they become a constant of indices
  if (low + n + high > kMostPositions)
    return node.error() << "pads axis " << axis << " to " << low + n + high << " elements; mode "
                        << mode << " makes at most " << kMostPositions;
  for (int64_t p = -low; p < n + high; ++p) {
    if (mode == "edge")
      positions.push_back(std::clamp<int64_t>(p, 0, n - 1));
    else if (mode == "wrap")
      positions.push_back(((p % n) + n) % n);
    else
      positions.push_back(p < 0 ? -p : p >= n ? 2 * (n - 1) - p : p);
  }
  return success();
}

static LogicalResult padByGather(NodeContext &node, Value x, StringRef mode, ArrayRef<int64_t> low,
                                 ArrayRef<int64_t> high) {
  OpBuilder &b = node.b;
  for (int64_t axis = 0, rank = low.size(); axis < rank; ++axis) {
    if (low[axis] == 0 && high[axis] == 0)
      continue;
    SmallVector<int64_t> positions, shape(shapeOf(x));
    if (failed(mirroredPositions(node, mode, shape[axis], low[axis], high[axis], axis, positions)))
      return failure();
    shape[axis] = positions.size();
    auto indexType = RankedTensorType::get({shape[axis]}, b.getI64Type());
    Value indices = arith::ConstantOp::create(
        b, node.loc, DenseElementsAttr::get(indexType, ArrayRef<int64_t>(positions)));
    x = b.createOrFold<GatherOp>(node.loc, RankedTensorType::get(shape, elementType(x)), x, indices,
                                 axis);
  }
  return node.results({x});
}

static LogicalResult convertPad(NodeContext &node) {
  OpBuilder &b = node.b;
  Value x = node.operand(0);
  SmallVector<int64_t> low, high, shape;
  if (!x || failed(readPads(node, shapeOf(x).size(), low, high)))
    return failure();
  for (auto [n, l, h] : llvm::zip_equal(shapeOf(x), low, high)) {
    shape.push_back(n + l + h);
    if (shape.back() < 0)
      return node.error() << "crops more than there is of a dimension of " << n;
  }
  std::string mode = node.stringAttr("mode", "constant");
  if (mode == "reflect" || mode == "edge" || mode == "wrap")
    return padByGather(node, x, mode, low, high);
  if (mode != "constant")
    return node.error() << "mode is " << mode << ", not constant, reflect, edge or wrap";
  Type type = elementType(x);
  TypedAttr value = isa<FloatType>(type)
                        ? TypedAttr(b.getFloatAttr(type, node.floatAttr("value", 0)))
                        : b.getZeroAttr(type);
  if (node.version() >= 11 && node.has(2)) {
    DenseElementsAttr given = node.constant(2);
    if (!given || given.getNumElements() != 1)
      return node.unsupported()
             << "constant_value must be one number known at compile time; make it an "
                "initializer or a constant";
    if (isa<FloatType>(type))
      value = b.getFloatAttr(type, *node.scalar(2));
    else if (given.getElementType() == type)
      value = *given.value_begin<IntegerAttr>();
    else
      return node.error() << "constant_value is " << given.getElementType() << ", but the data are "
                          << type;
  }
  Value scalar = arith::ConstantOp::create(b, node.loc, value);
  SmallVector<int64_t> interior(low.size(), 0);
  return node.results({b.createOrFold<PadOp>(node.loc, RankedTensorType::get(shape, type), x,
                                             scalar, low, high, interior)});
}

//===----------------------------------------------------------------------===//
// Trilu
//===----------------------------------------------------------------------===//

// upper: element (i, j) stays where j ≥ i + k; lower: where j ≤ i + k.
static LogicalResult convertTrilu(NodeContext &node) {
  OpBuilder &b = node.b;
  Value x = node.operand(0);
  if (!x)
    return failure();
  int64_t rank = shapeOf(x).size(), k = 0;
  if (rank < 2)
    return node.error() << "needs a matrix, not " << x.getType();
  if (node.has(1)) {
    std::optional<SmallVector<int64_t>> given = node.integers(1);
    if (!given)
      return failure();
    if (given->size() != 1)
      return node.error() << "k has " << given->size() << " elements, not one";
    k = given->front();
  }
  bool upper = node.intAttr("upper", 1);
  auto type = tensorType(x);
  k = std::clamp(k, -type.getDimSize(rank - 2) - 1, type.getDimSize(rank - 1) + 1);
  auto stays = [&](int64_t i, int64_t j) { return upper ? j >= i + k : j <= i + k; };
  // Masks made of ones become constants again.
  if (DenseElementsAttr elements = foldableElements(node.constant(0));
      elements && type.getNumElements() <= kMaxFoldedElements) {
    SmallVector<int64_t> strides = rowMajorStrides(type.getShape());
    auto map = [&](ArrayRef<int64_t> index) {
      return SourceElement{0, stays(index[rank - 2], index[rank - 1]) ? linearIndex(index, strides)
                                                                      : -1};
    };
    if (DenseElementsAttr folded =
            mapConstants(elements, type, map, b.getZeroAttr(type.getElementType())))
      return node.results({arith::ConstantOp::create(b, node.loc, folded)});
  }
  auto indexType = RankedTensorType::get(type.getShape(), b.getI32Type());
  Value row = IotaOp::create(b, node.loc, indexType, rank - 2),
        column = IotaOp::create(b, node.loc, indexType, rank - 1);
  Value diagonal = add(b, node.loc, row, node.splat(indexType, k));
  auto predicate = upper ? arith::CmpIPredicate::sge : arith::CmpIPredicate::sle;
  Value mask = arith::CmpIOp::create(b, node.loc, predicate, column, diagonal);
  mask = node.diagonalLike(mask, x, k);
  return node.results({arith::SelectOp::create(b, node.loc, mask, x, node.splat(type, 0))});
}

//===----------------------------------------------------------------------===//
// Sequences
//===----------------------------------------------------------------------===//

/// More parts would be more operations than any model has.
static constexpr int64_t kMostParts = 1 << 16;

static LogicalResult convertSplitToSequence(NodeContext &node) {
  std::optional<AxisOperand> whole = axisOperand(node, 0);
  if (!whole)
    return failure();
  auto [x, axis] = *whole;
  int64_t size = shapeOf(x)[axis];
  auto tooMany = [&](int64_t count) -> LogicalResult {
    if (count <= kMostParts)
      return success();
    return node.error() << "makes " << count << " parts; at most " << kMostParts
                        << " are supported";
  };
  SmallVector<int64_t> sizes;
  bool keep = node.has(1) || node.intAttr("keepdims", 1);
  if (node.has(1)) {
    std::optional<SmallVector<int64_t>> given = node.integers(1);
    if (!given)
      return failure();
    sizes = *given;
    // A scalar is the size of every part but a smaller last one.
    if (DenseElementsAttr split = node.constant(1); split && split.getType().getRank() == 0) {
      if (sizes[0] < 1)
        return node.error() << "a part has the size " << sizes[0];
      int64_t count = llvm::divideCeil(size, sizes[0]);
      if (failed(tooMany(count)))
        return failure();
      sizes = evenSizes(size, sizes[0], count);
    }
  } else {
    if (failed(tooMany(size)))
      return failure();
    sizes.assign(size, 1);
  }
  if (failed(checkSizes(node, sizes, size)))
    return failure();
  SmallVector<Value> values = parts(node, x, axis, sizes);
  if (!keep)
    for (Value &value : values) {
      SmallVector<int64_t> shape(shapeOf(value));
      shape.erase(shape.begin() + axis);
      value = reshape(node.b, node.loc, value, shape);
    }
  return node.sequenceResult(values);
}

// A constant position in a sequence of `size`, `end` included where a position may be behind the
// last.
static std::optional<int64_t> position(NodeContext &node, unsigned operand, int64_t size,
                                       bool end) {
  std::optional<SmallVector<int64_t>> given = node.integers(operand);
  if (!given)
    return std::nullopt;
  int64_t limit = size + (end ? 1 : 0);
  if (given->size() != 1 || given->front() < -size || given->front() >= limit) {
    node.error() << "has a position outside a sequence of " << size << " tensors";
    return std::nullopt;
  }
  return given->front() < 0 ? given->front() + size : given->front();
}

static LogicalResult convertSequenceAt(NodeContext &node) {
  SmallVector<Value> values(node.sequence(0));
  std::optional<int64_t> at = position(node, 1, values.size(), false);
  return at ? node.results({values[*at]}) : failure();
}

static LogicalResult convertSequenceConstruct(NodeContext &node) {
  SmallVector<Value> values;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    values.push_back(node.operand(i));
    if (!values.back())
      return failure();
  }
  return node.sequenceResult(values);
}

static LogicalResult convertSequenceEmpty(NodeContext &node) { return node.sequenceResult({}); }

static LogicalResult convertSequenceInsert(NodeContext &node) {
  SmallVector<Value> values(node.sequence(0));
  Value value = node.operand(1);
  if (!value)
    return failure();
  std::optional<int64_t> at = values.size();
  if (node.has(2) && !(at = position(node, 2, values.size(), true)))
    return failure();
  values.insert(values.begin() + *at, value);
  return node.sequenceResult(values);
}

static LogicalResult convertSequenceErase(NodeContext &node) {
  SmallVector<Value> values(node.sequence(0));
  std::optional<int64_t> at = static_cast<int64_t>(values.size()) - 1;
  if (node.has(1))
    at = position(node, 1, values.size(), false);
  if (!at)
    return failure();
  if (*at < 0)
    return node.error() << "the sequence is empty";
  values.erase(values.begin() + *at);
  return node.sequenceResult(values);
}

static LogicalResult convertSequenceLength(NodeContext &node) {
  auto type = RankedTensorType::get({}, node.b.getI64Type());
  return node.results({node.splat(type, node.sequence(0).size())});
}

static LogicalResult convertConcatFromSequence(NodeContext &node) {
  SmallVector<Value> values(node.sequence(0));
  if (!node.attr("axis"))
    return node.error() << "the attribute axis is missing";
  int64_t axis = node.intAttr("axis", 0);
  if (!node.intAttr("new_axis", 0) || values.empty())
    return joined(node, values, axis);
  std::optional<int64_t> at = normalizedAxis(node, axis, shapeOf(values[0]).size() + 1);
  if (!at)
    return failure();
  for (Value &value : values) {
    SmallVector<int64_t> shape(shapeOf(value));
    if (*at > static_cast<int64_t>(shape.size()))
      return node.error() << "stacks tensors of different ranks";
    shape.insert(shape.begin() + *at, 1);
    value = reshape(node.b, node.loc, value, shape);
  }
  return joined(node, values, *at);
}

void mpc::registerSliceHandlers(OnnxRegistry &r) {
  r.add("Slice", {1, 10, 11, 13}, convertSlice);
  r.add("Split", {1, 2, 11, 13, 18}, convertSplit);
  r.add("Concat", {1, 4, 11, 13}, convertConcat);
  r.add("Pad", {1, 2, 11, 13, 18, 19, 21, 23, 24, 25}, convertPad);
  r.add("Trilu", {14}, convertTrilu);
  r.add("SplitToSequence", {11, 24}, convertSplitToSequence);
  r.add("SequenceAt", {11}, convertSequenceAt);
  r.add("SequenceConstruct", {11}, convertSequenceConstruct);
  r.add("SequenceEmpty", {11}, convertSequenceEmpty);
  r.add("SequenceInsert", {11}, convertSequenceInsert);
  r.add("SequenceErase", {11}, convertSequenceErase);
  r.add("SequenceLength", {11}, convertSequenceLength);
  r.add("ConcatFromSequence", {11}, convertConcatFromSequence);
}
