//===- SimDriverDnnAttentionTest.cpp - attention by the simulated cuDNN ---------------------===//
//
// The operations that NVIDIA's frontend makes of attention, one by one, through the backend's C
// functions. The runtime's use of it is in CudaDnnAttentionTest.cpp.
//
//===----------------------------------------------------------------------------------------===//

#include "SimDriverDnnSupport.h"

using namespace mpc::test;

namespace {
struct WantedAttention {
  int64_t batch = 2, heads = 2, queries = 64, keys = 64, depth = 16, width = 8;
  cudnnDataType_t type = CUDNN_DATA_HALF, weightType = CUDNN_DATA_HALF;
  bool hasBias = false, hasBound = false, isGradient = false;
  bool isAccumulated = false; ///< the query's gradient, in float
  bool isReversed = false;    ///< the list of operations
  double mask = 0;            ///< in the place of the bias of the first sample
};

/// A GPU, the library and attention on it, up to its operation graph, not finalized.
struct SimAttention : DnnFunctions {
  SimGpu &gpu;
  WantedAttention w;
  CUstream stream;
  cudnnHandle_t handle = nullptr;
  std::vector<HostTensor> tensors; ///< in memory
  std::vector<std::pair<int64_t, float>> constants;
  std::vector<Dnn> operations;
  Dnn graph = nullptr;
  int64_t next = 100;

  enum Uid : int64_t { kQuery = 1, kKey, kValue, kBias, kOutput, kLogSum, kGradient, kResult };

