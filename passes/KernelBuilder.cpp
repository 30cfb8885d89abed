//===- KernelBuilder.cpp - the function of one cluster ----------------------------===//
//
// A kernel is built by demand, from its results to what they read: `build(value, shape)` makes
// `value` with its dimensions grouped as `shape`. Pointwise operations pass the shape on, so
// reshapes between them vanish; index maps translate it, and where they cannot, they keep
// their own shape and an mpc.reshape stands behind them. The grouping
// itself is chosen before, in KernelDomain.cpp.
//
//   add [64, 28, 28, 32], broadcast of [32] along the last   →   add [50176, 32]
//
//===------------------------------------------------------------------------------===//

#include "mlir/IR/IRMapping.h"
#include "passes/KernelConstruction.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mpc;

static ArrayRef<int64_t> shapeOf(Value v) { return cast<RankedTensorType>(v.getType()).getShape(); }

namespace {

/// The dimensions that a slice, padding or concatenation changes, each found alone in another
/// grouping of the result.
struct Isolated {
  Shape shape; ///< the grouping, with dimensions of size 1 put in where a changed one has that size
  llvm::SmallVector<int64_t> place; ///< per changed dimension: its index in `shape`
  llvm::SmallVector<int64_t> inner; ///< and the elements of the dimension per index there
};

} // namespace

bool KernelBuilder::isInside(Value v) const {
  Operation *op = v.getDefiningOp();
  if (!op || isDataConstant(v))
    return false;
  int node = clustering.nodeOf(op);
  return node < 0 || clustering.nodes[node].cluster == id;
}

//===------------------------------------------------------------------------------===//
// Operations in another grouping
//===------------------------------------------------------------------------------===//

Value KernelBuilder::reshaped(Value v, ArrayRef<int64_t> shape) {
  if (shapeOf(v) == shape)
    return v;
  return ReshapeOp::create(b, v.getLoc(), typed(v, shape), v);
}

Value KernelBuilder::build(Value v, ArrayRef<int64_t> shape) {
  std::pair<void *, std::vector<int64_t>> key(v.getAsOpaquePointer(), shape.vec());
  if (auto it = made.find(key); it != made.end())
    return it->second;
  Value result;
  if (isInside(v)) {
    result = construct(v, shape);
  } else {
    built.operands.push_back({v, Shape(shape)});
    result = body->addArgument(typed(v, shape), v.getLoc());
  }
  made[key] = result;
  return result;
}

Value KernelBuilder::construct(Value v, ArrayRef<int64_t> shape) {
  Operation *op = v.getDefiningOp();
  Location loc = op->getLoc();
  if (auto reshape = dyn_cast<ReshapeOp>(op))
    return build(reshape.getInput(), shape);
  if (isa<BroadcastOp>(op) && elementCount(op->getOperand(0)) == elementCount(v))
    return build(op->getOperand(0), shape); // a copy, or new dimensions of size 1
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return arith::ConstantOp::create(
        b, loc, cast<DenseElementsAttr>(constant.getValue()).resizeSplat(typed(v, shape)));
  if (isPointwise(op)) {
    IRMapping mapping;
    for (Value operand : op->getOperands())
      if (!mapping.contains(operand))
        mapping.map(operand, build(operand, shape));
    Operation *copy = b.clone(*op, mapping);
    copy->getResult(0).setType(typed(v, shape));
    return copy->getResult(0);
  }
  if (auto reduce = dyn_cast<ReduceOp>(op)) {
    if (shape != ArrayRef<int64_t>(sub))
      return reshaped(build(v, sub), shape);
    Value input = build(reduce.getInput(), domain);
    bool row = cluster.kind == KernelKind::row;
    auto axes = llvm::to_vector(row ? llvm::seq<int64_t>(split, domain.size())
                                    : llvm::seq<int64_t>(0, split));
    return ReduceOp::create(b, loc, typed(v, sub), reduce.getKind(), input, axes);
  }
  if (auto random = dyn_cast<RandomUniformOp>(op)) {
    Value state = build(random.getState(), shapeOf(random.getState()));
    return RandomUniformOp::create(b, loc, typed(v, shape), state, random.getOperatorId(),
                                   random.getSeed());
  }
  if (shape == shapeOf(v))
    return verbatim(v);
  Value result;
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    result = regroup(broadcast, shape);
  else if (auto transpose = dyn_cast<TransposeOp>(op))
    result = regroup(transpose, shape);
  else if (auto slice = dyn_cast<SliceOp>(op))
    result = regroup(slice, shape);
  else if (auto pad = dyn_cast<PadOp>(op))
    result = regroup(pad, shape);
  else if (auto concat = dyn_cast<ConcatOp>(op))
    result = regroup(concat, shape);
  else if (auto iota = dyn_cast<IotaOp>(op))
    result = regroup(iota, shape);
  else if (auto gather = dyn_cast<GatherOp>(op))
    result = regroup(gather, shape);
  return result ? result : reshaped(build(v, shapeOf(v)), shape);
}

