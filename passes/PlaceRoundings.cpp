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
// rounding, and every reader, inside its cluster too, sees the rounded value. A Cast of the model
// asks for its rounding and keeps it.
//
// Dropping a rounding changes what clusters cost, and so the clusters. Two kinds of mark tell the
// next clustering, fuse's too, what this one decided:
//
//   mpc.keep_rounding   on arith.truncf: a Cast's, or one without which the value would be stored
//                       after all
//   mpc.unrounded       on the operation whose result lost its rounding to this type: it may not
//                       leave its cluster
//
//===--------------------------------------------------------------------------------===//

#include "passes/PlaceRoundings.h"
#include "compiler/ops/Build.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/Passes.h"
#include "llvm/ADT/STLExtras.h"

namespace mpc {
#define GEN_PASS_DEF_PLACEROUNDINGS
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

static constexpr StringLiteral kKeepAttr = "mpc.keep_rounding";
static constexpr StringLiteral kUnroundedAttr = "mpc.unrounded";
static constexpr StringLiteral kPlacedAttr = "mpc.roundings_placed"; ///< on a function
static constexpr StringLiteral kNumberAttr = "mpc.rounding";         ///< within the pass alone

namespace {

/// Which values are in a cluster's registers alone.
class Placement {
public:
  explicit Placement(const Clustering &clustering) : clustering(clustering) {}

  /// One cluster computes `v`, and nothing else reads it.
  bool isInRegisters(Value v);
  /// A rounding that no other cluster sees and that nobody asked for.
  bool isUnneeded(arith::TruncFOp truncation);

private:
  static constexpr int kMany = -1;
  const Clustering &clustering;
  DenseMap<Operation *, int> owners;
  DenseMap<int, llvm::SmallDenseSet<Value>> stored;

  int ownerOf(Operation *op);
  bool readersWiden(Value half);
};

struct PlaceRoundings : mpc::impl::PlaceRoundingsBase<PlaceRoundings> {
  FrozenRewritePatternSet canonicalization;

