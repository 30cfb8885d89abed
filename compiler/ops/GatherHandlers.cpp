//===- GatherHandlers.cpp - ONNX operators that read and write by index tables --------===//
//
// Gather, GatherElements, GatherND, ScatterElements, ScatterND, OneHot and Range. Where an
// operator has an index for every element, the tensor is flattened and the indices become
// positions in it, so that one gather and one scatter_add serve all.
//
//===------------------------------------------------------------------------------===//

#include "compiler/ops/Axis.h"
#include "compiler/ops/BatchAnalysis.h"
#include "compiler/ops/Build.h"
#include "compiler/ops/ConstantFold.h"
#include "compiler/ops/OnnxConversion.h"
#include "compiler/ops/Unsigned.h"

using namespace mlir;
using namespace mpc;

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

// Index inputs are checked when they are read: mpc.index_limit of the module tells the trainer the
// size of the smallest table that a graph input indexes.
static void limitIndexInput(NodeContext &node, Value indices, int64_t size) {
  while (Operation *op = indices.getDefiningOp()) {
    if (!isa<arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp, arith::FPToSIOp, ReshapeOp,
             BroadcastOp, TransposeOp>(op))
      return;
    indices = op->getOperand(0);
  }
  auto argument = cast<BlockArgument>(indices);
  auto function = dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
  auto module = function ? function->getParentOfType<ModuleOp>() : ModuleOp();
  if (!module)
    return;
  auto role = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), MpcDialect::kRoleAttr);
  auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), MpcDialect::kNameAttr);
  if (!role || !name || role.getValue() != "input")
    return;
  NamedAttrList limits;
  if (auto known = module->getAttrOfType<DictionaryAttr>("mpc.index_limit"))
    limits = known;
  if (auto known = dyn_cast_if_present<IntegerAttr>(limits.get(name)))
    size = std::min(size, known.getInt());
  limits.set(name, node.b.getI64IntegerAttr(size));
  module->setAttr("mpc.index_limit", limits.getDictionary(node.b.getContext()));
}

// Indices in [0, size): constant ones are resolved here, and checked; others get the size added
// where they are negative.
static Value resolvedIndices(NodeContext &node, unsigned operand, int64_t size) {
  OpBuilder &b = node.b;
  Value indices = node.operand(operand);
  if (!indices)
    return {};
  if (!elementType(indices).isSignlessInteger()) {
    node.error() << "indices have the element type " << elementType(indices)
                 << ", not an integer type";
    return {};
  }
  if (DenseElementsAttr elements = node.constant(operand)) {
    SmallVector<APInt> values;
    for (const APInt &value : elements.getValues<APInt>()) {
      int64_t index = value.getSExtValue();
      if (index < -size || index >= size) {
        node.error() << "index " << index << " is outside an axis of " << size;
        return {};
      }
      values.push_back(index < 0 ? value + size : value);
    }
    if (values.size() > 0)
      return arith::ConstantOp::create(b, node.loc,
                                       DenseElementsAttr::get(elements.getType(), values));
    return indices;
  }
  limitIndexInput(node, indices, size);
  if (elementType(indices).getIntOrFloatBitWidth() < 32)
    indices = castTo(b, node.loc, indices, b.getI32Type());
  Value zero = node.splat(indices.getType(), 0);
  Value negative = arith::CmpIOp::create(b, node.loc, arith::CmpIPredicate::slt, indices, zero);
  Value fromBack = add(b, node.loc, indices, node.splat(indices.getType(), size));
  return arith::SelectOp::create(b, node.loc, negative, fromBack, indices);
}

// An index that is to become part of a position: one outside its axis names the nearest element, as
// mpc.gather has it, and not one of the next row.
static Value nearestInside(NodeContext &node, Value index, int64_t size) {
  if (matchPattern(index, m_Constant()))
    return index; // has been checked
  index = node.b.createOrFold<arith::MaxSIOp>(node.loc, index, node.splat(index.getType(), 0));
  return node.b.createOrFold<arith::MinSIOp>(
      node.loc, index, node.splat(index.getType(), static_cast<double>(size - 1)));
}

