//===- DnnAttention.cpp - fused attention in cuDNN's words --------------------------------===//
//
// The frontend has attention as one node, which asks CUDA's runtime for the GPU; so the operations
// that it makes of that are made here.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cuda/DnnAttention.h"
#include "runtime/cuda/DnnDescriptors.h"
#include <cstdio>
#include <limits>

using namespace mpc;
using namespace mpc::cuda;
using namespace mpc::cuda::dnn;
namespace fe = cudnn_frontend;

// What every buffer of a program is a multiple of, as far as cuDNN asks.
static constexpr int64_t kAlignment = 16;
// Versions before have more exceptions than are listed here.
static constexpr int64_t kLeastVersion = 91000;
// From it on gradients are right that a graph replays, whatever the number of keys.
static constexpr int64_t kLeastVersionOfTails = 91501;
// Of the heads of a gradient, on all GPUs.
static constexpr int64_t kMostChannels = 128;
// Beside a bias scores end here, for rows that a mask leaves nothing of. Weights are exp2 of scores
// times log2 e: from the lowest f32 that is -∞, so that there is no sum, and from -1e9 it is off by
// up to 64; nor does such a row's log Σ exp hold the logarithm of the number of keys, which its
// gradient needs. Above lie scores that are not masked, and masks of -10000 and of f16's lowest
// number.
static constexpr double kLeastScore = -100000;

//===----------------------------------------------------------------------------===//
// A command as attention
//===----------------------------------------------------------------------------===//

namespace {
// How a plan's tensors are told apart; those that are never stored come behind.
enum Id : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kBias,
  kOutput,
  kLogSum,
  kOutputGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kProducts, ///< Σ output gradient · output
  kScale,
  kOne,
  kBetween
};

/// None for a type that cuDNN's attention does not know.
std::optional<cudnnDataType_t> dataType(ElementType type) {
  switch (type) {
  case ElementType::f32:
    return CUDNN_DATA_FLOAT;
  case ElementType::f16:
    return CUDNN_DATA_HALF;
  case ElementType::bf16:
    return CUDNN_DATA_BFLOAT16;
  default:
    return std::nullopt;
  }
}

bool isSmall(const Operand &operand) {
  int64_t elements = 1;
  for (int64_t extent : operand.shape) {
    if (extent < 1 || extent > std::numeric_limits<int32_t>::max() / elements)
      return false;
    elements *= extent;
  }
  return true;
}

/// Where a tile of queries and keys is not full, cuDNN's gradient for sm_90 takes weights of what
/// is behind the end: exp(-log Σ exp), infinite below -88. It does not where the keys are no
/// multiple of 64.
bool areTailsRight(const Attention &a, int64_t version) {
  if (a.keys % 64 != 0)
    return a.keys > 1 && version >= kLeastVersionOfTails;
  return a.keys % 128 == 0 && a.queries % 128 == 0;
}
} // namespace

Attention::Attention(const Command &c)
    : isGradient(c.kind == CommandKind::attention_grad), scale(static_cast<float>(c.scale)) {
  const Operand *operands = c.operands.data() + (isGradient ? 1 : 0);
  const Operand &query = operands[0], &value = operands[2];
  batch = query.shape[0];
  queries = query.shape[1];
  heads = query.shape[2];
  depth = query.shape[3];
  keys = value.shape[1];
  width = value.shape[3];
  type = *dataType(query.type);
  if (c.operands.size() > (isGradient ? 7U : 3U)) {
    const Operand &last = c.operands.back();
    bias = Bias{*dataType(last.type), {1, 1, 1, 1}};
    for (size_t i = 0; i < last.shape.size(); ++i)
      bias->extents[c.bias_dimensions[i]] = last.shape[i];
  }
}

bool dnn::canBeAsked(const Command &command, uint32_t architecture, int64_t version) {
  if (!isAttention(command.kind) || version < kLeastVersion || architecture < 80)
    return false;
  // Its dropout has other masks, and a row of -∞ throughout equal weights.
  if (command.dropout_ratio > 0 || command.safe)
    return false;
  for (const auto *list : {&command.operands, &command.results})
    for (const Operand &each : *list)
      if (!dataType(each.type) || !isSmall(each))
        return false;
  const Attention a(command);
  if (a.type == CUDNN_DATA_FLOAT || a.depth % 8 != 0 || a.width % 8 != 0)
    return false;
  // NVIDIA's frontend calls this form of the gradient, the only one that adds in one order,
  // unsupported on sm_10x.
  return !a.isGradient || (architecture / 10 != 10 && a.depth <= kMostChannels &&
                           a.width <= kMostChannels && areTailsRight(a, version));
}

static const char *typeName(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT ? "f32" : type == CUDNN_DATA_HALF ? "f16" : "bf16";
}

