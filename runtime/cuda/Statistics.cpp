//===- Statistics.cpp - a step's few numbers, to and from the host -----------------------===//

#include "runtime/cuda/Statistics.h"
#include "runtime/core/Error.h"
#include <algorithm>
#include <cstring>

using namespace mpc;
using namespace mpc::cuda;

// Neighbors this near are one copy.
static constexpr uint64_t kGap = 4096;
// Writes on their way before the host waits, and the largest of them.
static constexpr uint64_t kPlaces = 64, kPlaceBytes = 64;

static std::byte *bytesOf(const HostMemory &memory) {
  return static_cast<std::byte *>(static_cast<void *>(memory));
}

Statistics::Statistics(const Gpu &gpu, const Program &program,
                       const std::function<CUdeviceptr(const Buffer &)> &addressOf)
    : gpu(gpu), sent(gpu.allocateHost(kPlaces * kPlaceBytes)) {
  std::vector<Piece> all;
  for (const TensorInfo &tensor : program.tensors)
    if (isStatistic(tensor.role))
      all.push_back(
          {tensor.buffer.region, tensor.buffer.offset, tensor.buffer.offset + tensor.bytes()});
  std::sort(all.begin(), all.end(), [](const Piece &a, const Piece &b) {
    return std::pair(a.region, a.begin) < std::pair(b.region, b.begin);
  });
  for (const Piece &piece : all) {
    if (!pieces.empty() && pieces.back().region == piece.region &&
        piece.begin <= pieces.back().end + kGap)
      pieces.back().end = std::max(pieces.back().end, piece.end);
    else
      pieces.push_back(piece);
  }
  for (Piece &piece : pieces) {
    piece.address = addressOf({piece.region, piece.begin});
    piece.staged = slotBytes = (slotBytes + 63) / 64 * 64;
    slotBytes += piece.end - piece.begin;
  }
}

uint64_t Statistics::mark(CUstream stream) {
  size_t free = 0;
  while (free < slots.size() && slots[free].isUsed)
    ++free;
  if (free == slots.size())
    slots.push_back({gpu.allocateHost(slotBytes), gpu.event()});
  Slot &slot = slots[free];
  slot.isUsed = true;
  for (const Piece &piece : pieces)
    gpu.download(stream, bytesOf(slot.memory) + piece.staged, piece.address,
                 piece.end - piece.begin);
  gpu.record(slot.copied, stream);
  return free + 1;
}

const Statistics::Piece &Statistics::pieceOf(const TensorInfo &tensor) const {
  for (const Piece &piece : pieces)
    if (piece.region == tensor.buffer.region && piece.begin <= tensor.buffer.offset &&
        tensor.buffer.offset + tensor.bytes() <= piece.end)
      return piece;
  throw Error("'" + tensor.name + "' is none of the program's statistics");
}

void Statistics::read(uint64_t mark, const TensorInfo &tensor, void *to) const {
  const Piece &piece = pieceOf(tensor);
  const Slot &slot = slots[mark - 1];
  gpu.synchronize(slot.copied);
  std::memcpy(to, bytesOf(slot.memory) + piece.staged + (tensor.buffer.offset - piece.begin),
              tensor.bytes());
}

void Statistics::read(CUstream stream, const TensorInfo &tensor, void *to) {
  if (present == 0)
    present = mark(stream);
  read(present, tensor, to);
}

void Statistics::changed() {
  if (present != 0)
    release(present);
  present = 0;
}

void Statistics::write(CUstream stream, const TensorInfo &tensor, const void *from) {
  const Piece &piece = pieceOf(tensor);
  CUdeviceptr to = piece.address + (tensor.buffer.offset - piece.begin);
  changed();
  if (tensor.bytes() > kPlaceBytes) {
    gpu.upload(stream, to, from, tensor.bytes());
    return gpu.synchronize(stream); // the caller may free it
  }
  uint64_t place = nextPlace++ % kPlaces;
  if (place == 0)
    gpu.synchronize(stream); // all places are free again
  std::byte *staging = bytesOf(sent) + place * kPlaceBytes;
  std::memcpy(staging, from, tensor.bytes());
  gpu.upload(stream, to, staging, tensor.bytes());
}
