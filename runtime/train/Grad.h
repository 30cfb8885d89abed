//===- Grad.h - gradients of one batch -----------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_GRAD_H
#define MPC_RUNTIME_TRAIN_GRAD_H

#include "runtime/core/Device.h"
#include "runtime/data/DatasetSpec.h"

namespace mpc {

/// One training-mode forward and backward from `scale`; `loss`, `loss_scale` and one unscaled
/// array per parameter go to an .npz file. In fp16 the scale is halved until every gradient is
/// finite. Nothing is updated. Throws Error.
void grad(const Program &program, Device &device, const DatasetSpec &inputs, uint64_t seed,
          double scale, const std::string &output);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_GRAD_H
