//===- Main.cpp - the trainer's main function ----------------------------------------===//
//
// In the library as an object of its own: a program that embeds a compiled model brings its own
// main, and this one is then not linked.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/Threads.h"
#include "runtime/data/File.h"
#include "runtime/train/Trainer.h"
#include <csignal>

int main(int argc, char **argv) {
  mpc::cpu::restartWithShortWaits(argv);
  mpc::exitWhereMappedFilesShrink();
  std::signal(SIGXFSZ, SIG_IGN); // a file beyond `ulimit -f` is an error with a message
  return mpc::trainerMain(argc, argv, mpc_program);
}
