//===- Library.h - library commands, ready to run ---------------------------------===//
//
// A matmul or convolution of the program becomes one object at start: the primitive, its
// memory objects and its place in the scratch are all made there, so that run() only runs.
// Each command is executed in one of three ways:
//   native   oneDNN on the operands as they are;
//   widened  oneDNN in f32 on widened operands, the result rounded once;
//   plain    our own packed product (PlainProduct.h), which widens while it packs.
// docs/cpu-library.md has the measurements behind the choice.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CPU_LIBRARY_H
#define MPC_RUNTIME_CPU_LIBRARY_H

#include "runtime/core/Program.h"
#include "runtime/cpu/Memory.h"
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

namespace mpc::cpu {

class LibraryCommand {
public:
  virtual ~LibraryCommand() = default;
  virtual void run() = 0;
  virtual std::string describe() const = 0; ///< the implementation, without the command's name
  /// Scratch is shared by all commands: its contents last for one run(). 64-byte aligned.
  virtual size_t scratchBytes() const = 0;
  virtual void bind(std::byte *scratch) = 0;
};

/// A weight in the form that a command wants; made again at the first use after weights changed.
class WeightCopy {
public:
  virtual ~WeightCopy() = default;
  /// `version` is the library's; 0 for an operand that is not a weight: made anew each time.
  void *current(uint64_t version) {
    if (version != made || version == 0) {
      make();
      made = version;
    }
    return memory.data();
  }
  size_t bytes() const { return memory.bytes() + temporary.bytes(); }

protected:
  virtual void make() = 0;
  Memory memory, temporary;

private:
  uint64_t made = 0;
};

enum class Path { automatic, native, widened, plain };

struct Library {
  Library(int threads, const std::array<std::byte *, kRegionCount> &regions);

  std::byte *at(const Buffer &buffer) const {
    return regions[static_cast<size_t>(buffer.region)] + buffer.offset;
  }
  /// Version to ask a copy of this operand for.
  uint64_t versionOf(const Operand &operand) const {
    return operand.is_weight ? weights_version : 0;
  }
  /// Shares copies of weights: `key` describes the form, `create` makes the copy if there is none
  /// yet.
  std::shared_ptr<WeightCopy>
  weightCopy(const Operand &operand, const std::string &key,
             const std::function<std::shared_ptr<WeightCopy>()> &create);
  uint64_t copyBytes() const; ///< memory of all copies

  int threads;
  std::array<std::byte *, kRegionCount> regions;
  dnnl::engine engine;
  dnnl::stream stream;
  uint64_t weights_version = 1;
  Path path =
      Path::automatic; ///< tests and measurements force one; automatic where it is not available

private:
  std::map<std::string, std::shared_ptr<WeightCopy>> copies;
};

std::unique_ptr<LibraryCommand> makeLibraryCommand(Library &library, const Command &command);

// By kind and path; null where oneDNN has nothing (or only its reference loops) for it.
std::unique_ptr<LibraryCommand> makeDnnlMatmul(Library &library, const Command &c, bool widened);
std::unique_ptr<LibraryCommand> makePlainMatmul(Library &library, const Command &c);
std::unique_ptr<LibraryCommand> makeDnnlConvolution(Library &library, const Command &c,
                                                    bool widened);
std::unique_ptr<LibraryCommand> makePlainConvolution(Library &library, const Command &c);

/// Channels last, and every group one channel and one feature.
bool isDepthwise(const Command &c);
std::unique_ptr<LibraryCommand> makeDepthwiseConvolution(Library &library, const Command &c);

/// Multiplications of the command.
double multiplications(const Command &command);

inline size_t alignedBytes(size_t bytes) { return (bytes + 63) / 64 * 64; }
inline bool isHalf(ElementType type) {
  return type == ElementType::f16 || type == ElementType::bf16;
}

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_LIBRARY_H
