//===- Error.h - how the runtime reports what the user can mend -----------------===//

#ifndef MPC_RUNTIME_CORE_ERROR_H
#define MPC_RUNTIME_CORE_ERROR_H

#include <stdexcept>
#include <string>

namespace mpc {

/// The input or the run failed: the message says what, where, why and what to do. main() prints it
/// and exits with 1.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Wrong usage of the command line: exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace mpc

#endif // MPC_RUNTIME_CORE_ERROR_H
