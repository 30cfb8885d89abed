//===- Images.h - which of a program's images a GPU runs --------------------------------===//

#ifndef MPC_RUNTIME_CUDA_IMAGES_H
#define MPC_RUNTIME_CUDA_IMAGES_H

#include "runtime/core/Program.h"

namespace mpc::cuda {

/// The image for a GPU of this architecture (10 · major + minor): the newest cubin of its major
/// version that is not newer than it, else the newest PTX that is not. Throws Error: none; says
/// what the program was compiled for and how it is compiled for this GPU.
const ProgramImage &chooseImage(const Program &program, uint32_t architecture,
                                const std::string &gpuName);

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_IMAGES_H
