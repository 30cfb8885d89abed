//===- Predict.h - outputs of the model ----------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_PREDICT_H
#define MPC_RUNTIME_TRAIN_PREDICT_H

#include "runtime/core/Device.h"
#include "runtime/data/DatasetSpec.h"

namespace mpc {

/// Runs `predict` over all samples of the inputs and writes the outputs to an .npy or .npz file.
/// Throws Error.
void predict(const Program &program, Device &device, const DatasetSpec &inputs,
             const std::string &output);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_PREDICT_H
