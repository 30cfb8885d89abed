//===- BatchAnalysis.h - where the samples are in every value -------------------===//
//
// A smaller last batch runs through the same program, filled up with copies whose loss
// weighs nothing. That is exact as long as no operation mixes samples; this analysis
// follows the samples from the inputs and finds the operations that do.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_PASSES_BATCHANALYSIS_H
#define MPC_PASSES_BATCHANALYSIS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace mpc {

/// Dimension `axis` has outer · batch · inner elements: `inner` consecutive ones per sample,
/// `outer` such blocks.
struct SamplePlace {
  enum Kind { none, place, mixed } kind = none; ///< none: the value does not depend on the samples
  int64_t axis = 0, outer = 1, inner = 1;
  mlir::Operation *culprit = nullptr; ///< mixed: the operation that mixed them

  bool operator==(const SamplePlace &o) const {
    return kind == o.kind &&
           (kind != place || (axis == o.axis && outer == o.outer && inner == o.inner));
  }
};

class BatchAnalysis {
public:
  /// Reads mpc.batch and mpc.batch_axes of the module; without these samples are on axis 0 of every
  /// input.
  explicit BatchAnalysis(mlir::func::FuncOp f);

  SamplePlace of(mlir::Value v) const { return places.lookup(v); }
  int64_t batchSize() const { return batch; }
  /// Why a value mixes samples, for the user; empty if it does not.
  std::string whyMixed(mlir::Value v) const;

private:
  void visit(mlir::Operation *op);
  SamplePlace merge(mlir::Operation *op, llvm::ArrayRef<SamplePlace> operands);
  SamplePlace ofView(mlir::Operation *op);
  SamplePlace ofProduct(mlir::Operation *op);
  SamplePlace locate(mlir::Operation *op, SamplePlace p, llvm::ArrayRef<int64_t> from,
                     llvm::ArrayRef<int64_t> to);
  SamplePlace mix(mlir::Operation *op) const { return {SamplePlace::mixed, 0, 1, 1, op}; }
  SamplePlace keepUnless(bool mixes, mlir::Operation *op, SamplePlace p) const {
    return mixes ? mix(op) : p;
  }

  int64_t batch = 1;
  llvm::DenseMap<mlir::Value, SamplePlace> places;
};

} // namespace mpc

#endif // MPC_PASSES_BATCHANALYSIS_H
