//===- BatchAnalysis.h - where the samples are in every value -------------------===//
//
// A smaller last batch of n samples runs through the program of the whole batch, filled up
// with copies. This analysis follows the samples from the inputs. What it says of a value
// is a promise: every element that belongs to samples < n, by all its places, is what a
// batch of n samples would give; a value without a place is so as a whole. What belongs to
// a sample that is not there may be anything, but is mostly the first sample's: so that no
// operation meets there what the model never computes.
//
// Operations that combine samples keep that promise if what is not there is masked
// (mpc.mask_samples): a sum over the samples of zeros there has no place any more. Others
// are mixed, which is for good: the program cannot run a smaller batch then.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_OPS_BATCHANALYSIS_H
#define MPC_OPS_BATCHANALYSIS_H

#include "FewerRows.h"
#include "MpcDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace mpc {

/// Dimension `axis` has outer · batch · inner elements: `inner` consecutive ones per sample,
/// `outer` such blocks.
struct SamplePlace {
  int64_t axis = 0, outer = 1, inner = 1;
  std::optional<ReductionKind> neutral{}; ///< what is not there holds this reduction's neutral
                                          ///< element

  bool samePlace(const SamplePlace &o) const {
    return axis == o.axis && outer == o.outer && inner == o.inner;
  }
};

/// All dimensions of a value that hold the samples; a product of samples with samples has two.
struct SamplePlaces {
  llvm::SmallVector<SamplePlace, 1> places; ///< at most one per axis
  mlir::Operation *culprit = nullptr;       ///< the operation that mixed the samples
  bool paired = false; ///< it did by a tensor that has a part for each sample of a whole batch

  bool mixed() const { return culprit != nullptr; }
  bool none() const { return !culprit && places.empty(); }
  const SamplePlace *on(int64_t axis) const {
    auto *found = llvm::find_if(places, [&](const SamplePlace &p) { return p.axis == axis; });
    return found == places.end() ? nullptr : found;
  }
};

/// On a GatherOp of positions: every one lies in the part of the table that belongs to its own
/// sample.
constexpr llvm::StringLiteral kSameSamplesAttr = "mpc.same_samples";

class BatchAnalysis {
public:
  BatchAnalysis() = default;
  /// Follows the samples through all of a function.
  explicit BatchAnalysis(mlir::func::FuncOp f);

  /// Reads mpc.batch and mpc.batch_axes of the module; without these samples are on axis 0 of every
  /// input. A batch of one is never smaller: nothing has a place then.
  void start(mlir::func::FuncOp f);
  /// Follows one operation whose operands have been followed.
  void visit(mlir::Operation *op);

  SamplePlaces of(mlir::Value v) const { return known.lookup(v); }
  int64_t batchSize() const { return batch; }
  /// The value has the place, or is the same for every sample there.
  bool goesWith(mlir::Value v, const SamplePlace &p);
  /// Why a value mixes samples, for the user; empty if it does not.
  std::string whyMixed(mlir::Value v) const;

private:
  SamplePlaces transfer(mlir::Operation *op);
  AxisPart partOf(const SamplePlace &p) const { return {p.axis, p.outer, batch, p.inner}; }
  SamplePlaces merge(mlir::Operation *op);
  SamplePlaces ofElementwise(mlir::Operation *op);
  SamplePlaces ofReshape(mlir::Operation *op);
  SamplePlaces ofSlice(SliceOp op);
  SamplePlaces ofConcat(ConcatOp op);
  SamplePlaces ofGather(GatherOp op);
  SamplePlaces ofMatmul(MatmulOp op);
  SamplePlaces ofMask(MaskSamplesOp op);
  SamplePlaces ofReduce(ReduceOp op);
  SamplePlaces combined(mlir::Operation *op, int64_t axis, ReductionKind kind);

  int64_t batch = 1;
  FewerRows fewer;
  llvm::DenseMap<mlir::Value, SamplePlaces> known;
};

/// Notes on the module why a smaller batch cannot be trained (mpc.tail_refused); the first reason
/// stays, and an empty one is none.
void refuseSmallerBatch(mlir::ModuleOp module, const llvm::Twine &why);

/// First numbers of mpc.output_samples for an output that belongs to the batch as a whole, and for
/// one along several axes (OutputSamples of runtime/core/Program.h).
constexpr int64_t kNoSampleAxis = -1, kSeveralSampleAxes = -2;

} // namespace mpc

#endif // MPC_OPS_BATCHANALYSIS_H
