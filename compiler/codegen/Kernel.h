//===- Kernel.h - facts about a fused kernel that its users share ---------------===//
//
// The planner, the driver and code generation must agree on which functions a kernel
// becomes, over which range each runs, and how much scratch memory it needs. All of it
// follows from the kernel's function alone: never from a thread count, so that the order
// of additions, and with it every bit, is the same on any number of threads.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_KERNEL_H
#define MPC_CODEGEN_KERNEL_H

#include "MpcDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace mpc {

/// The `mpc.kernel` attribute of a function that `fuse` made; null for any other function.
KernelAttr getKernelAttr(mlir::func::FuncOp function);

/// What a kernel's function returns.
mlir::ValueRange kernelResults(mlir::func::FuncOp kernel);

/// A native function that a kernel becomes: it is called for sub-ranges of [0, extent).
struct KernelFunction {
  std::string name; ///< NAME, or NAME.partial and NAME.combine
  int64_t extent;   ///< positions of the outermost loop
  int64_t grain;    ///< least positions worth a thread of their own
};

/// The functions of a kernel in the order in which they have to run: one, or two for the kind
/// column. All of them take the same buffer list: arguments, results, and for the kind column the
/// scratch.
llvm::SmallVector<KernelFunction, 2> kernelFunctions(mlir::func::FuncOp kernel);

/// What `plan` aligns every buffer to.
inline constexpr int64_t kPlanAlignment = 64;

/// One of a launch's distinct buffers.
struct KernelBuffer {
  unsigned position; ///< in the launch's list: arguments, results, scratch
  int64_t bytes;
};
/// The buffers of a kernel without those of results that overwrite an argument; `scratch` bytes of
/// scratch come last, if any.
llvm::SmallVector<KernelBuffer> distinctBuffers(mlir::func::FuncOp kernel, int64_t scratch);

/// Bytes of the scratch buffer of a launch: 0 unless the kernel is of kind column.
int64_t scratchBytes(mlir::func::FuncOp kernel);

/// Index of every produced function in the program's table of kernels. Kernels with equal bodies
/// share their functions, so several names may have one index. Deterministic; `count` is the
/// table's size.
struct KernelIndex {
  llvm::StringMap<unsigned> index;
  /// Per table entry: the function's own name and the kernel function it is made from.
  llvm::SmallVector<std::pair<std::string, mlir::func::FuncOp>> entries;
};
KernelIndex kernelIndex(mlir::ModuleOp module);
/// The kernels of the table, each once, in its order.
llvm::SmallVector<mlir::func::FuncOp> distinctKernels(const KernelIndex &table);

} // namespace mpc

#endif // MPC_CODEGEN_KERNEL_H
