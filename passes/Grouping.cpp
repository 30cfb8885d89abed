//===- Grouping.cpp - which launches of an entry point run as one on a GPU -------------===//
//
// Greedy, in the entry point's order: a launch joins the last group of its kind unless a path leads
// from one to the other, in the graph in which groups are single nodes.
//
//===----------------------------------------------------------------------------------===//

#include "passes/Grouping.h"
#include "compiler/codegen/Kernel.h"
#include "compiler/codegen/gpu/Group.h"
#include "compiler/codegen/gpu/Uniform.h"
#include "passes/OperationFacts.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mpc;

/// Memory that a launch may use longer than it would alone, per value.
constexpr int64_t kSmallBytes = 4096;

static bool isScalar(Value v) { return elementCount(v) == 1; }

SmallVector<OpResult> mpc::joinedScalars(LaunchOp launch, SymbolTable &symbols) {
  auto kernel = symbols.lookup<func::FuncOp>(launch.getKernel());
  ValueRange results = kernelResults(kernel);
  auto concat = results.size() == 1 ? results[0].getDefiningOp<ConcatOp>() : ConcatOp();
  bool joins = concat && isTable(concat) && concat.getInputs() == kernel.getArguments();
  if (!joins)
    return {};
  SmallVector<OpResult> scalars;
  for (Value input : launch.getInputs()) {
    auto scalar = dyn_cast<OpResult>(stripReshapes(input));
    if (!scalar || !isa<LaunchOp>(scalar.getOwner()) || !isScalar(scalar) ||
        llvm::is_contained(scalars, scalar))
      return {};
    scalars.push_back(scalar);
  }
  return scalars;
}

namespace {
/// Operations, and groups of them, as nodes of one graph.
class Units {
public:
  explicit Units(ArrayRef<llvm::SmallSetVector<int, 4>> next) : next(next) {
    for (size_t i = 0; i < next.size(); ++i) {
      first.push_back(i);
      members.push_back({static_cast<int>(i)});
    }
  }
  /// False if a path leads from one to the other.
  bool areApart(int a, int b) const { return !reaches(a, b) && !reaches(b, a); }
  void join(int unit, int op) {
    first[op] = unit;
    members[unit].push_back(op);
  }

  SmallVector<int> first; ///< of the unit that an operation is in
  SmallVector<SmallVector<int, 1>> members;

private:
  bool reaches(int from, int to) const {
    llvm::BitVector seen(next.size());
    SmallVector<int> stack{from};
    while (!stack.empty()) {
      int unit = stack.pop_back_val();
      for (int member : members[unit])
        for (int user : next[member]) {
          if (first[user] == to)
            return true;
          if (!seen.test(first[user])) {
            seen.set(first[user]);
            stack.push_back(first[user]);
          }
        }
    }
    return false;
  }
  ArrayRef<llvm::SmallSetVector<int, 4>> next;
};
} // namespace

SmallVector<int> mpc::groupLaunches(ArrayRef<Operation *> ops,
                                    ArrayRef<llvm::SmallSetVector<int, 4>> next,
                                    SymbolTable &symbols, function_ref<bool(Value)> outlives) {
  auto staysSmall = [&](Value v) {
    return tensorBytes(v.getType()) <= kSmallBytes || outlives(stripReshapes(v));
  };
  llvm::StringMap<std::string> texts; // by kernel
  auto textOf = [&](LaunchOp launch) -> StringRef {
    auto [entry, isNew] = texts.try_emplace(launch.getKernel());
    if (isNew)
      entry->second = gpu::uniformText(symbols.lookup<func::FuncOp>(launch.getKernel()));
    return entry->second;
  };
  Units units(next);
  llvm::StringMap<int> last; // by text: the group that is joined
  for (auto [i, op] : llvm::enumerate(ops)) {
    auto launch = dyn_cast<LaunchOp>(op);
    if (!launch || launch->hasAttr(gpu::kPlacedAttr) ||
        !llvm::all_of(launch->getOperands(), staysSmall) ||
        !llvm::all_of(launch->getResults(), staysSmall))
      continue;
    StringRef text = textOf(launch);
    if (text.empty())
      continue;
    auto [entry, isNew] = last.try_emplace(text, i);
    if (isNew)
      continue;
    int group = entry->second;
    SmallVector<LaunchOp> together;
    for (int member : units.members[group])
      together.push_back(cast<LaunchOp>(ops[member]));
    together.push_back(launch);
    auto kernel = symbols.lookup<func::FuncOp>(launch.getKernel());
    if (together.size() <= gpu::mostMembers(together, kernel) &&
        units.areApart(group, static_cast<int>(i)))
      units.join(group, i);
    else
      entry->second = i;
  }
  return units.first;
}
