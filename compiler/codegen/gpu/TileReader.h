//===- TileReader.h - from an operand to tiles in shared memory -------------------------===//

#ifndef MPC_CODEGEN_GPU_TILEREADER_H
#define MPC_CODEGEN_GPU_TILEREADER_H

#include "compiler/codegen/gpu/EmitProduct.h"

namespace mpc::gpu {

/// What a block reads of one side. What lies outside of the operand is read as zero, from its first
/// element: no branch stands in the way of the next access.
struct TileReader {
  ProductSide side;
  mlir::Type element;
  mlir::Value pointer; ///< of the operand
  int64_t outers;      ///< of a tile
  int64_t limit;       ///< of all outer indices
  Affine firstOuter;   ///< of this block's tile
  int64_t depth;       ///< of a tile
  int64_t depthLimit;  ///< of all
  SharedLayout layout = {};
  mlir::Value memory = {}; ///< of the tiles
  int64_t threads = 0;     ///< that read together
  int64_t width = 0;       ///< of a piece
  /// The tiles are all in shared memory, one behind the other along the depth: nothing is read.
  bool isResident = false;
  /// Pieces are read where they are written, not while the tile before is multiplied: they are too
  /// many for a thread's registers.
  bool isLate = false;

  /// So many threads read into shared memory of so many tiles, with this->layout; into this->memory
  /// where there is one.
  void share(GpuEmitter &e, int64_t threads, int64_t buffers);
  /// Reads this thread's pieces of the tile whose depth begins at `first`.
  void read(GpuEmitter &e, const Affine &batch, const Affine &first,
            llvm::SmallVectorImpl<mlir::Value> &pieces) const;
  /// Writes them into the tile that begins at element `first`.
  void fill(GpuEmitter &e, const Affine &first, mlir::ValueRange pieces) const;
  /// What is multiplied in step number `step`, of two tiles that take turns.
  SharedTile tile(GpuEmitter &e, const Affine &step) const;

  int64_t pieces() const { return outers * depth / width / threads; } ///< of a thread

private:
  std::pair<Affine, Affine> place(GpuEmitter &e, int64_t i) const;
};

/// sums + Σ left · right over `steps` tiles of the depth, from `first` on. All threads must come
/// here, and nobody may still use the tiles.
llvm::SmallVector<mlir::Value> multiplyAlong(GpuEmitter &e, TileProduct &product,
                                             const TileReader &left, const TileReader &right,
                                             const Affine &batch, const Affine &first,
                                             int64_t steps, llvm::SmallVector<mlir::Value> sums);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_TILEREADER_H
