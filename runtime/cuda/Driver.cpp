//===- Driver.cpp - NVIDIA's driver library, opened at run time -----------------------===//

#include "runtime/cuda/Driver.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include <dlfcn.h>

using namespace mpc;
using namespace mpc::cuda;

// Kernels are PTX 8.1, of CUDA 12.1.
static constexpr int kLeastVersion = 12010;

std::string cuda::versionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Driver::Driver(const std::string &folder) {
  std::string file = folder.empty() ? "libcuda.so.1" : folder + "/libcuda.so.1";
  library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    throw Error(folder.empty()
                    ? "this program trains on an NVIDIA GPU, and this machine has no NVIDIA driver "
                      "(" +
                          std::string(why) +
                          "): install the driver, or compile the model with --target=cpu"
                    : "the simulator of GPUs is missing: " + std::string(why));
  }
  try {
#define MPC_CUDA_TEXT(name) #name
#define MPC_CUDA_LOOK_UP(name)                                                                     \
  this->name = reinterpret_cast<decltype(this->name)>(dlsym(library, MPC_CUDA_TEXT(name)));
#define MPC_CUDA_RESOLVE(name)                                                                     \
  MPC_CUDA_LOOK_UP(name)                                                                           \
  if (!this->name)                                                                                 \
    throw Error("the NVIDIA driver (" + file +                                                     \
                ") is too old: it has no function " MPC_CUDA_TEXT(name) "; update it to CUDA " +   \
                versionText(kLeastVersion) + " or later");
    MPC_CUDA_FUNCTIONS(MPC_CUDA_RESOLVE)
    MPC_CUDA_LATER_FUNCTIONS(MPC_CUDA_LOOK_UP)
#undef MPC_CUDA_LOOK_UP
#undef MPC_CUDA_RESOLVE
#undef MPC_CUDA_TEXT
    CUresult started = cuInit(0);
    // Before anything else: a driver that is too old fails in strange ways.
    if (cuDriverGetVersion(&driverVersion) == CUDA_SUCCESS && driverVersion < kLeastVersion)
      throw Error("the NVIDIA driver is of CUDA " + versionText(driverVersion) +
                  ", this program needs CUDA " + versionText(kLeastVersion) +
                  " or later: update the driver");
    if (started == CUDA_ERROR_NO_DEVICE)
      throw Error("this program trains on an NVIDIA GPU, and the driver finds none (is "
                  "CUDA_VISIBLE_DEVICES empty?): compile the model with --target=cpu to train on "
                  "the CPU");
    check(started, "the NVIDIA driver does not start");
  } catch (...) {
    dlclose(library);
    throw;
  }
}

std::string Driver::text(CUresult result) const {
  const char *name = nullptr, *meaning = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
    return "error " + std::to_string(result);
  if (cuGetErrorString(result, &meaning) != CUDA_SUCCESS || !meaning)
    return name;
  return std::string(meaning) + " (" + name + ")";
}

void Driver::check(CUresult result, const char *what) const {
  if (result != CUDA_SUCCESS)
    throw Error(std::string(what) + ": " + text(result));
}
