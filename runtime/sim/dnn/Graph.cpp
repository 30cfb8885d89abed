//===- Graph.cpp - the simulated cuDNN: the convolution that a graph says -----------------===//
//
// One convolution; a forward one may be followed by a bias, a relu, or both in this order, each one
// by an identity, which changes the type. What goes from one operation to the next is virtual, of
// float, and has one reader.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/dnn/Objects.h"
#include <limits>

namespace mpc::sim::dnn {

namespace {
constexpr const char *kName = "cudnnBackendFinalize: an operation graph";

struct ConvolutionNames {
  cudnnBackendDescriptorType_t type;
  Kind kind;
  cudnnBackendAttributeName_t convolution, x, w, y;
};
constexpr ConvolutionNames kConvolutions[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, Kind::forward,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, Kind::backwardData,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, Kind::backwardFilter,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};

const ConvolutionNames *findConvolution(const Descriptor &operation) {
  for (const ConvolutionNames &each : kConvolutions)
    if (each.type == operation.type)
      return &each;
  return nullptr;
}

using Operations = std::vector<std::shared_ptr<const Descriptor>>;

/// The pointwise operations that read a tensor.
std::vector<const Descriptor *> readers(const Operations &operations, int64_t uid) {
  std::vector<const Descriptor *> found;
  for (const std::shared_ptr<const Descriptor> &each : operations)
    for (auto name : {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC})
      if (each->has(name) && tensorOf(*each->descriptor(name)).uid == uid)
        found.push_back(each.get());
  return found;
}

cudnnStatus_t refusePattern(const char *why) {
  return refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "%s: %s", kName, why);
}

cudnnStatus_t appendBias(const Descriptor &operation, Problem &p) {
  p.bias = tensorOf(*operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
  std::vector<int64_t> expected(p.y.extents.size(), 1);
  expected[1] = p.y.extents[1];
  if (p.bias->extents != expected || p.bias->isVirtual)
    return refusePattern("what is added is no bias of [1, K, 1...]");
  return CUDNN_STATUS_SUCCESS;
}

/// A pointwise operation whose x is the result so far.
cudnnStatus_t append(const Descriptor &operation, Problem &p) {
  const Descriptor &pointwise = *operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  auto mode = pointwise.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  if (mode != CUDNN_POINTWISE_ADD && mode != CUDNN_POINTWISE_RELU_FWD &&
      mode != CUDNN_POINTWISE_IDENTITY)
    return refusePattern("behind a convolution there are sums, max(x, 0) and x itself alone");
  if (pointwise.one<double>(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP) != 0)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "%s: a bound of relu other than 0 is not simulated",
                  kName);
  if (tensorOf(*operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) != p.result)
    return refusePattern("an operation's x is not what the one before it makes");
  if (p.hasRelu || p.hasIdentity || (mode == CUDNN_POINTWISE_ADD && p.bias))
    return refusePattern("the order is bias, relu, or identity in the place of these");
  if (mode == CUDNN_POINTWISE_IDENTITY ? p.bias.has_value() : p.kind != Kind::forward)
    return refusePattern("bias and relu follow forward convolutions, identities convolutions");
  if (mode == CUDNN_POINTWISE_ADD) {
    if (cudnnStatus_t status = appendBias(operation, p))
      return status;
  } else if (mode == CUDNN_POINTWISE_IDENTITY) {
    p.hasIdentity = true;
  } else {
    p.hasRelu = true;
    p.isNanKept =
        pointwise.one<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
                                             CUDNN_NOT_PROPAGATE_NAN) == CUDNN_PROPAGATE_NAN;
    // Where nothing is said it is the largest number.
    constexpr double kMost = std::numeric_limits<float>::max();
    auto most = pointwise.one<double>(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, kMost);
    p.reluMost = most > kMost ? std::numeric_limits<float>::infinity() : static_cast<float>(most);
  }
  p.result = tensorOf(*operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t checkTensors(const Problem &p) {
  std::vector<const Tensor *> all = p.operands();
  all.push_back(&p.result);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->isVirtual)
      return refuse(CUDNN_STATUS_BAD_PARAM,
                    "%s: tensor %lld is virtual, but no operation makes it, or none reads it",
                    kName, static_cast<long long>(all[i]->uid));
    for (size_t j = 0; j < i; ++j)
      if (all[i]->uid == all[j]->uid)
        return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "%s: two tensors are number %lld",
                      kName, static_cast<long long>(all[i]->uid));
  }
  return CUDNN_STATUS_SUCCESS;
}
} // namespace

