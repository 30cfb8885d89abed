//===- DnnGraph.h - a convolution in cuDNN's words ----------------------------------------===//
//
// A command as a convolution of cuDNN's, and as an operation graph of it, through cudnn-frontend,
// whose headers only the files named Dnn… include.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_DNNGRAPH_H
#define MPC_RUNTIME_CUDA_DNNGRAPH_H

#include "runtime/core/Program.h"
#include <optional>
#include <string>
#include <vector>

#include <cudnn.h>
#include <cudnn_frontend_ConvDesc.h>
#include <cudnn_frontend_Operation.h>
#include <cudnn_frontend_OperationGraph.h>
#include <cudnn_frontend_Tensor.h>

namespace mpc::cuda::dnn {

using Extents = std::vector<int64_t>;

/// A dense tensor as cuDNN counts: [N, C, spatial...] or [M, C, taps...], whatever the layout is.
struct Dense {
  Extents extents, strides;
  cudnn_frontend::DataType_t type;
};

bool isConvolution(const Command &command);
/// False for what cuDNN cannot be asked.
bool canBeAsked(const Command &command);
/// A function takes the filter's gradient from the scratch, where it lies in cuDNN's order.
bool leavesGradientInScratch(const Command &command);

/// A command that canBeAsked(), as the convolution image ∗ filter → output, one of which is the
/// result.
struct Convolution {
  explicit Convolution(const Command &command);

  CommandKind kind;
  Dense image, filter, output;
  cudnn_frontend::DataType_t operandType, resultType;
  std::optional<cudnn_frontend::DataType_t> bias;
  /// What makes the result of the sum: + bias, relu, or one rounding alone.
  std::vector<cudnnPointwiseMode_t> epilogue;
  Extents prePads, postPads, strides, dilations;

  const Dense &result() const {
    return kind == CommandKind::conv                 ? output
           : kind == CommandKind::conv_backward_data ? image
                                                     : filter;
  }
  /// All that a plan depends on, to be read by people, too.
  std::string key() const;
  /// The tensors' numbers in the operation graph: of lhs, rhs, bias where there is one, result.
  std::vector<int64_t> ids() const;
};

/// The operations of a convolution, with what they hold on to. Throws cudnnException.
class OperationSet {
public:
  OperationSet(cudnnHandle_t handle, const Convolution &convolution);
  cudnn_frontend::OperationGraph_v8 &operations() { return *graph; }

private:
  void convolve(const Convolution &c, const cudnn_frontend::Tensor_v8 &image,
                const cudnn_frontend::Tensor_v8 &filter, const cudnn_frontend::Tensor_v8 &output);
  /// What the epilogue makes of the sums.
  void append(const Convolution &c, cudnn_frontend::Tensor_v8 sums);
  /// to = mode(from, with), `with` being for the sum alone.
  void pointwise(cudnnPointwiseMode_t mode, const cudnn_frontend::Tensor_v8 &from,
                 const cudnn_frontend::Tensor_v8 *with, const cudnn_frontend::Tensor_v8 &to);

  std::optional<cudnn_frontend::Operation_v8> convolution;
  /// Operations, and what those refer to.
  std::vector<cudnn_frontend::ManagedOpaqueDescriptor> list, parts;
  std::optional<cudnn_frontend::OperationGraph_v8> graph;
};

} // namespace mpc::cuda::dnn

#endif // MPC_RUNTIME_CUDA_DNNGRAPH_H
