//===- Convolution.h - a convolution as the simulated cuDNN computes it -------------------===//
//
//   y[n, f, o] = Σ_{c, t} x[n, c, o·stride + t·dilation − padding] · w[f, c, t]
//
// and its gradients, in float, whatever the types in memory, with one rounding at the end.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_DNN_CONVOLUTION_H
#define MPC_RUNTIME_SIM_DNN_CONVOLUTION_H

#include "runtime/sim/library/Numbers.h"
#include <cudnn.h>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace mpc::sim::dnn {

/// Extents and strides are of [N, C, spatial...], in elements; of a filter [K, C/groups,
/// spatial...].
struct Tensor {
  int64_t uid = 0;
  cudnnDataType_t dataType{};
  std::vector<int64_t> extents, strides;
  int64_t alignment = 0; ///< of its address, in bytes
  bool isVirtual = false;

  bool operator==(const Tensor &) const = default;
  int64_t elements() const;
  /// From the first element to behind the last one.
  int64_t span() const;
};

/// None for a type that is not simulated.
std::optional<Number> numberOf(cudnnDataType_t type);
/// Of a tensor whose type is simulated.
Number numberOf(const Tensor &tensor);
int64_t bytesOf(const Tensor &tensor);

enum class Kind : uint8_t { forward, backwardData, backwardFilter };

struct Fused; // Fused.h

/// What an operation graph says: everything but addresses. Of attention it is `fused`; else the
/// result is y, x (its gradient) or w (its gradient), or what the operations behind the convolution
/// make of it.
struct Problem {
  std::shared_ptr<const Fused> fused;
  Kind kind = Kind::forward;
  Tensor x, w, y;
  std::vector<int64_t> prePadding, postPadding, strides, dilations;
  int64_t groups = 1;
  std::optional<Tensor> bias; ///< [1, K, 1...]
  bool hasRelu = false;
  bool isNanKept = false;                                  ///< by relu, which else makes it 0
  float reluMost = std::numeric_limits<float>::infinity(); ///< what is above it becomes it
  bool hasIdentity = false;                                ///< changes the type alone
  Tensor result;

  /// What is read.
  std::vector<const Tensor *> operands() const;
  /// What is written.
  std::vector<const Tensor *> results() const;
};

/// How an engine computes.
struct Arithmetic {
  int operandBits = 23;      ///< of an operand's fraction, the rest is cut off
  int64_t partDepth = 512;   ///< how many products are added up in float
  Number part = Number::f32; ///< that these sums and their sum are rounded to
  bool isUnordered = false;  ///< they are added in another order in every run
};

/// Addresses; of the result's role among x, w and y none is needed.
struct Addresses {
  const void *x = nullptr, *w = nullptr, *y = nullptr, *bias = nullptr;
  void *result = nullptr;
};

/// `run`: counts, for arithmetic without an order.
void convolve(const Problem &problem, const Arithmetic &arithmetic, const Addresses &addresses,
              uint64_t run);

} // namespace mpc::sim::dnn

#endif // MPC_RUNTIME_SIM_DNN_CONVOLUTION_H
