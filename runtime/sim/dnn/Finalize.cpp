//===- Finalize.cpp - the simulated cuDNN: what a descriptor has to be --------------------===//

#include "runtime/sim/dnn/Engines.h"
#include "runtime/sim/driver/Library.h"
#include <algorithm>
#include <bit>
#include <cfloat>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace mpc::sim::dnn {

namespace {
constexpr const char *kName = "cudnnBackendFinalize";

bool areAtLeast(const std::vector<int64_t> &list, int64_t least) {
  return std::all_of(list.begin(), list.end(), [&](int64_t each) { return each >= least; });
}

/// No two elements have one place.
bool isInjective(const Tensor &t) {
  std::vector<std::pair<int64_t, int64_t>> dimensions;
  for (size_t d = 0; d < t.extents.size(); ++d)
    if (t.extents[d] > 1)
      dimensions.emplace_back(t.strides[d], t.extents[d]);
  std::sort(dimensions.begin(), dimensions.end());
  int64_t least = 1;
  for (auto [stride, extent] : dimensions) {
    if (stride < least)
      return false;
    least = stride * extent;
  }
  return true;
}

cudnnStatus_t finalizeTensor(const Descriptor &d) {
  const Tensor t = tensorOf(d);
  if (t.extents.size() != t.strides.size() || t.extents.size() < 3 || !areAtLeast(t.extents, 1) ||
      !areAtLeast(t.strides, 1))
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "%s: a tensor has as many extents as strides, three at least, and none below 1",
                  kName);
  auto type = numberOf(t.dataType);
  if (!type)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
                  "%s: tensors of the data type %d are not simulated", kName, t.dataType);
  if (t.alignment < 1 || !std::has_single_bit(static_cast<uint64_t>(t.alignment)) ||
      t.alignment % bytesOf(*type) != 0)
    return refuse(CUDNN_STATUS_BAD_PARAM, "%s: %lld is no alignment for a tensor's elements", kName,
                  static_cast<long long>(t.alignment));
  if (!isInjective(t))
    return refuse(CUDNN_STATUS_BAD_PARAM, "%s: elements of a tensor overlap", kName);
  if ((d.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) &&
       (t.isVirtual || t.elements() != 1 || *type != Number::f32)) ||
      d.one<int64_t>(CUDNN_ATTR_TENSOR_VECTOR_COUNT, 1) != 1 ||
      d.one<cudnnBackendTensorReordering_t>(CUDNN_ATTR_TENSOR_REORDERING_MODE,
                                            CUDNN_TENSOR_REORDERING_NONE) !=
          CUDNN_TENSOR_REORDERING_NONE)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  "%s: tensors by value (but one float), of vectors or reordered are not "
                  "simulated",
                  kName);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalizeConvolution(const Descriptor &d) {
  auto dimensions = d.one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  if (dimensions != 2 && dimensions != 3)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  "%s: a convolution has two or three spatial dimensions", kName);
  const std::pair<cudnnBackendAttributeName_t, int64_t> leasts[] = {
      {CUDNN_ATTR_CONVOLUTION_DILATIONS, 1},
      {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1},
      {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0},
      {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0}};
  for (auto [name, least] : leasts) {
    std::vector<int64_t> list = d.all<int64_t>(name);
    if (static_cast<int64_t>(list.size()) != dimensions || !areAtLeast(list, least))
      return refuse(CUDNN_STATUS_BAD_PARAM,
                    "%s: attribute %d has an entry per spatial dimension, of %lld at least", kName,
                    name, static_cast<long long>(least));
  }
  if (d.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION ||
      d.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  "%s: only cross-correlations with sums in float are simulated", kName);
  return CUDNN_STATUS_SUCCESS;
}

bool takesTwo(cudnnPointwiseMode_t mode) {
  return mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_SUB ||
         mode == CUDNN_POINTWISE_MUL || mode == CUDNN_POINTWISE_DIV;
}

