//===- Streams.cpp - streams and events ---------------------------------------------------===//

#include "runtime/sim/driver/Driver.h"
#include <algorithm>

using namespace mpc::sim;

namespace mpc::sim {

CUresult findStream(const Context &context, CUstream handle, std::shared_ptr<Stream> &stream) {
  if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
    return refuse(CUDA_ERROR_NOT_SUPPORTED,
                  "default streams are not simulated: make a stream and give it");
  stream = context.streams.find(handle);
  return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

} // namespace mpc::sim

namespace {
/// A call about a stream.
template <typename Body> CUresult onStream(CUstream handle, Body body) {
  return inContext([&](Context &context) {
    std::shared_ptr<Stream> stream;
    CUresult result = findStream(context, handle, stream);
    return result ? result : body(context, *stream);
  });
}

/// A call about an event.
template <typename Body> CUresult onEvent(CUevent handle, Body body) {
  return inContext([&](Context &context) {
    std::shared_ptr<Event> event = context.events.find(handle);
    return event ? body(context, *event) : CUDA_ERROR_INVALID_HANDLE;
  });
}

/// An event of a capture stands for no work that could be waited for.
CUresult checkNotCaptured(Context &context, const Event &event) {
  if (!event.capture)
    return CUDA_SUCCESS;
  return event.capture->isEnded ? CUDA_ERROR_CAPTURED_EVENT
                                : context.invalidate(*event.capture, CUDA_ERROR_CAPTURED_EVENT);
}

CUresult waitForCaptured(Context &context, Stream &stream, const Event &event) {
  if (event.capture->isEnded)
    return stream.capture ? context.invalidate(*stream.capture, CUDA_ERROR_CAPTURED_EVENT)
                          : CUDA_ERROR_CAPTURED_EVENT;
  if (event.capture->isInvalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.capture && stream.capture != event.capture) {
    context.invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return context.invalidate(*event.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.capture->streams.push_back(&stream);
  }
  for (uint32_t node : event.tails)
    if (std::find(stream.tails.begin(), stream.tails.end(), node) == stream.tails.end())
      stream.tails.push_back(node);
  return CUDA_SUCCESS;
}
} // namespace

//===- Streams ----------------------------------------------------------------------------===//

CUresult CUDAAPI cuStreamCreate(CUstream *handle, unsigned int flags) {
  return inContext([&](Context &context) {
    if (!handle || (flags & ~unsigned(CU_STREAM_NON_BLOCKING)))
      return CUDA_ERROR_INVALID_VALUE;
    auto stream = std::make_shared<Stream>();
    stream->number = context.streamNumbers++;
    stream->lane = context.lanes++;
    context.queues.push_back(stream);
    *handle = context.streams.add(std::move(stream));
    return CUDA_SUCCESS;
  });
}

// Its work still runs when something waits for it.
CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
  return onStream(handle, [&](Context &context, Stream &stream) {
    if (CUresult result = context.checkNotCapturing(stream, "cuStreamDestroy"))
      return result;
    context.streams.remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  return onStream(handle, [](Context &context, Stream &stream) {
    if (CUresult result = context.checkNotCapturing(stream, "cuStreamSynchronize"))
      return result;
    if (CUresult unsafe = context.checkUnsafe("cuStreamSynchronize"))
      return unsafe;
    driver().trace("wait for a stream");
    context.run(stream);
    if (!context.device.error)
      context.hostWaited(stream.clock);
    return CUDA_SUCCESS;
  });
}

// Lets one more entry run, and says that the last one is done when it is asked again.
CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  return onStream(handle, [](Context &context, Stream &stream) {
    if (CUresult result = context.checkNotCapturing(stream, "cuStreamQuery"))
      return result;
    if (CUresult unsafe = context.checkUnsafe("cuStreamQuery"))
      return unsafe;
    if (!stream.queue.empty()) {
      context.runFirst(stream);
      return CUDA_ERROR_NOT_READY;
    }
    context.hostWaited(stream.clock);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent eventHandle, unsigned int flags) {
  return onStream(handle, [&](Context &context, Stream &stream) {
    std::shared_ptr<Event> event = context.events.find(eventHandle);
    if (!event)
      return CUDA_ERROR_INVALID_HANDLE;
    if (flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (stream.capture && stream.capture->isInvalid)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (event->capture)
      return waitForCaptured(context, stream, *event);
    if (!event->recording) // the empty set of work
      return CUDA_SUCCESS;
    if (stream.capture)
      return context.invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    context.waitFor(stream, event->recording);
    return CUDA_SUCCESS;
  });
}

//===- Events -----------------------------------------------------------------------------===//

CUresult CUDAAPI cuEventCreate(CUevent *handle, unsigned int flags) {
  return inContext([&](Context &context) {
    if (!handle || (flags & ~unsigned(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)))
      return CUDA_ERROR_INVALID_VALUE;
    auto event = std::make_shared<Event>();
    event->flags = flags;
    *handle = context.events.add(std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventDestroy(CUevent handle) {
  return onEvent(handle, [&](Context &context, Event &) {
    context.events.remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream streamHandle) {
  return onEvent(handle, [&](Context &context, Event &event) {
    std::shared_ptr<Stream> stream;
    if (CUresult result = findStream(context, streamHandle, stream))
      return result;
    if (stream->capture && stream->capture->isInvalid)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event.capture = stream->capture;
    event.tails = stream->tails;
    event.recording = stream->capture ? nullptr : context.record(*stream);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
  return onEvent(handle, [](Context &context, Event &event) {
    if (CUresult result = checkNotCaptured(context, event))
      return result;
    if (CUresult unsafe = context.checkUnsafe("cuEventSynchronize"))
      return unsafe;
    if (!event.recording)
      return CUDA_SUCCESS;
    driver().trace("wait for an event");
    context.run(*event.recording);
    if (!context.device.error)
      context.hostWaited(event.recording->clock);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
  return onEvent(handle, [](Context &context, Event &event) {
    if (CUresult result = checkNotCaptured(context, event))
      return result;
    if (CUresult unsafe = context.checkUnsafe("cuEventQuery"))
      return unsafe;
    if (!event.recording)
      return CUDA_SUCCESS;
    if (!event.recording->isDone) {
      context.runFirst(*event.recording->stream);
      return CUDA_ERROR_NOT_READY;
    }
    context.hostWaited(event.recording->clock);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent startHandle, CUevent endHandle) {
  return onEvent(startHandle, [&](Context &context, Event &start) {
    std::shared_ptr<Event> end = context.events.find(endHandle);
    if (!end)
      return CUDA_ERROR_INVALID_HANDLE;
    if (!milliseconds)
      return CUDA_ERROR_INVALID_VALUE;
    for (const Event *event : {&start, end.get()}) {
      if (CUresult result = checkNotCaptured(context, *event))
        return result;
      if (!event->recording || (event->flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!start.recording->isDone || !end->recording->isDone)
      return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>((end->recording->time - start.recording->time) / 1e3);
    return CUDA_SUCCESS;
  });
}
