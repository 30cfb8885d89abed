//===- Registration.h - every dialect and pass of the project ------------------===//

#ifndef MPC_DRIVER_REGISTRATION_H
#define MPC_DRIVER_REGISTRATION_H

#include "mlir/IR/DialectRegistry.h"

namespace mpc {
/// Registers the project's dialects, the upstream ones its passes make, and the external interface
/// models of arith and math.
void registerDialects(mlir::DialectRegistry &registry);
/// Registers the project's passes and pipelines, and upstream's transforms, for mpc-opt.
void registerPasses();
} // namespace mpc

#endif // MPC_DRIVER_REGISTRATION_H
