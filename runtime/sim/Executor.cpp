//===- Executor.cpp - runs a grid of a simulated kernel ---------------------------------===//
//
// Boost.Context's fibers unwind their stack when they are destroyed; generated code cannot be
// unwound, so that a thread that is stopped in the middle is just left behind: this uses the
// switch beneath them, on stacks of its own.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/Executor.h"
#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

using namespace mpc::sim;
namespace context = boost::context::detail;

void MemoryMap::add(const void *start, size_t bytes) {
  auto begin = reinterpret_cast<uintptr_t>(start);
  pieces[begin] = {begin, begin + bytes};
}

bool MemoryMap::remove(const void *start) {
  last = {};
  return pieces.erase(reinterpret_cast<uintptr_t>(start)) != 0;
}

bool MemoryMap::contains(const void *address, size_t bytes) const {
  auto begin = reinterpret_cast<uintptr_t>(address);
  if (begin >= last.begin && begin + bytes <= last.end)
    return true;
  auto next = pieces.upper_bound(begin);
  if (next == pieces.begin())
    return false;
  last = std::prev(next)->second;
  return begin >= last.begin && begin + bytes <= last.end;
}

namespace {
constexpr uint32_t kWarp = 32;
constexpr size_t kStackBytes = 64 << 10;
constexpr uintptr_t kPageBytes = 4096;

/// An interval lies between two barriers of a block, counted over all blocks from 1 on. A part of
/// it lies between two barriers of a warp.
struct Moment {
  uint32_t interval = 0, part = 0, thread = 0;
};

/// Who touched a byte last, and when.
struct Shadow {
  Moment write, read;
  bool isReadByWarp = false;   ///< by other lanes, too, in the same part
  bool isReadByOthers = false; ///< by other warps, too, in the same interval
  bool isReadByOtherBlock = false;
};
using ShadowPage = std::array<Shadow, kPageBytes>;

enum class State : uint8_t { ready, barrier, exchange, done };

struct Thread {
  context::fcontext_t where = nullptr; ///< it goes on
  State state = State::ready;
  // An exchange: what this lane brings, and what it gets.
  uint32_t kind = 0, mask = 0, value = 0, lane = 0, result = 0;
};

// Beside MPC_SIM_BUTTERFLY and MPC_SIM_INDEX.
constexpr uint32_t kBallot = 16, kWarpBarrier = 17;

class Execution {
public:
  Execution(const MpcSimKernel &kernel, Extent grid, Extent block, void **parameters,
            const MemoryMap &memory)
      : kernel(kernel), grid(grid), block(block), parameters(parameters), memory(memory),
        count(block[0] * block[1] * block[2]),
        stacks(new std::byte[kStackBytes * (kernel.synchronizes ? count : 1)]),
        shared(kernel.shared_bytes + 16), sharedShadow(kernel.shared_bytes),
        parts(count / kWarp + 1), threads(count) {}

  std::string run();

  // What the kernel asks for.
  Extent thread() const {
    return {current % block[0], current / block[0] % block[1], current / block[0] / block[1]};
  }
  const Extent &blockIndex() const { return place; }
  void *sharedMemory() {
    auto address = reinterpret_cast<uintptr_t>(shared.data());
    return reinterpret_cast<void *>((address + 15) / 16 * 16);
  }
  void wait(State state) {
    threads[current].state = state;
    giveWay();
  }
  uint32_t exchange(uint32_t kind, uint32_t mask, uint32_t value, uint32_t lane) {
    Thread &own = threads[current];
    own.kind = kind, own.mask = mask, own.value = value, own.lane = lane;
    wait(State::exchange);
    return own.result;
  }
  void access(const void *address, uint32_t bytes, bool isStore);

private:
  void runLoop();
  void runFibers();
  void start(Thread &thread, uint32_t stack, void (*function)(context::transfer_t));
  void resume(Thread &thread) { thread.where = context::jump_fcontext(thread.where, this).fctx; }
  void giveWay() { scheduler = context::jump_fcontext(scheduler, nullptr).fctx; }
  static void runThread(context::transfer_t from);
  static void runAllThreads(context::transfer_t from);
  bool releaseBarrier();
  bool releaseExchanges(uint32_t warp);
  bool isConcurrent(const Moment &then) const;
  const char *problemOf(Shadow &byte, bool isStore, bool isShared);
  Shadow &shadowOf(uintptr_t address);
  void fail(const std::string &what);
  /// Leaves the running thread for good.
  void stop() {
    threads[current].state = State::done;
    for (;;)
      giveWay();
  }

  const MpcSimKernel &kernel;
  Extent grid, block;
  void **parameters;
  const MemoryMap &memory;
  uint32_t count;
  std::unique_ptr<std::byte[]> stacks;
  std::vector<std::byte> shared;
  std::vector<Shadow> sharedShadow;
  std::unordered_map<uintptr_t, std::unique_ptr<ShadowPage>> pages;
  std::pair<uintptr_t, ShadowPage *> lastPage{0, nullptr};
  uint32_t interval = 0, firstInterval = 0; ///< now, and when the block began
  std::vector<uint32_t> parts;              ///< now, per warp

