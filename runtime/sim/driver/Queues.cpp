//===- Queues.cpp - queued work, and when it runs -----------------------------------------===//

#include "runtime/sim/driver/Driver.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <queue>

using namespace mpc::sim;

namespace {
/// A stream takes no more entries at once; the driver's queues are about that long, too.
constexpr size_t kQueueLength = 1024;

/// Kernels that touch more pieces than that are logged by blocks, which never hold bytes of two
/// tensors: these are aligned to as many.
constexpr size_t kPieces = 1024;
constexpr uintptr_t kBlock = 64;

constexpr const char *kKinds[] = {"copy", "memset", "kernel", "product"}; // as in Work

Touched touch(const void *address, size_t bytes, bool isWritten) {
  auto begin = reinterpret_cast<uintptr_t>(address);
  return {begin, begin + bytes, isWritten};
}

void coarsen(std::vector<Touched> &touched) {
  if (touched.size() <= kPieces)
    return;
  std::vector<Touched> blocks;
  for (Touched piece : touched) {
    piece.begin = piece.begin / kBlock * kBlock;
    piece.end = (piece.end + kBlock - 1) / kBlock * kBlock;
    if (blocks.empty() || blocks.back().end < piece.begin ||
        blocks.back().isWritten != piece.isWritten)
      blocks.push_back(piece);
    else
      blocks.back().end = std::max(blocks.back().end, piece.end);
  }
  touched = std::move(blocks);
}
} // namespace

void Context::fail(CUresult error, const std::string &text) {
  say("%s", text.c_str());
  if (!device.error)
    device.error = error;
}

CUresult Context::failLaunch(const char *function) {
  fail(CUDA_ERROR_LAUNCH_FAILED, std::string(function) + ": fails as MPC_SIM_FAULT asks for");
  return device.error;
}

//===- Queueing ---------------------------------------------------------------------------===//

Clock &Context::clockOf(Stream &stream) {
  join(stream.clock, host);
  return stream.clock;
}

void Context::push(Stream &stream, Entry entry) {
  stream.queue.push_back(std::move(entry));
  while (stream.queue.size() > kQueueLength && !device.error)
    runFirst(stream);
}

CUresult Context::submit(Stream &stream, Work work) {
  if (stream.capture) {
    if (stream.capture->isInvalid)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    std::vector<Node> &nodes = stream.capture->graph->nodes;
    nodes.push_back({std::move(work), stream.tails});
    stream.tails = {static_cast<uint32_t>(nodes.size() - 1)};
    return CUDA_SUCCESS;
  }
  driver().trace(kKinds[work.index()]);
  advance(clockOf(stream), stream.lane);
  push(stream, {std::move(work), stream.clock});
  return CUDA_SUCCESS;
}

std::shared_ptr<Recording> Context::record(Stream &stream) {
  auto recording = std::make_shared<Recording>();
  recording->stream = &stream;
  recording->clock = clockOf(stream);
  push(stream, {Record{recording}, stream.clock});
  return recording;
}

void Context::waitFor(Stream &stream, const std::shared_ptr<Recording> &recording) {
  join(clockOf(stream), recording->clock);
  if (!recording->isDone)
    push(stream, {Wait{recording}, stream.clock});
}

//===- Running ----------------------------------------------------------------------------===//

void Context::run(const Recording &recording) {
  while (!recording.isDone && !device.error)
    runFirst(*recording.stream);
}

void Context::run(Stream &stream) {
  while (!stream.queue.empty() && !device.error)
    runFirst(stream);
}

/// The stream that was made last comes first.
void Context::synchronize() {
  for (size_t s = queues.size(); s-- > 0;)
    run(*queues[s]);
  Clock all = host;
  for (const std::shared_ptr<Stream> &stream : queues)
    join(all, stream->clock);
  if (!device.error)
    hostWaited(all);
}

/// Work to come is done after what the program has waited for, and after the first entry
/// of its queue.
void Context::hostWaited(const Clock &clock) {
  join(host, clock);
  // Only this holds destroyed streams. What they did must stay known until the program has waited.
  std::erase_if(queues, [&](auto &stream) {
    return stream.use_count() == 1 && stream->queue.empty() &&
           at(stream->clock, stream->lane) <= at(host, stream->lane);
  });
  Clock done = host;
  for (const std::shared_ptr<Stream> &stream : queues)
    if (!stream->queue.empty())
      meet(done, stream->queue.front().clock);
  races.forget(done);
}

/// What an entry waits for was queued before it, so that this cannot come back to the same stream.
void Context::runFirst(Stream &stream) {
  Entry entry = std::move(stream.queue.front());
  stream.queue.pop_front();
  execute(entry, stream);
}

void Context::execute(Entry &entry, Stream &stream) {
  if (auto *work = std::get_if<Work>(&entry.what)) {
    execute(*work, stream.lane, entry.clock);
  } else if (auto *graph = std::get_if<GraphRun>(&entry.what)) {
    execute(*graph, stream);
  } else if (auto *wait = std::get_if<Wait>(&entry.what)) {
    run(*wait->recording);
  } else {
    Recording &recording = *std::get<Record>(entry.what).recording;
    recording.isDone = true;
    recording.time = microseconds;
  }
}

/// Of the nodes that may run, the one that was captured last comes first.
void Context::execute(GraphRun &run, Stream &stream) {
  const std::vector<Node> &nodes = run.executable->graph->nodes;
  std::vector<size_t> missing(nodes.size());
  std::vector<std::vector<uint32_t>> next(nodes.size());
  std::priority_queue<uint32_t> ready;
  for (uint32_t n = 0; n < nodes.size(); ++n) {
    missing[n] = nodes[n].after.size();
    for (uint32_t before : nodes[n].after)
      next[before].push_back(n);
    if (missing[n] == 0)
      ready.push(n);
  }
  while (!ready.empty() && !device.error) {
    uint32_t n = ready.top();
    ready.pop();
    uint32_t lane = run.executable->lanes[n];
    execute(nodes[n].work, lane == 0 ? stream.lane : lane, run.clocks[n]);
    for (uint32_t after : next[n])
      if (--missing[after] == 0)
        ready.push(after);
  }
}

