//===- Tuning.h - the fastest way to execute a library's command -------------------------===//
//
// A library's heuristic guesses. Where the user asks for it (train --tune), every exact way that
// the library proposes, and the generated kernel, are timed on the GPU before an entry point is
// recorded, and the fastest is kept. They add in different orders, so that the choice is part of a
// run: it goes into the checkpoint, and holds for the same GPU, driver and library.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_TUNING_H
#define MPC_RUNTIME_CUDA_TUNING_H

#include "runtime/cuda/CommandLibrary.h"
#include "runtime/cuda/Gpu.h"
#include <functional>

namespace mpc::cuda {

class Tuning {
public:
  Tuning(const Gpu &gpu, CUstream stream) : gpu(gpu), stream(stream) {}

  // Device::useTuned(), tune(), addTuned() and describeTuning().
  void use(const TunedChoices &given) { choices = given; }
  void enable() { isOn = true; }
  void addTo(TunedChoices &to) const;
  std::string text() const;

  /// Prepares the commands (CommandLibrary::prepare()) with the choices that are known.
  void prepare(CommandLibrary &library, const std::vector<const Command *> &commands);
  /// Times what prepare() left open; `issue` gives a command to the stream, to be executed as the
  /// library has it chosen. The workspace that the libraries have afterwards is no longer there.
  void time(const std::function<void(const Command &)> &issue);

private:
  struct Open {
    CommandLibrary *library;
    CommandLibrary::Problem *problem;
  };
  TunedFor whereOf(const CommandLibrary &library) const;
  void noteOthers(const CommandLibrary &library,
                  const std::vector<CommandLibrary::Problem *> &added);
  void noteLost(const CommandLibrary &library, const CommandLibrary::Problem &problem);
  void decide(const Open &open, const std::function<void(const Command &)> &issue);

  const Gpu &gpu;
  CUstream stream;
  bool isOn = false;
  TunedChoices choices;
  std::vector<Open> open;
  std::set<std::string> told; ///< of what noteOthers() has told, by Problem::work()
  bool hasToldLost = false;
  std::map<std::string, int64_t> timed, known; ///< problems, by Problem::work()
  int64_t others = 0, generated = 0;           ///< timed ones, not by the first way; by the kernel
  double seconds = 0;
};

/// The least time of what `issue` gives to the stream, in milliseconds, of several runs in a row.
double leastTime(const Gpu &gpu, CUstream stream, const std::function<void()> &issue);

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_TUNING_H
