//===- Passes.h - the passes, and the pipelines made of them -------------------===//

#ifndef MPC_PASSES_PASSES_H
#define MPC_PASSES_PASSES_H

#include "MpcDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mpc {
#define GEN_PASS_DECL
#include "Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "Passes.h.inc"
} // namespace mpc

#endif // MPC_PASSES_PASSES_H
