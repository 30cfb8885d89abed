//===- Say.h - what a simulated library says ------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_LIBRARY_SAY_H
#define MPC_RUNTIME_SIM_LIBRARY_SAY_H

#include <cstdarg>
#include <string>

namespace mpc::sim {

/// A text as printf makes it.
[[gnu::format(printf, 1, 0)]] std::string makeText(const char *format, va_list arguments);
/// Writes it to stderr, too, as a line, "mpc-sim: …".
[[gnu::format(printf, 1, 0)]] std::string sayText(const char *format, va_list arguments);

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_LIBRARY_SAY_H
