//===- ProgramWriter.h - the planned module as the runtime's data -------------------------===//

#ifndef MPC_DRIVER_PROGRAMWRITER_H
#define MPC_DRIVER_PROGRAMWRITER_H

#include "compiler/driver/Options.h"
#include "compiler/import/WeightStore.h"
#include "compiler/target/cuda/CudaTarget.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

namespace mpc {

struct ExportTemplate;

/// Writes the program's block of bytes (initial weights, constants, images of GPU kernels, the
/// model to export) to `data`, which must be at its start, and returns the JSON text
/// (docs/program.md) that refers to it. `exported` may be null; `images` are those of target cuda.
llvm::Expected<std::string> writeProgram(mlir::ModuleOp planned, const CompileOptions &options,
                                         WeightStore &weights, const ExportTemplate *exported,
                                         llvm::ArrayRef<DeviceImage> images,
                                         llvm::raw_ostream &data);

} // namespace mpc

#endif // MPC_DRIVER_PROGRAMWRITER_H
