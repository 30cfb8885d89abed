//===- Modules.cpp - images of kernels, and their launches --------------------------------===//
//
// An image is a shared object for this CPU that the compiler made for the simulator
// (runtime/sim/Image.h). The loader wants a file, so that it is written into memory that has a
// descriptor. It calls back into this library, which the program has opened for itself
// alone: before the first image is loaded, its names are made known to all.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/driver/Driver.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace mpc::sim;

namespace {
constexpr uint16_t kCudaMachine = 190; // EM_CUDA
constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr uint32_t kSharedBytes = 48 << 10; // of a block that does not ask for more

/// What is wrong with an image.
struct Problem {
  CUresult result = CUDA_SUCCESS;
  std::string text;
};

/// An image is a pointer alone: its headers say where it ends.
size_t elfBytes(const char *image, const Elf64_Ehdr &header) {
  size_t end = std::max(header.e_phoff + uint64_t(header.e_phnum) * sizeof(Elf64_Phdr),
                        header.e_shoff + uint64_t(header.e_shnum) * sizeof(Elf64_Shdr));
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, image + header.e_phoff + i * sizeof segment, sizeof segment);
    end = std::max(end, segment.p_offset + segment.p_filesz);
  }
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, image + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS)
      end = std::max(end, section.sh_offset + section.sh_size);
  }
  return end;
}

/// Whether this is an image for the simulator, and how long it is.
Problem examine(const char *image, size_t &bytes) {
  uint32_t magic = 0; // a text may be shorter than that
  std::memcpy(&magic, image, ::strnlen(image, sizeof magic));
  if (magic == kFatbinMagic)
    return {CUDA_ERROR_NO_BINARY_FOR_GPU, "the image is a fat binary for real GPUs"};
  if (std::memcmp(&magic, ELFMAG, SELFMAG) != 0) {
    if (std::strstr(image, ".version"))
      return {CUDA_ERROR_INVALID_PTX, "the image is PTX, which the simulator cannot compile"};
    return {CUDA_ERROR_INVALID_IMAGE, "the image is neither a shared object nor PTX"};
  }
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (header.e_machine == kCudaMachine)
    return {CUDA_ERROR_NO_BINARY_FOR_GPU, "the image is a cubin for real GPUs"};
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64 ||
      header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr) ||
      (header.e_shnum != 0 && header.e_shentsize != sizeof(Elf64_Shdr)))
    return {CUDA_ERROR_INVALID_IMAGE, "the image is no shared object for x86-64"};
  bytes = elfBytes(image, header);
  return {};
}

/// Lets images find what they call in this library, however the program has opened it.
bool makeNamesKnown() {
  static bool isDone = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void *>(&makeNamesKnown), &info) != 0 &&
           dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) != nullptr;
  }();
  return isDone;
}

bool writeAll(int file, const char *data, size_t bytes) {
  while (bytes > 0) {
    ssize_t written = write(file, data, bytes);
    if (written <= 0)
      return false;
    data += written;
    bytes -= written;
  }
  return true;
}

Problem load(const char *image, Module &module) {
  size_t bytes = 0;
  if (Problem problem = examine(image, bytes); problem.result)
    return problem;
  module.file = memfd_create("mpc-sim-image", MFD_CLOEXEC);
  if (module.file < 0 || !writeAll(module.file, image, bytes))
    return {CUDA_ERROR_OPERATING_SYSTEM, "the image cannot be written to memory"};
  if (!makeNamesKnown())
    return {CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "the simulator does not find its own library"};
  std::string path = "/proc/self/fd/" + std::to_string(module.file);
  module.image = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module.image)
    return {CUDA_ERROR_INVALID_IMAGE, std::string("the image cannot be loaded: ") + dlerror()};
  if (!dlsym(module.image, "mpc_sim_kernels"))
    return {CUDA_ERROR_INVALID_IMAGE, "the image has no table mpc_sim_kernels"};
  return {};
}

