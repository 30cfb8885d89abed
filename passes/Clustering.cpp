//===- Clustering.cpp - which operations run together in one kernel --------------===//
//
// Greedy and deterministic. First every operation is either inline or a node: recomputing an
// inline operation in each reader costs less memory traffic than storing its value. Then
// clusters of nodes are merged, producers into consumers from the function's end to its start,
// and at last siblings that read the same large tensor. Two clusters merge only if one
// iteration serves both and no path leads from one to the other through a third.
//
//===------------------------------------------------------------------------------===//

#include "passes/Clustering.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include <queue>

using namespace mlir;
using namespace mpc;

//===------------------------------------------------------------------------------===//
// What an operation is
//===------------------------------------------------------------------------------===//

bool mpc::isLibraryOp(Operation *op) {
  return isa<MatmulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(op);
}

bool mpc::isPointwise(Operation *op) {
  return op->getNumResults() == 1 && isa<RankedTensorType>(op->getResult(0).getType()) &&
         isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
         !op->hasTrait<OpTrait::ConstantLike>();
}

bool mpc::isIndexMap(Operation *op) {
  return isa<BroadcastOp, ReshapeOp, TransposeOp, SliceOp, PadOp, ConcatOp>(op);
}

bool mpc::isDataConstant(Value v) {
  auto constant = v.getDefiningOp<arith::ConstantOp>();
  auto type = constant ? dyn_cast<RankedTensorType>(constant.getType()) : RankedTensorType();
  return type && (type.getNumElements() == 0 || !isa<SplatElementsAttr>(constant.getValue()));
}

Value mpc::stripReshapes(Value v) {
  while (auto reshape = v.getDefiningOp<ReshapeOp>())
    v = reshape.getInput();
  return v;
}

int64_t mpc::elementCount(Value v) { return cast<RankedTensorType>(v.getType()).getNumElements(); }

int64_t mpc::tensorBytes(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * std::max<int64_t>(1, tensor.getElementTypeBitWidth() / 8);
}

/// An operation that is neither node nor kernel content: a scalar constant (the padding of
/// mpc.pad), a data constant.
static bool isOutside(Operation *op) {
  return isa<arith::ConstantOp>(op) &&
         (!isa<RankedTensorType>(op->getResult(0).getType()) || isDataConstant(op->getResult(0)));
}

/// Rough cost of one element: 1 for an addition, 16 for a transcendental function. Casts are free,
/// so that dropping one does not change the clusters.
static int elementCost(Operation *op) {
  if (isa<arith::ExtFOp, arith::TruncFOp>(op) || isIndexMap(op) ||
      isa<arith::ConstantOp, IotaOp>(op))
    return 0;
  if (isa<arith::DivFOp, arith::RemFOp, arith::DivSIOp, arith::RemSIOp, arith::DivUIOp,
          arith::RemUIOp, math::SqrtOp, math::RsqrtOp>(op))
    return 3;
  if (isa<math::AbsFOp, math::AbsIOp, math::FloorOp, math::CeilOp, math::RoundOp, math::RoundEvenOp,
          math::TruncOp, math::FmaOp, math::CopySignOp, math::IsFiniteOp, math::IsNaNOp,
          math::IsInfOp>(op))
    return 1;
  if (isa<GatherOp>(op))
    return 2;
  return isa_and_nonnull<math::MathDialect>(op->getDialect()) ? 16 : 1;
}

constexpr int kInlineCost = 8;     ///< dearer chains are computed once
constexpr int kExpensiveCost = 16; ///< not worth computing twice, whatever the traffic

template <typename PoolOp> static bool windowsOverlap(PoolOp pool) {
  for (auto [kernel, stride, dilation] :
       llvm::zip(pool.getKernel(), pool.getStrides(), pool.getDilations()))
    if ((kernel - 1) * dilation + 1 > stride)
      return true;
  return false;
}

static bool isPool(Operation *op) {
  return isa<MaxPoolOp, MaxPoolGradOp, AveragePoolOp, AveragePoolGradOp>(op);
}

