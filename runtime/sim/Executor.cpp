//===- Executor.cpp - runs a grid of a simulated kernel ---------------------------------===//
//
// Boost.Context's fibers unwind their stack when they are destroyed; generated code cannot be
// unwound, so that a thread that is stopped in the middle is just left behind: this uses the
// switch beneath them, on stacks of its own.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/Executor.h"
#include "runtime/sim/TensorCores.h"
#include <algorithm>
#include <bitset>
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
constexpr uintptr_t kPageBytes = 4096, kWordBytes = 4;

/// An interval lies between two barriers of a block, counted over all blocks from 1 on. A part of
/// it lies between two barriers of a warp.
struct Moment {
  uint32_t interval = 0, part = 0, thread = 0;
};

/// Who touched a byte last, or all bytes of a word, and when.
struct Shadow {
  Moment write, read;
  bool isReadByWarp = false;   ///< by other lanes, too, in the same part
  bool isReadByOthers = false; ///< by other warps, too, in the same interval
  bool isReadByOtherBlock = false;
};

/// What happened to a page's bytes. A word's bytes mostly share what happened to them; where they
/// do not, there is one shadow for each.
struct ShadowPage {
  std::array<Shadow, kPageBytes / kWordBytes> words;
  std::bitset<kPageBytes / kWordBytes> isDivided;
  std::unique_ptr<std::array<Shadow, kPageBytes>> bytes;
};

enum class State : uint8_t { ready, barrier, exchange, done };

struct Thread {
  context::fcontext_t where = nullptr; ///< it goes on
  State state = State::ready;
  // An exchange: what this lane brings, and what it gets.
  uint32_t kind = 0, mask = 0, value = 0, lane = 0, result = 0;
  const void *row = nullptr; ///< of a matrix
  uint32_t *words = nullptr; ///< what tensor cores read and write
};

// Beside MPC_SIM_BUTTERFLY and MPC_SIM_INDEX.
constexpr uint32_t kBallot = 16, kWarpBarrier = 17, kLoadMatrices = 18, kLoadTransposed = 19,
                   kMultiply = 20; ///< and what mpc_sim_multiply is asked for

class Execution {
public:
  Execution(const MpcSimKernel &kernel, Extent grid, Extent block, void **parameters,
            const MemoryMap &memory)
      : kernel(kernel), grid(grid), block(block), parameters(parameters), memory(memory),
        count(block[0] * block[1] * block[2]),
        stacks(new std::byte[kStackBytes * (kernel.synchronizes ? count : 1)]),
        shared(kernel.shared_bytes + 16),
        sharedShadow((kernel.shared_bytes + kPageBytes - 1) / kPageBytes), parts(count / kWarp + 1),
        threads(count) {}

  std::string run();
  Report report() const;

