//===- Driver.h - what the simulated driver is made of ------------------------------------===//
//
// Work is queued per stream and runs when something waits for it, no earlier: the stream that is
// waited for first, others only as far as its events need them. A program that relies on an order
// it has not asked for is likely to see another one here, and the race log knows it for
// sure.
//
// Handles are numbers that are looked up, never pointers: they are not given out twice, so that a
// dead one, or one of another kind or context, is always recognized.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_DRIVER_DRIVER_H
#define MPC_RUNTIME_SIM_DRIVER_DRIVER_H

#include "runtime/sim/driver/Errors.h"
#include "runtime/sim/driver/Library.h"
#include "runtime/sim/driver/Memory.h"
#include "runtime/sim/driver/Races.h"
#include "runtime/sim/driver/Settings.h"
#include <bit>
#include <cstdio>
#include <deque>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>
#include <variant>

namespace mpc::sim {

uintptr_t nextHandle();

/// The live objects of a kind.
template <typename Handle, typename T> class Table {
public:
  Handle add(std::shared_ptr<T> object) {
    auto handle = std::bit_cast<Handle>(nextHandle());
    objects.emplace(handle, std::move(object));
    return handle;
  }
  /// Null for what is no live handle.
  std::shared_ptr<T> find(Handle handle) const {
    auto found = objects.find(handle);
    return found == objects.end() ? nullptr : found->second;
  }
  /// Null likewise.
  std::shared_ptr<T> remove(Handle handle) {
    std::shared_ptr<T> object = find(handle);
    objects.erase(handle);
    return object;
  }

private:
  std::unordered_map<Handle, std::shared_ptr<T>> objects;
};

/// A loaded image.
struct Module {
  int file = -1; ///< open while the image is loaded: the loader knows images by their files
  void *image = nullptr;
  bool isLoaded = true; ///< until cuModuleUnload; queued work keeps the image itself alive
  std::unordered_map<std::string, CUfunction> functions; ///< that were asked for

  Module() = default;
  Module(const Module &) = delete;
  ~Module();
  const MpcSimKernel *find(const char *name) const;
};

struct Function {
  std::shared_ptr<Module> module;
  const MpcSimKernel *kernel = nullptr;
  bool isLoaded = false; ///< as far as the program can count on it
};

struct Copy {
  void *to = nullptr;
  const void *from = nullptr; ///< null: staged
  size_t bytes = 0;
  std::vector<std::byte> staged; ///< of pageable memory, read by the call
};
struct Fill {
  void *to = nullptr;
  unsigned char value = 0;
  size_t bytes = 0;
};
struct Launch {
  std::shared_ptr<Module> module;
  const MpcSimKernel *kernel = nullptr;
  Extent grid{}, block{};
  std::vector<std::vector<std::byte>> arguments;
};
using Work = std::variant<Copy, Fill, Launch, LibraryWork>;

struct Stream;

/// A point in a stream's queue that events remember.
struct Recording {
  Stream *stream = nullptr; ///< valid until isDone
  bool isDone = false;
  Clock clock;
  double time = 0; ///< when it was reached, by Context::microseconds
};

struct Node {
  Work work;
  std::vector<uint32_t> after; ///< nodes
};
struct Graph {
  std::vector<Node> nodes; ///< each one behind those it comes after
};

struct Executable {
  std::shared_ptr<const Graph> graph;
  std::vector<uint32_t> lanes;     ///< of the nodes; 0: the stream's
  std::shared_ptr<Recording> last; ///< the end of the last launch
};

/// Entries of a queue, beside work.
struct GraphRun {
  std::shared_ptr<const Executable> executable;
  std::vector<Clock> clocks; ///< of the nodes
};
struct Record {
  std::shared_ptr<Recording> recording;
};
struct Wait {
  std::shared_ptr<Recording> recording;
};
struct Entry {
  std::variant<Work, GraphRun, Record, Wait> what;
  Clock clock;
};

struct Capture {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  Stream *origin = nullptr;
  std::vector<Stream *> streams; ///< all that take part
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  bool isInvalid = false, isEnded = false;
};

struct Stream {
  uint32_t number = 0; ///< in the order of creation, from 1 on
  uint32_t lane = 0;
  std::deque<Entry> queue;
  Clock clock; ///< of what was queued last
  std::shared_ptr<Capture> capture;
  std::vector<uint32_t> tails; ///< the captured nodes that the next one comes after
};

struct Event {
  unsigned flags = 0;
  // Where it was recorded last: nowhere, in a queue, or in a capture.
  std::shared_ptr<Recording> recording;
  std::shared_ptr<Capture> capture;
  std::vector<uint32_t> tails;
};

struct Device;

struct Context {
  Context(Device &device, uint64_t memoryBytes)
      : device(device), handle(std::bit_cast<CUcontext>(nextHandle())), memory(memoryBytes) {}

