//===- Graphs.cpp - captures, graphs, and their launches ----------------------------------===//
//
//   stream A:  begin ── k1 ── record e ── k3 ── wait f ── end        k1 ─┬─ k3 ─┬─ …
//   stream B:               wait e ── k2 ── record f             →       └─ k2 ─┘
//
// While a stream captures, its work becomes nodes of a graph. A stream that waits for a captured
// event takes part. Whatever would have to know that captured work is done is an error, and ends
// the capture's use.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/driver/Driver.h"
#include <algorithm>

using namespace mpc::sim;

CUresult Context::invalidate(Capture &capture, CUresult result) {
  capture.isInvalid = true;
  return result;
}

/// The rules of cuThreadExchangeStreamCaptureMode for a thread that has not called it: no call that
/// may wait while a capture of this thread that is not relaxed, or a global one of any thread,
/// goes on.
CUresult Context::checkUnsafe(const char *function) {
  CUresult result = CUDA_SUCCESS;
  for (const std::shared_ptr<Capture> &capture : captures) {
    bool forbids = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
                   (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
                    capture->thread == std::this_thread::get_id());
    if (forbids)
      result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result ? refuse(result, "%s is not allowed while a stream captures", function) : result;
}

CUresult Context::checkNotCapturing(Stream &stream, const char *function) {
  if (!stream.capture)
    return CUDA_SUCCESS;
  return refuse(invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
                "%s is not allowed for a stream that captures", function);
}

namespace {
/// True if all nodes come before the origin's next one.
bool isJoined(const Graph &graph, const std::vector<uint32_t> &tails) {
  std::vector<bool> isBefore(graph.nodes.size());
  for (uint32_t node : tails)
    isBefore[node] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (!isBefore[n])
      return false;
    for (uint32_t before : graph.nodes[n].after)
      isBefore[before] = true;
  }
  return true;
}

/// Takes the streams out of the capture.
void end(Context &context, const std::shared_ptr<Capture> &capture) {
  for (Stream *stream : capture->streams) {
    stream->capture = nullptr;
    stream->tails.clear();
  }
  capture->isEnded = true;
  std::erase(context.captures, capture);
}

/// A node goes on in the lane of the first node before it whose lane nothing goes on in yet.
std::vector<uint32_t> assignLanes(Context &context, const Graph &graph) {
  std::vector<uint32_t> lanes(graph.nodes.size());
  std::vector<bool> isContinued(graph.nodes.size());
  bool isStreamTaken = false;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::vector<uint32_t> &after = graph.nodes[n].after;
    auto before =
        std::find_if(after.begin(), after.end(), [&](uint32_t node) { return !isContinued[node]; });
    if (before != after.end()) {
      isContinued[*before] = true;
      lanes[n] = lanes[*before];
    } else if (after.empty() && !isStreamTaken) {
      isStreamTaken = true;
    } else {
      lanes[n] = context.lanes++;
    }
  }
  return lanes;
}
} // namespace

//===- Captures ---------------------------------------------------------------------------===//

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return inContext([&](Context &context) {
    std::shared_ptr<Stream> stream;
    if (CUresult result = findStream(context, handle, stream))
      return result;
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        mode != CU_STREAM_CAPTURE_MODE_RELAXED)
      return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
      return CUDA_ERROR_ILLEGAL_STATE;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream.get();
    capture->streams.push_back(stream.get());
    context.captures.push_back(capture);
    stream->capture = std::move(capture);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  return inContext([&](Context &context) {
    std::shared_ptr<Stream> stream;
    if (CUresult result = findStream(context, handle, stream))
      return result;
    if (!graph)
      return CUDA_ERROR_INVALID_VALUE;
    *graph = nullptr;
    std::shared_ptr<Capture> capture = stream->capture;
    if (!capture)
      return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream.get())
      return context.invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != std::this_thread::get_id())
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    bool joined = isJoined(*capture->graph, stream->tails);
    end(context, capture);
    if (capture->isInvalid)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!joined)
      return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = context.graphs.add(capture->graph);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  return inContext([&](Context &context) {
    std::shared_ptr<Stream> stream;
    if (CUresult result = findStream(context, handle, stream))
      return result;
    if (!status)
      return CUDA_ERROR_INVALID_VALUE;
    *status = !stream->capture             ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->isInvalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  });
}

//===- Graphs -----------------------------------------------------------------------------===//

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *handle, CUgraph graphHandle,
                                    unsigned long long flags) {
  return inContext([&](Context &context) {
    if (!handle || (flags & ~uint64_t(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)))
      return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Graph> graph = context.graphs.find(graphHandle);
    if (!graph)
      return CUDA_ERROR_INVALID_HANDLE;
    auto executable = std::make_shared<Executable>();
    executable->graph = graph;
    executable->lanes = assignLanes(context, *graph);
    *handle = context.executables.add(std::move(executable));
    return CUDA_SUCCESS;
  });
}

// Comes after what is in the stream, and after the last launch of the same executable graph.
CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream streamHandle) {
  return inContext([&](Context &context) {
    std::shared_ptr<Executable> executable = context.executables.find(handle);
    if (!executable)
      return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Stream> stream;
    if (CUresult result = findStream(context, streamHandle, stream))
      return result;
    if (CUresult result = context.checkNotCapturing(*stream, "cuGraphLaunch"))
      return result;
    driver().trace("graph");
    if (driver().strikes(Fault::launch))
      return context.failLaunch("cuGraphLaunch");
    if (executable->last)
      context.waitFor(*stream, executable->last);
    const Clock begin = context.clockOf(*stream);
    GraphRun run{executable, {}};
    for (size_t n = 0; n < executable->graph->nodes.size(); ++n) {
      Clock clock = begin;
      for (uint32_t before : executable->graph->nodes[n].after)
        join(clock, run.clocks[before]);
      advance(clock, executable->lanes[n] ? executable->lanes[n] : stream->lane);
      join(stream->clock, clock);
      run.clocks.push_back(std::move(clock));
    }
    context.push(*stream, {std::move(run), begin});
    executable->last = context.record(*stream);
    return CUDA_SUCCESS;
  });
}

// Executable graphs keep what they need.
CUresult CUDAAPI cuGraphDestroy(CUgraph handle) {
  return inContext([&](Context &context) {
    return context.graphs.remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

// Launches that are queued still run.
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
  return inContext([&](Context &context) {
    return context.executables.remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}
