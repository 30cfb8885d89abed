//===- Hyperparameters.h - what a run is trained with -----------------------------------===//
//
// Everything here is in the checkpoint: a resumed run takes it from there.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_HYPERPARAMETERS_H
#define MPC_RUNTIME_TRAIN_HYPERPARAMETERS_H

#include <cmath>
#include <cstdint>
#include <string>

namespace mpc {

constexpr int64_t kMostMicroBatches = 1 << 20; ///< of one optimizer step

/// The defaults are PyTorch's; weight_decay is 0.01 for AdamW (set by the command line).
struct Hyperparameters {
  double lr = 0;
  double momentum = 0;                           ///< sgd
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8; ///< adam
  double weight_decay = 0;
  std::string no_decay; ///< POSIX extended regular expression of parameter names; "": none
  double clip_norm = HUGE_VAL;
  std::string schedule = "constant";
  int64_t step_size = 0; ///< for schedule step
  double gamma = 0.1;
  double final_lr = 0;
  int64_t warmup = 0;
  double loss_scale_init = 65536;
  int64_t growth_interval = 2000;
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t accumulate = 1;
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_tail = false; ///< a smaller last batch is left out
};

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_HYPERPARAMETERS_H
