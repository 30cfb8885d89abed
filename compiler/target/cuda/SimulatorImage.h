//===- SimulatorImage.h - GPU kernels as code of this CPU, for the simulator --------------===//

#ifndef MPC_TARGET_CUDA_SIMULATORIMAGE_H
#define MPC_TARGET_CUDA_SIMULATORIMAGE_H

#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include <string>

namespace mpc {

/// A shared object with the kernels of `device`: the LLVM IR that goes into the NVPTX code
/// generator, before NVIDIA's device library is linked. What a GPU has in hardware, it asks the
/// simulator for (runtime/sim/Image.h).
llvm::Expected<std::string> compileSimulatorImage(const llvm::Module &device);

} // namespace mpc

#endif // MPC_TARGET_CUDA_SIMULATORIMAGE_H