  Device &device;
  CUcontext handle;
  Memory memory;
  Table<CUstream, Stream> streams;
  Table<CUevent, Event> events;
  Table<CUmodule, Module> modules;
  Table<CUfunction, Function> functions;
  Table<CUgraph, Graph> graphs;
  Table<CUgraphExec, Executable> executables;

  std::vector<std::shared_ptr<Stream>> queues; ///< all streams, destroyed ones until they are done
  uint32_t lanes = 1, streamNumbers = 1;       ///< the next ones
  Clock host;                                  ///< what the program has waited for
  RaceLog races;
  double microseconds = 0; ///< that all work so far has taken: the simulated clock
  std::vector<std::shared_ptr<Capture>> captures; ///< that have not ended

  // Queues.cpp
  /// What the next entry of the stream comes after.
  Clock &clockOf(Stream &stream);
  void push(Stream &stream, Entry entry);
  /// Queues work, or adds it to the graph that the stream captures.
  CUresult submit(Stream &stream, Work work);
  std::shared_ptr<Recording> record(Stream &stream);
  void waitFor(Stream &stream, const std::shared_ptr<Recording> &recording);
  // These run queued entries, until an error ends all.
  void runFirst(Stream &stream);
  void run(const Recording &recording);
  void run(Stream &stream);
  void synchronize(); ///< with all streams
  /// The program has waited for what the clock says.
  void hostWaited(const Clock &clock);
  /// MPC_SIM_FAULT asks for a launch that fails.
  CUresult failLaunch(const char *function);

  // Captures.cpp
  /// Ends the use of a capture; returns `result`.
  CUresult invalidate(Capture &capture, CUresult result);
  /// Refuses a call that may wait for the device while a capture forbids that.
  CUresult checkUnsafe(const char *function);
  /// Refuses to wait for, or ask for, a stream that captures.
  CUresult checkNotCapturing(Stream &stream, const char *function);

private:
  void execute(Entry &entry, Stream &stream);
  void execute(GraphRun &run, Stream &stream);
  void execute(const Work &work, uint32_t lane, const Clock &clock);
  bool execute(const Copy &copy, std::vector<Touched> &touched);
  bool execute(const Fill &fill, std::vector<Touched> &touched);
  bool execute(const Launch &launch, std::vector<Touched> &touched);
  bool execute(const LibraryWork &work, std::vector<Touched> &touched);
  /// MPC_SIM_FAULT asks for a kernel that fails.
  bool failKernel(const std::string &name);
  bool isLive(const void *address, size_t bytes, const char *what);
  std::string describe(const Work &work, uint32_t lane) const;
  /// By the simulated clock: work takes the same time in every run.
  static double microsecondsOf(const Work &work);
  void fail(CUresult error, const std::string &text);
};

struct Device {
  explicit Device(int ordinal) : ordinal(ordinal) {}
  int ordinal;
  unsigned retained = 0;            ///< how often the primary context is
  std::unique_ptr<Context> context; ///< while it is retained
  CUresult error = CUDA_SUCCESS;    ///< that ends all use of the device by this process
};

struct Driver {
  std::mutex mutex;
  bool isInitialized = false;
  Settings settings;
  std::deque<Device> devices;
  std::array<uint64_t, kFaultKinds> calls{}; ///< by Fault
  FILE *traced = nullptr;

  /// Counts a call; true if it is to fail.
  bool strikes(Fault fault);
  /// A line of MPC_SIM_TRACE.
  void trace(const char *call);
  /// Null for what is no live context.
  Context *find(CUcontext handle);
  Device *find(CUdevice device);
};

/// The one of this process. It stays until the process has ended.
Driver &driver();

/// The calling thread's context, or why there is none to use.
CUresult currentContext(Context *&context);

/// Runs a call after cuInit, one at a time.
template <typename Body> CUresult initialized(Body body) {
  std::lock_guard lock(driver().mutex);
  if (!driver().isInitialized)
    return CUDA_ERROR_NOT_INITIALIZED;
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

/// Runs a call that needs a context. It returns an error of the device, whatever queued work made
/// it.
template <typename Body> CUresult inContext(Body body) {
  return initialized([&]() -> CUresult {
    Context *context = nullptr;
    if (CUresult result = currentContext(context))
      return result;
    CUresult result = body(*context);
    context->memory.close();
    return context->device.error ? context->device.error : result;
  });
}

/// The stream of a call, or why it cannot be used.
CUresult findStream(const Context &context, CUstream handle, std::shared_ptr<Stream> &stream);

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_DRIVER_DRIVER_H
