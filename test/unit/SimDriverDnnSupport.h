//===- SimDriverDnnSupport.h - a convolution by the simulated cuDNN, for a test -----------===//
//
// Through the backend's C functions, as they are found in the library that was opened.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_TEST_UNIT_SIMDRIVERDNNSUPPORT_H
#define MPC_TEST_UNIT_SIMDRIVERDNNSUPPORT_H

#include "SimDriverSupport.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <cudnn.h>
#include <limits>
#include <random>

#define MPC_TEST_CUDNN_FUNCTIONS(X)                                                                \
  X(cudnnGetVersion)                                                                               \
  X(cudnnGetCudartVersion)                                                                         \
  X(cudnnGetErrorString)                                                                           \
  X(cudnnGetLastErrorString)                                                                       \
  X(cudnnCreate)                                                                                   \
  X(cudnnDestroy)                                                                                  \
  X(cudnnSetStream)                                                                                \
  X(cudnnGetStream)                                                                                \
  X(cudnnBackendCreateDescriptor)                                                                  \
  X(cudnnBackendDestroyDescriptor)                                                                 \
  X(cudnnBackendInitialize)                                                                        \
  X(cudnnBackendSetAttribute)                                                                      \
  X(cudnnBackendGetAttribute)                                                                      \
  X(cudnnBackendFinalize)                                                                          \
  X(cudnnBackendExecute)

namespace mpc::test {

constexpr cudnnStatus_t kDone = CUDNN_STATUS_SUCCESS;

using Dnn = cudnnBackendDescriptor_t;
using List = std::vector<int64_t>;

/// A library's functions; none where it cannot be opened.
struct DnnFunctions {
#define MPC_TEST_DECLARE(name) decltype(&::name) name = nullptr;
  MPC_TEST_CUDNN_FUNCTIONS(MPC_TEST_DECLARE)
#undef MPC_TEST_DECLARE

  explicit DnnFunctions(const char *file) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
      return;
#define MPC_TEST_RESOLVE(name)                                                                     \
  this->name = reinterpret_cast<decltype(this->name)>(dlsym(library, #name));                      \
  EXPECT_NE(this->name, nullptr) << #name;
    MPC_TEST_CUDNN_FUNCTIONS(MPC_TEST_RESOLVE)
#undef MPC_TEST_RESOLVE
  }

  Dnn create(cudnnBackendDescriptorType_t type) const {
    Dnn made = nullptr;
    EXPECT_EQ(cudnnBackendCreateDescriptor(type, &made), kDone);
    return made;
  }
  template <typename T>
  cudnnStatus_t set(Dnn descriptor, cudnnBackendAttributeName_t name,
                    cudnnBackendAttributeType_t type, const std::vector<T> &elements) const {
    return cudnnBackendSetAttribute(descriptor, name, type, static_cast<int64_t>(elements.size()),
                                    static_cast<const void *>(elements.data()));
  }
  cudnnStatus_t set(Dnn descriptor, cudnnBackendAttributeName_t name, const List &elements) const {
    return set(descriptor, name, CUDNN_TYPE_INT64, elements);
  }
  cudnnStatus_t set(Dnn descriptor, cudnnBackendAttributeName_t name, Dnn element) const {
    return set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector<Dnn>{element});
  }
  /// All elements of an attribute.
  template <typename T>
  std::vector<T> get(Dnn descriptor, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type) const {
    int64_t count = -1;
    EXPECT_EQ(cudnnBackendGetAttribute(descriptor, name, type, 0, &count, nullptr), kDone);
    std::vector<T> elements(std::max<int64_t>(count, 0));
    EXPECT_EQ(cudnnBackendGetAttribute(descriptor, name, type, count, &count,
                                       static_cast<void *>(elements.data())),
              kDone);
    return elements;
  }

