//===- Convolution.cpp - convolutions and their gradients with oneDNN -------------===//
//
// Activations keep the program's layout; filters take the layout that the primitive asks
// for, through a shared copy. A filter gradient is computed in the primitive's layout and
// reordered to the plain one, in f32.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/ConvolutionShape.h"
#include "runtime/cpu/DnnlCommand.h"

using namespace mpc;
using namespace mpc::cpu;
using dnnl::memory;

namespace {

/// The descriptors of one convolution; spatial dimensions as many as the command has.
class Descriptors {
public:
  Descriptors(const Command &c, bool widened) : c(c), s(c), widened(widened) {
    spatial = c.strides.size();
    for (size_t d = 3 - spatial; d < 3; ++d) {
      strides.push_back(s.stride[d]);
      dilations.push_back(s.dilation[d] - 1);
      pad_begin.push_back(s.pad_begin[d]);
      pad_end.push_back(s.pad_end[d]);
    }
    input = activation(*s.input, s.in, s.groups * s.channels);
    output = activation(*s.output, s.out, s.groups * s.features);
    memory::dims dims = {s.features, s.channels};
    if (s.groups > 1)
      dims.insert(dims.begin(), s.groups);
    for (size_t d = 3 - spatial; d < 3; ++d)
      dims.push_back(s.kernel[d]);
    filter = memory::desc(dims, type(*s.filter), rowMajor(dims));
    filter_any = memory::desc(dims, type(*s.filter), memory::format_tag::any);
    if (c.bias.present)
      bias = memory::desc({s.groups * s.features}, type(c.bias), memory::dims{1});
  }

  bool supported() const {
    for (size_t d = 0; d < spatial; ++d)
      if (pad_begin[d] < 0 || pad_end[d] < 0)
        return false;
    return s.n > 0 && s.channels > 0 && s.features > 0 && s.inPixels() > 0 && s.outPixels() > 0;
  }

  memory::data_type type(const Operand &o) const {
    return widened ? memory::data_type::f32 : dnnlType(o.type);
  }
  /// The same shape in the operands' type, for the forward description that gradients are derived
  /// from.
  memory::desc retyped(const memory::desc &desc, bool any) const {
    memory::data_type t = widened ? memory::data_type::f32 : dnnlType(c.lhs.type);
    return any ? memory::desc(desc.get_dims(), t, memory::format_tag::any)
               : memory::desc(desc.get_dims(), t, desc.get_strides());
  }

  const Command &c;
  ConvolutionShape s;
  bool widened;
  size_t spatial;
  memory::dims strides, dilations, pad_begin, pad_end;
  memory::desc input, output, filter, filter_any, bias;

private:
  memory::desc activation(const Operand &o, const Triple &extents, int64_t channels) const {
    memory::dims dims = {s.n, channels}, strides(2 + spatial);
    for (size_t d = 3 - spatial; d < 3; ++d)
      dims.push_back(extents[d]);
    if (!s.channels_last)
      return memory::desc(dims, type(o), rowMajor(dims));
    int64_t stride = channels;
    strides[1] = 1;
    for (size_t d = spatial; d-- > 0; stride *= dims[2 + d])
      strides[2 + d] = stride;
    strides[0] = stride;
    return memory::desc(dims, type(o), strides);
  }
};

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

dnnl::convolution_forward::primitive_desc forwardHint(Library &library, const Descriptors &d) {
  return {library.engine,
          dnnl::prop_kind::forward_training,
          kAlgorithm,
          d.retyped(d.input, false),
          d.retyped(d.filter, true),
          memory::desc(),
          d.retyped(d.output, false),
          d.strides,
          d.dilations,
          d.pad_begin,
          d.pad_end,
          dnnl::primitive_attr(),
          true};
}

dnnl::primitive_attr userScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

template <typename Primitive, typename Descriptor>
std::unique_ptr<DnnlCommand> start(Library &library, const Descriptors &d, const Descriptor &pd) {
  return std::make_unique<DnnlCommand>(library, Primitive(pd), pd.scratchpad_desc(),
                                       std::string(pd.impl_info_str()) +
                                           (d.widened ? ", widened to f32" : ""));
}

std::unique_ptr<LibraryCommand> forward(Library &library, const Descriptors &d) {
  const Command &c = d.c;
  dnnl::primitive_attr attributes = userScratchpad();
  if (c.relu) {
    dnnl::post_ops ops;
    ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.f, 0.f);
    attributes.set_post_ops(ops);
  }
  dnnl::convolution_forward::primitive_desc pd(
      library.engine, dnnl::prop_kind::forward_training, kAlgorithm, d.input, d.filter_any, d.bias,
      d.output, d.strides, d.dilations, d.pad_begin, d.pad_end, attributes, true);
  if (!pd || isReference(pd.impl_info_str()))
    return nullptr;
  auto command = start<dnnl::convolution_forward>(library, d, pd);
  command->addInput({DNNL_ARG_SRC, c.lhs, d.input, pd.src_desc()});
  command->addInput({DNNL_ARG_WEIGHTS, c.rhs, d.filter, pd.weights_desc()});
  if (c.bias.present)
    command->addInput({DNNL_ARG_BIAS, c.bias, d.bias, d.bias});
  command->setOutput({DNNL_ARG_DST, c.result, d.output, pd.dst_desc()});
  return command;
}

