//===- RowPhases.cpp - the phases of a row kernel ----------------------------------===//

#include "compiler/codegen/RowPhases.h"
#include "compiler/codegen/Kernel.h"
#include "compiler/codegen/Loops.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace mpc {

// A value this expensive, needed again in a later phase, is kept instead of computed again.
static constexpr double kKeepCost = 9;
// Bytes of a row that may be kept in the frame: about half of a second-level cache, and far less
// than a thread's stack.
static constexpr int64_t kKeepBytes = 256 << 10;

RowPhases::Reach RowPhases::reach(ArrayRef<Value> roots) const {
  AccessWalk walk;
  Affine row = walk.addBase(0, rows - 1, 1),
         element = row * columns + walk.addBase(0, columns - 1, 2);
  for (Value root : roots)
    walk.visit(root, elementsOf(tensorShape(root)) == rows * columns ? element : row);
  Reach reach;
  for (auto &[value, at] : walk.reached) {
    if (auto reduce = value.getDefiningOp<ReduceOp>())
      reach.reductions.push_back(reduce);
    else if (at == element)
      reach.elements.push_back(value);
  }
  return reach;
}

/// What computing the values again would cost: `elements` beginning with `value`, without what
/// other kept values hold.
static double coneCost(Value value, const SmallPtrSetImpl<Operation *> &atElement,
                       llvm::function_ref<bool(Value)> isKept) {
  SetVector<Value> cone;
  cone.insert(value);
  double cost = 0;
  for (size_t i = 0; i < cone.size(); ++i) {
    Operation *op = cone[i].getDefiningOp();
    if (!op) {
      cost += 1;
      continue;
    }
    cost += operationCost(op);
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()) && (i == 0 || !isKept(cone[i])) &&
          (!operand.getDefiningOp() || atElement.contains(operand.getDefiningOp())))
        cone.insert(operand);
  }
  return cost;
}

RowPhases::RowPhases(func::FuncOp kernel, int64_t rows, int64_t columns)
    : rows(rows), columns(columns) {
  // A reduction's phase follows those of the reductions that its operand needs; body order is
  // dependency order.
  DenseMap<Operation *, unsigned> phaseOf;
  auto after = [&](const Reach &reach) {
    unsigned phase = 0;
    for (ReduceOp needed : reach.reductions)
      phase = std::max(phase, phaseOf[needed] + 1);
    return phase;
  };
  for (ReduceOp reduce : kernel.getOps<ReduceOp>()) {
    unsigned phase = after(reach({reduce.getInput()}));
    phaseOf[reduce] = phase;
    if (reductions.size() <= phase)
      reductions.resize(phase + 1);
    reductions[phase].push_back(reduce);
  }
  reductions.emplace_back();

  SmallVector<Reach> perPhase;
  for (ArrayRef<ReduceOp> phase : ArrayRef(reductions).drop_back()) {
    SmallVector<Value> roots;
    for (ReduceOp reduce : phase)
      roots.push_back(reduce.getInput());
    perPhase.push_back(reach(roots));
  }
  SmallVector<Value> stored;
  for (Value result : kernelResults(kernel))
    if (elementsOf(tensorShape(result)) == rows * columns)
      stored.push_back(result);
  perPhase.push_back(reach(stored));
  choose(kernel, perPhase);
  SmallPtrSet<Operation *, 2> drawn;
  for (const Reach &reach : perPhase) {
    random.push_back(false);
    for (Value value : reach.elements)
      if (auto draw = value.getDefiningOp<RandomUniformOp>())
        random.back() |= drawn.insert(draw).second;
  }
}

void RowPhases::choose(func::FuncOp kernel, ArrayRef<Reach> perPhase) {
  DenseMap<Value, unsigned> first; // the phase that computes it first
  for (auto [phase, reach] : llvm::enumerate(perPhase))
    for (Value value : reach.elements)
      first.try_emplace(value, phase);
  ArrayRef<int64_t> aliases = getKernelAttr(kernel).getAliases().asArrayRef();
  int64_t bytes = 0;
  for (unsigned phase = 1; phase < perPhase.size(); ++phase) {
    SmallPtrSet<Operation *, 32> atElement;
    for (Value value : perPhase[phase].elements)
      if (Operation *op = value.getDefiningOp())
        atElement.insert(op);
    // Users come first, so the largest computation that an earlier phase has done is met before its
    // parts.
    SmallPtrSet<Value, 32> covered;
    auto cover = [&](Value value) {
      SmallVector<Value> work{value};
      while (!work.empty()) {
        Value next = work.pop_back_val();
        if (Operation *op = next.getDefiningOp(); op && covered.insert(next).second)
          work.append(op->operand_begin(), op->operand_end());
      }
    };
    for (Value value : perPhase[phase].elements) {
      if (first[value] == phase || covered.contains(value) || !value.getDefiningOp())
        continue;
      if (kept.count(value)) {
        cover(value);
        continue;
      }
      if (coneCost(value, atElement, [&](Value v) { return kept.count(v) != 0; }) < kKeepCost)
        continue;
      Kept keep{first[value], -1, {}};
      for (auto [i, result] : llvm::enumerate(kernelResults(kernel)))
        if (result == value && aliases[i] < 0)
          keep.result = i;
      int64_t size = columns * storedBytes(getElementTypeOrSelf(value.getType()));
      if (keep.result < 0 && bytes + size > kKeepBytes)
        continue;
      bytes += keep.result < 0 ? size : 0;
      kept.insert({value, keep});
      cover(value);
    }
  }
}

} // namespace mpc
