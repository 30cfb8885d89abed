//===- SimDriverGraphTest.cpp - the simulated driver: captures and graphs -------------------===//

#include "SimDriverSupport.h"
#include <thread>

using namespace mpc::test;

namespace {
constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kThread = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

CUstreamCaptureStatus statusOf(SimGpu &gpu, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  gpu.ok(gpu.cuStreamIsCapturing(stream, &status));
  return status;
}

/// Of what `issue` puts into the stream.
CUgraph capture(SimGpu &gpu, CUstream stream, const std::function<void()> &issue,
                CUstreamCaptureMode mode = kThread) {
  CUgraph graph = nullptr;
  gpu.ok(gpu.cuStreamBeginCapture(stream, mode));
  issue();
  gpu.ok(gpu.cuStreamEndCapture(stream, &graph));
  return graph;
}

CUgraphExec instantiate(SimGpu &gpu, CUgraph graph) {
  CUgraphExec executable = nullptr;
  gpu.ok(gpu.cuGraphInstantiate(&executable, graph, 0));
  gpu.ok(gpu.cuGraphDestroy(graph));
  return executable;
}

/// A call that must fail inside of a capture and end its use.
void expectInvalidates(CUresult expected, CUstreamCaptureMode mode,
                       const std::function<CUresult(SimGpu &, CUstream)> &call) {
  onGpu([&](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUgraph graph = nullptr;
    CUdeviceptr memory = gpu.memory(1);
    EXPECT_EQ(gpu.cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
    EXPECT_EQ(gpu.set(stream, memory, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(call(gpu, stream), expected);
    EXPECT_EQ(statusOf(gpu, stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(gpu.set(stream, memory, 0, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(gpu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(graph, nullptr);
    // The stream is of use again.
    EXPECT_EQ(statusOf(gpu, stream), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(gpu.set(stream, memory, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  });
}
} // namespace

TEST(SimDriverGraphs, CapturedWorkRunsWithEveryLaunch) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr memory = gpu.memory(32), argument = memory;
    gpu.upload(stream, memory, std::vector<uint32_t>(32));
    CUfunction addOne = gpu.function("addOne");
    CUgraph graph = capture(gpu, stream, [&] {
      EXPECT_EQ(statusOf(gpu, stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
      void *parameters[] = {&argument};
      for (int i = 0; i < 2; ++i)
        EXPECT_EQ(gpu.cuLaunchKernel(addOne, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr),
                  CUDA_SUCCESS);
    });
    argument = 0;                                      // nodes have their own values
    EXPECT_EQ(gpu.download(stream, memory, 1)[0], 0u); // nothing has run
    CUgraphExec executable = instantiate(gpu, graph);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(gpu.cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.download(stream, memory, 1)[0], 6u);
    // A launch that is queued outlives its graph.
    EXPECT_EQ(gpu.cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuGraphExecDestroy(executable), CUDA_SUCCESS);
    EXPECT_EQ(gpu.download(stream, memory, 1)[0], 8u);
    EXPECT_EQ(gpu.cuGraphLaunch(executable, stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.cuGraphExecDestroy(executable), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.cuGraphDestroy(graph), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.cuGraphInstantiate(&executable, graph, 0), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(SimDriverGraphs, CopiesFromPinnedMemoryReadItAtEveryLaunch) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr memory = gpu.memory(1);
    uint32_t *pinned = gpu.pinned(1);
    CUgraphExec executable = instantiate(gpu, capture(gpu, stream, [&] {
                                           gpu.ok(gpu.cuMemcpyHtoDAsync(memory, pinned, 4, stream));
                                         }));
    for (uint32_t value : {5, 6}) {
      *pinned = value;
      EXPECT_EQ(gpu.cuGraphLaunch(executable, stream), CUDA_SUCCESS);
      EXPECT_EQ(gpu.download(stream, memory, 1)[0], value);
    }
  });
}

// Launches of one graph come one after the other, in whatever streams.
TEST(SimDriverGraphs, LaunchesInTwoStreams) {
  onGpu([](SimGpu &gpu) {
    CUstream a = gpu.stream(), b = gpu.stream();
    CUdeviceptr memory = gpu.memory(32);
    gpu.upload(a, memory, std::vector<uint32_t>(32));
    CUfunction addOne = gpu.function("addOne");
    CUgraphExec executable =
        instantiate(gpu, capture(gpu, a, [&] { gpu.ok(gpu.launch(a, addOne, {memory})); }));
    EXPECT_EQ(gpu.cuGraphLaunch(executable, a), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuGraphLaunch(executable, b), CUDA_SUCCESS);
    EXPECT_EQ(gpu.download(b, memory, 1)[0], 2u);
    // What else touches the memory is not ordered by that.
    EXPECT_EQ(gpu.cuGraphLaunch(executable, a), CUDA_SUCCESS);
    EXPECT_EQ(gpu.set(b, memory, 0, 32), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  });
}

TEST(SimDriverGraphs, MemoryThatIsGone) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr memory = gpu.memory(1);
    CUgraphExec executable =
        instantiate(gpu, capture(gpu, stream, [&] { gpu.ok(gpu.set(stream, memory, 0, 1)); }));
    EXPECT_EQ(gpu.cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST(SimDriverGraphs, FaultsOnRequest) {
  onGpu(
      [](SimGpu &gpu) {
        CUstream stream = gpu.stream();
        CUgraphExec executable = instantiate(gpu, capture(gpu, stream, [] {}));
        EXPECT_EQ(gpu.cuGraphLaunch(executable, stream), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuGraphLaunch(executable, stream), CUDA_ERROR_LAUNCH_FAILED);
        EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
      },
      {{"MPC_SIM_FAULT", "launch:2"}});
}

//===- Several streams --------------------------------------------------------------------===//

namespace {
/// set(a) ── addOne(a) ── copy(c, a)     with addOne(b) beside addOne(a), and joined by `isJoined`,
///      └─── addOne(b) ──────┘           on the same memory if `isShared`.
CUresult captureFork(SimGpu &gpu, CUstream stream, CUdeviceptr a, CUdeviceptr b, bool isJoined,
                     CUgraph &graph) {
  CUstream other = gpu.stream();
  CUfunction addOne = gpu.function("addOne");
  gpu.ok(gpu.cuStreamBeginCapture(stream, kThread));
  gpu.ok(gpu.set(stream, a, 0, 32));
  gpu.order(stream, other);
  EXPECT_EQ(statusOf(gpu, other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  gpu.ok(gpu.launch(stream, addOne, {a}));
  gpu.ok(gpu.launch(other, addOne, {b}));
  if (isJoined)
    gpu.order(other, stream);
  CUresult result = gpu.cuStreamEndCapture(stream, &graph);
  EXPECT_EQ(statusOf(gpu, other), CU_STREAM_CAPTURE_STATUS_NONE);
  return result;
}
} // namespace

TEST(SimDriverGraphs, ForksAreJoined) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr a = gpu.memory(32), b = gpu.memory(32);
    gpu.upload(stream, b, std::vector<uint32_t>(32));
    CUgraph graph = nullptr;
    EXPECT_EQ(captureFork(gpu, stream, a, b, false, graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(captureFork(gpu, stream, a, b, true, graph), CUDA_SUCCESS);
    CUgraphExec executable = instantiate(gpu, graph);
    for (uint32_t launches : {1, 2, 3}) {
      EXPECT_EQ(gpu.cuGraphLaunch(executable, stream), CUDA_SUCCESS);
      EXPECT_EQ(gpu.download(stream, a, 1)[0], 1u);
      EXPECT_EQ(gpu.download(stream, b, 1)[0], launches);
    }
  });
}

TEST(SimDriverGraphs, BranchesRace) {
  std::string said = onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr a = gpu.memory(32);
    CUgraph graph = nullptr;
    EXPECT_EQ(captureFork(gpu, stream, a, a, true, graph), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuGraphLaunch(instantiate(gpu, graph), stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
  });
  // The branch that was captured last runs first.
  expectSaid(said, "a race between streams: kernel addOne in a branch of a graph and kernel addOne "
                   "in stream 1 touch the 128 bytes at 0x");
}

TEST(SimDriverGraphs, TheRulesOfCaptures) {
  onGpu([](SimGpu &gpu) {
    CUstream a = gpu.stream(), b = gpu.stream();
    CUgraph graph = nullptr;
    EXPECT_EQ(gpu.cuStreamBeginCapture(a, CUstreamCaptureMode(7)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_EQ(gpu.cuStreamBeginCapture(a, kThread), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamBeginCapture(a, kThread), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_EQ(gpu.cuStreamEndCapture(a, nullptr), CUDA_ERROR_INVALID_VALUE);
    // It ends where it began, in the thread where it began.
    std::thread([&] {
      EXPECT_EQ(gpu.cuCtxSetCurrent(gpu.context), CUDA_SUCCESS);
      EXPECT_EQ(gpu.cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }).join();
    gpu.order(a, b);
    EXPECT_EQ(gpu.cuStreamEndCapture(a, &graph), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamBeginCapture(a, kRelaxed), CUDA_SUCCESS);
    std::thread([&] {
      EXPECT_EQ(gpu.cuCtxSetCurrent(gpu.context), CUDA_SUCCESS);
      EXPECT_EQ(gpu.cuStreamEndCapture(a, &graph), CUDA_SUCCESS);
    }).join();
    EXPECT_EQ(gpu.cuStreamBeginCapture(a, kThread), CUDA_SUCCESS);
    gpu.order(a, b);
    EXPECT_EQ(gpu.cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    EXPECT_EQ(gpu.cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
}

// Drivers load kernels late, and may have to wait for that.
TEST(SimDriverGraphs, KernelsAreLoadedBefore) {
  for (int how = 0; how < 3; ++how) {
    std::string said = onGpu([&](SimGpu &gpu) {
      CUstream stream = gpu.stream();
      CUfunction nothing = gpu.function("nothing", /*isLoaded=*/false);
      if (how == 1)
        gpu.ok(gpu.cuFuncLoad(nothing));
      if (how == 2)
        gpu.ok(gpu.launch(stream, nothing, {}));
      gpu.ok(gpu.cuStreamBeginCapture(stream, kRelaxed));
      EXPECT_EQ(gpu.launch(stream, nothing, {}),
                how ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      CUgraph graph = nullptr;
      EXPECT_EQ(gpu.cuStreamEndCapture(stream, &graph),
                how ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      // What is loaded may be loaded again at any time.
      gpu.ok(gpu.cuStreamBeginCapture(stream, kGlobal));
      EXPECT_EQ(gpu.cuFuncLoad(nothing),
                how ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      EXPECT_EQ(gpu.cuFuncLoad(nullptr), CUDA_ERROR_INVALID_HANDLE);
    });
    EXPECT_EQ(said.find("kernel nothing is launched first while the stream captures") !=
                  std::string::npos,
              how == 0);
  }
}

TEST(SimDriverGraphs, OtherCapturesAndWorkOutside) {
  // Work outside of the capture cannot be waited for,
  expectInvalidates(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, kThread, [](SimGpu &gpu, CUstream stream) {
    CUevent event = gpu.event();
    gpu.ok(gpu.cuEventRecord(event, gpu.stream()));
    return gpu.cuStreamWaitEvent(stream, event, 0);
  });
  // nor another capture.
  expectInvalidates(CUDA_ERROR_STREAM_CAPTURE_MERGE, kThread, [](SimGpu &gpu, CUstream stream) {
    CUevent event = gpu.event();
    CUstream other = gpu.stream();
    gpu.ok(gpu.cuStreamBeginCapture(other, kThread));
    gpu.ok(gpu.cuEventRecord(event, other));
    CUresult result = gpu.cuStreamWaitEvent(stream, event, 0);
    CUgraph graph = nullptr;
    EXPECT_EQ(gpu.cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    return result;
  });
  // An event of a capture that has ended stands for nothing.
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream(), other = gpu.stream();
    CUevent event = gpu.event();
    capture(gpu, stream, [&] { gpu.ok(gpu.cuEventRecord(event, stream)); });
    EXPECT_EQ(gpu.cuStreamWaitEvent(other, event, 0), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(gpu.cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(gpu.cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(gpu.cuEventRecord(event, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventSynchronize(event), CUDA_SUCCESS);
  });
}

TEST(SimDriverGraphs, CallsThatACaptureForbids) {
  constexpr CUresult kUnsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  using Call = std::function<CUresult(SimGpu &, CUstream)>;
  // Waiting for, or asking for, what captures, in every mode.
  for (CUstreamCaptureMode mode : {kGlobal, kThread, kRelaxed}) {
    for (const Call &call : std::vector<Call>{
             [](SimGpu &gpu, CUstream stream) { return gpu.cuStreamSynchronize(stream); },
             [](SimGpu &gpu, CUstream stream) { return gpu.cuStreamQuery(stream); },
             [](SimGpu &gpu, CUstream stream) { return gpu.cuStreamDestroy(stream); },
             [](SimGpu &gpu, CUstream) { return gpu.cuCtxSynchronize(); }})
      expectInvalidates(kUnsupported, mode, call);
    expectInvalidates(CUDA_ERROR_CAPTURED_EVENT, mode, [](SimGpu &gpu, CUstream stream) {
      CUevent event = gpu.event();
      gpu.ok(gpu.cuEventRecord(event, stream));
      return gpu.cuEventQuery(event);
    });
  }
  // Calls that may wait for the device, unless it is relaxed.
  for (CUstreamCaptureMode mode : {kGlobal, kThread})
    for (const Call &call : std::vector<Call>{
             [](SimGpu &gpu, CUstream) {
               CUdeviceptr memory = 0;
               return gpu.cuMemAlloc(&memory, 4);
             },
             [](SimGpu &gpu, CUstream) { return gpu.cuMemFree(0); },
             [](SimGpu &gpu, CUstream) {
               void *memory = nullptr;
               return gpu.cuMemHostAlloc(&memory, 4, 0);
             },
             [](SimGpu &gpu, CUstream) { return gpu.cuMemFreeHost(nullptr); },
             [](SimGpu &gpu, CUstream) { return gpu.cuEventQuery(gpu.event()); },
             [](SimGpu &gpu, CUstream) { return gpu.cuEventSynchronize(gpu.event()); },
             [](SimGpu &gpu, CUstream) { return gpu.cuStreamSynchronize(gpu.stream()); },
             [](SimGpu &gpu, CUstream) {
               CUmodule module = nullptr;
               return gpu.cuModuleLoadDataEx(&module, "", 0, nullptr, nullptr);
             },
             [](SimGpu &gpu, CUstream) { return gpu.cuModuleUnload(nullptr); }})
      expectInvalidates(kUnsupported, mode, call);
}

// The driver would have to wait for it, or read it too early.
TEST(SimDriverGraphs, CopiesOfPageableMemory) {
  static uint32_t word = 0;
  for (bool isDownload : {false, true})
    onGpu([&](SimGpu &gpu) {
      CUstream stream = gpu.stream();
      CUdeviceptr memory = gpu.memory(1);
      CUgraph graph = nullptr;
      EXPECT_EQ(gpu.cuStreamBeginCapture(stream, kRelaxed), CUDA_SUCCESS);
      EXPECT_EQ(isDownload ? gpu.cuMemcpyDtoHAsync(&word, memory, 4, stream)
                           : gpu.cuMemcpyHtoDAsync(memory, &word, 4, stream),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      EXPECT_EQ(gpu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    });
}

// What other threads may do depends on the mode.
TEST(SimDriverGraphs, OtherThreads) {
  for (CUstreamCaptureMode mode : {kGlobal, kThread, kRelaxed})
    onGpu([&](SimGpu &gpu) {
      CUstream stream = gpu.stream();
      CUgraph graph = nullptr;
      EXPECT_EQ(gpu.cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
      std::thread([&] {
        CUdeviceptr memory = 0;
        EXPECT_EQ(gpu.cuCtxSetCurrent(gpu.context), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuMemAlloc(&memory, 4),
                  mode == kGlobal ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
      }).join();
      if (mode == kRelaxed) {
        CUdeviceptr memory = gpu.memory(1);
        EXPECT_EQ(gpu.cuMemFree(memory), CUDA_SUCCESS);
      }
      EXPECT_EQ(gpu.cuStreamEndCapture(stream, &graph),
                mode == kGlobal ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    });
}

TEST(SimDriverGraphs, AGraphIsNotLaunchedIntoACapture) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUgraphExec executable = instantiate(gpu, capture(gpu, stream, [] {}));
    CUgraph graph = nullptr;
    EXPECT_EQ(gpu.cuStreamBeginCapture(stream, kThread), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuGraphLaunch(executable, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(gpu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
}
