//===- Grouping.h - which launches of an entry point run as one on a GPU ---------------===//

#ifndef MPC_PASSES_GROUPING_H
#define MPC_PASSES_GROUPING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"

namespace mpc {

class LaunchOp;

/// Of mpc.concat: a table of scalars. Each is computed where the table lies, so that no kernel has
/// as many parameters as the table has elements; no kernel holds it together with anything else.
inline constexpr llvm::StringLiteral kTableAttr = "mpc.table";
inline bool isTable(mlir::Operation *op) { return op->hasAttr(kTableAttr); }

/// Of a function: equal kernels of it will run together. Clusters that compute the same for several
/// parameters are not merged with each other, so that they stay equal.
inline constexpr llvm::StringLiteral kGroupedAttr = "mpc.grouped";

/// The scalars, without reshapes, that a launch joins to a table, where all of them are results of
/// other launches; empty for any other launch.
llvm::SmallVector<mlir::OpResult> joinedScalars(LaunchOp launch, mlir::SymbolTable &symbols);

/// Launches of equal kernels (compiler/codegen/gpu/Group.h) that nothing orders. `next[i]`: what
/// waits for operation i. `outlives`: a value whose memory is nobody's to use again; a launch that
/// reads or writes much other memory keeps its place, and so does what would wait for a group, lest
/// more of that is needed at once. Per operation: the first one of those that it runs with.
llvm::SmallVector<int> groupLaunches(llvm::ArrayRef<mlir::Operation *> ops,
                                     llvm::ArrayRef<llvm::SmallSetVector<int, 4>> next,
                                     mlir::SymbolTable &symbols,
                                     llvm::function_ref<bool(mlir::Value)> outlives);

} // namespace mpc

#endif // MPC_PASSES_GROUPING_H
