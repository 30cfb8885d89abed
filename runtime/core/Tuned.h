//===- Tuned.h - what was found fastest, and where ---------------------------------===//
//
// A GPU's products, convolutions and attention can be executed in several ways, whose results
// differ in the order of additions. Which one was found fastest goes into the checkpoint, so that a
// resumed run has the same bits; it holds where it was found, and nowhere else.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CORE_TUNED_H
#define MPC_RUNTIME_CORE_TUNED_H

#include <compare>
#include <cstdint>
#include <map>
#include <string>

namespace mpc {

/// Where a choice was made.
struct TunedFor {
  std::string gpu;     ///< its name
  int64_t driver = 0;  ///< its driver's version of CUDA: 1000 · major + 10 · minor
  std::string library; ///< "cuBLASLt"
  int64_t version = 0; ///< the library's: 10000 · major + 100 · minor + patch

  auto operator<=>(const TunedFor &) const = default;

  /// "NVIDIA H100 PCIe with a driver of CUDA 12.9 and cuBLASLt 12.9.1"
  std::string text() const;
};

/// By what is computed (shapes, types, layouts): how.
using TunedWays = std::map<std::string, std::string>;
using TunedChoices = std::map<TunedFor, TunedWays>;

} // namespace mpc

#endif // MPC_RUNTIME_CORE_TUNED_H