// Positions i along `axis` of a tensor of shape `shape`, times `factor`; constants where what they
// are added to is constant too.
static Value axisPositions(NodeContext &node, ArrayRef<int64_t> shape, int64_t axis, int64_t factor,
                           bool constant = false) {
  auto type = RankedTensorType::get(shape, node.b.getI64Type());
  if (constant && type.getNumElements() <= kMaxFoldedElements) {
    SmallVector<int64_t> values;
    forEachIndex(shape, [&](ArrayRef<int64_t> index) { values.push_back(index[axis] * factor); });
    return arith::ConstantOp::create(node.b, node.loc,
                                     DenseElementsAttr::get(type, ArrayRef<int64_t>(values)));
  }
  Value iota = IotaOp::create(node.b, node.loc, type, axis);
  return factor == 1 ? iota : mul(node.b, node.loc, iota, node.splat(type, factor));
}

static Value gathered(NodeContext &node, Value table, Value indices, int64_t axis) {
  SmallVector<int64_t> shape(shapeOf(table).take_front(axis));
  llvm::append_range(shape, shapeOf(indices));
  llvm::append_range(shape, shapeOf(table).drop_front(axis + 1));
  return node.b.createOrFold<GatherOp>(node.loc, RankedTensorType::get(shape, elementType(table)),
                                       table, indices, axis);
}

//===----------------------------------------------------------------------===//
// Gather
//===----------------------------------------------------------------------===//

// Constant indices that are evenly spaced are a slice, whose gradient is a pad: no table of
// indices, no atomic sums.
static Value gatherAsSlice(NodeContext &node, Value x, DenseElementsAttr indices, int64_t axis) {
  SmallVector<int64_t> values;
  for (const APInt &value : indices.getValues<APInt>())
    values.push_back(value.getSExtValue() + (value.isNegative() ? shapeOf(x)[axis] : 0));
  if (values.empty())
    return {};
  int64_t step = values.size() > 1 ? values[1] - values[0] : 1;
  if (step == 0)
    return {};
  for (size_t i = 1; i < values.size(); ++i)
    if (values[i] - values[i - 1] != step)
      return {};
  SmallVector<int64_t> shape(shapeOf(x)), starts(shape.size(), 0), steps(shape.size(), 1);
  shape[axis] = values.size();
  starts[axis] = values[0];
  steps[axis] = step;
  Value part = slice(node.b, node.loc, x, starts, steps, shape);
  SmallVector<int64_t> result(shapeOf(x).take_front(axis));
  llvm::append_range(result, indices.getType().getShape());
  llvm::append_range(result, shapeOf(x).drop_front(axis + 1));
  return reshape(node.b, node.loc, part, result);
}

static LogicalResult convertGather(NodeContext &node) {
  std::optional<AxisOperand> table = axisOperand(node, 0);
  if (!table)
    return failure();
  auto [x, axis] = *table;
  Value indices = resolvedIndices(node, 1, shapeOf(x)[axis]);
  if (!indices)
    return failure();
  if (DenseElementsAttr elements = node.constant(1))
    if (Value part = gatherAsSlice(node, x, elements, axis))
      return node.results({part});
  return node.results({gathered(node, x, indices, axis)});
}

// Element (i, j) of the indices stands for element (index, j) of x (axis 0): position index ·
// stride of the axis + the strides of the other dimensions times the own index there.
static Value elementPositions(NodeContext &node, Value indices, ArrayRef<int64_t> shape,
                              int64_t axis) {
  OpBuilder &b = node.b;
  SmallVector<int64_t> strides = rowMajorStrides(shape);
  bool constant = matchPattern(indices, m_Constant());
  Value positions = nearestInside(node, castTo(b, node.loc, indices, b.getI64Type()), shape[axis]);
  if (strides[axis] != 1)
    positions = mul(b, node.loc, positions, node.splat(positions.getType(), strides[axis]));
  for (int64_t d = 0, rank = shape.size(); d < rank; ++d)
    if (d != axis && shapeOf(indices)[d] > 1)
      positions = add(b, node.loc, positions,
                      axisPositions(node, shapeOf(indices), d, strides[d], constant));
  return reshape(b, node.loc, positions, {tensorType(indices).getNumElements()});
}

