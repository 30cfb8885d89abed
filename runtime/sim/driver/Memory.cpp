//===- Memory.cpp - the memory of a simulated device, and pinned host memory -------------===//

#include "runtime/sim/driver/Memory.h"
#include "runtime/sim/driver/Driver.h"
#include <cstring>
#include <sys/mman.h>

namespace mpc::sim {

namespace {
constexpr size_t kPage = 4096, kAlignment = 256;
constexpr int kUninitialized = 0xFF;

size_t roundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }
} // namespace

const char *placeName(Place place) {
  switch (place) {
  case Place::device:
    return "device memory";
  case Place::pinned:
    return "pinned memory";
  case Place::pageable:
    return "pageable memory";
  case Place::freed:
    return "memory that was freed";
  case Place::mixed:
    break;
  }
  return "memory that begins or ends outside of its allocation";
}

Memory::~Memory() {
  for (auto &[address, allocation] : allocations)
    munmap(allocation.pages - kPage, allocation.pageBytes + 2 * kPage);
}

void *Memory::allocate(size_t bytes, bool isHost, bool isMapped) {
  size_t used = roundUp(bytes, kAlignment), pageBytes = roundUp(used, kPage);
  void *mapping = mmap(nullptr, pageBytes + 2 * kPage, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return nullptr;
  // The end lies at the end of a page, so that the page behind it catches what runs over.
  std::byte *pages = static_cast<std::byte *>(mapping) + kPage;
  std::byte *start = pages + (pageBytes - used);
  if (mprotect(pages, pageBytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapping, pageBytes + 2 * kPage);
    return nullptr;
  }
  std::memset(start, kUninitialized, bytes);
  if (!isHost && !isOpen)
    mprotect(pages, pageBytes, PROT_NONE);
  allocations[reinterpret_cast<uintptr_t>(start)] = {bytes, pages, pageBytes, isHost, isMapped};
  if (isMapped)
    seenByKernels.add(start, bytes);
  return start;
}

void *Memory::allocateDevice(size_t bytes) {
  // The first comparison keeps the rounding from overflowing.
  if (bytes > unused() || roundUp(bytes, kAlignment) > unused())
    return nullptr;
  void *start = allocate(bytes, /*isHost=*/false, /*isMapped=*/true);
  if (start)
    usedBytes += roundUp(bytes, kAlignment);
  return start;
}

void *Memory::allocateHost(size_t bytes, bool isMapped) {
  constexpr size_t kMost = size_t(1) << 46; // more than any address space has
  return bytes > kMost ? nullptr : allocate(bytes, /*isHost=*/true, isMapped);
}

bool Memory::free(const void *start, bool isHost) {
  auto found = allocations.find(reinterpret_cast<uintptr_t>(start));
  if (found == allocations.end() || !found->second.isLive || found->second.isHost != isHost)
    return false;
  Allocation &allocation = found->second;
  allocation.isLive = false;
  if (allocation.isMapped)
    seenByKernels.remove(start);
  if (!isHost)
    usedBytes -= roundUp(allocation.bytes, kAlignment);
  // The addresses stay taken, the memory goes back.
  madvise(allocation.pages, allocation.pageBytes, MADV_DONTNEED);
  mprotect(allocation.pages, allocation.pageBytes, PROT_NONE);
  return true;
}

Place Memory::placeOf(const void *address, size_t bytes) const {
  auto begin = reinterpret_cast<uintptr_t>(address), end = begin + bytes;
  // The last allocation that begins before the bytes end.
  auto next = allocations.lower_bound(end);
  if (next == allocations.begin())
    return Place::pageable;
  const auto &[start, allocation] = *std::prev(next);
  if (start + allocation.bytes <= begin)
    return Place::pageable;
  if (!allocation.isLive)
    return Place::freed;
  if (begin < start || end > start + allocation.bytes)
    return Place::mixed;
  return allocation.isHost ? Place::pinned : Place::device;
}

void Memory::protect(int protection) {
  for (auto &[address, allocation] : allocations)
    if (allocation.isLive && !allocation.isHost)
      mprotect(allocation.pages, allocation.pageBytes, protection);
}

void Memory::open() {
  if (!isOpen)
    protect(PROT_READ | PROT_WRITE);
  isOpen = true;
}

void Memory::close() {
  if (isOpen)
    protect(PROT_NONE);
  isOpen = false;
}

} // namespace mpc::sim

using namespace mpc::sim;

CUresult CUDAAPI cuMemGetInfo(size_t *free, size_t *total) {
  return inContext([&](Context &context) {
    if (!free || !total)
      return CUDA_ERROR_INVALID_VALUE;
    *free = context.memory.unused();
    *total = context.memory.total();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *pointer, size_t bytes) {
  return inContext([&](Context &context) {
    if (CUresult unsafe = context.checkUnsafe("cuMemAlloc"))
      return unsafe;
    driver().trace("allocate");
    if (!pointer || bytes == 0)
      return CUDA_ERROR_INVALID_VALUE;
    void *start = driver().strikes(Fault::alloc) ? nullptr : context.memory.allocateDevice(bytes);
    if (!start)
      return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = reinterpret_cast<CUdeviceptr>(start);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemFree(CUdeviceptr pointer) {
  return inContext([&](Context &context) {
    if (CUresult unsafe = context.checkUnsafe("cuMemFree"))
      return unsafe;
    context.synchronize();
    if (context.device.error)
      return context.device.error;
    if (!context.memory.free(std::bit_cast<void *>(pointer), /*isHost=*/false))
      return refuse(CUDA_ERROR_INVALID_VALUE,
                    "cuMemFree: no live device allocation begins at 0x%llx", pointer);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
  return inContext([&](Context &context) {
    constexpr unsigned kFlags =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (CUresult unsafe = context.checkUnsafe("cuMemHostAlloc"))
      return unsafe;
    if (!pointer || bytes == 0 || (flags & ~kFlags))
      return CUDA_ERROR_INVALID_VALUE;
    bool isMapped = !(flags & CU_MEMHOSTALLOC_WRITECOMBINED);
    void *start = context.memory.allocateHost(bytes, isMapped);
    if (!start)
      return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = start;
    return CUDA_SUCCESS;
  });
}

// Waits for nothing: work that is still queued for this memory is an error when it runs.
CUresult CUDAAPI cuMemFreeHost(void *pointer) {
  return inContext([&](Context &context) {
    if (CUresult unsafe = context.checkUnsafe("cuMemFreeHost"))
      return unsafe;
    if (!context.memory.free(pointer, /*isHost=*/true))
      return refuse(CUDA_ERROR_INVALID_VALUE,
                    "cuMemFreeHost: no live pinned allocation begins at %p", pointer);
    return CUDA_SUCCESS;
  });
}