  std::vector<Thread> threads;
  context::fcontext_t scheduler = nullptr; ///< whom a waiting thread gives way to
  uint32_t current = 0;
  Extent place{};
  std::string error;
};

thread_local Execution *execution = nullptr;
} // namespace

void Execution::fail(const std::string &what) {
  if (!error.empty())
    return;
  Extent t = thread();
  char text[200];
  std::snprintf(text, sizeof text, ", block (%u, %u, %u), thread (%u, %u, %u): ", place[0],
                place[1], place[2], t[0], t[1], t[2]);
  error = std::string("kernel ") + kernel.name + text + what;
}

/// True if what another thread of this block did then is not known to be done now.
bool Execution::isConcurrent(const Moment &then) const {
  if (then.interval != interval || then.thread == current)
    return false;
  return then.thread / kWarp != current / kWarp || then.part == parts[current / kWarp];
}

/// Notes an access; what is wrong with it, or null. Barriers order the threads of a block or of a
/// warp; nothing orders blocks.
const char *Execution::problemOf(Shadow &byte, bool isStore, bool isShared) {
  bool isWritten = byte.write.interval >= firstInterval;
  if (isShared && !isWritten && !isStore)
    return "reads shared memory that no thread of the block has written";
  if (!isShared && byte.write.interval != 0 && !isWritten)
    return isStore ? "writes what another block writes" : "reads what another block writes";
  if (isConcurrent(byte.write))
    return "accesses what another thread writes, without a barrier between them";
  Moment now{interval, parts[current / kWarp], current};
  bool isReadNow = byte.read.interval == interval;
  bool isReadHere = isReadNow && byte.read.thread / kWarp == current / kWarp;
  byte.isReadByOtherBlock |= byte.read.interval != 0 && byte.read.interval < firstInterval;
  if (isStore) {
    if (!isShared && byte.isReadByOtherBlock)
      return "writes what another block reads";
    if (isConcurrent(byte.read) ||
        (isReadNow && (byte.isReadByOthers || (byte.isReadByWarp && byte.read.part == now.part))))
      return "writes what another thread reads, without a barrier between them";
    byte.write = now;
    return nullptr;
  }
  byte.isReadByOthers = isReadNow && (byte.isReadByOthers || !isReadHere);
  byte.isReadByWarp = isReadHere && byte.read.part == now.part &&
                      (byte.isReadByWarp || byte.read.thread != current);
  byte.read = now;
  return nullptr;
}

Shadow &Execution::shadowOf(uintptr_t address) {
  uintptr_t number = address / kPageBytes;
  if (!lastPage.second || lastPage.first != number) {
    std::unique_ptr<ShadowPage> &page = pages[number];
    if (!page)
      page = std::make_unique<ShadowPage>();
    lastPage = {number, page.get()};
  }
  return (*lastPage.second)[address % kPageBytes];
}

void Execution::access(const void *address, uint32_t bytes, bool isStore) {
  auto at = static_cast<const std::byte *>(address) - static_cast<std::byte *>(sharedMemory());
  bool isShared =
      at >= 0 && at + static_cast<ptrdiff_t>(bytes) <= static_cast<ptrdiff_t>(sharedShadow.size());
  const char *problem = nullptr;
  if (isShared || memory.contains(address, bytes)) {
    for (uint32_t i = 0; i < bytes && !problem; ++i)
      problem = problemOf(isShared ? sharedShadow[at + i]
                                   : shadowOf(reinterpret_cast<uintptr_t>(address) + i),
                          isStore, isShared);
  } else {
    problem = "accesses memory outside of every buffer";
  }
  if (!problem)
    return;
  char where[80];
  if (isShared)
    std::snprintf(where, sizeof where, " (%s %u bytes at byte %td of shared memory)",
                  isStore ? "store of" : "load of", bytes, at);
  else
    std::snprintf(where, sizeof where, " (%s %u bytes at %p)", isStore ? "store of" : "load of",
                  bytes, address);
  fail(std::string(problem) + where);
  stop();
}

/// All threads wait at the barrier: they go on. (A GPU lets a barrier pass that threads have
/// left behind by ending; generated code never means that.)
bool Execution::releaseBarrier() {
  for (const Thread &thread : threads)
    if (thread.state != State::barrier)
      return false;
  for (Thread &thread : threads)
    thread.state = State::ready;
  ++interval;
  return true;
}