cudnnStatus_t finalizePointwise(const Descriptor &d) {
  auto mode = d.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  bool isKnown = takesTwo(mode) || mode == CUDNN_POINTWISE_RELU_FWD ||
                 mode == CUDNN_POINTWISE_IDENTITY || mode == CUDNN_POINTWISE_EXP ||
                 mode == CUDNN_POINTWISE_LOG;
  if (!isKnown || d.one<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC) != CUDNN_DATA_FLOAT ||
      !(d.one<double>(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, DBL_MAX) >= FLT_MAX) ||
      d.one<double>(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE) != 0)
    return refuse(
        CUDNN_STATUS_NOT_SUPPORTED,
        "%s: of what is pointwise only x + b, x - b, x * b, x / b, max(x, bound), exp x, log x and "
        "x itself, in float, are simulated",
        kName);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalizePointwiseOperation(const Descriptor &d) {
  const Descriptor &pointwise = *d.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  bool hasTwo = takesTwo(pointwise.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE));
  if (hasTwo != d.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC))
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "%s: sums, differences, products and quotients have two operands, others one",
                  kName);
  if (d.one<float>(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1) != 1 ||
      d.one<float>(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1) != 1)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "%s: factors other than 1 are not simulated", kName);
  const Tensor x = tensorOf(*d.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
               y = tensorOf(*d.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  bool fits = x.extents == y.extents;
  if (hasTwo) {
    const Tensor b = tensorOf(*d.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
    fits = fits && b.extents.size() == x.extents.size();
    for (size_t i = 0; fits && i < b.extents.size(); ++i)
      fits = b.extents[i] == 1 || b.extents[i] == x.extents[i];
  }
  if (!fits)
    return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                  "%s: the extents of a pointwise operation do not fit each other", kName);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalizeMatmul(const Descriptor &d) {
  if (d.one<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE) != CUDNN_DATA_FLOAT ||
      d.one<double>(CUDNN_ATTR_MATMUL_PADDING_VALUE) != 0)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "%s: only products with sums in float are simulated",
                  kName);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t refuseExtents(const char *what) {
  return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                "%s: the extents of a %s do not fit each other", kName, what);
}

