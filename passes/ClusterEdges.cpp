//===- ClusterEdges.cpp - what each node reads, and from where ------------------------===//
//
// An edge leads from a node to what it reads, through all inline operations between them; its
// relation says which element the node asks for.
//
//===----------------------------------------------------------------------------------===//

#include "passes/Clustering.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace mpc;

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
  if (isPool(op) && !rereads(op, i))
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
