//===- Settings.h - the simulated machine, from the environment -------------------------===//

#ifndef MPC_RUNTIME_SIM_DRIVER_SETTINGS_H
#define MPC_RUNTIME_SIM_DRIVER_SETTINGS_H

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace mpc::sim {

/// What can be made to fail: docs/cuda.md. The last ones are of simulated libraries.
enum class Fault : uint8_t {
  alloc,
  launch,
  sticky,
  copy,
  load,
  info,
  blas,
  blasUnsupported,
  dnn,
  dnnStart,
  dnnUnsupported,
  plan,
  planMemory,
  end ///< no kind: behind the last one
};
constexpr auto kFaultKinds = static_cast<size_t>(Fault::end);

struct Settings {
  int capability = 80;                       ///< MPC_SIM_CC=8.0
  uint64_t memoryBytes = uint64_t(16) << 30; ///< MPC_SIM_MEMORY, of each device
  int driverVersion = 12090;                 ///< MPC_SIM_DRIVER
  int devices = 1;                           ///< MPC_SIM_DEVICES
  std::string name = "simulated GPU";        ///< MPC_SIM_NAME, of each device
  /// MPC_SIM_FAULT=KIND:N[,KIND:N…]: by Fault, the calls (from 1) that fail.
  std::array<std::set<uint64_t>, kFaultKinds> faults;
  /// MPC_SIM_TIMES=NAME:MICROSECONDS[,NAME:MICROSECONDS…]: how long work of a name takes.
  std::map<std::string, double> times;
  std::string trace; ///< MPC_SIM_TRACE: a file for the names of the calls that launch or wait
};

/// How long a piece of work takes by the simulated clock, if MPC_SIM_TIMES does not say otherwise.
constexpr double kMicroseconds = 100;

/// False where a setting cannot be read, after a line on stderr that says which.
bool readSettings(Settings &settings);

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_DRIVER_SETTINGS_H