// Reads the indices of GatherElements and ScatterElements; null after an error.
static Value readElementPositions(NodeContext &node, Value x, int64_t axis) {
  Value indices = resolvedIndices(node, 1, shapeOf(x)[axis]);
  if (!indices)
    return {};
  ArrayRef<int64_t> shape = shapeOf(x), indexShape = shapeOf(indices);
  bool fits = shape.size() == indexShape.size();
  for (int64_t d = 0, rank = shape.size(); fits && d < rank; ++d)
    fits = d == axis || indexShape[d] <= shape[d];
  if (!fits) {
    node.error() << "indices of type " << indices.getType() << " do not fit into " << x.getType();
    return {};
  }
  return elementPositions(node, indices, shape, axis);
}

static Value flat(NodeContext &node, Value v) {
  return reshape(node.b, node.loc, v, {tensorType(v).getNumElements()});
}

// A gather from the flattened table, where every position is in its own sample's part if the
// samples are along the same `kept` axes of table and indices.
static Value gatheredFlat(NodeContext &node, Value table, Value positions,
                          function_ref<bool(int64_t)> kept) {
  Value y = gathered(node, table, positions, 0);
  auto gather = y.getDefiningOp<GatherOp>();
  if (gather && node.sameSamples(0, 1, kept))
    gather->setDiscardableAttr(kSameSamplesAttr, node.b.getUnitAttr());
  return y;
}

static LogicalResult convertGatherElements(NodeContext &node) {
  std::optional<AxisOperand> table = axisOperand(node, 0);
  if (!table)
    return failure();
  auto [x, axis] = *table;
  Value positions = readElementPositions(node, x, axis);
  if (!positions)
    return failure();
  Value y = gatheredFlat(node, flat(node, x), positions, [&](int64_t d) { return d != axis; });
  return node.results({reshape(node.b, node.loc, y, shapeOf(node.operand(1)))});
}

// Constant tuples of indices are inside the dimensions that they index, `sizes`.
static bool checkTuples(NodeContext &node, unsigned operand, ArrayRef<int64_t> sizes) {
  DenseElementsAttr elements = node.constant(operand);
  if (!elements || sizes.empty())
    return true;
  size_t which = 0;
  for (const APInt &value : elements.getValues<APInt>()) {
    int64_t index = value.getSExtValue(), size = sizes[which++ % sizes.size()];
    if (index < -size || index >= size) {
      node.error() << "index " << index << " is outside an axis of " << size;
      return false;
    }
  }
  return true;
}

