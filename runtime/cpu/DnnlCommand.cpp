//===- DnnlCommand.cpp - a oneDNN primitive with its operands ---------------------===//
//
// Memory objects are made once. A run sets the handles of copies that may have moved on,
// converts what has to be converted, and calls the C interface with a prepared list of
// arguments: the C++ one would build a list per call.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/DnnlCommand.h"
#include "runtime/core/Error.h"
#include "runtime/cpu/Widen.h"
#include "runtime/data/Array.h"

using namespace mpc;
using namespace mpc::cpu;
using dnnl::memory;

memory::data_type mpc::cpu::dnnlType(ElementType type) {
  switch (type) {
  case ElementType::bf16:
    return memory::data_type::bf16;
  case ElementType::f16:
    return memory::data_type::f16;
  case ElementType::f64:
    return memory::data_type::f64;
  default:
    return memory::data_type::f32;
  }
}

memory::dims mpc::cpu::rowMajor(const memory::dims &dims) {
  memory::dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(dims[i], 1);
  return strides;
}

bool mpc::cpu::isReference(const std::string &implementation) {
  return implementation.find("ref") != std::string::npos;
}

DnnlCommand::DnnlCommand(Library &library, const dnnl::primitive &primitive,
                         const memory::desc &scratchpad, const std::string &description)
    : library(library), primitive(primitive), description(description) {
  if (scratchpad.get_size())
    addScratch(DNNL_ARG_SCRATCHPAD, scratchpad);
}

size_t DnnlCommand::add(int argument, const memory::desc &desc, void *data) {
  arguments.push_back({memory(desc, library.engine, data)});
  call.push_back({argument, arguments.back().memory.get()});
  return arguments.size() - 1;
}

size_t DnnlCommand::addScratch(int argument, const memory::desc &desc) {
  size_t index = add(argument, desc, nullptr);
  arguments[index].in_scratch = true;
  arguments[index].scratch_offset = scratch_bytes;
  scratch_bytes += alignedBytes(desc.get_size());
  return index;
}

void DnnlCommand::addInput(const Slot &s) {
  void *data = library.at(s.operand.buffer);
  bool widens = s.plain.get_data_type() != dnnlType(s.operand.type);
  bool reorders = s.plain != s.wanted;
  if (!widens && !reorders) {
    add(s.argument, s.wanted, data);
    return;
  }
  if (widens && !reorders && !s.operand.is_weight) {
    size_t index = addScratch(s.argument, s.wanted);
    widened.push_back({s.operand.type, data, elementCount(s.operand.shape), index});
    return;
  }
  auto copy = makeReorderedCopy(library, s.operand, s.plain, s.wanted);
  copied.push_back({copy, s.operand, add(s.argument, s.wanted, nullptr)});
}

void DnnlCommand::setOutput(const Slot &s) {
  result = s.operand;
  result_count = elementCount(s.operand.shape);
  result_narrowed = s.plain.get_data_type() != dnnlType(s.operand.type);
  bool reorders = s.plain != s.wanted;
  void *data = library.at(s.operand.buffer);
  if (!result_narrowed && !reorders) {
    add(s.argument, s.wanted, data);
    return;
  }
  result_argument = addScratch(s.argument, s.wanted);
  if (reorders) {
    if (result_narrowed)
      throw Error("a half result in a layout of the library's own");
    plain_result = memory(s.plain, library.engine, data);
    reorder_back = dnnl::reorder(arguments[result_argument].memory, plain_result);
  }
}

void DnnlCommand::bind(std::byte *scratch) {
  for (Argument &argument : arguments)
    if (argument.in_scratch)
      argument.memory.set_data_handle(scratch + argument.scratch_offset);
}

void DnnlCommand::run() {
  for (const Widened &w : widened)
    widen(w.type, w.from, static_cast<float *>(arguments[w.argument].memory.get_data_handle()),
          w.count, library.threads);
  for (const Copied &c : copied)
    arguments[c.argument].memory.set_data_handle(c.copy->current(library.versionOf(c.operand)));
  dnnl_status_t status =
      dnnl_primitive_execute(primitive.get(), library.stream.get(), int(call.size()), call.data());
  if (status != dnnl_success)
    throw Error("the library oneDNN failed in " + description + " (status " +
                std::to_string(int(status)) + ")");
  if (reorder_back)
    reorder_back.execute(library.stream, arguments[result_argument].memory, plain_result);
  if (result_narrowed)
    narrow(result.type, static_cast<float *>(arguments[result_argument].memory.get_data_handle()),
           library.at(result.buffer), result_count, library.threads);
}
