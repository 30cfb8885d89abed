//===- Gpu.cpp - a GPU: its context, memory, streams and kernels -----------------------===//

#include "runtime/cuda/Gpu.h"
#include "runtime/core/Error.h"
#include "runtime/cpu/Memory.h"

using namespace mpc;
using namespace mpc::cuda;
using cpu::bytesText;

Gpu::Gpu(const std::string &folder, int ordinal) : driver(folder), number(ordinal) {
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "counting the GPUs failed");
  if (ordinal >= count)
    throw Error("--device " + std::to_string(ordinal) + ": this machine has " +
                (count == 1
                     ? "one GPU, device 0"
                     : std::to_string(count) + " GPUs, devices 0 to " + std::to_string(count - 1)));
  driver.check(driver.cuDeviceGet(&device, ordinal), "opening the GPU failed");
  char text[256] = "";
  driver.check(driver.cuDeviceGetName(text, sizeof text, device), "asking the GPU's name failed");
  deviceName = text;
  int major = 0, minor = 0;
  for (auto [value, attribute] : {std::pair(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                  std::pair(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)})
    driver.check(driver.cuDeviceGetAttribute(value, attribute, device),
                 "asking the GPU's architecture failed");
  capability = static_cast<uint32_t>(10 * major + minor);
  size_t bytes = 0;
  driver.check(driver.cuDeviceTotalMem(&bytes, device), "asking the GPU's memory failed");
  total = bytes;
  CUcontext made = nullptr;
  driver.check(driver.cuDevicePrimaryCtxRetain(&made, device),
               "the GPU cannot be used (is it in exclusive use by another process?)");
  context = {made, [this](CUcontext) { driver.cuDevicePrimaryCtxRelease(device); }};
  driver.check(driver.cuCtxSetCurrent(context), "the GPU cannot be used");
}

uint64_t Gpu::freeMemory() const {
  size_t free = 0, all = 0;
  driver.check(driver.cuMemGetInfo(&free, &all), "asking the GPU's free memory failed");
  return free;
}

void Gpu::lacksMemory(const std::string &purpose, uint64_t bytes) const {
  throw Error("not enough GPU memory: " + purpose + " needs " + bytesText(bytes) + ", and of " +
              bytesText(total) + " of device " + std::to_string(number) + " (" + deviceName + ") " +
              bytesText(freeMemory()) +
              " are free: compile the model with a smaller --batch, or end other programs that use "
              "the GPU");
}

