//===- KernelBuilder.cpp - the function of one cluster ----------------------------===//
//
// A kernel is built by demand, from its results to what they read: `build(value, shape)` makes
// `value` with its dimensions grouped as `shape`. Pointwise operations pass the shape on, so
// reshapes between them vanish; index maps translate it, and where they cannot, they keep
// their own shape and an mpc.reshape stands behind them. Before that, `cutsOf` collects the
// places where index maps need a dimension to end; what is left over is one long dimension.
//
//   add [64, 28, 28, 32], broadcast of [32] along the last   →   add [50176, 32]
//
//===------------------------------------------------------------------------------===//

#include "passes/KernelBuilder.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/STLExtras.h"
#include <map>

using namespace mlir;
using namespace mpc;

static ArrayRef<int64_t> shapeOf(Value v) { return cast<RankedTensorType>(v.getType()).getShape(); }
static Type elementOf(Value v) { return cast<RankedTensorType>(v.getType()).getElementType(); }

namespace {

/// The dimensions that a slice, padding or concatenation changes, each found alone in another grouping of the result.
struct Isolated {
  Shape shape;                      ///< the grouping, with dimensions of size 1 put in where a changed one has that size
  llvm::SmallVector<int64_t> place; ///< per changed dimension: its index in `shape`
  llvm::SmallVector<int64_t> inner; ///< and the elements of the dimension per index there
};

class KernelBuilder {
public:
  KernelBuilder(const Clustering &clustering, int cluster)
      : clustering(clustering), cluster(clustering.clusters[cluster]), id(cluster),
        b(clustering.nodes[this->cluster.members.front()].op->getContext()) {}
  BuiltKernel run(llvm::function_ref<int(Value)> argumentOf);

private:
  const Clustering &clustering;
  const Clustering::Cluster &cluster;
  int id;
  OpBuilder b;
  BuiltKernel built;
  Block *body = nullptr;
  Shape domain, sub; ///< the kernel's domain and the shape of its rows or columns
  int64_t split = 0;
  DenseMap<Value, Cuts> cuts;
  std::map<std::pair<void *, std::vector<int64_t>>, Value> made;

  bool isInside(Value v) const;
  const Cuts &cutsOf(Value v);
  Cuts computeCuts(Value v);
  void carryCuts(Cuts &into, Value operand, Value result, llvm::function_ref<int64_t(int64_t, int64_t)> resultDimension);
  void chooseDomain();
  bool fixDomain();