  /// A tensor's descriptor, not finalized.
  Dnn tensor(int64_t uid, cudnnDataType_t type, const List &extents, const List &strides,
             bool isVirtual = false, int64_t alignment = 16) const {
    Dnn made = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    EXPECT_EQ(set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type}),
              kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, extents), kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_TENSOR_STRIDES, strides), kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, List{uid}), kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, List{alignment}), kDone);
    EXPECT_EQ(cudnnBackendSetAttribute(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                                       &isVirtual),
              kDone);
    return made;
  }
  Dnn convolution(const List &pre, const List &post, const List &strides,
                  const List &dilations) const {
    Dnn made = create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    EXPECT_EQ(set(made, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                  std::vector{CUDNN_DATA_FLOAT}),
              kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                  std::vector{CUDNN_CROSS_CORRELATION}),
              kDone);
    EXPECT_EQ(
        set(made, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, List{static_cast<int64_t>(strides.size())}),
        kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pre), kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, post), kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides), kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_CONVOLUTION_DILATIONS, dilations), kDone);
    return made;
  }
  /// An operation on finalized descriptors. `which`: 0 forward, 1 data, 2 filter.
  Dnn operation(int which, Dnn convolution, Dnn x, Dnn w, Dnn y, float alpha = 1,
                float beta = 0) const {
    constexpr cudnnBackendDescriptorType_t kTypes[] = {
        CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
    constexpr cudnnBackendAttributeName_t kNames[][6] = {
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
    Dnn made = create(kTypes[which]);
    const auto &names = kNames[which];
    EXPECT_EQ(set(made, names[0], convolution), kDone);
    EXPECT_EQ(set(made, names[1], x), kDone);
    EXPECT_EQ(set(made, names[2], w), kDone);
    EXPECT_EQ(set(made, names[3], y), kDone);
    EXPECT_EQ(set(made, names[4], CUDNN_TYPE_FLOAT, std::vector{alpha}), kDone);
    EXPECT_EQ(set(made, names[5], CUDNN_TYPE_FLOAT, std::vector{beta}), kDone);
    return made;
  }
  Dnn pointwise(cudnnPointwiseMode_t mode, Dnn x, Dnn b, Dnn y,
                cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN,
                double reluMost = std::numeric_limits<double>::infinity()) const {
    Dnn what = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    EXPECT_EQ(set(what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{mode}),
              kDone);
    EXPECT_EQ(set(what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                  std::vector{CUDNN_DATA_FLOAT}),
              kDone);
    EXPECT_EQ(set(what, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
                  std::vector{nan}),
              kDone);
    EXPECT_EQ(
        set(what, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, std::vector{reluMost}),
        kDone);
    EXPECT_EQ(cudnnBackendFinalize(what), kDone);
    Dnn made = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    EXPECT_EQ(set(made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what), kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x), kDone);
    if (b) {
      EXPECT_EQ(set(made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b), kDone);
    }
    EXPECT_EQ(set(made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y), kDone);
    return made;
  }
  Dnn finalized(Dnn descriptor) const {
    EXPECT_EQ(cudnnBackendFinalize(descriptor), kDone);
    return descriptor;
  }
  /// The configurations that the heuristics offer for a graph.
  std::vector<Dnn> offersOf(Dnn graph, cudnnBackendHeurMode_t mode) const {
    Dnn heuristics = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    EXPECT_EQ(set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph), kDone);
    EXPECT_EQ(set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{mode}),
              kDone);
    finalized(heuristics);
    int64_t count = -1;
    EXPECT_EQ(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
              kDone);
    std::vector<Dnn> found;
    for (int64_t i = 0; i < count; ++i)
      found.push_back(create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    EXPECT_EQ(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                       static_cast<void *>(found.data())),
              kDone);
    return found;
  }
  Dnn engineOf(Dnn configuration) const {
    Dnn engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    EXPECT_EQ(cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, nullptr, &engine),
              kDone);
    return engine;
  }
  /// A plan, not finalized.
  Dnn plan(Dnn configuration) const {
    Dnn made = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    EXPECT_EQ(set(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration), kDone);
    return made;
  }
  int64_t workspaceBytes(Dnn plan) const {
    return get<int64_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64).at(0);
  }
  /// Not finalized.
  Dnn pack(const List &uids, const std::vector<CUdeviceptr> &addresses,
           CUdeviceptr workspace) const {
    Dnn made = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    EXPECT_EQ(set(made, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids), kDone);
    EXPECT_EQ(set(made, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses),
              kDone);
    EXPECT_EQ(
        set(made, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector{workspace}),
        kDone);
    return made;
  }
};

/// Of a tensor without gaps, [N, C, spatial...].
inline List stridesOf(const List &extents, bool isChannelsLast) {
  std::vector<size_t> order; // the innermost first
  if (isChannelsLast)
    order.push_back(1);
  for (size_t d = extents.size() - 1; d >= 2; --d)
    order.push_back(d);
  if (!isChannelsLast)
    order.push_back(1);
  order.push_back(0);
  List strides(extents.size());
  int64_t count = 1;
  for (size_t d : order) {
    strides[d] = count;
    count *= extents[d];
  }
  return strides;
}

