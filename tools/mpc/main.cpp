//===- main.cpp - mpc: an ONNX model in, a training program out -------------------------------===//

#include "compiler/driver/Driver.h"
#include <csignal>

int main(int argc, char **argv) {
  std::signal(SIGXFSZ, SIG_IGN); // a file beyond `ulimit -f` is an error with a message
  return mpc::driverMain(argc, argv);
}
