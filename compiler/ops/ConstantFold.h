//===- ConstantFold.h - index maps applied to constants ---------------------===//
//
// Shape arithmetic of exporters is reshapes, slices, gathers and concats of small integer
// tensors. Their folders all are "result element i is source element f(i)"; this is the
// one place where elements of a constant are copied.
//
//===----------------------------------------------------------------------===//

#ifndef MPC_OPS_CONSTANTFOLD_H
#define MPC_OPS_CONSTANTFOLD_H

#include "MpcDialect.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mpc {

/// A constant that is no splat folds up to this many elements: beyond, a copy in the module costs
/// more than an index map in a kernel.
constexpr int64_t kMaxFoldedElements = 1 << 20;
/// A broadcast makes elements from nothing: it folds only while it stays of the size of shape
/// arithmetic.
constexpr int64_t kMaxFoldedBroadcast = 1 << 10;

/// The attribute as elements that may be folded; null for anything else, and for large ones that
/// are no splat.
mlir::DenseElementsAttr foldableElements(mlir::Attribute attribute);

/// Calls `visit` for every index of `shape` in row-major order.
void forEachIndex(llvm::ArrayRef<int64_t> shape,
                  llvm::function_ref<void(llvm::ArrayRef<int64_t>)> visit);
/// Row-major strides, in elements.
llvm::SmallVector<int64_t> rowMajorStrides(llvm::ArrayRef<int64_t> shape);
int64_t linearIndex(llvm::ArrayRef<int64_t> index, llvm::ArrayRef<int64_t> strides);

/// Where an element of a mapped constant comes from: which source, and its row-major position
/// there. Position -1: the fill value.
struct SourceElement {
  int64_t source, position;
};
/// A constant of type `type` whose element at an index is what `map` names. All sources have the
/// element type of `type`; `fill` is a scalar attribute of it. Null where the result would be too
/// large.
mlir::DenseElementsAttr mapConstants(llvm::ArrayRef<mlir::DenseElementsAttr> sources,
                                     mlir::RankedTensorType type,
                                     llvm::function_ref<SourceElement(llvm::ArrayRef<int64_t>)> map,
                                     mlir::Attribute fill = {});
/// The same with one source and no fill.
mlir::DenseElementsAttr mapConstant(mlir::DenseElementsAttr source, mlir::RankedTensorType type,
                                    llvm::function_ref<int64_t(llvm::ArrayRef<int64_t>)> map);
/// A view of a constant: the result's element at `index` is the input's whose coordinate in
/// dimension d is coordinate(index, d). Null where the input is no constant that may be folded.
mlir::DenseElementsAttr
foldView(mlir::Attribute input, mlir::RankedTensorType type,
         llvm::function_ref<int64_t(llvm::ArrayRef<int64_t> index, size_t d)> coordinate);

} // namespace mpc

#endif // MPC_OPS_CONSTANTFOLD_H
