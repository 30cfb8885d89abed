//===- DnnGraph.cpp - a convolution in cuDNN's words --------------------------------------===//

#include "runtime/cuda/DnnGraph.h"
#include "runtime/cuda/DnnDescriptors.h"
#include <algorithm>
#include <limits>

using namespace mpc;
using namespace mpc::cuda;
using namespace mpc::cuda::dnn;
namespace fe = cudnn_frontend;

// What every buffer of a program is a multiple of, as far as cuDNN asks.
static constexpr int64_t kAlignment = 16;

//===----------------------------------------------------------------------------===//
// A command as a convolution
//===----------------------------------------------------------------------------===//

bool dnn::isConvolution(const Command &command) {
  return command.kind == CommandKind::conv || command.kind == CommandKind::conv_backward_data ||
         command.kind == CommandKind::conv_backward_weights;
}

namespace {
/// None for a type that no convolution here is computed in.
std::optional<fe::DataType_t> dataType(ElementType type) {
  switch (type) {
  case ElementType::f32:
    return fe::DataType_t::FLOAT;
  case ElementType::f16:
    return fe::DataType_t::HALF;
  case ElementType::bf16:
    return fe::DataType_t::BFLOAT16;
  default:
    return std::nullopt;
  }
}

/// The operand whose extents are these, stored in this order or with the channels last.
Dense dense(Extents extents, bool channelsLast, ElementType type) {
  if (extents.size() == 3) // a line is an image of one row
    extents.insert(extents.begin() + 2, 1);
  Extents strides(extents.size());
  int64_t next = 1;
  auto take = [&](size_t dimension) {
    strides[dimension] = next;
    next *= extents[dimension];
  };
  if (channelsLast)
    take(1);
  for (size_t dimension = extents.size(); dimension-- > 2;)
    take(dimension);
  if (!channelsLast)
    take(1);
  take(0);
  return {extents, strides, *dataType(type)};
}

/// [N, spatial..., C] → [N, C, spatial...]
Extents channelsSecond(Extents shape, bool channelsLast) {
  if (channelsLast)
    std::rotate(shape.begin() + 1, shape.end() - 1, shape.end());
  return shape;
}
} // namespace

bool dnn::leavesGradientInScratch(const Command &command) {
  return command.kind == CommandKind::conv_backward_weights &&
         std::any_of(command.functions.begin(), command.functions.end(),
                     [](const GpuFunction &f) { return f.after_library; });
}

/// Of a filter as it is stored, [M, C, taps...]: no matter where the channels come.
static bool isInBothOrders(const Extents &filter) {
  return filter[1] == 1 ||
         std::all_of(filter.begin() + 2, filter.end(), [](int64_t extent) { return extent == 1; });
}

Convolution::Convolution(const Command &c)
    : kind(c.kind), operandType(*dataType(c.lhs.type)), resultType(*dataType(c.result.type)) {
  const Operand &imageOperand = kind == CommandKind::conv_backward_data ? c.result : c.lhs,
                &filterOperand = kind == CommandKind::conv_backward_weights ? c.result : c.rhs,
                &outputOperand = kind == CommandKind::conv                 ? c.result
                                 : kind == CommandKind::conv_backward_data ? c.lhs
                                                                           : c.rhs;
  // Beside channels that come last cuDNN wants a filter's last, too. One that it reads it reorders
  // itself; what it writes is put in order behind it.
  bool filterLast =
      c.channels_last && (isInBothOrders(filterOperand.shape) || leavesGradientInScratch(c));
  auto activation = [&](const Operand &operand) {
    return dense(channelsSecond(operand.shape, c.channels_last), c.channels_last, operand.type);
  };
  image = activation(imageOperand);
  filter = dense(filterOperand.shape, filterLast, filterOperand.type);
  output = activation(outputOperand);
  if (c.bias.present) {
    bias = dataType(c.bias.type);
    epilogue.push_back(CUDNN_POINTWISE_ADD);
  }
  if (c.relu)
    epilogue.push_back(CUDNN_POINTWISE_RELU_FWD);
  if (epilogue.empty() && resultType != operandType)
    epilogue.push_back(CUDNN_POINTWISE_IDENTITY);
  size_t dimensions = c.strides.size();
  prePads.assign(c.pads.begin(), c.pads.begin() + dimensions);
  postPads.assign(c.pads.begin() + dimensions, c.pads.end());
  strides = c.strides;
  dilations = c.dilations;
  if (dimensions == 1) {
    prePads.insert(prePads.begin(), 0);
    postPads.insert(postPads.begin(), 0);
    strides.insert(strides.begin(), 1);
    dilations.insert(dilations.begin(), 1);
  }
}

