//===- Launch.cpp - the grid of threads that a fused kernel becomes on a GPU -----------===//

#include "compiler/codegen/gpu/Launch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace mpc::gpu {

static int64_t divideCeil(int64_t a, int64_t b) { return llvm::divideCeil(a, b); }

// Elements a thread computes at most: more would cost registers.
constexpr int64_t kTogether = 8;
// A row up to this long has a warp, a longer one a block.
constexpr int64_t kWarpRow = 1024;
// Elements of a row that a thread keeps in registers.
constexpr int64_t kRegisters = 32;
// Rows of a chunk at least, per warp that takes turns.
constexpr int64_t kRowsPerWarp = 8;

int64_t elementsPerAccess(func::FuncOp kernel, int64_t least) {
  int64_t bytes = kAccessBytes;
  auto look = [&](Type type) {
    auto tensor = cast<RankedTensorType>(type);
    if (elementsOf(tensor.getShape()) >= least)
      bytes = std::min(bytes, storedBytes(tensor.getElementType()));
  };
  llvm::for_each(kernel.getArgumentTypes(), look);
  llvm::for_each(kernel.getResultTypes(), look);
  return std::min(kTogether, kAccessBytes / bytes);
}

bool worksInPlace(func::FuncOp kernel) {
  return llvm::any_of(getKernelAttr(kernel).getAliases().asArrayRef(),
                      [](int64_t alias) { return alias >= 0; });
}

int64_t dividing(int64_t extent, int64_t wanted) {
  int64_t together = 1;
  while (together * 2 <= wanted && extent % (together * 2) == 0)
    together *= 2;
  return together;
}

MapGrid mapGrid(func::FuncOp kernel) {
  NestLoops loops = mapLoops(kernel);
  MapGrid grid{loops.rows, loops.inner, 1, 0};
  int64_t total = loops.rows * loops.inner;
  // Where nothing runs along the elements, the loops have no inner part, but neighbors are still
  // neighbors.
  if (grid.inner == loops.together)
    grid = {1, total, 1, 0};
  int64_t wanted = elementsPerAccess(kernel);
  while (wanted > loops.together && total / wanted < kFillThreads)
    wanted /= 2;
  grid.together = dividing(grid.inner, std::max(wanted, loops.together));
  grid.threads = total / grid.together;
  return grid;
}

RowGrid rowGrid(func::FuncOp kernel) {
  NestLoops loops = rowLoops(kernel);
  RowGrid grid{loops.rows, loops.innerOuter * loops.inner, loops.inner, 0, 0, 0, 0, false};
  grid.group = grid.columns <= kWarpRow ? kWarp : kBlockThreads;
  int64_t wanted = elementsPerAccess(kernel);
  while (wanted > loops.together && grid.columns < wanted * grid.group)
    wanted /= 2;
  grid.together = dividing(grid.inner, std::max(wanted, loops.together));
  // What one thread computes needs no others.
  if (grid.together == grid.columns)
    grid.group = 1;
  grid.rowsPerBlock = grid.rows == 1 ? 1 : kBlockThreads / grid.group;
  grid.steps = divideCeil(grid.columns, grid.group * grid.together);
  grid.unrolled = grid.steps * grid.together <= kRegisters;
  return grid;
}

int64_t sharedBytes(func::FuncOp kernel, int64_t count) {
  int64_t bytes = 0;
  for (ReduceOp reduce : kernel.getOps<ReduceOp>())
    bytes += count * storedBytes(accumulatorType(getElementTypeOrSelf(reduce.getInput().getType()),
                                                 getElementTypeOrSelf(reduce.getType())));
  return bytes;
}