/// Where the program asks for the compiler's messages, it gets ours.
void writeLog(const std::string &text, unsigned count, const CUjit_option *options, void **values) {
  char *buffer = nullptr;
  size_t size = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
      buffer = static_cast<char *>(values[i]);
    else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      size = reinterpret_cast<uintptr_t>(values[i]);
  }
  if (buffer && size > 0)
    std::snprintf(buffer, size, "%s", text.c_str());
}
} // namespace

Module::~Module() {
  if (image)
    dlclose(image);
  if (file >= 0)
    close(file);
}

const MpcSimKernel *Module::find(const char *name) const {
  auto *kernel = static_cast<const MpcSimKernel *>(dlsym(image, "mpc_sim_kernels"));
  while (kernel->name && std::strcmp(kernel->name, name) != 0)
    ++kernel;
  return kernel->name ? kernel : nullptr;
}

//===- Modules ----------------------------------------------------------------------------===//

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *handle, const void *image, unsigned int optionCount,
                                    CUjit_option *options, void **optionValues) {
  return inContext([&](Context &context) {
    if (CUresult unsafe = context.checkUnsafe("cuModuleLoadDataEx"))
      return unsafe;
    if (!handle || !image || (optionCount > 0 && (!options || !optionValues)))
      return CUDA_ERROR_INVALID_VALUE;
    auto module = std::make_shared<Module>();
    Problem problem;
    if (driver().strikes(Fault::load))
      problem = {CUDA_ERROR_NO_BINARY_FOR_GPU, "fails as MPC_SIM_FAULT asks for"};
    else
      problem = load(static_cast<const char *>(image), *module);
    if (problem.result) {
      writeLog(problem.text, optionCount, options, optionValues);
      return refuse(problem.result, "cuModuleLoadDataEx: %s", problem.text.c_str());
    }
    *handle = context.modules.add(std::move(module));
    return CUDA_SUCCESS;
  });
}

