//===- CommandLibrary.h - a library that executes some of a program's commands -----------===//
//
// Every product, convolution and attention has a generated kernel. A library of NVIDIA's takes
// those that it can compute as exactly: operands as they are, sums in f32, one rounding at the end,
// the same bits in every run. It has one or more ways to execute a command; equal commands are one
// problem, which it is asked about once, before an entry point is recorded. The first exact way
// that it proposes is taken, unless somebody knows a better one (Tuning.h).
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_COMMANDLIBRARY_H
#define MPC_RUNTIME_CUDA_COMMANDLIBRARY_H

#include "runtime/core/Program.h"
#include "runtime/core/Tuned.h"
#include <algorithm>
#include <cuda.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace mpc::cuda {

/// In the place of a way's text: the command's own kernel.
inline constexpr char kGenerated[] = "generated kernel";

/// What its result overwrites is not needed by a run to come, so that it may be executed before:
/// anything but a state.
inline bool mayBeTried(const Command &command) {
  auto isState = [](const Operand &each) { return each.buffer.region == Region::states; };
  return isAttention(command.kind)
             ? std::none_of(command.results.begin(), command.results.end(), isState)
             : !isState(command.result);
}

/// What a command is, for texts: "product", "convolution" or "attention operation".
const char *workName(const Command &command);

class CommandLibrary {
public:
  /// A way to execute a problem's commands.
  struct Way {
    std::string text; ///< tells it from the others, in another process, too
    uint64_t workspaceBytes = 0;
    virtual ~Way() = default;
  };
  /// Equal commands.
  struct Problem {
    std::string key;                         ///< what they compute
    std::vector<const Command *> commands;   ///< in the order in which they were prepared
    std::string wanted;                      ///< a way's text, or kGenerated; empty: any will do
    std::vector<std::shared_ptr<Way>> found; ///< exact ones: the wanted one or the first proposed
                                             ///< one comes first, and is taken. None: the kernel
    bool isFound() const;                    ///< what was wanted
    const char *work() const { return workName(*commands.front()); }
  };

  virtual ~CommandLibrary() = default;

  virtual const char *title() const = 0; ///< "cuBLASLt"
  virtual int64_t version() const = 0;   ///< TunedFor::version
  std::string name() const;              ///< "cuBLASLt 12.9"

  /// Finds ways for those of the commands that the library computes exactly, before they run first.
  /// `ways`: those that are wanted. `all`: of the other problems every way is to be found. Returns
  /// the problems that are new. Throws Error where memory or the GPU fails.
  std::vector<Problem *> prepare(const std::vector<const Command *> &commands,
                                 const TunedWays &ways = {}, bool all = false);
  /// The command, or all of the problem's, are executed like this from now on; null: by the kernel.
  void choose(const Command &command, const std::shared_ptr<Way> &way);
  void settle(Problem &problem, const std::shared_ptr<Way> &way);

  bool executes(const Command &command) const { return chosen.count(&command) != 0; }
  /// What the commands so far prepared need beside their operands; to be given before they run.
  /// Work of one stream may share it.
  uint64_t workspaceBytes() const;
  void use(CUdeviceptr memory) { workspace = memory; }

  /// Gives a command to the stream, with addresses of Command::buffers; a gradient of a filter is
  /// left in the scratch where the command has a function that takes it from there. False where it
  /// is left to the generated kernel, also for the times to come. Throws Error where the library
  /// fails.
  bool run(const Command &command, const std::vector<CUdeviceptr> &addresses);

protected:
  /// Equal for equal commands; empty for what the library cannot be asked.
  virtual std::string keyOf(const Command &command) const = 0;
  /// Sets `found` of each: the wanted way where it is there, else the first one, or all.
  virtual void find(const std::vector<Problem *> &problems, bool all) = 0;
  /// False where the library declines. Throws Error where it fails.
  virtual bool execute(const Way &way, const Command &command,
                       const std::vector<CUdeviceptr> &addresses) = 0;

  /// Ends all ways. Before what they were made with does: in the destructor of a library.
  void forget();

  CUdeviceptr workspace = 0;

private:
  std::set<const Command *> asked;
  std::map<std::string, Problem> problems; ///< by key
  std::map<const Command *, std::shared_ptr<Way>> chosen;
};

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_COMMANDLIBRARY_H
