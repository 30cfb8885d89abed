//===- OperationFacts.h - what clustering asks of an operation -----------------------===//
//
// What a kernel may compute, what an element costs, and how often its readers ask for it.
//
//===--------------------------------------------------------------------------------===//

#ifndef MPC_PASSES_OPERATIONFACTS_H
#define MPC_PASSES_OPERATIONFACTS_H

#include "compiler/codegen/Access.h" // isPointwise, stripReshapes

namespace mpc {

/// matmul, the convolutions and attention: they keep their place at the top level.
bool isLibraryOp(mlir::Operation *op);
/// An index map: broadcast, reshape, transpose, slice, pad, concat.
bool isIndexMap(mlir::Operation *op);
/// A constant tensor that is not a splat, or has no elements: planned into memory, never part of a
/// kernel.
bool isDataConstant(mlir::Value v);
int64_t elementCount(mlir::Value v);
/// Bytes of a value in memory; an i1 takes one.
int64_t tensorBytes(mlir::Type type);

/// An operation that is neither node nor kernel content: a scalar constant (the padding of
/// mpc.pad), a data constant.
bool isOutside(mlir::Operation *op);
/// max_pool and average_pool: they read windows.
bool isPool(mlir::Operation *op);
/// The gradient of a pool: its element asks the windows that cover it.
bool isPoolGradient(mlir::Operation *op);
/// Rough cost of one element: 1 for an addition, 16 for a transcendental function. Casts are free,
/// so that dropping one does not change the clusters.
int elementCost(mlir::Operation *op);
/// The permutation moves nothing but dimensions of size 1.
bool movesNothing(TransposeOp transpose);
/// Calls `visit` for each use of `v`, seen through the views that read each element once.
void forEachReader(mlir::Value v, llvm::function_ref<void(mlir::OpOperand &)> visit);
/// True if `op` reads elements of operand `i` several times.
bool rereads(mlir::Operation *op, unsigned i);
/// True if a reader of `v` asks for its elements several times.
bool isReread(mlir::Value v);
/// A value that has to be in memory as it is, whoever computes it: a library operation or the
/// caller reads it.
bool isStored(mlir::Value v);

} // namespace mpc

#endif // MPC_PASSES_OPERATIONFACTS_H
