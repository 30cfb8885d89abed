//===- Kernel.cpp - facts about a fused kernel that its users share -------------===//

#include "compiler/codegen/Kernel.h"
#include "compiler/codegen/Loops.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using llvm::divideCeil;

namespace mpc {

// Below so many additions (AccessWalk's unit, vectorized) another thread costs more than it brings:
// about 5 µs.
static constexpr double kGrainCost = 50000;
// Elements per chunk of a reduction, and chunks at most.
static constexpr int64_t kChunkElements = 8192, kMaxChunks = 64;
// Columns whose partial sums stay in the first-level cache together with the rows they are read
// from.
static constexpr int64_t kBlockColumns = 1024;
// Innermost loops shorter than this are only taken where nothing longer runs without divisions.
static constexpr int64_t kShortLoop = 16;
static constexpr int64_t kPhiloxWords = 4;

KernelAttr getKernelAttr(func::FuncOp function) {
  return function->getAttrOfType<KernelAttr>(MpcDialect::kKernelAttr);
}

Type accumulatorType(Type operandElement, Type resultElement) {
  if (!isa<FloatType>(operandElement))
    return resultElement;
  if (operandElement.isF64() || resultElement.isF64())
    return Float64Type::get(operandElement.getContext());
  return Float32Type::get(operandElement.getContext());
}

int64_t storedBytes(Type elementType) { return divideCeil(elementType.getIntOrFloatBitWidth(), 8); }

ValueRange kernelResults(func::FuncOp kernel) {
  return kernel.front().getTerminator()->getOperands();
}

/// The innermost loop: the smallest cut that is long enough, the largest of the short ones,
/// everything.
static int64_t innerExtent(const std::set<int64_t> &cuts, int64_t total) {
  int64_t best = total;
  for (int64_t cut : llvm::reverse(cuts)) // from the largest on
    if (cut > 1 && cut < total && total % cut == 0 && (cut >= kShortLoop || best == total))
      best = cut;
  return best;
}

/// A block of random numbers is computed once where the innermost loop's body has all four of its
/// elements.
static int64_t together(func::FuncOp kernel, int64_t inner) {
  return inner % kPhiloxWords == 0 && !kernel.getOps<RandomUniformOp>().empty() ? kPhiloxWords : 1;
}

NestLoops mapLoops(func::FuncOp kernel) {
  int64_t total = elementsOf(getKernelAttr(kernel).getDomain().asArrayRef());
  AccessWalk walk;
  Affine element = walk.addBase(0, total - 1, 1, 1);
  for (Value result : kernelResults(kernel))
    walk.visit(result, element);
  int64_t inner = innerExtent(walk.cuts, total);
  if (inner == total)
    inner = together(kernel, total);
  return {total / inner, 1, inner, walk.cost, together(kernel, inner)};
}

NestLoops rowLoops(func::FuncOp kernel) {
  KernelAttr attr = getKernelAttr(kernel);
  int64_t rows = elementsOf(attr.getDomain().asArrayRef().take_front(attr.getSplit()));
  int64_t columns = elementsOf(attr.getDomain().asArrayRef().drop_front(attr.getSplit()));
  AccessWalk walk;
  Affine row = walk.addBase(0, rows - 1, 1, columns),
         element = row * columns + walk.addBase(0, columns - 1, 2, 1);
  for (ReduceOp reduce : kernel.getOps<ReduceOp>())
    walk.visit(reduce.getInput(), element);
  for (Value result : kernelResults(kernel))
    walk.visit(result, elementsOf(tensorShape(result)) == rows ? row : element);
  std::set<int64_t> cuts(walk.cuts.begin(), walk.cuts.lower_bound(columns));
  int64_t inner = innerExtent(cuts, columns);
  return {rows, columns / inner, inner, walk.cost, together(kernel, inner)};
}

ColumnLoops columnLoops(func::FuncOp kernel) {
  KernelAttr attr = getKernelAttr(kernel);
  ColumnLoops loops;
  loops.rows = elementsOf(attr.getDomain().asArrayRef().take_front(attr.getSplit()));
  loops.columns = elementsOf(attr.getDomain().asArrayRef().drop_front(attr.getSplit()));
  int64_t elements = loops.rows * loops.columns;

  AccessWalk walk;
  Affine element = walk.addBase(0, loops.rows - 1, 1, loops.columns) * loops.columns +
                   walk.addBase(0, loops.columns - 1, 2, 1);
  for (ReduceOp reduce : kernel.getOps<ReduceOp>()) {
    loops.reductions.push_back(reduce);
    walk.visit(reduce.getInput(), element);
  }
  loops.cost = std::max(1.0, walk.cost);
  int64_t wanted =
      std::clamp<int64_t>(elements * std::max(1.0, loops.cost / 4) / kChunkElements, 1, kMaxChunks);

  if (loops.columns == 1) {
    loops.inner = innerExtent(walk.cuts, elements);
    loops.rows = elements / loops.inner;
    loops.blocks = loops.blockColumns = 1;
    loops.rowsPerChunk = std::max<int64_t>(1, divideCeil(loops.rows, wanted));
    loops.piece = loops.inner;
    if (loops.rows < wanted) {
      loops.piece = llvm::alignTo(divideCeil(loops.inner, divideCeil(wanted, loops.rows)), 64);
      loops.pieces = divideCeil(loops.inner, loops.piece);
    }
    loops.chunks = divideCeil(loops.rows, loops.rowsPerChunk) * loops.pieces;
  } else {
    loops.inner = loops.columns;
    loops.blocks = divideCeil(loops.columns, kBlockColumns);
    loops.blockColumns = llvm::alignTo(divideCeil(loops.columns, loops.blocks), 16);
    loops.blocks = divideCeil(loops.columns, loops.blockColumns);
    int64_t chunks = std::min(wanted, std::max<int64_t>(1, kMaxChunks / loops.blocks));
    chunks = std::max<int64_t>(1, std::min(chunks, loops.rows / 8));
    loops.rowsPerChunk = llvm::alignTo(divideCeil(loops.rows, chunks), 4);
    loops.chunks = divideCeil(loops.rows, loops.rowsPerChunk);
  }

  for (Operation *op : loops.reductions) {
    auto reduce = cast<ReduceOp>(op);
    Type type = accumulatorType(getElementTypeOrSelf(reduce.getInput().getType()),
                                getElementTypeOrSelf(reduce.getType()));
    loops.offsets.push_back(loops.scratchBytes);
    loops.chunkBytes.push_back(llvm::alignTo(loops.columns * storedBytes(type), 64));
    loops.scratchBytes += loops.chunkBytes.back() * loops.chunks;
  }
  return loops;
}

ScatterAddOp getScatterRoot(func::FuncOp kernel) {
  for (Value result : kernelResults(kernel))
    if (auto scatter = result.getDefiningOp<ScatterAddOp>())
      return scatter;
  return {};
}

ScatterLoops scatterLoops(ScatterAddOp op) {
  SmallVector<int64_t, 3> shape = aroundAxis(tensorShape(op.getResult()), op.getAxis());
  ScatterLoops loops{shape[0],      shape[1], shape[2], elementsOf(tensorShape(op.getIndices())),
                     kScatterBlock, 0};
  loops.extent = loops.before == 1 ? divideCeil(loops.behind, loops.block) : loops.before;
  return loops;
}

static int64_t grain(double costPerPosition) {
  return std::max<int64_t>(1, static_cast<int64_t>(kGrainCost / std::max(1.0, costPerPosition)));
}

SmallVector<KernelFunction, 2> kernelFunctions(func::FuncOp kernel) {
  KernelAttr attr = getKernelAttr(kernel);
  std::string name = kernel.getName().str();
  if (elementsOf(attr.getDomain().asArrayRef()) == 0)
    return {{name, 0, 1}};
  if (ScatterAddOp scatter = getScatterRoot(kernel)) {
    ScatterLoops loops = scatterLoops(scatter);
    double all = 3.0 * loops.before * loops.behind * (loops.size + loops.count);
    return {{name, loops.extent, grain(all / loops.extent)}};
  }
  switch (attr.getKind()) {
  case KernelKind::map: {
    NestLoops loops = mapLoops(kernel);
    return {{name, loops.rows, grain(loops.cost * loops.inner)}};
  }
  case KernelKind::row: {
    NestLoops loops = rowLoops(kernel);
    return {{name, loops.rows, grain(loops.cost * loops.innerOuter * loops.inner)}};
  }
  case KernelKind::column: {
    ColumnLoops loops = columnLoops(kernel);
    int64_t positions = loops.chunks * loops.blocks;
    double cost = loops.cost * elementsOf(attr.getDomain().asArrayRef()) / positions;
    return {{name + ".partial", positions, grain(cost)},
            {name + ".combine", loops.columns,
             grain(2.0 * loops.chunks * std::max<size_t>(1, loops.reductions.size()))}};
  }
  }
  return {};
}

SmallVector<KernelBuffer> distinctBuffers(func::FuncOp kernel, int64_t scratch) {
  auto bytes = [](Type type) {
    auto tensor = cast<RankedTensorType>(type);
    return elementsOf(tensor.getShape()) * storedBytes(tensor.getElementType());
  };
  ArrayRef<int64_t> aliases = getKernelAttr(kernel).getAliases().asArrayRef();
  SmallVector<KernelBuffer> buffers;
  unsigned position = 0;
  for (Type type : kernel.getArgumentTypes())
    buffers.push_back({position++, bytes(type)});
  for (auto [i, type] : llvm::enumerate(kernel.getResultTypes())) {
    if (aliases[i] < 0)
      buffers.push_back({position, bytes(type)});
    ++position;
  }
  if (scratch)
    buffers.push_back({position, scratch});
  return buffers;
}

int64_t scratchBytes(func::FuncOp kernel) {
  KernelAttr attr = getKernelAttr(kernel);
  if (attr.getKind() != KernelKind::column || elementsOf(attr.getDomain().asArrayRef()) == 0)
    return 0;
  return columnLoops(kernel).scratchBytes;
}

/// The kernel as text, without what does not change its code: its name, and the nodes it came from.
static std::string bodyText(func::FuncOp kernel) {
  func::FuncOp copy = kernel.clone();
  copy.setName("kernel");
  copy.walk([](Operation *op) {
    op->removeDiscardableAttr(MpcDialect::kNodeAttr);
    op->removeDiscardableAttr(MpcDialect::kOpAttr);
  });
  std::string text;
  llvm::raw_string_ostream stream(text);
  copy.print(stream, OpPrintingFlags().useLocalScope());
  copy.erase();
  return text;
}

KernelIndex kernelIndex(ModuleOp module) {
  KernelIndex table;
  llvm::StringMap<SmallVector<unsigned, 2>> known;
  for (func::FuncOp kernel : module.getOps<func::FuncOp>()) {
    if (!getKernelAttr(kernel))
      continue;
    SmallVector<KernelFunction, 2> functions = kernelFunctions(kernel);
    auto [entry, isNew] = known.try_emplace(bodyText(kernel));
    for (size_t i = 0; i < functions.size(); ++i) {
      if (isNew) {
        entry->second.push_back(table.entries.size());
        table.entries.push_back({functions[i].name, kernel});
      }
      table.index[functions[i].name] = entry->second[i];
    }
  }
  return table;
}

SmallVector<func::FuncOp> distinctKernels(const KernelIndex &table) {
  SmallVector<func::FuncOp> kernels;
  for (auto &[name, kernel] : table.entries)
    if (kernels.empty() || kernels.back() != kernel)
      kernels.push_back(kernel);
  return kernels;
}

} // namespace mpc
