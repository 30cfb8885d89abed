//===- Arguments.h - what is wrong with a command line, and how it is said -------------------===//

#ifndef MPC_RUNTIME_CORE_ARGUMENTS_H
#define MPC_RUNTIME_CORE_ARGUMENTS_H

#include <CLI/CLI.hpp>
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

/// For CLI::App::failure_message: a mistake reads as all other errors do. `program` is what stands
/// before "error: ".
inline auto usageMessage(const std::string &program) {
  return [program](const CLI::App *app, const CLI::Error &error) {
    std::string what = error.what();
    if (error.get_exit_code() == int(CLI::ExitCodes::ExtrasError)) { // CLI11 names the last first
      what = "not expected:";
      for (const std::string &argument : app->remaining(/*recurse=*/true))
        what += " " + argument;
    }
    return program + "error: " + what + "\nRun with --help for the options.\n";
  };
}

} // namespace mpc

#endif // MPC_RUNTIME_CORE_ARGUMENTS_H
