//===- BatchTrace.h - shape arithmetic for other batch sizes ---------------------===//
//
// What exporters compute from Shape and Size folds to constants of the batch size N. Which
// of them depend on it, and how, is seen by computing them for other sizes too, with the same
// handlers: a constant that is the same for N, N - 1 and 1 samples is one.
//
// A value that depends on the batch is a constant only as a shape. As data it is computed
// in the program, from the number of samples: OnnxConverter::live.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_OPS_BATCHTRACE_H
#define MPC_OPS_BATCHTRACE_H

#include "BatchAnalysis.h"

namespace mpc {

class BatchTrace {
public:
  using Constants = llvm::SmallVector<mlir::DenseElementsAttr, 2>; ///< one per size; null: unknown

  /// A batch of one is never smaller: nothing is followed then.
  void start(int64_t batchSize);
  bool active() const { return !others.empty(); }
  llvm::ArrayRef<int64_t> sizes() const { return others; }

  /// Keeps the constants of an ONNX value at the other sizes, unless they all are `whole`, the one
  /// of the whole batch.
  void record(mlir::Value v, mlir::DenseElementsAttr whole, Constants constants);
  bool follows(mlir::Value v) const { return known.contains(v); }
  Constants constants(mlir::Value v) const { return known.lookup(v); }

  /// Dimensions `shape` with those of `places` as they are for so many samples.
  llvm::SmallVector<int64_t> shapeAt(int64_t samples, llvm::ArrayRef<int64_t> shape,
                                     const SamplePlaces &places) const;

  /// The value is `size` for the whole batch and others[i] · size / batch for the others: rows that
  /// belong to the samples.
  bool isRows(int64_t size, llvm::function_ref<int64_t(unsigned)> other) const;
  /// The axes along which a followed value only has more or fewer rows, the same ones; nothing if
  /// its elements differ.
  std::optional<llvm::SmallVector<int64_t>> rowAxes(mlir::Value v,
                                                    mlir::DenseElementsAttr whole) const;

private:
  int64_t batch = 1;
  llvm::SmallVector<int64_t, 2> others;
  llvm::DenseMap<mlir::Value, Constants> known;
};

/// The elements of `part` are those of `whole` at the same index.
bool isPartOf(mlir::DenseElementsAttr part, mlir::DenseElementsAttr whole);

} // namespace mpc

#endif // MPC_OPS_BATCHTRACE_H
