//===- Uniform.h - kernels that are the same for every number of elements --------------===//

#ifndef MPC_CODEGEN_GPU_UNIFORM_H
#define MPC_CODEGEN_GPU_UNIFORM_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace mpc::gpu {

/// What stands for the number of elements in a uniform kernel. A launch of more is never uniform.
inline constexpr int64_t kUniformElements = int64_t(1) << 30;

/// The kernel for any number of elements: an elementwise map, or reductions of all elements to
/// scalars and what is computed from those. Its tensors of as many elements as its domain are
/// one-dimensional, of kUniformElements; what it reads beside them (scalars, a few numbers) keeps
/// its type. Kernels that differ in their shapes alone become equal. Null for any other kernel, and
/// for one of a single element. The function belongs to no module.
///
///   @k(%x: tensor<6x3072xf32>, %s: tensor<f32>)   →   @k(%x: tensor<1073741824xf32>, %s:
///   tensor<f32>)
mlir::OwningOpRef<mlir::func::FuncOp> uniformKernel(mlir::func::FuncOp kernel);

/// The uniform kernel as text; empty where there is none.
std::string uniformText(mlir::func::FuncOp kernel);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_UNIFORM_H