/// True if `op` reads elements of operand `i` several times.
static bool rereads(Operation *op, unsigned i) {
  if (isa<BroadcastOp>(op))
    return elementCount(op->getResult(0)) > elementCount(op->getOperand(0));
  if (auto pool = dyn_cast<MaxPoolOp>(op))
    return windowsOverlap(pool);
  if (auto pool = dyn_cast<AveragePoolOp>(op))
    return windowsOverlap(pool);
  if (auto scatter = dyn_cast<ScatterAddOp>(op))
    return i == 0;
  return isa<GatherOp, MaxPoolGradOp, AveragePoolGradOp>(op) ||
         (isa<RandomUniformOp>(op) && elementCount(op->getResult(0)) > 1);
}

/// Calls `visit` for each use of `v`, seen through the views that read each element once.
static void forEachUse(Value v, llvm::function_ref<void(OpOperand &)> visit) {
  for (OpOperand &use : v.getUses())
    if (isa<ReshapeOp, TransposeOp, SliceOp, PadOp, ConcatOp>(use.getOwner()))
      forEachUse(use.getOwner()->getResult(0), visit);
    else
      visit(use);
}

/// A value that has to be in memory as it is, whoever computes it: a library operation or the
/// caller reads it.
static bool isStored(Value v) {
  return llvm::any_of(v.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    return isLibraryOp(user) || isa<func::ReturnOp>(user) ||
           (isa<ReshapeOp>(user) && isStored(user->getResult(0)));
  });
}

/// True if a reader of `v` asks for its elements several times.
static bool isReread(Value v) {
  bool reread = false;
  forEachUse(v, [&](OpOperand &use) { reread |= rereads(use.getOwner(), use.getOperandNumber()); });
  return reread;
}

/// Integer arithmetic on labels and counters: an element costs next to nothing.
static bool countsOnly(Value v, ArrayRef<Value> leaves) {
  auto isInteger = [](Value value) { return !isa<FloatType>(getElementTypeOrSelf(value)); };
  return isInteger(v) && llvm::all_of(leaves, isInteger);
}

//===------------------------------------------------------------------------------===//
// Nodes
//===------------------------------------------------------------------------------===//

Clustering::Clustering(func::FuncOp function) {
  Block &block = function.getBody().front();
  constexpr int kRefinements = 6;
  for (int refinement = 0; refinement < kRefinements; ++refinement) {
    nodes.clear();
    clusters.clear();
    indices.clear();
    inlines.clear();
    classify(block);
    connect();
    for (int round = 0; round < 3; ++round) {
      mergeProducers();
      mergeSiblings();
    }
    if (refinement + 1 < kRefinements && !refine(block))
      break;
  }
}

Clustering::Inline Clustering::factsOf(Operation *op) const {
  Inline facts;
  facts.cost = elementCost(op);
  llvm::SmallSetVector<Value, 4> leaves;
  for (Value operand : op->getOperands()) {
    Operation *producer = operand.getDefiningOp();
    auto it = inlines.find(producer);
    if (producer && it != inlines.end()) {
      facts.cost += it->second.cost;
      leaves.insert(it->second.leaves.begin(), it->second.leaves.end());
    } else if (!producer || !isOutside(producer) || isDataConstant(operand)) {
      leaves.insert(operand);
    }
  }
  facts.leaves.assign(leaves.begin(), leaves.end());
  return facts;
}

/// The first guess: what is cheap is computed by every reader; `refine` then weighs it in the
/// clusters that result.
bool Clustering::staysInline(Operation *op, const Inline &facts) const {
  if (auto it = decided.find(op); it != decided.end())
    return !it->second;
  if (facts.cost > kInlineCost)
    return false;
  return !isReread(op->getResult(0)) ||
         facts.cost <= (countsOnly(op->getResult(0), facts.leaves) ? 4 : 1);
}

bool Clustering::mayBeInline(Operation *op) const {
  return !isStored(op->getResult(0)) && !isReread(op->getResult(0));
}

