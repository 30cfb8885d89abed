//===- Memory.h - blocks of memory that live as long as the device ----------------===//

#ifndef MPC_RUNTIME_CPU_MEMORY_H
#define MPC_RUNTIME_CPU_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace mpc::cpu {

/// Zeroed, page-aligned memory from the system, with huge pages where it has them. Throws Error
/// with the sizes when there is not enough.
class Memory {
public:
  Memory() = default;
  Memory(size_t bytes, const std::string &purpose);
  ~Memory();
  Memory(Memory &&other) noexcept
      : start(std::exchange(other.start, nullptr)), size(std::exchange(other.size, 0)) {}
  Memory &operator=(Memory &&other) noexcept {
    std::swap(start, other.start);
    std::swap(size, other.size);
    return *this;
  }

  std::byte *data() const { return start; }
  size_t bytes() const { return size; }
  void clear(int threads);

private:
  std::byte *start = nullptr;
  size_t size = 0;
};

/// Throws Error, naming `purpose`, unless that much memory is free: the system promises more than
/// it has and would end the process later.
void requireFreeMemory(uint64_t bytes, const std::string &purpose);

/// The process's peak.
int64_t peakMemoryBytes();

std::string bytesText(uint64_t bytes); ///< "1.5 GiB"

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_MEMORY_H
