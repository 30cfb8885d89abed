//===- TensorCores.h - what a warp does with tensor cores -------------------------------===//

#ifndef MPC_CODEGEN_GPU_TENSORCORES_H
#define MPC_CODEGEN_GPU_TENSORCORES_H

#include "compiler/codegen/gpu/Architecture.h"
#include "compiler/codegen/gpu/EmitProduct.h"
#include <array>

namespace mpc::gpu {

/// Products of 16×16 by 16×16 elements. Which lane has which of them is fixed by the PTX ISA for
/// each instruction ("Matrix fragments for mma…"), and known here alone.
class TensorCores {
public:
  static constexpr int64_t kRows = 16, kColumns = 16, kDepth = 16, kSums = 8;

  enum Side { kLeft, kRight };
  /// What a lane has of a side, in words of two halves.
  struct Fragment {
    llvm::SmallVector<mlir::Value> words; ///< as the instruction takes them
    bool alongDepth = true;               ///< a word's halves differ in the depth
  };

  /// The lane's sums: number 4 · c + 2 · r + i is of row rows[r] and column columns[c] + i.
  std::array<Affine, 2> rows, columns;
  /// So many lanes have the same rows. Their numbers differ by multiples of the distance.
  int64_t rowLanes, laneDistance;
  /// Row and depth of the first half of each word of a left side along the depth.
  llvm::SmallVector<std::pair<Affine, Affine>> leftPlaces;

  virtual ~TensorCores() = default;
  /// The 16×16 elements from (outer, depth) on.
  virtual Fragment load(const SharedTile &tile, const Affine &outer, const Affine &depth,
                        Side side) = 0;
  /// A left side of these words of 32 bits, placed as leftPlaces says.
  Fragment leftOf(llvm::ArrayRef<mlir::Value> words);
  /// A left side of what rounded sums are: four words of neighbors, in the order of the sums.
  virtual Fragment leftOfSums(llvm::ArrayRef<mlir::Value> words) = 0;
  /// sums + left · right.
  virtual llvm::SmallVector<mlir::Value> multiplyAdd(const Fragment &left, const Fragment &right,
                                                     mlir::ValueRange sums) = 0;

protected:
  TensorCores(GpuEmitter &e, mlir::Type element, const Affine &lane)
      : e(e), element(element), lane(lane) {}
  /// A word as mma takes it: two f16 are a vector, two bf16 a word.
  mlir::Value operand(mlir::Value word);
  /// One mma.sync: left · right + sums.
  llvm::SmallVector<mlir::Value> multiply(llvm::ArrayRef<mlir::Value> left,
                                          llvm::ArrayRef<mlir::Value> right, mlir::ValueRange sums,
                                          std::array<int64_t, 3> shape, bool leftAlongDepth = true,
                                          bool rightAlongDepth = true);

  GpuEmitter &e;
  mlir::Type element;
  Affine lane;
};

/// Of all lanes of a warp.
std::unique_ptr<TensorCores> createTensorCores(GpuEmitter &e, Mma mma, mlir::Type element,
                                               const Affine &lane);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_TENSORCORES_H
