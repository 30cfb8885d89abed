//===- ExpandComposites.cpp - composite operations in primitive form --------------===//
//
// Up to here a softmax or a layer norm was one operation, with the precision class and the
// derivative of the whole. Fusion and code generation know only pointwise operations, index
// maps and reductions; what an expansion itself makes of composites is expanded too.
//
//   %1 = mpc.sigmoid %0 {mpc.node = "gate"}
//   // becomes
//   %2 = exp(-|%0|) {mpc.node = "gate"}
//   %1 = select(%0 >= 0, 1, %2) / (1 + %2) {mpc.node = "gate"}
//
//===----------------------------------------------------------------------------===//

#include "Passes.h"

using namespace mlir;

namespace mpc {
#define GEN_PASS_DEF_EXPANDCOMPOSITES
#include "Passes.h.inc"

namespace {

/// Gives the operations of an expansion the node that the composite came from, and finds the
/// composites among them.
struct ExpansionListener : OpBuilder::Listener {
  Operation *composite = nullptr;
  SmallVector<Operation *> found;

  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    if (isa<ExpandableOpInterface>(op))
      found.push_back(op);
    if (op->hasTrait<OpTrait::ConstantLike>())
      return;
    for (StringRef name : {MpcDialect::kNodeAttr, MpcDialect::kOpAttr})
      if (Attribute value = composite->getAttr(name))
        op->setAttr(name, value);
  }
};

struct ExpandComposites : impl::ExpandCompositesBase<ExpandComposites> {
  void runOnOperation() override {
    SmallVector<Operation *> worklist;
    getOperation().walk([&](ExpandableOpInterface op) { worklist.push_back(op); });
    ExpansionListener listener;
    OpBuilder b(&getContext(), &listener);
    while (!worklist.empty()) {
      Operation *op = listener.composite = worklist.pop_back_val();
      if (!op->use_empty()) {
        b.setInsertionPoint(op);
        op->replaceAllUsesWith(cast<ExpandableOpInterface>(op).expand(b));
      }
      op->erase();
      worklist.append(listener.found);
      listener.found.clear();
    }
    eraseDead();
  }

  /// An expansion builds what its unused results would need, too.
  void eraseDead() {
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (Block &block : function.getBody())
        for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
          if (isOpTriviallyDead(&op))
            op.erase();
  }
};
} // namespace

} // namespace mpc
