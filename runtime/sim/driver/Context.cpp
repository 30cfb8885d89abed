//===- Context.cpp - initialization, devices, contexts ------------------------------------===//

#include "runtime/sim/driver/Driver.h"
#include <cstdio>

using namespace mpc::sim;

namespace {
/// What a thread made current.
thread_local CUcontext current = nullptr;

/// What differs between architectures: the CUDA programming guide's table of compute capabilities.
struct Architecture {
  int capability;
  int multiprocessors, threads, blocks; ///< the latter two per multiprocessor
  int sharedBytes, sharedBytesOfBlock;  ///< per multiprocessor; of a block that asks for it
  int cacheBytes;
};
constexpr Architecture kArchitectures[] = {
    {70, 80, 2048, 32, 96 << 10, 96 << 10, 6 << 20},
    {75, 40, 1024, 16, 64 << 10, 64 << 10, 4 << 20},
    {80, 108, 2048, 32, 164 << 10, 163 << 10, 40 << 20},
    {86, 84, 1536, 16, 100 << 10, 99 << 10, 6 << 20},
    {89, 128, 1536, 24, 100 << 10, 99 << 10, 72 << 20},
    {90, 132, 2048, 32, 228 << 10, 227 << 10, 50 << 20},
    {100, 148, 2048, 32, 228 << 10, 227 << 10, 126 << 20},
    {120, 170, 1536, 24, 100 << 10, 99 << 10, 96 << 20},
};

/// The one with this capability, else the last before it.
const Architecture &architecture() {
  const Architecture *found = kArchitectures;
  for (const Architecture &each : kArchitectures)
    if (each.capability <= driver().settings.capability)
      found = &each;
  return *found;
}

/// False for an attribute that is not simulated.
bool attribute(CUdevice_attribute which, const Device &device, int &value) {
  const Architecture &limits = architecture();
  switch (which) {
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
    value = 1024;
    break;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
    value = 64;
    break;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    value = 0x7fffffff;
    break;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
    value = 65535;
    break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
    value = 48 << 10;
    break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
    value = limits.sharedBytesOfBlock;
    break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
    value = limits.sharedBytes;
    break;
  case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
    value = limits.capability < 80 ? 0 : 1024;
    break;
  case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
    value = 65536;
    break;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
    value = 32;
    break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    value = limits.multiprocessors;
    break;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
    value = limits.threads;
    break;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
    value = limits.blocks;
    break;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
    value = limits.cacheBytes;
    break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    value = driver().settings.capability / 10;
    break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    value = driver().settings.capability % 10;
    break;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
  case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
    value = 1000000; // kHz
    break;
  case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
    value = 4096;
    break;
  case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    value = 2;
    break;
  case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
  case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
  case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
  case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    value = 1;
    break;
  case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
  case CU_DEVICE_ATTRIBUTE_INTEGRATED:
  case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: // CU_COMPUTEMODE_DEFAULT
  case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
  case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
  case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
  case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
  case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
  case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
  case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
  case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    value = 0;
    break;
  case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
    value = device.ordinal + 1;
    break;
  default:
    return false;
  }
  return true;
}

/// A call about a device.
template <typename Body> CUresult onDevice(CUdevice handle, Body body) {
  return initialized([&]() -> CUresult {
    Device *device = driver().find(handle);
    return device ? body(*device) : CUDA_ERROR_INVALID_DEVICE;
  });
}
} // namespace

namespace mpc::sim {

uintptr_t nextHandle() {
  // An address that no process has.
  static uintptr_t last = uintptr_t(1) << 60;
  return last += 64;
}

Driver &driver() {
  static auto *driver = new Driver;
  return *driver;
}

bool Driver::strikes(Fault fault) {
  auto kind = static_cast<size_t>(fault);
  return settings.faults[kind].count(++calls[kind]) != 0;
}

void Driver::trace(const char *call) {
  if (settings.trace.empty())
    return;
  if (!traced)
    traced = std::fopen(settings.trace.c_str(), "a");
  if (!traced)
    return;
  std::fprintf(traced, "%s\n", call);
  std::fflush(traced); // the process may be killed
}

Context *Driver::find(CUcontext handle) {
  for (Device &device : devices)
    if (device.context && device.context->handle == handle)
      return device.context.get();
  return nullptr;
}

Device *Driver::find(CUdevice device) {
  return device >= 0 && static_cast<size_t>(device) < devices.size() ? &devices[device] : nullptr;
}

CUresult currentContext(Context *&context) {
  if (!current)
    return CUDA_ERROR_INVALID_CONTEXT;
  context = driver().find(current);
  if (!context)
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return context->device.error;
}

} // namespace mpc::sim

//===- Initialization, devices ------------------------------------------------------------===//

CUresult CUDAAPI cuInit(unsigned int flags) {
  std::lock_guard lock(driver().mutex);
  if (flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (driver().isInitialized)
    return CUDA_SUCCESS;
  Settings settings;
  if (!readSettings(settings))
    return CUDA_ERROR_INVALID_VALUE;
  if (settings.devices == 0)
    return CUDA_ERROR_NO_DEVICE;
  driver().settings = settings;
  for (int ordinal = 0; ordinal < settings.devices; ++ordinal)
    driver().devices.emplace_back(ordinal);
  driver().isInitialized = true;
  return CUDA_SUCCESS;
}

// Needs no cuInit.
CUresult CUDAAPI cuDriverGetVersion(int *version) {
  Settings settings;
  if (!version || !readSettings(settings))
    return CUDA_ERROR_INVALID_VALUE;
  *version = settings.driverVersion;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *count) {
  return initialized([&]() -> CUresult {
    if (!count)
      return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(driver().devices.size());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal) {
  return onDevice(ordinal, [&](Device &) {
    if (!device)
      return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetName(char *name, int bytes, CUdevice handle) {
  return onDevice(handle, [&](Device &) {
    if (!name || bytes <= 0)
      return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, bytes, "%s", driver().settings.name.c_str());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice handle) {
  return onDevice(handle, [&](Device &) {
    if (!bytes)
      return CUDA_ERROR_INVALID_VALUE;
    *bytes = driver().settings.memoryBytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice handle) {
  return onDevice(handle, [&](Device &device) {
    if (!value)
      return CUDA_ERROR_INVALID_VALUE;
    if (!attribute(which, device, *value))
      return refuse(CUDA_ERROR_INVALID_VALUE, "cuDeviceGetAttribute: attribute %d is not simulated",
                    static_cast<int>(which));
    return CUDA_SUCCESS;
  });
}

//===- Contexts ---------------------------------------------------------------------------===//

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice handle) {
  return onDevice(handle, [&](Device &device) {
    if (!context)
      return CUDA_ERROR_INVALID_VALUE;
    if (device.error)
      return device.error;
    if (!device.context)
      device.context = std::make_unique<Context>(device, driver().settings.memoryBytes);
    ++device.retained;
    *context = device.context->handle;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice handle) {
  return onDevice(handle, [](Device &device) {
    if (device.retained == 0)
      return CUDA_ERROR_INVALID_CONTEXT;
    if (--device.retained == 0)
      device.context.reset();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  return initialized([&]() -> CUresult {
    if (context && !driver().find(context))
      return CUDA_ERROR_INVALID_CONTEXT;
    current = context;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context) {
  return initialized([&]() -> CUresult {
    if (!context)
      return CUDA_ERROR_INVALID_VALUE;
    *context = current;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSynchronize(void) {
  return inContext([](Context &context) {
    for (const std::shared_ptr<Capture> &capture : context.captures)
      return context.invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    context.synchronize();
    return CUDA_SUCCESS;
  });
}
