//===- Reports.h - tables about a compiled program -----------------------------------------===//

#ifndef MPC_DRIVER_REPORTS_H
#define MPC_DRIVER_REPORTS_H

#include "compiler/driver/Options.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/raw_ostream.h"

namespace mpc {

/// --report=memory and --report=cost of a planned module (the precision report is printed by the
/// pass that decides).
void printReports(mlir::ModuleOp planned, const CompileOptions &options, llvm::raw_ostream &out);

/// Bytes that a command reads and writes: of a table that a kernel only gathers from, what it
/// takes.
int64_t movedBytes(mlir::Operation *command);

/// Bytes that a kernel reads of an argument: of one that it only gathers or slices from, what it
/// takes.
int64_t bytesReadOf(mlir::BlockArgument argument);

/// --list-ops: operator, opset versions, gradient, precision class, targets.
void printOperatorTable(llvm::raw_ostream &out);

} // namespace mpc

#endif // MPC_DRIVER_REPORTS_H