bool dnn::canBeAsked(const Command &command) {
  for (const Operand *operand : {&command.lhs, &command.rhs, &command.result}) {
    if (!dataType(operand->type))
      return false;
    for (int64_t extent : operand->shape)
      if (extent < 1 || extent > std::numeric_limits<int32_t>::max())
        return false;
  }
  size_t dimensions = command.strides.size();
  return dimensions >= 1 && dimensions <= 3 && command.lhs.type == command.rhs.type &&
         (!command.bias.present || dataType(command.bias.type));
}

static const char *typeName(fe::DataType_t type) {
  return type == fe::DataType_t::FLOAT ? "f32" : type == fe::DataType_t::HALF ? "f16" : "bf16";
}

static std::string textOf(const Extents &list) {
  std::string text;
  for (int64_t each : list)
    text += (text.empty() ? "" : "x") + std::to_string(each);
  return text;
}

/// "f16 4x16x28x28 by 12544x784x28x1": extents and strides.
static std::string textOf(const Dense &tensor) {
  return std::string(typeName(tensor.type)) + " " + textOf(tensor.extents) + " by " +
         textOf(tensor.strides);
}

std::string Convolution::key() const {
  std::string text = kind == CommandKind::conv                 ? "convolution"
                     : kind == CommandKind::conv_backward_data ? "data gradient"
                                                               : "filter gradient";
  text += ", image " + textOf(image) + ", filter " + textOf(filter) + ", output " + textOf(output) +
          ", pads " + textOf(prePads) + " and " + textOf(postPads) + ", strides " +
          textOf(strides) + ", dilations " + textOf(dilations);
  if (bias)
    text += std::string(", bias ") + typeName(*bias);
  if (!epilogue.empty() && epilogue.back() == CUDNN_POINTWISE_RELU_FWD)
    text += ", relu";
  return text;
}

//===----------------------------------------------------------------------------===//
// A convolution as a graph
//===----------------------------------------------------------------------------===//

namespace {
// How a plan's tensors are told apart.
enum Id : int64_t { kImage = 1, kFilter, kOutput, kBias, kResult, kBetween };

fe::Tensor_v8 tensor(int64_t id, const Dense &like, fe::DataType_t type, bool isVirtual) {
  auto rank = static_cast<int64_t>(like.extents.size());
  return fe::TensorBuilder_v8()
      .setDim(rank, like.extents.data())
      .setStride(rank, like.strides.data())
      .setId(id)
      .setAlignment(kAlignment)
      .setDataType(type)
      .setVirtual(isVirtual)
      .build();
}
} // namespace

std::vector<int64_t> Convolution::ids() const {
  auto result = [&](Id sums) { return epilogue.empty() ? sums : kResult; };
  if (kind == CommandKind::conv_backward_data)
    return {kOutput, kFilter, result(kImage)};
  if (kind == CommandKind::conv_backward_weights)
    return {kImage, kOutput, result(kFilter)};
  if (bias)
    return {kImage, kFilter, kBias, result(kOutput)};
  return {kImage, kFilter, result(kOutput)};
}

//   image, filter → sums, and from them in f32, one step after the other, to the result
OperationSet::OperationSet(cudnnHandle_t handle, const Convolution &c) {
  auto part = [&](Id id, const Dense &like) {
    bool isBetween = &like == &c.result() && !c.epilogue.empty();
    return tensor(id, like, isBetween ? fe::DataType_t::FLOAT : like.type, isBetween);
  };
  fe::Tensor_v8 image = part(kImage, c.image), filter = part(kFilter, c.filter),
                output = part(kOutput, c.output);
  convolve(c, image, filter, output);
  append(c, c.kind == CommandKind::conv                 ? std::move(output)
            : c.kind == CommandKind::conv_backward_data ? std::move(image)
                                                        : std::move(filter));
  fe::OperationGraphBuilder_v8 builder;
  builder.setHandle(handle).setOperationGraph(0, nullptr); // it counts from -1 otherwise
  for (const fe::ManagedOpaqueDescriptor &operation : list)
    builder.addOperation(operation);
  graph = builder.build();
}

