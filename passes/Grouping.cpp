//===- Grouping.cpp - which launches of an entry point run as one on a GPU -------------===//
//
// Greedy, in the entry point's order: a launch joins the last group of its kind unless a path leads
// from one to the other, in the graph in which groups are single nodes.
//
// A group runs where its first member would, or behind the last operation that some member needs.
// What stands in between and needs an earlier member waits. Of parallel branches,
//
//   a = conv x, u    s = sum a    g = small s    p = max (a · g)
//   b = conv x, v    t = sum b    h = small t    q = max (b · h)
//
// p would wait for t, and a would be in memory beside b. So a launch joins only where all that will
// have to wait touches little memory.
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
  explicit Units(ArrayRef<llvm::SmallSetVector<int, 4>> next) : next(next), previous(next.size()) {
    for (size_t i = 0; i < next.size(); ++i) {
      first.push_back(i);
      members.push_back({static_cast<int>(i)});
      when.push_back(i);
    }
    for (size_t i = 0; i < next.size(); ++i)
      for (int user : next[i]) {
        previous[user].push_back(i);
        delay(user, when[i]);
      }
  }
  /// The units that paths lead to from this one.
  llvm::BitVector behind(int unit) const {
    llvm::BitVector seen(next.size());
    SmallVector<int> stack{unit};
    while (!stack.empty())
      for (int member : members[stack.pop_back_val()])
        for (int user : next[member])
          if (!seen.test(first[user])) {
            seen.set(first[user]);
            stack.push_back(first[user]);
          }
    return seen;
  }
  /// The number of the operation behind which all is there that this one needs.
  int ready(int op) const {
    int last = -1;
    for (int other : previous[op])
      last = std::max(last, when[first[other]]);
    return last;
  }
  void join(int unit, int op) {
    int from = ready(op);
    first[op] = unit;
    members[unit].push_back(op);
    delay(unit, std::max(from, when[unit]));
    for (int user : next[op])
      delay(first[user], when[unit]);
  }

  SmallVector<int> first; ///< of the unit that an operation is in
  SmallVector<SmallVector<int, 1>> members;

private:
  /// This unit, and what waits for it, runs behind the operation of this number.
  void delay(int unit, int number) {
    SmallVector<int> stack{unit};
    while (!stack.empty()) {
      int delayed = stack.pop_back_val();
      if (when[delayed] >= number)
        continue;
      when[delayed] = number;
      for (int member : members[delayed])
        for (int user : next[member])
          stack.push_back(first[user]);
    }
  }

  ArrayRef<llvm::SmallSetVector<int, 4>> next;
  SmallVector<SmallVector<int, 4>> previous;
  SmallVector<int> when; ///< per unit: the number of the operation that it runs at, or behind
};
} // namespace

SmallVector<int> mpc::groupLaunches(ArrayRef<Operation *> ops,
                                    ArrayRef<llvm::SmallSetVector<int, 4>> next,
                                    SymbolTable &symbols, function_ref<bool(Value)> outlives) {
  auto staysSmall = [&](Value v) {
    return tensorBytes(v.getType()) <= kSmallBytes || outlives(stripReshapes(v));
  };
  auto touchesLittle = [&](Operation *op) {
    return llvm::all_of(op->getOperands(), staysSmall) &&
           llvm::all_of(op->getResults(), staysSmall);
  };
  auto hasScratch = [&](Operation *op) {
    auto launch = dyn_cast<LaunchOp>(op);
    return launch
               ? gpu::scratchBytes(symbols.lookup<func::FuncOp>(launch.getKernel())) > kSmallBytes
               : isLibraryOp(op);
  };
  auto mayWait = [&](Operation *op) { return touchesLittle(op) && !hasScratch(op); };
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
    if (!launch || launch->hasAttr(gpu::kPlacedAttr) || !touchesLittle(launch))
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
    auto canJoin = [&] {
      llvm::BitVector waiting = units.behind(group);
      if (waiting.test(i) || units.behind(i).test(group))
        return false;
      return llvm::all_of(llvm::seq<int>(0, std::max(0, units.ready(i))), [&](int other) {
        return !waiting.test(units.first[other]) || mayWait(ops[other]);
      });
    };
    if (together.size() <= gpu::mostMembers(together, kernel) && canJoin())
      units.join(group, i);
    else
      entry->second = i;
  }
  return units.first;
}
