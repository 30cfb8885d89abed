//===- main.cpp - mpc: an ONNX model in, a training program out -------------------------------===//

#include "compiler/driver/Driver.h"

int main(int argc, char **argv) { return mpc::driverMain(argc, argv); }