/// Lanes whose whole mask waits for the same exchange get their values.
bool Execution::releaseExchanges(uint32_t warp) {
  uint32_t first = warp * kWarp, lanes = std::min(kWarp, count - first);
  bool any = false;
  for (uint32_t l = 0; l < lanes; ++l) {
    Thread &own = threads[first + l];
    if (own.state != State::exchange)
      continue;
    bool complete = own.mask >> l & 1;
    uint32_t ballot = 0;
    for (uint32_t m = 0; m < lanes && complete; ++m) {
      if (!(own.mask >> m & 1))
        continue;
      const Thread &other = threads[first + m];
      complete = other.state == State::exchange && other.kind == own.kind && other.mask == own.mask;
      ballot |= (other.value & 1) << m;
    }
    if (!complete)
      continue;
    uint32_t mask = own.mask;
    parts[warp] += own.kind == kWarpBarrier && mask == ~0u;
    for (uint32_t m = 0; m < lanes; ++m) {
      if (!(mask >> m & 1))
        continue;
      Thread &other = threads[first + m];
      uint32_t from = other.kind == MPC_SIM_BUTTERFLY ? m ^ other.lane : other.lane;
      bool exists = from < lanes && (mask >> from & 1);
      other.result = other.kind == kBallot ? ballot
                     : exists              ? threads[first + from].value
                                           : other.value;
      other.state = State::ready;
    }
    any = true;
  }
  return any;
}

void Execution::start(Thread &thread, uint32_t stack, void (*function)(context::transfer_t)) {
  // The stack grows down from its end.
  std::byte *end = stacks.get() + (stack + 1) * kStackBytes;
  thread.where = context::make_fcontext(end, kStackBytes, function);
  thread.state = State::ready;
}

void Execution::runThread(context::transfer_t from) {
  auto &own = *static_cast<Execution *>(from.data);
  own.scheduler = from.fctx;
  own.kernel.function(own.parameters);
  own.stop();
}

void Execution::runFibers() {
  for (uint32_t t = 0; t < count; ++t)
    start(threads[t], t, runThread);
  for (bool progress = true; progress;) {
    progress = false;
    for (current = 0; current < count; ++current) {
      if (threads[current].state != State::ready)
        continue;
      resume(threads[current]);
      if (!error.empty())
        return;
      progress = true;
    }
    for (uint32_t warp = 0; warp * kWarp < count; ++warp)
      progress |= releaseExchanges(warp);
    progress |= releaseBarrier();
  }
  for (current = 0; current < count; ++current)
    if (threads[current].state != State::done)
      return fail(threads[current].state == State::barrier
                      ? "waits at a barrier that not all threads of the block reach"
                      : "waits for lanes of its warp that do not take part in the exchange");
}

void Execution::runAllThreads(context::transfer_t from) {
  auto &own = *static_cast<Execution *>(from.data);
  own.scheduler = from.fctx;
  for (own.current = 0; own.current < own.count; ++own.current)
    own.kernel.function(own.parameters);
  own.current = 0;
  own.stop();
}

/// One stack for all threads: it is only there to be left when something is wrong.
void Execution::runLoop() {
  Thread all;
  start(all, 0, runAllThreads);
  resume(all);
}

std::string Execution::run() {
  if (kernel.threads != 0 && kernel.threads != count)
    return std::string("kernel ") + kernel.name + " needs blocks of " +
           std::to_string(kernel.threads) + " threads, not of " + std::to_string(count);
  Execution *outer = std::exchange(execution, this);
  for (place[2] = 0; place[2] < grid[2]; ++place[2])
    for (place[1] = 0; place[1] < grid[1]; ++place[1])
      for (place[0] = 0; place[0] < grid[0] && error.empty(); ++place[0]) {
        firstInterval = ++interval;
        kernel.synchronizes ? runFibers() : runLoop();
      }
  execution = outer;
  return error;
}

std::string mpc::sim::run(const MpcSimKernel &kernel, Extent grid, Extent block, void **parameters,
                          const MemoryMap &memory) {
  return Execution(kernel, grid, block, parameters, memory).run();
}

extern "C" {
uint32_t mpc_sim_tid_x(void) { return execution->thread()[0]; }
uint32_t mpc_sim_tid_y(void) { return execution->thread()[1]; }
uint32_t mpc_sim_tid_z(void) { return execution->thread()[2]; }
uint32_t mpc_sim_ctaid_x(void) { return execution->blockIndex()[0]; }
uint32_t mpc_sim_ctaid_y(void) { return execution->blockIndex()[1]; }
uint32_t mpc_sim_ctaid_z(void) { return execution->blockIndex()[2]; }
void mpc_sim_barrier(void) { execution->wait(State::barrier); }
uint32_t mpc_sim_shuffle(uint32_t kind, uint32_t mask, uint32_t value, uint32_t lane) {
  return execution->exchange(kind, mask, value, lane);
}
uint32_t mpc_sim_ballot(uint32_t mask, uint32_t predicate) {
  return execution->exchange(kBallot, mask, predicate, 0);
}
void mpc_sim_warp_barrier(uint32_t mask) { execution->exchange(kWarpBarrier, mask, 0, 0); }
void *mpc_sim_shared(void) { return execution->sharedMemory(); }
void mpc_sim_access(const void *address, uint32_t bytes, uint32_t is_store) {
  execution->access(address, bytes, is_store != 0);
}

uint16_t mpc_sim_round_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
}
