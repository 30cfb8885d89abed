//===- Dnn.cpp - convolutions and attention by NVIDIA's cuDNN ----------------------------===//
//
// Through cudnn-frontend. It looks every function up in the library that `cudnn_dlhandle` names,
// once: that all are there, and that the library starts, is known before that is set.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cuda/Dnn.h"
#include "runtime/core/Error.h"
#include "runtime/cuda/DnnAttention.h"
#include "runtime/cuda/DnnGraph.h"
#include "runtime/cuda/Libraries.h"
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <dlfcn.h>
#include <exception>
#include <system_error>
#include <thread>

#include <cudnn_frontend_ExecutionPlan.h>
#include <cudnn_frontend_Heuristics.h>
#include <cudnn_frontend_VariantPack.h>

using namespace mpc;
using namespace mpc::cuda;
using namespace mpc::cuda::dnn;
namespace fe = cudnn_frontend;

namespace cudnn_frontend {
void *cudnn_dlhandle = nullptr;
} // namespace cudnn_frontend

// A plan that wants more is passed over.
static constexpr int64_t kMostWorkspace = 256 << 20;
// Plans that are tried for one of them: to compile one takes seconds.
static constexpr size_t kTries = 8;
// Threads that make plans: each has a handle, which stays, and memory for a compiler.
static constexpr size_t kThreads = 16;
// Of what lies in the workspace behind a plan's own.
static constexpr uint64_t kScratchAlignment = 256;
// As cudnnGetVersion counts.
static constexpr size_t kLeastVersion = 90000, kEndVersion = 100000;
// The first call of any function makes cuDNN open this part, and end the process where that fails.
static constexpr const char *kGraphPart = "libcudnn_graph.so.9";

//===----------------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------------===//

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
template <typename Function> static Function *lookUp(void *library, const char *name) {
  return reinterpret_cast<Function *>(dlsym(library, name));
}

std::unique_ptr<Dnn> Dnn::open(const Gpu &gpu, CUstream stream, const Program &program,
                               const std::string &folder) {
  static const LibraryUse kUse{"MPC_CUDA_DNN",
                               {"libcudnn.so.9"},
                               "cuDNN",
                               "convolutions and attention",
                               "nvidia-cudnn-cu12 nvidia-cuda-nvrtc-cu12",
                               [](const Command &command) {
                                 return dnn::isConvolution(command) || isAttention(command.kind);
                               }};
  cudnnHandle_t handle = nullptr;
  auto start = [&](void *opened) -> std::string {
    if (std::string missing = missingFunction(opened); !missing.empty())
      return "it has no function " + missing;
    if (std::string problem = openPart(opened, kGraphPart); !problem.empty())
      return problem;
    size_t version = lookUp<decltype(cudnnGetVersion)>(opened, "cudnnGetVersion")(),
           cuda = lookUp<decltype(cudnnGetCudartVersion)>(opened, "cudnnGetCudartVersion")();
    if (version < kLeastVersion || version >= kEndVersion)
      return "it is of version " + libraryVersionText(version) + ", and 9 is needed";
    if (static_cast<int>(cuda / 1000) > gpu.driverVersion() / 1000)
      return "it is for CUDA " + versionText(static_cast<int>(cuda)) +
             ", and the driver is of CUDA " + versionText(gpu.driverVersion());
    if (cudnnStatus_t status = lookUp<decltype(cudnnCreate)>(opened, "cudnnCreate")(&handle))
      return std::string("it does not start: ") +
             lookUp<decltype(cudnnGetErrorString)>(opened, "cudnnGetErrorString")(status);
    return "";
  };
  void *library = openFor(program, kUse, folder, start);
  if (!library)
    return nullptr;
  fe::cudnn_dlhandle = library;
  std::unique_ptr<Dnn> dnn(new Dnn(gpu, stream, handle));
  if (cudnnStatus_t status = fe::detail::set_stream(handle, stream); status != CUDNN_STATUS_SUCCESS)
    throw Error(dnn->name() + " does not take the stream: " + fe::to_string(status));
  return dnn;
}

static Owned<cudnnContext *> owned(cudnnContext *handle) {
  return {handle, [](cudnnContext *old) { fe::detail::destroy_handle(old); }};
}

Dnn::Dnn(const Gpu &gpu, CUstream stream, cudnnContext *handle) : gpu(gpu), stream(stream) {
  handles.push_back(owned(handle));
}