cudnnStatus_t finalizeMatmulOperation(const Descriptor &d) {
  const Tensor a = tensorOf(*d.descriptor(CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
               b = tensorOf(*d.descriptor(CUDNN_ATTR_OPERATION_MATMUL_BDESC)),
               c = tensorOf(*d.descriptor(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
  size_t rank = a.extents.size();
  bool fits = b.extents.size() == rank && c.extents.size() == rank &&
              a.extents[rank - 1] == b.extents[rank - 2] &&
              c.extents[rank - 2] == a.extents[rank - 2] &&
              c.extents[rank - 1] == b.extents[rank - 1];
  for (size_t i = 0; fits && i < rank - 2; ++i)
    fits = a.extents[i] == c.extents[i] && b.extents[i] == c.extents[i];
  return fits ? CUDNN_STATUS_SUCCESS : refuseExtents("product");
}

cudnnStatus_t finalizeReduction(const Descriptor &d) {
  auto how = d.one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
  if ((how != CUDNN_REDUCE_TENSOR_ADD && how != CUDNN_REDUCE_TENSOR_MAX) ||
      d.one<cudnnDataType_t>(CUDNN_ATTR_REDUCTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  "%s: only reductions by sums and maxima in float are simulated", kName);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalizeReductionOperation(const Descriptor &d) {
  const Tensor x = tensorOf(*d.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)),
               y = tensorOf(*d.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
  bool fits = x.extents.size() == y.extents.size();
  for (size_t i = 0; fits && i < x.extents.size(); ++i)
    fits = y.extents[i] == 1 || y.extents[i] == x.extents[i];
  return fits ? CUDNN_STATUS_SUCCESS : refuseExtents("reduction");
}

/// The same elements in the same places, counted with the last two dimensions exchanged.
cudnnStatus_t finalizeReshapeOperation(const Descriptor &d) {
  Tensor x = tensorOf(*d.descriptor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
  const Tensor y = tensorOf(*d.descriptor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
  for (std::vector<int64_t> *list : {&x.extents, &x.strides})
    std::swap(list->end()[-2], list->end()[-1]);
  if (x.extents != y.extents || x.strides != y.strides)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  "%s: of reshapes only those are simulated that exchange the last two dimensions",
                  kName);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalizeConvolutionOperation(const Descriptor &d, cudnnBackendAttributeName_t alpha,
                                           cudnnBackendAttributeName_t beta) {
  if (d.one<float>(alpha) != 1 || d.one<float>(beta) != 0)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  "%s: a convolution's alpha other than 1, or beta other than 0, is not simulated",
                  kName);
  Problem problem;
  return readConvolution(d, problem);
}

cudnnStatus_t finalizeGraph(Descriptor &d) {
  Problem problem;
  if (cudnnStatus_t status = readGraph(d, problem))
    return status;
  d.problem = std::make_shared<const Problem>(std::move(problem));
  d.set(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT,
        std::vector<int64_t>{static_cast<int64_t>(engines().size())});
  return CUDNN_STATUS_SUCCESS;
}

/// That a graph was made with.
Handle *handleOf(const Descriptor &graph) {
  return library().handles.find(graph.one<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE));
}

/// Of the device that a graph is for, 10 · major + minor.
cudnnStatus_t findCapability(const Descriptor &graph, int &capability) {
  const Handle *handle = handleOf(graph);
  if (cudnnStatus_t status = checkHandle(kName, handle))
    return status;
  capability = handle->capability;
  return CUDNN_STATUS_SUCCESS;
}

/// To make a plan takes time, in which other threads' calls go on, with other handles.
void takeTime(Handle &handle) {
  const char *milliseconds = std::getenv("MPC_SIM_PLAN_MILLISECONDS");
  std::chrono::milliseconds time(milliseconds ? std::strtol(milliseconds, nullptr, 10) : 0);
  handle.user = std::this_thread::get_id();
  library().mutex.unlock();
  mpc_sim_trace("a plan begins");
  std::this_thread::sleep_for(time);
  mpc_sim_trace("a plan ends");
  library().mutex.lock();
  handle.user = {};
}

cudnnStatus_t finalizeEngine(Descriptor &d) {
  const Descriptor &graph = *d.descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  int capability = 0;
  if (cudnnStatus_t status = findCapability(graph, capability))
    return status;
  auto index = d.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  if (index < 0 || index >= static_cast<int64_t>(engines().size()))
    return refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "%s: there is no engine %lld", kName,
                  static_cast<long long>(index));
  const Engine &engine = engines()[index];
  if (!engine.isFor(*graph.problem, capability))
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "%s: the engine '%s' is not for this graph", kName,
                  engine.name);
  d.set(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, engine.numericalNotes);
  d.set(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, engine.behaviorNotes);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalizeConfiguration(Descriptor &d) {
  const Descriptor &engine = *d.descriptor(CUDNN_ATTR_ENGINECFG_ENGINE);
  auto choices = d.values.find(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
  if (choices != d.values.end() && choices->second.count > 0) {
    const Engine &own = engines()[engine.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)];
    const Descriptor &knob = *d.descriptor(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    if (choices->second.count > 1 || !own.tile ||
        knob.one<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) !=
            CUDNN_KNOB_TYPE_TILE_SIZE ||
        tileOf(d) != own.tile)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: the engine '%s' has no such knob", kName,
                    own.name);
  }
  const Problem &problem = *engine.descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->problem;
  d.set(
      CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE,
      std::vector<int64_t>{
          engines()[engine.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)].workspaceBytes(problem)});
  d.set(CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, std::vector<int32_t>{0});
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalizeHeuristics(Descriptor &d) {
  auto mode = d.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  if (mode >= CUDNN_HEUR_MODES_COUNT)
    return refuse(CUDNN_STATUS_BAD_PARAM, "%s: there is no heuristic mode %d", kName, mode);
  auto graph = d.values.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).descriptors.front();
  int capability = 0;
  if (cudnnStatus_t status = findCapability(*graph, capability))
    return status;
  std::vector<std::shared_ptr<const Descriptor>> results;
  for (auto [index, tile] : offered(*graph->problem, capability, mode)) {
    auto engine = std::make_shared<Descriptor>(), result = std::make_shared<Descriptor>();
    engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    engine->set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
    engine->set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, std::vector<int64_t>{index});
    result->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    result->set(CUDNN_ATTR_ENGINECFG_ENGINE, {engine});
    if (tile) {
      auto knob = std::make_shared<Descriptor>();
      knob->type = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
      knob->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, std::vector{CUDNN_KNOB_TYPE_TILE_SIZE});
      knob->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, std::vector<int64_t>{tile});
      knob->isFinalized = true;
      result->set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, {knob});
    }
    for (const std::shared_ptr<Descriptor> &each : {engine, result}) {
      if (cudnnStatus_t status = finalize(*each))
        return status;
      each->isFinalized = true;
    }
    results.push_back(result);
  }
  d.set(CUDNN_ATTR_ENGINEHEUR_RESULTS, std::move(results));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalizePlan(Descriptor &d) {
  const Descriptor &configuration = *d.descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Descriptor &engine = *configuration.descriptor(CUDNN_ATTR_ENGINECFG_ENGINE);
  const Descriptor &graph = *engine.descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  // It loads kernels.
  if (mpc_sim_check_unsafe("cudnnBackendFinalize") != CUDA_SUCCESS)
    return refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER,
                  "%s: a plan cannot be made now, during a capture or behind an error", kName);
  if (cudnnStatus_t status = checkHandle(kName, handleOf(graph)))
    return status;
  takeTime(*handleOf(graph));
  if (cudnnStatus_t status =
          checkPlan(engines()[engine.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)], *graph.problem))
    return status;
  if (mpc_sim_strikes(Fault::plan))
    return decline(CUDNN_STATUS_INTERNAL_ERROR, "%s: fails as MPC_SIM_FAULT asks for", kName);
  if (mpc_sim_strikes(Fault::planMemory))
    return decline(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                   "%s: fails as MPC_SIM_FAULT asks for", kName);
  d.set(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
        configuration.all<int64_t>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalizeVariantPack(const Descriptor &d) {
  std::vector<int64_t> uids = d.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  size_t pointers = d.all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size();
  if (uids.size() != pointers)
    return refuse(CUDNN_STATUS_BAD_PARAM, "%s: a variant pack has %zu numbers and %zu addresses",
                  kName, uids.size(), pointers);
  std::sort(uids.begin(), uids.end());
  if (std::adjacent_find(uids.begin(), uids.end()) != uids.end())
    return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                  "%s: a variant pack has a tensor's number twice", kName);
  return CUDNN_STATUS_SUCCESS;
}
} // namespace

cudnnStatus_t finalize(Descriptor &d) {
  switch (d.type) {
  case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
    return finalizeTensor(d);
  case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
    return finalizeConvolution(d);
  case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    return finalizePointwise(d);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    return finalizeConvolutionOperation(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    return finalizeConvolutionOperation(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    return finalizeConvolutionOperation(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    return finalizePointwiseOperation(d);
  case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
    return finalizeMatmul(d);
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    return finalizeMatmulOperation(d);
  case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
    return finalizeReduction(d);
  case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    return finalizeReductionOperation(d);
  case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
    return finalizeReshapeOperation(d);
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
    return finalizeGraph(d);
  case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
    return finalizeHeuristics(d);
  case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    return finalizeEngine(d);
  case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
    return finalizeConfiguration(d);
  case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
    return finalizePlan(d);
  case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
    return finalizeVariantPack(d);
  default: // a knob's choice, which is refused where it is used
    return CUDNN_STATUS_SUCCESS;
  }
}

} // namespace mpc::sim::dnn
