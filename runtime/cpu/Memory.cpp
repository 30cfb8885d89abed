//===- Memory.cpp - blocks of memory that live as long as the device --------------===//

#include "runtime/cpu/Memory.h"
#include "runtime/core/Error.h"
#include "runtime/cpu/Threads.h"
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sys/mman.h>
#include <sys/resource.h>

using namespace mpc;
using namespace mpc::cpu;

std::string mpc::cpu::bytesText(uint64_t bytes) {
  const char *units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit)
    value /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text;
}

static std::optional<uint64_t> readNumber(const char *path) {
  std::ifstream file(path);
  uint64_t number;
  if (file >> number)
    return number;
  return std::nullopt; // also "max"
}

// What this process can still get: of the machine, and of its control group.
static std::optional<uint64_t> freeMemory() {
  std::optional<uint64_t> free;
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  uint64_t kib, total = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:" || key == "SwapFree:") {
      total += kib * 1024;
      free = total;
    }
    std::getline(file, unit);
  }
  for (auto [limit, used] :
       {std::pair{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        std::pair{"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                  "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}) {
    std::optional<uint64_t> most = readNumber(limit), now = readNumber(used);
    // Cached file pages count as used there but can be taken back, so this only refuses what can
    // never fit.
    if (most && now && (!free || *most < *free))
      free = most;
  }
  return free;
}

void mpc::cpu::requireFreeMemory(uint64_t bytes, const std::string &purpose) {
  std::optional<uint64_t> free = freeMemory();
  if (free && bytes > *free)
    throw Error("out of memory: " + purpose + " needs " + bytesText(bytes) + ", " +
                bytesText(*free) + " are free. A smaller --batch at compilation needs less");
}

int64_t mpc::cpu::peakMemoryBytes() {
  // getrusage's outlives exec, and tells of the program that started this one.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:"))
      return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

Memory::Memory(size_t bytes, const std::string &purpose) {
  if (bytes == 0)
    return;
  constexpr size_t page = 4096, huge = size_t(1) << 21;
  size_t rounded = (bytes + page - 1) / page * page;
  void *block = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED)
    throw Error("out of memory: the system gives no " + bytesText(bytes) + " for " + purpose +
                " (" + std::strerror(errno) + "). A smaller --batch at compilation needs less");
  if (rounded >= 2 * huge)
    madvise(block, rounded, MADV_HUGEPAGE); // a hint: without it everything works, slower
  start = static_cast<std::byte *>(block);
  size = rounded;
}

Memory::~Memory() {
  if (start)
    munmap(start, size);
}

void Memory::clear(int threads) {
  parallelRanges(int64_t(size), 1 << 20, threads, [&](int64_t begin, int64_t end) {
    std::memset(start + begin, 0, size_t(end - begin));
  });
}
