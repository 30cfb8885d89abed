//===- KernelTraffic.cpp - bytes that the kernels of an entry point move, and must --------===//

#include "KernelTraffic.h"
#include "MpcDialect.h"
#include "compiler/codegen/gpu/Group.h"
#include "compiler/driver/Reports.h"
#include "passes/OperationFacts.h"
#include "llvm/ADT/BitVector.h"

using namespace mlir;
using namespace mpc;

namespace {

class Entry {
public:
  explicit Entry(func::FuncOp entry);
  KernelTraffic traffic(const gpu::GroupIndex &groups);

private:
  /// The commands that read the value, through reshapes, in order; the function's end is one.
  SmallVector<unsigned> readersOf(Value value) const;
  int64_t chain(ArrayRef<std::pair<unsigned, int64_t>> readers) const;
  int64_t necessaryFor(Value value, std::optional<unsigned> writer) const;
  int64_t bytesRead(Value value, unsigned reader) const;

  func::FuncOp entry;
  SmallVector<Operation *> commands; ///< the last one is the function's end
  DenseMap<Operation *, unsigned> index;
  /// Per command: the commands that it waits for, and those of them from which the way to it leads
  /// through a library call.
  SmallVector<llvm::BitVector> before, beforeCall;
};

} // namespace

Entry::Entry(func::FuncOp entry) : entry(entry) {
  for (Operation &op : entry.getBody().front())
    if (isa<LaunchOp, func::ReturnOp>(op) || isLibraryOp(&op)) {
      index[&op] = commands.size();
      commands.push_back(&op);
    }
  for (auto [i, command] : llvm::enumerate(commands)) {
    llvm::BitVector all(commands.size()), calls(commands.size());
    for (Value operand : command->getOperands()) {
      auto from = index.find(stripReshapes(operand).getDefiningOp());
      if (from == index.end())
        continue;
      unsigned writer = from->second;
      all |= before[writer];
      all.set(writer);
      calls |= isLibraryOp(commands[writer]) ? before[writer] : beforeCall[writer];
    }
    before.push_back(std::move(all));
    beforeCall.push_back(std::move(calls));
  }
}

SmallVector<unsigned> Entry::readersOf(Value value) const {
  SmallVector<unsigned> readers;
  SmallVector<Value> views{value};
  while (!views.empty()) {
    Value view = views.pop_back_val();
    for (Operation *user : view.getUsers()) {
      if (auto reshape = dyn_cast<ReshapeOp>(user))
        views.push_back(reshape.getResult());
      else if (auto found = index.find(user); found != index.end())
        readers.push_back(found->second);
    }
  }
  llvm::sort(readers);
  readers.erase(llvm::unique(readers), readers.end());
  return readers;
}

/// Bytes of the dearest chain of these commands, each with its bytes, in which each waits for the
/// one before.
int64_t Entry::chain(ArrayRef<std::pair<unsigned, int64_t>> readers) const {
  SmallVector<int64_t> sums;
  int64_t dearest = 0;
  for (auto [i, reader] : llvm::enumerate(readers)) {
    int64_t sum = 0;
    for (unsigned j = 0; j < i; ++j)
      if (before[reader.first].test(readers[j].first))
        sum = std::max(sum, sums[j]);
    sums.push_back(sum + reader.second);
    dearest = std::max(dearest, sums.back());
  }
  return dearest;
}

int64_t Entry::bytesRead(Value value, unsigned reader) const {
  auto launch = cast<LaunchOp>(commands[reader]);
  auto kernel = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(launch, launch.getKernelAttr());
  int64_t bytes = 0;
  for (auto [operand, argument] : llvm::zip(launch.getInputs(), kernel.getArguments())) {
    if (stripReshapes(operand) == value)
      bytes = std::max(bytes, bytesReadOf(argument));
  }
  return bytes;
}

int64_t Entry::necessaryFor(Value value, std::optional<unsigned> writer) const {
  bool isKernels = writer && isa<LaunchOp>(commands[*writer]);
  bool isWritten = false;
  SmallVector<std::pair<unsigned, int64_t>> kernels;
  for (unsigned reader : readersOf(value)) {
    bool isKernel = isa<LaunchOp>(commands[reader]);
    // Between two kernels: only where a product stands on the way.
    if (isKernel && isKernels && !beforeCall[reader].test(*writer))
      continue;
    isWritten |= isKernels;
    if (isKernel)
      kernels.push_back({reader, bytesRead(value, reader)});
  }
  return (isWritten ? tensorBytes(value.getType()) : 0) + chain(kernels);
}

KernelTraffic Entry::traffic(const gpu::GroupIndex &groups) {
  KernelTraffic t;
  for (Value argument : entry.getArguments())
    t.necessary += necessaryFor(argument, std::nullopt);
  for (Operation &op : entry.getBody().front())
    if (!index.count(&op) && !isa<ReshapeOp>(op)) // constants
      for (Value result : op.getResults())
        t.necessary += necessaryFor(result, std::nullopt);
  for (auto [i, command] : llvm::enumerate(commands)) {
    for (Value result : command->getResults())
      t.necessary += necessaryFor(result, i);
    t.libraryCalls += isLibraryOp(command);
    if (auto launch = dyn_cast<LaunchOp>(command)) {
      auto kernel =
          SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(launch, launch.getKernelAttr());
      t.kernels += !launch->hasAttr(gpu::kPlacedAttr);
      if (const gpu::Group *group = groups.find(launch))
        t.gpuFunctions += group->functions.size();
      else if (!gpu::GroupIndex::isSilent(launch))
        t.gpuFunctions += gpu::functions(kernel).size();
      t.moved += movedBytes(command);
    }
  }
  return t;
}

KernelTraffic mpc::kernelTraffic(func::FuncOp entry, const gpu::GroupIndex &groups) {
  return Entry(entry).traffic(groups);
}