// The last dimension of the indices holds an index for each of the dimensions from `batchDims` on;
// the first `batchDims` dimensions of x and of the indices go together. Returns positions in the
// first batchDims + K dimensions of x, flattened.
static Value tuplePositions(NodeContext &node, Value x, unsigned operand, int64_t batchDims,
                            SmallVector<int64_t> &shape) {
  OpBuilder &b = node.b;
  Value indices = node.operand(operand);
  if (!indices)
    return {};
  ArrayRef<int64_t> from = shapeOf(x), indexShape = shapeOf(indices);
  if (indexShape.empty() || !elementType(indices).isSignlessInteger() || batchDims < 0 ||
      batchDims >= static_cast<int64_t>(indexShape.size()) ||
      batchDims + indexShape.back() > static_cast<int64_t>(from.size()) ||
      from.take_front(batchDims) != indexShape.take_front(batchDims)) {
    node.error() << "indices of type " << indices.getType() << " do not fit " << x.getType()
                 << " with batch_dims = " << batchDims;
    return {};
  }
  shape.assign(indexShape.begin(), indexShape.end() - 1);
  int64_t tuple = indexShape.back();
  ArrayRef<int64_t> sizes = from.slice(batchDims, tuple);
  if (!checkTuples(node, operand, sizes))
    return {};
  // One limit holds for all numbers of an input: that of the largest dimension.
  if (!node.constant(operand) && tuple > 0)
    limitIndexInput(node, indices, *llvm::max_element(sizes));
  ArrayRef<int64_t> indexed = from.take_front(batchDims + tuple);
  SmallVector<int64_t> strides = rowMajorStrides(indexed);
  auto type = RankedTensorType::get(shape, b.getI64Type());
  Value positions = node.splat(type, 0);
  for (int64_t d = 0; d < batchDims; ++d)
    positions = add(b, node.loc, positions,
                    axisPositions(node, shape, d, strides[d], matchPattern(indices, m_Constant())));
  for (int64_t k = 0; k < tuple; ++k) {
    SmallVector<int64_t> starts(indexShape.size(), 0), steps(indexShape.size(), 1),
        part(indexShape);
    starts.back() = k;
    part.back() = 1;
    Value index = reshape(b, node.loc, slice(b, node.loc, indices, starts, steps, part), shape);
    index = castTo(b, node.loc, index, b.getI64Type());
    Value negative = b.createOrFold<arith::CmpIOp>(node.loc, arith::CmpIPredicate::slt, index,
                                                   node.splat(type, 0));
    Value fromBack = add(b, node.loc, index, node.splat(type, from[batchDims + k]));
    index = b.createOrFold<arith::SelectOp>(node.loc, negative, fromBack, index);
    index = nearestInside(node, index, from[batchDims + k]);
    positions = add(b, node.loc, positions,
                    mul(b, node.loc, index, node.splat(type, strides[batchDims + k])));
  }
  return positions;
}

// x as [indexed elements, rest...].
static Value tupleTable(NodeContext &node, Value x, int64_t indexedDims) {
  SmallVector<int64_t> shape(shapeOf(x).drop_front(indexedDims));
  shape.insert(shape.begin(), llvm::product_of(shapeOf(x).take_front(indexedDims)));
  return reshape(node.b, node.loc, x, shape);
}

// What the rows are where all samples are there.
static Value rowsForWholeBatch(MaskSamplesOp rows) {
  auto select = rows.getInput().getDefiningOp<arith::SelectOp>();
  return select ? select.getTrueValue() : rows.getInput();
}

// The first index of every tuple is the number of its own row, as in x[arange(N), i]: a constant
// column that the tuples have been joined from.
static bool startsWithOwnRow(Value tuples) {
  while (Operation *op = tuples.getDefiningOp()) {
    int64_t last = shapeOf(tuples).size() - 1;
    if (auto concat = dyn_cast<ConcatOp>(op); concat && int64_t(concat.getAxis()) == last)
      tuples = concat.getInputs().front();
    else if (auto rows = dyn_cast<MaskSamplesOp>(op); rows && rows.getKeep())
      tuples = rowsForWholeBatch(rows);
    else if (isa<arith::ExtSIOp, arith::ExtUIOp>(op))
      tuples = op->getOperand(0);
    else
      break;
  }
  DenseIntElementsAttr column;
  ArrayRef<int64_t> shape = shapeOf(tuples);
  if (!matchPattern(tuples, m_Constant(&column)) || shape.size() < 2)
    return false;
  int64_t each = llvm::product_of(shape.drop_front());
  return each > 0 && llvm::all_of(llvm::enumerate(column.getValues<APInt>()), [&](auto element) {
           int64_t i = element.index();
           return i % shape.back() != 0 || element.value().getSExtValue() == i / each;
         });
}

