//===- SimExecutorTest.cpp - what the simulator of a GPU catches ----------------------------===//
//
// Kernels are C++ functions here that call what generated code calls. Nothing may be destroyed
// behind a call that can stop the kernel: a stopped thread is left behind.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/Executor.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>

using namespace mpc::sim;

namespace {
struct Launch {
  void (*function)(void **parameters);
  uint32_t blocks = 1, threads = 32;
  bool synchronizes = true;
  uint32_t sharedBytes = 1024;
};

/// Runs the kernel on `data`; empty, or what went wrong.
std::string runOn(std::vector<uint32_t> &data, const Launch &launch) {
  MemoryMap memory;
  memory.add(data.data(), data.size() * sizeof(uint32_t));
  uint32_t *pointer = data.data();
  void *parameters[] = {&pointer};
  MpcSimKernel kernel{"k", launch.function, 1, launch.synchronizes, launch.sharedBytes, 0, nullptr};
  return run(kernel, {launch.blocks, 1, 1}, {launch.threads, 1, 1}, parameters, memory);
}

uint32_t *argument(void **parameters) { return *static_cast<uint32_t **>(parameters[0]); }
uint32_t load(const uint32_t *address) {
  mpc_sim_access(address, sizeof *address, 0, sizeof *address);
  return *address;
}
void store(uint32_t *address, uint32_t value) {
  mpc_sim_access(address, sizeof *address, 1, sizeof *address);
  *address = value;
}
uint32_t index() { return mpc_sim_ctaid_x() * 64 + mpc_sim_tid_x(); }
uint32_t *shared() { return static_cast<uint32_t *>(mpc_sim_shared()); }

void addOne(void **parameters) {
  uint32_t *own = argument(parameters) + index();
  store(own, load(own) + 1);
}
} // namespace

TEST(SimExecutor, EveryThreadOfEveryBlockRuns) {
  for (bool synchronizes : {false, true}) {
    std::vector<uint32_t> data(3 * 64);
    std::iota(data.begin(), data.end(), 0);
    EXPECT_EQ(runOn(data, {addOne, 3, 64, synchronizes}), "");
    for (uint32_t i = 0; i < data.size(); ++i)
      EXPECT_EQ(data[i], i + 1);
  }
}

TEST(SimExecutor, AccessOutsideOfEveryBuffer) {
  for (bool synchronizes : {false, true}) {
    std::vector<uint32_t> data(3 * 64 - 1);
    std::string problem = runOn(data, {addOne, 3, 64, synchronizes});
    EXPECT_NE(problem.find("kernel k, block (2, 0, 0), thread (63, 0, 0): accesses memory outside "
                           "of every buffer (load of 4 bytes"),
              std::string::npos)
        << problem;
  }
  // Partly inside.
  MemoryMap memory;
  char bytes[16];
  memory.add(bytes, 8);
  EXPECT_TRUE(memory.contains(bytes, 8));
  EXPECT_FALSE(memory.contains(bytes + 4, 8));
  EXPECT_FALSE(memory.contains(bytes + 8, 1));
  EXPECT_TRUE(memory.remove(bytes));
  EXPECT_FALSE(memory.remove(bytes));
  EXPECT_FALSE(memory.contains(bytes, 1));
}

// Bytes that are read and those that are written, also, in one launch; a word of which one byte is.
TEST(SimExecutor, WhatALaunchTouched) {
  alignas(4) char bytes[64] = {};
  char *pointer = bytes;
  void *parameters[] = {&pointer};
  MemoryMap memory;
  memory.add(bytes, sizeof bytes);
  auto kernel = [](void **parameters) {
    char *start = *static_cast<char **>(parameters[0]);
    mpc_sim_access(start, 4, 0, 4);
    mpc_sim_access(start + 4, 4, 0, 4);
    mpc_sim_access(start + 4, 8, 1, 4);
    mpc_sim_access(start + 33, 1, 0, 1);
  };
  Report report;
  EXPECT_EQ(
      run({"k", kernel, 1, 0, 0, 0, nullptr}, {1, 1, 1}, {1, 1, 1}, parameters, memory, &report),
      "");
  auto start = reinterpret_cast<uintptr_t>(bytes);
  std::vector<std::array<uintptr_t, 3>> touched;
  for (const Touched &piece : report.touched)
    touched.push_back({piece.begin - start, piece.end - start, piece.isWritten});
  EXPECT_EQ(touched, (std::vector<std::array<uintptr_t, 3>>{{0, 4, 0}, {4, 12, 1}, {33, 34, 0}}));
}

