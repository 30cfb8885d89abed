//===- Dnn.cpp - convolutions by NVIDIA's cuDNN ------------------------------------------===//
//
// Through cudnn-frontend, whose headers only this file includes. It looks every function up in the
// library that `cudnn_dlhandle` names, once: that all are there, and that the library starts, is
// known before that is set.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cuda/Dnn.h"
#include "runtime/core/Error.h"
#include "runtime/cuda/Libraries.h"
#include <algorithm>
#include <array>
#include <cstdio>
#include <dlfcn.h>
#include <limits>
#include <optional>
#include <tuple>

#include <cudnn.h>
#include <cudnn_frontend_ConvDesc.h>
#include <cudnn_frontend_ExecutionPlan.h>
#include <cudnn_frontend_Heuristics.h>
#include <cudnn_frontend_Operation.h>
#include <cudnn_frontend_OperationGraph.h>
#include <cudnn_frontend_Tensor.h>
#include <cudnn_frontend_VariantPack.h>

using namespace mpc;
using namespace mpc::cuda;
namespace fe = cudnn_frontend;

namespace cudnn_frontend {
void *cudnn_dlhandle = nullptr;
} // namespace cudnn_frontend

// A plan that wants more is passed over.
static constexpr int64_t kMostWorkspace = 256 << 20;
// Plans that do not come about, until the generated kernel is taken: to compile one takes seconds.
static constexpr int kTries = 8;
// What every buffer of a program is a multiple of, as far as cuDNN asks.
static constexpr int64_t kAlignment = 16;
// As cudnnGetVersion counts.
static constexpr size_t kLeastVersion = 90000, kEndVersion = 100000;
// The first call of any function makes cuDNN open this part, and end the process where that fails.
static constexpr const char *kGraphPart = "libcudnn_graph.so.9";

//===----------------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------------===//

static bool isConvolution(const Command &command) {
  return command.kind == CommandKind::conv || command.kind == CommandKind::conv_backward_data ||
         command.kind == CommandKind::conv_backward_weights;
}

/// Of the library: empty, or the function that it lacks of those that this file and the frontend
/// call.
static std::string missingFunction(void *library) {
  for (const char *name :
       {"cudnnGetVersion", "cudnnGetCudartVersion", "cudnnGetErrorString",
        "cudnnGetLastErrorString", "cudnnCreate", "cudnnDestroy", "cudnnSetStream",
        "cudnnBackendCreateDescriptor", "cudnnBackendDestroyDescriptor", "cudnnBackendSetAttribute",
        "cudnnBackendGetAttribute", "cudnnBackendFinalize", "cudnnBackendExecute"})
    if (!dlsym(library, name))
      return name;
  return "";
}

/// The function of a library that the frontend does not know yet.
template <typename Function> static Function *find(void *library, const char *name) {
  return reinterpret_cast<Function *>(dlsym(library, name));
}

std::unique_ptr<Dnn> Dnn::open(const Gpu &gpu, CUstream stream, const Program &program,
                               const std::string &folder) {
  static const LibraryUse kUse{"MPC_CUDA_DNN",
                               {"libcudnn.so.9"},
                               "cuDNN",
                               "convolutions",
                               "nvidia-cudnn-cu12 nvidia-cuda-nvrtc-cu12",
                               isConvolution};
  cudnnHandle_t handle = nullptr;
  auto start = [&](void *opened) -> std::string {
    if (std::string missing = missingFunction(opened); !missing.empty())
      return "it has no function " + missing;
    if (std::string problem = openPart(opened, kGraphPart); !problem.empty())
      return problem;
    size_t version = find<decltype(cudnnGetVersion)>(opened, "cudnnGetVersion")(),
           cuda = find<decltype(cudnnGetCudartVersion)>(opened, "cudnnGetCudartVersion")();
    if (version < kLeastVersion || version >= kEndVersion)
      return "it is of version " + libraryVersionText(version) + ", and 9 is needed";
    if (static_cast<int>(cuda / 1000) > gpu.driverVersion() / 1000)
      return "it is for CUDA " + versionText(static_cast<int>(cuda)) +
             ", and the driver is of CUDA " + versionText(gpu.driverVersion());
    if (cudnnStatus_t status = find<decltype(cudnnCreate)>(opened, "cudnnCreate")(&handle))
      return std::string("it does not start: ") +
             find<decltype(cudnnGetErrorString)>(opened, "cudnnGetErrorString")(status);
    return "";
  };
  void *library = openFor(program, kUse, folder, start);
  if (!library)
    return nullptr;
  fe::cudnn_dlhandle = library;
  std::unique_ptr<Dnn> dnn(new Dnn(handle));
  if (cudnnStatus_t status = fe::detail::set_stream(handle, stream); status != CUDNN_STATUS_SUCCESS)
    throw Error(dnn->name() + " does not take the stream: " + fe::to_string(status));
  return dnn;
}