static LogicalResult convertGatherND(NodeContext &node) {
  Value x = node.operand(0);
  SmallVector<int64_t> shape;
  int64_t batchDims = node.intAttr("batch_dims", 0);
  Value positions = x ? tuplePositions(node, x, 1, batchDims, shape) : Value();
  if (!positions)
    return failure();
  Value tuples = node.operand(1);
  int64_t indexed = batchDims + shapeOf(tuples).back();
  int64_t own = batchDims == 0 && startsWithOwnRow(tuples) ? 1 : batchDims;
  return node.results({gatheredFlat(node, tupleTable(node, x, indexed), positions,
                                    [&](int64_t d) { return d < own; })});
}

//===----------------------------------------------------------------------===//
// Scatter
//===----------------------------------------------------------------------===//

// Constant positions that are all different: every row of the table knows the update it gets, so
// that the result is a gather of the updates, which has a gradient. Null where a position comes
// twice.
static Value scatteredByGather(NodeContext &node, Value table, DenseElementsAttr positions,
                               Value updates, bool add) {
  OpBuilder &b = node.b;
  int64_t rows = shapeOf(table)[0], count = positions.getNumElements(), next = 0;
  SmallVector<int64_t> source(rows, 0);
  SmallVector<bool> hit(rows, false);
  for (const APInt &position : positions.getValues<APInt>()) {
    int64_t row = position.getSExtValue();
    if (row < 0 || row >= rows || hit[row])
      return {};
    hit[row] = true;
    source[row] = next++;
  }
  auto indexType = RankedTensorType::get({rows}, b.getI64Type()),
       maskType = RankedTensorType::get({rows}, b.getI1Type());
  Value indices = arith::ConstantOp::create(
      b, node.loc, DenseElementsAttr::get(indexType, ArrayRef<int64_t>(source)));
  Value mask =
      arith::ConstantOp::create(b, node.loc, DenseElementsAttr::get(maskType, ArrayRef<bool>(hit)));
  SmallVector<int64_t> shape(shapeOf(table).drop_front());
  shape.insert(shape.begin(), count);
  Value rowsOfUpdates = gathered(node, reshape(b, node.loc, updates, shape), indices, 0);
  Value wide = broadcast(b, node.loc, mask, {0}, shapeOf(table));
  Value otherwise = add ? node.splat(table.getType(), 0) : table;
  Value written = arith::SelectOp::create(b, node.loc, wide, rowsOfUpdates, otherwise);
  return add ? mpc::add(b, node.loc, table, written) : written;
}

// reduction = add: table + Σ updates. none: where an index points, the update (ONNX forbids
// pointing twice), else the table.
static Value scattered(NodeContext &node, Value table, Value positions, Value updates) {
  OpBuilder &b = node.b;
  // Sums of narrow integers, and bool as 0 and 1, are formed in 32 bits.
  Type type = elementType(table);
  Type sum = isa<FloatType>(type)                ? computeType(type)
             : type.getIntOrFloatBitWidth() < 32 ? Type(b.getI32Type())
                                                 : type;
  std::string reduction = node.stringAttr("reduction", "none");
  if (reduction != "none" && reduction != "add") {
    node.unsupported() << "reduction " << reduction << " is not supported; none and add are";
    return {};
  }
  if (elementType(updates) != type) {
    node.error() << "updates of type " << updates.getType() << " cannot be scattered into "
                 << table.getType();
    return {};
  }
  DenseElementsAttr constant;
  if (matchPattern(positions, m_Constant(&constant)) && constant.getNumElements() > 0 &&
      shapeOf(table)[0] <= kMaxFoldedElements)
    if (Value y = scatteredByGather(node, table, constant, updates, reduction == "add"))
      return y;
  auto sumType = RankedTensorType::get(shapeOf(table), sum);
  Value wide = castTo(b, node.loc, updates, sum);
  if (reduction == "add")
    return castTo(b, node.loc,
                  ScatterAddOp::create(b, node.loc, sumType, positions, wide,
                                       castTo(b, node.loc, table, sum), 0),
                  type);
  Value written = ScatterAddOp::create(b, node.loc, sumType, positions, wide, Value(), 0);
  auto countType = RankedTensorType::get({shapeOf(table)[0]}, b.getI32Type());
  Value ones = node.splat(RankedTensorType::get(shapeOf(positions), b.getI32Type()), 1);
  Value count = ScatterAddOp::create(b, node.loc, countType, positions, ones, Value(), 0);
  Value hit =
      arith::CmpIOp::create(b, node.loc, arith::CmpIPredicate::ne, count, node.splat(countType, 0));
  return arith::SelectOp::create(b, node.loc, broadcast(b, node.loc, hit, {0}, shapeOf(table)),
                                 castTo(b, node.loc, written, type), table);
}