std::string Attention::key() const {
  auto text = [](int64_t number) { return std::to_string(number); };
  char scaleText[32];
  std::snprintf(scaleText, sizeof scaleText, "%.9g", scale);
  std::string key = std::string(isGradient ? "attention gradient, " : "attention, ") +
                    typeName(type) + " " + text(batch) + "x" + text(queries) + "x" + text(heads) +
                    "x" + text(depth) + ", " + text(keys) + " keys of " + text(width) + ", scale " +
                    scaleText;
  if (bias) {
    key += std::string(", bias ") + typeName(bias->type);
    for (size_t i = 0; i < bias->extents.size(); ++i)
      key += (i == 0 ? " " : "x") + text(bias->extents[i]);
  }
  return key;
}

std::vector<int64_t> Attention::ids() const {
  std::vector<int64_t> ids{kQuery, kKey, kValue}, results{kOutput, kLogSum, kNoTensor};
  if (isGradient) {
    ids = {kOutputGradient, kQuery, kKey, kValue, kOutput, kLogSum, kNoTensor};
    results = {kQueryGradient, kKeyGradient, kValueGradient};
  }
  if (bias)
    ids.push_back(kBias);
  ids.insert(ids.end(), results.begin(), results.end());
  return ids;
}

std::vector<Attention::Constant> Attention::constants() const {
  if (isGradient)
    return {{kScale, scale}, {kOne, 1}};
  return {{kScale, scale}};
}

Attention::Scratch Attention::scratch() const {
  if (!isGradient)
    return {};
  return {kProducts, static_cast<uint64_t>(batch * heads * queries) * sizeof(float)};
}

//===----------------------------------------------------------------------------===//
// Attention as a graph
//===----------------------------------------------------------------------------===//

AttentionSet::Part AttentionSet::make(cudnnBackendDescriptorType_t type) {
  parts.push_back(fe::make_shared_backend_pointer(type));
  return parts.back();
}

AttentionSet::Part AttentionSet::tensor(int64_t id, const Layout &layout, cudnnDataType_t type,
                                        std::optional<cudnnBackendAttributeName_t> property) {
  Part made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, layout.extents);
  set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, layout.strides);
  set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
  if (property)
    set(made, *property, CUDNN_TYPE_BOOLEAN, char(1));
  finalize(made);
  return made;
}

AttentionSet::Part AttentionSet::constant(int64_t id) {
  return tensor(id, {{1, 1, 1, 1}, {1, 1, 1, 1}}, CUDNN_DATA_FLOAT, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
}

void AttentionSet::add(cudnnBackendDescriptorType_t type,
                       const std::vector<std::pair<cudnnBackendAttributeName_t, Part>> &parts) {
  Part operation = fe::make_shared_backend_pointer(type);
  for (const auto &[name, part] : parts)
    if (part)
      set(operation, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, part->get_backend_descriptor());
  finalize(operation);
  list.push_back(operation);
}

AttentionSet::Part AttentionSet::multiply(const Part &lhs, const Part &rhs, const Part &to) {
  Part what = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set(what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  finalize(what);
  add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_MATMUL_DESC, what},
                                                  {CUDNN_ATTR_OPERATION_MATMUL_ADESC, lhs},
                                                  {CUDNN_ATTR_OPERATION_MATMUL_BDESC, rhs},
                                                  {CUDNN_ATTR_OPERATION_MATMUL_CDESC, to}});
  return to;
}

// The relu is that of kLeastScore.
AttentionSet::Part AttentionSet::pointwise(cudnnPointwiseMode_t mode, const Part &from,
                                           const Part &with, const Part &to) {
  Part what = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  set(what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_RELU_FWD) {
    set(what, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
        CUDNN_PROPAGATE_NAN);
    set(what, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, kLeastScore);
    set(what, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE,
        std::numeric_limits<double>::infinity());
    set(what, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 0.0);
  }
  finalize(what);
  add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what},
       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from},
       {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, with},
       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to}});
  return to;
}

AttentionSet::Part AttentionSet::reduce(cudnnReduceTensorOp_t how, const Part &from,
                                        const Part &to) {
  Part what = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set(what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how);
  set(what, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  finalize(what);
  add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, what},
                                                     {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, from},
                                                     {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to}});
  return to;
}

AttentionSet::Part AttentionSet::reshape(const Part &from, const Part &to) {
  add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, from}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to}});
  return to;
}

AttentionSet::Layout AttentionSet::operand(int64_t tokens, int64_t channels) const {
  return {{a.batch, a.heads, tokens, channels},
          {tokens * a.heads * channels, channels, a.heads * channels, 1}};
}

/// Without gaps, in this order.
static std::vector<int64_t> denseStrides(const std::vector<int64_t> &extents) {
  std::vector<int64_t> strides(extents.size(), 1);
  for (size_t i = extents.size() - 1; i-- > 0;)
    strides[i] = strides[i + 1] * extents[i + 1];
  return strides;
}

AttentionSet::Layout AttentionSet::scores() const {
  std::vector<int64_t> extents{a.batch, a.heads, a.queries, a.keys};
  return {extents, denseStrides(extents)};
}

AttentionSet::Layout AttentionSet::perQuery() const {
  std::vector<int64_t> extents{a.batch, a.heads, a.queries, 1};
  return {extents, denseStrides(extents)};
}