  SimAttention(SimGpu &gpu, const WantedAttention &wanted)
      : DnnFunctions(MPC_TEST_SIM_DNN), gpu(gpu), w(wanted), stream(gpu.stream()) {
    EXPECT_EQ(cudnnCreate(&handle), kDone);
    EXPECT_EQ(cudnnSetStream(handle, stream), kDone);
    w.isGradient ? gradient() : forward();
    if (w.isReversed)
      std::reverse(operations.begin(), operations.end());
    graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    EXPECT_EQ(set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle}),
              kDone);
    EXPECT_EQ(set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations),
              kDone);
  }

  static List dense(const List &extents) {
    return {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3], 1};
  }
  List scores() const { return {w.batch, w.heads, w.queries, w.keys}; }
  List rows() const { return {w.batch, w.heads, w.queries, 1}; }

  /// In memory, [batch, tokens, heads, channels].
  Dnn operand(int64_t uid, int64_t tokens, int64_t channels, bool isTurned = false,
              cudnnDataType_t type = CUDNN_DATA_BOOLEAN) {
    List extents{w.batch, w.heads, tokens, channels},
        strides{tokens * w.heads * channels, channels, w.heads * channels, 1};
    if (isTurned) {
      std::swap(extents[2], extents[3]);
      std::swap(strides[2], strides[3]);
    }
    return memory(uid, type == CUDNN_DATA_BOOLEAN ? w.type : type, extents, strides);
  }
  Dnn memory(int64_t uid, cudnnDataType_t type, const List &extents, const List &strides) {
    HostTensor made{type, extents, strides, {}, 0, nullptr, uid};
    made.values.resize(made.span() * bytes(type));
    std::mt19937 random(static_cast<unsigned>(uid));
    for (int64_t i = 0; i < made.span(); ++i)
      made.put(i, uid == kBias && i < w.keys && w.mask != 0
                      ? static_cast<float>(w.mask)
                      : static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31F);
    gpu.ok(gpu.cuMemAlloc(&made.address, made.values.size()));
    gpu.ok(gpu.cuMemcpyHtoDAsync(made.address, made.values.data(), made.values.size(), stream));
    made.descriptor = finalized(tensor(uid, type, extents, strides));
    tensors.push_back(made);
    return made.descriptor;
  }
  Dnn between(const List &extents, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return finalized(tensor(next++, type, extents, dense(extents), true));
  }
  Dnn constant(float value) {
    Dnn made = tensor(next, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1});
    bool isByValue = true;
    EXPECT_EQ(cudnnBackendSetAttribute(made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
                                       &isByValue),
              kDone);
    constants.emplace_back(next++, value);
    return finalized(made);
  }

  /// Of a description and tensors; returns the last one, which it makes.
  Dnn add(cudnnBackendDescriptorType_t type,
          const std::vector<std::pair<cudnnBackendAttributeName_t, Dnn>> &parts) {
    Dnn made = create(type);
    for (auto [name, part] : parts)
      EXPECT_EQ(set(made, name, part), kDone);
    operations.push_back(finalized(made));
    return parts.back().second;
  }
  Dnn multiply(Dnn a, Dnn b, Dnn c) {
    Dnn what = create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    EXPECT_EQ(
        set(what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT}),
        kDone);
    return add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
               {{CUDNN_ATTR_OPERATION_MATMUL_DESC, finalized(what)},
                {CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c}});
  }
  Dnn apply(cudnnPointwiseMode_t mode, Dnn x, Dnn b, Dnn y) {
    Dnn what = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    EXPECT_EQ(set(what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{mode}),
              kDone);
    EXPECT_EQ(set(what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                  std::vector{CUDNN_DATA_FLOAT}),
              kDone);
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
      EXPECT_EQ(set(what, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE,
                    std::vector{-100000.0}),
                kDone);
    }
    std::vector<std::pair<cudnnBackendAttributeName_t, Dnn>> parts{
        {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, finalized(what)},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x}};
    if (b)
      parts.emplace_back(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    parts.emplace_back(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, parts);
  }
  Dnn reduce(cudnnReduceTensorOp_t how, Dnn x, Dnn y) {
    Dnn what = create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    EXPECT_EQ(set(what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
                  std::vector{how}),
              kDone);
    EXPECT_EQ(set(what, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                  std::vector{CUDNN_DATA_FLOAT}),
              kDone);
    return add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
               {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, finalized(what)},
                {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x},
                {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}});
  }
  /// Of what is between operations.
  Dnn turn(Dnn x, List extents) {
    List strides = dense(extents);
    std::swap(extents[2], extents[3]);
    std::swap(strides[2], strides[3]);
    Dnn y = finalized(tensor(next++, w.type, extents, strides, true));
    return add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
               {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}});
  }

  Dnn scored(Dnn query, Dnn key, Dnn scale) {
    Dnn s = multiply(query, key, between(scores()));
    s = apply(CUDNN_POINTWISE_MUL, s, scale, between(scores()));
    if (w.hasBias) {
      Dnn bias = memory(kBias, CUDNN_DATA_FLOAT, {w.batch, 1, 1, w.keys}, {w.keys, 1, 1, 1});
      s = apply(CUDNN_POINTWISE_ADD, s, bias, between(scores()));
    }
    return w.hasBound ? apply(CUDNN_POINTWISE_RELU_FWD, s, nullptr, between(scores())) : s;
  }
  void forward() {
    Dnn query = operand(kQuery, w.queries, w.depth), key = operand(kKey, w.keys, w.depth, true),
        value = operand(kValue, w.keys, w.width);
    Dnn s = scored(query, key, constant(0.5F));
    Dnn most = reduce(CUDNN_REDUCE_TENSOR_MAX, s, between(rows()));
    Dnn e = apply(CUDNN_POINTWISE_SUB, s, most, between(scores()));
    e = apply(CUDNN_POINTWISE_EXP, e, nullptr, between(scores()));
    Dnn sum = reduce(CUDNN_REDUCE_TENSOR_ADD, e, between(rows()));
    Dnn log = apply(CUDNN_POINTWISE_LOG, sum, nullptr, between(rows()));
    apply(CUDNN_POINTWISE_ADD, most, log, memory(kLogSum, CUDNN_DATA_FLOAT, rows(), dense(rows())));
    Dnn p = apply(CUDNN_POINTWISE_DIV, e, sum, between(scores(), w.weightType));
    multiply(p, value, operand(kOutput, w.queries, w.width));
  }
  void gradient() {
    Dnn query = operand(kQuery, w.queries, w.depth), key = operand(kKey, w.keys, w.depth, true),
        value = operand(kValue, w.keys, w.width, true),
        output = operand(kOutput, w.queries, w.width),
        gradient = operand(kGradient, w.queries, w.width);
    Dnn logSum = memory(kLogSum, CUDNN_DATA_FLOAT, rows(), dense(rows()));
    Dnn scale = constant(0.5F);
    List like{w.batch, w.heads, w.queries, w.width};
    Dnn d = apply(CUDNN_POINTWISE_MUL, gradient, output, between(like));
    d = reduce(CUDNN_REDUCE_TENSOR_ADD, d, between(rows()));
    d = apply(CUDNN_POINTWISE_MUL, d, constant(1),
              memory(kResult, CUDNN_DATA_FLOAT, rows(), dense(rows())));
    Dnn p = apply(CUDNN_POINTWISE_SUB, scored(query, key, scale), logSum, between(scores()));
    p = apply(CUDNN_POINTWISE_EXP, p, nullptr, between(scores()));
    multiply(turn(p, scores()), gradient, operand(kResult + 1, w.keys, w.width));
    Dnn ds = multiply(gradient, value, between(scores()));
    ds = apply(CUDNN_POINTWISE_SUB, ds, d, between(scores()));
    ds = apply(CUDNN_POINTWISE_MUL, ds, p, between(scores()));
    ds = apply(CUDNN_POINTWISE_MUL, ds, scale, between(scores()));
    multiply(turn(ds, scores()), query, operand(kResult + 2, w.keys, w.depth));
    Dnn back = finalized(tensor(next++, w.type, {w.batch, w.heads, w.keys, w.depth},
                                {w.keys * w.heads * w.depth, w.depth, w.heads * w.depth, 1}, true));
    add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
        {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, key}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, back}});
    if (!w.isAccumulated) {
      multiply(ds, back, operand(kResult + 3, w.queries, w.depth));
      return;
    }
    Dnn sum = multiply(ds, back, operand(kResult + 4, w.queries, w.depth, false, CUDNN_DATA_FLOAT));
    apply(CUDNN_POINTWISE_IDENTITY, sum, nullptr, operand(kResult + 3, w.queries, w.depth));
  }

  std::vector<Dnn> offers() const { return offersOf(graph, CUDNN_HEUR_MODE_A); }
  std::vector<cudnnBackendNumericalNote_t> notes(Dnn configuration) const {
    return get<cudnnBackendNumericalNote_t>(
        engineOf(configuration), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
  }
  bool isExact(Dnn configuration) const {
    return notes(configuration) == std::vector{CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
  }
  cudnnStatus_t plan(Dnn configuration, Dnn &made) const {
    made = DnnFunctions::plan(configuration);
    return cudnnBackendFinalize(made);
  }
  Dnn exactPlan() const {
    for (Dnn configuration : offers())
      if (Dnn made = nullptr; isExact(configuration) && plan(configuration, made) == kDone)
        return made;
    ADD_FAILURE() << "no exact engine";
    return nullptr;
  }

  cudnnStatus_t run(Dnn plan) {
    List uids;
    std::vector<CUdeviceptr> addresses;
    for (const HostTensor &each : tensors) {
      uids.push_back(each.uid);
      addresses.push_back(each.address);
    }
    std::vector<float> values;
    for (auto [uid, value] : constants)
      values.push_back(value);
    for (size_t i = 0; i < constants.size(); ++i) {
      uids.push_back(constants[i].first);
      addresses.push_back(reinterpret_cast<CUdeviceptr>(&values[i]));
    }
    CUdeviceptr workspace = 0;
    if (int64_t bytes = workspaceBytes(plan); bytes > 0)
      gpu.ok(gpu.cuMemAlloc(&workspace, bytes));
    cudnnStatus_t status =
        cudnnBackendExecute(handle, plan, finalized(pack(uids, addresses, workspace)));
    std::fill(values.begin(), values.end(), NAN); // which have been read
    return status;
  }
  /// With its values of now.
  HostTensor result(int64_t uid) const {
    HostTensor found = *std::find_if(tensors.begin(), tensors.end(),
                                     [&](const HostTensor &each) { return each.uid == uid; });
    gpu.ok(gpu.cuMemcpyDtoHAsync(found.values.data(), found.address, found.values.size(), stream));
    gpu.ok(gpu.cuStreamSynchronize(stream));
    return found;
  }
  static double at(const HostTensor &t, int64_t b, int64_t h, int64_t row, int64_t column) {
    return t.at(b * t.strides[0] + h * t.strides[1] + row * t.strides[2] + column * t.strides[3]);
  }

  /// The largest distance of the output from the definition in doubles.
  double error() const {
    HostTensor query = result(kQuery), key = result(kKey), value = result(kValue),
               output = result(kOutput), bias = w.hasBias ? result(kBias) : HostTensor{};
    double worst = 0;
    for (int64_t b = 0; b < w.batch; ++b)
      for (int64_t h = 0; h < w.heads; ++h)
        for (int64_t m = 0; m < w.queries; ++m) {
          std::vector<double> s(w.keys);
          double most = -HUGE_VAL, sum = 0;
          for (int64_t n = 0; n < w.keys; ++n) {
            for (int64_t d = 0; d < w.depth; ++d)
              s[n] += at(query, b, h, m, d) * at(key, b, h, d, n) / 2;
            s[n] = std::max(s[n] + (w.hasBias ? at(bias, b, 0, 0, n) : 0), -100000.0);
            most = std::max(most, s[n]);
          }
          for (double &each : s)
            sum += each = std::exp(each - most);
          for (int64_t e = 0; e < w.width; ++e) {
            double wanted = 0;
            for (int64_t n = 0; n < w.keys; ++n)
              wanted += s[n] / sum * at(value, b, h, n, e);
            double error = std::abs(at(output, b, h, m, e) - wanted);
            worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
          }
        }
    return worst;
  }
};

std::string onAttention(const WantedAttention &wanted,
                        const std::function<void(SimAttention &)> &body,
                        const SimSettings &settings = {}) {
  return onGpu(
      [&](SimGpu &gpu) {
        SimAttention attention(gpu, wanted);
        body(attention);
      },
      settings);
}

void expectOffers(const WantedAttention &wanted, bool isOffered, const SimSettings &settings = {}) {
  onAttention(
      wanted,
      [&](SimAttention &a) {
        a.finalized(a.graph);
        EXPECT_EQ(!a.offers().empty(), isOffered);
      },
      settings);
}
} // namespace