void Clustering::addNode(Operation *op) {
  Node node;
  node.op = op;
  node.cluster = clusters.size();
  node.kernel = !isLibraryOp(op) && !isa<func::ReturnOp>(op);
  node.exclusive = isa<ScatterAddOp>(op);
  node.cost = factsOf(op).cost;
  Cluster cluster;
  cluster.library = !node.kernel;
  cluster.members.push_back(nodes.size());
  if (auto reduce = dyn_cast<ReduceOp>(op)) {
    // normalizeForFusion has left two forms: trailing dimensions (rows stay) and leading ones
    // (columns stay).
    int64_t rank = cast<RankedTensorType>(reduce.getInput().getType()).getRank();
    ArrayRef<int64_t> axes = reduce.getAxes();
    cluster.domain = elementCount(reduce.getInput());
    cluster.sub = elementCount(reduce.getResult());
    bool trailing = axes.back() == rank - 1;
    bool whole = static_cast<int64_t>(axes.size()) == rank;
    cluster.kind = whole ? (cluster.domain <= 4096 ? KernelKind::row : KernelKind::column)
                         : (trailing ? KernelKind::row : KernelKind::column);
    node.result = Space::Sub;
  } else if (node.kernel) {
    cluster.domain = elementCount(op->getResult(0));
  }
  indices[op] = nodes.size();
  nodes.push_back(std::move(node));
  clusters.push_back(std::move(cluster));
}

void Clustering::classify(Block &block) {
  for (Operation &op : block) {
    if (isOutside(&op))
      continue;
    bool candidate = isPointwise(&op) || isIndexMap(&op) ||
                     isa<GatherOp, IotaOp, RandomUniformOp, arith::ConstantOp>(op);
    if (!candidate) {
      addNode(&op);
      continue;
    }
    Inline facts = factsOf(&op);
    bool view = isIndexMap(&op) || isa<IotaOp, RandomUniformOp, arith::ConstantOp>(op);
    bool stored = isStored(op.getResult(0)) && !isa<ReshapeOp>(op);
    if (!stored && (view || staysInline(&op, facts)))
      inlines[&op] = std::move(facts);
    else
      addNode(&op);
  }
}

//===------------------------------------------------------------------------------===//
// Edges
//===------------------------------------------------------------------------------===//

/// All dimensions of the result up to the last one that the operand has are the operand's; sizes 1
/// do not count.
static bool isPrefix(BroadcastOp broadcast) {
  ArrayRef<int64_t> dimensions = broadcast.getDimensions();
  auto operand = cast<RankedTensorType>(broadcast.getInput().getType());
  auto result = cast<RankedTensorType>(broadcast.getResult().getType());
  int64_t leading = 1;
  for (int64_t i = operand.getRank() - 1; i >= 0; --i)
    if (operand.getDimSize(i) != 1) {
      for (int64_t d = 0; d <= dimensions[i]; ++d)
        leading *= result.getDimSize(d);
      break;
    }
  return leading == operand.getNumElements();
}

/// The permutation moves nothing but dimensions of size 1.
static bool movesNothing(TransposeOp transpose) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(transpose.getInput().getType()).getShape();
  int64_t last = -1;
  for (int64_t dimension : transpose.getPermutation()) {
    if (shape[dimension] == 1)
      continue;
    if (dimension < last)
      return false;
    last = dimension;
  }
  return true;
}

static Relation relationOf(Operation *op, unsigned i) {
  if (isPointwise(op) || isa<ReshapeOp, ReduceOp>(op))
    return Relation::Identity;
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    if (elementCount(broadcast.getInput()) == elementCount(broadcast.getResult()))
      return Relation::Identity;
    return isPrefix(broadcast) ? Relation::Prefix : Relation::Other;
  }
  if (auto transpose = dyn_cast<TransposeOp>(op))
    return movesNothing(transpose) ? Relation::Identity : Relation::Once;
  if (isa<SliceOp, PadOp, ConcatOp>(op))
    return Relation::Once;
  if (isa<ScatterAddOp>(op) && i > 0)
    return Relation::Once;
  if (isa<MaxPoolOp, AveragePoolOp>(op) && !rereads(op, i))
    return Relation::Once;
  return Relation::Other;
}

