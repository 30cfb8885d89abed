//===- CudaTarget.h - kernels as PTX and cubins -----------------------------------------===//
//
// One module of PTX for all architectures that have the same instructions, as far as the kernels
// use them (Architecture.h), assembled by ptxas for every architecture asked for. Cubins run on
// the devices of their major version. PTX is kept for those that have none: the first text, which
// runs wherever a program can, and the last one, with the instructions of those that come later.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_TARGET_CUDA_CUDATARGET_H
#define MPC_TARGET_CUDA_CUDATARGET_H

#include "compiler/codegen/gpu/Architecture.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>
#include <vector>

namespace mpc {

/// sm_NN, as the numbers of --target=cuda:sm_70,…: all that may be asked for, and those that are
/// compiled for where none is.
inline constexpr unsigned kKnownArchitectures[] = {70, 72,  75,  80,  86,  87, 89,
                                                   90, 100, 101, 103, 120, 121};
inline constexpr unsigned kDefaultArchitectures[] = {70, 75, 80, 86, 89, 90, 100, 120};

struct CudaTargetOptions {
  std::vector<unsigned> architectures{std::begin(kDefaultArchitectures),
                                      std::end(kDefaultArchitectures)};
  unsigned threads = 2;  ///< that assemble at the same time
  bool simulate = false; ///< also CPU code of the kernels, for the simulator
};

/// What a device loads: all kernels of a program.
struct DeviceImage {
  enum Kind { cubin, ptx, simulator } kind;
  unsigned architecture; ///< NN of sm_NN
  std::string bytes;
};

/// What ptxas says about a function, for --report and the tests.
struct KernelResources {
  std::string name;
  unsigned registers = 0, spillBytes = 0, sharedBytes = 0;
};

/// The images of a planned module's kernels, in the order of the architectures; of the first and
/// the last text PTX, too. Fails where ptxas or libdevice is missing, or ptxas refuses the code.
llvm::Expected<std::vector<DeviceImage>>
compileDeviceImages(mlir::ModuleOp planned, const CudaTargetOptions &options,
                    std::vector<KernelResources> *resources = nullptr);

/// The kernels for the simulator (SimulatorImage.h), as they are for this architecture.
llvm::Expected<std::string> compileForSimulator(mlir::ModuleOp planned, unsigned architecture);

/// All kernels as PTX for the lowest architecture, or as the LLVM IR before it.
llvm::Error printDeviceCode(mlir::ModuleOp planned, const CudaTargetOptions &options, bool ptx,
                            llvm::raw_ostream &to);

} // namespace mpc

#endif // MPC_TARGET_CUDA_CUDATARGET_H
