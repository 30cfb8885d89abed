//===- Executor.h - runs a grid of a simulated kernel -----------------------------------===//
//
// A block's threads are fibres where the kernel synchronizes, and a plain loop where it does
// not. Blocks run one after the other. What a GPU leaves undefined is an error here: an access
// outside of every buffer, a race between threads or blocks for any byte, shared memory that
// is read before it is written, a barrier or an exchange that a thread does not reach.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_EXECUTOR_H
#define MPC_RUNTIME_SIM_EXECUTOR_H

#include "runtime/sim/Image.h"
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mpc::sim {

using Extent = std::array<uint32_t, 3>; ///< x, y, z

/// The memory that kernels may touch. Allocations do not overlap.
class MemoryMap {
public:
  void add(const void *start, size_t bytes);
  /// False if no allocation begins there.
  bool remove(const void *start);
  /// True if the bytes lie in one allocation.
  bool contains(const void *address, size_t bytes) const;

private:
  struct Piece {
    uintptr_t begin = 0, end = 0;
  };
  std::map<uintptr_t, Piece> pieces; ///< by begin
  mutable Piece last;                ///< the one found last: most accesses are near each other
};

/// Bytes of memory that were accessed.
struct Touched {
  uintptr_t begin = 0, end = 0;
  bool isWritten = false;
};

/// What a launch did.
struct Report {
  bool isOutside = false;       ///< it was ended by an access outside of every buffer
  bool isMisaligned = false;    ///< or by one that is not aligned
  std::vector<Touched> touched; ///< of one that was not ended, by address
};

/// Bytes of argument i.
inline uint32_t parameterBytes(const MpcSimKernel &kernel, uint32_t i) {
  return kernel.parameter_bytes ? kernel.parameter_bytes[i] : sizeof(void *);
}

/// Runs all blocks. `parameters[i]` points to argument i. Empty, or what went wrong and where
/// ("kernel k3, block (2, 0, 0), thread (17, 0, 0): accesses memory outside of every buffer (load
/// of 4 bytes at …)"); memory may then be partly written.
std::string run(const MpcSimKernel &kernel, Extent grid, Extent block, void **parameters,
                const MemoryMap &memory, Report *report = nullptr);

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_EXECUTOR_H