// A sum over 64 threads, as generated code does it: inside warps by shuffles, between them through
// shared memory.
TEST(SimExecutor, ShufflesAndBarriers) {
  std::vector<uint32_t> data(64);
  std::iota(data.begin(), data.end(), 1);
  auto sum = [](void **parameters) {
    uint32_t *own = argument(parameters) + index(), value = load(own), thread = mpc_sim_tid_x();
    for (uint32_t distance = 16; distance; distance /= 2)
      value += mpc_sim_shuffle(MPC_SIM_BUTTERFLY, ~0u, value, distance);
    if (thread % 32 == 0)
      store(shared() + thread / 32, value);
    mpc_sim_barrier();
    store(own, load(shared()) + load(shared() + 1));
  };
  EXPECT_EQ(runOn(data, {sum, 1, 64}), "");
  EXPECT_EQ(data, std::vector<uint32_t>(64, 64 * 65 / 2));
}

TEST(SimExecutor, IndexedShufflesAndVotes) {
  std::vector<uint32_t> data(64);
  std::iota(data.begin(), data.end(), 0);
  auto kernel = [](void **parameters) {
    uint32_t *own = argument(parameters) + index(), value = load(own);
    uint32_t odd = mpc_sim_ballot(~0u, value & 1);
    uint32_t third = mpc_sim_shuffle(MPC_SIM_INDEX, ~0u, value, 3);
    store(own, odd + third);
  };
  EXPECT_EQ(runOn(data, {kernel, 1, 64}), "");
  EXPECT_EQ(data[0], 0xaaaaaaaau + 3);
  EXPECT_EQ(data[63], 0xaaaaaaaau + 35);
}

// The neighbor's value is read without a barrier in between; with one, all is well.
TEST(SimExecutor, RaceForSharedMemory) {
  std::vector<uint32_t> data(64);
  auto race = [](void **parameters) {
    uint32_t thread = mpc_sim_tid_x();
    store(shared() + thread, thread);
    store(argument(parameters) + index(), load(shared() + (thread + 63) % 64));
  };
  EXPECT_NE(runOn(data, {race, 1, 64}).find("reads shared memory that no thread of the block has"),
            std::string::npos);
  auto writeAfterRead = [](void **parameters) {
    uint32_t thread = mpc_sim_tid_x();
    store(shared() + thread, thread);
    mpc_sim_barrier();
    uint32_t neighbor = load(shared() + (thread + 1) % 64);
    store(shared() + thread, neighbor);
  };
  EXPECT_NE(runOn(data, {writeAfterRead, 1, 64})
                .find("writes what another thread reads, without a barrier between them (store of "
                      "4 bytes at byte 4 of shared memory)"),
            std::string::npos);
  auto sameWord = [](void **) { store(shared(), mpc_sim_tid_x()); };
  EXPECT_NE(runOn(data, {sameWord, 1, 64}).find("accesses what another thread writes"),
            std::string::npos);
  // A warp's barrier orders its lanes, and no other warp.
  auto inWarp = [](void **parameters) {
    uint32_t thread = mpc_sim_tid_x(), first = thread / 32 * 32;
    store(shared() + thread, thread);
    mpc_sim_warp_barrier(~0u);
    uint32_t neighbor = load(shared() + first + (thread + 1) % 32);
    mpc_sim_warp_barrier(~0u);
    store(shared() + thread, neighbor);
  };
  EXPECT_EQ(runOn(data, {inWarp, 1, 64}), "");
  auto acrossWarps = [](void **parameters) {
    uint32_t thread = mpc_sim_tid_x();
    store(shared() + thread, thread);
    mpc_sim_barrier();
    load(shared() + (thread + 32) % 64);
    mpc_sim_warp_barrier(~0u);
    store(shared() + thread, 0);
  };
  EXPECT_NE(runOn(data, {acrossWarps, 1, 64}).find("writes what another thread reads"),
            std::string::npos);
  auto ordered = [](void **parameters) {
    uint32_t thread = mpc_sim_tid_x();
    store(shared() + thread, thread);
    mpc_sim_barrier();
    uint32_t neighbor = load(shared() + (thread + 63) % 64);
    mpc_sim_barrier();
    store(shared() + thread, neighbor);
    store(argument(parameters) + index(), neighbor);
  };
  EXPECT_EQ(runOn(data, {ordered, 1, 64}), "");
  EXPECT_EQ(data[5], 4u);
}

