//===- Regroup.h - one row-major order, cut into dimensions in different ways -----===//
//
// [64, 28, 28, 32] and [50176, 32] are the same elements in the same order. A kernel should
// have as few dimensions as its index maps allow: its loops are longer, its indices simpler.
// A cut is the number of elements behind a place where a dimension ends: [50176, 32] has the
// cut 32, [64, 28, 28, 32] has 32, 896 and 25088.
//
//===------------------------------------------------------------------------------===//

#ifndef MPC_PASSES_REGROUP_H
#define MPC_PASSES_REGROUP_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace mpc {

using Shape = llvm::SmallVector<int64_t, 4>;
using Cuts = llvm::SmallVector<int64_t, 4>; ///< ascending, each divides the next

/// Adds `cut` unless it lies across those that are there, or is no cut (1, `elements`).
void addCut(Cuts &cuts, int64_t cut, int64_t elements);
/// The shape with these cuts; no dimension of size 1, [] for one element.
Shape shapeWithCuts(const Cuts &cuts, int64_t elements);
/// Elements behind dimension d, of one index.
int64_t suffixProduct(llvm::ArrayRef<int64_t> shape, int64_t d);

/// A factor of a dimension of both of two shapes.
struct Atom {
  int64_t size;
  int64_t first, second; ///< dimension in either shape
};
/// The coarsest common refinement of two shapes of equal element count, outermost atom first;
/// dimensions of size 1 have no atom. nullopt if there is none, as for [6, 4] and [4, 6].
std::optional<llvm::SmallVector<Atom>> refine(llvm::ArrayRef<int64_t> first,
                                              llvm::ArrayRef<int64_t> second);

} // namespace mpc

#endif // MPC_PASSES_REGROUP_H
