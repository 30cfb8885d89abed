//===- Images.cpp - which of a program's images a GPU runs ------------------------------===//
//
// NVIDIA's rules: a cubin runs on GPUs of its major version from its minor version on; PTX is
// compiled by the driver for any GPU from its architecture on.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cuda/Images.h"
#include "runtime/core/Error.h"

using namespace mpc;

const ProgramImage &cuda::chooseImage(const Program &program, uint32_t architecture,
                                      const std::string &gpuName) {
  const ProgramImage *best = nullptr;
  std::string compiled;
  for (const ProgramImage &image : program.images) {
    bool isCubin = image.kind == ProgramImage::Kind::cubin;
    if (isCubin)
      compiled += (compiled.empty() ? "sm_" : ", sm_") + std::to_string(image.architecture);
    bool runs = image.architecture <= architecture &&
                (isCubin ? image.architecture / 10 == architecture / 10
                         : image.kind == ProgramImage::Kind::ptx);
    if (!runs)
      continue;
    bool bestIsCubin = best && best->kind == ProgramImage::Kind::cubin;
    if (!best || (isCubin == bestIsCubin ? image.architecture > best->architecture : isCubin))
      best = &image;
  }
  if (best)
    return *best;
  // Kernels for bf16 and kernels at all begin with these (compiler/target/cuda/CudaTarget.h).
  uint32_t least = program.precision == "bf16" ? 80 : 70;
  std::string gpu = gpuName + " (sm_" + std::to_string(architecture) + ")";
  if (architecture >= least)
    throw Error("this program was compiled for " + compiled + ", and this machine's GPU is " + gpu +
                ": compile the model with --target=cuda:sm_" + std::to_string(architecture) +
                ", or with --target=cuda for all GPUs");
  throw Error("this machine's GPU is " + gpu + ", and " +
              (least == 80 && architecture >= 70
                   ? "bf16 needs sm_80 or later: compile the model with --precision=fp16"
                   : "mpc needs sm_70 or later: compile the model with --target=cpu"));
}
