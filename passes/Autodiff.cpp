//===- Autodiff.cpp - reverse mode on the core level ---------------------------===//
//
// Walks @forward backwards and asks every operation between a parameter and the loss
// for its vector-Jacobian product. Three rules go beyond the textbook:
//
// - Precision was assigned before, so an activation's gradient has the activation's
//   type; a sum of several is formed in f32 and rounded once.
// - A parameter's gradient never passes through half: on the way from the parameter to
//   its use (casts, and index maps of parameters alone) the adjoint stays f32.
//     %w (f32) → truncf → transpose → matmul        dW (f32) ← transpose ← dW (f32, by the product
//     itself)
// - All uses of a parameter are summed once; a lookup table's scatter_add starts from
//   the sum of the others (tied weights), so that no second table is ever stored.
//
//===----------------------------------------------------------------------------===//

#include "FunctionArguments.h"
#include "Passes.h"
#include "compiler/ops/Build.h"
#include "compiler/ops/OperatorText.h"
#include "passes/OperationFacts.h"
#include "llvm/ADT/MapVector.h"

namespace mpc {
#define GEN_PASS_DEF_AUTODIFF
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {
struct Autodiff : mpc::impl::AutodiffBase<Autodiff> {
  void runOnOperation() override;
};

/// Reverse mode of one function.
class Differentiator {
public:
  explicit Differentiator(func::FuncOp f)
      : f(f), b(f.getContext(), &listener), parameters(argumentsOf(f, "parameter")) {}

  /// Which values lie between a parameter and the loss; fails, with every operation named, where
  /// one has no gradient rule.
  LogicalResult analyze(Value loss);
  /// Builds the gradients before the terminator, given the loss's cotangent.
  LogicalResult differentiate(Value loss, Value seed);
  /// The f32 gradient of a parameter, null where the loss does not depend on it.
  Value gradientOf(Value parameter) {
    listener.setOrigin(nullptr);
    return sumOf(parameter);
  }

private:
  bool isActive(Value v) { return dependsOn.contains(v) && reachesLoss.contains(v); }
  Type gradientType(Value v);
  void contribute(Value v, Value gradient);
  Value sumOf(Value v);
  Value startScattersFrom(Value sum, ArrayRef<ScatterAddOp> scatters);
  bool passThrough(Operation *op, Value cotangent);
  LogicalResult visit(Operation *op);
  void readStoredValues(ArrayRef<Operation *> forward);

  func::FuncOp f;
  NodeAttributeListener listener;
  OpBuilder b;
  SmallVector<BlockArgument> parameters;
  DenseMap<Value, BlockArgument> dependsOn; // value → a parameter it depends on
  DenseSet<Value> reachesLoss;
  DenseSet<Value> ofParameters; // parameters, and casts and index maps of these alone
  DenseMap<Value, SmallVector<Value>> contributions;
  DenseMap<Value, int> holders; ///< values whose contributions a gradient is one of
};
} // namespace

LogicalResult Differentiator::analyze(Value loss) {
  for (BlockArgument parameter : parameters) {
    dependsOn[parameter] = parameter;
    ofParameters.insert(parameter);
  }
  for (Operation &op : f.front()) {
    BlockArgument source;
    bool only = true; // every float operand is of parameters alone
    for (Value operand : op.getOperands()) {
      if (!isFloatTensor(operand))
        continue;
      auto it = dependsOn.find(operand);
      if (it != dependsOn.end() && !source)
        source = it->second;
      only &= ofParameters.contains(operand);
    }
    if (!source)
      continue;
    for (Value result : op.getResults())
      if (isFloatTensor(result))
        dependsOn[result] = source;
    if (only && (isIndexMap(&op) || isa<arith::TruncFOp, arith::ExtFOp>(op)))
      ofParameters.insert(op.getResult(0));
  }

  reachesLoss.insert(loss);
  for (Operation &op : llvm::reverse(f.front()))
    if (llvm::any_of(op.getResults(), [&](Value v) { return reachesLoss.contains(v); }))
      for (Value operand : op.getOperands())
        if (isFloatTensor(operand))
          reachesLoss.insert(operand);

  bool differentiable = true;
  for (Operation &op : f.front()) {
    auto active = [&](Value v) { return isActive(v); };
    if (llvm::none_of(op.getResults(), active) || llvm::none_of(op.getOperands(), active) ||
        isa<DifferentiableOpInterface>(op))
      continue;
    BlockArgument parameter;
    for (Value operand : op.getOperands())
      if (isActive(operand) && !parameter)
        parameter = dependsOn[operand];
    StringRef name = argumentName(f, parameter.getArgNumber());
    emitError(op.getLoc())
        << "node '" << nodeOf(&op) << "' " << operatorText(&op) << ": `"
        << op.getName().getStringRef() << "` has no gradient, and it lies between parameter '"
        << name
        << "' and the loss; freeze the parameters before it (--freeze), or take the "
           "operator out of the model";
    differentiable = false;
  }
  return success(differentiable);
}

// f32 (f64) for what belongs to parameters alone, the value's own element type otherwise.
Type Differentiator::gradientType(Value v) {
  return ofParameters.contains(v) ? computeType(elementType(v)) : elementType(v);
}

void Differentiator::contribute(Value v, Value gradient) {
  if (!gradient)
    return;
  contributions[v].push_back(gradient);
  ++holders[gradient];
}

// Tied weights: each scatter_add starts from the sum so far instead of from zero.
Value Differentiator::startScattersFrom(Value sum, ArrayRef<ScatterAddOp> scatters) {
  for (ScatterAddOp scatter : scatters) {
    if (sum) {
      scatter->moveBefore(terminatorOf(f));
      scatter.getInitMutable().assign(sum);
    }
    sum = scatter.getResult();
  }
  return sum;
}

// Sums what the uses of a value contributed, in the compute type, and rounds once.
Value Differentiator::sumOf(Value v) {
  auto it = contributions.find(v);
  if (it == contributions.end() || it->second.empty())
    return {};
  Location loc = v.getLoc();
  Type compute = computeType(elementType(v)), wanted = gradientType(v);
  SmallVector<Value> &terms = it->second;
  if (terms.size() == 1) {
    if (v.getDefiningOp()) // whose rule is next to hold it
      --holders[terms.front()];
    return terms.front() = castTo(b, loc, terms.front(), wanted);
  }
  SmallVector<ScatterAddOp> scatters;
  Value sum;
  for (Value term : terms) {
    auto scatter = term.getDefiningOp<ScatterAddOp>();
    // Nobody else may have the table for its gradient: an addition gives both its operands the
    // same.
    if (scatter && !scatter.getInit() && term.use_empty() && holders[term] == 1 &&
        elementType(term) == compute && wanted == compute) {
      scatters.push_back(scatter);
      continue;
    }
    Value wide = castTo(b, loc, term, compute);
    sum = sum ? add(b, loc, sum, wide) : wide;
  }
  Value total = castTo(b, loc, startScattersFrom(sum, scatters), wanted);
  terms.assign(1, total);
  return total;
}

// Casts, transposes and reshapes of parameters: the f32 gradient passes as it is, whatever type the
// value has.
bool Differentiator::passThrough(Operation *op, Value cotangent) {
  Value operand = op->getOperand(0);
  Location loc = op->getLoc();
  if (isa<arith::TruncFOp, arith::ExtFOp>(op)) {
    contribute(operand, cotangent);
    return true;
  }
  if (isa<ReshapeOp>(op)) {
    contribute(operand, mpc::reshape(b, loc, cotangent, shapeOf(operand)));
    return true;
  }
  if (auto transposed = dyn_cast<TransposeOp>(op)) {
    SmallVector<int64_t> inverse(transposed.getPermutation().size());
    for (auto [to, from] : llvm::enumerate(transposed.getPermutation()))
      inverse[from] = to;
    contribute(operand, mpc::transpose(b, loc, cotangent, inverse));
    return true;
  }
  return false;
}

LogicalResult Differentiator::visit(Operation *op) {
  listener.setOrigin(op);
  SmallVector<Value> cotangents;
  bool any = false;
  for (Value result : op->getResults()) {
    cotangents.push_back(isActive(result) ? sumOf(result) : Value());
    any |= bool(cotangents.back());
  }
  if (!any || llvm::none_of(op->getOperands(), [&](Value v) { return isActive(v); }))
    return success();
  if (op->getNumResults() == 1 && ofParameters.contains(op->getResult(0)) &&
      passThrough(op, cotangents[0]))
    return success();

  SmallVector<Type> wanted;
  for (Value operand : op->getOperands())
    wanted.push_back(isActive(operand) ? gradientType(operand) : Type());
  SmallVector<Value> gradients = cast<DifferentiableOpInterface>(op).vjp(b, cotangents, wanted);
  if (gradients.size() != op->getNumOperands())
    return emitError(op->getLoc())
           << "node '" << nodeOf(op) << "' " << operatorText(op) << ": `"
           << op->getName().getStringRef() << "` has no gradient in this form";
  for (auto [operand, gradient, type] : llvm::zip_equal(op->getOperands(), gradients, wanted)) {
    if (!type || !gradient)
      continue;
    auto expected = RankedTensorType::get(shapeOf(operand), type);
    if (gradient.getType() != expected)
      return op->emitError() << "internal: the gradient of `" << op->getName().getStringRef()
                             << "` has type " << gradient.getType() << " where " << expected
                             << " was asked for";
    contribute(operand, gradient);
  }
  return success();
}

// What backward reads of forward is what is stored: the rounded value, where rounding an f32 result
// is all that forward does with it. One that forward also reads as it is (beside the copy that a
// product or a Cast of the model gets) has its derivatives at what it is: of 1e-9, which is 0 in
// half, a logarithm has one.
void Differentiator::readStoredValues(ArrayRef<Operation *> forward) {
  llvm::SmallPtrSet<Operation *, 32> ofForward(forward.begin(), forward.end());
  for (Operation *op : forward) {
    auto rounding = dyn_cast<arith::TruncFOp>(op);
    if (!rounding || !rounding.getIn().getDefiningOp())
      continue;
    Value exact = rounding.getIn(), widened;
    SmallVector<OpOperand *> uses;
    Operation *first = nullptr;
    bool isReadExactly = false;
    for (OpOperand &use : exact.getUses()) {
      Operation *user = use.getOwner();
      if (ofForward.contains(user) || user == terminatorOf(f)) {
        isReadExactly |= user != op;
        continue;
      }
      uses.push_back(&use);
      if (!first || user->isBeforeInBlock(first))
        first = user;
    }
    if (!first || isReadExactly)
      continue;
    b.setInsertionPoint(first);
    listener.setOrigin(op);
    widened = castTo(b, op->getLoc(), rounding, elementType(exact));
    for (OpOperand *use : uses)
      use->set(widened);
  }
}

LogicalResult Differentiator::differentiate(Value loss, Value seed) {
  b.setInsertionPoint(terminatorOf(f));
  contribute(loss, seed);
  SmallVector<Operation *> forward;
  for (Operation &op : f.front().without_terminator())
    forward.push_back(&op);
  for (Operation *op : llvm::reverse(forward))
    if (failed(visit(op)))
      return failure();
  readStoredValues(forward);
  b.setInsertionPoint(terminatorOf(f));
  return success();
}

void Autodiff::runOnOperation() {
  ModuleOp module = getOperation();
  func::FuncOp f = findFunction(module, "forward");
  if (!f)
    return;
  std::optional<unsigned> lossIndex;
  for (unsigned i = 0; i < f.getNumResults(); ++i)
    if (resultRole(f, i) == "loss")
      lossIndex = i;
  SmallVector<BlockArgument> parameters = argumentsOf(f, "parameter");
  if (!lossIndex || parameters.empty()) {
    emitError(f.getLoc()) << (lossIndex ? "nothing to train: the model has no parameter that is "
                                          "not frozen; see --train and --freeze, or use --loss=none"
                                        : "@forward returns no loss: run attach-loss first");
    return signalPassFailure();
  }
  Value loss = terminatorOf(f)->getOperand(*lossIndex);
  Differentiator differentiator(f);
  if (failed(differentiator.analyze(loss)))
    return signalPassFailure();

  f.setSymName("gradients");
  Value seed = addArgument(f, "seed", "loss_scale", loss.getType());
  if (failed(differentiator.differentiate(loss, seed)))
    return signalPassFailure();
  OpBuilder b(terminatorOf(f));
  for (BlockArgument parameter : parameters) {
    StringRef name = argumentName(f, parameter.getArgNumber());
    Value gradient = differentiator.gradientOf(parameter);
    if (!gradient) {
      gradient = splat(b, f.getLoc(), parameter.getType(), 0);
      addNote(module, "the loss does not depend on parameter '" + name + "': its gradient is zero");
    }
    addResult(f, gradient, "gradient", name);
  }
  eraseDeadOperations(f);
}
