//===- Signals.cpp - stopping on request ------------------------------------------------------===//
//
// A handler only sets a flag; the loop looks at it after each optimizer step, so that a
// checkpoint never falls inside one.
//
//===----------------------------------------------------------------------------===//

#include "runtime/train/Signals.h"
#include <atomic>
#include <csignal>

using namespace mpc;

static volatile std::sig_atomic_t signalReceived = 0;
static struct sigaction previousInterrupt, previousTerminate;

static void remember(int number) { signalReceived = number; }

SignalGuard::SignalGuard() {
  signalReceived = 0;
  struct sigaction action{};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previousInterrupt);
  sigaction(SIGTERM, &action, &previousTerminate);
}

SignalGuard::~SignalGuard() {
  sigaction(SIGINT, &previousInterrupt, nullptr);
  sigaction(SIGTERM, &previousTerminate, nullptr);
}

int SignalGuard::received() { return signalReceived; }