// Those whose notes say that they compute otherwise do, and come first.
TEST(SimDriverDnnAttention, Engines) {
  for (bool isReversed : {false, true}) {
    WantedAttention wanted;
    wanted.queries = 16;
    wanted.keys = 512;
    wanted.isReversed = isReversed;
    wanted.hasBias = isReversed;
    onAttention(wanted, [](SimAttention &a) {
      a.finalized(a.graph);
      std::vector<Dnn> offers = a.offers();
      ASSERT_GE(offers.size(), 4U);
      EXPECT_FALSE(a.isExact(offers[0]));
      for (Dnn each : offers) {
        Dnn plan = nullptr;
        ASSERT_EQ(a.plan(each, plan), kDone);
        ASSERT_EQ(a.run(plan), kDone);
        EXPECT_EQ(a.error() <= 0x1p-14, a.isExact(each)) << a.error();
      }
    });
  }
}

// One of the exact ones makes no plan where tiles are not full.
TEST(SimDriverDnnAttention, APlanThatDoesNotComeAbout) {
  WantedAttention wanted;
  wanted.keys = 37;
  onAttention(wanted, [](SimAttention &a) {
    a.finalized(a.graph);
    int refused = 0;
    for (Dnn each : a.offers()) {
      Dnn plan = nullptr;
      cudnnStatus_t status = a.plan(each, plan);
      EXPECT_TRUE(status == kDone || status == CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
      refused += status != kDone;
    }
    EXPECT_EQ(refused, 1);
    EXPECT_EQ(a.run(a.exactPlan()), kDone);
    EXPECT_LE(a.error(), 0x1p-11);
  });
}

// As by NVIDIA's, whose engines carry no note of it: the graph's form alone says that the query's
// gradient may be added up in any order.
TEST(SimDriverDnnAttention, AnOrderThatNoNoteTellsOf) {
  for (bool isAccumulated : {false, true}) {
    WantedAttention wanted;
    wanted.isGradient = true;
    wanted.isAccumulated = isAccumulated;
    onAttention(wanted, [&](SimAttention &a) {
      a.finalized(a.graph);
      Dnn plan = a.exactPlan();
      bool isSame = true;
      std::vector<uint8_t> first;
      for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(a.run(plan), kDone);
        std::vector<uint8_t> now = a.result(SimAttention::kResult + 2).values;
        isSame &= i == 0 || now == first;
        first = now;
      }
      EXPECT_EQ(isSame, !isAccumulated);
    });
  }
}

