//===- SimDriverDnnTest.cpp - the simulated cuDNN: what it computes -------------------------===//

#include "SimDriverDnnSupport.h"
#include <atomic>
#include <cfloat>
#include <filesystem>
#include <thread>

namespace fs = std::filesystem;
using namespace mpc::test;

namespace {
constexpr cudnnDataType_t kTypes[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};

WantedConvolution wanted(int which, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
  WantedConvolution w;
  w.which = which;
  w.type = w.resultType = type;
  return w;
}

void expectExact(SimConvolution &c) {
  Dnn plan = c.exactPlan();
  EXPECT_EQ(c.run(plan), kDone);
  EXPECT_LE(c.error(), 1);
}
} // namespace

//===- Numbers ----------------------------------------------------------------------------===//

TEST(SimDnn, TypesAndLayouts) {
  for (int which = 0; which < 3; ++which)
    for (cudnnDataType_t type : kTypes)
      for (int layout = 0; layout < 4; ++layout) {
        WantedConvolution w = wanted(which, type);
        w.isChannelsLast = layout & 1;
        w.isFilterLast = layout & 2;
        onConvolution(w, expectExact);
      }
}

// Strides that divide the image and such that do not, dilations, asymmetric padding.
TEST(SimDnn, Windows) {
  for (int which = 0; which < 3; ++which)
    for (int bits = 0; bits < 8; ++bits) {
      WantedConvolution w = wanted(which);
      w.image = {11, 8};
      w.filter = {3, 2};
      w.post = {1, 0};
      w.pre = bits & 1 ? List{0, 2} : w.post;
      w.strides = bits & 2 ? List{2, 3} : List{1, 1};
      w.dilations = bits & 4 ? List{2, 3} : List{1, 1};
      onConvolution(w, expectExact);
    }
}

TEST(SimDnn, Groups) {
  for (int which = 0; which < 3; ++which)
    for (int64_t groups : {2, 4, 16}) {
      WantedConvolution w = wanted(which);
      w.k = 32;
      w.groups = groups;
      onConvolution(w, expectExact);
    }
}

TEST(SimDnn, ThreeDimensions) {
  for (int which = 0; which < 3; ++which) {
    WantedConvolution w = wanted(which, CUDNN_DATA_HALF);
    w.image = {4, 5, 6};
    w.filter = {2, 3, 1};
    w.pre = w.post = {0, 1, 0};
    w.strides = {1, 2, 1};
    w.dilations = {2, 1, 1};
    onConvolution(w, expectExact);
  }
}

// What lies between the images stays.
TEST(SimDnn, Gaps) {
  for (int which = 0; which < 3; ++which) {
    WantedConvolution w = wanted(which);
    w.gap = 7;
    onConvolution(w, [](SimConvolution &c) {
      std::vector<uint8_t> before = c.download();
      expectExact(c);
      std::vector<uint8_t> after = c.download();
      uint64_t gap = 4 * (c.result.strides[0] - 7);
      EXPECT_NE(std::memcmp(before.data(), after.data(), gap), 0);
      EXPECT_EQ(std::memcmp(before.data() + gap, after.data() + gap, 28), 0);
    });
  }
}

TEST(SimDnn, BiasAndRelu) {
  for (cudnnDataType_t type : kTypes)
    for (bool hasRelu : {false, true}) {
      WantedConvolution w = wanted(0, type);
      w.hasBias = true;
      w.hasRelu = hasRelu;
      onConvolution(w, expectExact);
    }
}

// What only an engine takes that is compiled for the graph.
TEST(SimDnn, OtherPatterns) {
  auto compiled = [](SimConvolution &c) {
    for (Dnn configuration : c.offers())
      EXPECT_TRUE(c.isCompiled(configuration) || !c.isExact(configuration));
    expectExact(c);
  };
  for (cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    WantedConvolution relu = wanted(0, type);
    relu.hasRelu = true;
    onConvolution(relu, compiled);
    for (int which = 0; which < 3; ++which) {
      WantedConvolution identity = wanted(which, type);
      identity.hasIdentity = true;
      identity.resultType = CUDNN_DATA_FLOAT;
      onConvolution(identity, compiled);
    }
  }
}

