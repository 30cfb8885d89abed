//===- GpuEmitter.h - the frame of a GPU function: threads, shuffles, shared memory ----===//

#ifndef MPC_CODEGEN_GPU_GPUEMITTER_H
#define MPC_CODEGEN_GPU_GPUEMITTER_H

#include "compiler/codegen/Emitter.h"
#include "compiler/codegen/gpu/Launch.h"

namespace mpc::gpu {

/// Of a GPU function, until it is an llvm.func: threads of a block.
inline constexpr llvm::StringLiteral kThreadsAttr = "mpc.threads";

/// Likewise: one block of a multiprocessor may have all of its registers.
inline constexpr llvm::StringLiteral kRegistersFirstAttr = "mpc.registers_first";

class GpuEmitter : public Emitter {
public:
  /// Adds the function in front of `kernel`.
  GpuEmitter(mlir::func::FuncOp kernel, const Function &function)
      : GpuEmitter(kernel, function, scratchBytes(kernel)) {}
  /// The same with so many bytes of scratch as the last parameter, if any.
  GpuEmitter(mlir::func::FuncOp kernel, const Function &function, int64_t scratchBytes);

  void preferRegisters(); ///< kRegistersFirstAttr

  Affine thread; ///< in the block
  Affine block;  ///< in the grid

  /// The lesser of two i64.
  mlir::Value lesser(mlir::Value a, mlir::Value b);
  mlir::Value select(mlir::Value condition, mlir::Value yes, mlir::Value no);

  /// The values of a warp combined, or of `lanes` (a power of two) each whose numbers differ by
  /// multiples of `distance` (another one); every lane gets the same bits. All lanes must come
  /// here.
  mlir::Value combineWarp(ReductionKind kind, mlir::Value value, int64_t lanes = kWarp,
                          int64_t distance = 1);
  /// The value of the lane whose number differs in the bits of `distance`. All lanes must come
  /// here.
  mlir::Value shuffle(mlir::Value value, int32_t distance);
  /// The values of a block combined, in the order of its warps, through `shared`, an array of one
  /// element per warp that is used once. All threads must come here, and get the result.
  mlir::Value combineBlock(ReductionKind kind, mlir::Value value, mlir::Value shared);
  /// A pointer to `count` elements of the function's shared memory, which are used for nothing
  /// else.
  mlir::Value sharedArray(mlir::Type element, int64_t count);
  void barrier();
  void warpBarrier();
  /// Bit l: the condition of lane l. All lanes must come here.
  mlir::Value ballot(mlir::Value condition); ///< i32

protected:
  mlir::func::FuncOp outer;

private:
  std::pair<mlir::Value, mlir::Value> divideValues(const Affine &index, int64_t divisor) override;
  mlir::Value identifier(mlir::Value i32); ///< as i64

  const Function &function;
  mlir::Value sharedMemory;
  int64_t sharedUsed = 0;
};

/// Writes the GPU functions of `kernel` in front of it.
llvm::LogicalResult emitKernel(mlir::func::FuncOp kernel);
llvm::LogicalResult emitMap(mlir::func::FuncOp kernel);
llvm::LogicalResult emitRow(mlir::func::FuncOp kernel);
llvm::LogicalResult emitColumn(mlir::func::FuncOp kernel);
llvm::LogicalResult emitScatter(mlir::func::FuncOp kernel);
/// Of a uniform kernel with the layout of a group (Group.h).
llvm::LogicalResult emitGroup(mlir::func::FuncOp kernel);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_GPUEMITTER_H
