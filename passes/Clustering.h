//===- Clustering.h - which operations run together in one kernel ----------------===//
//
// A training step's elementwise work is bound by memory: what counts is how often a tensor is
// read and written. The clustering decides which values are written at all. place-roundings
// and fuse both use it, so that a value is rounded exactly where it is stored.
//
//   node     an operation that belongs to one cluster (or is a library call, alone)
//   inline   an operation that every reader computes again: views, constants, cheap arithmetic
//   domain   the elements a cluster iterates over; its reductions give values of the sub-space
//
//===------------------------------------------------------------------------------===//

#ifndef MPC_PASSES_CLUSTERING_H
#define MPC_PASSES_CLUSTERING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/OperationFacts.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace mpc {

/// Brings a function into the form that clustering reads: reductions over the trailing or the
/// leading dimensions only, a library operation's relu in its epilogue, one producer for every
/// result of the function.
void normalizeForFusion(mlir::func::FuncOp function);

/// Where a consumer at index i of its iteration finds an element: both counted in row-major order.
enum class Relation {
  Identity, ///< at i
  Prefix,   ///< at i / (elements per element): a row's value
  Once,     ///< elsewhere, and every element is read at most once
  Other
};

/// Which iteration of its cluster computes a node's value.
enum class Space { Domain, Sub, Private };

constexpr int kExpensiveCost = 16; ///< not worth computing twice, whatever the traffic

class Clustering {
public:
  struct Edge {
    mlir::Value value; ///< what is read: the result of a node, an argument or a data constant
    int producer;      ///< its node, or -1
    Relation relation;
  };
  struct Node {
    mlir::Operation *op;
    int cluster;
    bool kernel;            ///< false: library operation or return
    bool exclusive = false; ///< scatter_add: nothing but its own producers joins it
    Space iteration = Space::Domain, result = Space::Domain;
    llvm::SmallVector<Edge> inputs;
    llvm::SmallVector<int> users;
    int cost = 0; ///< of one element, inline operations included
  };
  struct Cluster {
    KernelKind kind = KernelKind::map;
    int64_t domain = 1;             ///< elements
    int64_t sub = 1;                ///< elements of the rows' (row) or the columns' shape (column)
    llvm::SmallVector<int> members; ///< ascending; empty once it has been merged into another
    bool library = false;
  };

  explicit Clustering(mlir::func::FuncOp function);

  llvm::SmallVector<Node> nodes;
  llvm::SmallVector<Cluster> clusters;
  /// The node of an operation; -1 for an inline one.
  int nodeOf(mlir::Operation *op) const {
    auto it = indices.find(op);
    return it == indices.end() ? -1 : it->second;
  }
  /// Values of a cluster that others read: they are stored.
  llvm::SmallVector<mlir::Value> results(int cluster) const;
  /// Clusters (library operations and the return among them), every one after what it reads, near
  /// the original order.
  llvm::SmallVector<int> order() const;

private:
  struct Inline {
    int cost = 0;
    llvm::SmallVector<mlir::Value, 4> leaves;
  };
  llvm::DenseMap<mlir::Operation *, int> indices;
  llvm::DenseMap<mlir::Operation *, Inline> inlines;
  /// Decided by refine: true for a node, false for inline.
  llvm::DenseMap<mlir::Operation *, bool> decided;

  void classify(mlir::Block &block);
  bool refine(mlir::Block &block);
  bool mayBeInline(
      mlir::Operation *op) const; ///< nobody needs it in memory, nobody asks for an element twice
  friend class Traffic;
  bool staysInline(mlir::Operation *op, const Inline &facts) const;
  Inline factsOf(mlir::Operation *op) const;
  void addNode(mlir::Operation *op);
  void connect();
  void follow(Node &node, mlir::Value v, Relation relation,
              llvm::DenseSet<std::pair<mlir::Value, int>> &seen);
  void mergeProducers();
  void mergeSiblings();
  bool tryMerge(int a, int b);
  bool reaches(int a, int b) const;
  struct Fit;
  bool readsRow(const Node &node, const Fit &fit) const;
  bool shareIteration(int a, int b, Fit &fit) const;
  bool windowsFit(int a, int b, const Fit &fit) const;
  bool edgesFit(int a, int b, const Fit &fit) const;
  bool storesDomain(int a, int b, const Fit &fit) const;
  bool fits(int a, int b, Fit &fit) const;
  bool fitsPrivately(int a, int b, Fit &fit) const;
  bool tooManyOperands(int a, int b) const;
};

} // namespace mpc

#endif // MPC_PASSES_CLUSTERING_H
