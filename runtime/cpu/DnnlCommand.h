//===- DnnlCommand.h - a oneDNN primitive with its operands -----------------------===//

#ifndef MPC_RUNTIME_CPU_DNNLCOMMAND_H
#define MPC_RUNTIME_CPU_DNNLCOMMAND_H

#include "runtime/cpu/Library.h"

namespace mpc::cpu {

dnnl::memory::data_type dnnlType(ElementType type);

/// Row-major strides of `dims`.
dnnl::memory::dims rowMajor(const dnnl::memory::dims &dims);

/// oneDNN's reference loops are a hundred times slower than anything else.
bool isReference(const std::string &implementation);

/// Runs a primitive whose operands may have to be widened or reordered before, and its result
/// after.
class DnnlCommand : public LibraryCommand {
public:
  /// An operand of the primitive: `plain` is how the program stores it, in the type that the
  /// primitive computes with; `wanted` how the primitive wants it.
  struct Slot {
    int argument;
    const Operand &operand;
    dnnl::memory::desc plain, wanted;
  };

  DnnlCommand(Library &library, const dnnl::primitive &primitive,
              const dnnl::memory::desc &scratchpad, const std::string &description);
  void addInput(const Slot &slot);
  void setOutput(const Slot &slot);

  void run() override;
  std::string describe() const override { return description; }
  size_t scratchBytes() const override { return scratch_bytes; }
  void bind(std::byte *scratch) override;

private:
  struct Argument {
    dnnl::memory memory;
    bool in_scratch = false;
    size_t scratch_offset = 0;
  };
  struct Widened { // an operand that is widened into scratch at each run
    ElementType type;
    const void *from;
    int64_t count;
    size_t argument;
  };
  struct Copied { // an operand that is read from a copy
    std::shared_ptr<WeightCopy> copy;
    Operand operand;
    size_t argument;
  };

  size_t add(int argument, const dnnl::memory::desc &desc, void *data);
  size_t addScratch(int argument, const dnnl::memory::desc &desc);

  Library &library;
  dnnl::primitive primitive;
  std::string description;
  std::vector<Argument> arguments;
  std::vector<dnnl_exec_arg_t> call;
  std::vector<Widened> widened;
  std::vector<Copied> copied;
  size_t scratch_bytes = 0;

  // The result: reordered to the plain layout, then rounded, where needed.
  Operand result;
  int64_t result_count = 0;
  size_t result_argument = 0;
  bool result_narrowed = false;
  dnnl::reorder reorder_back;
  dnnl::memory plain_result;
};

/// A copy in the layout `wanted` (f32 if `wanted` is, widened first where the operand is half).
std::shared_ptr<WeightCopy> makeReorderedCopy(Library &library, const Operand &operand,
                                              const dnnl::memory::desc &plain,
                                              const dnnl::memory::desc &wanted);

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_DNNLCOMMAND_H
