//===- FewerRows.h - values that hold for a smaller batch too ---------------------===//
//
// A value that was not made from the batch goes with every sample only if a smaller batch
// would see the same: a bias of all rows does, a parameter of four rows beside a batch of
// four does not, as a batch of three would have no place for its last row.
//
//===------------------------------------------------------------------------------===//

#ifndef MPC_OPS_FEWERROWS_H
#define MPC_OPS_FEWERROWS_H

#include "MpcDialect.h"
#include <map>

namespace mpc {

/// A part of dimension `axis`, whose size is outer · count · inner in row-major order.
struct AxisPart {
  int64_t axis = 0, outer = 1, count = 1, inner = 1;
};

/// Where a part lies in another shape of the same elements; nullopt if it spreads over several
/// dimensions there. `from` and `to` hold equally many elements, none has a size 0.
std::optional<AxisPart> locate(AxisPart part, llvm::ArrayRef<int64_t> from,
                               llvm::ArrayRef<int64_t> to);

/// Axes, of as many indices as the batch has samples, along which all slices of a constant argument
/// are equal: the importer's word on numbers that are not in the module (array of i64).
constexpr llvm::StringLiteral kRepeatedAttr = "mpc.repeated";

class FewerRows {
public:
  /// True if a tensor with fewer indices in `part` would hold the same elements at those: by how it
  /// was made (a broadcast along the axis, the index itself, operations that keep the indices
  /// apart), or as all numbers of a constant are the same there. False where that is not evident.
  bool hold(mlir::Value v, AxisPart part);

private:
  bool holdIn(mlir::Value v, AxisPart part);
  bool holdInMatmul(MatmulOp op, AxisPart part);
  bool holdInGather(GatherOp op, AxisPart part);
  bool holdInSlice(SliceOp op, AxisPart part);
  bool holdBesideAxis(mlir::Operation *op, AxisPart part);

  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t>; ///< of a part
  std::map<std::pair<void *, Key>, bool> known;
  int depth = 0;
};

} // namespace mpc

#endif // MPC_OPS_FEWERROWS_H
