//===- Arena.cpp - when the values of the arena are alive, and where they lie -------------===//
//
// A value lives from the operation that writes it to the last one that reads it, through views
// too. What is not alive at once may lie at the same place.
//
//===--------------------------------------------------------------------------------===//

#include "passes/Arena.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/OperationFacts.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpc;

void mpc::readersOf(Value v, llvm::SmallSetVector<Operation *, 8> &readers) {
  for (Operation *user : v.getUsers())
    if (isa<ReshapeOp>(user))
      readersOf(user->getResult(0), readers);
    else
      readers.insert(user);
}

int mpc::lastUse(Value v, const DenseMap<Operation *, int> &position) {
  llvm::SmallSetVector<Operation *, 8> readers;
  readersOf(v, readers);
  int last = position.lookup(v.getDefiningOp());
  for (Operation *reader : readers)
    last = std::max(last, position.lookup(reader));
  return last;
}

/// Offsets by "greedy by size": the largest first, each at the lowest offset that is free while it
/// lives. Source: Pisarchyk, Lee: "Efficient memory management for deep neural net inference",
/// 2020.
int64_t mpc::layOutArena(MutableArrayRef<ArenaValue> values) {
  SmallVector<ArenaValue *> bySize, placed; // `placed` by offset
  for (ArenaValue &value : values)
    bySize.push_back(&value);
  llvm::stable_sort(bySize, [](ArenaValue *x, ArenaValue *y) { return x->bytes > y->bytes; });
  int64_t total = 0;
  for (ArenaValue *value : bySize) {
    int64_t offset = 0;
    for (ArenaValue *other : placed) {
      if (other->last < value->first || value->last < other->first)
        continue;
      if (offset + value->bytes <= other->offset)
        break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    value->offset = offset;
    placed.insert(
        llvm::upper_bound(placed, value,
                          [](ArenaValue *x, ArenaValue *y) { return x->offset < y->offset; }),
        value);
    total = std::max(total, offset + value->bytes);
  }
  return total;
}

/// The values in the arena of `function` at the moment when they are most.
static std::string entryReport(func::FuncOp function) {
  struct Live {
    int64_t bytes;
    int first, last;
    std::string name;
  };
  SmallVector<Live> lives;
  DenseMap<Operation *, int> position;
  for (auto [i, op] : llvm::enumerate(function.getBody().front()))
    position[&op] = i;
  for (Operation &op : function.getBody().front()) {
    auto own = op.getAttrOfType<ArrayAttr>(MpcDialect::kBuffersAttr);
    if (!own || isa<ReshapeOp>(op))
      continue;
    auto node = op.getAttrOfType<StringAttr>(MpcDialect::kNodeAttr);
    auto launch = dyn_cast<LaunchOp>(op);
    std::string name = (launch ? launch.getKernel() : op.getName().getStringRef()).str();
    if (node)
      name += " (" + node.getValue().str() + ")";
    for (auto [result, buffer] : llvm::zip(op.getResults(), own)) {
      if (cast<BufferAttr>(buffer).getRegion() != mpc::RegionKind::arena)
        continue;
      lives.push_back(
          {tensorBytes(result.getType()), position[&op], lastUse(result, position), name});
    }
  }
  int64_t most = 0;
  int moment = 0;
  for (const Live &at : lives) {
    int64_t sum = 0;
    for (const Live &live : lives)
      if (live.first <= at.first && at.first <= live.last)
        sum += live.bytes;
    if (sum > most) {
      most = sum;
      moment = at.first;
    }
  }
  llvm::erase_if(lives,
                 [&](const Live &live) { return live.first > moment || live.last < moment; });
  llvm::stable_sort(lives, [](const Live &x, const Live &y) { return x.bytes > y.bytes; });
  if (lives.empty())
    return "";
  std::string text =
      llvm::formatv("arena of {0}: at most {1} bytes of values alive at once, the largest:\n",
                    function.getSymName(), most);
  for (const Live &live : ArrayRef<Live>(lives).take_front(8))
    text += llvm::formatv("  {0,-14} {1}\n", live.bytes, live.name);
  return text;
}

std::string mpc::arenaReport(ModuleOp module) {
  std::string text;
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isExternal() && !function->hasAttr(MpcDialect::kKernelAttr))
      text += entryReport(function);
  return text;
}
