//===- Fuse.cpp - clusters become kernels ------------------------------------------===//
//
// Every cluster is moved into a function with #mpc.kernel and launched; see Clustering.cpp for
// what runs together and KernelBuilder.cpp for a kernel's form. The clusters have to be those for
// which place-roundings has placed the roundings: others are an error.
//
//   %1 = arith.addf %x, %b                    func @add_max_0(%x, %b) { … }      // [50176, 32]
//   %2 = arith.maximumf %1, %zero      →      %v = mpc.reshape %x
//   %3 = mpc.conv %2, …                       %2 = mpc.launch @add_max_0(%v, %b)
//                                             %3 = mpc.conv (mpc.reshape %2), …
//
//===------------------------------------------------------------------------------===//

#include "mlir/IR/PatternMatch.h"
#include "passes/KernelBuilder.h"
#include "passes/Passes.h"
#include "passes/PlaceRoundings.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"
#include <map>

namespace mpc {
#define GEN_PASS_DEF_FUSE
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

/// A short word for the work of an operation; empty for what is in every kernel.
static std::string workOf(Operation *op) {
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return stringifyReductionKind(reduce.getKind()).str();
  if (isa<arith::ConstantOp, arith::ExtFOp, arith::TruncFOp, ReshapeOp, BroadcastOp, IotaOp>(op))
    return "";
  StringRef name = op->getName().stripDialect();
  if (name == "maximumf" || name == "minimumf")
    name = name.take_front(3);
  for (StringRef suffix : {"f", "i"})
    if (name.size() == 4 && isa<arith::ArithDialect>(op->getDialect()))
      name.consume_back(suffix); // addf, muli
  return name.str();
}

static std::string stemOf(func::FuncOp kernel) {
  llvm::SmallSetVector<StringRef, 4> words;
  std::vector<std::string> storage;
  storage.reserve(64);
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    std::string word = workOf(&op);
    if (!word.empty() && storage.size() < 64) {
      storage.push_back(std::move(word));
      words.insert(storage.back());
    }
  }
  if (words.empty()) {
    Operation *value = kernel.getBody().front().getTerminator()->getOperand(0).getDefiningOp();
    if (!value)
      return "copy";
    return isa<arith::ConstantOp>(value) ? "fill"
                                         : (isa<arith::TruncFOp>(value) ? "round" : "widen");
  }
  // The last ones say most: what a kernel ends in.
  ArrayRef<StringRef> last = words.getArrayRef().take_back(3);
  return llvm::join(last, "_");
}

/// The nodes of the model that an operation or kernel stands for, at most three.
static std::string nodesOf(Location loc) {
  llvm::SmallSetVector<StringRef, 4> names;
  loc->walk([&](Location part) {
    if (auto name = dyn_cast<NameLoc>(part))
      names.insert(name.getName().getValue());
    return WalkResult::advance();
  });
  std::string joined = llvm::join(names.getArrayRef().take_front(3), ", ");
  return names.size() > 3 ? joined + ", …" : joined;
}

namespace {

/// Kernels of a module; equal ones are one function.
class KernelTable {
public:
  explicit KernelTable(ModuleOp module)
      : symbols(module), end(OpBuilder::atBlockEnd(module.getBody())) {}
  func::FuncOp insert(func::FuncOp kernel);

private:
  SymbolTable symbols;
  OpBuilder end;
  std::map<std::string, std::vector<func::FuncOp>> byStem;
  int count = 0;
};

/// The new top level of one function.
class Outliner {
public:
  Outliner(func::FuncOp function, KernelTable &kernels)
      : function(function), block(function.getBody().front()), kernels(kernels),
        clustering(function), b(OpBuilder::atBlockEnd(&block)) {}
  LogicalResult run();

private:
  func::FuncOp function;
  Block &block;
  KernelTable &kernels;
  Clustering clustering;
  OpBuilder b;
  DenseMap<Value, Value> stored; ///< a value of the old top level → its memory at the new one
  std::map<std::pair<void *, std::vector<int64_t>>, Value> views;

  Value inShape(Value v, ArrayRef<int64_t> shape);
  int replacedArgument(Value v);
  void launch(int cluster);
};

struct Fuse : mpc::impl::FuseBase<Fuse> {
  LogicalResult checkContent(func::FuncOp function) {
    for (Operation &op : function.getBody().front())
      if (!isLibraryOp(&op) && !isPointwise(&op) && !isIndexMap(&op) && !isPool(&op) &&
          !isPoolGradient(&op) &&
          !isa<arith::ConstantOp, IotaOp, GatherOp, RandomUniformOp, ReduceOp, ScatterAddOp,
               func::ReturnOp>(op))
        return op.emitOpError("no kernel can hold it: expand-composites comes before fuse");
    return success();
  }

