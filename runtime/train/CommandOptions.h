//===- CommandOptions.h - options with exact numbers and shown defaults --------------===//

#ifndef MPC_RUNTIME_TRAIN_COMMANDOPTIONS_H
#define MPC_RUNTIME_TRAIN_COMMANDOPTIONS_H

#include "runtime/core/Program.h"
#include "runtime/train/Train.h"
#include <CLI/CLI.hpp>

namespace mpc {

/// A double, read by strtod: CLI11 itself goes through long double, which rounds twice.
CLI::Option *addReal(CLI::App &app, const std::string &name, double &value,
                     const std::string &description, double low, double high);
CLI::Option *addInteger(CLI::App &app, const std::string &name, int64_t &value,
                        const std::string &description, int64_t low, int64_t high);
CLI::Option *addText(CLI::App &app, const std::string &name, std::string &value,
                     const std::string &description, const std::string &type);

/// Throws UsageError where the program has no dynamic loss scale for the option to steer.
void requireDynamicScale(const Program &program, const char *option);

/// The options of `train`. `finish` checks what only holds together and fills `options`.
class TrainCommand {
public:
  TrainCommand(CLI::App &app, const Program &program);
  /// Throws UsageError.
  TrainOptions finish();

private:
  void checkOptimizer() const;
  void checkSchedule() const;
  void checkFolder() const;
  bool given(const char *name) const { return options.given.count(name) != 0; }

  CLI::App &app;
  const Program &program;
  TrainOptions options;
  std::string data, valid;
  bool noShuffle = false;
  int64_t seed = 0;
};

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_COMMANDOPTIONS_H
