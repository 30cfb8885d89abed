//===- Dnn.h - convolutions and attention by NVIDIA's cuDNN ------------------------------===//
//
// Convolutions, fused attention and their gradients, each as an operation graph (DnnGraph.h,
// DnnAttention.h). The ways to execute one are plans, for the engines that cuDNN's heuristic
// proposes. They are made before an entry point is recorded, and for what runs: some are compiled
// for seconds, so that several threads make them, and most runs need but a few of a program's entry
// points.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_DNN_H
#define MPC_RUNTIME_CUDA_DNN_H

#include "runtime/cuda/CommandLibrary.h"
#include "runtime/cuda/Gpu.h"

struct cudnnContext; ///< cuDNN's handle

namespace mpc::cuda {

class Dnn : public CommandLibrary {
public:
  /// cuDNN, for the program's convolutions and attention, which it gives to `stream`; null where
  /// generated kernels execute all of them (openFor() in Libraries.h).
  static std::unique_ptr<Dnn> open(const Gpu &gpu, CUstream stream, const Program &program,
                                   const std::string &folder);
  ~Dnn() override { forget(); }

  const char *title() const override { return "cuDNN"; }
  int64_t version() const override;

private:
  struct Plan;
  class Search;
  using Handle = Owned<cudnnContext *>;

  Dnn(const Gpu &gpu, CUstream stream, cudnnContext *handle);
  std::string keyOf(const Command &command) const override;
  void find(const std::vector<Problem *> &problems, bool all) override;
  bool execute(const Way &way, const Command &command,
               const std::vector<CUdeviceptr> &addresses) override;
  /// Makes sure that a handle is there for this thread; false where there can be none.
  bool start(Handle &handle) const;

  const Gpu &gpu;
  CUstream stream;
  /// One for each thread that makes plans, at one time. A plan is executed with the one that it was
  /// made with.
  std::vector<Handle> handles;
};

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_DNN_H
