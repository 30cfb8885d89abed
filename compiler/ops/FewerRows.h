//===- FewerRows.h - values that hold for a smaller batch too ---------------------===//
//
// A value that was not made from the batch goes with every sample only if a smaller batch
// would see the same: a bias of all rows does, a parameter of four rows beside a batch of
// four does not, as a batch of three would have no place for its last row.
//
//===------------------------------------------------------------------------------===//

#ifndef MPC_OPS_FEWERROWS_H
#define MPC_OPS_FEWERROWS_H

#include "mlir/IR/Value.h"

namespace mpc {

/// A part of dimension `axis`, whose size is outer · count · inner in row-major order.
struct AxisPart {
  int64_t axis = 0, outer = 1, count = 1, inner = 1;
};

/// Where a part lies in another shape of the same elements; nullopt if it spreads over several
/// dimensions there. `from` and `to` hold equally many elements, none has a size 0.
std::optional<AxisPart> locate(AxisPart part, llvm::ArrayRef<int64_t> from,
                               llvm::ArrayRef<int64_t> to);

/// True if a tensor with fewer indices in `part` would hold the same elements at those: by how it
/// was made (a broadcast along the axis, the index itself), or as all numbers of a constant are the
/// same there. False where that is not evident.
bool holdsForFewer(mlir::Value v, AxisPart part);

} // namespace mpc

#endif // MPC_OPS_FEWERROWS_H