// Two threads, or two blocks, touch the same word of a buffer and one writes.
TEST(SimExecutor, RaceForABuffer) {
  std::vector<uint32_t> data(128);
  auto sameWord = [](void **parameters) { store(argument(parameters), 1); };
  for (bool synchronizes : {false, true})
    EXPECT_NE(runOn(data, {sameWord, 1, 32, synchronizes}).find("another thread writes"),
              std::string::npos);
  auto blocksWrite = [](void **parameters) {
    store(argument(parameters) + mpc_sim_tid_x(), mpc_sim_ctaid_x());
  };
  EXPECT_NE(runOn(data, {blocksWrite, 2, 32})
                .find("block (1, 0, 0), thread (0, 0, 0): writes what "
                      "another block writes"),
            std::string::npos);
  auto readsOther = [](void **parameters) {
    uint32_t first = load(argument(parameters) + mpc_sim_tid_x());
    store(argument(parameters) + 64 * mpc_sim_ctaid_x() + mpc_sim_tid_x(), first);
  };
  EXPECT_NE(runOn(data, {readsOther, 2, 32}).find("reads what another block writes"),
            std::string::npos);
  auto writesRead = [](void **parameters) {
    uint32_t last = load(argument(parameters) + 64 + mpc_sim_tid_x());
    store(argument(parameters) + 64 * mpc_sim_ctaid_x() + mpc_sim_tid_x(), last);
  };
  EXPECT_NE(runOn(data, {writesRead, 2, 32}).find("writes what another block reads"),
            std::string::npos);
}

TEST(SimExecutor, BarrierThatNotAllReach) {
  std::vector<uint32_t> data(64);
  auto half = [](void **) {
    if (mpc_sim_tid_x() < 32)
      mpc_sim_barrier();
  };
  EXPECT_EQ(runOn(data, {half, 1, 64}), "kernel k, block (0, 0, 0), thread (0, 0, 0): waits at a "
                                        "barrier that not all threads of the block reach");
  // A warp that waits for a lane that waits at the barrier.
  auto mixed = [](void **) {
    if (mpc_sim_tid_x() == 7)
      mpc_sim_barrier();
    mpc_sim_shuffle(MPC_SIM_BUTTERFLY, ~0u, 0, 1);
  };
  EXPECT_EQ(runOn(data, {mixed, 1, 32}),
            "kernel k, block (0, 0, 0), thread (0, 0, 0): waits for lanes of its warp that do not "
            "take part in the exchange");
}

TEST(SimExecutor, BlockOfAnotherSize) {
  std::vector<uint32_t> data(64);
  uint32_t *pointer = data.data();
  void *parameters[] = {&pointer};
  MemoryMap memory;
  MpcSimKernel kernel{"k", addOne, 1, 1, 0, 256, nullptr};
  EXPECT_EQ(run(kernel, {1, 1, 1}, {64, 1, 1}, parameters, memory),
            "kernel k needs blocks of 256 threads, not of 64");
}

