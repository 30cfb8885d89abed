//===- Batcher.h - samples into a program's inputs ---------------------------------------===//

#ifndef MPC_RUNTIME_DATA_BATCHER_H
#define MPC_RUNTIME_DATA_BATCHER_H

#include "runtime/core/Device.h"
#include "runtime/data/Dataset.h"

namespace mpc {

/// Writes batches of one data set to a device. Allocates at construction only.
class Batcher {
public:
  /// All three must outlive the batcher.
  Batcher(const Program &program, const Dataset &dataset, Device &device);

  /// Inputs, labels and the number of samples of one batch: samples order[0 … count-1], 1 ≤ count
  /// ≤ batch. The places behind are filled with copies of the first: any valid sample does, its
  /// weight is 0. `seed` and `epoch` steer random crops and mirror images.
  void fill(const int64_t *order, int64_t count, uint64_t seed, uint64_t epoch);

private:
  void fillColumn(const Column &column, unsigned char *staging, const int64_t *order, int64_t count,
                  uint64_t seed, uint64_t epoch);
  /// One sample in the tensor's type, contiguous.
  const unsigned char *sample(const Column &column, int64_t index, uint64_t seed, uint64_t epoch);
  void augment(const Column &column, const unsigned char *from, unsigned char *to, int64_t index,
               uint64_t seed, uint64_t epoch);

  const Program &program;
  const Dataset &dataset;
  Device &device;
  const TensorInfo *samples = nullptr;
  std::vector<std::vector<unsigned char>> staging; ///< per column
  std::vector<unsigned char> decoded, augmented;   ///< one sample
};

} // namespace mpc

#endif // MPC_RUNTIME_DATA_BATCHER_H
