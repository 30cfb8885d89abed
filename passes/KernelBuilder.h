//===- KernelBuilder.h - the function of one cluster -------------------------------===//

#ifndef MPC_PASSES_KERNELBUILDER_H
#define MPC_PASSES_KERNELBUILDER_H

#include "passes/Clustering.h"
#include "passes/Regroup.h"

namespace mpc {

struct BuiltKernel {
  mlir::func::FuncOp function; ///< not yet in a module; has its mpc.kernel
  /// What an argument is: a value of the clustered function, seen in a shape that may group its
  /// dimensions otherwise.
  llvm::SmallVector<std::pair<mlir::Value, Shape>> operands;
  llvm::SmallVector<mlir::Value> results; ///< the values it computes, in the clustered function
};

/// Builds the kernel of a cluster in as few dimensions as its index maps allow. `argumentOf` tells
/// which argument of the clustered function a result replaces, or -1.
BuiltKernel buildKernel(const Clustering &clustering, int cluster,
                        llvm::function_ref<int(mlir::Value)> argumentOf);

} // namespace mpc

#endif // MPC_PASSES_KERNELBUILDER_H