  Value build(Value v, ArrayRef<int64_t> shape);
  Value construct(Value v, ArrayRef<int64_t> shape);
  Value verbatim(Value v);
  Value regroup(BroadcastOp op, ArrayRef<int64_t> shape);
  Value regroup(TransposeOp op, ArrayRef<int64_t> shape);
  Value regroup(SliceOp op, ArrayRef<int64_t> shape);
  Value regroup(PadOp op, ArrayRef<int64_t> shape);
  Value regroup(ConcatOp op, ArrayRef<int64_t> shape);
  Value regroup(IotaOp op, ArrayRef<int64_t> shape);
  Value regroup(GatherOp op, ArrayRef<int64_t> shape);
  Value reshaped(Value v, ArrayRef<int64_t> shape);
  RankedTensorType typed(Value like, ArrayRef<int64_t> shape) { return RankedTensorType::get(shape, elementOf(like)); }
  SmallVector<int64_t> aliases(llvm::function_ref<int(Value)> argumentOf);
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
// Cuts
//===------------------------------------------------------------------------------===//

/// Dimension j and factor q with cut = q · (elements behind j), 1 < q ≤ the size of j.
static std::optional<std::pair<int64_t, int64_t>> locate(ArrayRef<int64_t> shape, int64_t cut) {
  int64_t behind = 1;
  for (int64_t d = shape.size() - 1; d >= 0; --d) {
    if (cut <= behind * shape[d] && cut > behind)
      return cut % behind == 0 && shape[d] % (cut / behind) == 0 ? std::optional(std::pair(d, cut / behind)) : std::nullopt;
    behind *= shape[d];
  }
  return std::nullopt;
}

/// What an operand needs, said in the result's order. `resultDimension(d, inner)` is where dimension d went, or -1; the cut
/// parts it into pieces of `inner`.
void KernelBuilder::carryCuts(Cuts &into, Value operand, Value result,
                              llvm::function_ref<int64_t(int64_t, int64_t)> resultDimension) {
  Cuts needed = cutsOf(operand);
  for (int64_t cut : needed)
    if (auto place = locate(shapeOf(operand), cut))
      if (int64_t d = resultDimension(place->first, place->second); d >= 0)
        addCut(into, suffixProduct(shapeOf(result), d) * place->second, elementCount(result));
}

const Cuts &KernelBuilder::cutsOf(Value v) {
  auto it = cuts.find(v);
  if (it == cuts.end())
    it = cuts.try_emplace(v, computeCuts(v)).first;
  return it->second;
}

/// Dimensions whose index an operation changes on its own.
static SmallVector<int64_t> changedDimensions(Operation *op) {
  SmallVector<int64_t> changed;
  if (auto slice = dyn_cast<SliceOp>(op)) {
    for (auto [d, start, step] : llvm::enumerate(slice.getStarts(), slice.getSteps()))
      if (start != 0 || step != 1 || shapeOf(slice.getInput())[d] != shapeOf(slice.getResult())[d])
        changed.push_back(d);
  } else if (auto pad = dyn_cast<PadOp>(op)) {
    for (auto [d, low, high, interior] : llvm::enumerate(pad.getLow(), pad.getHigh(), pad.getInterior()))
      if (low != 0 || high != 0 || interior != 0)
        changed.push_back(d);
  } else if (auto concat = dyn_cast<ConcatOp>(op)) {
    changed.push_back(concat.getAxis());
  } else if (auto iota = dyn_cast<IotaOp>(op)) {
    changed.push_back(iota.getAxis());
  }
  return changed;
}

/// The change of dimension d moves whole blocks of `inner` indices.
static bool keepsBlocks(Operation *op, int64_t d, int64_t inner) {
  auto divides = [&](int64_t size) { return size % inner == 0; };
  if (auto slice = dyn_cast<SliceOp>(op))
    return slice.getSteps()[d] == 1 && divides(slice.getStarts()[d]) && divides(shapeOf(slice.getInput())[d]) &&
           divides(shapeOf(slice.getResult())[d]);
  if (auto pad = dyn_cast<PadOp>(op))
    return pad.getInterior()[d] == 0 && divides(pad.getLow()[d]) && divides(pad.getHigh()[d]) &&
           divides(shapeOf(pad.getInput())[d]);
  if (auto concat = dyn_cast<ConcatOp>(op))
    return llvm::all_of(concat.getInputs(), [&](Value input) { return divides(shapeOf(input)[d]); });
  return false;
}

/// Dimensions of size above 1, in order.
static SmallVector<int64_t> realDimensions(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> dimensions;
  for (auto [d, size] : llvm::enumerate(shape))
    if (size != 1)
      dimensions.push_back(d);
  return dimensions;
}

Cuts KernelBuilder::computeCuts(Value v) {
  Cuts result;
  Operation *op = v.getDefiningOp();
  if (!isInside(v) || isa<ReduceOp, arith::ConstantOp, RandomUniformOp>(op))
    return result;
  ArrayRef<int64_t> shape = shapeOf(v);
  int64_t elements = elementCount(v);
  auto cutBehind = [&](int64_t d) { addCut(result, suffixProduct(shape, d), elements); };

  if (isPointwise(op) || isa<ReshapeOp>(op)) {
    for (Value operand : op->getOperands()) {
      Cuts needed = cutsOf(operand);
      for (int64_t cut : needed)
        addCut(result, cut, elements);
    }
  } else if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    ArrayRef<int64_t> dimensions = broadcast.getDimensions();
    SmallVector<int64_t> real = realDimensions(shape);
    for (size_t i = 1; i < real.size(); ++i)
      if (llvm::is_contained(dimensions, real[i - 1]) != llvm::is_contained(dimensions, real[i]))
        cutBehind(real[i - 1]);
    carryCuts(result, broadcast.getInput(), v, [&](int64_t j, int64_t) { return dimensions[j]; });
  } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    SmallVector<int64_t> real = realDimensions(shape), source = realDimensions(shapeOf(transpose.getInput()));
    for (size_t i = 1; i < real.size(); ++i) {
      auto before = llvm::find(source, permutation[real[i - 1]]);
      if (before + 1 == source.end() || *(before + 1) != permutation[real[i]])
        cutBehind(real[i - 1]);
    }
    carryCuts(result, transpose.getInput(), v,
              [&](int64_t j, int64_t) { return llvm::find(permutation, j) - permutation.begin(); });
  } else if (isa<SliceOp, PadOp, ConcatOp, IotaOp>(op)) {
    SmallVector<int64_t> changed = changedDimensions(op);
    for (int64_t d : changed) {
      cutBehind(d);
      cutBehind(d - 1);
    }
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()))
        carryCuts(result, operand, v, [&](int64_t j, int64_t inner) {
          return llvm::is_contained(changed, j) && !keepsBlocks(op, j, inner) ? -1 : j;
        });
  } else if (auto gather = dyn_cast<GatherOp>(op)) {
    int64_t axis = gather.getAxis(), rank = shapeOf(gather.getIndices()).size();
    cutBehind(axis - 1);
    cutBehind(axis + rank - 1);
    carryCuts(result, gather.getIndices(), v, [&](int64_t j, int64_t) { return axis + j; });
    carryCuts(result, gather.getInput(), v,
              [&](int64_t j, int64_t) { return j < axis ? j : (j == axis ? -1 : j + rank - 1); });
  }
  return result;
}

