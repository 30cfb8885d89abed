//===- Driver.h - from options to files ----------------------------------------------------===//

#ifndef MPC_DRIVER_DRIVER_H
#define MPC_DRIVER_DRIVER_H

namespace mpc {
/// The program `mpc`: exit code 0 done, 1 the input cannot be compiled (message on stderr), 2 wrong
/// usage.
int driverMain(int argc, char **argv);
} // namespace mpc

#endif // MPC_DRIVER_DRIVER_H