DeviceMemory Gpu::allocate(uint64_t bytes, const std::string &purpose) const {
  CUdeviceptr memory = 0;
  CUresult result = driver.cuMemAlloc(&memory, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    lacksMemory(purpose, bytes);
  checkRun(result, "allocating GPU memory failed");
  return {memory, [this](CUdeviceptr memory) { driver.cuMemFree(memory); }};
}

HostMemory Gpu::allocateHost(uint64_t bytes) const {
  void *memory = nullptr;
  CUresult result = driver.cuMemHostAlloc(&memory, bytes, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    throw Error("out of memory: the batches on their way to the GPU need " + bytesText(bytes) +
                " of the host's memory");
  checkRun(result, "allocating page-locked memory failed");
  return {memory, [this](void *memory) { driver.cuMemFreeHost(memory); }};
}

Stream Gpu::stream() const {
  CUstream stream = nullptr;
  checkRun(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "making a stream failed");
  return {stream, [this](CUstream stream) { driver.cuStreamDestroy(stream); }};
}

Event Gpu::event(bool isTimed) const {
  CUevent event = nullptr;
  checkRun(driver.cuEventCreate(&event, isTimed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING),
           "making an event failed");
  return {event, [this](CUevent event) { driver.cuEventDestroy(event); }};
}

Module Gpu::load(const void *image) const {
  CUmodule module = nullptr;
  // What the driver's compiler says of PTX that it cannot compile.
  char log[1024] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
  CUresult result = driver.cuModuleLoadDataEx(&module, image, 2, options, values);
  if (result != CUDA_SUCCESS)
    throw Error("the GPU's driver cannot load this program's kernels: " + driver.text(result) +
                (log[0] ? std::string(": ") + log : ""));
  return {module, [this](CUmodule module) { driver.cuModuleUnload(module); }};
}

CUfunction Gpu::function(CUmodule module, const std::string &symbol) const {
  CUfunction function = nullptr;
  CUresult result = driver.cuModuleGetFunction(&function, module, symbol.c_str());
  if (result == CUDA_ERROR_NOT_FOUND)
    throw Error("the compiled program has no GPU kernel '" + symbol +
                "' (compile the model again)");
  checkRun(result, "looking up a kernel failed");
  return function;
}

void Gpu::load(CUfunction function) const {
  if (driver.cuFuncLoad)
    checkRun(driver.cuFuncLoad(function), "loading a kernel failed");
}

/// After these the context is of no more use.
static bool isSticky(CUresult result) {
  switch (result) {
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case CUDA_ERROR_LAUNCH_FAILED:
  case CUDA_ERROR_LAUNCH_TIMEOUT:
  case CUDA_ERROR_ECC_UNCORRECTABLE:
  case CUDA_ERROR_HARDWARE_STACK_ERROR:
  case CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case CUDA_ERROR_INVALID_PC:
  case CUDA_ERROR_NVLINK_UNCORRECTABLE:
  case CUDA_ERROR_ASSERT:
    return true;
  default:
    return false;
  }
}

void Gpu::checkParameters(CUfunction function, const std::string &symbol,
                          const std::vector<size_t> &bytes) const {
  if (!driver.cuFuncGetParamInfo)
    return;
  for (size_t i = 0; i <= bytes.size(); ++i) {
    size_t offset = 0, size = 0;
    CUresult result = driver.cuFuncGetParamInfo(function, i, &offset, &size);
    if (isSticky(result))
      checkRun(result, "asking for a kernel's parameters failed");
    bool isBehind = i == bytes.size(); // of the last one, where there has to be none
    if (result == CUDA_SUCCESS ? isBehind || size != bytes[i]
                               : result == CUDA_ERROR_INVALID_VALUE && !isBehind)
      throw Error("the GPU kernel '" + symbol +
                  "' takes other parameters than the compiled program gives it (compile the model "
                  "again)");
  }
}

Graph Gpu::capture(CUstream stream, const std::function<void()> &issue) const {
  checkRun(driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
           "recording a step failed");
  CUgraph graph = nullptr;
  try {
    issue();
  } catch (...) {
    driver.cuStreamEndCapture(stream, &graph);
    if (graph)
      driver.cuGraphDestroy(graph);
    throw;
  }
  checkRun(driver.cuStreamEndCapture(stream, &graph), "recording a step failed");
  CUgraphExec executable = nullptr;
  CUresult result = driver.cuGraphInstantiate(&executable, graph, 0);
  driver.cuGraphDestroy(graph);
  checkRun(result, "preparing a step failed");
  return {executable, [this](CUgraphExec graph) { driver.cuGraphExecDestroy(graph); }};
}

void Gpu::launch(CUstream stream, CUfunction function, uint32_t grid, uint32_t block,
                 void **parameters) const {
  checkRun(driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, parameters, nullptr),
           "launching a kernel failed");
}

void Gpu::launch(CUstream stream, CUgraphExec graph) const {
  checkRun(driver.cuGraphLaunch(graph, stream), "launching a step failed");
}

void Gpu::upload(CUstream stream, CUdeviceptr to, const void *from, size_t bytes) const {
  if (bytes)
    checkRun(driver.cuMemcpyHtoDAsync(to, from, bytes, stream), "copying to the GPU failed");
}

void Gpu::download(CUstream stream, void *to, CUdeviceptr from, size_t bytes) const {
  if (bytes)
    checkRun(driver.cuMemcpyDtoHAsync(to, from, bytes, stream), "copying from the GPU failed");
}

void Gpu::copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) const {
  if (bytes)
    checkRun(driver.cuMemcpyDtoDAsync(to, from, bytes, stream), "copying on the GPU failed");
}

void Gpu::clear(CUstream stream, CUdeviceptr to, size_t bytes) const {
  if (bytes)
    checkRun(driver.cuMemsetD8Async(to, 0, bytes, stream), "clearing GPU memory failed");
}

void Gpu::record(CUevent event, CUstream stream) const {
  checkRun(driver.cuEventRecord(event, stream), "recording an event failed");
}

void Gpu::wait(CUstream stream, CUevent event) const {
  checkRun(driver.cuStreamWaitEvent(stream, event, 0), "ordering the GPU's streams failed");
}

void Gpu::synchronize(CUstream stream) const {
  checkRun(driver.cuStreamSynchronize(stream), "the GPU failed");
}

void Gpu::synchronize(CUevent event) const {
  checkRun(driver.cuEventSynchronize(event), "the GPU failed");
}

double Gpu::milliseconds(CUevent from, CUevent to) const {
  float milliseconds = 0;
  checkRun(driver.cuEventElapsedTime(&milliseconds, from, to), "timing the GPU failed");
  return milliseconds;
}

void Gpu::checkRun(CUresult result, const char *what) const {
  if (isSticky(result))
    throw Error(std::string(what) + ": device " + std::to_string(number) + " (" + deviceName +
                ") reports: " + driver.text(result) +
                "; nothing more can run on it in this process. Checkpoints that were written are "
                "whole: go on with train --resume");
  driver.check(result, what);
}
