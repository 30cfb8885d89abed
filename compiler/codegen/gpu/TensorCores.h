//===- TensorCores.h - what a warp does with tensor cores -------------------------------===//

#ifndef MPC_CODEGEN_GPU_TENSORCORES_H
#define MPC_CODEGEN_GPU_TENSORCORES_H

#include "compiler/codegen/gpu/EmitProduct.h"
#include <array>

namespace mpc::gpu {

/// mma.sync.m16n8k16. Which lane has which elements is fixed by the PTX ISA ("Matrix fragments for
/// mma.m16n8k16"): with g = lane / 4 and p = 2 · (lane mod 4), the words of
///   left   (16×16)  (g, p) (g + 8, p) (g, p + 8) (g + 8, p + 8)    two neighbors of the depth each
///   right  (16×8)   (p, g) (p + 8, g)                              likewise
///   sums   (16×8)   (g, p) (g, p + 1) (g + 8, p) (g + 8, p + 1)    one f32 each
class TensorCores {
public:
  static constexpr int64_t kRows = 16, kColumns = 8, kDepth = 16, kSums = 4;

  TensorCores(GpuEmitter &e, mlir::Type element, const Affine &lane)
      : e(e), element(element), lane(lane) {}

  /// The 16×16 elements from (outer, depth) on, in four words of two halves that differ in the
  /// depth. Which of the matrices is the second: the one further in the depth (the right side of
  /// two products), or in the outer index (a left side).
  std::array<mlir::Value, 4> loadMatrices(const SharedTile &tile, const Affine &outer,
                                          const Affine &depth, bool depthFirst);
  /// A word as mma takes it: two f16 are a vector, two bf16 a word.
  mlir::Value operand(mlir::Value word);
  /// sums + left · right, of a left side's 4 words and a right side's 2.
  llvm::SmallVector<mlir::Value> multiplyAdd(llvm::ArrayRef<mlir::Value> left,
                                             llvm::ArrayRef<mlir::Value> right,
                                             mlir::ValueRange sums);

private:
  GpuEmitter &e;
  mlir::Type element;
  Affine lane;
};

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_TENSORCORES_H
