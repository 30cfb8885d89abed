//===- DatasetSpec.h - what the user writes to name data -------------------------------===//
//
//   npy:NAME=FILE.npy,…,labels=FILE.npz:KEY   idx:IMAGES,LABELS   cifar10:DIR   folder:DIR
//   followed by ;scale=F ;mean=a,b,c ;std=a,b,c ;crop=P ;flip
//
// `\` takes the next character literally; a name ends at the first `=`, a file at `,` or `;`.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_DATA_DATASETSPEC_H
#define MPC_RUNTIME_DATA_DATASETSPEC_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mpc {

/// value ← (value · scale − mean[channel]) / std[channel]; then, in training only, a window of the
/// image's size from the image with `crop` pixels of black around it, and a mirror image half the
/// time.
struct Preprocessing {
  double scale = 1;
  std::vector<double> mean, std; ///< one for all channels or one per channel; empty: 0 and 1
  int64_t crop = 0;
  bool flip = false;
  bool changesValues() const { return scale != 1 || !mean.empty() || !std.empty(); }
  bool any() const { return changesValues() || crop != 0 || flip; }
};

struct DatasetSpec {
  enum class Kind { npy, idx, cifar10, folder };
  Kind kind = Kind::npy;
  /// npy: program name → file. idx: ("images", file), ("labels", file). Otherwise ("", folder).
  std::vector<std::pair<std::string, std::string>> files;
  Preprocessing preprocessing;
};

/// Throws UsageError saying what is wrong in `text`.
DatasetSpec parseDataset(const std::string &text);

/// The same from several NAME=FILE arguments (predict, grad); each may carry preprocessing.
DatasetSpec parseInputs(const std::vector<std::string> &assignments);

} // namespace mpc

#endif // MPC_RUNTIME_DATA_DATASETSPEC_H
