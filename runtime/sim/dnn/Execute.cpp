//===- Execute.cpp - the simulated cuDNN: a plan's work for a stream ----------------------===//

#include "runtime/sim/dnn/Engines.h"
#include "runtime/sim/driver/Library.h"
#include <algorithm>
#include <atomic>

using namespace mpc::sim;
using namespace mpc::sim::dnn;

namespace {
constexpr const char *kName = "cudnnBackendExecute";

/// What a plan was made of.
struct Plan {
  std::shared_ptr<const Descriptor> descriptor;
  std::shared_ptr<const Problem> problem;
  const Engine *engine = nullptr;
  int64_t tile = 0; ///< tileOf()
  int64_t workspaceBytes = 0;

  Arithmetic arithmetic() const {
    Arithmetic result = engine->arithmetic(*problem);
    if (tile)
      result.partDepth = tile;
    return result;
  }
  std::string timed() const { return engine->timed + (tile ? "-" + std::to_string(tile) : ""); }
};

struct Pack {
  std::vector<int64_t> uids;
  std::vector<void *> pointers;
  void *workspace = nullptr;

  /// Null where the tensor is not in it.
  void *find(const Tensor &tensor) const {
    auto found = std::find(uids.begin(), uids.end(), tensor.uid);
    return found == uids.end() ? nullptr : pointers[found - uids.begin()];
  }
};

struct Bytes {
  uintptr_t begin = 0, end = 0;
  Bytes(const void *from, int64_t bytes)
      : begin(reinterpret_cast<uintptr_t>(from)), end(begin + static_cast<uintptr_t>(bytes)) {}
  bool overlaps(const Bytes &other) const { return begin < other.end && other.begin < end; }
};

cudnnStatus_t findFinalized(cudnnBackendDescriptor_t handle, cudnnBackendDescriptorType_t type,
                            std::shared_ptr<const Descriptor> &found) {
  auto *entry = library().descriptors.find(handle);
  if (!entry || (*entry)->type != type)
    return refuse(CUDNN_STATUS_BAD_PARAM, "%s: there is no such plan or variant pack", kName);
  if (!(*entry)->isFinalized)
    return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                  "%s: the plan or variant pack is not finalized", kName);
  found = *entry;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t findPlan(const Handle &handle, cudnnBackendDescriptor_t descriptor, Plan &plan) {
  if (cudnnStatus_t status =
          findFinalized(descriptor, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan.descriptor))
    return status;
  const Descriptor &configuration =
      *plan.descriptor->descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Descriptor &engine = *configuration.descriptor(CUDNN_ATTR_ENGINECFG_ENGINE);
  const Descriptor &graph = *engine.descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  Handle *own = library().handles.find(graph.one<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE));
  if (!own || own->context != handle.context)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "%s: the plan was made with a handle of another context, or a dead one", kName);
  plan.problem = graph.problem;
  plan.engine = &engines()[engine.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)];
  plan.tile = tileOf(configuration);
  plan.workspaceBytes = plan.descriptor->one<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t findPack(cudnnBackendDescriptor_t descriptor, Pack &pack) {
  std::shared_ptr<const Descriptor> found;
  if (cudnnStatus_t status =
          findFinalized(descriptor, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, found))
    return status;
  pack.uids = found->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  pack.pointers = found->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  pack.workspace = found->one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  return CUDNN_STATUS_SUCCESS;
}

Bytes bytesAt(const Tensor &tensor, const void *address) {
  return {address, tensor.span() * bytesOf(tensor)};
}

std::vector<Tensor> constantsOf(const Problem &problem) {
  return problem.fused ? problem.fused->constants : std::vector<Tensor>();
}

