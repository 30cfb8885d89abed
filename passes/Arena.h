//===- Arena.h - when the values of the arena are alive, and where they lie ---------------===//

#ifndef MPC_PASSES_ARENA_H
#define MPC_PASSES_ARENA_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include <string>

namespace mpc {

/// Operations that read the memory of `v`, through views too.
void readersOf(mlir::Value v, llvm::SmallSetVector<mlir::Operation *, 8> &readers);

/// Position of the last operation that reads `v`; of its producer where none does.
int lastUse(mlir::Value v, const llvm::DenseMap<mlir::Operation *, int> &position);

/// A value of the arena: its bytes from the operation that writes it to the last one that reads it.
struct ArenaValue {
  int64_t bytes;
  int first, last;
  int64_t offset = 0;
};

/// Gives every value an offset; returns the size of the arena.
int64_t layOutArena(llvm::MutableArrayRef<ArenaValue> values);

/// For --report=memory: per entry point the values of its arena that are alive at the fullest
/// moment, largest first. `module` is at the planned level.
std::string arenaReport(mlir::ModuleOp module);

} // namespace mpc

#endif // MPC_PASSES_ARENA_H
