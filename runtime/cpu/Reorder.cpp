//===- Reorder.cpp - weights in the layout that a primitive wants -----------------===//
//
// The forward product and the gradient product of one weight want different layouts, and a
// weight is used by several entry points; so copies are shared by weight and layout. They
// are remade at the first use after the optimizer, a refresh or a load changed the weights.
//
//===----------------------------------------------------------------------------===//

#include "runtime/core/Error.h"
#include "runtime/cpu/DnnlCommand.h"
#include "runtime/cpu/Threads.h"
#include "runtime/cpu/Widen.h"
#include <cstring>

using namespace mpc;
using namespace mpc::cpu;

Library::Library(int threads, const std::array<std::byte *, kRegionCount> &regions)
    : threads(threads), regions(regions), engine(dnnl::engine::kind::cpu, 0), stream(engine) {}

std::shared_ptr<WeightCopy>
Library::weightCopy(const Operand &operand, const std::string &key,
                    const std::function<std::shared_ptr<WeightCopy>()> &create) {
  // What is no weight is remade at each use, so its copies can be shared as well.
  std::string full = std::to_string(int(operand.buffer.region)) + ":" +
                     std::to_string(operand.buffer.offset) + ":" + elementTypeName(operand.type) +
                     (operand.is_weight ? ":w:" : ":") + key;
  for (int64_t dim : operand.shape)
    full.append(":").append(std::to_string(dim));
  std::shared_ptr<WeightCopy> &copy = copies[full];
  if (!copy)
    copy = create();
  return copy;
}

uint64_t Library::copyBytes() const {
  uint64_t bytes = 0;
  for (const auto &[key, copy] : copies)
    bytes += copy->bytes();
  return bytes;
}

namespace {

class ReorderedCopy : public WeightCopy {
public:
  ReorderedCopy(Library &library, const Operand &operand, const dnnl::memory::desc &plain,
                const dnnl::memory::desc &wanted)
      : library(library), operand(operand) {
    widens = plain.get_data_type() != dnnlType(operand.type);
    memory = Memory(wanted.get_size(), "a reordered weight");
    count = 1;
    for (int64_t dim : operand.shape)
      count *= dim;
    if (plain == wanted)
      return;
    if (widens)
      temporary = Memory(plain.get_size(), "a widened weight");
    from =
        dnnl::memory(plain, library.engine,
                     widens ? static_cast<void *>(temporary.data()) : library.at(operand.buffer));
    to = dnnl::memory(wanted, library.engine, memory.data());
    reorder = dnnl::reorder(from, to);
  }

protected:
  void make() override {
    const void *data = library.at(operand.buffer);
    if (widens)
      widen(operand.type, data,
            reinterpret_cast<float *>(reorder ? temporary.data() : memory.data()), count,
            library.threads);
    if (reorder)
      reorder.execute(library.stream, from, to);
  }

private:
  Library &library;
  Operand operand;
  int64_t count;
  bool widens;
  dnnl::memory from, to;
  dnnl::reorder reorder;
};

/// The whole description of a layout as text, to compare by.
std::string layoutKey(const dnnl::memory::desc &desc) {
  std::string key = std::to_string(int(desc.get_data_type()));
  auto append = [&](const dnnl::memory::dims &values) {
    key += "/";
    for (auto value : values)
      key.append(std::to_string(value)).append(",");
  };
  append(desc.get_dims());
  append(desc.get_padded_dims());
  append(desc.get_strides());
  append(desc.get_inner_blks());
  append(desc.get_inner_idxs());
  return key + std::to_string(desc.get_size());
}

} // namespace

std::shared_ptr<WeightCopy> mpc::cpu::makeReorderedCopy(Library &library, const Operand &operand,
                                                        const dnnl::memory::desc &plain,
                                                        const dnnl::memory::desc &wanted) {
  // A square weight read as it is and transposed has two copies of the same wanted layout.
  return library.weightCopy(
      operand, "reordered:" + layoutKey(plain) + ">" + layoutKey(wanted),
      [&] { return std::make_shared<ReorderedCopy>(library, operand, plain, wanted); });
}
