//===- Losses.h - PyTorch's losses in core operations ---------------------------===//

#ifndef MPC_PASSES_LOSSES_H
#define MPC_PASSES_LOSSES_H

#include "compiler/ops/Build.h"

namespace mpc {

struct LossResult {
  Value loss;  ///< scalar tensor of the compute type; 0 where nothing counts
  Value count; ///< the same type: how many elements the mean is over
};

/// Builds a loss on `output`, whose axis 0 is the samples' (`batch` of them, or a multiple: consecutive rows per sample). `samples` (tensor<i64>)
/// of them are there.
struct LossBuilder {
  mlir::OpBuilder &b;
  Location loc;
  Value output;
  Value samples;
  int64_t batch;
  bool hasSampleAxis = true; ///< false after a loss whose output has no such axis: every element counts

  /// cross-entropy, or nll with `logProbabilities`; labels: i64, the output's shape without the class axis.
  LossResult classLoss(Value labels, int64_t classAxis, int64_t ignoreIndex, bool logProbabilities);
  /// How many labels are the first largest logit (scalar, compute type).
  Value correct(Value labels, int64_t classAxis, int64_t ignoreIndex);
  /// mse, l1, smooth-l1, bce, bce-with-logits; target: the output's shape.
  LossResult elementwiseLoss(llvm::StringRef name, Value target);
  /// The output, of one element, is the loss.
  LossResult outputLoss();

private:
  int64_t factor(); ///< rows of axis 0 per sample; 0: no axis of samples
  Value masked(Value v);
};

} // namespace mpc

#endif // MPC_PASSES_LOSSES_H
