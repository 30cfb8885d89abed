//===- ClusterMerging.cpp - two clusters become one ------------------------------------===//
//
// Producers are merged into consumers from the function's end to its start, then siblings that
// read the same large tensor. Two clusters merge only if one iteration serves both and no path
// leads from one to the other through a third.
//
//===----------------------------------------------------------------------------------===//

#include "passes/Clustering.h"
#include "passes/Grouping.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mpc;

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

/// The iteration of both, which is that of the one that reduces.
bool Clustering::shareIteration(int a, int b, Fit &fit) const {
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
  return true;
}

/// Windows want their own shape as the domain: one such shape per kernel, and no reduction beside
/// it.
bool Clustering::windowsFit(int a, int b, const Fit &fit) const {
  Type window;
  for (int cluster : {a, b})
    for (int member : clusters[cluster].members) {
      Operation *op = nodes[member].op;
      if (!isPool(op))
        continue;
      auto type = cast<RankedTensorType>(op->getResult(0).getType());
      Type shape = RankedTensorType::get(type.getShape(), IntegerType::get(type.getContext(), 1));
      if (fit.kind != KernelKind::map || (window && window != shape))
        return false;
      window = shape;
    }
  return true;
}

/// Every edge between the two finds its element where the kernel is.
bool Clustering::edgesFit(int a, int b, const Fit &fit) const {
  int expensiveReaders = 0;
  for (int i : {0, 1})
    for (int member : clusters[i == 0 ? a : b].members) {
      const Node &node = nodes[member];
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
  return fit.kind != KernelKind::row || expensiveReaders <= 1;
}

/// Others read a value of the domain that one of the two computes.
bool Clustering::storesDomain(int a, int b, const Fit &fit) const {
  for (int i : {0, 1})
    for (int member : clusters[i == 0 ? a : b].members)
      if (fit.moved(i, nodes[member].result) == Space::Domain)
        for (int user : nodes[member].users)
          if (nodes[user].cluster != a && nodes[user].cluster != b)
            return true;
  return false;
}

/// One aligned iteration for both. A column kernel stores no value of its domain.
bool Clustering::fits(int a, int b, Fit &fit) const {
  return shareIteration(a, b, fit) && windowsFit(a, b, fit) && edgesFit(a, b, fit) &&
         (fit.kind != KernelKind::column || !storesDomain(a, b, fit));
}

/// `a` becomes a part of `b` that no index is aligned with: every element is asked for at most
/// once, from `b` alone.
bool Clustering::fitsPrivately(int a, int b, Fit &fit) const {
  const Cluster &producer = clusters[a], &consumer = clusters[b];
  if (producer.library || consumer.library || producer.kind != KernelKind::map ||
      isTable(nodes[consumer.members.back()].op))
    return false;
  for (int member : producer.members) {
    const Node &node = nodes[member];
    if (node.exclusive || isPool(node.op) || isPoolGradient(node.op))
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
  // What such a function reads for all parameters (the hyperparameters) makes no siblings.
  bool isGrouped = nodes.front().op->getParentOp()->hasAttr(kGroupedAttr);
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
      if (2 * elementCount(edge.value) >= cluster.domain &&
          (!isGrouped || edge.relation == Relation::Identity))
        readers[edge.value].push_back(index);
  }
  for (auto &[value, list] : readers)
    for (size_t i = 0; i < list.size(); ++i)
      for (size_t j = i + 1; j < list.size(); ++j) {
        int a = nodes[list[i]].cluster, b = nodes[list[j]].cluster;
        if (a != b && ((!value && !isGrouped) || !tooManyOperands(a, b)))
          tryMerge(a, b);
      }
}
