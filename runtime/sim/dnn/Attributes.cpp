//===- Attributes.cpp - the simulated cuDNN: descriptors and their attributes -------------===//
//
// The manual's tables of attributes, as far as convolutions and attention need them: what they
// belong to, their type, how many elements they have.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/dnn/Objects.h"
#include <algorithm>
#include <cinttypes>
#include <span>

using namespace mpc::sim::dnn;

namespace {
enum class Use : uint8_t { required, optional, computed };

struct Rule {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  Use use = Use::required;
  int64_t most = 1; ///< elements
  /// What a descriptor has to be; unused for other elements.
  cudnnBackendDescriptorType_t element = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
};

constexpr cudnnBackendAttributeType_t kDescriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;
constexpr int64_t kMostSpatial = CUDNN_DIM_MAX - 2, kMany = 64;

constexpr Rule kTensor[] = {
    {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, Use::required, CUDNN_DIM_MAX},
    {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, Use::required, CUDNN_DIM_MAX},
    {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
    {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
    {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, Use::optional},
    {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, Use::optional},
    {CUDNN_ATTR_TENSOR_VECTOR_COUNT, CUDNN_TYPE_INT64, Use::optional},
    {CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, CUDNN_TYPE_INT64, Use::optional},
    {CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE, Use::optional}};

constexpr Rule kConvolution[] = {
    {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE},
    {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64},
    {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, Use::required, kMostSpatial},
    {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, Use::required, kMostSpatial},
    {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, Use::required, kMostSpatial},
    {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, Use::required, kMostSpatial}};

constexpr Rule kPointwise[] = {
    {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
    {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, Use::optional},
    {CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, Use::optional},
    {CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, Use::optional},
    {CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, Use::optional}};

constexpr Rule kForward[] = {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kDescriptor,
                              Use::required, 1, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, kDescriptor},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kDescriptor},
                             {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, kDescriptor}};

constexpr Rule kBackwardData[] = {
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, kDescriptor, Use::required, 1,
     CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, kDescriptor},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, kDescriptor},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, kDescriptor}};

constexpr Rule kBackwardFilter[] = {
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, kDescriptor, Use::required, 1,
     CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, kDescriptor},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, kDescriptor},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, kDescriptor}};

constexpr Rule kPointwiseOperation[] = {
    {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kDescriptor, Use::required, 1,
     CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kDescriptor},
    {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kDescriptor, Use::optional},
    {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kDescriptor},
    {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, Use::optional},
    {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, Use::optional}};

constexpr Rule kMatmul[] = {{CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
                            {CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, Use::optional}};

constexpr Rule kMatmulOperation[] = {{CUDNN_ATTR_OPERATION_MATMUL_DESC, kDescriptor, Use::required,
                                      1, CUDNN_BACKEND_MATMUL_DESCRIPTOR},
                                     {CUDNN_ATTR_OPERATION_MATMUL_ADESC, kDescriptor},
                                     {CUDNN_ATTR_OPERATION_MATMUL_BDESC, kDescriptor},
                                     {CUDNN_ATTR_OPERATION_MATMUL_CDESC, kDescriptor}};

constexpr Rule kReduction[] = {{CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
                               {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE}};

constexpr Rule kReductionOperation[] = {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, kDescriptor,
                                         Use::required, 1, CUDNN_BACKEND_REDUCTION_DESCRIPTOR},
                                        {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, kDescriptor},
                                        {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, kDescriptor}};

constexpr Rule kReshapeOperation[] = {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kDescriptor},
                                      {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, kDescriptor}};

constexpr Rule kGraph[] = {
    {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE},
    {CUDNN_ATTR_OPERATIONGRAPH_OPS, kDescriptor, Use::required, kMany},
    {CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, Use::computed}};

