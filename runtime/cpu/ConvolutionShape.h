//===- ConvolutionShape.h - the dimensions of a convolution command ---------------===//

#ifndef MPC_RUNTIME_CPU_CONVOLUTIONSHAPE_H
#define MPC_RUNTIME_CPU_CONVOLUTIONSHAPE_H

#include "runtime/core/Program.h"
#include <array>

namespace mpc::cpu {

using Triple = std::array<int64_t, 3>; ///< depth, height, width; leading ones for fewer dimensions

/// A convolution command, its gradient or not, with three spatial dimensions.
struct ConvolutionShape {
  explicit ConvolutionShape(const Command &c);

  const Operand *input, *filter, *output; ///< (or their gradients)
  int64_t n, groups, channels, features;  ///< channels = C/groups, features = M/groups
  Triple in, out, kernel, stride, dilation, pad_begin, pad_end;
  bool channels_last;

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t inPixels() const { return in[0] * in[1] * in[2]; }
  int64_t outPixels() const { return out[0] * out[1] * out[2]; }
  double multiplications() const {
    return double(n) * double(groups) * double(features) * double(channels) * double(taps()) *
           double(outPixels());
  }
};

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_CONVOLUTIONSHAPE_H
