//===- Fused.h - attention as the simulated cuDNN computes it -----------------------------===//
//
// Unlike a convolution it is not taken from the graph as a whole: each operation is executed as it
// stands there, in float, with all of its result in memory, so that a graph that says something
// else computes something else.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_DNN_FUSED_H
#define MPC_RUNTIME_SIM_DNN_FUSED_H

#include "runtime/sim/dnn/Convolution.h"
#include <functional>
#include <map>

namespace mpc::sim::dnn {

/// An operation.
struct Step {
  enum class Kind : uint8_t { multiply, pointwise, reduce, reshape };
  Kind kind = Kind::multiply;
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;
  bool isMaximum = false;  ///< of reduce; else a sum
  Tensor x, y;             ///< y: what it makes
  std::optional<Tensor> b; ///< the other operand, where there are two
  // Of relu.
  float least = 0, most = 0;
  bool isNanKept = false;
  /// A difference whose exponential is taken: cuDNN takes that as exp2(x · log2 e - b · log2 e),
  /// with one rounding less, and so do this operation and the next one.
  bool isExponent = false;
};

/// An operation graph of attention or its gradient.
struct Fused {
  std::vector<Step> steps;             ///< each behind those that make what it reads
  std::vector<Tensor> inputs, outputs; ///< in memory
  std::vector<Tensor> constants;       ///< by value
  Tensor scores;                       ///< the first product
  std::vector<int64_t> channels;       ///< of the heads: of the query, the value, …
  bool isGradient = false;
  /// The query's gradient meets in a tensor of float: tile by tile, as they come.
  bool isAccumulated = false;
};

/// Executes the steps. `addressOf`: a tensor's in memory. `values`: the constants', by number.
/// `run`: counts, for arithmetic without an order.
void execute(const Fused &fused, const Arithmetic &arithmetic,
             const std::function<void *(const Tensor &)> &addressOf,
             const std::map<int64_t, float> &values, uint64_t run);

} // namespace mpc::sim::dnn

#endif // MPC_RUNTIME_SIM_DNN_FUSED_H
