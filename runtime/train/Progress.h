//===- Progress.h - what a run shows on the console ----------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_PROGRESS_H
#define MPC_RUNTIME_TRAIN_PROGRESS_H

#include <chrono>
#include <cstdint>
#include <string>

namespace mpc {

/// One bar that is redrawn on a terminal, plain lines otherwise.
class Progress {
public:
  using Clock = std::chrono::steady_clock;
  struct Step {
    int64_t step, steps; ///< done, of the whole run
    int64_t epoch;       ///< from 1
    double loss, lr, scale;
    const char *skipped; ///< why the step was not applied; null: it was
  };

  /// `logEvery`: a line every so many steps where there is no terminal; 0: none. `scaled`: the
  /// loss scale is worth showing.
  Progress(int64_t logEvery, bool scaled);
  ~Progress();

  /// True if this step is to be shown: asked before anything is computed for it.
  bool wants(int64_t step) {
    return terminal ? Clock::now() >= nextRedraw : logEvery > 0 && step % logEvery == 0;
  }
  void begin(int64_t step);
  void show(const Step &step, int64_t samplesSoFar);
  /// A line that stays (an epoch's result).
  void line(const std::string &text);
  /// The same on the standard error, as mpc::warn.
  void warning(const std::string &text);

private:
  void eraseBar();

  bool terminal;
  int64_t logEvery;
  bool scaled;
  bool drawn = false;
  Clock::time_point start, nextRedraw, lastShown;
  int64_t firstStep = 0, lastSamples = 0;
};

/// "1h 02m", "3m 04s", "5.6s"
std::string durationText(double seconds);
/// Up to six significant digits.
std::string numberText(double value);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_PROGRESS_H
