//===- Profile.h - where the time of a run goes -----------------------------------===//

#ifndef MPC_RUNTIME_CPU_PROFILE_H
#define MPC_RUNTIME_CPU_PROFILE_H

#include "runtime/core/Program.h"
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>

namespace mpc::cpu {

/// Times of every command, written as a table (docs/trainer.md, "Profile") when the device goes.
class Profile {
public:
  /// One that writes to the file which the environment variable MPC_PROFILE names; null where it is
  /// not set.
  static std::unique_ptr<Profile> fromEnvironment(const Program &program);

  /// Counters of one command of an entry point.
  struct Times {
    uint64_t calls = 0;
    double total = 0, least = 0; ///< seconds
    void add(double seconds) {
      least = calls++ == 0 ? seconds : std::min(least, seconds);
      total += seconds;
    }
  };
  /// One per command; made at the first call.
  std::vector<Times> &of(const std::string &entry) {
    std::vector<Times> &list = times[entry];
    list.resize(program.entries.at(entry).commands.size());
    return list;
  }
  /// `describe(entry, index)`: how a command is executed.
  void write(const std::function<std::string(const std::string &, size_t)> &describe) const;

private:
  Profile(const Program &program, std::string path) : program(program), path(std::move(path)) {}
  std::string table(const std::string &entry, const std::vector<Times> &list,
                    const std::function<std::string(size_t)> &describe) const;

  const Program &program;
  std::string path;
  std::map<std::string, std::vector<Times>> times;
};

/// Seconds since the object was made or asked last.
class Lap {
public:
  double operator()() {
    auto now = std::chrono::steady_clock::now();
    double seconds = std::chrono::duration<double>(now - last).count();
    last = now;
    return seconds;
  }

private:
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
};

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_PROFILE_H