std::unique_ptr<LibraryCommand> backwardData(Library &library, const Descriptors &d) {
  auto hint = forwardHint(library, d);
  if (!hint)
    return nullptr;
  dnnl::convolution_backward_data::primitive_desc pd(
      library.engine, kAlgorithm, d.input, d.filter_any, d.output, d.strides, d.dilations,
      d.pad_begin, d.pad_end, hint, userScratchpad(), true);
  if (!pd || isReference(pd.impl_info_str()))
    return nullptr;
  // In bf16 a strided depthwise gradient falls to a general kernel, 12 times slower than in f32.
  bool depthwise = d.s.groups > 1 && d.s.channels == 1;
  if (depthwise && std::string(pd.impl_info_str()).find("brgconv_strided") != std::string::npos)
    return nullptr;
  auto command = start<dnnl::convolution_backward_data>(library, d, pd);
  command->addInput({DNNL_ARG_DIFF_DST, d.c.lhs, d.output, pd.diff_dst_desc()});
  command->addInput({DNNL_ARG_WEIGHTS, d.c.rhs, d.filter, pd.weights_desc()});
  command->setOutput({DNNL_ARG_DIFF_SRC, d.c.result, d.input, pd.diff_src_desc()});
  return command;
}

std::unique_ptr<LibraryCommand> backwardWeights(Library &library, const Descriptors &d) {
  auto hint = forwardHint(library, d);
  if (!hint)
    return nullptr;
  dnnl::convolution_backward_weights::primitive_desc pd(
      library.engine, kAlgorithm, d.input, d.filter_any, memory::desc(), d.output, d.strides,
      d.dilations, d.pad_begin, d.pad_end, hint, userScratchpad(), true);
  if (!pd || isReference(pd.impl_info_str()))
    return nullptr;
  auto command = start<dnnl::convolution_backward_weights>(library, d, pd);
  command->addInput({DNNL_ARG_SRC, d.c.lhs, d.input, pd.src_desc()});
  command->addInput({DNNL_ARG_DIFF_DST, d.c.rhs, d.output, pd.diff_dst_desc()});
  command->setOutput({DNNL_ARG_DIFF_WEIGHTS, d.c.result, d.filter, pd.diff_weights_desc()});
  return command;
}

} // namespace

std::unique_ptr<LibraryCommand> mpc::cpu::makeDnnlConvolution(Library &library, const Command &c,
                                                              bool widened) {
  Descriptors d(c, widened);
  if (!d.supported())
    return nullptr;
  switch (c.kind) {
  case CommandKind::conv:
    return forward(library, d);
  case CommandKind::conv_backward_data:
    return backwardData(library, d);
  default:
    return backwardWeights(library, d);
  }
}
