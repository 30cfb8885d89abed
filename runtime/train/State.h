//===- State.h - the tensors that the host and a program share ------------------------------===//
//
// The loop reads and writes the same few scalars thousands of times a second: they are looked
// up once, and their type (float; double under fp64) is nobody else's concern.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_STATE_H
#define MPC_RUNTIME_TRAIN_STATE_H

#include "runtime/core/Device.h"
#include "runtime/train/Hyperparameters.h"

namespace mpc {

/// One tensor by role; absent ones read as a given value and ignore writes.
class Scalar {
public:
  Scalar(const Program &program, Device &device, Role role);
  bool present() const { return tensor != nullptr; }
  /// The value at a mark of the device (Device::mark()); 0: now.
  double real(double absent = 0, uint64_t mark = 0) const;
  int64_t integer(int64_t absent = 0, uint64_t mark = 0) const;
  void setReal(double value);
  void setInteger(int64_t value);

private:
  void read(uint64_t mark, void *to) const;

  const TensorInfo *tensor = nullptr;
  Device *device;
};

/// Writes what does not change during a run: hyper and weight_decay. Throws UsageError for a
/// no_decay expression that is none.
void writeHyperparameters(const Program &program, Device &device, const Hyperparameters &hyper);

/// working_statistic := statistic, by name.
void resetWorkingStatistics(const Program &program, Device &device);

/// The loss scale that a fresh run starts with.
double initialLossScale(const Program &program, const Hyperparameters &hyper);

/// True where `pattern` (POSIX extended, unanchored) occurs in `text`; the pattern is compiled on
/// construction. Throws UsageError naming `option` for one that is no expression.
class Regex {
public:
  Regex(const std::string &option, const std::string &pattern);
  ~Regex();
  Regex(const Regex &) = delete;
  Regex &operator=(const Regex &) = delete;
  bool matches(const std::string &text) const;

private:
  void *compiled;
};

/// Refuses a command whose entry point the program was compiled without. Throws Error.
void requireEntry(const Program &program, const std::string &entry, const std::string &command);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_STATE_H
