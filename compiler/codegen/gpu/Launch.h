//===- Launch.h - the grid of threads that a fused kernel becomes on a GPU -------------===//
//
// As Loops.h for the CPU: chosen once, from the kernel's function alone, for the planner, the
// program's writer and the emitter. Nothing depends on the device, so that the order of
// additions, and with it every bit, is the same on all of them.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_GPU_LAUNCH_H
#define MPC_CODEGEN_GPU_LAUNCH_H

#include "compiler/codegen/Loops.h"

namespace mpc::gpu {

constexpr int64_t kWarp = 32;
constexpr int64_t kBlockThreads = 256;
/// Shared memory that every GPU gives a block without being asked.
constexpr int64_t kSharedBytes = 48 << 10;
/// Bytes of a thread's widest access.
constexpr int64_t kAccessBytes = 16;
/// Threads that keep a large GPU's memory busy (half of what 132 multiprocessors hold): below, a
/// thread has fewer elements.
constexpr int64_t kFillThreads = 1 << 17;
/// Of a tensor that is reduced to a scalar: elements of a chunk at least, and chunks at most.
constexpr int64_t kChunkElements = 4096, kMaxChunks = 256;

/// Elements that a thread computes together at most: as many of the smallest type that the kernel
/// reads or writes as an access has, of tensors with at least `least` elements.
int64_t elementsPerAccess(mlir::func::FuncOp kernel, int64_t least = 0);
/// Shared memory of a kernel's reductions: `count` values of each accumulator.
int64_t sharedBytes(mlir::func::FuncOp kernel, int64_t count);

/// A GPU function that a kernel becomes. All functions of a kernel take one pointer per
/// distinctBuffers(kernel, scratchBytes(kernel)), in that order.
struct Function {
  std::string name; ///< NAME, or NAME$partial and NAME$combine (PTX has no dots in names)
  int64_t grid;     ///< blocks, in x only
  int64_t block;    ///< threads of a block: a multiple of a warp, or 1
  int64_t sharedBytes = 0;
  /// Of a library command: runs behind a library that executes it, and the others where none does.
  bool afterLibrary = false;
};

/// In the order in which they have to run; none for a kernel without elements.
llvm::SmallVector<Function, 2> functions(mlir::func::FuncOp kernel);
/// Bytes of a launch's scratch: 0 unless the kernel is of kind column.
int64_t scratchBytes(mlir::func::FuncOp kernel);

/// map: thread t computes the `together` elements from t · together on. They lie in one piece of
/// the innermost loop.
struct MapGrid {
  int64_t rows, inner, together, threads;
};
MapGrid mapGrid(mlir::func::FuncOp kernel);

/// The largest power of two up to `wanted` that divides `extent`.
int64_t dividing(int64_t extent, int64_t wanted);

/// True if a result overwrites an argument.
bool worksInPlace(mlir::func::FuncOp kernel);

/// row: `group` threads (one, a warp, or the block) per row; in step s, thread l has the `together`
/// elements from (s · group + l) · together on.
struct RowGrid {
  int64_t rows, columns, inner; ///< `inner` elements of a row are a plain running index
  int64_t group, rowsPerBlock, together, steps;
  bool unrolled; ///< all steps are written out: values stay in registers from phase to phase
};
RowGrid rowGrid(mlir::func::FuncOp kernel);

/// column: partial: block (chunk, stripe) adds up the chunk's rows for a stripe of columns. Its
/// warp lane has `together` columns; its warps take turns at the rows. With one column (a reduction
/// to a scalar), a chunk is `rowsPerChunk` elements and every thread has its turn.
struct ColumnGrid {
  int64_t rows, columns; ///< columns = 1: rows are the elements
  int64_t chunks, rowsPerChunk, stripes, together;
  llvm::SmallVector<mlir::Operation *> reductions; ///< in order of the body
  /// Byte offset of reduction i's partials in the scratch, [chunks, columns] of its accumulator.
  llvm::SmallVector<int64_t> offsets;
  int64_t scratchBytes = 0;
};
ColumnGrid columnGrid(mlir::func::FuncOp kernel);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_LAUNCH_H
