//===- Traffic.cpp - recompute a value, or store it? ---------------------------------===//
//
// A value that several clusters need is either written once and read by each, or computed by
// each from what it depends on. What decides is the memory moved, in the clusters as they are,
// with arithmetic counted as bytes too:
//
//   recompute:  Σ over its clusters: bytes of leaves that it reads for the value alone + arithmetic
//   store:      one cluster's share of that + bytes written, twice + bytes that the others read
//
// Clustering asks until nothing changes; every operation is decided at most once.
//
//===--------------------------------------------------------------------------------===//

#include "passes/Clustering.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mpc;

namespace mpc {

/// Bytes that take as long as starting a kernel.
constexpr double kBytesPerKernel = 8192;

/// A line of memory that is written is read first.
constexpr double kWriteCost = 2;

/// A smaller gain is none: the value may need a kernel of its own after all.
constexpr double kLeastGain = 1024;

/// Bytes that take as long as one cheap vector operation per element: a core moves some 10 GB/s and
/// computes some 24 G/s.
constexpr double kBytesPerOperation = 0.25;

class Traffic {
public:
  explicit Traffic(const Clustering &clustering, Block &block)
      : clustering(clustering), block(block) {
    findOwners();
  }
  /// Operations to decide otherwise: true for a node.
  llvm::SmallVector<std::pair<Operation *, bool>> decisions();

private:
  using Leaves = llvm::SmallSetVector<Value, 4>;
  const Clustering &clustering;
  Block &block;
  DenseMap<Operation *, llvm::SmallSetVector<int, 4>>
      owners;                           ///< clusters that compute an operation
  DenseMap<Operation *, Leaves> leaves; ///< with the decisions made so far
  DenseMap<Operation *, int> costs;

  void findOwners();
  void findLeaves(Operation *op);
  bool isInline(Operation *op) const { return clustering.inlines.count(op); }
  double bytesFor(Operation *op, int cluster, const llvm::SmallPtrSetImpl<Operation *> &tree) const;
  bool readsOtherwise(Value leaf, int cluster, Operation *root,
                      const llvm::SmallPtrSetImpl<Operation *> &tree) const;
  void collectTree(Operation *op, llvm::SmallPtrSetImpl<Operation *> &tree) const;
  double arithmetic(Operation *op, int cluster) const;
  bool shouldStore(Operation *op) const;
  bool shouldRecompute(Operation *op) const;
  bool shouldMove(TransposeOp transpose) const;
};

} // namespace mpc

void Traffic::findOwners() {
  for (Operation &op : llvm::reverse(block)) {
    if (int node = clustering.nodeOf(&op); node >= 0) {
      owners[&op].insert(clustering.nodes[node].cluster);
    } else if (isInline(&op)) {
      llvm::SmallSetVector<int, 4> own;
      for (Operation *user : op.getUsers())
        if (auto it = owners.find(user); it != owners.end())
          own.insert(it->second.begin(), it->second.end());
      owners[&op] = std::move(own);
    }
  }
}

void Traffic::findLeaves(Operation *op) {
  Leaves own;
  int cost = clustering.factsOf(op).cost;
  if (isInline(op)) {
    auto it = clustering.inlines.find(op);
    cost = it->second.cost;
  }
  for (Value operand : op->getOperands()) {
    Operation *producer = operand.getDefiningOp();
    if (auto it = leaves.find(producer); producer && it != leaves.end())
      own.insert(it->second.begin(), it->second.end());
    else if (isa<RankedTensorType>(operand.getType()))
      own.insert(operand);
  }
  leaves[op] = std::move(own);
  costs[op] = cost;
}

/// The inline operations that `op` is computed from, and itself.
void Traffic::collectTree(Operation *op, llvm::SmallPtrSetImpl<Operation *> &tree) const {
  if (!tree.insert(op).second)
    return;
  for (Value operand : op->getOperands())
    if (Operation *producer = operand.getDefiningOp(); producer && leaves.count(producer))
      collectTree(producer, tree);
}

/// `cluster` has the value at hand, or needs it beside `root`: for what is not in its tree, itself
/// or by way of other parts of the tree, as a norm's gradient needs x - mean. (Not so for what is
/// too expensive to be computed twice: it is to be stored.)
bool Traffic::readsOtherwise(Value leaf, int cluster, Operation *root,
                             const llvm::SmallPtrSetImpl<Operation *> &tree) const {
  if (Operation *producer = leaf.getDefiningOp())
    if (int node = clustering.nodeOf(producer);
        node >= 0 && clustering.nodes[node].cluster == cluster)
      return true;
  bool isExpensive = costs.lookup(root) >= kExpensiveCost;
  llvm::SmallSetVector<Operation *, 8> users(leaf.user_begin(), leaf.user_end());
  for (size_t i = 0; i < users.size(); ++i) {
    if (tree.contains(users[i])) {
      if (users[i] != root && !isExpensive)
        users.insert(users[i]->user_begin(), users[i]->user_end());
      continue;
    }
    auto it = owners.find(users[i]);
    if (it != owners.end() && it->second.contains(cluster))
      return true;
  }
  return false;
}

