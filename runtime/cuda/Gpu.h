//===- Gpu.h - a GPU: its context, memory, streams and kernels -------------------------===//
//
// The driver's calls with errors as exceptions and objects that end with their owners. Nothing
// here knows what a program is.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_GPU_H
#define MPC_RUNTIME_CUDA_GPU_H

#include "runtime/cuda/Driver.h"
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mpc::cuda {

using Stream = Owned<CUstream>;
using Event = Owned<CUevent>;
using DeviceMemory = Owned<CUdeviceptr>;
using HostMemory = Owned<void *>; ///< page-locked, so that copies run beside the host
using Module = Owned<CUmodule>;
using Graph = Owned<CUgraphExec>;

class Gpu {
public:
  /// Device `ordinal` of the driver in `folder` (Driver.h). Throws Error.
  Gpu(const std::string &folder, int ordinal);

  const std::string &name() const { return deviceName; }
  int ordinal() const { return number; }
  /// 10 · major + minor of the compute capability: the NN of sm_NN.
  uint32_t architecture() const { return capability; }
  uint64_t totalMemory() const { return total; }
  uint64_t freeMemory() const;
  int driverVersion() const { return driver.version(); }
  /// Lets the calling thread work with the GPU, too: libraries ask for the context of a thread.
  /// False where that fails.
  bool makeCurrent() const { return driver.cuCtxSetCurrent(context) == CUDA_SUCCESS; }

  /// Throws Error with the sizes: `purpose` needs `bytes` of device memory.
  [[noreturn]] void lacksMemory(const std::string &purpose, uint64_t bytes) const;
  /// `bytes` of device memory, 256-byte aligned, not cleared. Throws Error with the sizes.
  DeviceMemory allocate(uint64_t bytes, const std::string &purpose) const;
  HostMemory allocateHost(uint64_t bytes) const;
  Stream stream() const;
  Event event(bool isTimed = false) const;

  /// Loads an image of kernels; PTX is compiled by the driver.
  Module load(const void *image) const;
  CUfunction function(CUmodule module, const std::string &symbol) const;
  /// Loads the function now, where the driver can be told to: else at its first launch at the
  /// latest.
  void load(CUfunction function) const;
  /// Throws Error where the driver says that the function takes other parameters than of these
  /// bytes; one that cannot tell is believed.
  void checkParameters(CUfunction function, const std::string &symbol,
                       const std::vector<size_t> &bytes) const;
  /// The work that `issue` gives to the stream, as a graph that can be launched again and again.
  Graph capture(CUstream stream, const std::function<void()> &issue) const;

  void launch(CUstream stream, CUfunction function, uint32_t grid, uint32_t block,
              void **parameters) const;
  void launch(CUstream stream, CUgraphExec graph) const;
  /// To and from memory of the host; page-locked memory must stay as it is until the copy is done.
  void upload(CUstream stream, CUdeviceptr to, const void *from, size_t bytes) const;
  void download(CUstream stream, void *to, CUdeviceptr from, size_t bytes) const;
  void copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) const;
  void clear(CUstream stream, CUdeviceptr to, size_t bytes) const;
  void record(CUevent event, CUstream stream) const;
  void wait(CUstream stream, CUevent event) const; ///< work given later waits for the event
  void synchronize(CUstream stream) const;         ///< the host waits
  void synchronize(CUevent event) const;
  /// Between two timed events that the GPU has reached.
  double milliseconds(CUevent from, CUevent to) const;

private:
  /// An error while work runs: it shows in whatever call comes next.
  void checkRun(CUresult result, const char *what) const;

  Driver driver;
  int number;
  CUdevice device = 0;
  std::string deviceName;
  uint32_t capability = 0;
  uint64_t total = 0;
  Owned<CUcontext> context;
};

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_GPU_H
