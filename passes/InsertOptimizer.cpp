//===- InsertOptimizer.cpp - updates, accumulation and half copies -------------===//
//
// Every parameter gets its update in @apply and @apply_accumulated: one operation that
// reads the gradient once and writes master, moments and, where the model computes with
// it, the half copy, in the same pass over memory:
//
//   @predict(%w): %h = arith.truncf %w; use %h     →    @predict(%h): use %h
//   @apply(%g, …)                                  →    @apply(%w, %m, %g, …):
//                                                         %w', %m' = mpc.sgd_update …
//                                                         %h' = arith.truncf %w'
//                                                       @refresh(%w): %h' = arith.truncf %w
//                                                       @accumulate(%g, %a): %a' = %a + count · %g
//
// A row of `schedule` holds the learning rate and the bias corrections of an applied
// step, so that neither costs a host round trip and both stand still in a skipped step.
//
//===----------------------------------------------------------------------------===//

#include "ApplyValues.h"
#include "FunctionArguments.h"
#include "Passes.h"
#include "compiler/ops/Build.h"
#include "llvm/ADT/MapVector.h"

namespace mpc {
#define GEN_PASS_DEF_INSERTOPTIMIZER
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

static constexpr int64_t kScheduleRows = 4096; ///< a ring: row k mod 4096 is applied step k's

namespace {
/// A parameter (or frozen constant) that some function rounds, by name.
struct HalfCopy {
  Type masterType, halfType;
  Attribute weights;
  StringRef masterRole; ///< parameter, or constant
};

struct InsertOptimizer : mpc::impl::InsertOptimizerBase<InsertOptimizer> {
  using InsertOptimizerBase::InsertOptimizerBase;
  void runOnOperation() override;

private:
  llvm::MapVector<StringAttr, HalfCopy> copies;
  void takeHalfCopies(func::FuncOp f);
  void buildUpdates(func::FuncOp apply, func::FuncOp gradients, bool accumulated);
  void buildAccumulate(func::FuncOp gradients);
  void buildRefresh();
};
} // namespace

// Roundings of parameters become arguments.
void InsertOptimizer::takeHalfCopies(func::FuncOp f) {
  if (!f)
    return;
  for (StringRef role : {"parameter", "constant"})
    for (BlockArgument master : argumentsOf(f, role)) {
      StringRef name = argumentName(f, master.getArgNumber());
      Attribute weights = f.getArgAttr(master.getArgNumber(), MpcDialect::kWeightsAttr);
      for (Operation *user : llvm::make_early_inc_range(master.getUsers())) {
        auto rounding = dyn_cast<arith::TruncFOp>(user);
        if (!rounding)
          continue;
        Type halfType = rounding.getType();
        Value copy = getOrAddArgument(f, "half_copy", name, halfType);
        rounding.getResult().replaceAllUsesWith(copy);
        rounding.erase();
        copies.insert({StringAttr::get(&getContext(), name),
                       HalfCopy{master.getType(), halfType, weights, role}});
      }
    }
}

void InsertOptimizer::buildUpdates(func::FuncOp apply, func::FuncOp gradients, bool accumulated) {
  Location loc = apply.getLoc();
  OpBuilder b(terminatorOf(apply));
  Value ok, factor;
  for (unsigned i = 0; i < apply.getNumResults(); ++i) {
    if (resultRole(apply, i) == "ok")
      ok = terminatorOf(apply)->getOperand(i);
    if (resultRole(apply, i) == kFactorRole)
      factor = terminatorOf(apply)->getOperand(i);
  }
  removeResults(apply, [&](unsigned i) { return resultRole(apply, i) == kFactorRole; });
  Type real = elementType(factor);
  Value hyper = findArgument(apply, "hyper"), applied = findArgument(apply, "applied_steps");
  Value schedule =
      addArgument(apply, "schedule", "schedule", RankedTensorType::get({kScheduleRows, 4}, real));
  // row = schedule[applied_steps mod 4096]
  Value index = arith::AndIOp::create(b, loc, applied,
                                      scalarTensor(b, loc, b.getI64Type(), kScheduleRows - 1));
  Value row = GatherOp::create(b, loc, RankedTensorType::get({4}, real), schedule, index,
                               b.getI64IntegerAttr(0));

  for (BlockArgument parameter : argumentsOf(gradients, "parameter")) {
    StringRef name = argumentName(gradients, parameter.getArgNumber());
    Value gradient = findArgument(apply, accumulated ? "accumulator" : "gradient", name);
    Type type = parameter.getType();
    Value master =
        addArgument(apply, "parameter", name, type,
                    gradients.getArgAttr(parameter.getArgNumber(), MpcDialect::kWeightsAttr));
    Value decay = addArgument(apply, "weight_decay", name, RankedTensorType::get({}, real));
    auto state = [&](StringRef kind) {
      return addArgument(apply, "optimizer_state", (kind + "/" + name).str(), type);
    };
    Operation *update;
    SmallVector<Value> states;
    if (StringRef(optimizer).starts_with("sgd")) {
      states = {state("momentum_buffer")};
      auto op = SgdUpdateOp::create(
          b, loc, TypeRange{type, type},
          ValueRange{master, states[0], gradient, factor, ok, row, hyper, decay});
      op.setNesterov(optimizer == "sgd-nesterov");
      update = op;
    } else {
      states = {state("exp_avg"), state("exp_avg_sq")};
      auto op = AdamUpdateOp::create(
          b, loc, TypeRange{type, type, type},
          ValueRange{master, states[0], states[1], gradient, factor, ok, row, hyper, decay});
      op.setDecoupled(optimizer == "adamw");
      update = op;
    }
    addResult(apply, update->getResult(0), "parameter", name, master);
    for (auto [old, next] : llvm::zip_equal(states, update->getResults().drop_front()))
      addResult(apply, next, "optimizer_state",
                argumentName(apply, cast<BlockArgument>(old).getArgNumber()), old);
    auto copy = copies.find(StringAttr::get(&getContext(), name));
    if (copy == copies.end())
      continue;
    Value half = castTo(b, loc, update->getResult(0),
                        cast<RankedTensorType>(copy->second.halfType).getElementType());
    addResult(apply, half, "half_copy", name,
              addArgument(apply, "half_copy", name, copy->second.halfType));
  }
}

// accumulator' = accumulator + count · gradient; accumulated_count' = accumulated_count + count
void InsertOptimizer::buildAccumulate(func::FuncOp gradients) {
  func::FuncOp f = createFunction(getOperation(), "accumulate");
  Location loc = f.getLoc();
  OpBuilder b(terminatorOf(f));
  Type scalar;
  for (unsigned i = 0; i < gradients.getNumResults(); ++i)
    if (resultRole(gradients, i) == "count")
      scalar = gradients.getResultTypes()[i];
  Value loss = addArgument(f, "loss", "loss", scalar),
        count = addArgument(f, "count", "count", scalar);
  Value total = addArgument(f, "accumulated_count", "accumulated_count", scalar);
  // A loss that is not finite makes the count NaN (0 · ∞), and the whole step is skipped.
  Value poison = mul(b, loc, loss, splat(b, loc, scalar, 0));
  addResult(f, add(b, loc, add(b, loc, total, count), poison), "accumulated_count",
            "accumulated_count", total);
  for (unsigned i = 0; i < gradients.getNumResults(); ++i) {
    if (resultRole(gradients, i) != "gradient")
      continue;
    StringRef name = resultName(gradients, i);
    Type type = gradients.getResultTypes()[i];
    Value gradient = addArgument(f, "gradient", name, type),
          accumulator = addArgument(f, "accumulator", name, type);
    Value weighted = mul(b, loc, gradient, broadcastScalar(b, loc, count, shapeOf(gradient)));
    addResult(f, add(b, loc, accumulator, weighted), "accumulator", name, accumulator);
  }
}

void InsertOptimizer::buildRefresh() {
  if (copies.empty())
    return;
  func::FuncOp f = createFunction(getOperation(), "refresh");
  Location loc = f.getLoc();
  OpBuilder b(terminatorOf(f));
  for (auto &[name, copy] : copies) {
    Value master = addArgument(f, copy.masterRole, name, copy.masterType, copy.weights);
    Value old = addArgument(f, "half_copy", name, copy.halfType);
    addResult(f, castTo(b, loc, master, cast<RankedTensorType>(copy.halfType).getElementType()),
              "half_copy", name, old);
  }
}

void InsertOptimizer::runOnOperation() {
  ModuleOp module = getOperation();
  static const SmallVector<StringRef> known{"sgd", "sgd-nesterov", "adam", "adamw"};
  if (!llvm::is_contained(known, StringRef(optimizer))) {
    emitError(module.getLoc()) << "--optimizer=" << optimizer << ": unknown; one of "
                               << llvm::join(known, ", ");
    return signalPassFailure();
  }
  module->setAttr("mpc.optimizer", StringAttr::get(&getContext(), optimizer));
  func::FuncOp gradients = findFunction(module, "gradients");
  copies.clear();
  for (StringRef name : {"gradients", "predict", "eval_step"})
    takeHalfCopies(findFunction(module, name));
  if (gradients) {
    for (bool accumulated : {false, true}) {
      func::FuncOp apply = findFunction(module, accumulated ? "apply_accumulated" : "apply");
      if (!apply) {
        emitError(gradients.getLoc(), "there is no @apply: run insert-loss-scaling first");
        return signalPassFailure();
      }
      buildUpdates(apply, gradients, accumulated);
    }
    buildAccumulate(gradients);
  }
  buildRefresh();
  for (func::FuncOp f : module.getOps<func::FuncOp>()) {
    eraseDeadOperations(f);
    removeUnusedArguments(f);
  }
}
