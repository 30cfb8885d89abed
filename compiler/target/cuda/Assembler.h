//===- Assembler.h - NVIDIA's tools: ptxas, and the device library ---------------------===//

#ifndef MPC_TARGET_CUDA_ASSEMBLER_H
#define MPC_TARGET_CUDA_ASSEMBLER_H

#include "compiler/target/cuda/CudaTarget.h"
#include "llvm/ADT/ArrayRef.h"

namespace mpc {

/// Links what `module` calls of libdevice (__nv_*) into it. The file: MPC_LIBDEVICE, else the one
/// that mpc was built with.
llvm::Error linkDeviceLibrary(llvm::Module &module);

/// Cubins of a PTX text, one per architecture, made by up to `threads` runs of ptxas at a time and
/// kept by content in the user's cache folder. The program: MPC_PTXAS, else the one that mpc was
/// built with, else that on PATH. `resources`, if any, gets the functions of the first one.
llvm::Expected<std::vector<std::string>> assemble(llvm::StringRef ptx,
                                                  llvm::ArrayRef<unsigned> architectures,
                                                  unsigned threads,
                                                  std::vector<KernelResources> *resources);

} // namespace mpc

#endif // MPC_TARGET_CUDA_ASSEMBLER_H