static Relation compose(Relation outer, Relation inner) {
  if (outer == Relation::Identity)
    return inner;
  if (inner == Relation::Identity || inner == outer)
    return outer;
  return Relation::Other;
}

void Clustering::follow(Node &node, Value v, Relation relation,
                        llvm::DenseSet<std::pair<Value, int>> &seen) {
  if (!isa<RankedTensorType>(v.getType()) || !seen.insert({v, static_cast<int>(relation)}).second)
    return;
  Operation *producer = v.getDefiningOp();
  if (producer && inlines.count(producer)) {
    for (OpOperand &operand : producer->getOpOperands())
      follow(node, operand.get(),
             compose(relation, relationOf(producer, operand.getOperandNumber())), seen);
    return;
  }
  node.inputs.push_back({v, producer ? nodeOf(producer) : -1, relation});
}

void Clustering::connect() {
  for (auto [index, node] : llvm::enumerate(nodes)) {
    llvm::DenseSet<std::pair<Value, int>> seen;
    for (OpOperand &operand : node.op->getOpOperands()) {
      if (node.kernel)
        follow(node, operand.get(), relationOf(node.op, operand.getOperandNumber()), seen);
      else
        follow(node, stripReshapes(operand.get()), Relation::Other, seen);
    }
    for (Edge &edge : node.inputs)
      if (edge.producer >= 0)
        nodes[edge.producer].users.push_back(index);
  }
  for (Node &node : nodes)
    node.users.erase(llvm::unique(node.users), node.users.end());
}

//===------------------------------------------------------------------------------===//
// Merging
//===------------------------------------------------------------------------------===//

/// The cluster that two would become, and where it computes what either of them computes in its
/// domain.
struct Clustering::Fit {
  KernelKind kind = KernelKind::map;
  int64_t domain = 1, sub = 1;
  Space spaceOf[2] = {Space::Domain, Space::Domain};
  bool isMap[2] = {true, true};
  Space moved(int which, Space space) const {
    return isMap[which] && space == Space::Domain ? spaceOf[which] : space;
  }
};

bool Clustering::reaches(int a, int b) const {
  // A direct edge from a to b disappears in the merged cluster; any longer path would become a
  // cycle.
  llvm::SmallVector<int> stack;
  llvm::SmallDenseSet<int> seen;
  auto push = [&](int from) {
    for (int member : clusters[from].members)
      for (int user : nodes[member].users) {
        int next = nodes[user].cluster;
        if (next != a && !(from == a && next == b) && seen.insert(next).second)
          stack.push_back(next);
      }
  };
  push(a);
  while (!stack.empty()) {
    int cluster = stack.pop_back_val();
    if (cluster == b)
      return true;
    push(cluster);
  }
  return false;
}

/// `node` reads a reduction over the same rows, as exp(x - max) does: it belongs into that row's
/// kernel at any cost.
bool Clustering::readsRow(const Node &node, const Fit &fit) const {
  return llvm::any_of(node.inputs, [&](const Edge &edge) {
    if (edge.producer < 0 || edge.relation != Relation::Prefix)
      return false;
    const Cluster &cluster = clusters[nodes[edge.producer].cluster];
    return cluster.kind == KernelKind::row && cluster.domain == fit.domain &&
           cluster.sub == fit.sub;
  });
}

