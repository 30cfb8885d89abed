//===- Architecture.h - what GPUs of an architecture have instructions for --------------===//
//
// Architectures are the numbers NN of sm_NN.
//
//===------------------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_GPU_ARCHITECTURE_H
#define MPC_CODEGEN_GPU_ARCHITECTURE_H

#include "mlir/IR/Types.h"

namespace mpc {

/// From here on a GPU has instructions for bf16 and for maxima that propagate NaN.
inline constexpr unsigned kFirstBf16Architecture = 80;

namespace gpu {

/// True if tensor cores of some architecture multiply this type.
bool hasTensorCores(mlir::Type element);

/// The instruction of tensor cores by the shape of its product (mma.sync), with sums in f32. Each
/// is what its architectures are built for: later ones execute m8n8k4 slowly.
enum class Mma { none, m8n8k4, m16n8k8, m16n8k16 };
/// What an architecture multiplies numbers of a type with; none: only multiply-add in registers.
Mma mmaOf(unsigned architecture, mlir::Type element);

} // namespace gpu
} // namespace mpc

#endif // MPC_CODEGEN_GPU_ARCHITECTURE_H
