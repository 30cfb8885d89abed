//===- ProductMap.h - where the elements of a product lie ------------------------------===//

#ifndef MPC_CODEGEN_GPU_PRODUCTMAP_H
#define MPC_CODEGEN_GPU_PRODUCTMAP_H

#include "compiler/codegen/gpu/GpuEmitter.h"

namespace mpc::gpu {

/// An element of an operand: its linear index, and whether it exists (null: always). One that does
/// not is zero, and its index may lie anywhere.
struct ProductElement {
  Affine index;
  mlir::Value exists;
};

inline constexpr unsigned kPacked = ~0u;

/// One side of a product. Its outer index is the product's row on the left and column on the right.
struct ProductSide {
  unsigned operand; ///< of the command; kPacked: the filter's copy in the scratch
  bool alongDepth;  ///< neighbors in memory differ in the depth, else in the outer index
  int64_t width;    ///< so many neighbors, from a multiple of it on, are one aligned piece
  std::function<ProductElement(GpuEmitter &, const Affine &batch, const Affine &outer,
                               const Affine &depth)>
      at;
};

/// A library command as a product.
struct ProductMap {
  explicit ProductMap(mlir::Operation *command);

  int64_t batch, rows, columns, depth;
  mlir::Type element, accumulator, result;
  ProductSide left, right;

  int64_t resultWidth; ///< so many columns, from a multiple of it on, are neighbors in the result
  std::function<Affine(GpuEmitter &, const Affine &batch, const Affine &row, const Affine &column)>
      resultAt;
  bool relu = false, hasBias = false;
  bool biasPerRow = false; ///< else per column
  int64_t biasStride = 0;  ///< from one product of the batch to the next

  /// Elements of a filter that is copied into the scratch first, in the order in which the product
  /// reads it; 0: it is read where it is. And where element `at` of the copy is in the filter.
  int64_t packedElements = 0;
  std::function<Affine(GpuEmitter &, const Affine &at)> packedFrom;
  int64_t packedBytes() const; ///< the partial sums begin there

  /// Elements of a filter's gradient that a library leaves in the scratch, in its own order, [f,
  /// (t,c)]; 0: it writes the result itself. And where element `at` of it belongs in the result.
  int64_t unpackedElements = 0;
  std::function<Affine(GpuEmitter &, const Affine &at)> unpackedTo;

  /// Of a convolution of every channel by itself, with channels last, its groups; else 0. Then no
  /// tiles are made of it (Depthwise.h).
  int64_t depthwiseGroups = 0;
  bool sumsPixels = false; ///< the gradient of a filter: the depth are pixels
  /// Of a depthwise filter's gradient, columns of a block: all taps, or those of the last
  /// dimensions where a thread has no registers for all.
  int64_t tapsTogether = 0;

  bool isEmpty() const { return batch * rows * columns == 0; }
  /// The sum is over nothing: no operand has elements to read.
  bool isZero() const { return depth == 0; }

private:
  struct Convolution;
  struct ImageGradient;
  bool packs(const Convolution &c, int64_t pixels) const;
  static int64_t depthwiseGroupsOf(const Convolution &c);
  void readMatmul(MatmulOp op);
  void readForward(const Convolution &c);
  void readBackwardData(const ImageGradient &c);
  void readBackwardWeights(const Convolution &c);
};

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_PRODUCTMAP_H
