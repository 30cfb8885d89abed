//===- Import.h - an ONNX file becomes a module of the onnx dialect -------===//

#ifndef MPC_IMPORT_IMPORT_H
#define MPC_IMPORT_IMPORT_H

#include "compiler/import/WeightStore.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace mpc {

struct ImportOptions {
  std::optional<int64_t> batch; ///< --batch: the first dynamic dimension
  /// --dim NAME=N; NAME is a symbol, or INPUT:AXIS for a dimension without one.
  std::map<std::string, int64_t> dims;
  std::string trainRegex;  ///< --train; empty: the rule of docs (metadata, then use)
  std::string freezeRegex; ///< --freeze
  std::vector<std::string> keepFp32, allowHalf; ///< --keep-fp32, --allow-half: regular expressions
  std::string lossInput; ///< --loss-input; a tensor that is no output becomes a result for the loss
  /// Whether a conversion exists for an operator. Those without one are replaced by the body that
  /// the ONNX standard gives for them, where it gives one. Empty: every operator is kept.
  std::function<bool(llvm::StringRef domain, llvm::StringRef op, int64_t sinceVersion)> supported;
};

/// Parses, checks (ONNX checker), inlines functions, binds dimensions and infers shapes. The module
/// holds `func.func @graph`: arguments are the graph inputs (role "input") and the floating-point
/// initializers (role "parameter", "statistic" or "constant", with #mpc.weights; with mpc.frozen
/// where --freeze names it; others of role "constant" with mpc.magnitudes, the smallest and the
/// largest but 0 and infinities); integer initializers and the small constants are arith.constant
/// with an mpc.name. Module attributes: mpc.batch (i64), mpc.batch_axes (dictionary input name →
/// axis), mpc.dynamic_batch (unit, the file is for any size of the batch), mpc.model (string),
/// mpc.notes (strings, what was decided about parameters), mpc.left_out
/// ("NAME: REASON" of the floating-point initializers that are no parameters), mpc.opset (i64),
/// mpc.keep_fp32 and mpc.allow_half (strings, nodes that these options name by a result or a
/// constant). Unsigned integers: compiler/ops/Unsigned.h. An `If` whose condition is not known yet
/// has its branches as regions, `then` first; values of the outer graph are used directly. Every
/// problem is emitted as a diagnostic (all of a file at once); then null.
mlir::OwningOpRef<mlir::ModuleOp> importOnnx(llvm::StringRef path, const ImportOptions &options,
                                             WeightStore &weights, mlir::MLIRContext &context);

} // namespace mpc

#endif // MPC_IMPORT_IMPORT_H