cudnnStatus_t checkAddresses(const Plan &plan, const Pack &pack) {
  std::vector<const Tensor *> tensors = plan.problem->operands(), results = plan.problem->results();
  tensors.insert(tensors.end(), results.begin(), results.end());
  const std::vector<Tensor> constants = constantsOf(*plan.problem);
  if (pack.uids.size() != tensors.size() + constants.size())
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "%s: the plan's graph has %zu tensors, the variant pack %zu: is it for another "
                  "one?",
                  kName, tensors.size() + constants.size(), pack.uids.size());
  for (const Tensor &each : constants)
    if (!pack.find(each))
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: the variant pack has no address of tensor %lld",
                    kName, static_cast<long long>(each.uid));
  const Bytes workspace(pack.workspace, plan.workspaceBytes);
  for (const Tensor *each : tensors) {
    const void *address = pack.find(*each);
    auto uid = static_cast<long long>(each->uid);
    if (!address)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: the variant pack has no address of tensor %lld",
                    kName, uid);
    if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(each->alignment) != 0)
      return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                    "%s: tensor %lld at %p is not aligned to the %lld bytes that it was said to be",
                    kName, uid, address, static_cast<long long>(each->alignment));
    const Bytes bytes = bytesAt(*each, address);
    for (const Tensor *result : results)
      if (each != result && bytes.overlaps(bytesAt(*result, pack.find(*result))))
        return refuse(CUDNN_STATUS_BAD_PARAM, "%s: tensor %lld at %p overlaps the result", kName,
                      uid, address);
    if (plan.workspaceBytes > 0 && bytes.overlaps(workspace))
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: tensor %lld at %p overlaps the workspace", kName,
                    uid, address);
  }
  if (plan.workspaceBytes > 0 && (!pack.workspace || workspace.begin % 256 != 0))
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "%s: the plan needs a workspace of %lld bytes, aligned to 256; it is given %p",
                  kName, static_cast<long long>(plan.workspaceBytes), pack.workspace);
  return CUDNN_STATUS_SUCCESS;
}

/// A tensor in pieces with nothing between their elements. `order`: its dimensions, the outermost
/// first.
void touch(std::vector<Touched> &touched, const Tensor &t, const std::vector<size_t> &order,
           size_t depth, uintptr_t at, bool isWritten) {
  int64_t count = 1;
  bool isDense = true;
  for (size_t i = order.size(); i-- > depth;) {
    isDense &= t.extents[order[i]] == 1 || t.strides[order[i]] == count;
    count *= t.extents[order[i]];
  }
  if (isDense) {
    touched.push_back({at, at + static_cast<uintptr_t>(count * bytesOf(t)), isWritten});
    return;
  }
  for (int64_t i = 0; i < t.extents[order[depth]]; ++i)
    touch(touched, t, order, depth + 1,
          at + static_cast<uintptr_t>(i * t.strides[order[depth]] * bytesOf(t)), isWritten);
}

std::vector<Touched> touchedBy(const Tensor &t, const void *address, bool isWritten) {
  std::vector<Touched> touched;
  std::vector<size_t> order;
  for (size_t d = 0; d < t.extents.size(); ++d)
    if (t.extents[d] > 1)
      order.push_back(d);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return t.strides[a] > t.strides[b]; });
  touch(touched, t, order, 0, reinterpret_cast<uintptr_t>(address), isWritten);
  return touched;
}

std::string shapeOf(const Tensor &tensor) {
  std::string text;
  for (int64_t extent : tensor.extents)
    text += (text.empty() ? "[" : ", ") + std::to_string(extent);
  return text + "]";
}

std::string nameOf(const Problem &p) {
  constexpr const char *kKinds[] = {"a convolution", "a convolution's data gradient",
                                    "a convolution's filter gradient"};
  if (p.fused)
    return std::string(p.fused->isGradient ? "attention's gradient" : "attention") + " with " +
           shapeOf(p.fused->scores) + " scores by cuDNN";
  return std::string(kKinds[static_cast<int>(p.kind)]) + " of " + shapeOf(p.x) + " and " +
         shapeOf(p.w) + " by cuDNN";
}