  void simplify(func::FuncOp function);
  SmallVector<int64_t> drop(func::FuncOp function);
  void place(func::FuncOp function);
  void runOnOperation() override;
};

} // namespace

//===------------------------------------------------------------------------------===//
// Where values are
//===------------------------------------------------------------------------------===//

/// The only cluster that computes `op`, or kMany: a node has one, an inline operation each of its
/// readers'.
int Placement::ownerOf(Operation *op) {
  if (int node = clustering.nodeOf(op); node >= 0)
    return clustering.nodes[node].cluster;
  if (auto it = owners.find(op); it != owners.end())
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
  owners[op] = owner;
  return owner;
}

bool Placement::isInRegisters(Value v) {
  Operation *op = v.getDefiningOp();
  if (!op || isDataConstant(v))
    return false;
  int owner = ownerOf(op);
  if (owner == kMany || clustering.clusters[owner].library)
    return false;
  auto [it, isNew] = stored.try_emplace(owner);
  if (isNew)
    it->second.insert_range(clustering.results(owner));
  return !it->second.contains(v);
}

/// Every use ends, after views, in an extf to the type that was rounded; and what others read is
/// not that wide value, which would be stored in place of the half.
bool Placement::readersWiden(Value half) {
  return !half.use_empty() && llvm::all_of(half.getUsers(), [&](Operation *user) {
    if (isa<arith::ExtFOp>(user))
      return isInRegisters(user->getResult(0));
    return isView(user) && readersWiden(user->getResult(0));
  });
}

bool Placement::isUnneeded(arith::TruncFOp truncation) {
  return !truncation->hasAttr(kKeepAttr) && isInRegisters(truncation.getResult()) &&
         readersWiden(truncation.getResult());
}

//===------------------------------------------------------------------------------===//
// Dropping roundings
//===------------------------------------------------------------------------------===//

/// Replaces the widened uses of `half` by `wide`, the same value before rounding; views are made
/// again on it.
static void widen(Value half, Value wide) {
  for (Operation *user : llvm::make_early_inc_range(half.getUsers())) {
    Type element = getElementTypeOrSelf(wide);
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
}

/// Adds the number of a rounding that is dropped to the operation whose result is then unrounded,
/// and to those that it is a view of. What is stored for readers in fp32 stays so, without a mark.
static void markUnrounded(Value v, IntegerAttr number, Placement &placement) {
  while (placement.isInRegisters(v)) {
    Operation *producer = v.getDefiningOp();
    SmallVector<Attribute> numbers{number};
    if (auto others = producer->getAttrOfType<ArrayAttr>(kUnroundedAttr))
      llvm::append_range(numbers, others);
    producer->setAttr(kUnroundedAttr, ArrayAttr::get(number.getContext(), numbers));
    if (!isView(producer))
      break;
    v = producer->getOperand(0);
  }
}

/// Where a rounding stood between them, two operations may now fold into one.
void PlaceRoundings::simplify(func::FuncOp function) {
  (void)applyPatternsGreedily(function, canonicalization); // as far as it comes
  normalizeForFusion(function);
}

/// Drops what is not needed until nothing is left to drop. Returns the numbers of roundings that
/// were dropped in vain: in the clusters that this has led to, the value is not in registers.
SmallVector<int64_t> PlaceRoundings::drop(func::FuncOp function) {
  while (true) {
    Clustering clustering(function);
    Placement placement(clustering);
    SmallVector<arith::TruncFOp> unneeded;
    for (auto truncation : function.getOps<arith::TruncFOp>())
      if (placement.isUnneeded(truncation))
        unneeded.push_back(truncation);
    if (unneeded.empty()) {
      SmallVector<int64_t> numbers;
      for (Operation &op : function.getBody().front())
        if (auto marks = op.getAttrOfType<ArrayAttr>(kUnroundedAttr))
          if (!llvm::all_of(op.getResults(), [&](Value v) { return placement.isInRegisters(v); }))
            for (Attribute mark : marks)
              numbers.push_back(cast<IntegerAttr>(mark).getInt());
      return numbers;
    }
    for (arith::TruncFOp truncation : unneeded)
      if (auto number = truncation->getAttrOfType<IntegerAttr>(kNumberAttr))
        markUnrounded(truncation.getIn(), number, placement);
    for (arith::TruncFOp truncation : unneeded) {
      widen(truncation.getResult(), truncation.getIn());
      truncation.erase();
    }
    simplify(function);
  }
}

void PlaceRoundings::place(func::FuncOp function) {
  // normalizeForFusion drops the operators' names, by which a Cast's rounding is known.
  Builder b(&getContext());
  for (auto truncation : function.getOps<arith::TruncFOp>())
    if (StringRef type = operatorOf(truncation); type == "Cast" || type == "CastLike")
      truncation->setAttr(kKeepAttr, b.getUnitAttr());
  simplify(function);
  auto roundings = llvm::to_vector(function.getOps<arith::TruncFOp>());
  SmallVector<Type> types;
  for (auto [number, truncation] : llvm::enumerate(roundings)) {
    truncation->setAttr(kNumberAttr, b.getI64IntegerAttr(number));
    types.push_back(getElementTypeOrSelf(truncation.getType()));
  }
  // Each attempt that drops a rounding in vain is followed by one that keeps it.
  OwningOpRef<func::FuncOp> attempt;
  while (true) {
    attempt = cast<func::FuncOp>(function->clone());
    SmallVector<int64_t> wanted = drop(*attempt);
    if (wanted.empty())
      break;
    for (int64_t number : wanted)
      roundings[number]->setAttr(kKeepAttr, b.getUnitAttr());
  }
  function.getBody().takeBody(attempt->getBody());
  for (Operation &op : function.getBody().front()) {
    op.removeAttr(kNumberAttr);
    if (auto marks = op.getAttrOfType<ArrayAttr>(kUnroundedAttr))
      op.setAttr(kUnroundedAttr, TypeAttr::get(types[cast<IntegerAttr>(marks[0]).getInt()]));
  }
  function->setAttr(kPlacedAttr, b.getUnitAttr());
}

void PlaceRoundings::runOnOperation() {
  RewritePatternSet patterns(&getContext());
  for (Dialect *dialect : getContext().getLoadedDialects())
    dialect->getCanonicalizationPatterns(patterns);
  for (RegisteredOperationName name : getContext().getRegisteredOperations())
    name.getCanonicalizationPatterns(patterns, &getContext());
  canonicalization = std::move(patterns);
  for (auto function : getOperation().getOps<func::FuncOp>())
    if (!function.isExternal() && !function->hasAttr(MpcDialect::kKernelAttr))
      place(function);
}

//===------------------------------------------------------------------------------===//
// For fuse
//===------------------------------------------------------------------------------===//

LogicalResult mpc::verifyRoundings(func::FuncOp function, const Clustering &clustering) {
  if (!function->hasAttr(kPlacedAttr))
    return success();
  Placement placement(clustering);
  bool good = true;
  for (Operation &op : function.getBody().front()) {
    if (auto half = op.getAttrOfType<TypeAttr>(kUnroundedAttr)) {
      if (llvm::all_of(op.getResults(), [&](Value v) { return placement.isInRegisters(v); }))
        continue;
      op.emitOpError() << "leaves its kernel without the rounding to " << half.getValue()
                       << " that place-roundings dropped, as if one kernel alone read it; run fuse "
                          "on place-roundings' own output, with no pass between them";
    } else if (auto truncation = dyn_cast<arith::TruncFOp>(op);
               truncation && placement.isUnneeded(truncation)) {
      op.emitOpError() << "rounds a value that is read inside its kernel alone; place-roundings "
                          "kept it for another one; run fuse on place-roundings' own output, with "
                          "no pass between them";
    } else {
      continue;
    }
    good = false;
  }
  return success(good);
}

void mpc::dropRoundingMarks(func::FuncOp function) {
  function->removeAttr(kPlacedAttr);
  for (Operation &op : function.getBody().front()) {
    op.removeAttr(kKeepAttr);
    op.removeAttr(kUnroundedAttr);
  }
}