static LogicalResult convertScatterElements(NodeContext &node) {
  std::optional<AxisOperand> table = axisOperand(node, 0);
  Value updates = node.operand(2);
  if (!table || !updates)
    return failure();
  auto [x, axis] = *table;
  Value positions = readElementPositions(node, x, axis);
  if (!positions)
    return failure();
  if (shapeOf(updates) != shapeOf(node.operand(1)))
    return node.error() << "updates of type " << updates.getType()
                        << " do not have the indices' shape";
  Value y = scattered(node, flat(node, x), positions, flat(node, updates));
  return y ? node.results({reshape(node.b, node.loc, y, shapeOf(x))}) : failure();
}

static LogicalResult convertScatterND(NodeContext &node) {
  Value x = node.operand(0), updates = node.operand(2);
  SmallVector<int64_t> shape;
  Value positions = x && updates ? tuplePositions(node, x, 1, 0, shape) : Value();
  if (!positions)
    return failure();
  Value table = tupleTable(node, x, shapeOf(node.operand(1)).back());
  llvm::append_range(shape, shapeOf(table).drop_front());
  if (shapeOf(updates) != ArrayRef<int64_t>(shape))
    return node.error() << "updates of type " << updates.getType() << " do not fit the indices";
  Value y = scattered(node, table, positions, updates);
  return y ? node.results({reshape(node.b, node.loc, y, shapeOf(x))}) : failure();
}

//===----------------------------------------------------------------------===//
// OneHot, Range
//===----------------------------------------------------------------------===//

// y[..., d, ...] = index = d ? on : off; an index outside [-depth, depth) is off everywhere.
static LogicalResult convertOneHot(NodeContext &node) {
  OpBuilder &b = node.b;
  Value indices = node.operand(0), values = node.operand(2);
  std::optional<double> depth = node.scalar(1);
  if (!indices || !values)
    return failure();
  if (!depth || !(*depth >= 1 && *depth <= 0x1p40))
    return node.unsupported()
           << "depth must be one positive number known at compile time, at most 2^40";
  if (tensorType(values).getNumElements() != 2)
    return node.error() << "values must be two numbers, not " << values.getType();
  int64_t size = static_cast<int64_t>(*depth);
  SmallVector<int64_t> shape(shapeOf(indices)), dimensions;
  std::optional<int64_t> axis = normalizedAxis(node, node.intAttr("axis", -1), shape.size() + 1);
  if (!axis)
    return failure();
  shape.insert(shape.begin() + *axis, size);
  for (int64_t d = 0, rank = shape.size(); d < rank; ++d)
    if (d != *axis)
      dimensions.push_back(d);
  indices = castTo(b, node.loc, indices, b.getI64Type());
  Value negative = b.createOrFold<arith::CmpIOp>(node.loc, arith::CmpIPredicate::slt, indices,
                                                 node.splat(indices.getType(), 0));
  Value fromBack = add(b, node.loc, indices, node.splat(indices.getType(), size));
  if (!isUint64(node, 0))
    indices = b.createOrFold<arith::SelectOp>(node.loc, negative, fromBack, indices);
  Value wide = broadcast(b, node.loc, indices, dimensions, shape);
  Value hot = arith::CmpIOp::create(b, node.loc, arith::CmpIPredicate::eq, wide,
                                    axisPositions(node, shape, *axis, 1));
  values = reshape(b, node.loc, values, {2});
  auto value = [&](int64_t which) {
    return broadcastScalar(b, node.loc,
                           reshape(b, node.loc, slice(b, node.loc, values, {which}, {1}, {1}), {}),
                           shape);
  };
  Value on = value(1), off = value(0);
  return node.results({arith::SelectOp::create(b, node.loc, hot, on, off)});
}

