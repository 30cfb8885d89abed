//===- Losses.h - PyTorch's losses in core operations ---------------------------===//

#ifndef MPC_PASSES_LOSSES_H
#define MPC_PASSES_LOSSES_H

#include "compiler/ops/Build.h"

namespace mpc {

struct LossResult {
  Value loss;  ///< scalar tensor of the compute type; 0 where nothing counts
  Value count; ///< the same type: how many elements the mean is over
};

/// Builds a loss on `output`. `samples` (tensor<i64>) of the batch's samples are there.
struct LossBuilder {
  mlir::OpBuilder &b;
  Location loc;
  Value output;
  Value samples;
  int64_t axis = 0; ///< the samples' dimension of the output; -1: it has none, every element counts
  int64_t factor = 1; ///< consecutive rows of that dimension per sample

  /// cross-entropy, or nll with `logProbabilities`; labels: i64, the output's shape without the
  /// class axis.
  LossResult classLoss(Value labels, int64_t classAxis, int64_t ignoreIndex, bool logProbabilities);
  /// How many labels are the first largest logit (scalar, compute type).
  Value correct(Value labels, int64_t classAxis, int64_t ignoreIndex);
  /// mse, l1, smooth-l1, bce, bce-with-logits; target: the output's shape.
  LossResult elementwiseLoss(llvm::StringRef name, Value target);
  /// The output, of one element, is the loss.
  LossResult outputLoss();

private:
  Value masked(Value v, int64_t samplesAxis);
};

} // namespace mpc

#endif // MPC_PASSES_LOSSES_H
