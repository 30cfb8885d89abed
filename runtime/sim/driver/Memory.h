//===- Memory.h - the memory of a simulated device, and pinned host memory ---------------===//
//
// An allocation lies between pages that nobody may touch, is full of 0xFF (a NaN in every type) and
// never gets an address that another one had before, so that a pointer to freed memory stays
// recognizable. Device memory can only be touched while the simulator executes: a program
// that follows a device pointer itself is ended by the operating system, as on a real machine.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_DRIVER_MEMORY_H
#define MPC_RUNTIME_SIM_DRIVER_MEMORY_H

#include "runtime/sim/Executor.h"
#include <cstddef>
#include <cstdint>
#include <map>

namespace mpc::sim {

/// Where bytes lie. `mixed`: partly in an allocation.
enum class Place : uint8_t { device, pinned, pageable, freed, mixed };

/// "device memory", "memory that was freed" and so on.
const char *placeName(Place place);

class Memory {
public:
  explicit Memory(uint64_t totalBytes) : totalBytes(totalBytes) {}
  Memory(const Memory &) = delete;
  ~Memory();

  /// 256-byte aligned; null where the device (or, for host memory, this machine) has no more.
  void *allocateDevice(size_t bytes);
  /// `isMapped`: kernels may use the pointer.
  void *allocateHost(size_t bytes, bool isMapped);
  /// False if no live allocation of that kind begins there.
  bool free(const void *start, bool isHost);

  Place placeOf(const void *address, size_t bytes) const;
  const MemoryMap &map() const { return seenByKernels; }
  uint64_t total() const { return totalBytes; }
  uint64_t unused() const { return totalBytes - usedBytes; }

  /// Lets this process touch device memory, until close().
  void open();
  void close();

private:
  struct Allocation {
    size_t bytes = 0;
    std::byte *pages = nullptr; ///< that hold it; another one on both sides nobody may touch
    size_t pageBytes = 0;
    bool isHost = false, isMapped = false, isLive = true;
  };

  void *allocate(size_t bytes, bool isHost, bool isMapped);
  void protect(int protection);

  uint64_t totalBytes, usedBytes = 0;
  std::map<uintptr_t, Allocation> allocations; ///< by address; freed ones stay
  MemoryMap seenByKernels;
  bool isOpen = false;
};

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_DRIVER_MEMORY_H