/// What computes the results; `run` counts.
std::function<void(uint64_t run)> computation(const Plan &plan, const Pack &pack) {
  const Problem &p = *plan.problem;
  if (!p.fused) {
    const Addresses addresses{pack.find(p.x), pack.find(p.w), pack.find(p.y),
                              p.bias ? pack.find(*p.bias) : nullptr, pack.find(p.result)};
    return [problem = plan.problem, arithmetic = plan.arithmetic(), addresses](uint64_t run) {
      convolve(*problem, arithmetic, addresses, run);
    };
  }
  std::map<int64_t, float> values; // read now: they are the caller's, on the host
  for (const Tensor &each : p.fused->constants)
    values[each.uid] = *static_cast<const float *>(pack.find(each));
  return [fused = p.fused, arithmetic = plan.arithmetic(), pack, values](uint64_t run) {
    execute(
        *fused, arithmetic, [&](const Tensor &tensor) { return pack.find(tensor); }, values, run);
  };
}

LibraryWork workOf(const Plan &plan, const Pack &pack) {
  const Problem &p = *plan.problem;
  LibraryWork work;
  work.name = nameOf(p);
  work.algorithm = plan.timed();
  auto touch = [&](const Tensor &tensor, bool isWritten) {
    std::vector<Touched> pieces = touchedBy(tensor, pack.find(tensor), isWritten);
    work.touched.insert(work.touched.end(), pieces.begin(), pieces.end());
  };
  for (const Tensor *each : p.operands())
    touch(*each, /*isWritten=*/false);
  size_t read = work.touched.size();
  for (const Tensor *each : p.results())
    touch(*each, /*isWritten=*/true);
  std::vector<Touched> written(work.touched.begin() + static_cast<ptrdiff_t>(read),
                               work.touched.end());
  const Bytes workspace(pack.workspace, plan.workspaceBytes);
  if (plan.workspaceBytes > 0)
    work.touched.push_back({workspace.begin, workspace.end, /*isWritten=*/true});

  // The code that a plan has compiled goes with it, whatever graph has captured it.
  std::weak_ptr<const Descriptor> code = plan.descriptor;
  work.run = [compute = computation(plan, pack), isCompiled = plan.engine->isCompiled(), code,
              name = work.name, written, workspace = pack.workspace, bytes = plan.workspaceBytes] {
    static std::atomic<uint64_t> runs = 0;
    if (bytes > 0)
      std::memset(workspace, 0xFF, bytes);
    if (!isCompiled || !code.expired()) {
      compute(runs++);
      return;
    }
    refuse(CUDNN_STATUS_EXECUTION_FAILED,
           "%s runs after its plan was destroyed, and its code with it: the result is no number",
           name.c_str());
    for (const Touched &each : written)
      std::memset(reinterpret_cast<void *>(each.begin), 0xFF, each.end - each.begin);
  };
  return work;
}
} // namespace

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handleNumber, cudnnBackendDescriptor_t planHandle,
                                  cudnnBackendDescriptor_t packHandle) {
  return call([&](Library &library) {
    Handle *handle = library.handles.find(handleNumber);
    if (cudnnStatus_t status = checkHandle(kName, handle))
      return status;
    Plan plan;
    Pack pack;
    if (cudnnStatus_t status = findPlan(*handle, planHandle, plan))
      return status;
    if (cudnnStatus_t status = findPack(packHandle, pack))
      return status;
    if (cudnnStatus_t status = checkAddresses(plan, pack))
      return status;
    if (mpc_sim_strikes(Fault::dnnUnsupported))
      return decline(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "%s: declines as MPC_SIM_FAULT asks for",
                     kName);
    if (mpc_sim_strikes(Fault::dnn))
      return refuse(CUDNN_STATUS_EXECUTION_FAILED, "%s: fails as MPC_SIM_FAULT asks for", kName);
    CUresult queued = mpc_sim_enqueue(handle->context, handle->stream, workOf(plan, pack));
    return queued == CUDA_SUCCESS ? CUDNN_STATUS_SUCCESS
                                  : CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
  });
}
