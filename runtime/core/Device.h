//===- Device.h - memory and execution of a program ------------------------------===//
//
// The training loop knows only this interface: runtime/cpu implements it for the CPU, runtime/cuda
// for NVIDIA's GPUs.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CORE_DEVICE_H
#define MPC_RUNTIME_CORE_DEVICE_H

#include "runtime/core/Program.h"
#include "runtime/core/Tuned.h"
#include <memory>

namespace mpc {

class Device {
public:
  virtual ~Device() = default;

  /// Copies tensor.bytes() bytes of the tensor, as it is laid out for the program, from or to
  /// memory of the caller. What was run so far is done before.
  virtual void read(const TensorInfo &tensor, void *to) = 0;
  virtual void write(const TensorInfo &tensor, const void *from) = 0;
  /// Remembers the program's few numbers (isStatistic()) as they are behind everything that was run
  /// so far, and waits for none of it. readMarked() waits; a mark is kept until it is released.
  /// Where isAsynchronous() is false there is only the present, mark 0.
  virtual uint64_t mark() { return 0; }
  virtual void readMarked(uint64_t mark, const TensorInfo &tensor, void *to) { read(tensor, to); }
  virtual void release(uint64_t mark) {}
  /// True where commands run while the host goes on, so that whoever reads at once makes it wait.
  virtual bool isAsynchronous() const { return false; }

  /// Fills the region with zeros; allocates it where that has not happened (accumulators).
  virtual void clear(Region region) = 0;

  /// Runs the commands of an entry point in order. No allocation of ours happens here. `name` must
  /// exist.
  virtual void run(const std::string &entry) = 0;
  /// Runs several entry points, one after the other: on a GPU by one call of its driver.
  struct EntryList {
    std::string name; ///< of the list
    std::vector<std::string> entries;
  };
  virtual void run(const EntryList &list) {
    for (const std::string &entry : list.entries)
      run(entry);
  }
  /// Makes ready what runs of the list need, where that takes time or memory, so that both are
  /// spent before the first run. A run that is not announced does it itself.
  virtual void prepare(const EntryList &list) {}

  /// What was found fastest in an earlier run, and is to be used again where it holds. Before
  /// anything that has products or convolutions is prepared or run.
  virtual void useTuned(const TunedChoices &choices) {}
  /// From now on products and convolutions of which nothing is known yet are timed when they are
  /// prepared, and the fastest way is kept.
  virtual void tune() {}
  /// Adds what was found fastest so far, useTuned()'s choices included.
  virtual void addTuned(TunedChoices &to) const {}
  /// What came of useTuned() and tune(), e.g. "tuned 12 products in 1.4 s: …". Empty without them.
  virtual std::string describeTuning() const { return ""; }

  /// Parameters were written from outside: half copies and reordered weights are out of date. Runs
  /// `refresh` where the program has it.
  virtual void weightsChanged() = 0;

  virtual uint64_t memoryBytes() const = 0; ///< all regions and library scratch
  virtual std::string describe() const = 0; ///< e.g. "CPU, 2 threads, AVX-512 BF16"
  /// One line per library command: how it is executed ("brgemm:avx512_core_bf16", "widened to f32",
  /// "plain loops").
  virtual std::vector<std::string> describeCommands(const std::string &entry) const = 0;
};

/// Allocates states, inputs, arena, gradients, outputs; loads constants; makes every library
/// primitive. Parameters and statistics get their initial values where the program carries them.
/// `threads` ≤ 0: all cores this process may use. Throws Error (out of memory, CPU feature
/// missing).
std::unique_ptr<Device> makeCpuDevice(const Program &program, int threads);

} // namespace mpc

#endif // MPC_RUNTIME_CORE_DEVICE_H
