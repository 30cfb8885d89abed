//===- ConvShape.cpp - the geometry of windows -------------------------------===//
//
// One place for the size formulas of convolutions and pools, auto_pad and ceil_mode
// included: each of them has been got wrong by an exporter or a framework.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/ConvShape.h"

using namespace mlir;

namespace mpc {

int64_t windowSpan(int64_t kernel, int64_t dilation) { return (kernel - 1) * dilation + 1; }

int64_t windowOutput(int64_t input, int64_t span, int64_t stride, int64_t padBegin, int64_t padEnd,
                     bool ceil) {
  int64_t room = input + padBegin + padEnd - span;
  if (room < 0)
    return 0;
  int64_t output = (ceil ? llvm::divideCeilSigned(room, stride) : room / stride) + 1;
  // A window that starts in the pad behind the input would read nothing but pad.
  if (ceil && (output - 1) * stride >= input + padBegin)
    --output;
  return output;
}

SmallVector<int64_t> windowOutputs(ArrayRef<int64_t> input, const Window &window, bool ceil) {
  SmallVector<int64_t> outputs;
  for (int64_t d = 0; d < window.rank(); ++d)
    outputs.push_back(windowOutput(input[d], windowSpan(window.kernel[d], window.dilations[d]),
                                   window.strides[d], window.pads[d],
                                   window.pads[d + window.rank()], ceil));
  return outputs;
}

// auto_pad: VALID has no pads; SAME_UPPER and SAME_LOWER pad to ⌈input / stride⌉ outputs, an odd
// pad's larger half at the end or at the begin.
static LogicalResult resolveAutoPad(NodeContext &node, ArrayRef<int64_t> input, Window &window) {
  std::string mode = node.stringAttr("auto_pad", "NOTSET");
  if (mode == "NOTSET" || mode.empty())
    return success();
  if (mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER")
    return node.error() << "auto_pad is " << mode
                        << ", not NOTSET, VALID, SAME_UPPER or SAME_LOWER";
  int64_t rank = window.rank();
  window.pads.assign(2 * rank, 0);
  if (mode == "VALID")
    return success();
  for (int64_t d = 0; d < rank; ++d) {
    int64_t outputs = llvm::divideCeilSigned(input[d], window.strides[d]);
    int64_t total =
        std::max<int64_t>((outputs - 1) * window.strides[d] +
                              windowSpan(window.kernel[d], window.dilations[d]) - input[d],
                          0);
    int64_t small = total / 2, large = total - small;
    window.pads[d] = mode == "SAME_UPPER" ? small : large;
    window.pads[d + rank] = mode == "SAME_UPPER" ? large : small;
  }
  return success();
}

std::optional<Window> readWindow(NodeContext &node, ArrayRef<int64_t> input,
                                 ArrayRef<int64_t> kernel) {
  size_t rank = kernel.size();
  if (input.size() != rank || rank < 1 || rank > 3) {
    node.error() << "has a kernel of " << rank << " dimensions for " << input.size()
                 << " spatial ones; 1 to 3 are supported";
    return std::nullopt;
  }
  Window window;
  window.kernel.assign(kernel.begin(), kernel.end());
  SmallVector<int64_t> ones(rank, 1), zeros(2 * rank, 0);
  window.strides = node.intsAttr("strides").value_or(ones);
  window.dilations = node.intsAttr("dilations").value_or(ones);
  window.pads = node.intsAttr("pads").value_or(zeros);
  if (window.strides.size() != rank || window.dilations.size() != rank ||
      window.pads.size() != 2 * rank) {
    node.error() << "strides, pads or dilations do not fit " << rank << " spatial dimensions";
    return std::nullopt;
  }
  auto positive = [](ArrayRef<int64_t> values) {
    return llvm::all_of(values, [](int64_t value) { return value > 0; });
  };
  if (!positive(window.kernel) || !positive(window.strides) || !positive(window.dilations)) {
    node.error() << "kernel, strides and dilations must be positive";
    return std::nullopt;
  }
  if (llvm::any_of(window.pads, [](int64_t pad) { return pad < 0; })) {
    node.unsupported() << "has negative pads, which are not supported; crop the input with Slice";
    return std::nullopt;
  }
  if (failed(resolveAutoPad(node, input, window)))
    return std::nullopt;
  return window;
}

SmallVector<int64_t> ImageLayout::shape(int64_t samples, int64_t channels,
                                        ArrayRef<int64_t> spatial) const {
  SmallVector<int64_t> result{samples};
  if (!channelsLast)
    result.push_back(channels);
  llvm::append_range(result, spatial);
  if (channelsLast)
    result.push_back(channels);
  return result;
}

LogicalResult verifyWindow(Operation *op, ArrayRef<int64_t> spatial, const Window &window) {
  size_t rank = spatial.size();
  if (window.kernel.size() != rank || window.strides.size() != rank ||
      window.dilations.size() != rank || window.pads.size() != 2 * rank)
    return op->emitOpError("needs kernel, strides, dilations and pads for ")
           << rank << " spatial dimensions";
  for (size_t d = 0; d < rank; ++d)
    if (window.kernel[d] < 1 || window.strides[d] < 1 || window.dilations[d] < 1 ||
        window.pads[d] < 0 || window.pads[d + rank] < 0)
      return op->emitOpError(
                 "has a kernel, stride or dilation below 1 or a negative pad in spatial dimension ")
             << d;
  return success();
}

} // namespace mpc