// Its exponentials are exp2 of scores times log2 e, so that what a mask of the lowest float leaves
// nothing of has no weights, unless the scores are bounded.
TEST(SimDriverDnnAttention, AMaskThatLeavesNothing) {
  for (bool hasBound : {false, true}) {
    WantedAttention wanted;
    wanted.hasBias = true;
    wanted.hasBound = hasBound;
    wanted.mask = -static_cast<double>(std::numeric_limits<float>::max());
    onAttention(wanted, [&](SimAttention &a) {
      a.finalized(a.graph);
      ASSERT_EQ(a.run(a.exactPlan()), kDone);
      EXPECT_EQ(a.error() <= 0x1p-10, hasBound) << a.error();
    });
  }
}

TEST(SimDriverDnnAttention, WhatIsOffered) {
  WantedAttention f32, weights, depth, large, keys;
  expectOffers({}, true);
  f32.type = f32.weightType = CUDNN_DATA_FLOAT;
  expectOffers(f32, false);
  weights.weightType = CUDNN_DATA_FLOAT;
  expectOffers(weights, false);
  depth.depth = 12;
  expectOffers(depth, false);
  large.depth = 256;
  expectOffers(large, true);
  large.isGradient = true;
  expectOffers(large, false);
  expectOffers(large, true, {{"MPC_SIM_CC", "9.0"}});
  keys.keys = 1;
  expectOffers(keys, true);
  keys.isGradient = true;
  expectOffers(keys, false);
  expectOffers({}, false, {{"MPC_SIM_CC", "7.5"}});
}

