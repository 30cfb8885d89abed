//===- Trainer.cpp - a compiled program's trainer ------------------------------------===//

#include "runtime/train/Trainer.h"
#include "runtime/core/Error.h"
#include <new>

using namespace mpc;

int mpc::trainerMain(int argc, char **argv, const MpcProgram &raw) {
  try {
    Program program = Program::load(raw);
    return runTrainer(argc, argv, program, *raw.make_device);
  } catch (const std::bad_alloc &) {
    fprintf(stderr, "error: out of memory\n");
  } catch (const std::exception &error) {
    fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
