//===- SimDriverDnnRulesTest.cpp - the simulated cuDNN: what it refuses ---------------------===//

#include "SimDriverDnnSupport.h"

using namespace mpc::test;

namespace {
constexpr cudnnStatus_t kBad = CUDNN_STATUS_BAD_PARAM;
constexpr cudnnStatus_t kUnsupported = CUDNN_STATUS_NOT_SUPPORTED;

/// The library, with no GPU.
void onLibrary(const std::function<void(DnnFunctions &)> &body) {
  inProcess({}, [&] {
    DnnFunctions library(MPC_TEST_SIM_DNN);
    body(library);
  });
}

/// What the simulated library and NVIDIA's own answer alike; it needs no GPU.
void checkDescriptors(const DnnFunctions &l) {
  const List extents{2, 16, 6, 5}, strides = stridesOf(extents, true);
  Dnn tensor = l.tensor(1, CUDNN_DATA_HALF, extents, strides);
  int64_t number = 3, count = -1;
  auto set = [&](int64_t count, cudnnBackendAttributeType_t type, const void *value) {
    return l.cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, type, count, value);
  };
  auto get = [&](cudnnBackendAttributeType_t type) {
    return l.cudnnBackendGetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, type, 1, &count,
                                      &number);
  };
  EXPECT_EQ(set(1, CUDNN_TYPE_INT32, &number), CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  EXPECT_EQ(set(2, CUDNN_TYPE_INT64, extents.data()), kBad);
  EXPECT_EQ(set(0, CUDNN_TYPE_INT64, &number), kBad);
  EXPECT_EQ(set(-1, CUDNN_TYPE_INT64, &number), kBad);
  EXPECT_EQ(set(1, CUDNN_TYPE_INT64, nullptr), kBad);
  EXPECT_EQ(l.set(tensor, CUDNN_ATTR_CONVOLUTION_DILATIONS, List{1}), kBad);
  EXPECT_EQ(l.set(nullptr, CUDNN_ATTR_TENSOR_UNIQUE_ID, List{1}),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(get(CUDNN_TYPE_INT64), CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(set(1, CUDNN_TYPE_INT64, &number), kDone);
  EXPECT_EQ(l.cudnnBackendFinalize(tensor), kDone);
  EXPECT_EQ(l.cudnnBackendFinalize(tensor), kBad);
  EXPECT_EQ(set(1, CUDNN_TYPE_INT64, &number), kBad);
  number = 0;
  EXPECT_EQ(get(CUDNN_TYPE_FLOAT), CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  EXPECT_EQ(get(CUDNN_TYPE_INT64), kDone);
  EXPECT_EQ(number, 3);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(l.get<int64_t>(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64), extents);

  // Tensors.
  auto made = [&](const List &extents, const List &strides, int64_t alignment = 16) {
    return l.cudnnBackendFinalize(l.tensor(1, CUDNN_DATA_HALF, extents, strides, false, alignment));
  };
  EXPECT_EQ(l.cudnnBackendFinalize(l.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR)), kBad);
  EXPECT_EQ(made(extents, {480, 1, 80, -16}), kBad);
  EXPECT_EQ(made(extents, {480, 1, 80}), kBad);
  EXPECT_EQ(made(extents, strides, 1), kBad); // of halves
  EXPECT_EQ(made(extents, strides, 3), kBad);
  EXPECT_EQ(made(extents, strides, 2), kDone);

  // Convolutions.
  auto window = [&](const List &pre, const List &post, const List &strides, const List &dilations) {
    return l.cudnnBackendFinalize(l.convolution(pre, post, strides, dilations));
  };
  EXPECT_EQ(window({1, 0}, {1, 2}, {1, 1}, {1, 2}), kDone);
  EXPECT_EQ(window({1, 1}, {1, 1}, {0, 1}, {1, 1}), kBad);
  EXPECT_EQ(window({1, 1}, {1, 1}, {1, 1}, {1, 0}), kBad);
  EXPECT_EQ(window({-1, 1}, {1, 1}, {1, 1}, {1, 1}), kBad);
  EXPECT_EQ(window({1, 1, 1}, {1, 1}, {1, 1}, {1, 1}), kBad);

  // Operations.
  Dnn what = l.finalized(l.convolution({1, 1}, {1, 1}, {1, 1}, {1, 1}));
  auto channelsLast = [&](int64_t uid, const List &extents) {
    return l.finalized(l.tensor(uid, CUDNN_DATA_HALF, extents, stridesOf(extents, true)));
  };
  Dnn x = channelsLast(1, extents), w = channelsLast(2, {8, 16, 3, 3}),
      y = channelsLast(3, {2, 8, 6, 5});
  for (int which = 0; which < 3; ++which) {
    EXPECT_EQ(l.cudnnBackendFinalize(l.operation(which, what, x, w, y)), kDone);
    EXPECT_EQ(
        l.cudnnBackendFinalize(l.operation(which, what, x, w, channelsLast(3, {2, 8, 5, 5}))) /
            1000,
        2);
    EXPECT_EQ(
        l.cudnnBackendFinalize(l.operation(which, what, x, channelsLast(2, {8, 12, 3, 3}), y)) /
            1000,
        2);
  }
}
} // namespace

TEST(SimDnnRules, Descriptors) { onLibrary(checkDescriptors); }

TEST(SimDnnRules, DescriptorsOfTheRealLibrary) {
  if (!dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL))
    GTEST_SKIP() << "cuDNN is not here";
  inProcess({}, [] { checkDescriptors(DnnFunctions("libcudnn.so.9")); });
}

