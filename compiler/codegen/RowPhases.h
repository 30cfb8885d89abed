//===- RowPhases.h - the phases of a row kernel ------------------------------------===//
//
// A reduction that needs another one's result needs another pass over the row:
//
//   softmax:  phase 1: max x;  phase 2: Σ exp(x - max);  last phase: exp / Σ
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_ROWPHASES_H
#define MPC_CODEGEN_ROWPHASES_H

#include "compiler/codegen/Access.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace mpc {

/// Which reductions run together, and which values of a row are worth keeping from phase to phase
/// (softmax: phase 2 keeps exp).
struct RowPhases {
  /// Reductions per phase; the last phase has none, it stores.
  llvm::SmallVector<llvm::SmallVector<ReduceOp>> reductions;
  struct Kept {
    unsigned phase;      ///< computes and stores it
    int64_t result = -1; ///< in this result's buffer, else in the frame
    mlir::Value array;
  };
  llvm::MapVector<mlir::Value, Kept> kept;
  /// Per phase: whether it draws random numbers, which come in blocks of four.
  llvm::SmallVector<bool> random;

  RowPhases(mlir::func::FuncOp kernel, int64_t rows, int64_t columns);

private:
  struct Reach {
    llvm::SmallVector<mlir::Value> elements; ///< read at the running element, users first
    llvm::SmallVector<ReduceOp> reductions;
  };
  Reach reach(llvm::ArrayRef<mlir::Value> roots) const;
  void choose(mlir::func::FuncOp kernel, llvm::ArrayRef<Reach> perPhase);
  int64_t rows, columns;
};

} // namespace mpc

#endif // MPC_CODEGEN_ROWPHASES_H
