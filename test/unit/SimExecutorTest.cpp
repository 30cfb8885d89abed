//===- SimExecutorTest.cpp - what the simulator of a GPU catches ----------------------------===//
//
// Kernels are C++ functions here that call what generated code calls. Nothing may be destroyed
// behind a call that can stop the kernel: a stopped thread is left behind.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/Executor.h"
#include <cmath>
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
  MpcSimKernel kernel{"k", launch.function, 1, launch.synchronizes, launch.sharedBytes, 0};
  return run(kernel, {launch.blocks, 1, 1}, {launch.threads, 1, 1}, parameters, memory);
}

uint32_t *argument(void **parameters) { return *static_cast<uint32_t **>(parameters[0]); }
uint32_t load(const uint32_t *address) {
  mpc_sim_access(address, sizeof *address, 0);
  return *address;
}
void store(uint32_t *address, uint32_t value) {
  mpc_sim_access(address, sizeof *address, 1);
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
  MpcSimKernel kernel{"k", addOne, 1, 1, 0, 256};
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