// What the real library may see late, or not at all.
TEST(SimDnnRules, StricterThanTheRealLibrary) {
  onLibrary([](DnnFunctions &l) {
    const List extents{2, 16, 6, 5}, strides = stridesOf(extents, true);
    auto made = [&](const List &extents, const List &strides) {
      return l.cudnnBackendFinalize(l.tensor(1, CUDNN_DATA_FLOAT, extents, strides));
    };
    EXPECT_EQ(made({2, 0, 6, 5}, strides), kBad);
    EXPECT_EQ(made(extents, {480, 1, 80, 0}), kBad);
    EXPECT_EQ(made(extents, {480, 1, 16, 16}), kBad); // elements overlap
    EXPECT_EQ(made(extents, {480, 1, 79, 16}), kBad);
    EXPECT_EQ(made(extents, {500, 1, 80, 16}), kDone);
    EXPECT_EQ(made({4, 4}, {4, 1}), kBad);

    Dnn unfinalized = l.tensor(1, CUDNN_DATA_FLOAT, extents, strides);
    Dnn operation = l.create(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    auto put = [&](Dnn element) {
      return l.set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, element);
    };
    EXPECT_EQ(put(unfinalized), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    EXPECT_EQ(put(l.finalized(l.convolution({0, 0}, {0, 0}, {1, 1}, {1, 1}))),
              CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
    EXPECT_EQ(put(nullptr), kBad);
    EXPECT_EQ(put(l.finalized(unfinalized)), kDone);
    EXPECT_EQ(l.cudnnBackendFinalize(operation), kBad); // the rest is missing
    EXPECT_EQ(l.cudnnBackendDestroyDescriptor(unfinalized), kDone);
    EXPECT_EQ(l.cudnnBackendDestroyDescriptor(unfinalized), kBad);
    EXPECT_EQ(put(unfinalized), kBad);
    EXPECT_EQ(l.set(unfinalized, CUDNN_ATTR_TENSOR_UNIQUE_ID, List{1}), kBad);
    EXPECT_EQ(l.cudnnBackendInitialize(operation), kDone); // as new
    EXPECT_EQ(l.cudnnBackendFinalize(operation), kBad);
    Dnn none = nullptr;
    EXPECT_EQ(l.cudnnBackendCreateDescriptor(CUDNN_BACKEND_RNG_DESCRIPTOR, &none), kUnsupported);
    EXPECT_EQ(l.cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, nullptr),
              CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    char text[64];
    l.cudnnGetLastErrorString(text, sizeof text);
    EXPECT_STREQ(text, "cudnnBackendCreateDescriptor: no place for the descriptor");
  });
}

TEST(SimDnnRules, NotSimulated) {
  onLibrary([](DnnFunctions &l) {
    Dnn tensor = l.tensor(1, CUDNN_DATA_INT8, {2, 16, 6, 5}, {480, 1, 80, 16});
    EXPECT_EQ(l.cudnnBackendFinalize(tensor), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
    EXPECT_EQ(l.cudnnBackendFinalize(l.convolution({0}, {0}, {1}, {1})), kUnsupported);
    Dnn flipped = l.convolution({0, 0}, {0, 0}, {1, 1}, {1, 1});
    EXPECT_EQ(l.set(flipped, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                    std::vector{CUDNN_CONVOLUTION}),
              kDone);
    EXPECT_EQ(l.cudnnBackendFinalize(flipped), kUnsupported);
    Dnn pointwise = l.create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    EXPECT_EQ(l.set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
                    std::vector{CUDNN_POINTWISE_SQRT}),
              kDone);
    EXPECT_EQ(l.set(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                    std::vector{CUDNN_DATA_FLOAT}),
              kDone);
    EXPECT_EQ(l.cudnnBackendFinalize(pointwise), kUnsupported);
  });
  onConvolution({}, [](SimConvolution &c) {
    Dnn what = c.finalized(c.convolution({1, 1}, {1, 1}, {1, 1}, {1, 1}));
    Dnn x = c.x.descriptor, w = c.filter.descriptor, y = c.y.descriptor;
    EXPECT_EQ(c.cudnnBackendFinalize(c.operation(0, what, x, w, y, 2, 0)), kUnsupported);
    EXPECT_EQ(c.cudnnBackendFinalize(c.operation(0, what, x, w, y, 1, 1)), kUnsupported);
  });
}

TEST(SimDnnRules, Graphs) {
  constexpr cudnnStatus_t kPattern = CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
  WantedConvolution wanted;
  wanted.hasBias = wanted.hasRelu = true;
  onConvolution(wanted, [&](SimConvolution &c) {
    auto graph = [&](const std::vector<Dnn> &operations) {
      Dnn made = c.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
      EXPECT_EQ(
          c.set(made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{c.handle}),
          kDone);
      EXPECT_EQ(
          c.set(made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations),
          kDone);
      return c.cudnnBackendFinalize(made);
    };
    Dnn convolution = c.operations[0], bias = c.operations[1], relu = c.operations[2];
    EXPECT_EQ(graph({relu, convolution, bias}), kDone); // in any order
    EXPECT_EQ(graph({bias, relu}), kPattern);
    EXPECT_EQ(graph({convolution, convolution}), kPattern);
    EXPECT_EQ(graph({convolution, bias, relu, relu}), kPattern);
    EXPECT_EQ(graph({convolution, relu}), kPattern);
    EXPECT_EQ(graph({convolution, bias}), kBad); // what it makes is virtual
    EXPECT_EQ(graph({convolution}), kBad);

    auto like = [&](const HostTensor &tensor, int64_t uid, bool isVirtual,
                    cudnnDataType_t type = CUDNN_DATA_FLOAT) {
      return c.finalized(c.tensor(uid, type, tensor.extents, tensor.strides, isVirtual));
    };
    Dnn what = c.finalized(c.convolution({1, 1}, {1, 1}, {1, 1}, {1, 1}));
    Dnn x = c.x.descriptor, w = c.filter.descriptor, y = c.y.descriptor;
    auto convolve = [&](Dnn x, Dnn w, Dnn y) { return c.finalized(c.operation(0, what, x, w, y)); };
    auto add = [&](Dnn x, Dnn b, Dnn y) {
      return c.finalized(c.pointwise(CUDNN_POINTWISE_ADD, x, b, y));
    };
    // A virtual tensor of halves, and one of another shape than its maker says.
    Dnn half = like(c.y, 20, true, CUDNN_DATA_HALF);
    EXPECT_EQ(graph({convolve(x, w, half), add(half, c.bias.descriptor, y)}),
              CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
    Dnn between = like(c.y, 21, true);
    Dnn other = c.finalized(
        c.tensor(21, CUDNN_DATA_FLOAT, c.y.extents, stridesOf(c.y.extents, false), true));
    EXPECT_EQ(graph({convolve(x, w, between), add(other, c.bias.descriptor, y)}), kPattern);
    // The sum of two images is no bias, a virtual operand nobody makes.
    EXPECT_EQ(graph({convolve(x, w, between), add(between, like(c.y, 22, false), y)}), kPattern);
    EXPECT_EQ(graph({convolve(like(c.x, 23, true), w, y)}), kBad);
    EXPECT_EQ(graph({convolve(x, like(c.filter, 1, false), y)}),
              CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
    // A sum of one operand, and of extents that do not fit.
    EXPECT_EQ(c.cudnnBackendFinalize(c.pointwise(CUDNN_POINTWISE_ADD, between, nullptr, y)), kBad);
    EXPECT_EQ(c.cudnnBackendFinalize(c.pointwise(CUDNN_POINTWISE_RELU_FWD, x, nullptr, y)),
              CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    EXPECT_EQ(c.cudnnBackendFinalize(c.pointwise(CUDNN_POINTWISE_ADD, between, x, y)),
              CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  });
}

TEST(SimDnnRules, GradientsHaveNoBias) {
  WantedConvolution wanted;
  wanted.which = 1;
  onConvolution(wanted, [](SimConvolution &c) {
    Dnn what = c.finalized(c.convolution({1, 1}, {1, 1}, {1, 1}, {1, 1}));
    Dnn between =
        c.finalized(c.tensor(20, CUDNN_DATA_FLOAT, c.x.extents, c.x.strides, /*isVirtual=*/true));
    Dnn gradient = c.finalized(c.operation(1, what, between, c.filter.descriptor, c.y.descriptor));
    Dnn relu = c.finalized(c.pointwise(CUDNN_POINTWISE_RELU_FWD, between, nullptr, c.x.descriptor));
    Dnn graph = c.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    EXPECT_EQ(
        c.set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{c.handle}),
        kDone);
    EXPECT_EQ(c.set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    std::vector{gradient, relu}),
              kDone);
    EXPECT_EQ(c.cudnnBackendFinalize(graph), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
  });
}

TEST(SimDnnRules, GettingDescriptors) {
  onConvolution({}, [](SimConvolution &c) {
    Dnn configuration = c.offers().front();
    auto engine = [&](Dnn into) {
      return c.cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, nullptr, &into);
    };
    Dnn fresh = c.create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    EXPECT_EQ(engine(c.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR)), kBad);
    EXPECT_EQ(engine(nullptr), kBad);
    EXPECT_EQ(engine(fresh), kDone);
    EXPECT_EQ(engine(fresh), kBad); // it is one already
    EXPECT_EQ(c.set(configuration, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, List{0}), kBad);
    int64_t count = -1;
    EXPECT_EQ(c.cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
              kDone);
    EXPECT_EQ(count, 0);
    // Of many notes, as many as there is room for.
    Dnn winograd = c.engineOf(c.offers()[2]);
    std::vector<cudnnBackendNumericalNote_t> notes(2, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    EXPECT_EQ(c.cudnnBackendGetAttribute(winograd, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                         CUDNN_TYPE_NUMERICAL_NOTE, 1, &count, notes.data()),
              kDone);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(notes[0], CUDNN_NUMERICAL_NOTE_WINOGRAD);
    EXPECT_EQ(notes[1], CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  });
}

TEST(SimDnnRules, Executions) {
  std::string said = onConvolution({}, [](SimConvolution &c) {
    Dnn plan = c.exactPlan();
    auto [uids, addresses] = c.tensors();
    auto run = [&, plan = plan](const List &uids, const std::vector<CUdeviceptr> &addresses) {
      return c.run(plan, uids, addresses, 0);
    };
    auto with = [&, addresses = addresses](size_t at, CUdeviceptr address) {
      std::vector<CUdeviceptr> changed = addresses;
      changed[at] = address;
      return changed;
    };
    EXPECT_EQ(run(uids, addresses), kDone);
    EXPECT_EQ(run({1, 2}, {addresses[0], addresses[1]}), kBad);
    EXPECT_EQ(run({1, 2, 7}, addresses), kBad);
    EXPECT_EQ(run({1, 2, 3, 7}, {addresses[0], addresses[1], addresses[2], addresses[0]}), kBad);
    EXPECT_EQ(run(uids, with(0, 0)), kBad);
    EXPECT_EQ(run(uids, with(0, addresses[0] + 4)), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    EXPECT_EQ(run(uids, with(2, addresses[0] + 16)), kBad); // the result overlaps x
    Dnn pack = c.pack(uids, addresses, 0);
    EXPECT_EQ(c.cudnnBackendExecute(c.handle, plan, pack), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    c.finalized(pack);
    EXPECT_EQ(c.cudnnBackendExecute(c.handle, pack, plan), kBad);
    Dnn unfinalized = c.plan(c.offers().back());
    EXPECT_EQ(c.cudnnBackendExecute(c.handle, unfinalized, pack),
              CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    EXPECT_EQ(c.cudnnBackendFinalize(c.pack({1, 2, 2}, addresses, 0)),
              CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
    EXPECT_EQ(c.cudnnBackendFinalize(c.pack({1, 2}, addresses, 0)), kBad);
    EXPECT_EQ(c.cudnnDestroy(c.handle), kDone);
    EXPECT_EQ(c.cudnnDestroy(c.handle), kBad);
    EXPECT_EQ(c.cudnnBackendExecute(c.handle, plan, pack), kBad);
    cudnnHandle_t other = nullptr; // its plan's handle is gone
    EXPECT_EQ(c.cudnnCreate(&other), kDone);
    EXPECT_EQ(c.cudnnBackendExecute(other, plan, pack), kBad);
  });
  expectSaid(said, "is not aligned to the 16 bytes that it was said to be");
  expectSaid(said, "overlaps the result");
}

// Descriptors that others were made of may go.
TEST(SimDnnRules, WhatAPlanIsMadeOfMayGo) {
  WantedConvolution wanted;
  wanted.hasBias = true;
  onConvolution(wanted, [](SimConvolution &c) {
    Dnn configuration = c.offers().back(), plan = c.finalized(c.plan(configuration));
    std::vector<Dnn> parts = c.operations;
    for (Dnn each : {c.x.descriptor, c.filter.descriptor, c.y.descriptor, c.graph, configuration})
      parts.push_back(each);
    for (Dnn each : parts)
      EXPECT_EQ(c.cudnnBackendDestroyDescriptor(each), kDone);
    EXPECT_EQ(c.run(plan), kDone);
    EXPECT_LE(c.error(), 1);
  });
}