  // What the kernel asks for.
  Extent thread() const {
    return {current % block[0], current / block[0] % block[1], current / block[0] / block[1]};
  }
  const Extent &blockIndex() const { return place; }
  void *sharedMemory() {
    auto address = reinterpret_cast<uintptr_t>(shared.data());
    return shared.data() + (16 - address % 16) % 16;
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
  /// The same for tensor cores.
  void exchange(uint32_t kind, const void *row, uint32_t *words) {
    threads[current].row = row, threads[current].words = words;
    exchange(kind, ~0u, 0, 0);
  }
  void access(const void *address, uint32_t bytes, bool isStore, uint32_t alignment);

private:
  bool isParameter(const void *address, uint32_t bytes) const;
  void runLoop();
  void runFibers();
  void start(Thread &thread, uint32_t stack, void (*function)(context::transfer_t));
  void resume(Thread &thread) { thread.where = context::jump_fcontext(thread.where, this).fctx; }
  void giveWay() { scheduler = context::jump_fcontext(scheduler, nullptr).fctx; }
  static void runThread(context::transfer_t from);
  static void runAllThreads(context::transfer_t from);
  bool releaseBarrier();
  bool releaseExchanges(uint32_t warp);
  void useTensorCores(uint32_t firstLane, uint32_t kind);
  bool isConcurrent(const Moment &then) const;
  bool areReadAsNow(const ShadowPage &page, uintptr_t first, uint32_t bytes) const;
  const char *problemOf(Shadow &byte, bool isStore, bool isShared);
  const char *problemOf(ShadowPage &page, uintptr_t first, uint32_t bytes, bool isStore,
                        bool isShared);
  ShadowPage &pageOf(uintptr_t number);
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
  std::vector<ShadowPage> sharedShadow;
  std::unordered_map<uintptr_t, std::unique_ptr<ShadowPage>> pages;
  std::pair<uintptr_t, ShadowPage *> lastPage{0, nullptr};
  uint32_t interval = 0, firstInterval = 0; ///< now, and when the block began
  std::vector<uint32_t> parts;              ///< now, per warp

  std::vector<Thread> threads;
  context::fcontext_t scheduler = nullptr; ///< whom a waiting thread gives way to
  uint32_t current = 0;
  Extent place{};
  std::string error;
  bool isOutside = false, isMisaligned = false;
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

/// True of words for which one reader more changes nothing: written before the last barrier, and
/// since then read by several warps, or by several lanes of this one. Most loads are of this kind.
bool Execution::areReadAsNow(const ShadowPage &page, uintptr_t first, uint32_t bytes) const {
  uint32_t warp = current / kWarp, part = parts[warp];
  if ((first | bytes) % kWordBytes != 0)
    return false;
  for (uintptr_t word = first / kWordBytes, end = (first + bytes) / kWordBytes; word < end;
       ++word) {
    const Shadow &shadow = page.words[word];
    bool hasReader = shadow.isReadByOthers || (shadow.isReadByWarp && shadow.read.part == part &&
                                               shadow.read.thread / kWarp == warp);
    if (shadow.read.interval != interval || shadow.write.interval == interval || !hasReader ||
        page.isDivided[word])
      return false;
  }
  return true;
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

ShadowPage &Execution::pageOf(uintptr_t number) {
  if (!lastPage.second || lastPage.first != number) {
    std::unique_ptr<ShadowPage> &page = pages[number];
    if (!page)
      page = std::make_unique<ShadowPage>();
    lastPage = {number, page.get()};
  }
  return *lastPage.second;
}

/// Of bytes [first, first + bytes) of a page.
const char *Execution::problemOf(ShadowPage &page, uintptr_t first, uint32_t bytes, bool isStore,
                                 bool isShared) {
  if (!isStore && areReadAsNow(page, first, bytes))
    return nullptr;
  const char *problem = nullptr;
  for (uintptr_t at = first, end = first + bytes; at < end && !problem;) {
    uintptr_t word = at / kWordBytes;
    if (!page.isDivided[word] && at % kWordBytes == 0 && end - at >= kWordBytes) {
      problem = problemOf(page.words[word], isStore, isShared);
      at += kWordBytes;
      continue;
    }
    if (!page.bytes)
      page.bytes = std::make_unique<std::array<Shadow, kPageBytes>>();
    if (!page.isDivided[word]) {
      std::fill_n(page.bytes->begin() + word * kWordBytes, kWordBytes, page.words[word]);
      page.isDivided[word] = true;
    }
    problem = problemOf((*page.bytes)[at], isStore, isShared);
    ++at;
  }
  return problem;
}

/// Arguments that are structures are read where they are.
bool Execution::isParameter(const void *address, uint32_t bytes) const {
  auto begin = reinterpret_cast<uintptr_t>(address);
  for (uint32_t i = 0; i < kernel.parameters; ++i) {
    auto first = reinterpret_cast<uintptr_t>(parameters[i]);
    if (begin >= first && begin + bytes <= first + parameterBytes(kernel, i))
      return true;
  }
  return false;
}

void Execution::access(const void *address, uint32_t bytes, bool isStore, uint32_t alignment) {
  auto number = reinterpret_cast<uintptr_t>(address);
  auto at = static_cast<const std::byte *>(address) - static_cast<std::byte *>(sharedMemory());
  bool isShared =
      at >= 0 && at + static_cast<ptrdiff_t>(bytes) <= static_cast<ptrdiff_t>(kernel.shared_bytes);
  const char *problem = nullptr;
  isOutside = !isShared && !memory.contains(address, bytes);
  isMisaligned = number % alignment != 0;
  if (isOutside && !isStore && !isMisaligned && isParameter(address, bytes)) {
    isOutside = false;
    return;
  }
  if (isOutside)
    problem = "accesses memory outside of every buffer";
  else if (isMisaligned)
    problem = "accesses an address that is not aligned as its code says";
  for (uintptr_t from = isShared ? at : number, end = from + bytes; from < end && !problem;) {
    uintptr_t page = from / kPageBytes, first = from % kPageBytes;
    auto part = static_cast<uint32_t>(std::min(end - from, kPageBytes - first));
    problem =
        problemOf(isShared ? sharedShadow[page] : pageOf(page), first, part, isStore, isShared);
    from += part;
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
    uint32_t mask = own.mask, kind = own.kind;
    if (kind >= kLoadMatrices && lanes < kWarp)
      continue;
    parts[warp] += kind == kWarpBarrier && mask == ~0u;
    if (kind >= kLoadMatrices)
      useTensorCores(first, kind);
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

/// What the warp's lanes have brought is multiplied, or loaded.
void Execution::useTensorCores(uint32_t firstLane, uint32_t kind) {
  WarpWords words;
  std::array<const void *, kWarp> rows;
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    words[lane] = threads[firstLane + lane].words;
    rows[lane] = threads[firstLane + lane].row;
  }
  if (kind >= kMultiply)
    multiply(kind - kMultiply, words);
  else
    loadMatrices(kind == kLoadTransposed, rows, words);
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

/// What the shadows tell.
Report Execution::report() const {
  Report report{isOutside, isMisaligned, {}};
  if (!error.empty())
    return report;
  std::vector<uintptr_t> numbers;
  numbers.reserve(pages.size());
  for (const auto &[number, page] : pages)
    numbers.push_back(number);
  std::sort(numbers.begin(), numbers.end());
  auto add = [&](const Shadow &shadow, uintptr_t begin, uintptr_t bytes) {
    bool isWritten = shadow.write.interval != 0;
    if (!isWritten && shadow.read.interval == 0)
      return;
    if (!report.touched.empty() && report.touched.back().end == begin &&
        report.touched.back().isWritten == isWritten)
      report.touched.back().end += bytes;
    else
      report.touched.push_back({begin, begin + bytes, isWritten});
  };
  for (uintptr_t number : numbers) {
    const ShadowPage &page = *pages.at(number);
    for (uintptr_t word = 0; word < page.words.size(); ++word) {
      uintptr_t first = word * kWordBytes, address = number * kPageBytes + first;
      if (!page.isDivided[word])
        add(page.words[word], address, kWordBytes);
      else
        for (uintptr_t byte = 0; byte < kWordBytes; ++byte)
          add((*page.bytes)[first + byte], address + byte, 1);
    }
  }
  return report;
}

std::string mpc::sim::run(const MpcSimKernel &kernel, Extent grid, Extent block, void **parameters,
                          const MemoryMap &memory, Report *report) {
  Execution execution(kernel, grid, block, parameters, memory);
  std::string error = execution.run();
  if (report)
    *report = execution.report();
  return error;
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
void mpc_sim_multiply(uint32_t kind, uint32_t *words) {
  execution->exchange(kMultiply + kind, nullptr, words);
}
void mpc_sim_load_matrices(uint32_t transposed, const void *row, uint32_t *words) {
  constexpr uint32_t kRowBytes = 16;
  execution->access(row, kRowBytes, false, kRowBytes);
  execution->exchange(transposed ? kLoadTransposed : kLoadMatrices, row, words);
}
void *mpc_sim_shared(void) { return execution->sharedMemory(); }
void mpc_sim_access(const void *address, uint32_t bytes, uint32_t is_store, uint32_t alignment) {
  execution->access(address, bytes, is_store != 0, alignment);
}

uint16_t mpc_sim_round_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
}
