//===- Inputs.h - the region inputs on a GPU, twice --------------------------------------===//
//
// While a step reads one copy of the inputs, the next batch is copied into the other: the host
// writes page-locked memory, a stream of its own brings it to the GPU, events order the two
// streams, and the host waits only for a copy from two runs before.
//
//   host      write ─► staging[s] ─┐           write ─► staging[1-s] ─┐
//   copies                         └ upload s                         └ upload 1-s
//   compute                                 └ run with copy s                    └ run with copy
//   1-s
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_INPUTS_H
#define MPC_RUNTIME_CUDA_INPUTS_H

#include "runtime/core/Program.h"
#include "runtime/cuda/Gpu.h"
#include <map>

namespace mpc::cuda {

class Inputs {
public:
  Inputs(const Gpu &gpu, uint64_t bytes);

  void write(uint64_t offset, const void *from, size_t bytes);
  void read(uint64_t offset, void *to, size_t bytes) const;

  /// Makes what was written visible to work that is given to `compute` from now on. Returns the
  /// copy to be used, 0 or 1.
  int publish(CUstream compute);
  /// The work given to `compute` so far is the last that uses the copy that publish() named.
  void used(CUstream compute);

  void synchronize() const { gpu.synchronize(stream); }

  CUdeviceptr at(int copy, uint64_t offset) const { return copies[copy].memory + offset; }
  uint64_t bytes() const { return 2 * host.size(); }

private:
  struct Copy {
    DeviceMemory memory;
    HostMemory staging;
    Event uploaded, used;
    std::map<uint64_t, uint64_t> stale; ///< offset → bytes that the host has written since
  };
  void upload(Copy &copy);

  const Gpu &gpu;
  std::vector<std::byte> host; ///< the present values
  Stream stream;
  Copy copies[2];
  int current = 0;
};

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_INPUTS_H
