//===- Errors.h - what the simulated driver says -----------------------------------------===//

#ifndef MPC_RUNTIME_SIM_DRIVER_ERRORS_H
#define MPC_RUNTIME_SIM_DRIVER_ERRORS_H

#include <cuda.h>

namespace mpc::sim {

/// A line on stderr, "mpc-sim: …".
[[gnu::format(printf, 1, 2)]] void say(const char *format, ...);

/// Says why a call fails, and returns its result.
[[gnu::format(printf, 2, 3)]] CUresult refuse(CUresult result, const char *format, ...);

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_DRIVER_ERRORS_H
