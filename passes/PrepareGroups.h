//===- PrepareGroups.h - work per parameter that a GPU can launch together -------------===//

#ifndef MPC_PASSES_PREPAREGROUPS_H
#define MPC_PASSES_PREPAREGROUPS_H

#include "mlir/Pass/Pass.h"

namespace mpc {

/// For --target=cuda, after expand-composites.
std::unique_ptr<mlir::Pass> createPrepareGroups();
void registerPrepareGroups();

} // namespace mpc

#endif // MPC_PASSES_PREPAREGROUPS_H
