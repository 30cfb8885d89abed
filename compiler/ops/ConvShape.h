//===- ConvShape.h - the geometry of windows ------------------------------------------===//
//
// Convolutions and pools read a window per output position. Sizes, strides, pads and
// dilations have one entry per spatial dimension, pads two (all begins, then all ends), as in
// ONNX.
//
//===------------------------------------------------------------------------------===//

#ifndef MPC_OPS_CONVSHAPE_H
#define MPC_OPS_CONVSHAPE_H

#include "compiler/ops/Build.h"
#include "compiler/ops/OnnxConversion.h"

namespace mpc {

struct Window {
  llvm::SmallVector<int64_t> kernel, strides, pads, dilations;
  int64_t rank() const { return kernel.size(); }
};

/// Elements that a dilated kernel spans: (kernel - 1) · dilation + 1.
int64_t windowSpan(int64_t kernel, int64_t dilation);

/// Output size of one dimension: ⌊(input + pads - span) / stride⌋ + 1, or ⌈…⌉ with `ceil`, where a
/// window that would start behind the input and its first pad is left out. Zero or less: no window
/// fits.
int64_t windowOutput(int64_t input, int64_t span, int64_t stride, int64_t padBegin, int64_t padEnd,
                     bool ceil);
/// The same for all spatial dimensions.
llvm::SmallVector<int64_t> windowOutputs(llvm::ArrayRef<int64_t> input, const Window &window,
                                         bool ceil = false);

/// Reads strides, pads, dilations and auto_pad of a Conv or pool node, whose kernel is known. Emits
/// an error and returns nullopt where one of them does not fit.
std::optional<Window> readWindow(NodeContext &node, llvm::ArrayRef<int64_t> input,
                                 llvm::ArrayRef<int64_t> kernel);

/// Where a tensor has its channels and its spatial dimensions: [N, C, spatial...] or [N,
/// spatial..., C].
struct ImageLayout {
  bool channelsLast;
  int64_t channelAxis(int64_t rank) const { return channelsLast ? rank - 1 : 1; }
  int64_t channels(llvm::ArrayRef<int64_t> shape) const { return shape[channelAxis(shape.size())]; }
  llvm::ArrayRef<int64_t> spatial(llvm::ArrayRef<int64_t> shape) const {
    return channelsLast ? shape.drop_front().drop_back() : shape.drop_front(2);
  }
  llvm::SmallVector<int64_t> shape(int64_t samples, int64_t channels,
                                   llvm::ArrayRef<int64_t> spatial) const;
};

/// Checks one operation's window attributes against the spatial dimensions of its operand.
mlir::LogicalResult verifyWindow(mlir::Operation *op, llvm::ArrayRef<int64_t> spatial,
                                 const Window &window);

} // namespace mpc

#endif // MPC_OPS_CONVSHAPE_H