void OperationSet::append(const Convolution &c, fe::Tensor_v8 sums) {
  fe::Tensor_v8 value = std::move(sums);
  for (size_t i = 0; i < c.epilogue.size(); ++i) {
    bool isLast = i + 1 == c.epilogue.size();
    fe::Tensor_v8 next = tensor(isLast ? kResult : kBetween, c.result(),
                                isLast ? c.resultType : fe::DataType_t::FLOAT, !isLast);
    if (c.epilogue[i] == CUDNN_POINTWISE_ADD) {
      Extents extents(c.output.extents.size(), 1);
      extents[1] = c.output.extents[1];
      Dense perFeature{extents, Extents(extents.size(), extents[1]), *c.bias};
      perFeature.strides[1] = 1;
      fe::Tensor_v8 bias = tensor(kBias, perFeature, *c.bias, /*isVirtual=*/false);
      pointwise(c.epilogue[i], value, &bias, next);
    } else {
      pointwise(c.epilogue[i], value, nullptr, next);
    }
    value = std::move(next);
  }
}

void OperationSet::convolve(const Convolution &c, const fe::Tensor_v8 &image,
                            const fe::Tensor_v8 &filter, const fe::Tensor_v8 &output) {
  auto dimensions = static_cast<int64_t>(c.strides.size());
  fe::ConvDesc_v8 description = fe::ConvDescBuilder_v8()
                                    .setComputeType(fe::DataType_t::FLOAT)
                                    .setMathMode(fe::ConvolutionMode_t::CROSS_CORRELATION)
                                    .setSpatialDimCount(dimensions)
                                    .setSpatialStride(dimensions, c.strides.data())
                                    .setPrePadding(dimensions, c.prePads.data())
                                    .setPostPadding(dimensions, c.postPads.data())
                                    .setDilation(dimensions, c.dilations.data())
                                    .build();
  using Type = fe::DescriptorType_t;
  fe::OperationBuilder_v8 builder(c.kind == CommandKind::conv
                                      ? Type::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                                  : c.kind == CommandKind::conv_backward_data
                                      ? Type::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                                      : Type::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  builder.setcDesc(description).setAlpha(1.0f).setBeta(0.0f);
  if (c.kind == CommandKind::conv)
    builder.setxDesc(image).setwDesc(filter).setyDesc(output);
  else if (c.kind == CommandKind::conv_backward_data)
    builder.setdxDesc(image).setwDesc(filter).setdyDesc(output);
  else
    builder.setxDesc(image).setdwDesc(filter).setdyDesc(output);
  convolution.emplace(builder.build());
  list.push_back(convolution->get_desc());
}

// Not by the frontend: of the bound of its relu, infinite as it may be, it makes the largest
// number.
void OperationSet::pointwise(cudnnPointwiseMode_t mode, const fe::Tensor_v8 &from,
                             const fe::Tensor_v8 *with, const fe::Tensor_v8 &to) {
  auto what = fe::make_shared_backend_pointer(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  set(what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_RELU_FWD) {
    set(what, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
        CUDNN_PROPAGATE_NAN);
    set(what, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 0.0);
    set(what, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE,
        std::numeric_limits<double>::infinity());
    set(what, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 0.0);
  }
  finalize(what);
  auto operation = fe::make_shared_backend_pointer(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  auto refer = [&](cudnnBackendAttributeName_t name, const fe::ManagedOpaqueDescriptor &part) {
    set(operation, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, part->get_backend_descriptor());
    parts.push_back(part);
  };
  refer(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
  refer(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from.get_desc());
  if (with)
    refer(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, with->get_desc());
  refer(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.get_desc());
  finalize(operation);
  list.push_back(operation);
}
