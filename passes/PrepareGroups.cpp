//===- PrepareGroups.cpp - work per parameter that a GPU can launch together -----------===//
//
// `mpc.grouped` tells the passes behind that equal kernels of a function will be launched together.
// @apply has three places where a scalar per parameter meets one kernel, which would grow with
// the model, in parameters and in code. For a GPU each is the same work for every parameter, and
// something of a fixed size behind it:
//
//   %t = %s0 + %s1 + …                   →   %table = mpc.concat %s0, %s1, … {mpc.table}
//                                            %t = mpc.reduce sum %table
//   isFinite(%m0) ∧ isFinite(%m1) ∧ …    →   the same with the largest of all
//   %d = 1 - %lr · %decay                    element by element, as a part of the update
//   %w · (mpc.broadcast %d)              →   that reads it
//
// `plan` has every scalar of a table computed in its place. The sum of the squares is taken in the
// order of mpc.reduce.
//
//===----------------------------------------------------------------------------------===//

#include "compiler/ops/Build.h"
#include "passes/FunctionArguments.h"
#include "passes/Grouping.h"
#include "passes/OperationFacts.h"
#include "passes/Passes.h"
#include "llvm/ADT/STLExtras.h"

namespace mpc {
#define GEN_PASS_DEF_PREPAREGROUPS
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {
struct PrepareGroups : mpc::impl::PrepareGroupsBase<PrepareGroups> {
  void runOnOperation() override {
    for (StringRef name : {"accumulate", "apply", "apply_accumulated"})
      if (func::FuncOp f = findFunction(getOperation(), name)) {
        f->setAttr(kGroupedAttr, UnitAttr::get(&getContext()));
        tabulateSums(f);
        tabulateMaxima(f);
        spreadDecay(f);
        eraseDeadOperations(f);
      }
  }

private:
  static void tabulateSums(func::FuncOp f);
  static void tabulateMaxima(func::FuncOp f);
  static void spreadDecay(func::FuncOp f);
};
} // namespace

/// The scalars as a table behind the last of them.
static Value tabulate(OpBuilder &b, ArrayRef<Value> scalars) {
  Operation *last = scalars.front().getDefiningOp();
  for (Value scalar : scalars)
    if (last->isBeforeInBlock(scalar.getDefiningOp()))
      last = scalar.getDefiningOp();
  b.setInsertionPointAfter(last);
  Location loc = last->getLoc();
  SmallVector<Value> parts;
  for (Value scalar : scalars)
    parts.push_back(reshape(b, loc, scalar, {1}));
  auto type =
      RankedTensorType::get({static_cast<int64_t>(parts.size())}, elementType(scalars.front()));
  auto table = ConcatOp::create(b, loc, type, parts, b.getI64IntegerAttr(0));
  table->setAttr(kTableAttr, b.getUnitAttr());
  return table;
}

/// What adds up the scalars one after the other, as ApplyHead builds it; null if nothing does.
static Value chainOf(ArrayRef<Value> scalars) {
  Value total = scalars.front();
  for (Value scalar : scalars.drop_front()) {
    Value next;
    for (Operation *user : total.getUsers())
      if (isa<arith::AddFOp>(user) && llvm::is_contained(user->getOperands(), scalar))
        next = user->getResult(0);
    if (!next)
      return {};
    total = next;
  }
  return total;
}

void PrepareGroups::tabulateSums(func::FuncOp f) {
  ConcatOp concat;
  for (unsigned i = 0; i < f.getNumResults(); ++i)
    if (resultRole(f, i) == "gradient_square_sums")
      concat = terminatorOf(f)->getOperand(i).getDefiningOp<ConcatOp>();
  if (!concat)
    return;
  SmallVector<Value> sums;
  for (Value part : concat.getInputs())
    sums.push_back(stripReshapes(part));
  if (sums.size() < 2)
    return;
  Value total = chainOf(sums);
  if (!total || !llvm::all_of(sums, [](Value sum) { return sum.getDefiningOp() != nullptr; }))
    return;
  OpBuilder b(concat);
  Value table = tabulate(b, sums);
  Value sum = mpc::reduce(b, concat.getLoc(), ReductionKind::sum, table, {0});
  concat.getResult().replaceAllUsesWith(table);
  total.replaceAllUsesWith(sum);
}

/// |x| < ∞ of the largest |x| of a working statistic: the reduction and the comparison.
static std::pair<Value, arith::CmpFOp> finiteCheckOf(BlockArgument working) {
  auto single = [](Value v, auto is) -> Operation * {
    for (Operation *user : v.getUsers())
      if (is(user))
        return user;
    return nullptr;
  };
  auto isAbs = [](Operation *op) { return isa<math::AbsFOp>(op); };
  Operation *sizes = single(working, isAbs);
  Operation *largest = sizes ? single(sizes->getResult(0),
                                      [](Operation *op) {
                                        auto reduce = dyn_cast<ReduceOp>(op);
                                        return reduce && reduce.getKind() == ReductionKind::max &&
                                               elementCount(reduce.getResult()) == 1;
                                      })
                             : nullptr;
  Operation *size = largest ? single(largest->getResult(0), isAbs) : nullptr;
  Operation *check =
      size ? single(size->getResult(0), [](Operation *op) { return isa<arith::CmpFOp>(op); })
           : nullptr;
  return {largest ? largest->getResult(0) : Value(), dyn_cast_or_null<arith::CmpFOp>(check)};
}

void PrepareGroups::tabulateMaxima(func::FuncOp f) {
  SmallVector<Value> maxima;
  SmallVector<arith::CmpFOp> checks;
  for (BlockArgument working : argumentsOf(f, "working_statistic"))
    if (auto [largest, check] = finiteCheckOf(working); check) {
      maxima.push_back(largest);
      checks.push_back(check);
    }
  if (maxima.size() < 2)
    return;
  OpBuilder b(f.getContext());
  Value table = tabulate(b, maxima);
  Location loc = checks.front().getLoc();
  Value largest = mpc::reduce(b, loc, ReductionKind::max, table, {0});
  Value isFinite = arith::CmpFOp::create(
      b, loc, checks.front().getPredicate(), math::AbsFOp::create(b, loc, largest),
      splat(b, loc, largest.getType(), std::numeric_limits<double>::infinity()));
  // The last one says it for all.
  llvm::sort(checks, [](arith::CmpFOp x, arith::CmpFOp y) { return x->isBeforeInBlock(y); });
  for (arith::CmpFOp check : llvm::drop_end(checks)) {
    b.setInsertionPoint(check);
    Value yes = arith::ConstantOp::create(
        b, loc, DenseElementsAttr::get(cast<ShapedType>(check.getType()), true));
    check.getResult().replaceAllUsesWith(yes);
  }
  checks.back().getResult().replaceAllUsesWith(isFinite);
}

/// True if the scalar is computed from an argument of role weight_decay, in a few steps.
static bool isOfDecay(func::FuncOp f, Value scalar, int depth = 4) {
  if (auto argument = dyn_cast<BlockArgument>(scalar))
    return argumentRole(f, argument.getArgNumber()) == "weight_decay";
  Operation *op = scalar.getDefiningOp();
  return depth > 0 && isPointwise(op) &&
         llvm::any_of(op->getOperands(), [&](Value v) { return isOfDecay(f, v, depth - 1); });
}

/// The scalar's arithmetic on tensors of this shape.
static Value spread(OpBuilder &b, func::FuncOp f, Value scalar, ArrayRef<int64_t> shape) {
  Operation *op = scalar.getDefiningOp();
  if (!isOfDecay(f, scalar) || !op)
    return broadcastScalar(b, scalar.getLoc(), scalar, shape);
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(spread(b, f, operand, shape));
  Operation *made = b.clone(*op);
  made->setOperands(operands);
  made->getResult(0).setType(RankedTensorType::get(shape, elementType(scalar)));
  return made->getResult(0);
}

void PrepareGroups::spreadDecay(func::FuncOp f) {
  for (auto broadcast : llvm::make_early_inc_range(f.getOps<BroadcastOp>())) {
    Value scalar = broadcast.getInput();
    if (tensorType(scalar).getRank() != 0 || !scalar.getDefiningOp() || !isOfDecay(f, scalar))
      continue;
    OpBuilder b(broadcast);
    broadcast.getResult().replaceAllUsesWith(spread(b, f, scalar, shapeOf(broadcast.getResult())));
    broadcast.erase();
  }
}