// Integers are computed with as integers: above 2^53 a double skips some.
static LogicalResult integerRange(NodeContext &node) {
  std::optional<SmallVector<int64_t>> parts[3];
  for (unsigned i = 0; i < 3; ++i) {
    parts[i] = node.integers(i);
    if (!parts[i])
      return failure();
    if (parts[i]->size() != 1)
      return node.error() << "operand " << i << " must be one number";
  }
  int64_t start = parts[0]->front(), delta = parts[2]->front();
  if (delta == 0)
    return node.error() << "delta is 0";
  __int128 distance = static_cast<__int128>(parts[1]->front()) - start, step = delta;
  if (step < 0)
    distance = -distance, step = -step;
  __int128 count = distance <= 0 ? 0 : (distance - 1) / step + 1;
  if (count > kMaxFoldedElements)
    return node.error() << "makes " << static_cast<double>(count) << " elements; at most "
                        << kMaxFoldedElements << " are supported";
  SmallVector<APInt> values;
  Type type = elementType(node.operand(0));
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i)
    values.push_back(APInt(type.getIntOrFloatBitWidth(),
                           static_cast<uint64_t>(start) + static_cast<uint64_t>(i) * delta,
                           /*isSigned=*/true, /*implicitTrunc=*/true));
  auto rangeType = RankedTensorType::get({static_cast<int64_t>(count)}, type);
  return node.results(
      {arith::ConstantOp::create(node.b, node.loc, DenseElementsAttr::get(rangeType, values))});
}

// y[i] = start + i · delta, max(⌈(limit - start) / delta⌉, 0) elements.
static LogicalResult convertRange(NodeContext &node) {
  OpBuilder &b = node.b;
  if (Value first = node.has(0) ? node.operand(0) : Value();
      first && isa<IntegerType>(elementType(first)))
    return integerRange(node);
  std::optional<double> start = node.scalar(0), limit = node.scalar(1), delta = node.scalar(2);
  if (!start || !limit || !delta || *delta == 0)
    return node.unsupported()
           << "start, limit and delta must be known at compile time, and delta not 0";
  double exact = std::max(std::ceil((*limit - *start) / *delta), 0.0);
  if (!(exact <= static_cast<double>(kMaxFoldedElements)))
    return node.error() << "makes " << exact << " elements; at most " << kMaxFoldedElements
                        << " are supported";
  int64_t count = static_cast<int64_t>(exact);
  Type type = elementType(node.operand(0));
  SmallVector<Attribute> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(b.getFloatAttr(type, *start + static_cast<double>(i) * *delta));
  return node.results({arith::ConstantOp::create(
      b, node.loc, DenseElementsAttr::get(RankedTensorType::get({count}, type), values))});
}

void mpc::registerGatherHandlers(OnnxRegistry &r) {
  r.add("Gather", {1, 11, 13}, convertGather);
  r.add("GatherElements", {11, 13}, convertGatherElements);
  r.add("GatherND", {11, 12, 13}, convertGatherND);
  r.add("ScatterElements", {11, 13, 16, 18}, convertScatterElements);
  r.add("Scatter", {9, 11}, convertScatterElements); // the name before opset 11
  r.add("ScatterND", {11, 13, 16, 18}, convertScatterND);
  r.add("OneHot", {9, 11}, convertOneHot);
  r.add("Range", {11}, convertRange);
}
