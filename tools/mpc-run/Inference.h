//===- Inference.h - compile a model in memory and run it ----------------------------------===//

#ifndef MPC_TOOLS_MPC_RUN_INFERENCE_H
#define MPC_TOOLS_MPC_RUN_INFERENCE_H

#include "compiler/driver/Options.h"
#include "runtime/core/Device.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>

namespace mpc {

/// Why a model could not be compiled.
struct CompileFailure {
  std::string messages;    ///< the compiler's, one per line
  bool unsupported = true; ///< all of them are about something that mpc does not have
};

/// A model's inference program in this process. Outputs have the order of the ONNX graph's.
class Inference {
public:
  /// Imports, compiles and loads `options.model`; null on failure.
  static std::unique_ptr<Inference> compile(const CompileOptions &options, int threads,
                                            CompileFailure &failure);
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
