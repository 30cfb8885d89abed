//===- Library.h - what simulated libraries ask of the simulated driver -------------------===//
//
// A library's work on a real GPU is kernels. Here it is a function of the host that the driver
// treats as a kernel: it runs when the stream gets there, its bytes must lie in live buffers, a
// graph can hold it, and races with other work are found.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_DRIVER_LIBRARY_H
#define MPC_RUNTIME_SIM_DRIVER_LIBRARY_H

#include "runtime/sim/Executor.h"
#include "runtime/sim/driver/Settings.h"
#include <cuda.h>
#include <functional>

namespace mpc::sim {

struct LibraryWork {
  std::string name;             ///< for messages: "cublasLtMatmul 64x128x784"
  std::string algorithm;        ///< for MPC_SIM_TIMES: "cublasLt-plain"
  std::vector<Touched> touched; ///< all bytes that it reads or writes
  std::function<void()> run;    ///< may call nothing of the driver
};

} // namespace mpc::sim

extern "C" {
/// The current context and 10 · major + minor of its device.
CUresult mpc_sim_current(CUcontext *context, int *capability);
/// Gives work to a stream of the current context, which is `context`.
CUresult mpc_sim_enqueue(CUcontext context, CUstream stream, const mpc::sim::LibraryWork &work);
/// Refuses a call that may wait for the device while a capture forbids that.
CUresult mpc_sim_check_unsafe(const char *function);
/// Counts a call of a kind; true if MPC_SIM_FAULT asks for it to fail.
bool mpc_sim_strikes(mpc::sim::Fault fault);
/// A line of MPC_SIM_TRACE.
void mpc_sim_trace(const char *line);
}

#endif // MPC_RUNTIME_SIM_DRIVER_LIBRARY_H
