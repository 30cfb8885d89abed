//===- PlaceRoundings.h - which values are rounded ----------------------------------===//
//
// place-roundings decides by the clusters that it foresees; fuse makes clusters of its own and
// asks here whether they are those.
//
//===--------------------------------------------------------------------------------===//

#ifndef MPC_PASSES_PLACEROUNDINGS_H
#define MPC_PASSES_PLACEROUNDINGS_H

#include "passes/Clustering.h"

namespace mpc {

/// Checks that in these clusters exactly those values are rounded that have to be, and reports each
/// one for which that is not so. A function that place-roundings has not gone through is not
/// checked.
mlir::LogicalResult verifyRoundings(mlir::func::FuncOp function, const Clustering &clustering);

/// Removes the marks that place-roundings leaves for verifyRoundings.
void dropRoundingMarks(mlir::func::FuncOp function);

} // namespace mpc

#endif // MPC_PASSES_PLACEROUNDINGS_H