/// What a test wants.
struct WantedConvolution {
  int which = 0; ///< 0 forward, 1 data, 2 filter
  int64_t n = 2, c = 16, k = 8, groups = 1;
  List image{6, 5}, filter{3, 3}, pre{1, 1}, post{1, 1}, strides{1, 1}, dilations{1, 1};
  cudnnDataType_t type = CUDNN_DATA_FLOAT, resultType = CUDNN_DATA_FLOAT;
  bool isChannelsLast = true, isFilterLast = true;
  bool hasBias = false, hasRelu = false, hasIdentity = false;
  cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
  double reluMost = std::numeric_limits<double>::infinity(); ///< that relu leaves
  int64_t gap = 0; ///< between the images, in elements of the result
};

inline uint64_t bytes(cudnnDataType_t type) { return type == CUDNN_DATA_FLOAT ? 4 : 2; }

/// A tensor of a test: random numbers in -1 to 1.
struct HostTensor {
  cudnnDataType_t type{};
  List extents, strides;
  std::vector<uint8_t> values;
  CUdeviceptr address = 0;
  Dnn descriptor = nullptr;
  int64_t uid = 0;

  int64_t span() const {
    int64_t last = 0;
    for (size_t d = 0; d < extents.size(); ++d)
      last += (extents[d] - 1) * strides[d];
    return last + 1;
  }
  double at(int64_t offset) const {
    if (type == CUDNN_DATA_FLOAT) {
      float value = 0;
      std::memcpy(&value, values.data() + 4 * offset, 4);
      return value;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, values.data() + 2 * offset, 2);
    return type == CUDNN_DATA_HALF ? static_cast<double>(std::bit_cast<_Float16>(bits))
                                   : std::bit_cast<float>(uint32_t(bits) << 16);
  }
  void put(int64_t offset, float number) {
    uint32_t bits = std::bit_cast<uint32_t>(number) >> (type == CUDNN_DATA_BFLOAT16 ? 16 : 0);
    if (type == CUDNN_DATA_HALF)
      bits = std::bit_cast<uint16_t>(static_cast<_Float16>(number));
    std::memcpy(values.data() + offset * bytes(type), &bits, bytes(type));
  }
};

/// A GPU, the library and one convolution on it, up to its operation graph.
struct SimConvolution : DnnFunctions {
  SimGpu &gpu;
  WantedConvolution w;
  CUstream stream;
  cudnnHandle_t handle = nullptr;
  HostTensor x, filter, y, bias, result; ///< of x, filter and y, one is the result
  std::vector<Dnn> operations;
  Dnn graph = nullptr;
  CUdeviceptr workspace = 0;

