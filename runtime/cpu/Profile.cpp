//===- Profile.cpp - where the time of a run goes ---------------------------------===//
//
// Per entry point one table, the dearest command first. On a machine that others use too, the
// least time of a command says more than its mean: rates are computed from it.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/Profile.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include <cstdio>
#include <cstdlib>
#include <numeric>

using namespace mpc;
using namespace mpc::cpu;

std::unique_ptr<Profile> Profile::fromEnvironment(const Program &program) {
  const char *path = std::getenv("MPC_PROFILE");
  if (!path || !*path)
    return nullptr;
  return std::unique_ptr<Profile>(new Profile(program, path));
}

void Profile::write(const std::function<std::string(const std::string &, size_t)> &describe) const {
  std::string text;
  for (const auto &[entry, list] : times)
    text += table(entry, list, [&, &entry = entry](size_t i) { return describe(entry, i); });
  try {
    OutputFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const Error &error) { // the run itself is whole
    fprintf(stderr, "warning: MPC_PROFILE: %s\n", error.what());
  }
}

std::string Profile::table(const std::string &entry, const std::vector<Times> &list,
                           const std::function<std::string(size_t)> &describe) const {
  const std::vector<Command> &commands = program.entries.at(entry).commands;
  double total = 0, least = 0;
  uint64_t calls = 0;
  for (const Times &t : list) {
    total += t.total;
    least += t.least;
    calls = std::max(calls, t.calls);
  }
  std::string text;
  auto add = [&text](const char *format, auto... values) {
    char line[256];
    snprintf(line, sizeof line, format, values...);
    text += line;
  };
  text += entry;
  add(": %zu commands, %llu runs, mean %.4f ms, least %.4f ms\n", list.size(),
      static_cast<unsigned long long>(calls), calls ? 1e3 * total / double(calls) : 0, 1e3 * least);
  add("  %9s %9s %6s %7s %9s  %s\n", "mean ms", "least ms", "share", "GB/s", "GFLOP/s", "command");
  std::vector<size_t> order(list.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&list](size_t a, size_t b) { return list[a].least > list[b].least; });
  for (size_t i : order) {
    const Times &t = list[i];
    if (!t.calls)
      continue;
    const Command &c = commands[i];
    double seconds = std::max(t.least, 1e-9);
    add("  %9.4f %9.4f %5.1f%% %7.1f %9.1f  #%zu ", 1e3 * t.total / double(t.calls), 1e3 * t.least,
        least > 0 ? 100 * t.least / least : 0, 1e-9 * double(c.bytes) / seconds,
        1e-9 * double(c.flops) / seconds, i);
    text += describe(i) + " [" + c.node + "]\n";
  }
  return text;
}
