//===- DnnAttention.h - fused attention in cuDNN's words ----------------------------------===//
//
// A command as attention of cuDNN's, and as an operation graph of it: the one pattern that its
// fused engines know, which never stores the scores. Sums are in f32, and the results are rounded
// once; the weights and the scores' gradients are rounded to the operands' type before they are
// multiplied, as by the generated kernels.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_DNNATTENTION_H
#define MPC_RUNTIME_CUDA_DNNATTENTION_H

#include "runtime/core/Program.h"
#include <optional>
#include <string>
#include <vector>

#include <cudnn.h>
#include <cudnn_frontend_OperationGraph.h>

namespace mpc::cuda::dnn {

inline constexpr int64_t kNoTensor = 0;

/// A command that canBeAsked().
struct Attention {
  explicit Attention(const Command &command);

  bool isGradient;
  int64_t batch, queries, keys, heads, depth, width;
  cudnnDataType_t type;
  float scale;
  struct Bias {
    cudnnDataType_t type;
    std::vector<int64_t> extents; ///< of [batch, heads, queries, keys]; 1 where it is repeated
  };
  std::optional<Bias> bias;

  /// All that a plan depends on, to be read by people, too.
  std::string key() const;
  /// The tensors' numbers in the operation graph, in the order of Command::buffers; kNoTensor for
  /// what is none of the graph's.
  std::vector<int64_t> ids() const;
  /// Those that an execution is given the addresses of on the host.
  struct Constant {
    int64_t id;
    float value;
  };
  std::vector<Constant> constants() const;
  /// That lies in the workspace, as it is no operand: of no bytes where there is none.
  struct Scratch {
    int64_t id = 0;
    uint64_t bytes = 0;
  };
  Scratch scratch() const;
};

/// False for what cuDNN cannot be asked, and for what it would compute otherwise: of f32, gradients
/// in another order in every run, shapes that it is known to fail on. `architecture`: 10 · major +
/// minor; `version` as cudnnGetVersion() counts.
bool canBeAsked(const Command &command, uint32_t architecture, int64_t version);

/// The operations of attention, with what they hold on to. Throws cudnnException.
class AttentionSet {
public:
  AttentionSet(cudnnHandle_t handle, const Attention &attention);
  cudnn_frontend::OperationGraph_v8 &operations() { return *graph; }

private:
  using Part = cudnn_frontend::ManagedOpaqueDescriptor;
  struct Layout {
    std::vector<int64_t> extents, strides;
  };

  Part make(cudnnBackendDescriptorType_t type);
  Part tensor(int64_t id, const Layout &layout, cudnnDataType_t type,
              std::optional<cudnnBackendAttributeName_t> property = std::nullopt);
  /// A tensor that is never stored.
  Part between(const Layout &layout, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return tensor(next++, layout, type, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  }
  Part constant(int64_t id);
  void add(cudnnBackendDescriptorType_t type,
           const std::vector<std::pair<cudnnBackendAttributeName_t, Part>> &parts);
  // Each returns what it makes, which is the last argument.
  Part multiply(const Part &lhs, const Part &rhs, const Part &to);
  Part pointwise(cudnnPointwiseMode_t mode, const Part &from, const Part &with, const Part &to);
  Part reduce(cudnnReduceTensorOp_t how, const Part &from, const Part &to);
  Part reshape(const Part &from, const Part &to);

  /// [batch, heads, tokens, channels] of a tensor that has the heads behind the tokens.
  Layout operand(int64_t tokens, int64_t channels) const;
  Layout scores() const, perQuery() const;
  static Layout transposed(Layout layout);

  Part scoresOf(const Part &query, const Part &keyTransposed);
  void forward();
  void gradient();

  const Attention &a;
  std::vector<Part> parts, list; ///< list: the operations
  int64_t next;                  ///< a number that no tensor has
  Part scale;
  std::optional<cudnn_frontend::OperationGraph_v8> graph;
};

} // namespace mpc::cuda::dnn

#endif // MPC_RUNTIME_CUDA_DNNATTENTION_H
