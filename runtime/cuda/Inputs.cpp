//===- Inputs.cpp - the region inputs on a GPU, twice ------------------------------------===//

#include "runtime/cuda/Inputs.h"
#include <algorithm>
#include <cstring>

using namespace mpc;
using namespace mpc::cuda;

// Neighbors this near are one copy: a copy costs more than these bytes.
static constexpr uint64_t kGap = 4096;

Inputs::Inputs(const Gpu &gpu, uint64_t bytes) : gpu(gpu), host(bytes), stream(gpu.stream()) {
  for (Copy &copy : copies) {
    // One byte at least: a program without inputs has an address for them, too.
    copy.memory = gpu.allocate(std::max<uint64_t>(bytes, 1), "a batch of inputs");
    copy.staging = gpu.allocateHost(std::max<uint64_t>(bytes, 1));
    copy.uploaded = gpu.event();
    copy.used = gpu.event();
    if (bytes)
      copy.stale[0] = bytes;
  }
}

void Inputs::write(uint64_t offset, const void *from, size_t bytes) {
  if (bytes == 0)
    return;
  std::memcpy(host.data() + offset, from, bytes);
  for (Copy &copy : copies) {
    uint64_t &known = copy.stale[offset];
    known = std::max<uint64_t>(known, bytes);
  }
}

void Inputs::read(uint64_t offset, void *to, size_t bytes) const {
  if (bytes)
    std::memcpy(to, host.data() + offset, bytes);
}

int Inputs::publish(CUstream compute) {
  if (!copies[current].stale.empty()) {
    current = 1 - current;
    upload(copies[current]);
    gpu.wait(compute, copies[current].uploaded);
  }
  return current;
}

void Inputs::used(CUstream compute) { gpu.record(copies[current].used, compute); }

void Inputs::upload(Copy &copy) {
  gpu.synchronize(copy.uploaded); // the staging memory is free
  gpu.wait(stream, copy.used);    // and nothing reads the copy any more
  auto *staging = static_cast<std::byte *>(static_cast<void *>(copy.staging));
  for (auto next = copy.stale.begin(); next != copy.stale.end();) {
    uint64_t begin = next->first, end = begin;
    for (; next != copy.stale.end() && next->first <= end + kGap; ++next)
      end = std::max(end, next->first + next->second);
    std::memcpy(staging + begin, host.data() + begin, end - begin);
    gpu.upload(stream, copy.memory + begin, staging + begin, end - begin);
  }
  copy.stale.clear();
  gpu.record(copy.uploaded, stream);
}
