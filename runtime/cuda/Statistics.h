//===- Statistics.h - a step's few numbers, to and from the host -------------------------===//
//
// Loss, counts, scale, norms: small tensors that the training loop looks at after a step. A mark
// copies all of them to page-locked memory behind the work given so far, so that the host can give
// the next step before it looks at this one; what the host writes of them goes through page-locked
// memory, too, so that nobody waits.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_STATISTICS_H
#define MPC_RUNTIME_CUDA_STATISTICS_H

#include "runtime/core/Program.h"
#include "runtime/cuda/Gpu.h"
#include <functional>

namespace mpc::cuda {

class Statistics {
public:
  /// `addressOf` a buffer of the regions states and outputs.
  Statistics(const Gpu &gpu, const Program &program,
             const std::function<CUdeviceptr(const Buffer &)> &addressOf);

  /// Device::mark(), readMarked() and release(); a mark is never 0. Tensors with isStatistic().
  uint64_t mark(CUstream stream);
  void read(uint64_t mark, const TensorInfo &tensor, void *to) const;
  void release(uint64_t mark) { slots[mark - 1].isUsed = false; }

  /// The present values: one mark serves all reads until something changes.
  void read(CUstream stream, const TensorInfo &tensor, void *to);
  /// Work that was given to the stream may change them.
  void changed();

  void write(CUstream stream, const TensorInfo &tensor, const void *from);

private:
  /// A part of a region that holds such tensors, perhaps others between them.
  struct Piece {
    Region region;
    uint64_t begin, end;
    CUdeviceptr address = 0;
    uint64_t staged = 0; ///< offset in a slot's memory
  };
  struct Slot {
    HostMemory memory;
    Event copied;
    bool isUsed = false;
  };
  const Piece &pieceOf(const TensorInfo &tensor) const;

  const Gpu &gpu;
  std::vector<Piece> pieces;
  uint64_t slotBytes = 1;
  std::vector<Slot> slots; ///< mark m is slot m - 1
  uint64_t present = 0;    ///< mark of the present values; 0: none
  HostMemory sent;         ///< values on their way to the GPU, one place after the other
  uint64_t nextPlace = 0;
};

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_STATISTICS_H
