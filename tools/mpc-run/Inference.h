//===- Inference.h - compile a model in memory and run it ----------------------------------===//

#ifndef MPC_TOOLS_MPC_RUN_INFERENCE_H
#define MPC_TOOLS_MPC_RUN_INFERENCE_H

#include "compiler/driver/Options.h"
#include "runtime/core/Device.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>

namespace mpc {

/// A model's inference program in this process. Outputs have the order of the ONNX graph's.
class Inference {
public:
  /// Imports, compiles and loads `options.model`. Diagnostics of the compiler go to `messages`, one
  /// per line; null on failure.
  static std::unique_ptr<Inference> compile(const CompileOptions &options, int threads,
                                            std::string &messages);
  ~Inference();

  const Program &program() const;
  Device &device();

private:
  struct Impl;
  explicit Inference(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace mpc

#endif // MPC_TOOLS_MPC_RUN_INFERENCE_H
