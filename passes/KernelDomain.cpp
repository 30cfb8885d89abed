//===- KernelDomain.cpp - the dimensions of one cluster's kernel ---------------------------===//
//
// `cutsOf` collects the places where index maps need a dimension to end, from the results of the
// cluster to what it reads; what is left over is one long dimension.
//
//===------------------------------------------------------------------------------===//

#include "passes/KernelConstruction.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mpc;

static ArrayRef<int64_t> shapeOf(Value v) { return cast<RankedTensorType>(v.getType()).getShape(); }

//===------------------------------------------------------------------------------===//
// Cuts
//===------------------------------------------------------------------------------===//

/// Dimension j and factor q with cut = q · (elements behind j), 1 < q ≤ the size of j.
static std::optional<std::pair<int64_t, int64_t>> locate(ArrayRef<int64_t> shape, int64_t cut) {
  int64_t behind = 1;
  for (int64_t d = shape.size() - 1; d >= 0; --d) {
    if (cut <= behind * shape[d] && cut > behind)
      return cut % behind == 0 && shape[d] % (cut / behind) == 0
                 ? std::optional(std::pair(d, cut / behind))
                 : std::nullopt;
    behind *= shape[d];
  }
  return std::nullopt;
}

/// What an operand needs, said in the result's order. `resultDimension(d, inner)` is where
/// dimension d went, or -1; the cut parts it into pieces of `inner`.
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

SmallVector<int64_t> KernelBuilder::changedDimensions(Operation *op) {
  SmallVector<int64_t> changed;
  if (auto slice = dyn_cast<SliceOp>(op)) {
    for (auto [d, start, step] : llvm::enumerate(slice.getStarts(), slice.getSteps()))
      if (start != 0 || step != 1 || shapeOf(slice.getInput())[d] != shapeOf(slice.getResult())[d])
        changed.push_back(d);
  } else if (auto pad = dyn_cast<PadOp>(op)) {
    for (auto [d, low, high, interior] :
         llvm::enumerate(pad.getLow(), pad.getHigh(), pad.getInterior()))
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
    return slice.getSteps()[d] == 1 && divides(slice.getStarts()[d]) &&
           divides(shapeOf(slice.getInput())[d]) && divides(shapeOf(slice.getResult())[d]);
  if (auto pad = dyn_cast<PadOp>(op))
    return pad.getInterior()[d] == 0 && divides(pad.getLow()[d]) && divides(pad.getHigh()[d]) &&
           divides(shapeOf(pad.getInput())[d]);
  if (auto concat = dyn_cast<ConcatOp>(op))
    return llvm::all_of(concat.getInputs(),
                        [&](Value input) { return divides(shapeOf(input)[d]); });
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
    SmallVector<int64_t> real = realDimensions(shape),
                         source = realDimensions(shapeOf(transpose.getInput()));
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
  } else if (isPoolGradient(op)) {
    for (size_t d = 0; d < shape.size(); ++d)
      cutBehind(d);
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
    if (isPool(op) || isa<ScatterAddOp>(op)) {
      domain.assign(shapeOf(op->getResult(0)).begin(), shapeOf(op->getResult(0)).end());
      if (auto scatter = dyn_cast<ScatterAddOp>(op))
        split = scatter.getAxis();
      return true;
    }
  }
  return false;
}

/// The outer dimensions of a map are what threads share: few of them and a long last one are cut
/// into blocks.
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
  ArrayRef<int64_t> part =
      cluster.kind == KernelKind::row ? all.take_front(split) : all.drop_front(split);
  sub.assign(part.begin(), part.end());
}