/// The operation as it stands, its operands in their own shapes.
Value KernelBuilder::verbatim(Value v) {
  Operation *op = v.getDefiningOp();
  IRMapping mapping;
  for (Value operand : op->getOperands()) {
    if (mapping.contains(operand))
      continue;
    if (isa<RankedTensorType>(operand.getType()))
      mapping.map(operand, build(operand, shapeOf(operand)));
    else
      mapping.map(operand, b.clone(*operand.getDefiningOp())->getResult(0));
  }
  Operation *copy = b.clone(*op, mapping);
  for (auto [old, result] : llvm::zip(op->getResults(), copy->getResults()))
    made[{old.getAsOpaquePointer(), shapeOf(old).vec()}] = result;
  return copy->getResult(cast<OpResult>(v).getResultNumber());
}

Value KernelBuilder::regroup(BroadcastOp op, ArrayRef<int64_t> shape) {
  auto atoms = refine(shapeOf(op.getResult()), shape);
  if (!atoms)
    return {};
  SmallVector<int> kept(shape.size(), -1); // 1: the operand's, 0: new
  for (const Atom &atom : *atoms) {
    int own = llvm::is_contained(op.getDimensions(), atom.first);
    if (kept[atom.second] == 1 - own)
      return {};
    kept[atom.second] = own;
  }
  Shape operand;
  SmallVector<int64_t> dimensions;
  for (auto [d, own] : llvm::enumerate(kept))
    if (own == 1) {
      operand.push_back(shape[d]);
      dimensions.push_back(d);
    }
  Value input = build(op.getInput(), operand);
  if (dimensions.size() == shape.size())
    return input;
  return BroadcastOp::create(b, op.getLoc(), typed(input, shape), input, dimensions);
}

Value KernelBuilder::regroup(TransposeOp op, ArrayRef<int64_t> shape) {
  auto atoms = refine(shapeOf(op.getResult()), shape);
  if (!atoms || llvm::is_contained(shape, 1))
    return {};
  // Atoms in the operand's order; every dimension of `shape` must be a run of them.
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, atoms->size()));
  llvm::stable_sort(order, [&](int64_t x, int64_t y) {
    return op.getPermutation()[(*atoms)[x].first] < op.getPermutation()[(*atoms)[y].first];
  });
  Shape operand;
  SmallVector<int64_t> permutation(shape.size());
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t d = (*atoms)[order[i]].second;
    bool first = order[i] == 0 || (*atoms)[order[i] - 1].second != d;
    if (!first) {
      if (i == 0 || order[i - 1] != order[i] - 1)
        return {};
      continue;
    }
    permutation[d] = operand.size();
    operand.push_back(shape[d]);
  }
  Value input = build(op.getInput(), operand);
  if (llvm::is_sorted(permutation))
    return input;
  return TransposeOp::create(b, op.getLoc(), typed(input, shape), input, permutation);
}

