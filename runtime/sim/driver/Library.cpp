//===- Library.cpp - what simulated libraries ask of the simulated driver -----------------===//

#include "runtime/sim/driver/Driver.h"

using namespace mpc::sim;

CUresult mpc_sim_current(CUcontext *context, int *capability) {
  return inContext([&](Context &current) {
    *context = current.handle;
    *capability = driver().settings.capability;
    return CUDA_SUCCESS;
  });
}

CUresult mpc_sim_enqueue(CUcontext handle, CUstream streamHandle, const LibraryWork &work) {
  return inContext([&](Context &context) {
    if (context.handle != handle)
      return CUDA_ERROR_INVALID_CONTEXT;
    std::shared_ptr<Stream> stream;
    if (CUresult result = findStream(context, streamHandle, stream))
      return result;
    return context.submit(*stream, work);
  });
}

CUresult mpc_sim_check_unsafe(const char *function) {
  return inContext([&](Context &context) { return context.checkUnsafe(function); });
}

bool mpc_sim_strikes(Fault fault) {
  std::lock_guard lock(driver().mutex);
  return driver().strikes(fault);
}

void mpc_sim_trace(const char *line) {
  std::lock_guard lock(driver().mutex);
  driver().trace(line);
}
