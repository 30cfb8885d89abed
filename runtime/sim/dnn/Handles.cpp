//===- Handles.cpp - the simulated cuDNN: its version, handles and errors -----------------===//

#include "runtime/sim/dnn/Objects.h"
#include "runtime/sim/driver/Library.h"
#include "runtime/sim/library/Say.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

using namespace mpc::sim;
using namespace mpc::sim::dnn;

namespace {
thread_local std::string lastError;

/// As the real library at its first call, whichever that is.
void openGraphPart() {
  constexpr const char *kName = "libcudnn_graph.so.9";
  Dl_info own;
  if (dladdr(reinterpret_cast<void *>(&openGraphPart), &own) != 0) {
    auto beside = std::filesystem::path(own.dli_fname).parent_path() / kName;
    if (dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL))
      return;
  }
  if (dlopen(kName, RTLD_NOW | RTLD_LOCAL))
    return;
  std::fprintf(stderr, "mpc-sim: cuDNN cannot open %s, and ends the process\n", kName);
  std::abort();
}
} // namespace

namespace mpc::sim::dnn {

Library &library() {
  static auto *library = [] {
    openGraphPart();
    return new Library;
  }();
  return *library;
}

cudnnStatus_t refuse(cudnnStatus_t status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  lastError = sayText(format, arguments);
  va_end(arguments);
  return status;
}

cudnnStatus_t decline(cudnnStatus_t status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  lastError = makeText(format, arguments);
  va_end(arguments);
  return status;
}

cudnnStatus_t checkHandle(const char *function, const Handle *handle) {
  if (!handle)
    return refuse(CUDNN_STATUS_BAD_PARAM, "%s: there is no such handle, or it was destroyed",
                  function);
  if (handle->user != std::thread::id() && handle->user != std::this_thread::get_id())
    return refuse(CUDNN_STATUS_EXECUTION_FAILED,
                  "%s: another thread uses the handle at the same time", function);
  return CUDNN_STATUS_SUCCESS;
}

} // namespace mpc::sim::dnn

size_t cudnnGetVersion() {
  library();
  const char *version = std::getenv("MPC_SIM_DNN_VERSION");
  return version ? std::strtoull(version, nullptr, 10) : CUDNN_VERSION;
}

size_t cudnnGetCudartVersion() { return 12090; }

const char *cudnnGetErrorString(cudnnStatus_t status) {
#define MPC_STATUS(name)                                                                           \
  case name:                                                                                       \
    return #name;
  switch (status) {
    MPC_STATUS(CUDNN_STATUS_SUCCESS)
    MPC_STATUS(CUDNN_STATUS_NOT_INITIALIZED)
    MPC_STATUS(CUDNN_STATUS_BAD_PARAM)
    MPC_STATUS(CUDNN_STATUS_BAD_PARAM_NULL_POINTER)
    MPC_STATUS(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER)
    MPC_STATUS(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED)
    MPC_STATUS(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND)
    MPC_STATUS(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH)
    MPC_STATUS(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES)
    MPC_STATUS(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE)
    MPC_STATUS(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE)
    MPC_STATUS(CUDNN_STATUS_NOT_SUPPORTED)
    MPC_STATUS(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN)
    MPC_STATUS(CUDNN_STATUS_NOT_SUPPORTED_SHAPE)
    MPC_STATUS(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE)
    MPC_STATUS(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT)
    MPC_STATUS(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH)
    MPC_STATUS(CUDNN_STATUS_NOT_SUPPORTED_PADDING)
    MPC_STATUS(CUDNN_STATUS_INTERNAL_ERROR)
    MPC_STATUS(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    MPC_STATUS(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    MPC_STATUS(CUDNN_STATUS_EXECUTION_FAILED)
    MPC_STATUS(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER)
  default:
    return "unrecognized status";
  }
#undef MPC_STATUS
}

void cudnnGetLastErrorString(char *message, size_t bytes) {
  if (!message || bytes == 0)
    return;
  size_t length = std::min(lastError.size(), bytes - 1);
  std::copy_n(lastError.data(), length, message);
  message[length] = 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  return call([&](Library &library) {
    if (!handle)
      return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnCreate: no place for the handle");
    const char *isThere = std::getenv("MPC_SIM_DNN");
    Handle made;
    if ((isThere && std::strcmp(isThere, "0") == 0) || mpc_sim_strikes(Fault::dnnStart) ||
        mpc_sim_current(&made.context, &made.capability) != CUDA_SUCCESS ||
        mpc_sim_check_unsafe("cudnnCreate") != CUDA_SUCCESS)
      return decline(CUDNN_STATUS_NOT_INITIALIZED, "cudnnCreate: there is no context to work in");
    *handle = library.handles.add(made);
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return call([&](Library &library) {
    if (mpc_sim_check_unsafe("cudnnDestroy") == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
      return CUDNN_STATUS_INTERNAL_ERROR;
    if (cudnnStatus_t status = checkHandle("cudnnDestroy", library.handles.find(handle)))
      return status;
    library.handles.remove(handle);
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return call([&](Library &library) {
    Handle *found = library.handles.find(handle);
    if (cudnnStatus_t status = checkHandle("cudnnSetStream", found))
      return status;
    found->stream = stream;
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
  return call([&](Library &library) {
    Handle *found = library.handles.find(handle);
    if (!found || !stream)
      return refuse(CUDNN_STATUS_BAD_PARAM, "cudnnGetStream: there is no such handle, or no place");
    *stream = found->stream;
    return CUDNN_STATUS_SUCCESS;
  });
}
