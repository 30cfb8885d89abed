//===- PlaceRoundings.cpp - a value is rounded where it is stored --------------------===//
//
// After assign-precision and expand-composites every half value is rounded, also one that its
// readers get from a register. Such a rounding costs accuracy and time and saves no memory:
//
//   %h = arith.truncf %x                      %y = math.tanh %x
//   %w = arith.extf %h              →
//   %y = math.tanh %w                         // %h was never in memory
//
// A value that crosses clusters, or that a library operation or the caller reads, keeps its
// rounding, and every reader, inside its cluster too, sees the rounded value. Decided before
// fuse, with the clusters that fuse will make. A Cast of the model asks for its rounding and keeps
// it.
//
//===--------------------------------------------------------------------------------===//

#include "passes/Clustering.h"
#include "passes/Passes.h"
#include "llvm/ADT/STLExtras.h"

namespace mpc {
#define GEN_PASS_DEF_PLACEROUNDINGS
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {

/// Which clusters compute an operation: one for a node, each reader's for an inline one.
class Owners {
public:
  explicit Owners(const Clustering &clustering) : clustering(clustering) {}
  /// The only cluster that computes `op`, or -1.
  int onlyOwner(Operation *op) {
    int owner = ownerOf(op);
    return owner;
  }

private:
  static constexpr int kMany = -1;
  const Clustering &clustering;
  DenseMap<Operation *, int> known;

  int ownerOf(Operation *op) {
    if (int node = clustering.nodeOf(op); node >= 0)
      return clustering.nodes[node].cluster;
    if (auto it = known.find(op); it != known.end())
      return it->second;
    int owner = kMany;
    bool first = true;
    for (Operation *user : op->getUsers()) {
      int other = ownerOf(user);
      owner = first || owner == other ? other : kMany;
      first = false;
      if (owner == kMany)
        break;
    }
    known[op] = owner;
    return owner;
  }
};

struct PlaceRoundings : mpc::impl::PlaceRoundingsBase<PlaceRoundings> {
  /// Drops the roundings of values that no other cluster sees; true if there was one.
  bool dropRoundings(func::FuncOp function) {
    Clustering clustering(function);
    Owners owners(clustering);
    DenseMap<int, llvm::SmallDenseSet<Value>> stored;
    SmallVector<arith::TruncFOp> dropped;
    for (auto truncation : function.getOps<arith::TruncFOp>()) {
      if (truncation->hasAttr(kAskedAttr))
        continue;
      int owner = owners.onlyOwner(truncation);
      if (owner < 0 || clustering.clusters[owner].library)
        continue;
      auto [it, isNew] = stored.try_emplace(owner);
      if (isNew)
        it->second.insert_range(clustering.results(owner));
      if (!it->second.contains(truncation.getResult()) && readersWiden(truncation.getResult()))
        dropped.push_back(truncation);
    }
    for (arith::TruncFOp truncation : dropped)
      widen(truncation.getResult(), truncation.getIn());
    return !dropped.empty();
  }

  static constexpr StringLiteral kAskedAttr = "mpc.asked";

  /// Marks the roundings that Cast nodes ask for: normalizeForFusion drops the operators' names.
  static void markCasts(func::FuncOp function) {
    for (auto truncation : function.getOps<arith::TruncFOp>()) {
      auto op = truncation->getAttrOfType<StringAttr>(MpcDialect::kOpAttr);
      if (op && (op.getValue() == "Cast" || op.getValue() == "CastLike"))
        truncation->setAttr(kAskedAttr, UnitAttr::get(function.getContext()));
    }
  }

  /// Every use ends, after views, in an extf to the type that was rounded.
  static bool readersWiden(Value half) {
    return !half.use_empty() && llvm::all_of(half.getUsers(), [](Operation *user) {
      return isa<arith::ExtFOp>(user) || (isa<ReshapeOp, TransposeOp, BroadcastOp, SliceOp>(user) &&
                                          readersWiden(user->getResult(0)));
    });
  }

  /// Replaces the widened uses of `half` by `wide`, the same value before rounding; views are made
  /// again on it.
  static void widen(Value half, Value wide) {
    for (Operation *user : llvm::make_early_inc_range(half.getUsers())) {
      Type element = cast<RankedTensorType>(wide.getType()).getElementType();
      if (auto extension = dyn_cast<arith::ExtFOp>(user)) {
        OpBuilder b(extension);
        Value value = wide;
        if (value.getType() != extension.getType())
          value = arith::ExtFOp::create(b, extension.getLoc(), extension.getType(), value);
        extension.getResult().replaceAllUsesWith(value);
      } else {
        OpBuilder b(user);
        Operation *view = b.clone(*user);
        view->setOperand(0, wide);
        view->getResult(0).setType(
            cast<RankedTensorType>(user->getResult(0).getType()).clone(element));
        widen(user->getResult(0), view->getResult(0));
      }
      user->erase();
    }
    if (Operation *producer = half.getDefiningOp(); isa<arith::TruncFOp>(producer))
      producer->erase();
  }

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal() || function->hasAttr(MpcDialect::kKernelAttr))
        continue;
      markCasts(function);
      normalizeForFusion(function);
      // With fewer casts more may be fused, never less is stored: a few rounds settle it.
      for (int round = 0; round < 4 && dropRoundings(function); ++round) {
      }
      for (auto truncation : function.getOps<arith::TruncFOp>())
        truncation->removeAttr(kAskedAttr);
    }
  }
};

} // namespace
