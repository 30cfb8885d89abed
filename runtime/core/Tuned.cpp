//===- Tuned.cpp - what was found fastest, and where -------------------------------===//

#include "runtime/core/Tuned.h"
#include "runtime/data/File.h"

using namespace mpc;

// The names may be a checkpoint's.
std::string TunedFor::text() const {
  auto number = [](int64_t value) { return std::to_string(value); };
  return printable(gpu) + " with a driver of CUDA " + number(driver / 1000) + "." +
         number(driver % 1000 / 10) + " and " + printable(library) + " " + number(version / 10000) +
         "." + number(version % 10000 / 100) + "." + number(version % 100);
}