/// Bytes of leaves that `cluster` reads for `op` alone.
double Traffic::bytesFor(Operation *op, int cluster,
                         const llvm::SmallPtrSetImpl<Operation *> &tree) const {
  double bytes = 0;
  for (Value leaf : leaves.find(op)->second)
    if (!readsOtherwise(leaf, cluster, op, tree))
      bytes += std::min<int64_t>(tensorBytes(leaf.getType()), elementCount(op->getResult(0)) * 8);
  return bytes;
}

/// A row kernel computes a value in each of its passes.
double Traffic::arithmetic(Operation *op, int cluster) const {
  int passes = clustering.clusters[cluster].kind == KernelKind::row ? 2 : 1;
  return passes * kBytesPerOperation * costs.lookup(op) * elementCount(op->getResult(0));
}

bool Traffic::shouldStore(Operation *op) const {
  const auto &own = owners.find(op)->second;
  Value v = op->getResult(0);
  // A mask is compared again: it saves a byte of reading, and would stay in the arena from forward
  // to backward.
  if (own.size() < 2 || getElementTypeOrSelf(v).isInteger(1))
    return false;
  double bytes = tensorBytes(v.getType());
  // Its only reader is as small and needed by the same clusters: it is the better one to store.
  if (v.hasOneUse()) {
    Operation *user = *v.user_begin();
    if (isInline(user) && tensorBytes(user->getResult(0).getType()) <= bytes &&
        owners.find(user)->second.size() == own.size())
      return false;
  }
  llvm::SmallPtrSet<Operation *, 16> tree;
  collectTree(op, tree);
  double recompute = 0, everyone = 0, host = -1;
  for (int cluster : own) {
    double share = bytesFor(op, cluster, tree) + arithmetic(op, cluster);
    recompute += share;
    const Clustering::Cluster &c = clustering.clusters[cluster];
    bool canWrite = c.kind != KernelKind::column
                        ? (c.domain == elementCount(v) || c.sub == elementCount(v))
                        : c.sub == elementCount(v);
    if (canWrite)
      host = host < 0 ? share : std::min(host, share);
  }
  for (Value leaf : leaves.find(op)->second)
    everyone += std::min<int64_t>(tensorBytes(leaf.getType()), elementCount(v) * 8);
  double count = own.size(), written = kWriteCost * bytes;
  double store = host >= 0 ? host + written + (count - 1) * bytes
                           : everyone + written + count * bytes + kBytesPerKernel;
  return store + kLeastGain < recompute;
}

/// The opposite question for a node that is stored for other clusters.
bool Traffic::shouldRecompute(Operation *op) const {
  int node = clustering.nodeOf(op);
  int own = clustering.nodes[node].cluster;
  llvm::SmallSetVector<int, 4> others;
  for (int user : clustering.nodes[node].users) {
    if (!clustering.nodes[user].kernel)
      return false;
    if (clustering.nodes[user].cluster != own)
      others.insert(clustering.nodes[user].cluster);
  }
  if (others.empty())
    return false;
  llvm::SmallPtrSet<Operation *, 16> tree;
  collectTree(op, tree);
  double bytes = tensorBytes(op->getResult(0).getType()), recompute = 0;
  for (int cluster : others)
    recompute += bytesFor(op, cluster, tree) + arithmetic(op, cluster);
  return recompute < kWriteCost * bytes + others.size() * bytes;
}

/// What several kernels read through the gradient of a pool, several times each, is moved once: all
/// of them then read it in order, and it is smaller than what they compute.
bool Traffic::shouldMove(TransposeOp transpose) const {
  bool forPool = false;
  if (!movesNothing(transpose) && owners.find(transpose)->second.size() > 1)
    forEachReader(transpose.getResult(),
                  [&](OpOperand &use) { forPool |= isPoolGradient(use.getOwner()); });
  return forPool;
}

llvm::SmallVector<std::pair<Operation *, bool>> Traffic::decisions() {
  llvm::SmallVector<std::pair<Operation *, bool>> result;
  for (Operation &op : block) {
    bool inlineOp = isInline(&op);
    int node = clustering.nodeOf(&op);
    bool mayChange = isPointwise(&op) || isPoolGradient(&op);
    if (!inlineOp && (node < 0 || !mayChange))
      continue;
    findLeaves(&op);
    bool open = mayChange && !clustering.decided.count(&op);
    bool stored = !inlineOp;
    auto transpose = dyn_cast<TransposeOp>(op);
    if ((open && inlineOp && shouldStore(&op)) ||
        (inlineOp && transpose && shouldMove(transpose))) {
      result.push_back({&op, true});
      stored = true;
    } else if (open && !inlineOp && clustering.mayBeInline(&op) && shouldRecompute(&op)) {
      result.push_back({&op, false});
      stored = false;
    }
    if (stored)
      leaves.erase(&op);
  }
  return result;
}

bool Clustering::refine(Block &block) {
  auto decisions = Traffic(*this, block).decisions();
  for (auto [op, isNode] : decisions)
    decided[op] = isNode;
  return !decisions.empty();
}
