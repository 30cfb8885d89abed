//===- Cifar10.h - CIFAR-10's binary files --------------------------------------------===//

#ifndef MPC_RUNTIME_DATA_CIFAR10_H
#define MPC_RUNTIME_DATA_CIFAR10_H

#include "runtime/data/Array.h"

namespace mpc {

struct LabeledImages {
  Array images; ///< u8 [N, C, H, W]
  Array labels; ///< u8 [N]
};

/// Reads a folder of the binary version: data_batch_1.bin to data_batch_5.bin (those that are
/// there) for training, otherwise test_batch.bin; or one such file. Throws Error naming the
/// file: a length that is no multiple of 3073 bytes, a label above 9.
LabeledImages readCifar10(const std::string &path, bool training);

} // namespace mpc

#endif // MPC_RUNTIME_DATA_CIFAR10_H
