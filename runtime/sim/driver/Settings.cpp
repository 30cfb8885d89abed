//===- Settings.cpp - the simulated machine, from the environment -----------------------===//

#include "runtime/sim/driver/Settings.h"
#include "runtime/sim/driver/Errors.h"
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>

namespace mpc::sim {

namespace {
constexpr std::string_view kFaults[] = {"alloc",
                                        "launch",
                                        "sticky",
                                        "copy",
                                        "load",
                                        "info",
                                        "blas",
                                        "blas-unsupported",
                                        "dnn",
                                        "dnn-start",
                                        "dnn-unsupported",
                                        "plan",
                                        "plan-memory"}; // in Fault's order
static_assert(std::size(kFaults) == kFaultKinds);

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

/// "8.0" is 80, "12.0" is 120.
std::optional<uint64_t> capability(std::string_view text) {
  size_t point = text.find('.');
  if (point == std::string_view::npos || text.size() - point != 2)
    return std::nullopt;
  auto major = number(text.substr(0, point)), minor = number(text.substr(point + 1));
  if (!major || !minor || *major == 0 || *major > 99)
    return std::nullopt;
  return *major * 10 + *minor;
}

bool addFault(Settings &settings, std::string_view text) {
  size_t colon = text.find(':');
  if (colon == std::string_view::npos)
    return false;
  auto call = number(text.substr(colon + 1));
  for (size_t kind = 0; kind < std::size(kFaults); ++kind)
    if (call && *call > 0 && text.substr(0, colon) == kFaults[kind]) {
      settings.faults[kind].insert(*call);
      return true;
    }
  return false;
}

/// A name, and microseconds behind the last colon.
bool addTime(Settings &settings, std::string_view text) {
  size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0)
    return false;
  std::string_view digits = text.substr(colon + 1);
  double microseconds = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), microseconds);
  if (error != std::errc() || end != digits.data() + digits.size() || !(microseconds > 0))
    return false;
  settings.times[std::string(text.substr(0, colon))] = microseconds;
  return true;
}

/// Adds each part of a list with commas; false where one cannot be read.
bool addAll(Settings &settings, std::string_view text, bool (*add)(Settings &, std::string_view)) {
  for (;;) {
    size_t comma = text.find(',');
    if (!add(settings, text.substr(0, comma)))
      return false;
    if (comma == std::string_view::npos)
      return true;
    text.remove_prefix(comma + 1);
  }
}

/// An unset variable leaves the value as it is.
template <typename T>
bool readNumber(const char *name, T &value, const char *what,
                std::optional<uint64_t> (*parse)(std::string_view) = number) {
  const char *text = std::getenv(name);
  if (!text)
    return true;
  auto parsed = parse(text);
  if (!parsed || *parsed > uint64_t(std::numeric_limits<T>::max())) {
    say("%s=%s is not %s", name, text, what);
    return false;
  }
  value = static_cast<T>(*parsed);
  return true;
}
} // namespace

bool readSettings(Settings &settings) {
  bool isRead = readNumber("MPC_SIM_CC", settings.capability, "a compute capability such as 8.0",
                           capability) &&
                readNumber("MPC_SIM_MEMORY", settings.memoryBytes, "a number of bytes") &&
                readNumber("MPC_SIM_DRIVER", settings.driverVersion, "a version such as 12090") &&
                readNumber("MPC_SIM_DEVICES", settings.devices, "a number of devices");
  if (!isRead)
    return false;
  if (const char *file = std::getenv("MPC_SIM_TRACE"))
    settings.trace = file;
  if (const char *name = std::getenv("MPC_SIM_NAME"))
    settings.name = name;
  if (const char *times = std::getenv("MPC_SIM_TIMES");
      times && !addAll(settings, times, addTime)) {
    say("MPC_SIM_TIMES=%s is not a list such as kernel:50,cublasLt-plain:2.5 of names and "
        "microseconds above 0",
        times);
    return false;
  }
  const char *faults = std::getenv("MPC_SIM_FAULT");
  if (!faults || addAll(settings, faults, addFault))
    return true;
  std::string kinds;
  for (std::string_view kind : kFaults)
    kinds.append(kinds.empty() ? "" : ", ").append(kind);
  say("MPC_SIM_FAULT=%s is not a list such as alloc:1,copy:3 of %s and the number of the call, "
      "from 1 on",
      faults, kinds.c_str());
  return false;
}

} // namespace mpc::sim