/// One aligned iteration for both: every edge between them finds its element where the kernel is.
bool Clustering::fits(int a, int b, Fit &fit) const {
  const Cluster *both[2] = {&clusters[a], &clusters[b]};
  for (const Cluster *cluster : both)
    if (cluster->library || nodes[cluster->members.back()].exclusive)
      return false;
  const Cluster *reducing = both[0]->kind != KernelKind::map ? both[0] : both[1];
  fit.kind = reducing->kind;
  fit.domain = reducing->domain;
  fit.sub = reducing->sub;
  for (int i : {0, 1}) {
    fit.isMap[i] = both[i]->kind == KernelKind::map;
    if (!fit.isMap[i]) {
      if (both[i]->kind != fit.kind || both[i]->domain != fit.domain || both[i]->sub != fit.sub)
        return false;
    } else if (both[i]->domain == fit.domain) {
      fit.spaceOf[i] = Space::Domain;
    } else if (fit.kind != KernelKind::map && both[i]->domain == fit.sub) {
      fit.spaceOf[i] = Space::Sub;
    } else {
      return false;
    }
  }

  // Windows want their own shape as the domain: one such shape per kernel, and no reduction beside
  // it.
  Type window;
  int expensiveReaders = 0;
  for (int i : {0, 1})
    for (int member : both[i]->members) {
      const Node &node = nodes[member];
      if (isPool(node.op)) {
        auto type = cast<RankedTensorType>(node.op->getResult(0).getType());
        Type shape = RankedTensorType::get(type.getShape(), IntegerType::get(type.getContext(), 1));
        if (fit.kind != KernelKind::map || (window && window != shape))
          return false;
        window = shape;
      }
      Space iteration = fit.moved(i, node.iteration);
      for (const Edge &edge : node.inputs) {
        if (edge.producer < 0 || nodes[edge.producer].cluster != (i == 0 ? b : a))
          continue;
        const Node &producer = nodes[edge.producer];
        Space from = fit.moved(1 - i, producer.result);
        bool aligned = (from == iteration && iteration != Space::Private &&
                        edge.relation == Relation::Identity) ||
                       (from == Space::Sub && iteration == Space::Domain &&
                        fit.kind == KernelKind::row && edge.relation == Relation::Prefix);
        // A sum over all elements joins what it is computed from, not everything that some number
        // depends on.
        bool fromWhole = from == Space::Sub && iteration == Space::Domain && fit.sub == 1;
        if (!aligned || fromWhole)
          return false;
        if (from == Space::Domain && producer.cost >= kExpensiveCost && fit.isMap[1 - i] &&
            !readsRow(producer, fit))
          ++expensiveReaders;
      }
    }
  // A row kernel passes over its row once per reduction: an expensive value that several of them
  // read is stored first.
  if (fit.kind == KernelKind::row && expensiveReaders > 1)
    return false;

  // A column kernel stores no value of its domain.
  if (fit.kind == KernelKind::column)
    for (int i : {0, 1})
      for (int member : both[i]->members)
        if (fit.moved(i, nodes[member].result) == Space::Domain)
          for (int user : nodes[member].users)
            if (nodes[user].cluster != a && nodes[user].cluster != b)
              return false;
  return true;
}

/// `a` becomes a part of `b` that no index is aligned with: every element is asked for at most
/// once, from `b` alone.
bool Clustering::fitsPrivately(int a, int b, Fit &fit) const {
  const Cluster &producer = clusters[a], &consumer = clusters[b];
  if (producer.library || consumer.library || producer.kind != KernelKind::map)
    return false;
  for (int member : producer.members) {
    const Node &node = nodes[member];
    if (node.exclusive || isPool(node.op))
      return false;
    for (int user : node.users) {
      if (nodes[user].cluster == a)
        continue;
      if (nodes[user].cluster != b)
        return false;
      for (const Edge &edge : nodes[user].inputs)
        if (edge.producer == member && edge.relation != Relation::Identity &&
            edge.relation != Relation::Once)
          return false;
    }
  }
  // Several readers would compute it several times.
  int readers = 0, cost = 0;
  for (int member : consumer.members)
    for (const Edge &edge : nodes[member].inputs)
      if (edge.producer >= 0 && nodes[edge.producer].cluster == a) {
        ++readers;
        cost = std::max(cost, nodes[edge.producer].cost);
      }
  if (readers == 0 || (readers > 1 && cost >= kExpensiveCost))
    return false;
  fit.kind = consumer.kind;
  fit.domain = consumer.domain;
  fit.sub = consumer.sub;
  fit.isMap[0] = true;
  fit.spaceOf[0] = Space::Private;
  fit.isMap[1] = false;
  return true;
}

