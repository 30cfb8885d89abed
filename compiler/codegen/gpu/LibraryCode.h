//===- LibraryCode.h - what executes library commands without a library -----------------===//
//
// A GPU function, or a few, for every library command, so that no model depends on a library
// being there: products and convolutions (Product.h), fused attention (Attention.h). As for
// kernels, everything follows from the command alone.
//
//===------------------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_GPU_LIBRARYCODE_H
#define MPC_CODEGEN_GPU_LIBRARYCODE_H

#include "compiler/codegen/gpu/Launch.h"

namespace mpc::gpu {

/// GPU functions that execute a library command by themselves, in the order in which they have to
/// run; none where its results have no elements. Names are made from the content: equal names mean
/// equal code. Functions with `afterLibrary` run behind a library instead, and come last.
/// Parameters: the command's operands, its results, and scratch where libraryScratchBytes > 0.
llvm::SmallVector<Function, 3> libraryFunctions(mlir::Operation *command);
/// The library commands of a module's functions, one of each name that libraryFunctions makes, in
/// order.
llvm::SmallVector<mlir::Operation *> distinctLibraryCommands(mlir::ModuleOp module);
/// Bytes of a command's scratch.
int64_t libraryScratchBytes(mlir::Operation *command);
/// Writes the functions in front of the function that `command` is in. Halves are multiplied by
/// what the architecture has tensor cores for (Architecture.h), the rest in the accumulator's type.
llvm::LogicalResult emitLibraryCode(mlir::Operation *command, unsigned architecture);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_LIBRARYCODE_H
