//===- Dataset.h - files bound to a program's inputs ------------------------------------===//
//
// Everything that can be wrong with data is found here, before the first step: shapes, types,
// label and index ranges, numbers of samples.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_DATA_DATASET_H
#define MPC_RUNTIME_DATA_DATASET_H

#include "runtime/data/Array.h"
#include "runtime/data/DatasetSpec.h"

namespace mpc {

/// Where the values of one program tensor come from.
struct Column {
  const TensorInfo *tensor = nullptr;
  Array data; ///< [samples, sample shape...], in the tensor's type unless `tables` is there
  /// The tensor is [outer, batch, inner] of elements; data are [sample, outer, inner].
  bool perSample = true; ///< false: an input without an axis of samples, one value for all
  int64_t outer = 1, inner = 1;
  int64_t sampleElements() const { return outer * inner; }

  /// Data of bytes that become floats: 256 values of the tensor's type per channel.
  std::vector<unsigned char> tables;
  int64_t channels = 1;
  /// Random crops and mirror images: size of the planes, and the values of black, by channel.
  int64_t height = 0, width = 0, crop = 0;
  bool flip = false;
  std::vector<unsigned char> black;
};

class Dataset {
public:
  /// Loads the files and binds them to `tensors` (indices of inputs and labels that an entry point
  /// reads). `training`: random preprocessing, and the training part of a data set that has two.
  /// `program` must live as long as the data set. Throws Error naming file, sample, shapes.
  static Dataset load(const DatasetSpec &spec, const Program &program,
                      const std::vector<uint32_t> &tensors, bool training);

  int64_t samples() const { return count; }
  const std::vector<Column> &columns() const { return all; }

private:
  std::vector<Column> all;
  int64_t count = 0;
};

/// The inputs and labels among an entry point's arguments, over all `entries` that exist.
std::vector<uint32_t> inputsOf(const Program &program, const std::vector<std::string> &entries,
                               bool withLabels = true);

/// The axis of `tensor` (an input, labels or an output) that counts samples; -1: none.
int batchAxis(const Program &program, const TensorInfo &tensor);

} // namespace mpc

#endif // MPC_RUNTIME_DATA_DATASET_H