TEST(SimExecutor, RoundingToBf16) {
  EXPECT_EQ(mpc_sim_round_bf16(1.0f), 0x3f80);
  EXPECT_EQ(mpc_sim_round_bf16(0x1.01p0f), 0x3f80); // a tie, to even
  EXPECT_EQ(mpc_sim_round_bf16(0x1.03p0f), 0x3f82); // likewise
  EXPECT_EQ(mpc_sim_round_bf16(3.4e38f), 0x7f80);   // to infinity
  EXPECT_EQ(mpc_sim_round_bf16(0x1p-133f), 1);      // subnormal
  EXPECT_TRUE((mpc_sim_round_bf16(NAN) & 0x7fff) > 0x7f80);
}

// Tensor cores: a warp's product against the definition. Where an element lies is written out here
// as the PTX ISA has it, element by element.
TEST(SimExecutor, TensorCores) {
  constexpr uint32_t kWords = 10;
  std::vector<uint32_t> data(32 * kWords);
  float a[16][16], b[16][8], c[16][8];
  auto small = [](int i) { return float(i % 7 - 3) * 0.5f; };
  auto f16 = [](float value) { // of -1.5 … 1.5 in halves
    uint32_t magnitude = value == 0                ? 0
                         : std::abs(value) == 0.5f ? 0x3800
                         : std::abs(value) == 1.0f ? 0x3c00
                                                   : 0x3e00;
    return magnitude | (value < 0 ? 0x8000u : 0u);
  };
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      a[i][k] = small(5 * i + 3 * k);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j)
      b[i][j] = small(11 * i + 2 * j), c[i][j] = small(i + 13 * j);
  for (int type : {MPC_SIM_M16N8K16_F16, MPC_SIM_M16N8K16_BF16}) {
    auto half = [&](float value) -> uint32_t {
      return type == MPC_SIM_M16N8K16_F16 ? f16(value) : mpc_sim_round_bf16(value);
    };
    for (int lane = 0; lane < 32; ++lane) {
      uint32_t *words = data.data() + lane * kWords;
      int group = lane >> 2, place = lane % 4;
      for (int i = 0; i < 8; ++i) { // a_i
        int row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
        int column = i < 4 ? place * 2 + (i & 1) : place * 2 + (i & 1) + 8;
        words[i / 2] = (i & 1 ? words[i / 2] : 0) | half(a[row][column]) << (i & 1) * 16;
      }
      for (int i = 0; i < 4; ++i) { // b_i
        int row = i < 2 ? place * 2 + (i & 1) : place * 2 + (i & 1) + 8;
        words[4 + i / 2] = (i & 1 ? words[4 + i / 2] : 0) | half(b[row][group]) << (i & 1) * 16;
      }
      for (int i = 0; i < 4; ++i) // c_i
        std::memcpy(&words[6 + i], &c[i < 2 ? group : group + 8][place * 2 + (i & 1)], 4);
    }
    auto kernel = [](void **parameters) {
      mpc_sim_multiply(MPC_SIM_M16N8K16_F16, argument(parameters) + mpc_sim_tid_x() * kWords);
    };
    auto kernelBf16 = [](void **parameters) {
      mpc_sim_multiply(MPC_SIM_M16N8K16_BF16, argument(parameters) + mpc_sim_tid_x() * kWords);
    };
    Launch launch{type == MPC_SIM_M16N8K16_F16 ? +kernel : +kernelBf16, 1, 32};
    ASSERT_EQ(runOn(data, launch), "");
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        int row = i < 2 ? lane >> 2 : (lane >> 2) + 8, column = lane % 4 * 2 + (i & 1);
        float want = c[row][column], got;
        for (int k = 0; k < 16; ++k)
          want += a[row][k] * b[k][column];
        std::memcpy(&got, &data[lane * kWords + i], 4);
        EXPECT_EQ(got, want) << lane << " " << i;
      }
  }
}