  void runOnOperation() override {
    KernelTable kernels(getOperation());
    for (auto function : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      if (function.isExternal() || function->hasAttr(MpcDialect::kKernelAttr))
        continue;
      if (failed(checkContent(function)))
        return signalPassFailure();
      normalizeForFusion(function);
      if (failed(Outliner(function, kernels).run()))
        return signalPassFailure();
    }
  }
};

} // namespace

func::FuncOp KernelTable::insert(func::FuncOp kernel) {
  std::string stem = stemOf(kernel);
  for (func::FuncOp other : byStem[stem])
    if (other.getFunctionType() == kernel.getFunctionType() &&
        other->getAttr(MpcDialect::kKernelAttr) == kernel->getAttr(MpcDialect::kKernelAttr) &&
        OperationEquivalence::isRegionEquivalentTo(&other.getBody(), &kernel.getBody(),
                                                   OperationEquivalence::IgnoreLocations)) {
      kernel.erase();
      return other;
    }
  kernel.setSymName(stem + "_" + std::to_string(count++));
  symbols.insert(kernel);
  byStem[stem].push_back(kernel);
  return kernel;
}

/// The memory of `v` (an old value), seen in `shape`.
Value Outliner::inShape(Value v, ArrayRef<int64_t> shape) {
  Value base = stripReshapes(v);
  auto it = stored.find(base);
  Value memory = stripReshapes(it == stored.end() ? base : it->second);
  auto type =
      RankedTensorType::get(shape, cast<RankedTensorType>(memory.getType()).getElementType());
  if (type == memory.getType())
    return memory;
  Value &view = views[{memory.getAsOpaquePointer(), shape.vec()}];
  if (!view)
    view = ReshapeOp::create(b, v.getLoc(), type, memory);
  return view;
}

/// The argument that the function's result `v` is tied to, or -1.
int Outliner::replacedArgument(Value v) {
  for (OpOperand &operand : block.getTerminator()->getOpOperands())
    if (stripReshapes(operand.get()) == v)
      if (auto tied = function.getResultAttrOfType<IntegerAttr>(operand.getOperandNumber(),
                                                                MpcDialect::kTiedAttr))
        return tied.getInt();
  return -1;
}

void Outliner::launch(int cluster) {
  BuiltKernel built =
      buildKernel(clustering, cluster, [&](Value v) { return replacedArgument(v); });
  Location loc = built.function.getLoc();
  func::FuncOp kernel = kernels.insert(built.function);
  SmallVector<Value> operands;
  for (auto &[value, shape] : built.operands)
    operands.push_back(inShape(value, shape));
  auto launch = LaunchOp::create(b, loc, kernel.getFunctionType().getResults(),
                                 FlatSymbolRefAttr::get(kernel.getSymNameAttr()), operands);
  if (std::string nodes = nodesOf(loc); !nodes.empty())
    launch->setAttr(MpcDialect::kNodeAttr, b.getStringAttr(nodes));
  for (auto [old, result] : llvm::zip(built.results, launch.getResults()))
    stored[old] = result;
}

/// Leaves the function as it is where it fails.
LogicalResult Outliner::run() {
  if (failed(verifyRoundings(function, clustering)))
    return failure();
  dropRoundingMarks(function);
  Operation *terminator = block.getTerminator();
  // Everything that stays or is new stands behind the old operations, which are erased at last.
  SmallVector<Operation *> old, constants;
  for (Operation &op : block.without_terminator())
    if (op.getNumResults() == 1 && isa<RankedTensorType>(op.getResult(0).getType()) &&
        isDataConstant(op.getResult(0)))
      constants.push_back(&op);
    else if (!isLibraryOp(&op))
      old.push_back(&op);
  for (Operation *constant : constants)
    constant->moveBefore(terminator);
  b.setInsertionPoint(terminator);
  for (int cluster : clustering.order()) {
    Operation *op = clustering.nodes[clustering.clusters[cluster].members.front()].op;
    if (!clustering.clusters[cluster].library) {
      if (!clustering.results(cluster).empty())
        launch(cluster);
      continue;
    }
    for (OpOperand &operand : op->getOpOperands())
      operand.set(
          inShape(operand.get(), cast<RankedTensorType>(operand.get().getType()).getShape()));
    if (op != terminator)
      op->moveBefore(terminator);
  }
  for (Operation *op : llvm::reverse(old)) {
    op->dropAllUses();
    op->erase();
  }
  return success();
}