// Waits for nothing: a kernel of it that is still queued is an error when it runs.
CUresult CUDAAPI cuModuleUnload(CUmodule handle) {
  return inContext([&](Context &context) {
    if (CUresult unsafe = context.checkUnsafe("cuModuleUnload"))
      return unsafe;
    std::shared_ptr<Module> module = context.modules.remove(handle);
    if (!module)
      return CUDA_ERROR_INVALID_HANDLE;
    module->isLoaded = false;
    for (const auto &[name, function] : module->functions)
      context.functions.remove(function);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *handle, CUmodule moduleHandle, const char *name) {
  return inContext([&](Context &context) {
    if (!handle || !name)
      return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Module> module = context.modules.find(moduleHandle);
    if (!module)
      return CUDA_ERROR_INVALID_HANDLE;
    const MpcSimKernel *kernel = module->find(name);
    if (!kernel)
      return CUDA_ERROR_NOT_FOUND;
    CUfunction &function = module->functions[name];
    if (!function)
      function = context.functions.add(std::make_shared<Function>(Function{module, kernel}));
    *handle = function;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuFuncLoad(CUfunction handle) {
  return inContext([&](Context &context) {
    std::shared_ptr<Function> function = context.functions.find(handle);
    if (!function)
      return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult unsafe = function->isLoaded ? CUDA_SUCCESS : context.checkUnsafe("cuFuncLoad"))
      return unsafe;
    function->isLoaded = true;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction handle) {
  return inContext([&](Context &context) {
    std::shared_ptr<Function> function = context.functions.find(handle);
    if (!function)
      return CUDA_ERROR_INVALID_HANDLE;
    if (!value)
      return CUDA_ERROR_INVALID_VALUE;
    const MpcSimKernel &kernel = *function->kernel;
    switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = kernel.threads ? static_cast<int>(kernel.threads) : 1024;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(kernel.shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = static_cast<int>(kSharedBytes - std::min(kSharedBytes, kernel.shared_bytes));
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = driver().settings.capability;
      return CUDA_SUCCESS;
    default:
      return refuse(CUDA_ERROR_INVALID_VALUE, "cuFuncGetAttribute: attribute %d is not simulated",
                    static_cast<int>(which));
    }
  });
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction handle, size_t which, size_t *offset, size_t *size) {
  return inContext([&](Context &context) {
    std::shared_ptr<Function> function = context.functions.find(handle);
    if (!function)
      return CUDA_ERROR_INVALID_HANDLE;
    if (driver().strikes(Fault::info))
      return CUDA_ERROR_NOT_SUPPORTED;
    const MpcSimKernel &kernel = *function->kernel;
    if (!offset || which >= kernel.parameters)
      return CUDA_ERROR_INVALID_VALUE;
    *offset = 0; // pointers and structures of pointers: nothing lies between them
    for (size_t i = 0; i < which; ++i)
      *offset += parameterBytes(kernel, static_cast<uint32_t>(i));
    if (size)
      *size = parameterBytes(kernel, static_cast<uint32_t>(which));
    return CUDA_SUCCESS;
  });
}

//===- Launches ---------------------------------------------------------------------------===//

namespace {
CUresult checkLaunch(const MpcSimKernel &kernel, const Extent &grid, const Extent &block,
                     unsigned sharedBytes, void **parameters) {
  constexpr Extent kGrid = {0x7fffffff, 65535, 65535}, kBlock = {1024, 1024, 64};
  for (int axis = 0; axis < 3; ++axis)
    if (grid[axis] == 0 || grid[axis] > kGrid[axis] || block[axis] == 0 ||
        block[axis] > kBlock[axis])
      return refuse(CUDA_ERROR_INVALID_VALUE,
                    "cuLaunchKernel: a grid of %u x %u x %u blocks of %u x %u x %u threads is "
                    "beyond the limits",
                    grid[0], grid[1], grid[2], block[0], block[1], block[2]);
  unsigned threads = block[0] * block[1] * block[2];
  if (threads > kBlock[0] || (kernel.threads && threads != kernel.threads))
    return refuse(CUDA_ERROR_INVALID_VALUE,
                  "cuLaunchKernel: kernel %s takes blocks of %u threads, not of %u", kernel.name,
                  kernel.threads ? kernel.threads : kBlock[0], threads);
  if (uint64_t(sharedBytes) + kernel.shared_bytes > kSharedBytes)
    return refuse(CUDA_ERROR_INVALID_VALUE,
                  "cuLaunchKernel: kernel %s has %u bytes of shared memory, %u more are too much",
                  kernel.name, kernel.shared_bytes, sharedBytes);
  if (kernel.parameters > 0 && !parameters)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < kernel.parameters; ++i)
    if (!parameters[i])
      return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}
} // namespace

CUresult CUDAAPI cuLaunchKernel(CUfunction handle, unsigned int gridX, unsigned int gridY,
                                unsigned int gridZ, unsigned int blockX, unsigned int blockY,
                                unsigned int blockZ, unsigned int sharedBytes,
                                CUstream streamHandle, void **parameters, void **extra) {
  return inContext([&](Context &context) {
    std::shared_ptr<Function> function = context.functions.find(handle);
    if (!function)
      return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Stream> stream;
    if (CUresult result = findStream(context, streamHandle, stream))
      return result;
    if (extra)
      return refuse(CUDA_ERROR_INVALID_VALUE,
                    "cuLaunchKernel: parameters as `extra` are not simulated");
    Launch launch{
        function->module, function->kernel, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, {}};
    if (CUresult result =
            checkLaunch(*launch.kernel, launch.grid, launch.block, sharedBytes, parameters))
      return result;
    // A driver that loads kernels when they are first needed may have to wait for that.
    if (stream->capture && !function->isLoaded)
      return refuse(
          context.invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
          "cuLaunchKernel: kernel %s is launched first while the stream captures, and was "
          "not loaded before",
          launch.kernel->name);
    if (driver().strikes(Fault::launch))
      return context.failLaunch("cuLaunchKernel");
    function->isLoaded = true;
    for (unsigned i = 0; i < launch.kernel->parameters; ++i) {
      auto *first = static_cast<const std::byte *>(parameters[i]);
      launch.arguments.emplace_back(first, first + parameterBytes(*launch.kernel, i));
    }
    return context.submit(*stream, std::move(launch));
  });
}
