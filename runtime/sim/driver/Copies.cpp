//===- Copies.cpp - copies and memsets ----------------------------------------------------===//
//
// Pinned memory is read and written when the copy runs, so that a program that touches it
// too early notices. Pageable memory is another matter: the driver reads it during the call, and
// waits until it has written it.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/driver/Driver.h"

using namespace mpc::sim;

namespace {
/// Refuses bytes that do not lie where they should.
CUresult check(const Context &context, const char *function, const char *side, const void *address,
               size_t bytes, bool isHost) {
  Place place = context.memory.placeOf(address, bytes);
  bool isRight =
      isHost ? place == Place::pinned || place == Place::pageable : place == Place::device;
  if (isRight && address)
    return CUDA_SUCCESS;
  return refuse(CUDA_ERROR_INVALID_VALUE, "%s: the %s, %zu bytes at %p, is %s", function, side,
                bytes, address, placeName(place));
}

struct Request {
  const char *function;
  void *to;
  const void *from;
  size_t bytes;
  bool isToHost, isFromHost;
};

CUresult copy(const Request &request, CUstream handle) {
  return inContext([&](Context &context) {
    std::shared_ptr<Stream> stream;
    if (CUresult result = findStream(context, handle, stream))
      return result;
    if (request.bytes == 0)
      return CUDA_SUCCESS;
    const auto &[function, to, from, bytes, isToHost, isFromHost] = request;
    if (CUresult result = check(context, function, "target", to, bytes, isToHost))
      return result;
    if (CUresult result = check(context, function, "source", from, bytes, isFromHost))
      return result;
    if (driver().strikes(Fault::copy))
      return refuse(CUDA_ERROR_ECC_UNCORRECTABLE, "%s: fails as MPC_SIM_FAULT asks for", function);
    bool isStaged = isFromHost && context.memory.placeOf(from, bytes) == Place::pageable;
    bool isWaitedFor = isToHost && context.memory.placeOf(to, bytes) == Place::pageable;
    if (isStaged || isWaitedFor)
      if (CUresult result = context.checkNotCapturing(*stream, "a copy of pageable memory"))
        return result;
    Copy copy{to, isStaged ? nullptr : from, bytes, {}};
    if (isStaged) {
      auto *source = static_cast<const std::byte *>(from);
      copy.staged.assign(source, source + bytes);
    }
    CUresult result = context.submit(*stream, std::move(copy));
    if (!result && isWaitedFor) {
      context.run(*stream);
      if (!context.device.error)
        context.hostWaited(stream->clock);
    }
    return result;
  });
}

void *pointer(CUdeviceptr address) { return std::bit_cast<void *>(address); }
} // namespace

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes,
                                   CUstream stream) {
  return copy({"cuMemcpyHtoDAsync", pointer(to), from, bytes, /*isToHost=*/false,
               /*isFromHost=*/true},
              stream);
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy({"cuMemcpyDtoHAsync", to, pointer(from), bytes, /*isToHost=*/true,
               /*isFromHost=*/false},
              stream);
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                   CUstream stream) {
  if (to < from + bytes && from < to + bytes)
    return refuse(CUDA_ERROR_INVALID_VALUE, "cuMemcpyDtoDAsync: source and target overlap");
  return copy({"cuMemcpyDtoDAsync", pointer(to), pointer(from), bytes, /*isToHost=*/false,
               /*isFromHost=*/false},
              stream);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                                 CUstream handle) {
  return inContext([&](Context &context) {
    std::shared_ptr<Stream> stream;
    if (CUresult result = findStream(context, handle, stream))
      return result;
    if (bytes == 0)
      return CUDA_SUCCESS;
    if (CUresult result =
            check(context, "cuMemsetD8Async", "target", pointer(to), bytes, /*isHost=*/false))
      return result;
    return context.submit(*stream, Fill{pointer(to), value, bytes});
  });
}
