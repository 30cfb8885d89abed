//===- Main.cpp - the trainer's main function ----------------------------------------===//
//
// In the library as an object of its own: a program that embeds a compiled model brings its own
// main, and this one is then not linked.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/Threads.h"
#include "runtime/train/Trainer.h"

int main(int argc, char **argv) {
  mpc::cpu::restartWithShortWaits(argv);
  return mpc::trainerMain(argc, argv, mpc_program);
}
