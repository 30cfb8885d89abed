//===- EmitProduct.h - tiles of a product in shared memory ------------------------------===//
//
// What EmitProduct.cpp brings to shared memory, and what a thread does with it: tensor cores
// for halves, multiply-add in registers for everything else.
//
//===----------------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_GPU_EMITPRODUCT_H
#define MPC_CODEGEN_GPU_EMITPRODUCT_H

#include "compiler/codegen/gpu/Architecture.h"
#include "compiler/codegen/gpu/Product.h"
#include "compiler/codegen/gpu/ProductMap.h"

namespace mpc::gpu {

/// One side's tile in shared memory: element (outer, k) is at outer · outerStride + k ·
/// depthStride.
struct SharedLayout {
  mlir::Type element;
  int64_t outerStride, depthStride, elements;
};
/// `outers` of a block. For tensor cores as in global memory, so that pieces are copied as they
/// are; else neighbors are those of the outer index. Rows are padded by 16 bytes, which spreads
/// columns over the banks.
SharedLayout sharedLayout(const ProductMap &map, const ProductSide &side, int64_t outers,
                          bool tensorCores);
/// The depth of a tile.
int64_t tileDepth(bool tensorCores);

/// One side of the tile that is multiplied.
struct SharedTile {
  mlir::Value memory;
  SharedLayout layout;
  Affine first; ///< element at which the buffer in use begins
  Affine at(const Affine &outer, const Affine &depth) const {
    return first + outer * layout.outerStride + depth * layout.depthStride;
  }
};

/// Sums of a thread that are neighbors in a row: `count` from number `first` on.
struct SumRun {
  Affine row, column; ///< in the tile
  int64_t first, count;
};

/// What the threads of a block do with a tile. All of them must come to multiply().
class TileProduct {
public:
  virtual ~TileProduct() = default;
  /// sums + left · right.
  virtual llvm::SmallVector<mlir::Value> multiply(const SharedTile &left, const SharedTile &right,
                                                  mlir::ValueRange sums) = 0;
  /// Where the sums belong; all of them, in order.
  virtual llvm::SmallVector<SumRun> runs() = 0;
};
std::unique_ptr<TileProduct> createTensorCoreProduct(GpuEmitter &e, const ProductTile &tile,
                                                     Mma mma, mlir::Type element);
std::unique_ptr<TileProduct> createRegisterProduct(GpuEmitter &e, const ProductTile &tile,
                                                   mlir::Type accumulator);

// Memory, in the innermost scope. `count` neighbors (a power of two, 16 bytes at most) are one
// aligned access.
mlir::Value addressOf(GpuEmitter &e, mlir::Value pointer, mlir::Type element, mlir::Value index);
/// An element of a vector; of one element, the value itself.
mlir::Value elementAt(GpuEmitter &e, mlir::Value vector, int64_t i);
/// The values as a vector; of one, the value itself.
mlir::Value joined(GpuEmitter &e, mlir::ValueRange values);
llvm::SmallVector<mlir::Value> loadTogether(GpuEmitter &e, mlir::Value pointer, mlir::Type element,
                                            const Affine &first, int64_t count);
void storeTogether(GpuEmitter &e, mlir::Value pointer, const Affine &first,
                   mlir::ValueRange values);
/// Stores `value`, of so many bytes, over the elements from `first` on.
void storeBytes(GpuEmitter &e, mlir::Value pointer, mlir::Type element, const Affine &first,
                mlir::Value value, int64_t bytes);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_EMITPRODUCT_H