/// Finds the changed dimensions of `original` in `shape`. One may be several dimensions there: the
/// change is then one of the outermost of them, in steps of `inner`.
static std::optional<Isolated> isolate(ArrayRef<int64_t> original, ArrayRef<int64_t> shape,
                                       ArrayRef<int64_t> changed) {
  auto atoms = refine(original, shape);
  if (!atoms || llvm::is_contained(shape, 1))
    return std::nullopt;
  // Per dimension of `shape`: the first and the last dimension of `original` in it.
  SmallVector<int64_t> first(shape.size(), -1), last(shape.size(), -1);
  for (const Atom &atom : *atoms) {
    if (first[atom.second] < 0)
      first[atom.second] = atom.first;
    last[atom.second] = atom.first;
  }
  Isolated result;
  size_t next = 0;
  auto takeUnits = [&](int64_t before) {
    for (; next < changed.size() && changed[next] < before && original[changed[next]] == 1;
         ++next) {
      result.place.push_back(result.shape.size());
      result.inner.push_back(1);
      result.shape.push_back(1);
    }
  };
  for (auto [d, size] : llvm::enumerate(shape)) {
    bool mixed = first[d] != last[d];
    if (mixed && llvm::any_of(changed, [&](int64_t c) { return first[d] <= c && c <= last[d]; }))
      return std::nullopt;
    takeUnits(first[d]);
    if (next < changed.size() && changed[next] == first[d]) {
      result.place.push_back(result.shape.size());
      result.inner.push_back(original[first[d]] / size);
      ++next;
    }
    result.shape.push_back(size);
  }
  takeUnits(original.size());
  return next == changed.size() ? std::optional(std::move(result)) : std::nullopt;
}

Value KernelBuilder::regroup(SliceOp op, ArrayRef<int64_t> shape) {
  SmallVector<int64_t> changed = changedDimensions(op);
  auto isolated = isolate(shapeOf(op.getResult()), shape, changed);
  if (!isolated)
    return {};
  Shape operand = isolated->shape;
  SmallVector<int64_t> starts(operand.size(), 0), steps(operand.size(), 1);
  for (auto [d, place, inner] : llvm::zip(changed, isolated->place, isolated->inner)) {
    int64_t size = shapeOf(op.getInput())[d], start = op.getStarts()[d];
    if (inner > 1 && (size % inner != 0 || start % inner != 0 || op.getSteps()[d] != 1))
      return {};
    operand[place] = size / inner;
    starts[place] = start / inner;
    steps[place] = op.getSteps()[d];
  }
  Value input = build(op.getInput(), operand);
  return reshaped(
      SliceOp::create(b, op.getLoc(), typed(input, isolated->shape), input, starts, steps), shape);
}

Value KernelBuilder::regroup(PadOp op, ArrayRef<int64_t> shape) {
  SmallVector<int64_t> changed = changedDimensions(op);
  auto isolated = isolate(shapeOf(op.getResult()), shape, changed);
  if (!isolated)
    return {};
  Shape operand = isolated->shape;
  SmallVector<int64_t> low(operand.size(), 0), high(operand.size(), 0), interior(operand.size(), 0);
  for (auto [d, place, inner] : llvm::zip(changed, isolated->place, isolated->inner)) {
    int64_t size = shapeOf(op.getInput())[d];
    bool divides = size % inner == 0 && op.getLow()[d] % inner == 0 && op.getHigh()[d] % inner == 0;
    if (inner > 1 && (!divides || op.getInterior()[d] != 0))
      return {};
    operand[place] = size / inner;
    low[place] = op.getLow()[d] / inner;
    high[place] = op.getHigh()[d] / inner;
    interior[place] = op.getInterior()[d];
  }
  Value input = build(op.getInput(), operand);
  Value value = b.clone(*op.getValue().getDefiningOp())->getResult(0);
  return reshaped(PadOp::create(b, op.getLoc(), typed(input, isolated->shape), input, value, low,
                                high, interior),
                  shape);
}

Value KernelBuilder::regroup(ConcatOp op, ArrayRef<int64_t> shape) {
  int64_t axis = op.getAxis();
  auto isolated = isolate(shapeOf(op.getResult()), shape, axis);
  if (!isolated || llvm::any_of(op.getInputs(), [&](Value v) {
        return shapeOf(v)[axis] % isolated->inner[0] != 0;
      }))
    return {};
  SmallVector<Value> inputs;
  for (Value input : op.getInputs()) {
    Shape operand = isolated->shape;
    operand[isolated->place[0]] = shapeOf(input)[axis] / isolated->inner[0];
    inputs.push_back(build(input, operand));
  }
  Value joined = ConcatOp::create(b, op.getLoc(), typed(op.getResult(), isolated->shape), inputs,
                                  isolated->place[0]);
  return reshaped(joined, shape);
}

Value KernelBuilder::regroup(IotaOp op, ArrayRef<int64_t> shape) {
  int64_t axis = op.getAxis();
  auto isolated = isolate(shapeOf(op.getResult()), shape, axis);
  if (!isolated || isolated->inner[0] != 1)
    return {};
  return reshaped(
      IotaOp::create(b, op.getLoc(), typed(op.getResult(), isolated->shape), isolated->place[0]),
      shape);
}

