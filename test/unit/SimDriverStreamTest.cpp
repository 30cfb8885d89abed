//===- SimDriverStreamTest.cpp - the simulated driver: streams, events, races ---------------===//

#include "SimDriverSupport.h"
#include <cstring>

using namespace mpc::test;

namespace {
constexpr size_t kWord = sizeof(uint32_t);

CUdeviceptr deviceAddress(const void *pinned) { return reinterpret_cast<CUdeviceptr>(pinned); }

/// Words that show what has run.
struct Trace {
  SimGpu &gpu;
  CUdeviceptr source;
  uint32_t *words;

  explicit Trace(SimGpu &gpu) : gpu(gpu), source(gpu.memory(1)), words(gpu.pinned(16)) {
    std::memset(words, 0, 16 * kWord);
    CUstream stream = gpu.stream();
    gpu.ok(gpu.set(stream, source, 1, 1));
    gpu.ok(gpu.cuStreamSynchronize(stream));
  }
  /// Work that makes words[i] 0x01010101.
  void mark(CUstream stream, int i) {
    gpu.ok(gpu.cuMemcpyDtoHAsync(words + i, source, kWord, stream));
  }
  bool isDone(int i) const { return words[i] != 0; }
};
} // namespace

TEST(SimDriverStreams, NothingRunsBeforeSomethingWaits) {
  onGpu([](SimGpu &gpu) {
    Trace trace(gpu);
    CUstream a = gpu.stream(), b = gpu.stream();
    trace.mark(a, 0);
    trace.mark(b, 1);
    EXPECT_FALSE(trace.isDone(0));
    EXPECT_EQ(gpu.cuStreamSynchronize(b), CUDA_SUCCESS);
    EXPECT_FALSE(trace.isDone(0)); // nobody has waited for this one
    EXPECT_TRUE(trace.isDone(1));
    EXPECT_EQ(gpu.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_TRUE(trace.isDone(0));
    trace.mark(a, 2);
    EXPECT_EQ(gpu.cuMemFree(gpu.memory(1)), CUDA_SUCCESS); // waits for all
    EXPECT_TRUE(trace.isDone(2));
  });
}

TEST(SimDriverStreams, OthersRunAsFarAsTheirEventsAreNeeded) {
  onGpu([](SimGpu &gpu) {
    Trace trace(gpu);
    CUstream a = gpu.stream(), b = gpu.stream(), c = gpu.stream();
    trace.mark(c, 0);
    gpu.order(c, b);
    trace.mark(c, 1);
    trace.mark(b, 2);
    gpu.order(b, a);
    trace.mark(b, 3);
    trace.mark(a, 4);
    EXPECT_EQ(gpu.cuStreamSynchronize(a), CUDA_SUCCESS);
    EXPECT_TRUE(trace.isDone(0) && trace.isDone(2) && trace.isDone(4));
    EXPECT_FALSE(trace.isDone(1) || trace.isDone(3));
  });
}

TEST(SimDriverStreams, AQueryMakesProgress) {
  onGpu([](SimGpu &gpu) {
    Trace trace(gpu);
    CUstream stream = gpu.stream();
    EXPECT_EQ(gpu.cuStreamQuery(stream), CUDA_SUCCESS);
    trace.mark(stream, 0);
    trace.mark(stream, 1);
    EXPECT_EQ(gpu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_TRUE(trace.isDone(0) && !trace.isDone(1));
    EXPECT_EQ(gpu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(gpu.cuStreamQuery(stream), CUDA_SUCCESS);
    EXPECT_TRUE(trace.isDone(1));
  });
}

TEST(SimDriverStreams, QueuesHaveAnEnd) {
  onGpu([](SimGpu &gpu) {
    Trace trace(gpu);
    CUstream stream = gpu.stream();
    for (int i = 0; i < 1024; ++i)
      trace.mark(stream, i == 0 ? 0 : 1);
    EXPECT_FALSE(trace.isDone(0));
    trace.mark(stream, 1);
    EXPECT_TRUE(trace.isDone(0));
  });
}

TEST(SimDriverStreams, DestroyedStreamsFinish) {
  onGpu([](SimGpu &gpu) {
    Trace trace(gpu);
    CUstream a = gpu.stream(), b = gpu.stream();
    trace.mark(a, 0);
    gpu.order(a, b); // its event is gone, too
    EXPECT_EQ(gpu.cuStreamDestroy(a), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(a), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.cuStreamSynchronize(b), CUDA_SUCCESS);
    EXPECT_TRUE(trace.isDone(0));
    trace.mark(b, 1);
    EXPECT_EQ(gpu.cuStreamDestroy(b), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_TRUE(trace.isDone(1));
  });
}

TEST(SimDriverStreams, DefaultStreamsAreRefused) {
  std::string said = onGpu([](SimGpu &gpu) {
    CUdeviceptr memory = gpu.memory(1);
    CUstream stream = nullptr;
    for (CUstream none : {CUstream(nullptr), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
      EXPECT_EQ(gpu.set(none, memory, 0, 1), CUDA_ERROR_NOT_SUPPORTED);
      EXPECT_EQ(gpu.cuStreamSynchronize(none), CUDA_ERROR_NOT_SUPPORTED);
    }
    EXPECT_EQ(gpu.cuStreamCreate(&stream, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuStreamCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  });
  expectSaid(said, "default streams are not simulated");
}

//===- Events -----------------------------------------------------------------------------===//

// Such an event is no work at all.
TEST(SimDriverEvents, NeverRecorded) {
  onGpu([](SimGpu &gpu) {
    CUevent event = gpu.event(), other = gpu.event();
    CUstream stream = gpu.stream();
    float time = 0;
    EXPECT_EQ(gpu.cuEventQuery(event), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventSynchronize(event), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamQuery(stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventRecord(other, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventSynchronize(other), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventElapsedTime(&time, event, other), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.cuEventElapsedTime(&time, other, event), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.cuEventCreate(&event, 0x10), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuStreamWaitEvent(stream, other, 7), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(SimDriverEvents, StandForWhatWasInTheStream) {
  onGpu([](SimGpu &gpu) {
    Trace trace(gpu);
    CUstream stream = gpu.stream(), other = gpu.stream();
    CUevent event = gpu.event();
    trace.mark(stream, 0);
    EXPECT_EQ(gpu.cuEventRecord(event, stream), CUDA_SUCCESS);
    trace.mark(stream, 1);
    EXPECT_EQ(gpu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(gpu.cuEventSynchronize(event), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventQuery(event), CUDA_SUCCESS);
    EXPECT_TRUE(trace.isDone(0) && !trace.isDone(1));
    // A wait is for what the event stands for when it is queued.
    EXPECT_EQ(gpu.cuEventRecord(event, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
    trace.mark(stream, 2);
    EXPECT_EQ(gpu.cuEventRecord(event, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(other), CUDA_SUCCESS);
    EXPECT_TRUE(trace.isDone(1) && !trace.isDone(2));
    while (gpu.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
    }
    EXPECT_TRUE(trace.isDone(2));
  });
}

// By a clock of its own: work takes 100 microseconds, or what MPC_SIM_TIMES says.
TEST(SimDriverEvents, ElapsedTime) {
  auto body = [](SimGpu &gpu, float expected) {
    CUstream stream = gpu.stream();
    CUevent start = gpu.event(), end = gpu.event(), plain = gpu.event(CU_EVENT_DISABLE_TIMING);
    float time = -1;
    EXPECT_EQ(gpu.cuEventRecord(start, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.launch(stream, gpu.function("nothing"), {}, 100), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventRecord(end, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventRecord(plain, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventElapsedTime(&time, start, end), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventElapsedTime(&time, start, end), CUDA_SUCCESS);
    EXPECT_FLOAT_EQ(time, expected);
    EXPECT_EQ(gpu.cuEventElapsedTime(&time, start, plain), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.cuEventElapsedTime(nullptr, start, end), CUDA_ERROR_INVALID_VALUE);
  };
  onGpu([&](SimGpu &gpu) { body(gpu, 0.1F); });
  onGpu([&](SimGpu &gpu) { body(gpu, 0.0075F); }, {{"MPC_SIM_TIMES", "nothing:7.5,kernel:3"}});
  onGpu([&](SimGpu &gpu) { body(gpu, 0.003F); }, {{"MPC_SIM_TIMES", "copy:7.5,kernel:3"}});
}

TEST(SimDriverEvents, TimesThatAreNone) {
  for (const char *times : {"", "kernel", "kernel:", ":5", "kernel:0", "kernel:-1", "kernel:5,"}) {
    std::string said = inProcess({{"MPC_SIM_TIMES", times}}, [] {
      SimDriver driver;
      EXPECT_EQ(driver.cuInit(0), CUDA_ERROR_INVALID_VALUE);
    });
    expectSaid(said, "is not a list such as kernel:50,");
  }
}

//===- Races ------------------------------------------------------------------------------===//

namespace {
/// Two pieces of work in two streams, ordered by an event if asked for. The result of waiting for
/// both.
struct Pair {
  std::function<void(SimGpu &, CUstream, CUdeviceptr)> first, second;

  CUresult run(SimGpu &gpu, bool isOrdered) const {
    CUdeviceptr memory = gpu.memory(64);
    CUstream a = gpu.stream(), b = gpu.stream();
    gpu.upload(a, memory, std::vector<uint32_t>(64));
    first(gpu, a, memory);
    if (isOrdered)
      gpu.order(a, b);
    second(gpu, b, memory);
    CUresult result = gpu.cuStreamSynchronize(b);
    return result ? result : gpu.cuStreamSynchronize(a);
  }
  void expectRace(const std::string &text) const {
    std::string said = onGpu([&](SimGpu &gpu) {
      EXPECT_EQ(run(gpu, true), CUDA_SUCCESS);
      EXPECT_EQ(run(gpu, false), CUDA_ERROR_LAUNCH_FAILED);
      EXPECT_EQ(gpu.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    });
    expectSaid(said, "a race between streams: " + text);
  }
  void expectNone() const {
    EXPECT_EQ(onGpu([&](SimGpu &gpu) { EXPECT_EQ(run(gpu, false), CUDA_SUCCESS); }), "");
  }
};

void set(SimGpu &gpu, CUstream stream, CUdeviceptr memory) {
  gpu.ok(gpu.set(stream, memory, 1, 32));
}
void addOne(SimGpu &gpu, CUstream stream, CUdeviceptr memory) {
  gpu.ok(gpu.launch(stream, gpu.function("addOne"), {memory}));
}
void readIt(SimGpu &gpu, CUstream stream, CUdeviceptr memory) {
  gpu.ok(gpu.launch(stream, gpu.function("copy"), {gpu.memory(64), memory}));
}
void download(SimGpu &gpu, CUstream stream, CUdeviceptr memory) {
  gpu.ok(gpu.cuMemcpyDtoHAsync(gpu.pinned(8), memory, 8 * kWord, stream));
}
} // namespace

TEST(SimDriverRaces, TwoWrites) {
  Pair{set, set}.expectRace("a memset of 128 bytes in stream 4 and a memset of 128 bytes in stream "
                            "3 touch the 128 bytes at 0x");
}

TEST(SimDriverRaces, AWriteAndARead) {
  Pair{set, download}.expectRace("a copy of 32 bytes in stream 4 and a memset of 128 bytes");
  Pair{download, set}.expectRace("a memset of 128 bytes in stream 4 and a copy of 32 bytes");
}

TEST(SimDriverRaces, Kernels) {
  Pair{addOne, addOne}.expectRace("kernel addOne in stream 4 and kernel addOne in stream 3");
  Pair{set, readIt}.expectRace("kernel copy in stream 4 and a memset of 128 bytes in stream 3");
}

TEST(SimDriverRaces, ReadsAndOtherBytes) {
  Pair{readIt, download}.expectNone();
  Pair{set, [](SimGpu &gpu, CUstream stream,
               CUdeviceptr memory) { gpu.ok(gpu.set(stream, memory + 32 * kWord, 2, 32)); }}
      .expectNone();
  // Between the elements that a kernel writes.
  Pair{[](SimGpu &gpu, CUstream stream, CUdeviceptr memory) {
         gpu.ok(gpu.launch(stream, gpu.function("sparse"), {memory}));
       },
       [](SimGpu &gpu, CUstream stream, CUdeviceptr memory) {
         gpu.ok(gpu.set(stream, memory + kWord, 2, 1));
       }}
      .expectNone();
}

// Kernels that touch very many pieces are looked at in blocks of 64 bytes.
TEST(SimDriverRaces, KernelsThatTouchManyPieces) {
  for (bool isBehind : {false, true})
    onGpu([&](SimGpu &gpu) {
      CUstream a = gpu.stream(), b = gpu.stream();
      CUdeviceptr memory = gpu.memory(8192 + 64);
      EXPECT_EQ(gpu.launch(a, gpu.function("sparse"), {memory}, 128), CUDA_SUCCESS);
      EXPECT_EQ(gpu.set(b, memory + (isBehind ? 8192 : 4096) * kWord, 2, 1), CUDA_SUCCESS);
      EXPECT_EQ(gpu.cuCtxSynchronize(), isBehind ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
    });
}

// The host orders work, too, by waiting for it.
TEST(SimDriverRaces, TheHostWaits) {
  onGpu([](SimGpu &gpu) {
    CUdeviceptr memory = gpu.memory(32);
    CUstream a = gpu.stream(), b = gpu.stream();
    CUevent event = gpu.event();
    set(gpu, a, memory);
    EXPECT_EQ(gpu.cuStreamSynchronize(a), CUDA_SUCCESS);
    set(gpu, b, memory);
    EXPECT_EQ(gpu.cuEventRecord(event, b), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuEventSynchronize(event), CUDA_SUCCESS);
    set(gpu, a, memory);
    EXPECT_EQ(gpu.cuEventRecord(event, a), CUDA_SUCCESS);
    while (gpu.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
    }
    set(gpu, b, memory);
    while (gpu.cuStreamQuery(b) == CUDA_ERROR_NOT_READY) {
    }
    // Streams that are gone.
    CUstream c = gpu.stream();
    set(gpu, c, memory);
    gpu.order(c, a);
    EXPECT_EQ(gpu.cuStreamDestroy(c), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(a), CUDA_SUCCESS);
    CUstream d = gpu.stream();
    set(gpu, d, memory);
    EXPECT_EQ(gpu.cuStreamQuery(d), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(gpu.cuStreamDestroy(d), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuCtxSynchronize(), CUDA_SUCCESS);
    set(gpu, gpu.stream(), memory);
    EXPECT_EQ(gpu.cuCtxSynchronize(), CUDA_SUCCESS);
  });
}

// Work that has run is not ordered by that: on a GPU it might run later.
TEST(SimDriverRaces, WorkThatHasRunByChance) {
  onGpu([](SimGpu &gpu) {
    CUdeviceptr memory = gpu.memory(32);
    CUstream a = gpu.stream(), b = gpu.stream();
    set(gpu, a, memory);
    EXPECT_EQ(gpu.cuStreamQuery(a), CUDA_ERROR_NOT_READY); // it runs, and nobody has seen that
    set(gpu, b, memory);
    EXPECT_EQ(gpu.cuStreamSynchronize(b), CUDA_ERROR_LAUNCH_FAILED);
  });
}

// Two uploads from one piece of pinned memory are no race, a download into it is one.
TEST(SimDriverRaces, PinnedMemory) {
  onGpu([](SimGpu &gpu) {
    CUdeviceptr memory = gpu.memory(16);
    uint32_t *pinned = gpu.pinned(8);
    CUstream a = gpu.stream(), b = gpu.stream();
    EXPECT_EQ(gpu.cuMemcpyHtoDAsync(memory, pinned, 32, a), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemcpyHtoDAsync(memory + 32, pinned, 32, b), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemcpyHtoDAsync(memory, pinned, 32, a), CUDA_SUCCESS);
    addOne(gpu, b, deviceAddress(gpu.pinned(32)));
    EXPECT_EQ(gpu.cuMemcpyDtoHAsync(pinned, memory + 32, 32, b), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  });
}

// It waits for nothing: what is queued must not need the memory any more.
TEST(SimDriverRaces, PinnedMemoryThatIsFreedTooEarly) {
  expectSaid(onGpu([](SimGpu &gpu) {
               CUstream stream = gpu.stream();
               uint32_t *pinned = gpu.pinned(8);
               EXPECT_EQ(gpu.cuMemcpyHtoDAsync(gpu.memory(8), pinned, 32, stream), CUDA_SUCCESS);
               EXPECT_EQ(gpu.cuMemFreeHost(pinned), CUDA_SUCCESS);
               EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
             }),
             "a copy's read of 32 bytes at 0x");
}
