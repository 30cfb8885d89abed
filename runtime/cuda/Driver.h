//===- Driver.h - NVIDIA's driver library, opened at run time -------------------------===//
//
// The trainer is not linked to libcuda.so.1, so that it starts, and explains itself, on a machine
// without a GPU. Functions have the names and meanings of the CUDA Driver API (cuda.h); tests open
// the simulator's library of the same interface (runtime/sim/driver).
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_DRIVER_H
#define MPC_RUNTIME_CUDA_DRIVER_H

#include <cuda.h>
#include <functional>
#include <string>
#include <utility>

// cuda.h's macros turn some of these into the symbols of their current version (cuMemAlloc_v2).
#define MPC_CUDA_FUNCTIONS(X)                                                                      \
  X(cuInit)                                                                                        \
  X(cuDriverGetVersion)                                                                            \
  X(cuGetErrorName)                                                                                \
  X(cuGetErrorString)                                                                              \
  X(cuDeviceGetCount)                                                                              \
  X(cuDeviceGet)                                                                                   \
  X(cuDeviceGetName)                                                                               \
  X(cuDeviceTotalMem)                                                                              \
  X(cuDeviceGetAttribute)                                                                          \
  X(cuDevicePrimaryCtxRetain)                                                                      \
  X(cuDevicePrimaryCtxRelease)                                                                     \
  X(cuCtxSetCurrent)                                                                               \
  X(cuMemGetInfo)                                                                                  \
  X(cuMemAlloc)                                                                                    \
  X(cuMemFree)                                                                                     \
  X(cuMemHostAlloc)                                                                                \
  X(cuMemFreeHost)                                                                                 \
  X(cuMemcpyHtoDAsync)                                                                             \
  X(cuMemcpyDtoHAsync)                                                                             \
  X(cuMemcpyDtoDAsync)                                                                             \
  X(cuMemsetD8Async)                                                                               \
  X(cuStreamCreate)                                                                                \
  X(cuStreamDestroy)                                                                               \
  X(cuStreamSynchronize)                                                                           \
  X(cuStreamWaitEvent)                                                                             \
  X(cuStreamBeginCapture)                                                                          \
  X(cuStreamEndCapture)                                                                            \
  X(cuEventCreate)                                                                                 \
  X(cuEventDestroy)                                                                                \
  X(cuEventRecord)                                                                                 \
  X(cuEventSynchronize)                                                                            \
  X(cuEventElapsedTime)                                                                            \
  X(cuModuleLoadDataEx)                                                                            \
  X(cuModuleUnload)                                                                                \
  X(cuModuleGetFunction)                                                                           \
  X(cuLaunchKernel)                                                                                \
  X(cuGraphInstantiate)                                                                            \
  X(cuGraphLaunch)                                                                                 \
  X(cuGraphDestroy)                                                                                \
  X(cuGraphExecDestroy)

// Those that a driver of CUDA 12.1 may lack; null where it does.
#define MPC_CUDA_LATER_FUNCTIONS(X)                                                                \
  X(cuFuncGetParamInfo) /* 12.4 */                                                                 \
  X(cuFuncLoad)         /* 12.4 */

namespace mpc::cuda {

class Driver {
public:
  /// Opens libcuda.so.1 where the loader finds it, or in `folder` if that is not empty, and
  /// initializes it. Throws Error: no driver, too old a driver, no GPU.
  /// The library stays open until the process ends: it has threads of its own.
  explicit Driver(const std::string &folder);
  Driver(const Driver &) = delete;
  Driver &operator=(const Driver &) = delete;

#define MPC_CUDA_DECLARE(name) decltype(&::name) name = nullptr;
  MPC_CUDA_FUNCTIONS(MPC_CUDA_DECLARE)
  MPC_CUDA_LATER_FUNCTIONS(MPC_CUDA_DECLARE)
#undef MPC_CUDA_DECLARE

  /// Throws Error "WHAT: TEXT (CUDA_ERROR_…)" unless the call succeeded.
  void check(CUresult result, const char *what) const;
  std::string text(CUresult result) const;      ///< "out of memory (CUDA_ERROR_OUT_OF_MEMORY)"
  int version() const { return driverVersion; } ///< of CUDA: 1000 · major + 10 · minor

private:
  void *library = nullptr;
  int driverVersion = 0;
};

/// "12.9", of 12090
std::string versionText(int version);

/// A driver's object (stream, event, memory, …), destroyed with its owner.
template <typename Handle> class Owned {
public:
  Owned() = default;
  Owned(Handle handle, std::function<void(Handle)> destroy)
      : handle(handle), destroy(std::move(destroy)) {}
  Owned(Owned &&other) noexcept
      : handle(std::exchange(other.handle, Handle())), destroy(std::move(other.destroy)) {
    other.destroy = nullptr;
  }
  Owned &operator=(Owned &&other) noexcept {
    std::swap(handle, other.handle);
    std::swap(destroy, other.destroy);
    return *this;
  }
  ~Owned() {
    if (destroy)
      destroy(handle);
  }
  operator Handle() const { return handle; }

private:
  Handle handle{};
  std::function<void(Handle)> destroy;
};

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_DRIVER_H