Value KernelBuilder::regroup(GatherOp op, ArrayRef<int64_t> shape) {
  auto atoms = refine(shapeOf(op.getResult()), shape);
  if (!atoms || llvm::is_contained(shape, 1))
    return {};
  int64_t axis = op.getAxis(), rank = shapeOf(op.getIndices()).size();
  auto part = [&](int64_t d) { return d < axis ? 0 : (d < axis + rank ? 1 : 2); };
  SmallVector<int> parts(shape.size(), -1);
  for (const Atom &atom : *atoms) {
    if (parts[atom.second] >= 0 && parts[atom.second] != part(atom.first))
      return {};
    parts[atom.second] = part(atom.first);
  }
  Shape table, indices;
  for (auto [size, p] : llvm::zip(shape, parts))
    if (p == 0)
      table.push_back(size);
  int64_t newAxis = table.size();
  table.push_back(shapeOf(op.getInput())[axis]);
  for (auto [size, p] : llvm::zip(shape, parts))
    if (p != 0)
      (p == 1 ? indices : table).push_back(size);
  Value input = build(op.getInput(), table);
  return GatherOp::create(b, op.getLoc(), typed(input, shape), input,
                          build(op.getIndices(), indices), newAxis);
}

//===------------------------------------------------------------------------------===//
// The function
//===------------------------------------------------------------------------------===//

/// Everything computed from `v` is computed at the element of `v` that is read.
static bool isReadInPlace(Value v) {
  return llvm::all_of(v.getUsers(), [](Operation *user) {
    return isa<func::ReturnOp>(user) || (isPointwise(user) && isReadInPlace(user->getResult(0)));
  });
}

SmallVector<int64_t> KernelBuilder::aliases(llvm::function_ref<int(Value)> argumentOf) {
  SmallVector<int64_t> result;
  for (auto [i, value] : llvm::enumerate(built.results)) {
    result.push_back(-1);
    int replaced = argumentOf(value);
    const Clustering::Node &node = clustering.nodes[clustering.nodeOf(value.getDefiningOp())];
    if (replaced < 0 || (cluster.kind != KernelKind::map && node.result != Space::Sub))
      continue;
    int found = -1, count = 0;
    for (auto [j, operand] : llvm::enumerate(built.operands))
      if (auto argument = dyn_cast<BlockArgument>(operand.first);
          argument && static_cast<int>(argument.getArgNumber()) == replaced) {
        found = j;
        ++count;
      }
    Value returned = body->getTerminator()->getOperand(i);
    if (count == 1 && body->getArgument(found).getType() == returned.getType() &&
        isReadInPlace(body->getArgument(found)))
      result.back() = found;
  }
  return result;
}

BuiltKernel KernelBuilder::run(llvm::function_ref<int(Value)> argumentOf) {
  SmallVector<Location> locations;
  for (int member : cluster.members)
    locations.push_back(clustering.nodes[member].op->getLoc());
  Location loc = b.getFusedLoc(locations);
  built.results = clustering.results(id);
  built.function = func::FuncOp::create(loc, "kernel", b.getFunctionType({}, {}));
  built.function.setPrivate();
  body = built.function.addEntryBlock();
  b.setInsertionPointToEnd(body);

  chooseDomain();
  SmallVector<Value> returned;
  for (Value result : built.results) {
    Space space = clustering.nodes[clustering.nodeOf(result.getDefiningOp())].result;
    returned.push_back(build(result, space == Space::Sub ? sub : domain));
  }
  func::ReturnOp::create(b, loc, returned);
  built.function.setType(
      b.getFunctionType(body->getArgumentTypes(), ValueRange(returned).getTypes()));
  auto attribute = KernelAttr::get(b.getContext(), cluster.kind, b.getDenseI64ArrayAttr(domain),
                                   split, b.getDenseI64ArrayAttr(aliases(argumentOf)));
  built.function->setAttr(MpcDialect::kKernelAttr, attribute);
  return std::move(built);
}

BuiltKernel mpc::buildKernel(const Clustering &clustering, int cluster,
                             llvm::function_ref<int(Value)> argumentOf) {
  return KernelBuilder(clustering, cluster).run(argumentOf);
}