TEST(SimDriverDnnAttention, GraphsThatItRefuses) {
  auto expectGraph = [](cudnnStatus_t wanted, const WantedAttention &attention,
                        const std::function<void(SimAttention &)> &change) {
    onAttention(attention, [&](SimAttention &a) {
      change(a);
      EXPECT_EQ(a.set(a.graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      a.operations),
                kDone);
      EXPECT_EQ(a.cudnnBackendFinalize(a.graph), wanted);
    });
  };
  expectGraph(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, {}, [](SimAttention &a) {
    a.apply(CUDNN_POINTWISE_MUL, a.between(a.scores()), a.constant(2), a.between(a.scores()));
  });
  expectGraph(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, {},
              [](SimAttention &a) { a.operations.pop_back(); });
  // The scores are made twice.
  expectGraph(CUDNN_STATUS_BAD_PARAM, {},
              [](SimAttention &a) { a.operations[1] = a.operations[0]; });
}

TEST(SimDriverDnnAttention, DescriptorsThatItRefuses) {
  onAttention({}, [](SimAttention &a) {
    auto finalize = [&](cudnnBackendDescriptorType_t type,
                        const std::vector<std::pair<cudnnBackendAttributeName_t, Dnn>> &parts) {
      Dnn made = a.create(type);
      for (auto [name, part] : parts)
        EXPECT_EQ(a.set(made, name, part), kDone);
      return a.cudnnBackendFinalize(made);
    };
    Dnn what = a.create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    EXPECT_EQ(a.cudnnBackendFinalize(what), CUDNN_STATUS_BAD_PARAM);
    EXPECT_EQ(a.set(what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                    std::vector{CUDNN_DATA_HALF}),
              kDone);
    EXPECT_EQ(a.cudnnBackendFinalize(what), CUDNN_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(a.set(what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                    std::vector{CUDNN_DATA_FLOAT}),
              kDone);
    Dnn square = a.between(a.scores()), row = a.between(a.rows());
    EXPECT_EQ(finalize(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                       {{CUDNN_ATTR_OPERATION_MATMUL_DESC, a.finalized(what)},
                        {CUDNN_ATTR_OPERATION_MATMUL_ADESC, row},
                        {CUDNN_ATTR_OPERATION_MATMUL_BDESC, square},
                        {CUDNN_ATTR_OPERATION_MATMUL_CDESC, square}}),
              CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    EXPECT_EQ(finalize(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                       {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, square},
                        {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, a.between(a.scores())}}),
              CUDNN_STATUS_NOT_SUPPORTED);
    Dnn sum = a.create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    EXPECT_EQ(a.set(sum, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
                    std::vector{CUDNN_REDUCE_TENSOR_MUL}),
              kDone);
    EXPECT_EQ(a.set(sum, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                    std::vector{CUDNN_DATA_FLOAT}),
              kDone);
    EXPECT_EQ(a.cudnnBackendFinalize(sum), CUDNN_STATUS_NOT_SUPPORTED);
    // By value there is one float.
    Dnn two = a.tensor(9, CUDNN_DATA_FLOAT, {1, 1, 1, 2}, {2, 2, 2, 1});
    bool isByValue = true;
    EXPECT_EQ(a.cudnnBackendSetAttribute(two, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
                                         &isByValue),
              kDone);
    EXPECT_EQ(a.cudnnBackendFinalize(two), CUDNN_STATUS_NOT_SUPPORTED);
  });
}
