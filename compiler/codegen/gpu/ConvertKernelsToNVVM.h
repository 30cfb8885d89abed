//===- ConvertKernelsToNVVM.h - from kernels to GPU functions of the LLVM dialect ---------===//

#ifndef MPC_CODEGEN_GPU_CONVERTKERNELSTONVVM_H
#define MPC_CODEGEN_GPU_CONVERTKERNELSTONVVM_H

#include "compiler/codegen/Passes.h"

namespace mpc::gpu {

/// Writes the GPU functions of all kernels and library commands of `module` and lowers them to the
/// LLVM and NVVM dialects. Everything else is erased from the module. `half.bf16`: the GPU rounds
/// to bf16 and its tensor cores multiply both halves (sm_80 and later).
std::unique_ptr<mlir::Pass> createConvertKernelsToNVVM(HalfSupport half = {});

void registerConvertKernelsToNVVM();

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_CONVERTKERNELSTONVVM_H