// m16n8k8 and m8n8k4 with f16, likewise.
TEST(SimExecutor, TensorCoresBeforeSm80) {
  // Small integers as halves.
  auto small = [](int i) { return i % 5 - 2; };
  auto half = [](int value) -> uint32_t {
    return (std::abs(value) == 2 ? 0x4000 : value ? 0x3c00 : 0) | (value < 0 ? 0x8000 : 0);
  };
  static uint32_t kind;
  constexpr uint32_t kMost = 12;
  auto kernel = [](void **parameters) {
    mpc_sim_multiply(kind, argument(parameters) + mpc_sim_tid_x() * kMost);
  };
  auto put = [&](uint32_t *words, int i, int value) {
    words[i / 2] = (i & 1 ? words[i / 2] : 0) | half(value) << (i & 1) * 16;
  };
  auto putSum = [](uint32_t &word, int value) {
    float number = float(value);
    std::memcpy(&word, &number, 4);
  };
  auto sum = [](uint32_t word) {
    float number;
    std::memcpy(&number, &word, 4);
    return number;
  };
  auto a = [&](int product, int row, int k) { return small(product + 3 * row + 7 * k); };
  auto b = [&](int product, int k, int column) { return small(2 * product + 11 * k + column); };
  auto c = [&](int product, int row, int column) { return small(product + row + 2 * column); };
  auto expected = [&](int product, int row, int column, int depth) {
    int total = c(product, row, column);
    for (int k = 0; k < depth; ++k)
      total += a(product, row, k) * b(product, k, column);
    return float(total);
  };
  std::vector<uint32_t> data(32 * kMost);

  kind = MPC_SIM_M16N8K8;
  auto ofSums = [&](auto &&function) {
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i)
        function(lane, i, i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1));
  };
  for (int lane = 0; lane < 32; ++lane) {
    uint32_t *words = data.data() + lane * kMost;
    int group = lane >> 2, place = lane % 4;
    for (int i = 0; i < 4; ++i) // a_i
      put(words, i, a(0, i < 2 ? group : group + 8, place * 2 + (i & 1)));
    for (int i = 0; i < 2; ++i) // b_i
      put(words + 2, i, b(0, place * 2 + i, group));
  }
  ofSums([&](int lane, int i, int row, int column) {
    putSum(data[lane * kMost + 3 + i], c(0, row, column));
  });
  ASSERT_EQ(runOn(data, {kernel, 1, 32}), "");
  ofSums([&](int lane, int i, int row, int column) {
    EXPECT_EQ(sum(data[lane * kMost + i]), expected(0, row, column, 8)) << lane << " " << i;
  });

  // Four products, each of four lanes below 16 and four above, with both orders of both sides.
  auto ofQuads = [&](auto &&function) {
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 8; ++i) {
        int row = (lane & 1) + (i & 2), column = (i & 4) + (lane & 2) + (i & 1);
        function(lane, i, lane % 16 / 4, lane < 16 ? row : row + 4, column);
      }
  };
  for (int orders = 0; orders < 4; ++orders) {
    bool columnA = orders & 1, rowB = orders & 2;
    kind = MPC_SIM_M8N8K4 + (columnA ? MPC_SIM_COLUMN_A : 0) + (rowB ? MPC_SIM_ROW_B : 0);
    for (int lane = 0; lane < 32; ++lane) {
      uint32_t *words = data.data() + lane * kMost;
      int product = lane % 16 / 4, place = lane % 4, further = lane < 16 ? 0 : 4;
      for (int i = 0; i < 4; ++i) {
        put(words, i,
            columnA ? a(product, i + further, place) : a(product, place + further, i)); // a_i
        put(words + 2, i,
            rowB ? b(product, place, i + further) : b(product, i, place + further)); // b_i
      }
    }
    ofQuads([&](int lane, int i, int product, int row, int column) {
      putSum(data[lane * kMost + 4 + i], c(product, row, column));
    });
    ASSERT_EQ(runOn(data, {kernel, 1, 32}), "");
    ofQuads([&](int lane, int i, int product, int row, int column) {
      EXPECT_EQ(sum(data[lane * kMost + i]), expected(product, row, column, 4))
          << orders << " " << lane << " " << i;
    });
  }
}

