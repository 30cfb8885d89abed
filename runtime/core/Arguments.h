//===- Arguments.h - what a command line must not have ---------------------------------------===//

#ifndef MPC_RUNTIME_CORE_ARGUMENTS_H
#define MPC_RUNTIME_CORE_ARGUMENTS_H

#include <string>

namespace mpc {

/// The first argument `--name=` without a value (an unset variable of a script), or nothing. CLI11
/// would take the next argument for the value.
inline std::string argumentWithoutValue(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument.rfind("--", 0) == 0 && argument.size() > 3 &&
        argument.find('=') == argument.size() - 1)
      return argument;
  }
  return "";
}

} // namespace mpc

#endif // MPC_RUNTIME_CORE_ARGUMENTS_H
