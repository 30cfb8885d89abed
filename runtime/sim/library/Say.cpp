//===- Say.cpp - what a simulated library says ----------------------------------------===//

#include "runtime/sim/library/Say.h"
#include <cstdio>

namespace mpc::sim {

std::string makeText(const char *format, va_list arguments) {
  char text[1024];
  std::vsnprintf(text, sizeof text, format, arguments);
  return text;
}

std::string sayText(const char *format, va_list arguments) {
  std::string text = makeText(format, arguments);
  std::fprintf(stderr, "mpc-sim: %s\n", text.c_str());
  return text;
}

} // namespace mpc::sim
