//===- Loops.h - the loops that a kernel becomes ----------------------------------===//
//
// Chosen once, from the kernel's function, for the planner's ranges and for the emitter.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_LOOPS_H
#define MPC_CODEGEN_LOOPS_H

#include "compiler/codegen/Access.h"
#include "compiler/codegen/Kernel.h"

namespace mpc {

/// map: for r in [0, rows): for k in [0, inner). Where inner is 1, `rows` are the elements and the
/// only loop. row: for r in [0, rows): per phase, for j in [0, innerOuter): for k in [0, inner).
struct NestLoops {
  int64_t rows, innerOuter = 1, inner;
  double cost; ///< of one element
  /// Elements that the innermost loop's body computes: 4 where random numbers come in blocks of
  /// four, else 1. Divides `inner`.
  int64_t together = 1;
};
NestLoops mapLoops(mlir::func::FuncOp kernel);
NestLoops rowLoops(mlir::func::FuncOp kernel);

/// column: the iteration space is rows × columns. Partial results of chunk c cover the rows [c ·
/// rowsPerChunk, …); a range position is (chunk, block of columns). With one column (a reduction to
/// a scalar), a row is cut into `pieces` of `piece` elements instead: then `rows` × `inner` are the
/// elements, and chunk c covers rows from (c / pieces) · rowsPerChunk on and piece c mod pieces of
/// each.
struct ColumnLoops {
  int64_t rows, columns, inner;
  int64_t chunks, rowsPerChunk, blocks, blockColumns, pieces = 1, piece = 0;
  double cost;
  llvm::SmallVector<mlir::Operation *> reductions; ///< in order of the body
  /// Byte offset of reduction i's partials in the scratch, and bytes from one chunk's to the next.
  llvm::SmallVector<int64_t> offsets, chunkBytes;
  int64_t scratchBytes = 0;
};
ColumnLoops columnLoops(mlir::func::FuncOp kernel);

/// scatter_add: result [before, size, behind], updates [before, count, behind]. With before = 1 a
/// position is a block of `block` elements behind the axis, else one of `before`.
struct ScatterLoops {
  int64_t before, size, behind, count, block, extent;
};
constexpr int64_t kScatterBlock = 64;
ScatterLoops scatterLoops(ScatterAddOp op);
/// The scatter_add that is the root of the kernel, or null.
ScatterAddOp getScatterRoot(mlir::func::FuncOp kernel);

/// f32 for halves and f32, f64 for f64 and where the result is f64; the type itself for integers.
mlir::Type accumulatorType(mlir::Type operandElement, mlir::Type resultElement);
/// Bytes of an element in memory: i1 is one byte.
int64_t storedBytes(mlir::Type elementType);

} // namespace mpc

#endif // MPC_CODEGEN_LOOPS_H
