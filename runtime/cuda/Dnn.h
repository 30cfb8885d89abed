//===- Dnn.h - convolutions by NVIDIA's cuDNN --------------------------------------------===//
//
// As Blas.h does for matrix products: where cuDNN 9 is there, it takes the convolutions and their
// gradients that it can compute as exactly as generated kernels do: operands as they are, sums in
// f32, one rounding at the end, the same bits in every run. Plans are made and memory is sized
// before an entry point is recorded: some plans are compiled for seconds, and most runs need but a
// few of a program's entry points.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_DNN_H
#define MPC_RUNTIME_CUDA_DNN_H

#include "runtime/core/Program.h"
#include "runtime/cuda/Gpu.h"
#include <map>
#include <memory>
#include <set>

struct cudnnContext; ///< cuDNN's handle

namespace mpc::cuda {

class Dnn {
public:
  /// cuDNN, for the program's convolutions, which it gives to `stream`; null where generated
  /// kernels execute all of them (openFor() in Libraries.h).
  static std::unique_ptr<Dnn> open(const Gpu &gpu, CUstream stream, const Program &program,
                                   const std::string &folder);
  ~Dnn();

  std::string name() const; ///< "cuDNN 9.10"
  bool executes(const Command &command) const { return plans.count(&command) != 0; }

  /// Makes plans for those of the commands that are convolutions which the library computes
  /// exactly, before they run first. Throws Error where memory or the GPU fails.
  void prepare(const std::vector<const Command *> &commands);
  /// What the convolutions so far prepared need beside their operands; to be given before they run.
  /// Work of one stream may share it.
  uint64_t workspaceBytes() const { return neededBytes; }
  void use(CUdeviceptr memory) { workspace = memory; }

  /// Gives a convolution or a gradient of one to the stream, with addresses of Command::buffers; a
  /// gradient of a filter is left in the scratch where the command has a function that takes it
  /// from there. False where it is left to the generated kernel. Throws Error where the library
  /// fails.
  bool run(const Command &command, const std::vector<CUdeviceptr> &addresses);

private:
  struct Plan;
  struct Made; ///< what is known of plans, by what they compute

  explicit Dnn(cudnnContext *handle);

  Owned<cudnnContext *> handle;
  std::set<const Command *> asked;
  std::unique_ptr<Made> made;
  std::map<const Command *, std::shared_ptr<Plan>> plans; ///< equal commands share one
  uint64_t neededBytes = 0;
  CUdeviceptr workspace = 0;
};

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_DNN_H