// ldmatrix: two neighbors of a row, or of a column, of each of four matrices of 8×8 halves.
TEST(SimExecutor, MatricesFromSharedMemory) {
  static bool transposed;
  auto kernel = [](void **parameters) {
    uint32_t lane = mpc_sim_tid_x(), words[4];
    for (uint32_t i = 0; i < 4; ++i) // half number n of shared memory is n
      store(shared() + lane * 4 + i, (lane * 8 + i * 2) | (lane * 8 + i * 2 + 1) << 16);
    mpc_sim_warp_barrier(~0u);
    mpc_sim_load_matrices(transposed, shared() + lane * 4, words);
    for (uint32_t i = 0; i < 4; ++i)
      store(argument(parameters) + lane * 4 + i, words[i]);
  };
  for (bool isTransposed : {false, true}) {
    transposed = isTransposed;
    std::vector<uint32_t> data(128);
    ASSERT_EQ(runOn(data, {kernel, 1, 32}), "");
    for (uint32_t lane = 0; lane < 32; ++lane)
      for (uint32_t i = 0; i < 4; ++i) {
        uint32_t line = lane / 4, first = lane % 4 * 2;
        uint32_t low = i * 64 + (transposed ? first * 8 + line : line * 8 + first);
        uint32_t high = i * 64 + (transposed ? (first + 1) * 8 + line : line * 8 + first + 1);
        EXPECT_EQ(data[lane * 4 + i], low | high << 16);
      }
  }
}

// A load that counts on more alignment than its address has; bytes of one word that two threads
// write each for itself.
TEST(SimExecutor, AlignmentAndPartsOfWords) {
  std::vector<uint32_t> data(64);
  auto wide = [](void **parameters) { mpc_sim_access(argument(parameters) + 1, 8, 0, 8); };
  EXPECT_NE(runOn(data, {wide, 1, 32}).find("not aligned as its code says"), std::string::npos);
  auto bytes = [](void **parameters) {
    auto *own = reinterpret_cast<unsigned char *>(argument(parameters)) + mpc_sim_tid_x();
    mpc_sim_access(own, 1, 1, 1);
    *own = static_cast<unsigned char>(mpc_sim_tid_x());
  };
  EXPECT_EQ(runOn(data, {bytes, 1, 64}), "");
  auto overlapping = [](void **parameters) {
    auto *own = reinterpret_cast<unsigned char *>(argument(parameters)) + mpc_sim_tid_x();
    mpc_sim_access(own, 2, 1, 1);
  };
  EXPECT_NE(runOn(data, {overlapping, 1, 32}).find("accesses what another thread writes"),
            std::string::npos);
  auto wordOverByte = [](void **parameters) {
    auto *first = reinterpret_cast<unsigned char *>(argument(parameters));
    if (mpc_sim_tid_x() == 0)
      mpc_sim_access(first + 2, 1, 1, 1);
    else
      mpc_sim_access(first, 4, 0, 4);
  };
  EXPECT_NE(runOn(data, {wordOverByte, 1, 2}).find("accesses what another thread writes"),
            std::string::npos);
}

// A word that everybody has read, more than once, and somebody then writes.
TEST(SimExecutor, WriteAfterManyReads) {
  std::vector<uint32_t> data(64);
  static bool hasBarrier, inOneWarp;
  auto kernel = [](void **) {
    uint32_t thread = mpc_sim_tid_x();
    if (thread == 0)
      store(shared(), 1);
    mpc_sim_barrier();
    for (int time = 0; time < 3; ++time)
      if (thread < 32 || !inOneWarp)
        load(shared());
    if (hasBarrier && inOneWarp && thread < 32)
      mpc_sim_warp_barrier(~0u);
    if (hasBarrier && !inOneWarp)
      mpc_sim_barrier();
    if (thread == (inOneWarp ? 31 : 63))
      store(shared(), 2);
  };
  for (bool isInOneWarp : {true, false})
    for (bool barrier : {true, false}) {
      inOneWarp = isInOneWarp;
      hasBarrier = barrier;
      bool isCaught = runOn(data, {kernel, 1, 64}).find("writes what another thread reads") !=
                      std::string::npos;
      EXPECT_EQ(isCaught, !barrier) << isInOneWarp;
    }
}
