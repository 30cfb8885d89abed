//===- Clustering.cpp - which operations run together in one kernel --------------===//
//
// Greedy and deterministic. First every operation is either inline or a node: recomputing an
// inline operation in each reader costs less memory traffic than storing its value. Then
// clusters of nodes are merged (ClusterMerging.cpp); what that shows of the traffic (Traffic.cpp)
// decides some operations otherwise, and all begins again.
//
//===------------------------------------------------------------------------------===//

#include "passes/Clustering.h"
#include "passes/Grouping.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include <queue>

using namespace mlir;
using namespace mpc;

constexpr int kInlineCost = 8; ///< dearer chains are computed once

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
  node.exclusive = isa<ScatterAddOp>(op) || isTable(op);
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
    bool candidate = isPointwise(&op) || isIndexMap(&op) || isPoolGradient(&op) ||
                     isa<GatherOp, IotaOp, RandomUniformOp, arith::ConstantOp>(op);
    if (!candidate) {
      addNode(&op);
      continue;
    }
    Inline facts = factsOf(&op);
    bool view = isIndexMap(&op) || isa<IotaOp, RandomUniformOp, arith::ConstantOp>(op);
    bool stored = (isStored(op.getResult(0)) && !isa<ReshapeOp>(op)) || isTable(&op);
    if (!stored && ((view && !decided.lookup(&op)) || staysInline(&op, facts)))
      inlines[&op] = std::move(facts);
    else
      addNode(&op);
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