bool Clustering::tryMerge(int a, int b) {
  if (a == b || clusters[a].members.empty() || clusters[b].members.empty())
    return false;
  Fit fit;
  if (!fits(a, b, fit)) {
    fit = Fit();
    if (!fitsPrivately(a, b, fit))
      return false;
  }
  if (reaches(a, b) || reaches(b, a))
    return false;

  for (int i : {0, 1})
    for (int member : clusters[i == 0 ? a : b].members) {
      nodes[member].iteration = fit.moved(i, nodes[member].iteration);
      nodes[member].result = fit.moved(i, nodes[member].result);
      nodes[member].cluster = b;
    }
  clusters[b].kind = fit.kind;
  clusters[b].domain = fit.domain;
  clusters[b].sub = fit.sub;
  llvm::append_range(clusters[b].members, clusters[a].members);
  llvm::sort(clusters[b].members);
  clusters[a].members.clear();
  return true;
}

void Clustering::mergeProducers() {
  for (int index = static_cast<int>(nodes.size()) - 1; index >= 0; --index) {
    if (!nodes[index].kernel)
      continue;
    llvm::SmallVector<int> producers;
    for (const Edge &edge : nodes[index].inputs)
      if (edge.producer >= 0)
        producers.push_back(edge.producer);
    llvm::sort(producers, std::greater<>());
    for (int producer : producers)
      tryMerge(nodes[producer].cluster, nodes[index].cluster);
  }
}

bool Clustering::tooManyOperands(int a, int b) const {
  constexpr unsigned kMost = 24;
  llvm::SmallDenseSet<Value> values;
  for (int cluster : {a, b})
    for (int member : clusters[cluster].members)
      for (const Edge &edge : nodes[member].inputs)
        values.insert(edge.value);
  return values.size() > kMost;
}

void Clustering::mergeSiblings() {
  // Readers of each large value, in the order of first reading; all kernels of one element are
  // siblings.
  llvm::MapVector<Value, llvm::SmallVector<int>> readers;
  for (auto [index, node] : llvm::enumerate(nodes)) {
    if (!node.kernel)
      continue;
    const Cluster &cluster = clusters[node.cluster];
    if (cluster.kind == KernelKind::map && cluster.domain == 1)
      readers[Value()].push_back(index);
    for (const Edge &edge : node.inputs)
      if (2 * elementCount(edge.value) >= cluster.domain)
        readers[edge.value].push_back(index);
  }
  for (auto &[value, list] : readers)
    for (size_t i = 0; i < list.size(); ++i)
      for (size_t j = i + 1; j < list.size(); ++j) {
        int a = nodes[list[i]].cluster, b = nodes[list[j]].cluster;
        if (a != b && (!value || !tooManyOperands(a, b)))
          tryMerge(a, b);
      }
}

//===------------------------------------------------------------------------------===//
// Results
//===------------------------------------------------------------------------------===//

SmallVector<Value> Clustering::results(int cluster) const {
  SmallVector<Value> values;
  for (int member : clusters[cluster].members)
    for (Value result : nodes[member].op->getResults())
      for (int user : nodes[member].users)
        if (nodes[user].cluster != cluster &&
            llvm::any_of(nodes[user].inputs,
                         [&](const Edge &edge) { return edge.value == result; })) {
          values.push_back(result);
          break;
        }
  return values;
}

SmallVector<int> Clustering::order() const {
  llvm::SmallVector<llvm::SmallDenseSet<int>> users(clusters.size());
  llvm::SmallVector<int> waiting(clusters.size(), 0);
  for (const Node &node : nodes)
    for (int user : node.users)
      if (nodes[user].cluster != node.cluster &&
          users[node.cluster].insert(nodes[user].cluster).second)
        ++waiting[nodes[user].cluster];

  // Among those that can run, the one whose last operation came first.
  std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> ready;
  auto push = [&](int cluster) { ready.push({clusters[cluster].members.back(), cluster}); };
  for (size_t cluster = 0; cluster < clusters.size(); ++cluster)
    if (!clusters[cluster].members.empty() && waiting[cluster] == 0)
      push(cluster);
  SmallVector<int> sorted;
  while (!ready.empty()) {
    int cluster = ready.top().second;
    ready.pop();
    sorted.push_back(cluster);
    for (int user : users[cluster])
      if (--waiting[user] == 0)
        push(user);
  }
  return sorted;
}
