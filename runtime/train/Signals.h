//===- Signals.h - stopping on request ------------------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_SIGNALS_H
#define MPC_RUNTIME_TRAIN_SIGNALS_H

namespace mpc {

/// While alive, SIGINT and SIGTERM are remembered instead of ending the process. A second one ends
/// it, as usual.
class SignalGuard {
public:
  SignalGuard();
  ~SignalGuard();
  /// The signal that came, or 0.
  static int received();
};

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_SIGNALS_H