//===------------------------------------------------------------------------------===//
// Domain
//===------------------------------------------------------------------------------===//

/// Windows and scattered additions name the dimensions of their result: the domain is its shape.
bool KernelBuilder::fixDomain() {
  for (int member : cluster.members) {
    Operation *op = clustering.nodes[member].op;
    if (isa<MaxPoolOp, MaxPoolGradOp, AveragePoolOp, AveragePoolGradOp, ScatterAddOp>(op)) {
      domain.assign(shapeOf(op->getResult(0)).begin(), shapeOf(op->getResult(0)).end());
      if (auto scatter = dyn_cast<ScatterAddOp>(op))
        split = scatter.getAxis();
      return true;
    }
  }
  return false;
}

/// The outer dimensions of a map are what threads share: few of them and a long last one are cut into blocks.
static void cutBlocks(Cuts &cuts, int64_t elements) {
  constexpr int64_t kLongest = 4096, kShortest = 256, kRows = 16;
  Shape shape = shapeWithCuts(cuts, elements);
  if (shape.empty() || shape.back() < 2 * kLongest || elements / shape.back() >= kRows)
    return;
  for (int64_t block = kLongest; block >= kShortest; --block)
    if (shape.back() % block == 0)
      return addCut(cuts, block, elements);
}

void KernelBuilder::chooseDomain() {
  if (fixDomain())
    return;
  Cuts needed;
  int64_t inner = cluster.domain / cluster.sub;
  if (cluster.kind != KernelKind::map)
    addCut(needed, cluster.kind == KernelKind::row ? inner : cluster.sub, cluster.domain);
  for (int member : cluster.members) {
    const Clustering::Node &node = clustering.nodes[member];
    if (node.iteration == Space::Private)
      continue;
    auto reduce = dyn_cast<ReduceOp>(node.op);
    Cuts own = cutsOf(reduce ? Value(reduce.getInput()) : Value(node.op->getResult(0)));
    int64_t scale = node.iteration == Space::Sub && cluster.kind == KernelKind::row ? inner : 1;
    for (int64_t cut : own)
      addCut(needed, cut * scale, cluster.domain);
  }
  if (cluster.kind == KernelKind::map)
    cutBlocks(needed, cluster.domain);
  domain = shapeWithCuts(needed, cluster.domain);
  if (cluster.kind == KernelKind::map)
    return;
  int64_t outer = cluster.kind == KernelKind::row ? cluster.sub : inner;
  for (int64_t product = 1; product < outer; ++split)
    product *= domain[split];
  ArrayRef<int64_t> all(domain);
  ArrayRef<int64_t> part = cluster.kind == KernelKind::row ? all.take_front(split) : all.drop_front(split);
  sub.assign(part.begin(), part.end());
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
    return arith::ConstantOp::create(b, loc, cast<DenseElementsAttr>(constant.getValue()).resizeSplat(typed(v, shape)));
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
    auto axes = llvm::to_vector(row ? llvm::seq<int64_t>(split, domain.size()) : llvm::seq<int64_t>(0, split));
    return ReduceOp::create(b, loc, typed(v, sub), reduce.getKind(), input, axes);
  }
  if (auto random = dyn_cast<RandomUniformOp>(op)) {
    Value state = build(random.getState(), shapeOf(random.getState()));
    return RandomUniformOp::create(b, loc, typed(v, shape), state, random.getOperatorId(), random.getSeed());
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

/// Finds the changed dimensions of `original` in `shape`. One may be several dimensions there: the change is then one of the
/// outermost of them, in steps of `inner`.
static std::optional<Isolated> isolate(ArrayRef<int64_t> original, ArrayRef<int64_t> shape, ArrayRef<int64_t> changed) {
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
    for (; next < changed.size() && changed[next] < before && original[changed[next]] == 1; ++next) {
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
  return reshaped(SliceOp::create(b, op.getLoc(), typed(input, isolated->shape), input, starts, steps), shape);
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
  return reshaped(PadOp::create(b, op.getLoc(), typed(input, isolated->shape), input, value, low, high, interior), shape);
}

Value KernelBuilder::regroup(ConcatOp op, ArrayRef<int64_t> shape) {
  int64_t axis = op.getAxis();
  auto isolated = isolate(shapeOf(op.getResult()), shape, axis);
  if (!isolated || llvm::any_of(op.getInputs(), [&](Value v) { return shapeOf(v)[axis] % isolated->inner[0] != 0; }))
    return {};
  SmallVector<Value> inputs;
  for (Value input : op.getInputs()) {
    Shape operand = isolated->shape;
    operand[isolated->place[0]] = shapeOf(input)[axis] / isolated->inner[0];
    inputs.push_back(build(input, operand));
  }
  Value joined = ConcatOp::create(b, op.getLoc(), typed(op.getResult(), isolated->shape), inputs, isolated->place[0]);
  return reshaped(joined, shape);
}

Value KernelBuilder::regroup(IotaOp op, ArrayRef<int64_t> shape) {
  int64_t axis = op.getAxis();
  auto isolated = isolate(shapeOf(op.getResult()), shape, axis);
  if (!isolated || isolated->inner[0] != 1)
    return {};
  return reshaped(IotaOp::create(b, op.getLoc(), typed(op.getResult(), isolated->shape), isolated->place[0]), shape);
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
  return GatherOp::create(b, op.getLoc(), typed(input, shape), input, build(op.getIndices(), indices), newAxis);
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
    if (count == 1 && body->getArgument(found).getType() == returned.getType() && isReadInPlace(body->getArgument(found)))
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
  built.function.setType(b.getFunctionType(body->getArgumentTypes(), ValueRange(returned).getTypes()));
  auto attribute = KernelAttr::get(b.getContext(), cluster.kind, b.getDenseI64ArrayAttr(domain), split,
                                   b.getDenseI64ArrayAttr(aliases(argumentOf)));
  built.function->setAttr(MpcDialect::kKernelAttr, attribute);
  return std::move(built);
}

BuiltKernel mpc::buildKernel(const Clustering &clustering, int cluster, llvm::function_ref<int(Value)> argumentOf) {
  return KernelBuilder(clustering, cluster).run(argumentOf);
}
