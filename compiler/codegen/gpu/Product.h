//===- Product.h - matrix products and convolutions on a GPU ----------------------------===//
//
// The GPU functions of matrix products and convolutions. All of them are one product,
//
//   result[b, m, n] = Σ_k left[b, m, k] · right[b, k, n]
//
// whose sides say where their elements lie (ProductMap.h): a matrix, the patches of an image,
// the gradients that met a pixel. A block computes a tile of the result, or its sum over a part
// of the depth where tiles are fewer than a GPU has room for. As for kernels, everything
// follows from the command alone.
//
//===------------------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_GPU_PRODUCT_H
#define MPC_CODEGEN_GPU_PRODUCT_H

#include "compiler/codegen/gpu/Launch.h"

namespace mpc::gpu {

/// matmul, conv, conv_backward_data, conv_backward_weights.
bool isProduct(mlir::Operation *op);

/// GPU functions that execute a product by themselves, in the order in which they have to
/// run: NAME, or NAME$partial and NAME$combine, after NAME$filter where a filter is copied; none
/// where the result has no elements. Names are made from the content: equal names mean equal code.
/// Last, NAME$gradient with `afterLibrary`: takes a filter's gradient from the scratch, where a
/// library has left it in its own order.
/// Parameters: the command's operands, its result, and scratch where productScratchBytes > 0.
llvm::SmallVector<Function, 2> productFunctions(mlir::Operation *command);
/// Bytes of a product's scratch: a filter in another order, then the partial sums where the depth
/// is split; or a filter's gradient in a library's order.
int64_t productScratchBytes(mlir::Operation *command);

/// A block's part of the result: its threads, and how many rows of warps they are for tensor cores.
struct ProductTile {
  int64_t rows, columns, threads, warpRows;
};

/// Block ((split · batch + b) · tileRows + i) · tileColumns + j computes tile (i, j) of product b,
/// summed over [split · splitDepth, (split + 1) · splitDepth) of the depth. Depthwise convolutions
/// have blocks of their own (Depthwise.h), no tiles, and the same splits.
struct ProductGrid {
  ProductTile tile;
  int64_t tileRows, tileColumns;
  int64_t splits, splitDepth;
};
ProductGrid productGrid(mlir::Operation *command);

/// Writes the functions in front of the function that `command` is in. Halves are multiplied by
/// what the architecture has tensor cores for (Architecture.h), the rest in the accumulator's type.
llvm::LogicalResult emitProduct(mlir::Operation *command, unsigned architecture);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_PRODUCT_H
