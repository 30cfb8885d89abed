//===- SimDriverTest.cpp - the simulated driver: devices, memory, copies, kernels -----------===//

#include "SimDriverSupport.h"
#include <cstring>
#include <numeric>
#include <thread>

using namespace mpc::test;

namespace {
constexpr size_t kWord = sizeof(uint32_t);

std::vector<uint32_t> count(size_t words) {
  std::vector<uint32_t> values(words);
  std::iota(values.begin(), values.end(), 0);
  return values;
}
} // namespace

//===- Devices and contexts ---------------------------------------------------------------===//

TEST(SimDriver, CallsBeforeInitAndWithoutContext) {
  inProcess({{"MPC_SIM_DRIVER", "12040"}}, [] {
    SimDriver driver;
    int value = 0;
    CUdeviceptr memory = 0;
    EXPECT_EQ(driver.cuDeviceGetCount(&value), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(driver.cuMemAlloc(&memory, 16), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(driver.cuDriverGetVersion(&value), CUDA_SUCCESS);
    EXPECT_EQ(value, 12040);
    EXPECT_EQ(driver.cuInit(1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuDeviceGetCount(&value), CUDA_SUCCESS);
    EXPECT_EQ(value, 1);
    EXPECT_EQ(driver.cuMemAlloc(&memory, 16), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST(SimDriver, DevicesAreAsTheSettingsSay) {
  onGpu(
      [](SimGpu &gpu) {
        int value = 0;
        CUdevice device = 0;
        EXPECT_EQ(gpu.cuDeviceGetCount(&value), CUDA_SUCCESS);
        EXPECT_EQ(value, 2);
        EXPECT_EQ(gpu.cuDeviceGet(&device, 1), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
        EXPECT_EQ(gpu.cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
        char name[64] = "";
        EXPECT_EQ(gpu.cuDeviceGetName(name, sizeof name, 1), CUDA_SUCCESS);
        EXPECT_STREQ(name, "simulated GPU");
        size_t bytes = 0;
        EXPECT_EQ(gpu.cuDeviceTotalMem(&bytes, 0), CUDA_SUCCESS);
        EXPECT_EQ(bytes, 4096u);
        auto attribute = [&](CUdevice_attribute which) {
          EXPECT_EQ(gpu.cuDeviceGetAttribute(&value, which, 0), CUDA_SUCCESS);
          return value;
        };
        EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 12);
        EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 0);
        EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
        EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
        EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 170);
        EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK), 48 << 10);
        EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 99 << 10);
        EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
        EXPECT_EQ(gpu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2),
                  CUDA_ERROR_INVALID_DEVICE);
        EXPECT_EQ(gpu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0),
                  CUDA_ERROR_INVALID_VALUE);
      },
      {{"MPC_SIM_CC", "12.0"}, {"MPC_SIM_DEVICES", "2"}, {"MPC_SIM_MEMORY", "4096"}});
  inProcess({{"MPC_SIM_DEVICES", "0"}},
            [] { EXPECT_EQ(SimDriver().cuInit(0), CUDA_ERROR_NO_DEVICE); });
}

TEST(SimDriver, SettingsThatCannotBeRead) {
  for (auto [name, value] : SimSettings{{"MPC_SIM_CC", "8"},
                                        {"MPC_SIM_CC", "x.0"},
                                        {"MPC_SIM_MEMORY", "1G"},
                                        {"MPC_SIM_DRIVER", "99999999999"},
                                        {"MPC_SIM_DEVICES", "-1"},
                                        {"MPC_SIM_FAULT", "alloc"},
                                        {"MPC_SIM_FAULT", "alloc:0"},
                                        {"MPC_SIM_FAULT", "store:1"},
                                        {"MPC_SIM_FAULT", "alloc:1,"}})
    expectSaid(inProcess({{name, value}},
                         [] { EXPECT_EQ(SimDriver().cuInit(0), CUDA_ERROR_INVALID_VALUE); }),
               std::string(name) + "=" + value + " is not ");
}

TEST(SimDriver, PrimaryContextIsCounted) {
  onGpu([](SimGpu &gpu) {
    CUcontext again = nullptr, current = nullptr;
    EXPECT_EQ(gpu.cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    EXPECT_EQ(again, gpu.context);
    EXPECT_EQ(gpu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, gpu.context);
    CUdeviceptr memory = gpu.memory(1);
    // Another thread has no context until it says so.
    std::thread([&] {
      EXPECT_EQ(gpu.cuMemFree(memory), CUDA_ERROR_INVALID_CONTEXT);
      EXPECT_EQ(gpu.cuCtxSetCurrent(gpu.context), CUDA_SUCCESS);
      EXPECT_EQ(gpu.cuMemFree(memory), CUDA_SUCCESS);
    }).join();
    memory = gpu.memory(1);
    EXPECT_EQ(gpu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemFree(memory), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(gpu.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(gpu.cuCtxSetCurrent(gpu.context), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(gpu.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemFree(memory), CUDA_ERROR_INVALID_CONTEXT);
    // Memory went with the context.
    EXPECT_EQ(gpu.cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuCtxSetCurrent(again), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(SimDriver, ErrorsHaveNames) {
  inProcess({}, [] {
    SimDriver driver;
    const char *text = nullptr;
    EXPECT_EQ(driver.cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
    EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    EXPECT_EQ(driver.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
    EXPECT_STREQ(text, "out of memory");
    EXPECT_EQ(driver.cuGetErrorName(CUresult(12345), &text), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(text, nullptr);
  });
}

//===- Memory -----------------------------------------------------------------------------===//

TEST(SimDriver, MemoryIsAlignedAndUninitialized) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    for (size_t words : {1, 63, 64, 1025}) {
      CUdeviceptr memory = gpu.memory(words);
      EXPECT_EQ(memory % 256, 0u);
      EXPECT_EQ(gpu.download(stream, memory, words), std::vector<uint32_t>(words, ~0u));
      uint32_t *pinned = gpu.pinned(words);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(pinned) % 256, 0u);
      EXPECT_EQ(pinned[words - 1], ~0u);
    }
    CUdeviceptr memory = 0;
    void *pinned = nullptr;
    EXPECT_EQ(gpu.cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuMemAlloc(nullptr, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuMemHostAlloc(&pinned, 4, 0x10), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(SimDriver, MemoryEnds) {
  onGpu(
      [](SimGpu &gpu) {
        CUdeviceptr first = 0, second = 0;
        EXPECT_EQ(gpu.cuMemAlloc(&first, 769), CUDA_ERROR_OUT_OF_MEMORY); // 1024 with its padding
        EXPECT_EQ(gpu.cuMemAlloc(&first, ~size_t(0)), CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT_EQ(gpu.cuMemAlloc(&first, 500), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuMemAlloc(&second, 500), CUDA_ERROR_OUT_OF_MEMORY);
        size_t free = 0, total = 0;
        EXPECT_EQ(gpu.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
        EXPECT_EQ(free, 488u);
        EXPECT_EQ(total, 1000u);
        EXPECT_EQ(gpu.cuMemFree(first), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuMemAlloc(&second, 500), CUDA_SUCCESS);
        EXPECT_NE(second, first); // addresses are not used again
      },
      {{"MPC_SIM_MEMORY", "1000"}});
}

TEST(SimDriver, WhatCannotBeFreed) {
  std::string said = onGpu([](SimGpu &gpu) {
    CUdeviceptr memory = gpu.memory(64);
    uint32_t *pinned = gpu.pinned(64);
    EXPECT_EQ(gpu.cuMemFree(memory + 256), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuMemFreeHost(pinned + 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuMemFree(reinterpret_cast<CUdeviceptr>(pinned)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuMemFreeHost(reinterpret_cast<void *>(memory)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuMemFreeHost(pinned), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
  });
  expectSaid(said, "cuMemFree: no live device allocation begins at 0x");
  expectSaid(said, "cuMemFreeHost: no live pinned allocation begins at 0x");
}

// As on a real machine, a program that follows a device pointer itself ends there.
TEST(SimDriver, DeviceMemoryIsNotTheHosts) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr memory = gpu.memory(64);
    gpu.upload(stream, memory, count(64));
    volatile uint32_t *address = reinterpret_cast<uint32_t *>(memory);
    uint32_t *pinned = gpu.pinned(64);
    EXPECT_DEATH(address[0] = 1, "");
    EXPECT_DEATH(*const_cast<volatile uint32_t *>(pinned + 64) = 1, ""); // behind its end
    EXPECT_EQ(gpu.cuMemFreeHost(pinned), CUDA_SUCCESS);
    EXPECT_DEATH(*const_cast<volatile uint32_t *>(pinned) = 1, "");
  });
}

//===- Copies -----------------------------------------------------------------------------===//

TEST(SimDriver, CopiesAndMemsets) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr a = gpu.memory(16), b = gpu.memory(16);
    gpu.upload(stream, a, count(16));
    EXPECT_EQ(gpu.cuMemcpyDtoDAsync(b + 4 * kWord, a, 4 * kWord, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemsetD8Async(b, 1, 2 * kWord, stream), CUDA_SUCCESS);
    std::vector<uint32_t> result = gpu.download(stream, b, 9);
    EXPECT_EQ(result, (std::vector<uint32_t>{0x01010101, 0x01010101, ~0u, ~0u, 0, 1, 2, 3, ~0u}));
    EXPECT_EQ(gpu.cuMemcpyDtoDAsync(b, a, 0, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemcpyHtoDAsync(0, nullptr, 0, stream), CUDA_SUCCESS);
  });
}

TEST(SimDriver, CopiesStayInsideOfAllocations) {
  std::string said = onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr a = gpu.memory(16), b = gpu.memory(16), dead = gpu.memory(16);
    uint32_t *pinned = gpu.pinned(16);
    std::vector<uint32_t> pageable(32);
    EXPECT_EQ(gpu.cuMemFree(dead), CUDA_SUCCESS);
    auto upload = [&](CUdeviceptr to, const void *from, size_t words) {
      return gpu.cuMemcpyHtoDAsync(to, from, words * kWord, stream);
    };
    auto download = [&](void *to, CUdeviceptr from, size_t words) {
      return gpu.cuMemcpyDtoHAsync(to, from, words * kWord, stream);
    };
    EXPECT_EQ(upload(a, pinned, 16), CUDA_SUCCESS);
    EXPECT_EQ(upload(a, pageable.data(), 17), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(upload(a + kWord, pinned, 16), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(upload(a, pinned + 1, 16), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(upload(a, reinterpret_cast<void *>(b), 16), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(upload(a, nullptr, 16), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(upload(reinterpret_cast<CUdeviceptr>(pinned), pageable.data(), 16),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(download(pageable.data(), a, 16), CUDA_SUCCESS);
    EXPECT_EQ(download(pageable.data(), a, 17), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(download(pageable.data(), dead, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(download(reinterpret_cast<void *>(b), a, 16), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuMemcpyDtoDAsync(a, b + kWord, 16 * kWord, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuMemcpyDtoDAsync(a, a + kWord, 2 * kWord, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.set(stream, a, 0, 16), CUDA_SUCCESS);
    EXPECT_EQ(gpu.set(stream, a, 0, 17), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.set(stream, dead, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cuMemFreeHost(pinned), CUDA_SUCCESS);
  });
  expectSaid(said, "cuMemcpyHtoDAsync: the target, 68 bytes at 0x");
  expectSaid(said, ", is memory that begins or ends outside of its allocation");
  expectSaid(said, "cuMemcpyHtoDAsync: the source, 64 bytes at 0x");
  expectSaid(said, ", is device memory");
  expectSaid(said, ", is pinned memory");
  expectSaid(said, "cuMemcpyDtoHAsync: the source, 4 bytes at 0x");
  expectSaid(said, ", is memory that was freed");
  expectSaid(said, "cuMemcpyDtoDAsync: source and target overlap");
}

// The driver reads pageable memory during the call, pinned memory when the copy runs.
TEST(SimDriver, SourcesOfUploads) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr memory = gpu.memory(2);
    uint32_t pageable = 1, *pinned = gpu.pinned(1);
    *pinned = 1;
    EXPECT_EQ(gpu.cuMemcpyHtoDAsync(memory, &pageable, kWord, stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemcpyHtoDAsync(memory + kWord, pinned, kWord, stream), CUDA_SUCCESS);
    pageable = *pinned = 2;
    EXPECT_EQ(gpu.download(stream, memory, 2), (std::vector<uint32_t>{1, 2}));
  });
}

// The driver waits for copies to pageable memory only.
TEST(SimDriver, TargetsOfDownloads) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr memory = gpu.memory(1);
    uint32_t pageable = 0, *pinned = gpu.pinned(1);
    *pinned = 0;
    EXPECT_EQ(gpu.set(stream, memory, 3, 1), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuMemcpyDtoHAsync(pinned, memory, kWord, stream), CUDA_SUCCESS);
    EXPECT_EQ(*pinned, 0u);
    EXPECT_EQ(gpu.cuMemcpyDtoHAsync(&pageable, memory, kWord, stream), CUDA_SUCCESS);
    EXPECT_EQ(pageable, 0x03030303u);
    EXPECT_EQ(*pinned, 0x03030303u); // it was first in the stream
  });
}

//===- Kernels ----------------------------------------------------------------------------===//

TEST(SimDriver, KernelsRun) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr a = gpu.memory(64), b = gpu.memory(64);
    gpu.upload(stream, a, count(64));
    EXPECT_EQ(gpu.launch(stream, gpu.function("addOne"), {a}, 2), CUDA_SUCCESS);
    EXPECT_EQ(gpu.launch(stream, gpu.function("copy"), {b, a}, 2), CUDA_SUCCESS);
    EXPECT_EQ(gpu.launch(stream, gpu.function("reverse"), {b}, 1, 64), CUDA_SUCCESS);
    std::vector<uint32_t> result = gpu.download(stream, b, 64);
    for (uint32_t i = 0; i < 64; ++i)
      EXPECT_EQ(result[i], 64 - i);
    // Pinned memory has the same address on the device.
    uint32_t *pinned = gpu.pinned(32);
    std::memset(pinned, 0, 32 * kWord);
    EXPECT_EQ(gpu.launch(stream, gpu.function("addOne"), {reinterpret_cast<CUdeviceptr>(pinned)}),
              CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(pinned[31], 1u);
  });
}

TEST(SimDriver, ParametersAreCopiedByTheLaunch) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr a = gpu.memory(32), argument = a;
    gpu.upload(stream, a, count(32));
    void *parameters[] = {&argument};
    EXPECT_EQ(gpu.cuLaunchKernel(gpu.function("addOne"), 1, 1, 1, 32, 1, 1, 0, stream, parameters,
                                 nullptr),
              CUDA_SUCCESS);
    argument = 0;
    parameters[0] = nullptr;
    EXPECT_EQ(gpu.download(stream, a, 2), (std::vector<uint32_t>{1, 2}));
  });
}

// A structure by value is copied as long as the kernel says, and nothing behind it is read.
TEST(SimDriver, StructuresByValue) {
  std::string said = onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUfunction scatter = gpu.function("scatter");
    size_t offset = 1, size = 0;
    EXPECT_EQ(gpu.cuFuncGetParamInfo(scatter, 0, &offset, &size), CUDA_SUCCESS);
    EXPECT_EQ(offset, 0u);
    EXPECT_EQ(size, sizeof(void *));
    EXPECT_EQ(gpu.cuFuncGetParamInfo(scatter, 1, &offset, &size), CUDA_SUCCESS);
    EXPECT_EQ(offset, sizeof(void *));
    EXPECT_EQ(size, 24u);
    EXPECT_EQ(gpu.cuFuncGetParamInfo(scatter, 2, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr data = gpu.memory(8);
    gpu.upload(stream, data, count(8));
    uint32_t records[3][2] = {{4, 40}, {0, 10}, {6, 60}};
    void *parameters[] = {&data, records};
    auto launch = [&](unsigned blocks) {
      return gpu.cuLaunchKernel(scatter, blocks, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
    };
    EXPECT_EQ(launch(3), CUDA_SUCCESS);
    records[0][1] = 99;
    EXPECT_EQ(gpu.download(stream, data, 7), (std::vector<uint32_t>{10, 1, 2, 3, 40, 5, 60}));
    EXPECT_EQ(launch(4), CUDA_SUCCESS); // a record more than there are
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
  expectSaid(said, "kernel scatter, block (3, 0, 0), thread (0, 0, 0): accesses memory outside");
}

TEST(SimDriver, LaunchesBeyondTheLimits) {
  std::string said = onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUfunction nothing = gpu.function("nothing"), reverse = gpu.function("reverse");
    CUdeviceptr memory = gpu.memory(64);
    void *parameters[] = {&memory}, *missing[] = {nullptr};
    auto launch = [&](CUfunction function, unsigned gx, unsigned gy, unsigned bx, unsigned bz,
                      unsigned shared, void **parameters, void **extra = nullptr) {
      return gpu.cuLaunchKernel(function, gx, gy, 1, bx, 1, bz, shared, stream, parameters, extra);
    };
    EXPECT_EQ(launch(nothing, 1, 1, 1024, 1, 48 << 10, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(launch(nothing, 1, 2, 16, 64, 0, nullptr), CUDA_SUCCESS);
    for (auto [gx, gy, bx, bz] : std::vector<std::array<unsigned, 4>>{{0, 1, 32, 1},
                                                                      {1u << 31, 1, 32, 1},
                                                                      {1, 65536, 32, 1},
                                                                      {1, 1, 0, 1},
                                                                      {1, 1, 1025, 1},
                                                                      {1, 1, 1, 65},
                                                                      {1, 1, 32, 33}})
      EXPECT_EQ(launch(nothing, gx, gy, bx, bz, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(nothing, 1, 1, 32, 1, (48 << 10) + 1, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(reverse, 1, 1, 64, 1, 0, parameters), CUDA_SUCCESS);
    EXPECT_EQ(launch(reverse, 1, 1, 64, 1, 48 << 10, parameters), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(reverse, 1, 1, 32, 1, 0, parameters), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(reverse, 1, 1, 64, 1, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(reverse, 1, 1, 64, 1, 0, missing), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(reverse, 1, 1, 64, 1, 0, nullptr, parameters), CUDA_ERROR_INVALID_VALUE);
  });
  expectSaid(said, "a grid of 1 x 65536 x 1 blocks of 32 x 1 x 1 threads is beyond the limits");
  expectSaid(said, "kernel reverse takes blocks of 64 threads, not of 32");
  expectSaid(said, "kernel reverse has 256 bytes of shared memory, 49152 more are too much");
  expectSaid(said, "parameters as `extra` are not simulated");
}

TEST(SimDriver, FunctionsOfModules) {
  onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUfunction reverse = gpu.function("reverse"), other = nullptr;
    EXPECT_EQ(gpu.function("reverse"), reverse);
    EXPECT_EQ(gpu.cuModuleGetFunction(&other, gpu.module, "none"), CUDA_ERROR_NOT_FOUND);
    int value = 0;
    EXPECT_EQ(gpu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, reverse),
              CUDA_SUCCESS);
    EXPECT_EQ(value, 64);
    EXPECT_EQ(gpu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, reverse),
              CUDA_SUCCESS);
    EXPECT_EQ(value, 256);
    EXPECT_EQ(gpu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, reverse),
              CUDA_ERROR_INVALID_VALUE);
    // The same image twice: other functions, both run.
    CUmodule again = nullptr;
    EXPECT_EQ(gpu.cuModuleLoadDataEx(&again, readImage().data(), 0, nullptr, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuModuleGetFunction(&other, again, "reverse"), CUDA_SUCCESS);
    EXPECT_NE(other, reverse);
    CUdeviceptr memory = gpu.memory(64);
    EXPECT_EQ(gpu.cuModuleUnload(again), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuModuleUnload(again), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.launch(stream, other, {memory}, 1, 64), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, other),
              CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.cuModuleGetFunction(&other, again, "reverse"), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(gpu.launch(stream, reverse, {memory}, 1, 64), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  });
}

TEST(SimDriver, ImagesForRealGpus) {
  std::string said = onGpu([](SimGpu &gpu) {
    CUmodule module = nullptr;
    auto load = [&](const std::string &image) {
      return gpu.cuModuleLoadDataEx(&module, image.c_str(), 0, nullptr, nullptr);
    };
    std::string cubin = readImage(), other = cubin;
    cubin[18] = char(190); // e_machine
    other[18] = 3;
    EXPECT_EQ(load(cubin), CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT_EQ(load(other), CUDA_ERROR_INVALID_IMAGE);
    EXPECT_EQ(load("x"), CUDA_ERROR_INVALID_IMAGE);
    EXPECT_EQ(gpu.cuModuleLoadDataEx(&module, nullptr, 0, nullptr, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    char log[64] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
    EXPECT_EQ(gpu.cuModuleLoadDataEx(&module, "//\n.version 8.0\n", 2, options, values),
              CUDA_ERROR_INVALID_PTX);
    EXPECT_STREQ(log, "the image is PTX, which the simulator cannot compile");
  });
  expectSaid(said, "cuModuleLoadDataEx: the image is a cubin for real GPUs");
  expectSaid(said, "cuModuleLoadDataEx: the image is PTX");
}

//===- Errors -----------------------------------------------------------------------------===//

// What a kernel does wrong is known when it has run, and ends all use of the device.
TEST(SimDriver, AnIllegalAccessEndsEverything) {
  std::string said = onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    CUdeviceptr memory = gpu.memory(33);
    EXPECT_EQ(gpu.launch(stream, gpu.function("addOne"), {memory}, 2), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(gpu.cuMemFree(memory), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(gpu.cuMemAlloc(&memory, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(gpu.set(stream, memory, 0, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    // Not the device itself, but whatever is to use it.
    int count = 0;
    EXPECT_EQ(gpu.cuDeviceGetCount(&count), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuDevicePrimaryCtxRetain(&gpu.context, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
  expectSaid(said, "kernel addOne, block (1, 0, 0), thread (1, 0, 0): accesses memory outside of "
                   "every buffer (load of 4 bytes at 0x");
}

TEST(SimDriver, AMisalignedAccess) {
  std::string said = onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    EXPECT_EQ(gpu.launch(stream, gpu.function("addOne"), {gpu.memory(64) + 2}), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_MISALIGNED_ADDRESS);
  });
  expectSaid(said, "kernel addOne, block (0, 0, 0), thread (0, 0, 0): accesses an address that is "
                   "not aligned");
}

TEST(SimDriver, ARaceInsideOfAKernel) {
  std::string said = onGpu([](SimGpu &gpu) {
    CUstream stream = gpu.stream();
    EXPECT_EQ(gpu.launch(stream, gpu.function("allWriteFirst"), {gpu.memory(1)}), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
  });
  expectSaid(said, "kernel allWriteFirst, block (0, 0, 0), thread (1, 0, 0): accesses what another "
                   "thread writes");
}

TEST(SimDriver, KernelOfAnUnloadedModule) {
  expectSaid(onGpu([](SimGpu &gpu) {
               CUstream stream = gpu.stream();
               EXPECT_EQ(gpu.launch(stream, gpu.function("nothing"), {}), CUDA_SUCCESS);
               EXPECT_EQ(gpu.cuModuleUnload(gpu.module), CUDA_SUCCESS);
               EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
             }),
             "kernel nothing runs after its module was unloaded");
}

TEST(SimDriver, FaultsOnRequest) {
  onGpu(
      [](SimGpu &gpu) {
        CUdeviceptr memory = 0;
        EXPECT_EQ(gpu.cuMemAlloc(&memory, 4), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuMemAlloc(&memory, 4), CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT_EQ(gpu.cuMemAlloc(&memory, 4), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuMemAlloc(&memory, 4), CUDA_ERROR_OUT_OF_MEMORY);
        CUstream stream = gpu.stream();
        uint32_t word = 0;
        EXPECT_EQ(gpu.cuMemcpyHtoDAsync(memory, &word, 4, stream), CUDA_ERROR_ECC_UNCORRECTABLE);
        EXPECT_EQ(gpu.cuMemcpyHtoDAsync(memory, &word, 4, stream), CUDA_SUCCESS);
        std::string image = readImage();
        EXPECT_EQ(gpu.cuModuleLoadDataEx(&gpu.module, image.data(), 0, nullptr, nullptr),
                  CUDA_ERROR_NO_BINARY_FOR_GPU);
      },
      {{"MPC_SIM_FAULT", "alloc:2,alloc:4,copy:1,load:1"}});
  onGpu(
      [](SimGpu &gpu) {
        CUstream stream = gpu.stream();
        CUfunction nothing = gpu.function("nothing");
        EXPECT_EQ(gpu.launch(stream, nothing, {}), CUDA_SUCCESS);
        EXPECT_EQ(gpu.launch(stream, nothing, {}), CUDA_ERROR_LAUNCH_FAILED);
        EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
      },
      {{"MPC_SIM_FAULT", "launch:2"}});
  std::string said = onGpu(
      [](SimGpu &gpu) {
        CUstream stream = gpu.stream();
        CUfunction nothing = gpu.function("nothing");
        EXPECT_EQ(gpu.launch(stream, nothing, {}), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_SUCCESS);
        EXPECT_EQ(gpu.launch(stream, nothing, {}), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
        EXPECT_EQ(gpu.launch(stream, nothing, {}), CUDA_ERROR_ILLEGAL_ADDRESS);
      },
      {{"MPC_SIM_FAULT", "sticky:2"}});
  expectSaid(said, "kernel nothing fails as MPC_SIM_FAULT asks for");
}

// A handle is of its kind and of its context, and of what still exists.
TEST(SimDriver, ForeignHandles) {
  onGpu(
      [](SimGpu &gpu) {
        CUstream stream = gpu.stream();
        CUevent event = gpu.event();
        EXPECT_EQ(gpu.cuStreamSynchronize(reinterpret_cast<CUstream>(event)),
                  CUDA_ERROR_INVALID_HANDLE);
        EXPECT_EQ(gpu.cuEventSynchronize(reinterpret_cast<CUevent>(stream)),
                  CUDA_ERROR_INVALID_HANDLE);
        EXPECT_EQ(gpu.cuGraphDestroy(reinterpret_cast<CUgraph>(event)), CUDA_ERROR_INVALID_HANDLE);
        CUdeviceptr memory = gpu.memory(1);
        CUcontext other = nullptr;
        EXPECT_EQ(gpu.cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuCtxSetCurrent(other), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
        EXPECT_EQ(gpu.cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
        EXPECT_EQ(gpu.cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
        EXPECT_EQ(gpu.cuCtxSetCurrent(gpu.context), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuStreamDestroy(stream), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
        EXPECT_EQ(gpu.cuEventDestroy(event), CUDA_SUCCESS);
        EXPECT_EQ(gpu.cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
      },
      {{"MPC_SIM_DEVICES", "2"}});
}
