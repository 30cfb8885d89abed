//===- Trainer.cpp - a compiled program's trainer ------------------------------------===//

#include "runtime/train/Trainer.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include <new>

using namespace mpc;

static std::unique_ptr<Device> makeDevice(const Program &program, const std::string &device,
                                          int threads) {
  if (device == "sim")
    throw Error("--device sim runs GPU kernels on the simulator: this program was compiled for the "
                "CPU, which is device 0");
  if (!device.empty() && device != "cpu" && device != "0")
    throw Error("--device " + quote(device) +
                ": this program was compiled for the CPU "
                "(--target=cpu), which is device 0");
  return makeCpuDevice(program, threads);
}

int mpc::trainerMain(int argc, char **argv, const MpcProgram &raw) {
  try {
    Program program = Program::load(raw);
    return runTrainer(argc, argv, program, makeDevice);
  } catch (const std::bad_alloc &) {
    fprintf(stderr, "error: out of memory\n");
  } catch (const std::exception &error) {
    fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
