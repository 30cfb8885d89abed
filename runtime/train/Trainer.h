//===- Trainer.h - the command line of a compiled trainer ----------------------------===//

#ifndef MPC_RUNTIME_TRAIN_TRAINER_H
#define MPC_RUNTIME_TRAIN_TRAINER_H

#include "runtime/core/Device.h"
#include <functional>

namespace mpc {

/// Makes the device of --device ("" if it was not given) with --threads (≤ 0: all). Throws Error.
using DeviceFactory = std::function<std::unique_ptr<Device>(
    const Program &program, const std::string &device, int threads)>;

/// Parses the command line, runs the command and returns the exit code: 0 done, 1 the input or the
/// run failed, 2 wrong usage, 130/143 stopped by SIGINT/SIGTERM. Messages go to stderr.
int runTrainer(int argc, char **argv, const Program &program, const DeviceFactory &makeDevice);

/// The same for a compiled program, on the devices that it is compiled for.
int trainerMain(int argc, char **argv, const MpcProgram &program);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_TRAINER_H