Dnn::~Dnn() = default;

std::string Dnn::name() const {
  return "cuDNN " + libraryVersionText(fe::detail::get_backend_version());
}

//===----------------------------------------------------------------------------===//
// A command in cuDNN's words
//===----------------------------------------------------------------------------===//

namespace {
using Extents = std::vector<int64_t>;

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

/// A dense tensor as cuDNN counts: [N, C, spatial...] or [M, C, taps...], whatever the layout is.
struct Dense {
  Extents extents, strides;
  fe::DataType_t type;
};

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

/// A command as the convolution image ∗ filter → output, one of which is the result.
struct Convolution {
  explicit Convolution(const Command &command);

  CommandKind kind;
  Dense image, filter, output;
  fe::DataType_t operandType, resultType;
  std::optional<fe::DataType_t> bias;
  /// What makes the result of the sum: + bias, relu, or one rounding alone.
  std::vector<cudnnPointwiseMode_t> epilogue;
  Extents prePads, postPads, strides, dilations;

  const Dense &result() const {
    return kind == CommandKind::conv                 ? output
           : kind == CommandKind::conv_backward_data ? image
                                                     : filter;
  }
  auto key() const { // what a plan depends on
    return std::tie(kind, image.extents, image.strides, filter.extents, filter.strides,
                    output.extents, output.strides, operandType, resultType, bias, epilogue,
                    prePads, postPads, strides, dilations);
  }
  bool operator<(const Convolution &other) const { return key() < other.key(); }
};
} // namespace

