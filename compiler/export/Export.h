//===- Export.h - the trained model as an ONNX file -----------------------===//

#ifndef MPC_EXPORT_EXPORT_H
#define MPC_EXPORT_EXPORT_H

#include "compiler/import/WeightStore.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include <string>
#include <vector>

namespace mpc {

/// Where a trained tensor goes: `bytes` bytes at `offset` of the template, row-major and
/// little-endian.
struct TemplateHole {
  int64_t offset, bytes;
  std::string type;   ///< element type in the file: "f32", "f64", "f16", "bf16"
  std::string tensor; ///< its ONNX name
};

/// A whole, valid ONNX file but for the holes, which are zero.
struct ExportTemplate {
  std::string bytes;
  std::vector<TemplateHole> holes; ///< in the file's order
};

/// The model at `path` in inference mode, with everything inside that is not in `trained` (names of
/// parameters and statistics): a BatchNormalization has one output, and a graph output that was its
/// running statistic gives the trained one; a Dropout does nothing. External data are inside too.
/// The result has passed the ONNX checker. Errors: the file changed since it was imported; a model
/// of more than 2 GB.
llvm::Expected<ExportTemplate> buildExportTemplate(llvm::StringRef path,
                                                   const llvm::StringMap<mlir::Type> &trained,
                                                   WeightStore &weights, mlir::ModuleOp module);

} // namespace mpc

#endif // MPC_EXPORT_EXPORT_H
