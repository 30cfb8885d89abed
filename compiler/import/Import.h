//===- Import.h - an ONNX file becomes a module of the onnx dialect ----------------===//

#ifndef MPC_IMPORT_IMPORT_H
#define MPC_IMPORT_IMPORT_H

#include "compiler/import/WeightStore.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <map>
#include <optional>

namespace mpc {

struct ImportOptions {
  std::optional<int64_t> batch;         ///< --batch: the first dynamic dimension
  std::map<std::string, int64_t> dims;  ///< --dim NAME=N
  std::string trainRegex;               ///< --train; empty: the rule of docs (metadata, then use)
  std::string freezeRegex;              ///< --freeze
};

/// Parses, checks (ONNX checker), inlines functions, binds dimensions and infers shapes. The module holds `func.func @graph`: arguments are the graph inputs
/// (role "input") and the floating-point initializers (role "parameter", "statistic" or "constant", with #mpc.weights); integer initializers and the
/// small constants are arith.constant with an mpc.name. Module attributes: mpc.batch (i64), mpc.model (string), mpc.notes (strings, what was
/// decided about parameters). Every problem is emitted as a diagnostic (all of a file at once); then null.
mlir::OwningOpRef<mlir::ModuleOp> importOnnx(llvm::StringRef path, const ImportOptions &options, WeightStore &weights, mlir::MLIRContext &context);

} // namespace mpc

#endif // MPC_IMPORT_IMPORT_H
