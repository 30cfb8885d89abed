//===- Schedule.h - learning rates and bias corrections -----------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_SCHEDULE_H
#define MPC_RUNTIME_TRAIN_SCHEDULE_H

#include "runtime/core/Device.h"
#include "runtime/train/Hyperparameters.h"

namespace mpc {

/// Learning rate of applied step k = 0, 1, … of a run of `total` steps, in double:
///   constant  lr
///   step      lr·γ^⌊k/step_size⌋
///   linear    lr + (final − lr)·k/total
///   cosine    final + (lr − final)·(1 + cos(πk/total))/2
/// times (k+1)/warmup for k < warmup. Behind `total` linear and cosine stay at the final rate.
double learningRate(const Hyperparameters &hyper, int64_t k, int64_t total);

/// The device's table of 4096 rows: row k mod 4096 holds lr, lr/(1−β₁^(k+1)), √(1−β₂^(k+1)), 0 of
/// applied step k. The step itself picks its row, so that a skip needs no answer from the host;
/// rows are overwritten only when they are known to have been applied.
class ScheduleTable {
public:
  static constexpr int64_t kRows = 4096;

  /// `total`: steps of the whole run. Writes all rows for a run at applied step `applied`.
  ScheduleTable(const Program &program, Device &device, const Hyperparameters &hyper,
                int64_t applied, int64_t total);

  /// Applied steps so far, as read back; refills rows from time to time.
  void advance(int64_t applied) {
    if (applied - first >= kRows / 2)
      refill(applied);
  }

private:
  void refill(int64_t applied);
  void computeRow(int64_t k);

  Device &device;
  const TensorInfo *tensor = nullptr;
  Hyperparameters hyper;
  bool adam;
  int64_t total;
  int64_t first = 0; ///< rows hold applied steps first … first + 4095
  std::vector<double> rows;
  std::vector<unsigned char> bytes;
};

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_SCHEDULE_H
