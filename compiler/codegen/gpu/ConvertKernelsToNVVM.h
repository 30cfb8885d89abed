//===- ConvertKernelsToNVVM.h - from kernels to GPU functions of the LLVM dialect ---------===//

#ifndef MPC_CODEGEN_GPU_CONVERTKERNELSTONVVM_H
#define MPC_CODEGEN_GPU_CONVERTKERNELSTONVVM_H

#include "compiler/codegen/Passes.h"

namespace mpc::gpu {

/// Writes the GPU functions of all kernels and library commands of `module` and lowers them to the
/// LLVM and NVVM dialects, with instructions of this architecture. Everything else is erased from
/// the module.
std::unique_ptr<mlir::Pass> createConvertKernelsToNVVM(unsigned architecture);

void registerConvertKernelsToNVVM();

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_CONVERTKERNELSTONVVM_H
