//===- Depthwise.h - convolutions of every channel by itself ----------------------------===//
//
// With one channel per group a convolution is as many products of a few columns as there are
// channels, which would fill a tile with zeros. So threads compute it without tiles, each some
// neighboring channels:
//
//   pixels of the result   thread (phase, run, channels): the filter's taps are read once, then for
//   (also of the image's   each pixel of the run  sum = Σ_k left[pixel, k] · filter[k]
//   gradient)
//   filter's gradient      a block adds up a part of the pixels for a stripe of channels, a thread
//                          every some pixel of it; then over its threads, through shared memory, in
//                          order. Parts are added up by NAME$combine
//
// (k: taps, of the image's gradient times features.) Neighbors in a warp are neighbors in memory.
//
//===------------------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_GPU_DEPTHWISE_H
#define MPC_CODEGEN_GPU_DEPTHWISE_H

#include "compiler/codegen/gpu/ProductMap.h"

namespace mpc::gpu {

/// Of a map with depthwiseGroups.
struct DepthwiseGrid {
  explicit DepthwiseGrid(const ProductMap &map);

  int64_t blocks, threads, sharedBytes = 0;
  int64_t together; ///< channels of a thread: one access
  int64_t pieces;   ///< so many of these

  int64_t run = 1; ///< pixels of a thread

  // Of a filter's gradient: a block is lanes · (threads / lanes) threads, the lanes along the
  // channels; it adds up [split · splitDepth, (split + 1) · splitDepth) of the pixels.
  // Where it has many taps, blocks share them.
  int64_t lanes = 1, stripes = 1, parts = 1, splits = 1, splitDepth = 0;
};

/// Number of the product of a thread's channel i.
using DepthwiseBatch = llvm::function_ref<Affine(int64_t i)>;

/// Of a convolution or the gradient of its image. `store` gets a row's sums: number i · columns + n
/// is of channel i and column n.
void emitDepthwisePixels(
    GpuEmitter &e, const ProductMap &map, const DepthwiseGrid &grid,
    llvm::function_ref<void(DepthwiseBatch, const Affine &row, mlir::ValueRange)> store);
/// Of the gradient of a filter. `store` gets an element's sum over the pixels of a split.
void emitDepthwiseFilterGradient(
    GpuEmitter &e, const ProductMap &map, const DepthwiseGrid &grid,
    llvm::function_ref<void(const Affine &split, const Affine &batch, const Affine &row,
                            const Affine &column, mlir::Value)>
        store);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_DEPTHWISE_H