void Context::execute(const Work &work, uint32_t lane, const Clock &clock) {
  memory.open();
  std::vector<Touched> touched;
  if (!std::visit([&](const auto &each) { return execute(each, touched); }, work))
    return;
  microseconds += microsecondsOf(work);
  coarsen(touched);
  if (std::string race = races.note(describe(work, lane), lane, clock, touched); !race.empty())
    fail(CUDA_ERROR_LAUNCH_FAILED, "a race between streams: " + race);
}

std::string Context::describe(const Work &work, uint32_t lane) const {
  std::string text;
  if (auto *copy = std::get_if<Copy>(&work))
    text = "a copy of " + std::to_string(copy->bytes) + " bytes";
  else if (auto *fill = std::get_if<Fill>(&work))
    text = "a memset of " + std::to_string(fill->bytes) + " bytes";
  else if (auto *launch = std::get_if<Launch>(&work))
    text = std::string("kernel ") + launch->kernel->name;
  else
    text = std::get<LibraryWork>(work).name;
  for (const std::shared_ptr<Stream> &stream : queues)
    if (stream->lane == lane)
      return text + " in stream " + std::to_string(stream->number);
  return text + " in a branch of a graph";
}

/// MPC_SIM_TIMES has names of kernels and of libraries' algorithms, else kinds of work.
double Context::microsecondsOf(const Work &work) {
  std::string name;
  if (auto *launch = std::get_if<Launch>(&work))
    name = launch->kernel->name;
  else if (auto *library = std::get_if<LibraryWork>(&work))
    name = library->algorithm;
  const std::map<std::string, double> &times = driver().settings.times;
  for (const std::string &each : {name, std::string(kKinds[work.index()])})
    if (auto found = times.find(each); found != times.end())
      return found->second;
  return kMicroseconds;
}

bool Context::isLive(const void *address, size_t bytes, const char *what) {
  Place place = memory.placeOf(address, bytes);
  if (place != Place::freed && place != Place::mixed)
    return true;
  char text[200];
  std::snprintf(text, sizeof text, "%s of %zu bytes at %p runs after this memory was freed", what,
                bytes, address);
  fail(CUDA_ERROR_ILLEGAL_ADDRESS, text);
  return false;
}

bool Context::execute(const Copy &copy, std::vector<Touched> &touched) {
  if (!isLive(copy.to, copy.bytes, "a copy's write"))
    return false;
  touched.push_back(touch(copy.to, copy.bytes, /*isWritten=*/true));
  if (!copy.from) {
    std::memcpy(copy.to, copy.staged.data(), copy.bytes);
    return true;
  }
  if (!isLive(copy.from, copy.bytes, "a copy's read"))
    return false;
  touched.push_back(touch(copy.from, copy.bytes, /*isWritten=*/false));
  std::memcpy(copy.to, copy.from, copy.bytes);
  return true;
}

bool Context::execute(const Fill &fill, std::vector<Touched> &touched) {
  if (!isLive(fill.to, fill.bytes, "a memset"))
    return false;
  touched.push_back(touch(fill.to, fill.bytes, /*isWritten=*/true));
  std::memset(fill.to, fill.value, fill.bytes);
  return true;
}

bool Context::failKernel(const std::string &name) {
  if (!driver().strikes(Fault::sticky))
    return false;
  fail(CUDA_ERROR_ILLEGAL_ADDRESS, name + " fails as MPC_SIM_FAULT asks for");
  return true;
}

bool Context::execute(const LibraryWork &work, std::vector<Touched> &touched) {
  if (failKernel(work.name))
    return false;
  for (const Touched &each : work.touched)
    if (!memory.map().contains(std::bit_cast<const void *>(each.begin), each.end - each.begin)) {
      char text[200];
      std::snprintf(text, sizeof text,
                    ": accesses memory outside of every buffer (%s of %zu bytes "
                    "at %#zx)",
                    each.isWritten ? "a write" : "a read", each.end - each.begin, each.begin);
      fail(CUDA_ERROR_ILLEGAL_ADDRESS, work.name + text);
      return false;
    }
  work.run();
  touched = work.touched;
  return true;
}

bool Context::execute(const Launch &launch, std::vector<Touched> &touched) {
  std::string name = std::string("kernel ") + launch.kernel->name;
  if (!launch.module->isLoaded) {
    fail(CUDA_ERROR_LAUNCH_FAILED, name + " runs after its module was unloaded");
    return false;
  }
  if (failKernel(name))
    return false;
  std::vector<std::vector<std::byte>> arguments = launch.arguments;
  std::vector<void *> parameters;
  parameters.reserve(arguments.size());
  for (std::vector<std::byte> &argument : arguments)
    parameters.push_back(argument.data());
  Report report;
  std::string problem = mpc::sim::run(*launch.kernel, launch.grid, launch.block, parameters.data(),
                                      memory.map(), &report);
  if (!problem.empty()) {
    fail(report.isOutside      ? CUDA_ERROR_ILLEGAL_ADDRESS
         : report.isMisaligned ? CUDA_ERROR_MISALIGNED_ADDRESS
                               : CUDA_ERROR_LAUNCH_FAILED,
         problem);
    return false;
  }
  touched = std::move(report.touched);
  return true;
}