int64_t Dnn::version() const { return static_cast<int64_t>(fe::detail::get_backend_version()); }

//===----------------------------------------------------------------------------===//
// Engines
//===----------------------------------------------------------------------------===//

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

static fe::ManagedOpaqueDescriptor engineOf(const fe::ManagedOpaqueDescriptor &configuration) {
  fe::ManagedOpaqueDescriptor engine =
      fe::make_shared_backend_pointer(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine->get_backend_descriptor();
  int64_t count = 0;
  cudnnStatus_t status = fe::detail::get_attribute(configuration->get_backend_descriptor(),
                                                   CUDNN_ATTR_ENGINECFG_ENGINE,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw);
  if (status != CUDNN_STATUS_SUCCESS)
    throw fe::cudnnException("an engine cannot be read", status);
  return engine;
}

/// True for an engine whose result is the product of docs/precision-and-loss-scaling.md, in the
/// same bits every time.
static bool isExact(const fe::ManagedOpaqueDescriptor &configuration, bool isF32) {
  const fe::ManagedOpaqueDescriptor engine = engineOf(configuration);
  cudnnBackendDescriptor_t raw = engine->get_backend_descriptor();
  auto numbers = notesOf<cudnnBackendNumericalNote_t>(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                      CUDNN_TYPE_NUMERICAL_NOTE);
  // A note that is not known, of a later version, may mean anything. Tensor cores multiply no f32.
  numbers.erase(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP);
  if (!isF32)
    numbers.erase(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  if (!numbers.empty())
    return false;
  auto behavior = notesOf<cudnnBackendBehaviorNote_t>(raw, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                                      CUDNN_TYPE_BEHAVIOR_NOTE);
  return !behavior.count(CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER) &&
         !behavior.count(CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER);
}

template <typename T>
static T attribute(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type) {
  T value{};
  int64_t count = 0;
  cudnnStatus_t status = fe::detail::get_attribute(from, name, type, 1, &count, &value);
  if (status != CUDNN_STATUS_SUCCESS || count != 1)
    throw fe::cudnnException("an engine's number or knobs cannot be read", status);
  return value;
}

/// "engine 5, knobs 2=3 14=4": what tells a configuration from others of the same version of cuDNN.
static std::string textOf(const fe::ManagedOpaqueDescriptor &configuration) {
  std::string text =
      "engine " +
      std::to_string(attribute<int64_t>(engineOf(configuration)->get_backend_descriptor(),
                                        CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64));
  // The descriptors become those of the knobs.
  std::vector<fe::ManagedOpaqueDescriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    knobs.push_back(fe::make_shared_backend_pointer(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    raw.push_back(knobs.back()->get_backend_descriptor());
  }
  int64_t count = 0;
  cudnnStatus_t status = fe::detail::get_attribute(
      configuration->get_backend_descriptor(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
      CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS, &count, raw.data());
  if (status != CUDNN_STATUS_SUCCESS || count > CUDNN_KNOB_TYPE_COUNTS)
    throw fe::cudnnException("an engine's number or knobs cannot be read", status);
  std::set<std::pair<int, int64_t>> values; // whatever order they come in
  for (int64_t i = 0; i < count; ++i)
    values.emplace(attribute<cudnnBackendKnobType_t>(raw[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                                     CUDNN_TYPE_KNOB_TYPE),
                   attribute<int64_t>(raw[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
  for (auto [knob, value] : values)
    text += (knob == values.begin()->first ? ", knobs " : " ") + std::to_string(knob) + "=" +
            std::to_string(value);
  return text;
}

//===----------------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------------===//

namespace {
/// What cuDNN is asked: one of the two.
struct Question {
  explicit Question(const Command &command) {
    if (isAttention(command.kind))
      attention.emplace(command);
    else
      convolution.emplace(command);
  }

  std::vector<int64_t> ids() const { return attention ? attention->ids() : convolution->ids(); }
  /// Of the operands.
  bool isF32() const {
    return attention ? attention->type == CUDNN_DATA_FLOAT
                     : convolution->operandType == fe::DataType_t::FLOAT;
  }

  std::optional<Convolution> convolution;
  std::optional<Attention> attention;
};

/// Its operations, with what they hold on to.
struct Operations {
  Operations(cudnnHandle_t handle, const Question &question) {
    if (question.attention)
      attention.emplace(handle, *question.attention);
    else
      convolution.emplace(handle, *question.convolution);
  }
  fe::OperationGraph_v8 &graph() {
    return attention ? attention->operations() : convolution->operations();
  }

  std::optional<OperationSet> convolution;
  std::optional<AttentionSet> attention;
};
} // namespace

/// "convolution of 'conv1'", for messages.
static std::string workOf(const Command &command) {
  return std::string(workName(command)) + " of '" + command.node + "'";
}

/// For an engine, and what its tensors are.
struct Dnn::Plan : Way {
  Plan(fe::ExecutionPlan_v8 made, const Question &question, cudnnHandle_t handle)
      : plan(std::move(made)), ids(question.ids()), handle(handle) {
    workspaceBytes = static_cast<uint64_t>(plan.getWorkspaceSize());
    if (!question.attention)
      return;
    constants = question.attention->constants();
    scratch = question.attention->scratch();
    scratchOffset =
        (workspaceBytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    workspaceBytes = scratchOffset + scratch.bytes;
  }
  fe::ExecutionPlan_v8 plan;
  std::vector<int64_t> ids; ///< of the command's buffers, as many as are its operands and results
  cudnnHandle_t handle;     ///< that it was made with
  std::vector<Attention::Constant> constants;
  Attention::Scratch scratch;
  uint64_t scratchOffset = 0; ///< in the workspace
};

/// That cuDNN does not do it is an answer; so is NVRTC's no, to an engine that is compiled.
static bool isAnswer(cudnnStatus_t status) {
  return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED;
}

/// Memory or the GPU has failed: then there is more amiss than one command.
static bool isFatal(cudnnStatus_t status) {
  return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_EXECUTION_FAILED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

/// For the plans of a problem: any thread may run it, and what came of it is told in the order of
/// the problems.
class Dnn::Search {
public:
  Search(const Problem &problem, bool all)
      : command(*problem.commands.front()), question(command), wanted(problem.wanted), all(all) {}

  void run(cudnnHandle_t handle) {
    try {
      search(handle);
    } catch (const fe::cudnnException &failed) {
      passOver(failed.error_status);
    } catch (...) {
      exception = std::current_exception();
    }
  }

  /// Tells of failures. Throws Error for those that end a run.
  std::vector<std::shared_ptr<Way>> take();

private:
  void search(cudnnHandle_t handle);
  std::shared_ptr<Way> plan(cudnnHandle_t handle, Operations &operations,
                            const fe::ManagedOpaqueDescriptor &configuration);
  void passOver(cudnnStatus_t status) {
    if (!isAnswer(status))
      failures.push_back(status);
  }

  const Command &command;
  const Question question;
  const std::string wanted; ///< Problem::wanted
  const bool all;
  std::vector<std::shared_ptr<Way>> found;
  std::vector<cudnnStatus_t> failures; ///< after a fatal one nothing is tried
  std::exception_ptr exception;
};

/// The wanted one of cuDNN's proposals, or those that are exact and come about: the first, or all.
void Dnn::Search::search(cudnnHandle_t handle) {
  Operations operations(handle, question);
  auto heuristics = fe::EngineHeuristicsBuilder_v8()
                        .setOperationGraph(operations.graph())
                        .setHeurMode(CUDNN_HEUR_MODE_A)
                        .build();
  std::vector<fe::ManagedOpaqueDescriptor> &proposed =
      heuristics.getEngineConfig(heuristics.getEngineConfigCount());
  auto hasFailed = [&] { return !failures.empty() && isFatal(failures.back()); };
  auto tryPlans = [&](bool isForWanted) {
    size_t tries = 0;
    for (const fe::ManagedOpaqueDescriptor &each : proposed) {
      if (!isExact(each, question.isF32()))
        continue;
      if (++tries > kTries)
        return;
      if (isForWanted && textOf(each) != wanted)
        continue;
      if (auto way = plan(handle, operations, each))
        found.push_back(way);
      if (hasFailed() || (!found.empty() && (isForWanted || !all)))
        return;
    }
  };
  if (!wanted.empty())
    tryPlans(/*isForWanted=*/true);
  if (found.empty() && !hasFailed())
    tryPlans(/*isForWanted=*/false);
}

/// Null where none comes about.
std::shared_ptr<CommandLibrary::Way>
Dnn::Search::plan(cudnnHandle_t handle, Operations &operations,
                  const fe::ManagedOpaqueDescriptor &configuration) {
  try {
    auto made = fe::ExecutionPlanBuilder_v8()
                    .setHandle(handle)
                    .setEngineConfig(configuration, operations.graph().getTag())
                    .build();
    if (made.getWorkspaceSize() > kMostWorkspace)
      return nullptr;
    auto way = std::make_shared<Plan>(std::move(made), question, handle);
    if (all || !wanted.empty()) // else nobody asks
      way->text = textOf(configuration);
    return way;
  } catch (const fe::cudnnException &failed) {
    passOver(failed.error_status);
    return nullptr;
  }
}

std::vector<std::shared_ptr<CommandLibrary::Way>> Dnn::Search::take() {
  if (exception)
    std::rethrow_exception(exception);
  for (cudnnStatus_t status : failures) {
    std::string text =
        "cuDNN makes no plan for the " + workOf(command) + ": " + fe::to_string(status);
    if (isFatal(status))
      throw Error(text + "; MPC_CUDA_DNN=0 in the environment runs it as a generated kernel");
    static bool isTold = false;
    if (!std::exchange(isTold, true))
      std::fprintf(stderr, "note: %s; another engine, or a generated kernel, takes its place\n",
                   text.c_str());
  }
  return std::move(found);
}

std::string Dnn::keyOf(const Command &command) const {
  if (isAttention(command.kind))
    return canBeAsked(command, gpu.architecture(), version()) ? Attention(command).key() : "";
  return isConvolution(command) && canBeAsked(command) ? Convolution(command).key() : "";
}

// A handle is for one thread at a time, and what it does is for the thread's context.
bool Dnn::start(Handle &handle) const {
  if (handle)
    return true;
  cudnnHandle_t made = nullptr;
  if (!gpu.makeCurrent() || fe::detail::create_handle(&made) != CUDNN_STATUS_SUCCESS)
    return false;
  Handle fresh = owned(made);
  if (fe::detail::set_stream(made, stream) != CUDNN_STATUS_SUCCESS)
    return false;
  handle = std::move(fresh);
  return true;
}

void Dnn::find(const std::vector<Problem *> &problems, bool all) {
  std::vector<Search> searches;
  searches.reserve(problems.size());
  for (const Problem *problem : problems)
    searches.emplace_back(*problem, all);
  std::atomic<size_t> next = 0;
  auto search = [&](Handle &handle) {
    if (start(handle)) // else the others have more to do
      for (size_t i; (i = next++) < searches.size();)
        searches[i].run(handle);
  };
  size_t most = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kThreads);
  size_t count = std::min(most, searches.size());
  if (handles.size() < count)
    handles.resize(count);
  std::vector<std::jthread> threads;
  try {
    while (threads.size() + 1 < count)
      threads.emplace_back(search, std::ref(handles[threads.size() + 1]));
  } catch (const std::system_error &) { // as many as there may be
  }
  search(handles.front());
  threads.clear(); // waits
  for (size_t i = 0; i < searches.size(); ++i)
    problems[i]->found = searches[i].take();
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

bool Dnn::execute(const Way &way, const Command &command,
                  const std::vector<CUdeviceptr> &addresses) {
  const auto &plan = static_cast<const Plan &>(way);
  std::vector<int64_t> ids;
  std::vector<void *> pointers;
  for (size_t i = 0; i < plan.ids.size(); ++i) {
    if (plan.ids[i] == kNoTensor)
      continue;
    ids.push_back(plan.ids[i]);
    pointers.push_back(reinterpret_cast<void *>(addresses[i]));
  }
  if (leavesGradientInScratch(command))
    pointers.back() = reinterpret_cast<void *>(addresses.back());
  for (const Attention::Constant &each : plan.constants) {
    ids.push_back(each.id);
    pointers.push_back(const_cast<float *>(&each.value)); // it is read alone
  }
  if (plan.scratch.bytes > 0) {
    ids.push_back(plan.scratch.id);
    pointers.push_back(reinterpret_cast<void *>(workspace + plan.scratchOffset));
  }
  cudnnStatus_t status = ::execute(plan.handle, plan.plan, pointers, ids, workspace);
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
    return false;
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error("the " + workOf(command) + " by " + name() + " failed: " + fe::to_string(status) +
                "; MPC_CUDA_DNN=0 in the environment runs it as a generated kernel");
  return true;
}
