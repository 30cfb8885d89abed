//===- PackedCopy.h - a weight packed for the plain product -----------------------===//

#ifndef MPC_RUNTIME_CPU_PACKEDCOPY_H
#define MPC_RUNTIME_CPU_PACKEDCOPY_H

#include "runtime/cpu/Library.h"
#include "runtime/cpu/PlainProduct.h"

namespace mpc::cpu {

template <typename C> class PackedCopy : public WeightCopy {
public:
  PackedCopy(Library &library, std::shared_ptr<PanelSource<C>> source, int64_t batch, int64_t outer,
             int64_t k, int64_t width)
      : library(library), source(std::move(source)), batch(batch), outer(outer), k(k),
        width(width) {
    // Never empty: an address says that the operand is packed.
    size_t elements = size_t(packedElements(batch, outer, k, width)) + 1;
    memory = Memory(elements * sizeof(C), "a packed weight");
  }

protected:
  void make() override {
    packOperand(*source, batch, outer, k, width, reinterpret_cast<C *>(memory.data()),
                library.threads);
  }

private:
  Library &library;
  std::shared_ptr<PanelSource<C>> source;
  int64_t batch, outer, k, width;
};

/// The shared copy of `operand`, which `source` reads; `form` tells different sources of one
/// operand apart.
template <typename C>
std::shared_ptr<WeightCopy>
packedCopy(Library &library, const Operand &operand, const std::string &form, int64_t batch,
           int64_t outer, int64_t k, int64_t width, std::shared_ptr<PanelSource<C>> source) {
  std::string key = "packed:" + form + ":" + std::to_string(batch) + ":" + std::to_string(outer) +
                    ":" + std::to_string(k) + ":" + std::to_string(width);
  return library.weightCopy(operand, key, [&] {
    return std::make_shared<PackedCopy<C>>(library, source, batch, outer, k, width);
  });
}

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_PACKEDCOPY_H