  SimConvolution(SimGpu &gpu, const WantedConvolution &wanted)
      : DnnFunctions(MPC_TEST_SIM_DNN), gpu(gpu), w(wanted), stream(gpu.stream()) {
    EXPECT_EQ(cudnnCreate(&handle), kDone);
    EXPECT_EQ(cudnnSetStream(handle, stream), kDone);
    describe();
    graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    EXPECT_EQ(set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle}),
              kDone);
    EXPECT_EQ(set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations),
              kDone);
    finalized(graph);
  }

  List outputExtents() const {
    List extents{w.n, w.k};
    for (size_t d = 0; d < w.image.size(); ++d)
      extents.push_back(
          (w.image[d] + w.pre[d] + w.post[d] - w.dilations[d] * (w.filter[d] - 1) - 1) /
              w.strides[d] +
          1);
    return extents;
  }
  static List joined(List front, const List &back) {
    front.insert(front.end(), back.begin(), back.end());
    return front;
  }

  HostTensor host(int64_t uid, cudnnDataType_t type, const List &extents, bool isChannelsLast,
                  int64_t gap = 0) {
    HostTensor made{type, extents, stridesOf(extents, isChannelsLast), {}, 0, nullptr, uid};
    made.strides[0] += gap;
    made.values.resize(made.span() * bytes(type));
    std::mt19937 random(static_cast<unsigned>(uid));
    for (int64_t i = 0; i < made.span(); ++i)
      made.put(i, static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31F);
    gpu.ok(gpu.cuMemAlloc(&made.address, made.values.size()));
    gpu.ok(gpu.cuMemcpyHtoDAsync(made.address, made.values.data(), made.values.size(), stream));
    made.descriptor = finalized(tensor(uid, type, extents, made.strides));
    return made;
  }

  void describe() {
    auto type = [&](int role) { return w.which == role ? w.resultType : w.type; };
    auto gap = [&](int role) { return w.which == role ? w.gap : 0; };
    x = host(1, type(1), joined({w.n, w.c}, w.image), w.isChannelsLast, gap(1));
    filter = host(2, type(2), joined({w.k, w.c / w.groups}, w.filter), w.isFilterLast, gap(2));
    y = host(3, type(0), outputExtents(), w.isChannelsLast, gap(0));
    result = w.which == 0 ? y : w.which == 1 ? x : filter;
    Dnn parts[] = {x.descriptor, filter.descriptor, y.descriptor};
    bool isPointwise = w.hasBias || w.hasRelu || w.hasIdentity;
    Dnn last = result.descriptor, next = last;
    if (isPointwise)
      next = parts[(w.which + 2) % 3] = between(10);
    Dnn what = finalized(convolution(w.pre, w.post, w.strides, w.dilations));
    operations.push_back(finalized(operation(w.which, what, parts[0], parts[1], parts[2])));
    if (w.hasBias) {
      List extents(y.extents.size(), 1);
      extents[1] = w.k;
      bias = host(4, w.resultType, extents, true);
      Dnn sum = w.hasRelu ? between(11) : last;
      operations.push_back(
          finalized(pointwise(CUDNN_POINTWISE_ADD, next, bias.descriptor, sum, w.nan)));
      next = sum;
    }
    if (w.hasRelu)
      operations.push_back(
          finalized(pointwise(CUDNN_POINTWISE_RELU_FWD, next, nullptr, last, w.nan, w.reluMost)));
    if (w.hasIdentity)
      operations.push_back(
          finalized(pointwise(CUDNN_POINTWISE_IDENTITY, next, nullptr, last, w.nan)));
  }
  /// Virtual, like the result.
  Dnn between(int64_t uid) const {
    return finalized(tensor(uid, CUDNN_DATA_FLOAT, result.extents, result.strides, true));
  }

  /// The configurations that the heuristics offer.
  std::vector<Dnn> offers(cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_INSTANT) const {
    return offersOf(graph, mode);
  }
  bool has(Dnn configuration, cudnnBackendNumericalNote_t note) const {
    auto notes = get<cudnnBackendNumericalNote_t>(
        engineOf(configuration), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  }
  bool isCompiled(Dnn configuration) const {
    return !get<cudnnBackendBehaviorNote_t>(
                engineOf(configuration), CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE)
                .empty();
  }
  /// What a trainer takes: notes that it does not know may mean anything.
  bool isExact(Dnn configuration) const {
    for (auto note : get<cudnnBackendNumericalNote_t>(
             engineOf(configuration), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE))
      if (note != CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP &&
          (note != CUDNN_NUMERICAL_NOTE_TENSOR_CORE || w.type == CUDNN_DATA_FLOAT))
        return false;
    return true;
  }
  /// The first exact one that can be made.
  Dnn exactPlan() const {
    for (Dnn configuration : offers())
      if (Dnn made = plan(configuration);
          isExact(configuration) && cudnnBackendFinalize(made) == kDone)
        return made;
    ADD_FAILURE() << "no exact engine";
    return nullptr;
  }

  /// Numbers and addresses of the tensors that the graph has.
  std::pair<List, std::vector<CUdeviceptr>> tensors() const {
    List uids{1, 2, 3};
    std::vector<CUdeviceptr> addresses{x.address, filter.address, y.address};
    if (w.hasBias) {
      uids.push_back(4);
      addresses.push_back(bias.address);
    }
    return {uids, addresses};
  }
  cudnnStatus_t run(Dnn plan, const List &uids, const std::vector<CUdeviceptr> &addresses,
                    CUdeviceptr workspace) const {
    return cudnnBackendExecute(handle, plan, finalized(pack(uids, addresses, workspace)));
  }
  cudnnStatus_t run(Dnn plan) {
    if (int64_t bytes = workspaceBytes(plan); bytes > 0 && !workspace)
      gpu.ok(gpu.cuMemAlloc(&workspace, bytes));
    auto [uids, addresses] = tensors();
    return run(plan, uids, addresses, workspace);
  }

  std::vector<uint8_t> download() const {
    std::vector<uint8_t> to(result.values.size());
    gpu.ok(gpu.cuMemcpyDtoHAsync(to.data(), result.address, to.size(), stream));
    gpu.ok(gpu.cuStreamSynchronize(stream));
    return to;
  }

  using Index = std::array<int64_t, 5>; ///< n, c, three spatial
  template <typename Body> static void each(const List &extents, Body body) {
    Index at{};
    auto extent = [&](size_t d) { return d < extents.size() ? extents[d] : 1; };
    for (at[0] = 0; at[0] < extent(0); ++at[0])
      for (at[1] = 0; at[1] < extent(1); ++at[1])
        for (at[2] = 0; at[2] < extent(2); ++at[2])
          for (at[3] = 0; at[3] < extent(3); ++at[3])
            for (at[4] = 0; at[4] < extent(4); ++at[4])
              body(at);
  }
  static int64_t offset(const HostTensor &tensor, const Index &at) {
    int64_t offset = 0;
    for (size_t d = 0; d < tensor.extents.size(); ++d)
      offset += at[d] * tensor.strides[d];
    return offset;
  }
  /// By the definition, in doubles; by offset in the result. `sizes`: Σ |products|.
  std::vector<double> expected(std::vector<double> &sizes) const {
    std::vector<double> sums(result.span());
    sizes.assign(result.span(), 0);
    int64_t channels = w.c / w.groups, features = w.k / w.groups;
    List taps = filter.extents; // of one feature
    taps[0] = 1;
    each(y.extents, [&](const Index &o) {
      each(taps, [&](Index f) {
        f[0] = o[1];
        Index i{o[0], o[1] / features * channels + f[1]};
        for (size_t d = 0; d < w.image.size(); ++d) {
          i[d + 2] = o[d + 2] * w.strides[d] + f[d + 2] * w.dilations[d] - w.pre[d];
          if (i[d + 2] < 0 || i[d + 2] >= w.image[d])
            return;
        }
        int64_t offsets[] = {offset(y, o), offset(x, i), offset(filter, f)};
        double product = w.which == 0   ? x.at(offsets[1]) * filter.at(offsets[2])
                         : w.which == 1 ? y.at(offsets[0]) * filter.at(offsets[2])
                                        : y.at(offsets[0]) * x.at(offsets[1]);
        sums[offsets[w.which]] += product;
        sizes[offsets[w.which]] += std::abs(product);
      });
    });
    each(result.extents, [&](const Index &at) {
      double &sum = sums[offset(result, at)];
      if (w.hasBias)
        sum += bias.at(at[1] * bias.strides[1]);
      if (w.hasRelu && !(std::isnan(sum) && w.nan == CUDNN_PROPAGATE_NAN))
        sum = sum > 0 ? sum : 0;
    });
    return sums;
  }
  /// The largest distance from it, in units of the result's last place (and of float's sums).
  double error() const {
    HostTensor got = result;
    got.values = download();
    std::vector<double> sizes, wanted = expected(sizes);
    double worst = 0, unit = w.resultType == CUDNN_DATA_FLOAT  ? 0x1p-24
                             : w.resultType == CUDNN_DATA_HALF ? 0x1p-11
                                                               : 0x1p-8;
    each(result.extents, [&](const Index &at) {
      int64_t o = offset(result, at);
      double difference = std::abs(got.at(o) - wanted[o]);
      double allowed = unit * std::max(std::abs(wanted[o]), 0x1p-14) + 0x1p-22 * sizes[o];
      if (std::isnan(wanted[o]) != std::isnan(got.at(o)))
        worst = HUGE_VAL;
      else if (!std::isnan(wanted[o]))
        worst = std::max(worst, difference / allowed);
    });
    return worst;
  }
};

inline std::string onConvolution(const WantedConvolution &wanted,
                                 const std::function<void(SimConvolution &)> &body,
                                 const SimSettings &settings = {}) {
  return onGpu(
      [&](SimGpu &gpu) {
        SimConvolution convolution(gpu, wanted);
        body(convolution);
      },
      settings);
}

} // namespace mpc::test

#endif // MPC_TEST_UNIT_SIMDRIVERDNNSUPPORT_H