Tensor tensorOf(const Descriptor &descriptor) {
  return {descriptor.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
          descriptor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
          descriptor.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
          descriptor.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES),
          descriptor.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
          descriptor.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)};
}

cudnnStatus_t readConvolution(const Descriptor &operation, Problem &p) {
  const ConvolutionNames *names = findConvolution(operation);
  const Descriptor &convolution = *operation.descriptor(names->convolution);
  p.kind = names->kind;
  p.x = tensorOf(*operation.descriptor(names->x));
  p.w = tensorOf(*operation.descriptor(names->w));
  p.y = tensorOf(*operation.descriptor(names->y));
  p.prePadding = convolution.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  p.postPadding = convolution.all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  p.strides = convolution.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  p.dilations = convolution.all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  size_t dimensions = p.strides.size() + 2;
  if (p.x.extents.size() != dimensions || p.w.extents.size() != dimensions ||
      p.y.extents.size() != dimensions)
    return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                  "cudnnBackendFinalize: a convolution of %zu spatial dimensions has tensors of "
                  "%zu, %zu and %zu dimensions",
                  p.strides.size(), p.x.extents.size(), p.w.extents.size(), p.y.extents.size());
  p.groups = p.x.extents[1] / p.w.extents[1];
  bool fits = p.x.extents[0] == p.y.extents[0] && p.y.extents[1] == p.w.extents[0] &&
              p.x.extents[1] == p.groups * p.w.extents[1] && p.w.extents[0] % p.groups == 0;
  for (size_t d = 0; fits && d < p.strides.size(); ++d) {
    int64_t filter = p.dilations[d] * (p.w.extents[d + 2] - 1) + 1;
    int64_t room = p.x.extents[d + 2] + p.prePadding[d] + p.postPadding[d] - filter;
    fits = room >= 0 && p.y.extents[d + 2] == room / p.strides[d] + 1;
  }
  if (!fits)
    return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                  "cudnnBackendFinalize: a convolution's tensors do not fit each other");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t readGraph(const Descriptor &graph, Problem &p) {
  const Operations &operations = graph.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors;
  for (const std::shared_ptr<const Descriptor> &each : operations)
    if (each->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
      auto fused = std::make_shared<Fused>();
      p.fused = fused;
      return readFused(graph, *fused);
    }
  const Descriptor *convolution = nullptr;
  for (const std::shared_ptr<const Descriptor> &each : operations) {
    if (!findConvolution(*each))
      continue;
    if (convolution)
      return refusePattern("there are two convolutions");
    convolution = each.get();
  }
  if (!convolution)
    return refusePattern("there is no convolution");
  if (cudnnStatus_t status = readConvolution(*convolution, p))
    return status;
  p.result = p.kind == Kind::forward ? p.y : p.kind == Kind::backwardData ? p.x : p.w;
  size_t used = 1;
  while (p.result.isVirtual) {
    if (p.result.dataType != CUDNN_DATA_FLOAT)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "%s: a virtual tensor is not of float",
                    kName);
    std::vector<const Descriptor *> next = readers(operations, p.result.uid);
    if (next.size() > 1)
      return refusePattern("two operations read a virtual tensor");
    if (next.empty())
      break; // which checkTensors() refuses
    if (cudnnStatus_t status = append(*next.front(), p))
      return status;
    ++used;
  }
  if (used != operations.size())
    return refusePattern("an operation does not belong to the convolution");
  return checkTensors(p);
}

} // namespace mpc::sim::dnn
