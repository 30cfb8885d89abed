//===- ShapeHandlers.cpp - ONNX operators that only rearrange ----------------===//
//
// Reshape and its relatives, Transpose, Expand, Tile, and the operators that make shapes and
// constants. Shapes are static, so that Shape and Size are constants here and what exporters
// compute from them folds away.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/Axis.h"
#include "compiler/ops/Build.h"
#include "compiler/ops/OnnxConversion.h"

using namespace mlir;
using namespace mpc;

static Value integerConstant(NodeContext &node, ArrayRef<int64_t> values) {
  auto type = RankedTensorType::get({static_cast<int64_t>(values.size())}, node.b.getI64Type());
  return arith::ConstantOp::create(node.b, node.loc, DenseElementsAttr::get(type, values));
}

static int64_t product(ArrayRef<int64_t> sizes) { return llvm::product_of(sizes); }

// The axes with negative ones counted from the back; an error names an axis outside.
static std::optional<SmallVector<int64_t>> normalizedAxes(NodeContext &node, ArrayRef<int64_t> axes,
                                                          int64_t rank) {
  SmallVector<int64_t> result;
  for (int64_t given : axes) {
    std::optional<int64_t> axis = normalizedAxis(node, given, rank);
    if (!axis)
      return std::nullopt;
    result.push_back(*axis);
  }
  llvm::sort(result);
  if (std::adjacent_find(result.begin(), result.end()) != result.end()) {
    node.error() << "an axis is given twice";
    return std::nullopt;
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Reshape and relatives
//===----------------------------------------------------------------------===//

// Opset 5 on: the shape is the second input. 0 copies the input's dimension (unless allowzero = 1),
// -1 is what remains.
static LogicalResult convertReshape(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  std::optional<SmallVector<int64_t>> shape =
      node.version() < 5 ? node.intsAttr("shape") : node.integers(1);
  if (!shape)
    return node.version() < 5 ? node.error() << "the attribute shape is missing" : failure();
  ArrayRef<int64_t> from = shapeOf(x);
  bool allowZero = node.intAttr("allowzero", 0);
  int64_t inferred = -1, known = 1;
  for (auto [i, size] : llvm::enumerate(*shape)) {
    if (size == 0 && !allowZero) {
      if (i >= from.size())
        return node.error() << "the shape copies dimension " << i << " of an input of rank "
                            << from.size();
      size = from[i];
    }
    if (size == -1) {
      if (inferred >= 0)
        return node.error() << "the shape has more than one -1";
      inferred = i;
      continue;
    }
    if (size < 0)
      return node.error() << "the shape has the size " << size;
    known *= size;
  }
  int64_t elements = product(from);
  if (inferred >= 0) {
    if (known == 0 || elements % known)
      return node.error() << "the -1 of the shape has no value: " << elements
                          << " elements do not divide by " << known;
    (*shape)[inferred] = elements / known;
  }
  if (product(*shape) != elements)
    return node.error() << "an input of " << elements << " elements cannot have a shape of "
                        << product(*shape);
  return node.results({reshape(node.b, node.loc, x, *shape)});
}

// The axes of Squeeze and Unsqueeze: an attribute before opset 13, an input since.
static LogicalResult readAxes(NodeContext &node, std::optional<SmallVector<int64_t>> &axes) {
  if (node.version() < 13) {
    axes = node.intsAttr("axes");
    return success();
  }
  if (!node.has(1))
    return success();
  axes = node.integers(1);
  return success(axes.has_value());
}

static LogicalResult convertSqueeze(NodeContext &node) {
  Value x = node.operand(0);
  std::optional<SmallVector<int64_t>> axes;
  if (!x || failed(readAxes(node, axes)))
    return failure();
  ArrayRef<int64_t> from = shapeOf(x);
  if (axes && !(axes = normalizedAxes(node, *axes, from.size())))
    return failure();
  SmallVector<int64_t> shape;
  for (auto [i, size] : llvm::enumerate(from)) {
    bool dropped = axes ? llvm::is_contained(*axes, static_cast<int64_t>(i)) : size == 1;
    if (dropped && size != 1)
      return node.error() << "dimension " << i << " of size " << size << " cannot be squeezed";
    if (!dropped)
      shape.push_back(size);
  }
  return node.results({reshape(node.b, node.loc, x, shape)});
}

static LogicalResult convertUnsqueeze(NodeContext &node) {
  Value x = node.operand(0);
  std::optional<SmallVector<int64_t>> axes;
  if (!x || failed(readAxes(node, axes)))
    return failure();
  if (!axes)
    return node.error() << "axes are missing";
  int64_t rank = shapeOf(x).size() + axes->size();
  if (!(axes = normalizedAxes(node, *axes, rank)))
    return failure();
  SmallVector<int64_t> shape;
  for (int64_t i = 0, next = 0; i < rank; ++i)
    shape.push_back(llvm::is_contained(*axes, i) ? 1 : shapeOf(x)[next++]);
  return node.results({reshape(node.b, node.loc, x, shape)});
}

static LogicalResult convertFlatten(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  ArrayRef<int64_t> from = shapeOf(x);
  int64_t rank = from.size(), axis = node.intAttr("axis", 1);
  if (axis < -rank || axis > rank)
    return node.error() << "axis " << axis << " is outside a tensor of rank " << rank;
  if (axis < 0)
    axis += rank;
  return node.results({reshape(node.b, node.loc, x,
                               {product(from.take_front(axis)), product(from.drop_front(axis))})});
}

static LogicalResult convertIdentity(NodeContext &node) {
  if (!node.op.getInputs().empty() && isa<onnx::SequenceType>(node.op.getInputs()[0].getType()))
    return node.sequenceResult(llvm::to_vector(node.sequence(0)));
  Value x = node.operand(0);
  return x ? node.results({x}) : failure();
}

//===----------------------------------------------------------------------===//
// Transpose, DepthToSpace, SpaceToDepth
//===----------------------------------------------------------------------===//

// Where only dimensions of size 1 move, the elements stay in order: a reshape, which moves no data.
static Value transposeOrReshape(NodeContext &node, Value x, ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> moving, shape;
  for (int64_t p : permutation) {
    shape.push_back(shapeOf(x)[p]);
    if (shapeOf(x)[p] != 1)
      moving.push_back(p);
  }
  if (llvm::is_sorted(moving))
    return reshape(node.b, node.loc, x, shape);
  return transpose(node.b, node.loc, x, permutation);
}

static LogicalResult convertTranspose(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  int64_t rank = shapeOf(x).size();
  SmallVector<int64_t> reversed = llvm::to_vector(llvm::reverse(llvm::seq<int64_t>(0, rank)));
  SmallVector<int64_t> permutation = node.intsAttr("perm").value_or(reversed);
  SmallVector<int64_t> sorted = permutation;
  llvm::sort(sorted);
  if (sorted != llvm::to_vector(llvm::seq<int64_t>(0, rank)))
    return node.error() << "perm is no permutation of the input's " << rank << " dimensions";
  return node.results({transposeOrReshape(node, x, permutation)});
}

// DCR: [N, b, b, C/b², H, W] → [N, C/b², H, b, W, b]; CRD: [N, C/b², b, b, H, W] → the same.
static LogicalResult convertDepthToSpace(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  int64_t block = node.intAttr("blocksize", 0);
  std::string mode = node.stringAttr("mode", "DCR");
  ArrayRef<int64_t> s = shapeOf(x);
  if (s.size() != 4 || block < 1 || s[1] % (block * block))
    return node.error()
           << "needs a tensor of rank 4 whose channels divide by blocksize²; blocksize is "
           << block;
  if (mode != "DCR" && mode != "CRD")
    return node.error() << "mode is " << mode << ", not DCR or CRD";
  int64_t n = s[0], c = s[1] / (block * block), h = s[2], w = s[3];
  bool depthFirst = mode == "DCR";
  SmallVector<int64_t> split = depthFirst ? SmallVector<int64_t>{n, block, block, c, h, w}
                                          : SmallVector<int64_t>{n, c, block, block, h, w};
  SmallVector<int64_t> order =
      depthFirst ? SmallVector<int64_t>{0, 3, 4, 1, 5, 2} : SmallVector<int64_t>{0, 1, 4, 2, 5, 3};
  Value y = transposeOrReshape(node, reshape(node.b, node.loc, x, split), order);
  return node.results({reshape(node.b, node.loc, y, {n, c, h * block, w * block})});
}

// [N, C, H/b, b, W/b, b] → [N, b, b, C, H/b, W/b] for DCR, the only order before opset 28; [N, C,
// b, b, H/b, W/b] for CRD.
static LogicalResult convertSpaceToDepth(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  int64_t block = node.intAttr("blocksize", 0);
  ArrayRef<int64_t> s = shapeOf(x);
  if (s.size() != 4 || block < 1 || s[2] % block || s[3] % block)
    return node.error()
           << "needs a tensor of rank 4 whose height and width divide by blocksize; blocksize is "
           << block;
  std::string mode = node.stringAttr("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    return node.error() << "mode is " << mode << ", not DCR or CRD";
  int64_t n = s[0], c = s[1], h = s[2] / block, w = s[3] / block;
  SmallVector<int64_t> order = mode == "DCR" ? SmallVector<int64_t>{0, 3, 5, 1, 2, 4}
                                             : SmallVector<int64_t>{0, 1, 3, 5, 2, 4};
  Value y =
      transposeOrReshape(node, reshape(node.b, node.loc, x, {n, c, h, block, w, block}), order);
  return node.results({reshape(node.b, node.loc, y, {n, c * block * block, h, w})});
}

//===----------------------------------------------------------------------===//
// Expand, Tile
//===----------------------------------------------------------------------===//

static LogicalResult convertExpand(NodeContext &node) {
  Value x = node.operand(0);
  std::optional<SmallVector<int64_t>> shape = node.integers(1);
  if (!x || !shape)
    return failure();
  std::optional<SmallVector<int64_t>> result = broadcastShape(shapeOf(x), *shape);
  if (!result)
    return node.error() << "the input " << x.getType() << " does not broadcast to the shape given";
  return node.results({broadcastTo(node.b, node.loc, x, *result)});
}

// A repeated dimension of size n becomes [repeats, n] by a broadcast, then one of size repeats · n.
static LogicalResult convertTile(NodeContext &node) {
  Value x = node.operand(0);
  std::optional<SmallVector<int64_t>> repeats = node.integers(1);
  if (!x || !repeats)
    return failure();
  ArrayRef<int64_t> from = shapeOf(x);
  if (repeats->size() != from.size())
    return node.error() << "has " << repeats->size() << " repeats for an input of rank "
                        << from.size();
  SmallVector<int64_t> dimensions, wide, result;
  for (auto [size, repeat] : llvm::zip_equal(from, *repeats)) {
    if (repeat < 0)
      return node.error() << "repeats has the negative value " << repeat;
    if (repeat != 1)
      wide.push_back(repeat);
    dimensions.push_back(wide.size());
    wide.push_back(size);
    result.push_back(size * repeat);
  }
  return node.results(
      {reshape(node.b, node.loc, broadcast(node.b, node.loc, x, dimensions, wide), result)});
}

//===----------------------------------------------------------------------===//
// Shape, Size, constants
//===----------------------------------------------------------------------===//

static LogicalResult convertShape(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  ArrayRef<int64_t> shape = shapeOf(x);
  int64_t rank = shape.size();
  auto clamp = [&](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  int64_t start = clamp(node.intAttr("start", 0)), end = clamp(node.intAttr("end", rank));
  return node.results(
      {integerConstant(node, shape.slice(start, std::max<int64_t>(end - start, 0)))});
}

static LogicalResult convertSize(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  return node.results(
      {reshape(node.b, node.loc, integerConstant(node, {product(shapeOf(x))}), {})});
}

// A tensor attribute as a constant; bytes of large tensors are an argument's business, never an
// attribute's.
static DenseElementsAttr tensorAttribute(NodeContext &node, StringRef name) {
  return dyn_cast_if_present<DenseElementsAttr>(node.attr(name));
}

static LogicalResult convertConstant(NodeContext &node) {
  OpBuilder &b = node.b;
  DenseElementsAttr elements = tensorAttribute(node, "value");
  if (!elements)
    if (Attribute value = node.attr("value_int"))
      elements = DenseElementsAttr::get(RankedTensorType::get({}, b.getI64Type()),
                                        cast<IntegerAttr>(value).getInt());
  if (!elements)
    if (Attribute value = node.attr("value_float"))
      elements =
          DenseElementsAttr::get(RankedTensorType::get({}, b.getF32Type()),
                                 b.getF32FloatAttr(node.floatAttr("value_float", 0)).getValue());
  if (!elements)
    if (std::optional<SmallVector<int64_t>> values = node.intsAttr("value_ints"))
      return node.results({integerConstant(node, *values)});
  if (!elements)
    if (auto values = dyn_cast_if_present<DenseF32ArrayAttr>(node.attr("value_floats")))
      elements = DenseElementsAttr::get(RankedTensorType::get({values.size()}, b.getF32Type()),
                                        values.asArrayRef());
  if (!elements)
    return node.unsupported() << "holds no numbers: strings and sparse tensors are not supported";
  return node.results({arith::ConstantOp::create(b, node.loc, elements)});
}

static LogicalResult convertConstantOfShape(NodeContext &node) {
  std::optional<SmallVector<int64_t>> shape = node.integers(0);
  if (!shape)
    return failure();
  for (int64_t size : *shape)
    if (size < 0)
      return node.error() << "the shape has the size " << size;
  DenseElementsAttr value = tensorAttribute(node, "value");
  if (!value)
    value = DenseElementsAttr::get(RankedTensorType::get({1}, node.b.getF32Type()), 0.0f);
  if (value.getNumElements() != 1)
    return node.error() << "value has " << value.getNumElements() << " elements, not one";
  auto type = RankedTensorType::get(*shape, value.getElementType());
  return node.results({arith::ConstantOp::create(
      node.b, node.loc, DenseElementsAttr::get(type, *value.value_begin<Attribute>()))});
}

// y[i, j] = 1 where j = i + k.
static LogicalResult convertEyeLike(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  if (shapeOf(x).size() != 2)
    return node.error() << "needs a matrix, not " << x.getType();
  if (node.op->getNumResults() != 1 || !isa<RankedTensorType>(node.op->getResult(0).getType()))
    return node.error() << "the result's type is not known";
  Type type = cast<RankedTensorType>(node.op->getResult(0).getType()).getElementType();
  auto indexType = RankedTensorType::get(shapeOf(x), node.b.getI64Type());
  Value row = IotaOp::create(node.b, node.loc, indexType, 0),
        column = IotaOp::create(node.b, node.loc, indexType, 1);
  int64_t k = node.intAttr("k", 0);
  Value diagonal = add(node.b, node.loc, row, node.splat(indexType, k));
  Value equal = arith::CmpIOp::create(node.b, node.loc, arith::CmpIPredicate::eq, column, diagonal);
  return node.results({node.diagonalLike(castTo(node.b, node.loc, equal, type), x, k)});
}

void mpc::registerShapeHandlers(OnnxRegistry &r) {
  r.add("Reshape", {1, 5, 13, 14, 19, 21, 23, 24, 25}, convertReshape);
  r.add("Squeeze", {1, 11, 13, 21, 23, 24, 25}, convertSqueeze);
  r.add("Unsqueeze", {1, 11, 13, 21, 23, 24, 25}, convertUnsqueeze);
  r.add("Flatten", {1, 9, 11, 13, 21, 23, 24, 25}, convertFlatten);
  r.add("Identity", {1, 13, 14, 16, 19, 21, 23, 24, 25}, convertIdentity);
  r.add("Transpose", {1, 13, 21, 23, 24, 25}, convertTranspose);
  r.add("DepthToSpace", {1, 11, 13}, convertDepthToSpace);
  r.add("SpaceToDepth", {1, 13}, convertSpaceToDepth);
  r.add("Expand", {8, 13}, convertExpand);
  r.add("Tile", {6, 13}, convertTile);
  r.add("Shape", {1, 13, 15, 19, 21, 23, 24, 25}, convertShape);
  r.add("Size", {1, 13, 19, 21, 23, 24, 25}, convertSize);
  r.add("Constant", {1, 9, 11, 12, 13, 19, 21, 23, 24, 25}, convertConstant);
  r.add("ConstantOfShape", {9, 20, 21, 23, 24, 25}, convertConstantOfShape);
  r.add("EyeLike", {9, 22}, convertEyeLike);
}