AttentionSet::Layout AttentionSet::transposed(Layout layout) {
  std::swap(layout.extents[2], layout.extents[3]);
  std::swap(layout.strides[2], layout.strides[3]);
  return layout;
}

AttentionSet::AttentionSet(cudnnHandle_t handle, const Attention &attention)
    : a(attention), next(kBetween), scale(constant(kScale)) {
  a.isGradient ? gradient() : forward();
  fe::OperationGraphBuilder_v8 builder;
  builder.setHandle(handle).setOperationGraph(0, nullptr); // it counts from -1 otherwise
  for (const Part &operation : list)
    builder.addOperation(operation);
  graph = builder.build();
}

//   s = query · keyᵀ · scale + bias, not below kLeastScore
AttentionSet::Part AttentionSet::scoresOf(const Part &query, const Part &keyTransposed) {
  Part s = multiply(query, keyTransposed, between(scores()));
  s = pointwise(CUDNN_POINTWISE_MUL, s, scale, between(scores()));
  if (!a.bias)
    return s;
  Part bias = tensor(kBias, {a.bias->extents, denseStrides(a.bias->extents)}, a.bias->type);
  s = pointwise(CUDNN_POINTWISE_ADD, s, bias, between(scores()));
  return pointwise(CUDNN_POINTWISE_RELU_FWD, s, nullptr, between(scores()));
}

//   most = max s;  e = exp(s - most);  sum = Σ e;  log Σ exp = most + log sum
//   output = (e / sum) · value
void AttentionSet::forward() {
  Part query = tensor(kQuery, operand(a.queries, a.depth), a.type);
  Part key = tensor(kKey, transposed(operand(a.keys, a.depth)), a.type);
  Part value = tensor(kValue, operand(a.keys, a.width), a.type);
  Part s = scoresOf(query, key);
  Part most = reduce(CUDNN_REDUCE_TENSOR_MAX, s, between(perQuery()));
  Part e = pointwise(CUDNN_POINTWISE_SUB, s, most, between(scores()));
  e = pointwise(CUDNN_POINTWISE_EXP, e, nullptr, between(scores()));
  Part sum = reduce(CUDNN_REDUCE_TENSOR_ADD, e, between(perQuery()));
  Part log = pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, between(perQuery()));
  pointwise(CUDNN_POINTWISE_ADD, most, log, tensor(kLogSum, perQuery(), CUDNN_DATA_FLOAT));
  Part p = pointwise(CUDNN_POINTWISE_DIV, e, sum, between(scores(), a.type));
  multiply(p, value, tensor(kOutput, operand(a.queries, a.width), a.type));
}

//   products = Σ output gradient · output (stored: a kernel of its own);  p = exp(s - log Σ exp)
//   value gradient = pᵀ · output gradient
//   ds = (output gradient · valueᵀ - products) · p · scale
//   key gradient = dsᵀ · query;  query gradient = ds · key
// The last one writes its result at once, which says that it adds in one order: through a tensor in
// f32 it would be added up there, in any.
void AttentionSet::gradient() {
  Part query = tensor(kQuery, operand(a.queries, a.depth), a.type);
  Part key = tensor(kKey, transposed(operand(a.keys, a.depth)), a.type);
  Part value = tensor(kValue, transposed(operand(a.keys, a.width)), a.type);
  Part output = tensor(kOutput, operand(a.queries, a.width), a.type);
  Part outputGradient = tensor(kOutputGradient, operand(a.queries, a.width), a.type);
  Part logSum = tensor(kLogSum, perQuery(), CUDNN_DATA_FLOAT);

  Part products =
      pointwise(CUDNN_POINTWISE_MUL, outputGradient, output, between(operand(a.queries, a.width)));
  products = reduce(CUDNN_REDUCE_TENSOR_ADD, products, between(perQuery()));
  products = pointwise(CUDNN_POINTWISE_MUL, products, constant(kOne),
                       tensor(kProducts, perQuery(), CUDNN_DATA_FLOAT));

  Part s = scoresOf(query, key);
  Part p = pointwise(CUDNN_POINTWISE_SUB, s, logSum, between(scores()));
  p = pointwise(CUDNN_POINTWISE_EXP, p, nullptr, between(scores()));
  Part turned = reshape(p, between(transposed(scores()), a.type));
  multiply(turned, outputGradient, tensor(kValueGradient, operand(a.keys, a.width), a.type));

  Part ds = multiply(outputGradient, value, between(scores()));
  ds = pointwise(CUDNN_POINTWISE_SUB, ds, products, between(scores()));
  ds = pointwise(CUDNN_POINTWISE_MUL, ds, p, between(scores()));
  ds = pointwise(CUDNN_POINTWISE_MUL, ds, scale, between(scores()));
  turned = reshape(ds, between(transposed(scores()), a.type));
  multiply(turned, query, tensor(kKeyGradient, operand(a.keys, a.depth), a.type));
  Part keyBack = reshape(key, between(operand(a.keys, a.depth), a.type));
  multiply(ds, keyBack, tensor(kQueryGradient, operand(a.queries, a.depth), a.type));
}
