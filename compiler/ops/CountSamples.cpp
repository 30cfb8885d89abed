//===- CountSamples.cpp - the true number of samples in the converted model --------===//
//
// The program is made for N samples and runs with n ≤ N of them, read from memory. While a
// model is converted, BatchAnalysis follows where the samples are. What a handler built to
// combine elements along that dimension gets operands without those that are not there:
//
//   reduce sum | max | min | product   ← 0 | -∞ | ∞ | 1        softmax   ← -∞
//   matmul contracted over samples     ← 0 on both sides       cumsum    ← 0
//
// so that a mean is Σ / (n · rest), and gradients of what is not there are zeros. Numbers that
// the model makes of Shape and Size are constants where they are shapes, and computed from n
// where they are data (BatchTrace.h). Where neither is possible, the module says which node
// cannot run a smaller batch.
//
//===------------------------------------------------------------------------------===//

#include "Build.h"
#include "Expression.h"
#include "OnnxConverter.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;

namespace mpc {

/// The number of samples that are there.
Value OnnxConverter::samples() {
  return stateArgument("samples", RankedTensorType::get({}, b.getI64Type()));
}

void OnnxConverter::refuseTail(onnx::NodeOp node) {
  refuseSmallerBatch(module, "node '" + node.getNodeName() + "' (" + operatorName(node) +
                                 ") computes with the batch size");
}

/// The size of a value's dimensions `axes` together, a scalar of i64: a constant, or times n for
/// each that holds the samples.
Value OnnxConverter::sizeAlong(Location loc, Value v, ArrayRef<int64_t> axes) {
  SamplePlaces places = analysis.of(v);
  int64_t fixed = 1, counted = 0;
  for (int64_t axis : axes) {
    bool holdsSamples = places.on(axis);
    fixed *= holdsSamples ? shapeOf(v)[axis] / analysis.batchSize() : shapeOf(v)[axis];
    counted += holdsSamples;
  }
  Value size = scalarTensor(b, loc, b.getI64Type(), double(fixed));
  for (; counted > 0; --counted)
    size = mul(b, loc, samples(), size);
  return size;
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

/// `v` with the neutral element of a reduction for what is not there.
Value OnnxConverter::masked(Location loc, Value v, const SamplePlace &place, ReductionKind kind) {
  return replaced(loc, v, place, [&](Value part, int64_t axis) -> Value {
    return MaskSamplesOp::create(b, loc, part.getType(), part, samples(), axis, place.inner, kind);
  });
}

/// By a function of [outer, N · inner], and its second axis, where the value is [outer · N · inner]
/// along the place.
Value OnnxConverter::replaced(Location loc, Value v, const SamplePlace &place,
                              function_ref<Value(Value, int64_t)> function) {
  Block &block = forward.front();
  bool isLast = b.getInsertionPoint() == block.end();
  Operation *next = isLast ? nullptr : &*b.getInsertionPoint(),
            *last = !isLast         ? next->getPrevNode()
                    : block.empty() ? nullptr
                                    : &block.back();
  SmallVector<int64_t> shape(shapeOf(v)), blocks(shape);
  int64_t axis = place.axis;
  if (place.outer > 1) {
    blocks[axis] /= place.outer;
    blocks.insert(blocks.begin() + axis++, place.outer);
  }
  Value made = reshape(b, loc, function(reshape(b, loc, v, blocks), axis), shape);
  auto first = last ? std::next(last->getIterator()) : block.begin();
  for (Operation &op : llvm::make_range(first, next ? next->getIterator() : block.end()))
    analysis.visit(&op);
  return made;
}

/// The first sample's rows along an axis with `inner` for each, for all of them.
Value OnnxConverter::copiesOfFirst(Location loc, Value v, int64_t axis, int64_t inner) {
  SmallVector<int64_t> first(shapeOf(v)), rows(first), dimensions;
  first[axis] = rows[axis] = inner;
  rows.insert(rows.begin() + axis, analysis.batchSize());
  for (int64_t d = 0, rank = rows.size(); d < rank; ++d)
    if (d != axis)
      dimensions.push_back(d);
  SmallVector<int64_t> starts(first.size(), 0), steps(first.size(), 1);
  Value copies = broadcast(b, loc, slice(b, loc, v, starts, steps, first), dimensions, rows);
  return reshape(b, loc, copies, shapeOf(v));
}

/// `part` for the samples that are there, `other` in the place of the others.
Value OnnxConverter::whereThere(Location loc, Value part, Value other, int64_t axis,
                                int64_t inner) {
  ArrayRef<int64_t> shape = shapeOf(part);
  Value present = presentRows(b, loc, samples(), shape[axis], inner);
  return arith::SelectOp::create(b, loc, broadcast(b, loc, present, {axis}, shape), part, other);
}

/// Numbers that the model has made for a whole batch, the first of which are those for fewer
/// samples: what belongs to a sample that is not there is the first sample's, of which it is a copy
/// everywhere else too. In numbers of its own it could find none of its columns, and become
/// infinite, and times the zero that is its gradient NaN.
Value OnnxConverter::placed(Location loc, Value v, const SamplePlace &place) {
  return replaced(loc, v, place, [&](Value part, int64_t axis) -> Value {
    Value chosen =
        whereThere(loc, part, copiesOfFirst(loc, part, axis, place.inner), axis, place.inner);
    return MaskSamplesOp::create(b, loc, chosen.getType(), chosen, samples(), axis, place.inner,
                                 ReductionKind::sum, /*keep=*/true);
  });
}

/// An operation that combines the elements along an axis sees nothing of samples that are not
/// there.
void OnnxConverter::maskOperands(Operation *op) {
  auto maskAlong = [&](unsigned operand, ArrayRef<int64_t> axes, ReductionKind kind) {
    for (const SamplePlace &p : analysis.of(op->getOperand(operand)).places)
      if (llvm::is_contained(axes, p.axis) && p.neutral != kind)
        op->setOperand(operand, masked(op->getLoc(), op->getOperand(operand), p, kind));
  };
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return maskAlong(0, reduce.getAxes(), reduce.getKind());
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    return maskAlong(0, int64_t(softmax.getAxis()), ReductionKind::max);
  if (auto softmax = dyn_cast<LogSoftmaxOp>(op))
    return maskAlong(0, int64_t(softmax.getAxis()), ReductionKind::max);
  if (auto sums = dyn_cast<CumSumOp>(op))
    return maskAlong(0, int64_t(sums.getAxis()), ReductionKind::sum);
  if (auto matmul = dyn_cast<MatmulOp>(op)) {
    int64_t last = shapeOf(matmul.getResult()).size() - 1;
    int64_t left = matmul.getTransposeLhs() ? last - 1 : last,
            right = matmul.getTransposeRhs() ? last : last - 1;
    // A fixed matrix for N samples on the other side mixes them: there is none for n.
    if (analysis.of(matmul.getLhs()).on(left) && analysis.of(matmul.getRhs()).on(right)) {
      maskAlong(0, left, ReductionKind::sum);
      maskAlong(1, right, ReductionKind::sum);
    }
  }
}

/// Follows what a handler built from `first` on, and masks what it combines. `results` are the
/// node's.
void OnnxConverter::countSamples(Block::iterator first, MutableArrayRef<Built> results) {
  if (!trace.active())
    return;
  auto follow = [&](Operation *op) {
    maskOperands(op);
    analysis.visit(op);
  };
  for (Operation &op : llvm::make_early_inc_range(llvm::make_range(first, forward.front().end()))) {
    Operation *before = op.getPrevNode();
    Value other = alongSamples(&op);
    if (!other) {
      follow(&op);
      continue;
    }
    Block::iterator made = before ? std::next(before->getIterator()) : forward.front().begin();
    for (Operation &part : llvm::make_early_inc_range(llvm::make_range(made, op.getIterator())))
      follow(&part);
    Value y = op.getResult(0);
    y.replaceAllUsesWith(other);
    for (Built &result : results)
      llvm::replace(result, y, other);
    op.erase();
  }
}

//===----------------------------------------------------------------------===//
// Shape arithmetic
//===----------------------------------------------------------------------===//

DenseElementsAttr OnnxConverter::constantOf(Value v) {
  DenseElementsAttr value;
  if (v)
    matchPattern(v, m_Constant(&value));
  return value;
}

static SmallVector<int64_t> integersOf(DenseElementsAttr value) {
  SmallVector<int64_t> result;
  if (value && isa<IntegerType>(value.getElementType()))
    for (const APInt &x : value.getValues<APInt>())
      result.push_back(x.getSExtValue());
  return result;
}

/// The one tensor that stands for an ONNX value; null for a sequence, or if there is none.
Value OnnxConverter::single(Value v) const {
  auto found = values.find(v);
  return found == values.end() || found->second.size() != 1 ? Value() : found->second.front();
}

/// Converts a node with other values for some of its operands; nothing, and no message, if that
/// cannot be done.
std::optional<SmallVector<OnnxConverter::Built>>
OnnxConverter::convertAgain(onnx::NodeOp node, ArrayRef<std::pair<Value, Value>> replaced,
                            bool otherShapes) {
  const OnnxRegistry::Entry *entry =
      OnnxRegistry::get().find(operatorName(node), node.getSinceVersion());
  if (!entry)
    return std::nullopt;
  SmallVector<Value> touched(node->getResults());
  for (auto &[v, other] : replaced)
    touched.push_back(v);
  SmallVector<std::pair<Value, Built>> before; // of a value that had none: nothing
  for (Value v : touched)
    before.push_back({v, values.lookup(v)});
  for (auto &[v, other] : replaced)
    values[v] = {other};
  auto state = std::tuple(current, currentOperator, problems, randomOperators, ignoreShapes);
  current = node;
  currentOperator = b.getStringAttr(operatorName(node));
  ignoreShapes = otherShapes;

  Block &block = forward.front();
  Operation *last = block.empty() ? nullptr : &block.back();
  bool good = false;
  {
    ScopedDiagnosticHandler silent(b.getContext(), [](Diagnostic &) { return success(); });
    NodeContext context(b, NameLoc::get(node.getNodeNameAttr(), node.getLoc()), node, *this);
    good = succeeded(entry->handler(context)) &&
           checkBuilt(context, last ? std::next(last->getIterator()) : block.begin());
  }
  SmallVector<Built> results;
  for (Value result : node.getResults())
    results.push_back(good ? values.lookup(result) : Built());
  if (good && !otherShapes)
    countSamples(last ? std::next(last->getIterator()) : block.begin(), results);
  std::tie(current, currentOperator, problems, randomOperators, ignoreShapes) = state;
  for (auto &[v, built] : before)
    if (built.empty())
      values.erase(v);
    else
      values[v] = built;
  return good ? std::optional(std::move(results)) : std::nullopt;
}

/// Shape and Size of a value that holds the samples, for the other batch sizes.
void OnnxConverter::recordShape(onnx::NodeOp node) {
  Value input = node.getInputs().front(), x = single(input);
  DenseElementsAttr whole = constantOf(single(node->getResult(0)));
  if (!x || !whole || trace.follows(input))
    return;
  SamplePlaces places = analysis.of(x);
  BatchTrace::Constants constants;
  for (unsigned i = 0; i < trace.sizes().size(); ++i) {
    SmallVector<int64_t> shape = trace.shapeAt(trace.sizes()[i], shapeOf(x), places);
    if (node.getOpType() == "Size") {
      shape = {llvm::product_of(shape)};
    } else {
      auto attribute = node.getOnnxAttributes().getAs<IntegerAttr>("start");
      int64_t start = attribute ? attribute.getInt() : 0, rank = shape.size();
      start = std::clamp<int64_t>(start < 0 ? start + rank : start, 0, rank);
      shape = SmallVector<int64_t>(
          ArrayRef<int64_t>(shape).slice(start, whole.getType().getNumElements()));
    }
    constants.push_back(places.mixed()
                            ? DenseElementsAttr()
                            : DenseElementsAttr::get(whole.getType(), ArrayRef<int64_t>(shape)));
  }
  trace.record(node->getResult(0), whole, constants);
}

/// The results of constants for the other batch sizes; false if a result is no constant.
bool OnnxConverter::recordConstants(onnx::NodeOp node) {
  SmallVector<DenseElementsAttr> whole;
  for (Value result : node.getResults())
    whole.push_back(constantOf(single(result)));
  if (!llvm::all_of(whole, [](DenseElementsAttr value) { return bool(value); }))
    return false;
  SmallVector<BatchTrace::Constants> constants(whole.size());
  for (unsigned i = 0; i < trace.sizes().size(); ++i) {
    SmallVector<std::pair<Value, Value>> replaced;
    bool known = true;
    for (Value v : node.getInputs())
      if (trace.follows(v)) {
        DenseElementsAttr value = trace.constants(v)[i];
        known &= bool(value);
        if (value)
          replaced.push_back({v, arith::ConstantOp::create(b, node.getLoc(), value)});
      }
    auto results = known ? convertAgain(node, replaced, /*otherShapes=*/true) : std::nullopt;
    for (auto [r, list] : llvm::enumerate(constants))
      list.push_back(results && (*results)[r].size() == 1 ? constantOf((*results)[r].front())
                                                          : DenseElementsAttr());
  }
  for (auto [r, list] : llvm::enumerate(constants))
    trace.record(node->getResult(r), whole[r], list);
  return true;
}

//===----------------------------------------------------------------------===//
// Shape arithmetic as data
//===----------------------------------------------------------------------===//

/// Integers each of which is a constant or a multiple of n: samples · multiples + constants.
Value OnnxConverter::liveIntegers(Location loc, DenseElementsAttr whole,
                                  const BatchTrace::Constants &constants) {
  SmallVector<int64_t> sizes = integersOf(whole), multiples, rest;
  SmallVector<SmallVector<int64_t>> others;
  for (DenseElementsAttr other : constants) {
    others.push_back(integersOf(other));
    if (!other || other.getType() != whole.getType())
      return {};
  }
  if (sizes.empty() || !whole.getElementType().isInteger(64))
    return {};
  for (auto [k, size] : llvm::enumerate(sizes)) {
    bool fixed = llvm::all_of(others, [&](auto &other) { return other[k] == size; });
    if (!fixed && !trace.isRows(size, [&](unsigned i) { return others[i][k]; }))
      return {};
    multiples.push_back(fixed ? 0 : size / analysis.batchSize());
    rest.push_back(fixed ? size : 0);
  }
  auto constant = [&](ArrayRef<int64_t> elements) -> Value {
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(whole.getType(), elements));
  };
  Value count = broadcastScalar(b, loc, samples(), whole.getType().getShape());
  return add(b, loc, mul(b, loc, count, constant(multiples)), constant(rest));
}

/// A followed value as data, computed from the number of samples; null if that cannot be done.
Value OnnxConverter::live(Value v) {
  if (auto found = liveValues.find(v); found != liveValues.end())
    return found->second;
  auto node = v.getDefiningOp<onnx::NodeOp>();
  DenseElementsAttr whole = constantOf(single(v));
  if (!node || !whole)
    return {};
  auto reader = std::pair(current, currentOperator); // what is built belongs to the value's node
  llvm::scope_exit back([&] { std::tie(current, currentOperator) = reader; });
  current = node;
  currentOperator = b.getStringAttr(operatorName(node));
  BatchTrace::Constants constants = trace.constants(v);
  auto keep = [&](Value made) { return liveValues[v] = made; };
  // Only more or fewer of the same rows.
  if (auto axes = trace.rowAxes(v, whole)) {
    Value made = single(v);
    for (int64_t axis : *axes)
      made = placed(node.getLoc(), made, rowsOf(made, axis));
    return keep(made);
  }
  if (Value made = liveIntegers(node.getLoc(), whole, constants))
    return keep(made);
  SmallVector<std::pair<Value, Value>> replaced;
  for (Value input : node.getInputs())
    if (trace.follows(input)) {
      Value other = live(input);
      if (!other)
        return keep({});
      replaced.push_back({input, other});
    }
  auto results = replaced.empty() ? std::nullopt : convertAgain(node, replaced, false);
  unsigned which = cast<OpResult>(v).getResultNumber();
  return keep(results && (*results)[which].size() == 1 ? (*results)[which].front() : Value());
}

/// The place of a dimension that is the samples' rows.
SamplePlace OnnxConverter::rowsOf(Value v, int64_t axis) const {
  return {axis, 1, shapeOf(v)[axis] / analysis.batchSize()};
}

/// Operands that decide a shape; others are data.
static bool isShapeOperand(onnx::NodeOp node, unsigned i) {
  StringRef type = node.getOpType();
  return (i == 1 && (type == "Reshape" || type == "Expand" || type == "Tile")) ||
         (i == 3 && type == "Resize") || (i > 0 && type == "Slice");
}

/// A Slice by the batch size keeps all samples, or takes one row per sample of a table. The
/// latter's rows know that.
bool OnnxConverter::checkSlice(onnx::NodeOp node) {
  OperandRange inputs = node.getInputs();
  Value x = single(inputs[0]), y = single(node->getResult(0));
  auto at = [&](unsigned operand, std::optional<unsigned> size) {
    Value v = operand < inputs.size() ? inputs[operand] : Value();
    bool other = v && size && trace.follows(v);
    return integersOf(!v      ? DenseElementsAttr()
                      : other ? trace.constants(v)[*size]
                              : constantOf(single(v)));
  };
  for (unsigned operand : {3u, 4u})
    if (operand < inputs.size() && trace.follows(inputs[operand]))
      return false;
  SmallVector<int64_t> starts = at(1, {}), ends = at(2, {}), axes = at(3, {}), steps = at(4, {});
  if (!x || !y || starts.size() != ends.size())
    return false;
  int64_t rank = shapeOf(x).size();
  for (size_t k = 0; k < starts.size(); ++k) {
    int64_t axis = k < axes.size() ? axes[k] : k, step = k < steps.size() ? steps[k] : 1;
    axis += axis < 0 ? rank : 0;
    SmallVector<int64_t> taken; // at the other sizes
    bool fixed = true, fromStart = true, whole = true;
    for (unsigned i = 0; i < trace.sizes().size(); ++i) {
      SmallVector<int64_t> start = at(1, i), end = at(2, i);
      if (start.size() != starts.size() || end.size() != ends.size())
        return false;
      int64_t size = trace.shapeAt(trace.sizes()[i], shapeOf(x), analysis.of(x))[axis];
      auto clamp = [&](int64_t p) { return std::clamp<int64_t>(p < 0 ? p + size : p, 0, size); };
      fixed &= start[k] == starts[k] && end[k] == ends[k];
      fromStart &= clamp(start[k]) == 0 && step == 1;
      taken.push_back(clamp(end[k]) - clamp(start[k]));
      whole &= taken.back() == size;
    }
    if (fixed)
      continue;
    bool ofSamples = analysis.of(x).on(axis);
    if (!fromStart || (ofSamples && !(whole && shapeOf(y)[axis] == shapeOf(x)[axis])))
      return false;
    if (ofSamples)
      continue;
    if (!trace.isRows(shapeOf(y)[axis], [&](unsigned i) { return taken[i]; }))
      return false;
    y = placed(node.getLoc(), y, rowsOf(y, axis));
  }
  values[node->getResult(0)] = {y};
  return true;
}

/// The program for n samples would have the shape that we get: dimensions that depend on the batch
/// are the samples' rows. False if that is not so, or not known.
bool OnnxConverter::checkShapeOperands(onnx::NodeOp node) {
  Value operand; // the sizes, or one of a Slice's operands
  for (auto [i, v] : llvm::enumerate(node.getInputs()))
    if (trace.follows(v) && isShapeOperand(node, i))
      operand = v;
  Value y = single(node->getResult(0));
  if (!operand || !y || analysis.of(y).mixed())
    return true; // what is mixed is refused where it matters
  if (node.getOpType() == "Slice")
    return checkSlice(node);
  SmallVector<int64_t> sizes = integersOf(constantOf(single(operand)));
  SmallVector<SmallVector<int64_t>> others;
  for (DenseElementsAttr other : trace.constants(operand)) {
    others.push_back(integersOf(other));
    if (others.back().size() != sizes.size())
      return false;
  }
  bool tile = node.getOpType() == "Tile",
       makesRows = tile || node.getOpType() == "Expand"; // the others move what is there
  auto axes = node.getOnnxAttributes().getAs<DenseI64ArrayAttr>("axes");
  int64_t rank = shapeOf(y).size();
  for (auto [k, size] : llvm::enumerate(sizes)) {
    if (llvm::all_of(others, [&](auto &other) { return other[k] == size; }))
      continue;
    int64_t axis = axes ? axes[k] : rank - int64_t(sizes.size()) + int64_t(k);
    axis += axis < 0 ? rank : 0;
    bool ofSamples = analysis.of(y).on(axis);
    if (!trace.isRows(size, [&](unsigned i) { return others[i][k]; }) ||
        (ofSamples ? tile : !makesRows) || (!tile && size != shapeOf(y)[axis]))
      return false;
    if (!ofSamples)
      y = placed(node.getLoc(), y, rowsOf(y, axis));
  }
  values[node->getResult(0)] = {y};
  return true;
}

bool OnnxConverter::dependsOnBatch(onnx::NodeOp node) const {
  return llvm::any_of(node.getInputs(), [&](Value v) { return trace.follows(v); });
}

/// A node that reads what depends on the batch size.
void OnnxConverter::convertDependent(NodeContext &context, const OnnxHandler &handler) {
  onnx::NodeOp node = context.op;
  bool constant = llvm::all_of(
      node.getInputs(), [&](Value v) { return absent.contains(v) || constantOf(single(v)); });
  if (constant && (!runHandler(context, handler) || recordConstants(node)))
    return;
  SmallVector<std::pair<Value, Value>> replaced;
  bool exact = true;
  for (auto [i, v] : llvm::enumerate(node.getInputs()))
    if (trace.follows(v) && !isShapeOperand(node, i)) {
      Value other = live(v);
      exact &= bool(other);
      if (other)
        replaced.push_back({v, other});
    }
  auto results = exact && !replaced.empty() ? convertAgain(node, replaced, false) : std::nullopt;
  if (results) {
    for (auto [result, built] : llvm::zip(node.getResults(), *results))
      values[result] = built;
  } else if ((constant && replaced.empty()) || runHandler(context, handler)) {
    exact &= replaced.empty();
  } else {
    return;
  }
  if (!exact || !checkShapeOperands(node))
    refuseTail(node);
}

} // namespace mpc
