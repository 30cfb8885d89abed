//===- Plan.h - what the memory plan says to people ---------------------------------===//

#ifndef MPC_PASSES_PLAN_H
#define MPC_PASSES_PLAN_H

#include "mlir/IR/BuiltinOps.h"
#include <string>

namespace mpc {

/// For --report=memory: bytes per region, and per entry point its arena with the values that are alive at the fullest moment,
/// largest first. `module` is at the planned level.
std::string planReport(mlir::ModuleOp module);

} // namespace mpc

#endif // MPC_PASSES_PLAN_H
