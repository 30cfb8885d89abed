//===- Eval.h - loss and accuracy over a data set ------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_EVAL_H
#define MPC_RUNTIME_TRAIN_EVAL_H

#include "runtime/data/Batcher.h"
#include "runtime/train/State.h"
#include <functional>
#include <limits>
#include <optional>

namespace mpc {

struct Evaluation {
  double loss = 0;  ///< mean over the loss elements that count; NaN where none does
  double count = 0; ///< of these
  double accuracy = std::numeric_limits<double>::quiet_NaN(); ///< where labels are classes
  bool hasAccuracy() const { return accuracy == accuracy; }
};

/// Runs `eval_step` over a data set; made once, run after each epoch.
class Evaluator {
public:
  /// Throws Error where the last batch is smaller and the program cannot run that.
  Evaluator(const Program &program, Device &device, const Dataset &dataset);
  /// None where `isStopped`, asked after every batch, said so.
  std::optional<Evaluation> run(const std::function<bool()> &isStopped);
  Evaluation run() {
    return *run([] { return false; });
  }

private:
  const Program &program;
  Device &device;
  const Dataset &dataset;
  Batcher batcher;
  Scalar loss, count, correct;
  std::vector<int64_t> order;
};

/// "loss 0.25, accuracy 0.91"; says why there is no loss where no label counts.
std::string evaluationText(const Evaluation &evaluation);

/// Refuses a number of samples whose last batch is smaller, if the program cannot run that.
void requireWholeBatches(const Program &program, int64_t samples, const std::string &remedy);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_EVAL_H