TEST(SimDnn, ReluKeepsNaNWhereItIsAskedTo) {
  for (auto nan : {CUDNN_PROPAGATE_NAN, CUDNN_NOT_PROPAGATE_NAN}) {
    WantedConvolution w = wanted(0);
    w.hasBias = w.hasRelu = true;
    w.nan = nan;
    onConvolution(w, [](SimConvolution &c) {
      c.bias.put(3, NAN);
      c.gpu.ok(c.gpu.cuMemcpyHtoDAsync(c.bias.address, c.bias.values.data(), c.bias.values.size(),
                                       c.stream));
      expectExact(c);
    });
  }
}

// The bound is the caller's: infinite where that is asked for, else the largest number at most.
TEST(SimDnn, ReluHasABound) {
  for (double most : {double(FLT_MAX), HUGE_VAL}) {
    WantedConvolution w = wanted(0);
    w.hasBias = w.hasRelu = true;
    w.reluMost = most;
    onConvolution(w, [=](SimConvolution &c) {
      c.bias.put(3, HUGE_VALF);
      c.gpu.ok(c.gpu.cuMemcpyHtoDAsync(c.bias.address, c.bias.values.data(), c.bias.values.size(),
                                       c.stream));
      EXPECT_EQ(c.run(c.exactPlan()), kDone);
      HostTensor got = c.result;
      got.values = c.download();
      EXPECT_EQ(got.at(3 * got.strides[1]), most);
    });
  }
}

//===- Engines ----------------------------------------------------------------------------===//