constexpr Rule kHeuristics[] = {
    {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kDescriptor, Use::required, 1,
     CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
    {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
    {CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, CUDNN_TYPE_INT32, Use::optional},
    {CUDNN_ATTR_ENGINEHEUR_RESULTS, kDescriptor, Use::computed, kMany,
     CUDNN_BACKEND_ENGINECFG_DESCRIPTOR}};

constexpr Rule kEngine[] = {
    {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, kDescriptor, Use::required, 1,
     CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
    {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64},
    {CUDNN_ATTR_ENGINE_SM_COUNT_TARGET, CUDNN_TYPE_INT32, Use::optional},
    {CUDNN_ATTR_ENGINE_KNOB_INFO, kDescriptor, Use::computed, kMany,
     CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR},
    {CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, Use::computed, kMany},
    {CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, Use::computed, kMany}};

constexpr Rule kConfiguration[] = {
    {CUDNN_ATTR_ENGINECFG_ENGINE, kDescriptor, Use::required, 1, CUDNN_BACKEND_ENGINE_DESCRIPTOR},
    {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, kDescriptor, Use::optional, kMany,
     CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR},
    {CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, Use::computed},
    {CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, CUDNN_TYPE_INT32, Use::computed}};

constexpr Rule kKnobChoice[] = {{CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE},
                                {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64}};

constexpr Rule kPlan[] = {
    {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kDescriptor, Use::required, 1,
     CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
    {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, Use::optional},
    {CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, Use::computed}};

constexpr Rule kVariantPack[] = {
    {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, Use::required, kMany},
    {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, Use::required, kMany},
    {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR}};

struct DescriptorKind {
  cudnnBackendDescriptorType_t type;
  std::span<const Rule> rules;
};
constexpr DescriptorKind kKinds[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, kTensor},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, kConvolution},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, kPointwise},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, kForward},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, kBackwardData},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, kBackwardFilter},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, kPointwiseOperation},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, kMatmul},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, kMatmulOperation},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, kReduction},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, kReductionOperation},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, kReshapeOperation},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, kGraph},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, kHeuristics},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, kEngine},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kConfiguration},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, kKnobChoice},
    {CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR, {}}, // no engine tells of its own
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, kPlan},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, kVariantPack}};

const DescriptorKind *findKind(cudnnBackendDescriptorType_t type) {
  const auto *found =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](auto &k) { return k.type == type; });
  return found == std::end(kKinds) ? nullptr : found;
}

const Rule *findRule(const Descriptor &descriptor, cudnnBackendAttributeName_t name) {
  std::span<const Rule> rules = findKind(descriptor.type)->rules;
  auto found = std::find_if(rules.begin(), rules.end(), [&](auto &r) { return r.name == name; });
  return found == rules.end() ? nullptr : &*found;
}

size_t elementBytes(cudnnBackendAttributeType_t type) {
  switch (type) {
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_DOUBLE:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    return 8;
  case CUDNN_TYPE_BOOLEAN:
    return 1;
  default: // float, int32_t and enumerations
    return 4;
  }
}

bool isOperation(cudnnBackendDescriptorType_t type) {
  return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
}

/// What is the same for setting and getting.
cudnnStatus_t findAttribute(const char *function, Library &library, cudnnBackendDescriptor_t handle,
                            cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::shared_ptr<Descriptor> &found, const Rule *&rule) {
  auto *entry = library.descriptors.find(handle);
  if (!entry)
    return refuse(handle ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                  "%s: there is no such descriptor", function);
  found = *entry;
  rule = findRule(*found, name);
  if (!rule)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "%s: attribute %d is none of a descriptor of type %d, or not simulated", function,
                  name, found->type);
  if (rule->type != type)
    return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                  "%s: the elements of attribute %d are of type %d, not %d", function, name,
                  rule->type, type);
  return CUDNN_STATUS_SUCCESS;
}

/// The descriptors that an attribute is set to.
cudnnStatus_t takeDescriptors(Library &library, const Rule &rule, int64_t count,
                              const void *elements,
                              std::vector<std::shared_ptr<const Descriptor>> &taken) {
  constexpr const char *kName = "cudnnBackendSetAttribute";
  for (int64_t i = 0; i < count; ++i) {
    auto *entry =
        library.descriptors.find(static_cast<const cudnnBackendDescriptor_t *>(elements)[i]);
    if (!entry)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: attribute %d: there is no such descriptor", kName,
                    rule.name);
    const Descriptor &each = **entry;
    if (rule.name == CUDNN_ATTR_OPERATIONGRAPH_OPS ? !isOperation(each.type)
                                                   : each.type != rule.element)
      return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                    "%s: attribute %d cannot be a descriptor of type %d", kName, rule.name,
                    each.type);
    if (!each.isFinalized)
      return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                    "%s: attribute %d: the descriptor is not finalized", kName, rule.name);
    taken.push_back(*entry);
  }
  return CUDNN_STATUS_SUCCESS;
}
} // namespace

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor) {
  return call([&](Library &library) {
    if (!descriptor)
      return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                    "cudnnBackendCreateDescriptor: no place for the descriptor");
    if (!findKind(type))
      return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                    "cudnnBackendCreateDescriptor: type %d is not simulated", type);
    auto made = std::make_shared<Descriptor>();
    made->type = type;
    *descriptor = library.descriptors.add(made);
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return call([&](Library &library) {
    if (library.descriptors.remove(descriptor))
      return CUDNN_STATUS_SUCCESS;
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "cudnnBackendDestroyDescriptor: there is no such descriptor");
  });
}

cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t descriptor) {
  return call([&](Library &library) {
    auto *entry = library.descriptors.find(descriptor);
    if (!entry)
      return refuse(CUDNN_STATUS_BAD_PARAM, "cudnnBackendInitialize: there is no such descriptor");
    auto fresh = std::make_shared<Descriptor>();
    fresh->type = (*entry)->type;
    *entry = fresh;
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements) {
  return call([&](Library &library) {
    constexpr const char *kName = "cudnnBackendSetAttribute";
    std::shared_ptr<Descriptor> descriptor;
    const Rule *rule = nullptr;
    if (cudnnStatus_t status = findAttribute(kName, library, handle, name, type, descriptor, rule))
      return status;
    if (descriptor->isFinalized)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: attribute %d: the descriptor is finalized", kName,
                    name);
    if (rule->use == Use::computed)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: attribute %d can only be asked for", kName, name);
    int64_t least = name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES ? 0 : 1;
    if (count < least || count > rule->most)
      return refuse(CUDNN_STATUS_BAD_PARAM,
                    "%s: attribute %d has %" PRId64 " to %" PRId64 " elements, not %" PRId64, kName,
                    name, least, rule->most, count);
    if (!elements && count > 0)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: attribute %d: there are no elements", kName, name);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      std::vector<std::shared_ptr<const Descriptor>> taken;
      if (cudnnStatus_t status = takeDescriptors(library, *rule, count, elements, taken))
        return status;
      descriptor->set(name, std::move(taken));
      return CUDNN_STATUS_SUCCESS;
    }
    if (type == CUDNN_TYPE_HANDLE &&
        !library.handles.find(*static_cast<const cudnnHandle_t *>(elements)))
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: attribute %d: there is no such handle", kName,
                    name);
    const auto *bytes = static_cast<const std::byte *>(elements);
    Value &value = descriptor->values[name];
    value.count = count;
    value.bytes.assign(bytes, bytes + count * elementBytes(type));
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t *count, void *elements) {
  return call([&](Library &library) {
    constexpr const char *kName = "cudnnBackendGetAttribute";
    std::shared_ptr<Descriptor> descriptor;
    const Rule *rule = nullptr;
    if (cudnnStatus_t status = findAttribute(kName, library, handle, name, type, descriptor, rule))
      return status;
    if (!descriptor->isFinalized)
      return refuse(CUDNN_STATUS_NOT_INITIALIZED,
                    "%s: attribute %d: the descriptor is not finalized", kName, name);
    if (requested < 0)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: attribute %d: %" PRId64 " elements are asked for",
                    kName, name, requested);
    static const Value none;
    const Value &value = descriptor->has(name) ? descriptor->values[name] : none;
    if (count)
      *count = value.count;
    if (!elements)
      return CUDNN_STATUS_SUCCESS;
    int64_t given = std::min(requested, value.count);
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      if (given > 0)
        std::memcpy(elements, value.bytes.data(), given * elementBytes(type));
      return CUDNN_STATUS_SUCCESS;
    }
    // The caller's own descriptors become what these are.
    for (int64_t i = 0; i < given; ++i) {
      auto *entry = library.descriptors.find(static_cast<cudnnBackendDescriptor_t *>(elements)[i]);
      if (!entry || (*entry)->type != rule->element || (*entry)->isFinalized)
        return refuse(CUDNN_STATUS_BAD_PARAM,
                      "%s: attribute %d: element %" PRId64
                      " is no new descriptor of the type %d that it is to become",
                      kName, name, i, rule->element);
      *entry = std::make_shared<Descriptor>(*value.descriptors[i]);
    }
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  return call([&](Library &library) {
    constexpr const char *kName = "cudnnBackendFinalize";
    auto *entry = library.descriptors.find(handle);
    if (!entry)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: there is no such descriptor", kName);
    std::shared_ptr<Descriptor> held = *entry; // while other calls go on
    Descriptor &descriptor = *held;
    if (descriptor.isFinalized)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: the descriptor is finalized already", kName);
    for (const Rule &rule : findKind(descriptor.type)->rules)
      if (rule.use == Use::required && !descriptor.has(rule.name))
        return refuse(CUDNN_STATUS_BAD_PARAM, "%s: attribute %d is not set", kName, rule.name);
    if (cudnnStatus_t status = finalize(descriptor))
      return status;
    descriptor.isFinalized = true;
    return CUDNN_STATUS_SUCCESS;
  });
}