/// A function that takes a filter's gradient from the scratch, where it lies in cuDNN's order.
static bool leavesGradientInScratch(const Command &command) {
  return std::any_of(command.functions.begin(), command.functions.end(),
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

/// False for what cuDNN cannot be asked.
static bool canBeAsked(const Command &command) {
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

//===----------------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------------===//

namespace {
// How a plan's tensors are told apart.
enum Id : int64_t { kImage = 1, kFilter, kOutput, kBias, kResult, kBetween };

/// The operations of a command, with what they hold on to.
class OperationSet {
public:
  OperationSet(cudnnHandle_t handle, const Convolution &convolution);
  fe::OperationGraph_v8 &operations() { return *graph; }

private:
  fe::Tensor_v8 tensor(int64_t id, const Dense &like, fe::DataType_t type, bool isVirtual) const {
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
  void convolve(const Convolution &c, const fe::Tensor_v8 &image, const fe::Tensor_v8 &filter,
                const fe::Tensor_v8 &output);
  /// What the epilogue makes of the sums.
  void append(const Convolution &c, fe::Tensor_v8 sums);
  /// to = mode(from, with), `with` being for the sum alone.
  void pointwise(cudnnPointwiseMode_t mode, const fe::Tensor_v8 &from, const fe::Tensor_v8 *with,
                 const fe::Tensor_v8 &to);

  std::optional<fe::Operation_v8> convolution;
  std::vector<fe::ManagedOpaqueDescriptor> list, parts; ///< operations, and what those refer to
  std::optional<fe::OperationGraph_v8> graph;
};
} // namespace

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

template <typename T>
static void set(const fe::ManagedOpaqueDescriptor &descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, T value) {
  cudnnStatus_t status =
      fe::detail::set_attribute(descriptor->get_backend_descriptor(), name, type, 1, &value);
  if (status != CUDNN_STATUS_SUCCESS)
    throw fe::cudnnException("an attribute cannot be set", status);
}

static void finalize(const fe::ManagedOpaqueDescriptor &descriptor) {
  cudnnStatus_t status = fe::detail::finalize(descriptor->get_backend_descriptor());
  if (status != CUDNN_STATUS_SUCCESS)
    throw fe::cudnnException("a descriptor cannot be finalized", status);
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

/// What cuDNN says of an engine's numbers or behavior.
template <typename Note>
static std::set<Note> notesOf(cudnnBackendDescriptor_t engine,
                              cudnnBackendAttributeName_t attribute,
                              cudnnBackendAttributeType_t type) {
  std::array<Note, 64> notes{};
  int64_t count = 0;
  cudnnStatus_t status =
      fe::detail::get_attribute(engine, attribute, type, notes.size(), &count, notes.data());
  if (status != CUDNN_STATUS_SUCCESS || count > static_cast<int64_t>(notes.size()))
    throw fe::cudnnException("the notes of an engine cannot be read", status);
  return {notes.begin(), notes.begin() + count};
}

/// True for an engine whose result is the product of docs/precision-and-loss-scaling.md, in the
/// same bits every time.
static bool isExact(const fe::ManagedOpaqueDescriptor &configuration, fe::DataType_t operandType) {
  fe::ManagedOpaqueDescriptor engine =
      fe::make_shared_backend_pointer(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine->get_backend_descriptor();
  int64_t count = 0;
  cudnnStatus_t status = fe::detail::get_attribute(configuration->get_backend_descriptor(),
                                                   CUDNN_ATTR_ENGINECFG_ENGINE,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw);
  if (status != CUDNN_STATUS_SUCCESS)
    throw fe::cudnnException("an engine cannot be read", status);
  auto numbers = notesOf<cudnnBackendNumericalNote_t>(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                      CUDNN_TYPE_NUMERICAL_NOTE);
  // A note that is not known, of a later version, may mean anything. Tensor cores multiply no f32.
  numbers.erase(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP);
  if (operandType != fe::DataType_t::FLOAT)
    numbers.erase(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  if (!numbers.empty())
    return false;
  auto behavior = notesOf<cudnnBackendBehaviorNote_t>(raw, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                                      CUDNN_TYPE_BEHAVIOR_NOTE);
  return !behavior.count(CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER) &&
         !behavior.count(CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER);
}

/// A plan, and which of a command's buffers its tensors are.
struct Dnn::Plan {
  fe::ExecutionPlan_v8 plan;
  std::vector<int64_t> ids; ///< of lhs, rhs, bias where there is one, result
};

static std::vector<int64_t> idsOf(const Convolution &c) {
  auto result = [&](Id sums) { return c.epilogue.empty() ? sums : kResult; };
  if (c.kind == CommandKind::conv_backward_data)
    return {kOutput, kFilter, result(kImage)};
  if (c.kind == CommandKind::conv_backward_weights)
    return {kImage, kOutput, result(kFilter)};
  if (c.bias)
    return {kImage, kFilter, kBias, result(kOutput)};
  return {kImage, kFilter, result(kOutput)};
}

/// By convolution: its plan, or null where it has none.
struct Dnn::Made {
  std::map<Convolution, std::shared_ptr<Plan>> plans;
};

/// Of a plan, or a whole convolution, that does not come about. That cuDNN does not do it is an
/// answer; of anything else a line on stderr tells, once. Throws Error where memory or the GPU has
/// failed: then there is more amiss than a convolution.
static void passOver(const fe::cudnnException &failed, const std::string &node) {
  cudnnStatus_t status = failed.error_status;
  auto category = CUDNN_STATUS_CATEGORY(status);
  // NVRTC's no, to an engine that is compiled.
  if (category == CUDNN_STATUS_NOT_SUPPORTED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED)
    return;
  std::string text =
      "cuDNN makes no plan for the convolution of '" + node + "': " + fe::to_string(status);
  if (category == CUDNN_STATUS_EXECUTION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    throw Error(text + "; MPC_CUDA_DNN=0 in the environment runs it as a generated kernel");
  static bool isTold = false;
  if (!std::exchange(isTold, true))
    std::fprintf(stderr, "note: %s; another engine, or a generated kernel, takes its place\n",
                 text.c_str());
}

/// The first of cuDNN's proposals that is exact and comes about.
static std::optional<fe::ExecutionPlan_v8>
chooseEngine(cudnnHandle_t handle, const Convolution &convolution, const std::string &node) {
  OperationSet set(handle, convolution);
  auto heuristics = fe::EngineHeuristicsBuilder_v8()
                        .setOperationGraph(set.operations())
                        .setHeurMode(CUDNN_HEUR_MODE_A)
                        .build();
  int64_t count = heuristics.getEngineConfigCount();
  int tries = 0;
  for (fe::ManagedOpaqueDescriptor &configuration : heuristics.getEngineConfig(count)) {
    if (!isExact(configuration, convolution.operandType))
      continue;
    if (++tries > kTries)
      break;
    try {
      auto plan = fe::ExecutionPlanBuilder_v8()
                      .setHandle(handle)
                      .setEngineConfig(configuration, set.operations().getTag())
                      .build();
      if (plan.getWorkspaceSize() <= kMostWorkspace)
        return plan;
    } catch (const fe::cudnnException &failed) {
      passOver(failed, node);
    }
  }
  return std::nullopt;
}

Dnn::Dnn(cudnnContext *handle)
    : handle(handle, [](cudnnContext *old) { fe::detail::destroy_handle(old); }),
      made(std::make_unique<Made>()) {}

void Dnn::prepare(const std::vector<const Command *> &commands) {
  for (const Command *command : commands) {
    if (!isConvolution(*command) || !asked.insert(command).second || !canBeAsked(*command))
      continue;
    Convolution convolution(*command);
    auto [known, isNew] = made->plans.try_emplace(convolution);
    if (isNew)
      try {
        if (auto plan = chooseEngine(handle, convolution, command->node))
          known->second = std::make_shared<Plan>(Plan{std::move(*plan), idsOf(convolution)});
      } catch (const fe::cudnnException &failed) {
        passOver(failed, command->node);
      }
    if (!known->second)
      continue;
    plans.emplace(command, known->second);
    neededBytes = std::max<uint64_t>(neededBytes, known->second->plan.getWorkspaceSize());
  }
}

//===----------------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------------===//

static cudnnStatus_t execute(cudnnHandle_t handle, const fe::ExecutionPlan_v8 &plan,
                             std::vector<void *> pointers, const std::vector<int64_t> &ids,
                             CUdeviceptr workspace) {
  try {
    auto arguments = fe::VariantPackBuilder_v8()
                         .setWorkspacePointer(reinterpret_cast<void *>(workspace))
                         .setDataPointers(static_cast<int64_t>(pointers.size()), pointers.data())
                         .setUids(static_cast<int64_t>(ids.size()), ids.data())
                         .build();
    return fe::detail::execute(handle, plan.get_raw_desc(), arguments.get_raw_desc());
  } catch (fe::cudnnException &failed) {
    return failed.getCudnnStatus();
  }
}

bool Dnn::run(const Command &command, const std::vector<CUdeviceptr> &addresses) {
  auto found = plans.find(&command);
  if (found == plans.end())
    return false;
  const Plan &plan = *found->second;
  std::vector<void *> pointers;
  for (size_t i = 0; i < plan.ids.size(); ++i)
    pointers.push_back(reinterpret_cast<void *>(addresses[i]));
  if (leavesGradientInScratch(command))
    pointers.back() = reinterpret_cast<void *>(addresses.back());
  cudnnStatus_t status = execute(handle, plan.plan, pointers, plan.ids, workspace);
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) {
    plans.erase(found);
    return false;
  }
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error("the convolution of '" + command.node + "' by " + name() +
                " failed: " + fe::to_string(status) +
                "; MPC_CUDA_DNN=0 in the environment runs it as a generated kernel");
  return true;
}
