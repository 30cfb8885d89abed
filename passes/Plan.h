//===- Plan.h - what the memory plan says to people ---------------------------------===//

#ifndef MPC_PASSES_PLAN_H
#define MPC_PASSES_PLAN_H

#include "mlir/IR/BuiltinOps.h"
#include <string>

namespace mpc {

/// For --report=memory: per entry point the values of its arena that are alive at the fullest
/// moment, largest first. `module` is at the planned level.
std::string arenaReport(mlir::ModuleOp module);

} // namespace mpc

#endif // MPC_PASSES_PLAN_H