ColumnGrid columnGrid(func::FuncOp kernel) {
  KernelAttr attr = getKernelAttr(kernel);
  ColumnGrid grid{};
  grid.rows = elementsOf(attr.getDomain().asArrayRef().take_front(attr.getSplit()));
  grid.columns = elementsOf(attr.getDomain().asArrayRef().drop_front(attr.getSplit()));
  constexpr int64_t warps = kBlockThreads / kWarp;
  if (grid.columns == 1) {
    grid.stripes = 1;
    grid.together = dividing(grid.rows, elementsPerAccess(kernel));
    grid.rowsPerChunk = std::max(kChunkElements, divideCeil(grid.rows, kMaxChunks));
    grid.rowsPerChunk = llvm::alignTo(grid.rowsPerChunk, kBlockThreads * grid.together);
  } else {
    int64_t wanted = elementsPerAccess(kernel);
    while (wanted > 1 && (grid.columns < wanted * kWarp ||
                          sharedBytes(kernel, kBlockThreads * wanted) > kSharedBytes))
      wanted /= 2;
    grid.together = dividing(grid.columns, wanted);
    grid.stripes = divideCeil(grid.columns, kWarp * grid.together);
    // Enough blocks to fill the device, but no more partials than rows are worth.
    int64_t chunks =
        std::clamp<int64_t>(kFillThreads / kBlockThreads / grid.stripes, 1, kMaxChunks);
    grid.rowsPerChunk =
        llvm::alignTo(std::max(kRowsPerWarp * warps, divideCeil(grid.rows, chunks)), warps);
  }
  grid.chunks = divideCeil(grid.rows, grid.rowsPerChunk);

  for (ReduceOp reduce : kernel.getOps<ReduceOp>()) {
    Type type = accumulatorType(getElementTypeOrSelf(reduce.getInput().getType()),
                                getElementTypeOrSelf(reduce.getType()));
    grid.reductions.push_back(reduce);
    grid.offsets.push_back(grid.scratchBytes);
    grid.scratchBytes +=
        llvm::alignTo(grid.chunks * grid.columns * storedBytes(type), kPlanAlignment);
  }
  return grid;
}

int64_t scratchBytes(func::FuncOp kernel) {
  KernelAttr attr = getKernelAttr(kernel);
  if (attr.getKind() != KernelKind::column || elementsOf(attr.getDomain().asArrayRef()) == 0)
    return 0;
  return columnGrid(kernel).scratchBytes;
}

SmallVector<Function, 2> functions(func::FuncOp kernel) {
  KernelAttr attr = getKernelAttr(kernel);
  std::string name = kernel.getName().str();
  if (elementsOf(attr.getDomain().asArrayRef()) == 0)
    return {};
  if (ScatterAddOp scatter = getScatterRoot(kernel)) {
    ScatterLoops loops = scatterLoops(scatter);
    int64_t threads =
        std::min(kBlockThreads, static_cast<int64_t>(llvm::alignTo(loops.behind, kWarp)));
    return {{name, loops.before * loops.size, threads}};
  }
  constexpr int64_t warps = kBlockThreads / kWarp;
  switch (attr.getKind()) {
  case KernelKind::map: {
    MapGrid grid = mapGrid(kernel);
    int64_t block = grid.threads == 1 ? 1 : kBlockThreads;
    return {{name, divideCeil(grid.threads, block), block}};
  }
  case KernelKind::row: {
    RowGrid grid = rowGrid(kernel);
    return {{name, divideCeil(grid.rows, grid.rowsPerBlock), grid.rowsPerBlock * grid.group,
             grid.group == kBlockThreads ? sharedBytes(kernel, warps) : 0}};
  }
  case KernelKind::column: {
    ColumnGrid grid = columnGrid(kernel);
    int64_t perLane = grid.columns == 1 ? warps : kBlockThreads * grid.together;
    Function partial{name + "$partial", grid.chunks * grid.stripes, kBlockThreads,
                     sharedBytes(kernel, perLane)};
    if (grid.columns == 1)
      return {partial, {name + "$combine", 1, kWarp}};
    return {partial, {name + "$combine", divideCeil(grid.columns, kBlockThreads), kBlockThreads}};
  }
  }
  return {};
}

} // namespace mpc::gpu
