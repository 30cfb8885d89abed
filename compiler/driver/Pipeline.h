//===- Pipeline.h - the order of the passes ------------------------------------------===//

#ifndef MPC_DRIVER_PIPELINE_H
#define MPC_DRIVER_PIPELINE_H

#include "compiler/driver/Options.h"
#include "mlir/Pass/PassManager.h"

namespace mpc {

/// Adds the passes that lead from the onnx dialect to `options.stage` (at most the planned level).
void buildPipeline(mlir::OpPassManager &manager, const CompileOptions &options);

/// Whether the conversion has a handler for an operator (ImportOptions::supported).
bool isSupportedOperator(llvm::StringRef domain, llvm::StringRef op, int64_t sinceVersion);

} // namespace mpc

#endif // MPC_DRIVER_PIPELINE_H