// What a caller gets that does not look at the notes.
TEST(SimDnn, TheFirstEnginesAreInexact) {
  for (int which = 0; which < 3; ++which)
    for (cudnnDataType_t type : kTypes) {
      WantedConvolution w = wanted(which, type);
      onConvolution(w, [](SimConvolution &c) {
        std::vector<Dnn> offers = c.offers();
        ASSERT_GT(offers.size(), 1U);
        EXPECT_FALSE(c.isExact(offers.front()));
        EXPECT_TRUE(c.isExact(offers.back()));
        for (Dnn configuration : offers) {
          EXPECT_EQ(c.run(c.finalized(c.plan(configuration))), kDone);
          // In float, only the order of sums may differ.
          bool isExact = c.isExact(configuration) ||
                         (c.w.type == CUDNN_DATA_FLOAT &&
                          c.has(configuration, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
          EXPECT_EQ(c.error() <= 1, isExact);
          c.workspace = 0;
        }
      });
    }
}

TEST(SimDnn, RunsDifferOnlyWhereTheEngineSaysSo) {
  WantedConvolution w = wanted(2);
  w.n = 16;
  onConvolution(w, [](SimConvolution &c) {
    for (Dnn configuration : c.offers()) {
      Dnn plan = c.finalized(c.plan(configuration));
      EXPECT_EQ(c.run(plan), kDone);
      std::vector<uint8_t> first = c.download();
      EXPECT_EQ(c.run(plan), kDone);
      EXPECT_EQ(c.download() != first, c.has(configuration, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
    }
  });
}

// As the real library's heuristics answer.
TEST(SimDnn, NoEngine) {
  auto none = [](SimConvolution &c) {
    EXPECT_TRUE(c.offers().empty());
    EXPECT_TRUE(c.offers(CUDNN_HEUR_MODE_FALLBACK).empty());
  };
  for (int which = 0; which < 3; ++which) {
    WantedConvolution direct = wanted(which, CUDNN_DATA_HALF);
    direct.resultType = CUDNN_DATA_FLOAT;
    onConvolution(direct, none);
    WantedConvolution mixed = direct;
    mixed.hasIdentity = true;
    mixed.isFilterLast = false;
    onConvolution(mixed, none);
    mixed.isChannelsLast = false;
    onConvolution(mixed, none);
    WantedConvolution grouped = direct;
    grouped.hasIdentity = true;
    grouped.groups = 2;
    onConvolution(grouped, none);
    onConvolution(wanted(which, CUDNN_DATA_BFLOAT16), none, {{"MPC_SIM_CC", "7.5"}});
  }
  WantedConvolution relu = wanted(0, CUDNN_DATA_HALF);
  relu.hasRelu = true;
  relu.isChannelsLast = relu.isFilterLast = false;
  onConvolution(relu, none);
  // In float, TF32 alone is compiled for it.
  relu = wanted(0);
  relu.hasRelu = true;
  onConvolution(relu, [](SimConvolution &c) {
    for (Dnn configuration : c.offers())
      EXPECT_FALSE(c.isExact(configuration));
  });
}

TEST(SimDnn, Fallback) {
  onConvolution(wanted(0, CUDNN_DATA_HALF), [](SimConvolution &c) {
    std::vector<Dnn> offers = c.offers(CUDNN_HEUR_MODE_FALLBACK);
    ASSERT_EQ(offers.size(), 1U);
    EXPECT_EQ(c.run(c.finalized(c.plan(offers[0]))), kDone);
    EXPECT_LE(c.error(), 1);
  });
}

// An engine is offered, and then it is not for this convolution: the next one is.
TEST(SimDnn, PlansThatCannotBeMade) {
  auto statuses = [](SimConvolution &c) {
    std::vector<cudnnStatus_t> found;
    for (Dnn configuration : c.offers())
      found.push_back(c.cudnnBackendFinalize(c.plan(configuration)));
    return found;
  };
  WantedConvolution odd = wanted(0, CUDNN_DATA_HALF);
  odd.c = 3;
  onConvolution(odd, [&](SimConvolution &c) {
    EXPECT_EQ(statuses(c), (std::vector{kDone, CUDNN_STATUS_NOT_SUPPORTED_SHAPE, kDone, kDone}));
    expectExact(c);
  });
  WantedConvolution gradient = wanted(2, CUDNN_DATA_HALF);
  gradient.c = 3;
  gradient.hasIdentity = true;
  gradient.resultType = CUDNN_DATA_FLOAT;
  std::string said = onConvolution(gradient, [&](SimConvolution &c) {
    EXPECT_EQ(statuses(c), (std::vector{kDone, CUDNN_STATUS_NOT_SUPPORTED_SHAPE}));
    char text[200];
    c.cudnnGetLastErrorString(text, sizeof text);
    EXPECT_NE(std::strstr(text, "needs channels in multiples of 2"), nullptr) << text;
  });
  EXPECT_EQ(said, ""); // it is an answer, not an error
  WantedConvolution padded = wanted(0, CUDNN_DATA_HALF);
  padded.post = {1, 2};
  padded.isFilterLast = false;
  onConvolution(padded, [&](SimConvolution &c) {
    EXPECT_EQ(statuses(c), (std::vector{kDone, CUDNN_STATUS_NOT_SUPPORTED_PADDING, kDone, kDone}));
    expectExact(c);
  });
}

// The last offer is the engine before it with a knob turned: it adds in another order.
TEST(SimDnn, Knobs) {
  onConvolution(wanted(0), [](SimConvolution &c) {
    std::vector<Dnn> offers = c.offers();
    std::vector<std::vector<uint8_t>> results;
    for (Dnn configuration : {offers[offers.size() - 2], offers.back()}) {
      EXPECT_EQ(c.run(c.finalized(c.plan(configuration))), kDone);
      EXPECT_LE(c.error(), 1);
      results.push_back(c.download());
      EXPECT_EQ(c.get<int64_t>(c.engineOf(configuration), CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                               CUDNN_TYPE_INT64),
                List{0});
    }
    EXPECT_NE(results[0], results[1]);
    Dnn knob = c.create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    int64_t count = 0;
    EXPECT_EQ(c.cudnnBackendGetAttribute(offers.back(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &knob),
              kDone);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(c.get<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64), List{32});
    // The same by hand; another value, or another engine's, is none.
    auto configure = [&](int64_t value, Dnn engine) {
      Dnn turned = c.create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
      EXPECT_EQ(c.set(turned, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                      std::vector{CUDNN_KNOB_TYPE_TILE_SIZE}),
                kDone);
      EXPECT_EQ(c.set(turned, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, List{value}), kDone);
      Dnn made = c.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      EXPECT_EQ(c.set(made, CUDNN_ATTR_ENGINECFG_ENGINE, engine), kDone);
      EXPECT_EQ(c.set(made, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, c.finalized(turned)), kDone);
      return c.cudnnBackendFinalize(made);
    };
    EXPECT_EQ(configure(32, c.engineOf(offers.back())), kDone);
    EXPECT_EQ(configure(33, c.engineOf(offers.back())), CUDNN_STATUS_BAD_PARAM);
    EXPECT_EQ(configure(32, c.engineOf(offers.front())), CUDNN_STATUS_BAD_PARAM);
  });
}

// While one makes a plan with it.
TEST(SimDnn, AHandleIsForOneThreadAtATime) {
  std::string said = onConvolution(wanted(0),
                                   [](SimConvolution &c) {
                                     Dnn plan = c.plan(c.offers().back());
                                     std::atomic<bool> isDone = false;
                                     std::thread other([&] {
                                       c.gpu.ok(c.gpu.cuCtxSetCurrent(c.gpu.context));
                                       EXPECT_EQ(c.cudnnBackendFinalize(plan), kDone);
                                       isDone = true;
                                     });
                                     cudnnStatus_t status = kDone;
                                     while (!isDone && status == kDone)
                                       status = c.cudnnSetStream(c.handle, c.stream);
                                     EXPECT_EQ(status, CUDNN_STATUS_EXECUTION_FAILED);
                                     other.join();
                                     EXPECT_EQ(c.cudnnSetStream(c.handle, c.stream), kDone);
                                     // A handle of its own serves.
                                     cudnnHandle_t own = nullptr;
                                     EXPECT_EQ(c.cudnnCreate(&own), kDone);
                                     EXPECT_EQ(c.cudnnSetStream(own, c.stream), kDone);
                                   },
                                   {{"MPC_SIM_PLAN_MILLISECONDS", "200"}});
  expectSaid(said, "cudnnSetStream: another thread uses the handle at the same time");
}

TEST(SimDnn, EnginesByTheirNumber) {
  onConvolution(wanted(0), [](SimConvolution &c) {
    int64_t count =
        c.get<int64_t>(c.graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64)
            .at(0);
    auto engine = [&](int64_t index) {
      Dnn made = c.create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      EXPECT_EQ(c.set(made, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, c.graph), kDone);
      EXPECT_EQ(c.set(made, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, List{index}), kDone);
      return made;
    };
    EXPECT_EQ(c.cudnnBackendFinalize(engine(count)), CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
    EXPECT_EQ(c.cudnnBackendFinalize(engine(-1)), CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
    EXPECT_EQ(c.cudnnBackendFinalize(engine(1)), CUDNN_STATUS_NOT_SUPPORTED); // for halves
    Dnn configuration = c.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    EXPECT_EQ(c.set(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, c.finalized(engine(0))), kDone);
    EXPECT_EQ(c.run(c.finalized(c.plan(c.finalized(configuration)))), kDone);
    EXPECT_LE(c.error(), 1);
  });
}

TEST(SimDnn, Workspace) {
  WantedConvolution w = wanted(2, CUDNN_DATA_HALF);
  w.isFilterLast = false;
  std::string said = onConvolution(w, [](SimConvolution &c) {
    Dnn plan = c.exactPlan();
    int64_t bytes = c.workspaceBytes(plan);
    EXPECT_EQ(bytes, int64_t(8) * 8 * 16 * 9 * 4);
    EXPECT_EQ(c.run(plan), kDone);
    EXPECT_LE(c.error(), 1);
    // What was there is gone.
    EXPECT_EQ(c.gpu.download(c.stream, c.workspace, 1)[0], 0xFFFFFFFF);
    auto [uids, addresses] = c.tensors();
    EXPECT_EQ(c.run(plan, uids, addresses, 0), CUDNN_STATUS_BAD_PARAM);
    EXPECT_EQ(c.run(plan, uids, addresses, c.workspace + 64), CUDNN_STATUS_BAD_PARAM);
    EXPECT_EQ(c.run(plan, uids, addresses, c.x.address & ~CUdeviceptr(255)),
              CUDNN_STATUS_BAD_PARAM);
    // That it is too small is seen when it is written.
    CUdeviceptr small = 0;
    c.gpu.ok(c.gpu.cuMemAlloc(&small, bytes - 1));
    EXPECT_EQ(c.run(plan, uids, addresses, small), kDone);
    EXPECT_EQ(c.gpu.cuStreamSynchronize(c.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
  expectSaid(said, "needs a workspace of 36864 bytes, aligned to 256");
  expectSaid(said, "a convolution's filter gradient of [2, 16, 6, 5] and [8, 16, 3, 3] by cuDNN: "
                   "accesses memory outside of every buffer");
}

//===- Streams ----------------------------------------------------------------------------===//

TEST(SimDnn, ItRunsWhenItsStreamGetsThere) {
  onConvolution(wanted(0), [](SimConvolution &c) {
    uint32_t *seen = c.gpu.pinned(1);
    Dnn plan = c.exactPlan();
    c.gpu.ok(c.gpu.cuStreamSynchronize(c.stream));
    c.gpu.ok(c.gpu.set(c.stream, c.result.address, 0x55, 1));
    EXPECT_EQ(c.run(plan), kDone);
    c.gpu.ok(c.gpu.cuMemcpyDtoHAsync(seen, c.result.address, 4, c.stream));
    *seen = 7;
    EXPECT_EQ(*seen, 7U); // nothing has run yet
    c.gpu.ok(c.gpu.cuStreamSynchronize(c.stream));
    EXPECT_NE(*seen, 7U);
    EXPECT_NE(*seen, 0x55555555U);
    EXPECT_LE(c.error(), 1);
    cudaStream_t of = nullptr;
    EXPECT_EQ(c.cudnnGetStream(c.handle, &of), kDone);
    EXPECT_EQ(of, c.stream);
    EXPECT_EQ(c.cudnnSetStream(c.handle, nullptr), kDone);
    EXPECT_EQ(c.run(plan), CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  });
}

TEST(SimDnn, AGraphHoldsIt) {
  onConvolution(wanted(0), [](SimConvolution &c) {
    Dnn plan = c.exactPlan(), late = c.plan(c.offers().back());
    c.gpu.ok(c.gpu.cuStreamSynchronize(c.stream));
    c.gpu.ok(c.gpu.cuStreamBeginCapture(c.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(c.run(plan), kDone);
    CUgraph graph = nullptr;
    c.gpu.ok(c.gpu.cuStreamEndCapture(c.stream, &graph));
    CUgraphExec executable = nullptr;
    c.gpu.ok(c.gpu.cuGraphInstantiate(&executable, graph, 0));
    c.gpu.ok(c.gpu.set(c.stream, c.result.address, 0, c.result.values.size() / 4));
    EXPECT_GT(c.error(), 1);
    c.gpu.ok(c.gpu.cuGraphLaunch(executable, c.stream));
    EXPECT_LE(c.error(), 1);
    // A plan loads kernels, which a capture of the whole process forbids.
    c.gpu.ok(c.gpu.cuStreamBeginCapture(c.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_EQ(c.cudnnBackendFinalize(late), CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  });
}

// The code that is compiled for a plan goes with it.
TEST(SimDnn, AGraphOutlivesItsPlan) {
  for (bool isCompiled : {true, false}) {
    std::string said = onConvolution(wanted(0, CUDNN_DATA_HALF), [&](SimConvolution &c) {
      Dnn plan = nullptr;
      for (Dnn configuration : c.offers())
        if (c.isCompiled(configuration) == isCompiled)
          plan = c.plan(configuration);
      EXPECT_EQ(c.run(c.finalized(plan)), kDone);
      EXPECT_EQ(c.cudnnBackendDestroyDescriptor(plan), kDone);
      EXPECT_EQ(c.error() > 1, isCompiled);
    });
    EXPECT_EQ(said.find("runs after its plan was destroyed") != std::string::npos, isCompiled);
  }
}

TEST(SimDnn, Races) {
  std::string said = onConvolution(wanted(0), [](SimConvolution &c) {
    Dnn plan = c.exactPlan();
    c.gpu.ok(c.gpu.cuStreamSynchronize(c.stream));
    EXPECT_EQ(c.run(plan), kDone);
    c.gpu.ok(c.gpu.set(c.gpu.stream(), c.filter.address, 0, 1));
    EXPECT_EQ(c.gpu.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  });
  expectSaid(said, "a race between streams");
  expectSaid(said, "a convolution of [2, 16, 6, 5] and [8, 16, 3, 3] by cuDNN");
}

TEST(SimDnn, FreedMemory) {
  std::string said = onConvolution(wanted(0), [](SimConvolution &c) {
    Dnn plan = c.exactPlan();
    c.gpu.ok(c.gpu.cuMemFree(c.filter.address));
    EXPECT_EQ(c.run(plan), kDone);
    EXPECT_EQ(c.gpu.cuStreamSynchronize(c.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
  expectSaid(said, "accesses memory outside of every buffer (a read of 4608 bytes");
}

//===- Settings ---------------------------------------------------------------------------===//

TEST(SimDnn, FaultsOnRequest) {
  std::string said = onConvolution(wanted(0),
                                   [](SimConvolution &c) {
                                     Dnn plan = c.exactPlan();
                                     EXPECT_EQ(c.run(plan), kDone);
                                     EXPECT_EQ(c.run(plan), CUDNN_STATUS_EXECUTION_FAILED);
                                     EXPECT_EQ(c.run(plan), kDone);
                                     EXPECT_LE(c.error(), 1);
                                   },
                                   {{"MPC_SIM_FAULT", "dnn:2"}});
  expectSaid(said, "fails as MPC_SIM_FAULT asks for");
  said = onConvolution(
      wanted(0),
      [](SimConvolution &c) {
        auto finalize = [&] { return c.cudnnBackendFinalize(c.plan(c.offers().back())); };
        EXPECT_EQ(finalize(), CUDNN_STATUS_INTERNAL_ERROR);
        EXPECT_EQ(finalize(), CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
        Dnn plan = c.exactPlan();
        EXPECT_EQ(c.run(plan), CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
        EXPECT_EQ(c.run(plan), kDone);
        cudnnHandle_t handle = nullptr;
        EXPECT_EQ(c.cudnnCreate(&handle), CUDNN_STATUS_NOT_INITIALIZED);
      },
      {{"MPC_SIM_FAULT", "plan:1,plan-memory:1,dnn-unsupported:1,dnn-start:2"}});
  EXPECT_EQ(said, ""); // they are answers
}

// As NVIDIA's.
TEST(SimDnn, WithoutItsGraphPart) {
  withoutLibraries({"libcudnn_graph.so.9"}, [] {
    char folder[] = "/tmp/mpc-cudnn-XXXXXX";
    fs::path alone = fs::path(mkdtemp(folder)) / "libcudnn.so.9";
    fs::copy_file(fs::canonical(MPC_TEST_SIM_DNN), alone);
    inProcess({}, [&] {
      SimDriver driver; // which it is linked with
      DnnFunctions library(alone.c_str());
      EXPECT_DEATH(library.cudnnGetVersion(), "cannot open libcudnn_graph.so.9");
    });
    fs::remove_all(folder);
  });
}

TEST(SimDnn, VersionsAndStart) {
  auto version = [](size_t expected) {
    return [=](SimGpu &) { EXPECT_EQ(DnnFunctions(MPC_TEST_SIM_DNN).cudnnGetVersion(), expected); };
  };
  onGpu(version(CUDNN_VERSION));
  onGpu(version(90100), {{"MPC_SIM_DNN_VERSION", "90100"}});
  onGpu(
      [](SimGpu &) {
        DnnFunctions library(MPC_TEST_SIM_DNN);
        cudnnHandle_t handle = nullptr;
        EXPECT_EQ(library.cudnnCreate(&handle), CUDNN_STATUS_NOT_INITIALIZED);
        EXPECT_STREQ(library.cudnnGetErrorString(CUDNN_STATUS_NOT_INITIALIZED),
                     "CUDNN_STATUS_NOT_INITIALIZED");
        EXPECT_EQ(library.cudnnGetCudartVersion() / 1000, 12U);
      },
      {{"MPC_SIM_DNN", "0"}});
  inProcess({}, [] { // no context
    DnnFunctions library(MPC_TEST_SIM_DNN);
    cudnnHandle_t handle = nullptr;
    EXPECT_EQ(library.cudnnCreate(&handle), CUDNN_STATUS_NOT_INITIALIZED);
  });
}
