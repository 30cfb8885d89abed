//===- Dnn.cpp - convolutions by NVIDIA's cuDNN ------------------------------------------===//
//
// Through cudnn-frontend, whose headers only this file includes. It looks every function up in the
// library that `cudnn_dlhandle` names, once: whether all are there is known before that is set.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cuda/Dnn.h"
#include "runtime/core/Error.h"
#include "runtime/cuda/Libraries.h"
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include <cudnn.h>
#include <cudnn_frontend_ConvDesc.h>
#include <cudnn_frontend_ExecutionPlan.h>
#include <cudnn_frontend_Heuristics.h>
#include <cudnn_frontend_Operation.h>
#include <cudnn_frontend_OperationGraph.h>
#include <cudnn_frontend_PointWiseDesc.h>
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
// Plans that do not come about, until the generated kernel is taken: to compile one takes a second.
static constexpr int kTries = 8;
// What every buffer of a program is a multiple of, as far as cuDNN asks.
static constexpr int64_t kAlignment = 16;
// As cudnnGetVersion counts.
static constexpr size_t kLeastVersion = 90000, kEndVersion = 100000;

//===----------------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------------===//

static std::string dnnVersionText(size_t version) {
  size_t unit = version < 90000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100);
}

static bool isConvolution(const Command &command) {
  return command.kind == CommandKind::conv || command.kind == CommandKind::conv_backward_data ||
         command.kind == CommandKind::conv_backward_weights;
}

static std::vector<const Command *> convolutionsOf(const Program &program) {
  std::vector<const Command *> found;
  for (const auto &[name, entry] : program.entries)
    for (const Command &command : entry.commands)
      if (isConvolution(command))
        found.push_back(&command);
  return found;
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

std::unique_ptr<Dnn> Dnn::open(const Gpu &gpu, CUstream stream, const Program &program,
                               const std::string &folder) {
  const char *isWanted = std::getenv("MPC_CUDA_DNN");
  std::vector<const Command *> convolutions = convolutionsOf(program);
  if ((isWanted && std::strcmp(isWanted, "0") == 0) || convolutions.empty())
    return nullptr;
  cudnnHandle_t handle = nullptr;
  auto start = [&](void *opened) -> std::string {
    if (std::string missing = missingFunction(opened); !missing.empty())
      return "it has no function " + missing;
    auto number = [&](const char *function) {
      return reinterpret_cast<decltype(&::cudnnGetVersion)>(dlsym(opened, function))();
    };
    size_t version = number("cudnnGetVersion"), cuda = number("cudnnGetCudartVersion");
    if (version < kLeastVersion || version >= kEndVersion)
      return "it is of version " + dnnVersionText(version) + ", and 9 is needed";
    if (static_cast<int>(cuda / 1000) > gpu.driverVersion() / 1000)
      return "it is for CUDA " + versionText(static_cast<int>(cuda)) +
             ", and the driver is of CUDA " + versionText(gpu.driverVersion());
    fe::cudnn_dlhandle = opened; // for good: a second one would get the first one's functions
    cudnnStatus_t status = fe::detail::create_handle(&handle);
    return status == CUDNN_STATUS_SUCCESS ? "" : "it does not start: " + fe::to_string(status);
  };
  Library library = openLibrary({"libcudnn.so.9"}, folder, start);
  if (!library.handle) {
    if (folder.empty())
      noteAbsence("convolutions", "cuDNN", "nvidia-cudnn-cu12 nvidia-cuda-nvrtc-cu12",
                  library.problem);
    return nullptr;
  }
  std::unique_ptr<Dnn> dnn(new Dnn(handle));
  if (cudnnStatus_t status = fe::detail::set_stream(handle, stream); status != CUDNN_STATUS_SUCCESS)
    throw Error(dnn->name() + " does not take the stream: " + fe::to_string(status));
  dnn->prepare(convolutions);
  return dnn;
}

Dnn::Dnn(cudnnContext *handle)
    : handle(handle, [](cudnnContext *old) { fe::detail::destroy_handle(old); }) {}

Dnn::~Dnn() = default;

std::string Dnn::name() const {
  return "cuDNN " + dnnVersionText(fe::detail::get_backend_version());
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
  std::vector<fe::PointwiseMode_t> epilogue;
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
    epilogue.push_back(fe::PointwiseMode_t::ADD);
  }
  if (c.relu)
    epilogue.push_back(fe::PointwiseMode_t::RELU_FWD);
  if (epilogue.empty() && resultType != operandType)
    epilogue.push_back(fe::PointwiseMode_t::IDENTITY);
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
  /// to = mode(from, with), `with` being for the sum alone.
  void pointwise(fe::PointwiseMode_t mode, const fe::Tensor_v8 &from, const fe::Tensor_v8 *with,
                 const fe::Tensor_v8 &to);

  std::vector<fe::Operation_v8> list;
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
  fe::Tensor_v8 value = c.kind == CommandKind::conv                 ? std::move(output)
                        : c.kind == CommandKind::conv_backward_data ? std::move(image)
                                                                    : std::move(filter);
  for (size_t i = 0; i < c.epilogue.size(); ++i) {
    bool isLast = i + 1 == c.epilogue.size();
    fe::Tensor_v8 next = tensor(isLast ? kResult : kBetween, c.result(),
                                isLast ? c.resultType : fe::DataType_t::FLOAT, !isLast);
    if (c.epilogue[i] == fe::PointwiseMode_t::ADD) {
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
  std::vector<const fe::Operation_v8 *> operations;
  for (const fe::Operation_v8 &operation : list)
    operations.push_back(&operation);
  graph = fe::OperationGraphBuilder_v8()
              .setHandle(handle)
              .setOperationGraph(static_cast<int64_t>(operations.size()), operations.data())
              .build();
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
  list.push_back(builder.build());
}

void OperationSet::pointwise(fe::PointwiseMode_t mode, const fe::Tensor_v8 &from,
                             const fe::Tensor_v8 *with, const fe::Tensor_v8 &to) {
  // Its default is that NaN stays NaN.
  fe::PointWiseDesc_v8 description =
      fe::PointWiseDescBuilder_v8().setMode(mode).setComputeType(fe::DataType_t::FLOAT).build();
  fe::OperationBuilder_v8 builder(fe::DescriptorType_t::OPERATION_POINTWISE_DESCRIPTOR);
  builder.setpwDesc(description).setxDesc(from).setyDesc(to);
  if (with)
    builder.setbDesc(*with);
  list.push_back(builder.build());
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
  for (cudnnBackendNumericalNote_t inexact :
       {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
        CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
        CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
        CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13})
    if (numbers.count(inexact))
      return false;
  // Tensor cores multiply no f32.
  if (operandType == fe::DataType_t::FLOAT && numbers.count(CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
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

/// The first of cuDNN's proposals that is exact and comes about.
static std::optional<fe::ExecutionPlan_v8> chooseEngine(cudnnHandle_t handle,
                                                        const Convolution &convolution) {
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
    } catch (const fe::cudnnException &) { // the next one may
    }
  }
  return std::nullopt;
}

void Dnn::prepare(const std::vector<const Command *> &convolutions) {
  std::map<Convolution, std::shared_ptr<Plan>> made;
  for (const Command *command : convolutions) {
    if (!canBeAsked(*command))
      continue;
    Convolution convolution(*command);
    auto [known, isNew] = made.try_emplace(convolution);
    if (isNew)
      try {
        if (auto plan = chooseEngine(handle, convolution))
          known->second = std::make_shared<Plan>(Plan{std::move(*plan), idsOf(convolution)});
      } catch (const fe::cudnnException &) { // it knows no such convolution
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
