//===- Patches.h - an image as the matrix of its patches --------------------------===//
//
// im2col without the matrix: row = pixel of a lattice, column = (tap, channel), read from
// the image while panels are packed. The lattice pixel q meets, at tap t, the image pixel
// q · step + t, and zero where that lies outside. Forward: step = stride, t = kernel index ·
// dilation - pad. Gradient of the input: the input pixels of one stride phase φ, i = φ +
// stride · q, meet output pixel q + (φ + pad - kernel index · dilation) / stride where that is
// whole: so step = 1, and only taps that contribute are in the list.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CPU_PATCHES_H
#define MPC_RUNTIME_CPU_PATCHES_H

#include "runtime/cpu/ConvolutionShape.h"
#include "runtime/cpu/PlainProduct.h"

namespace mpc::cpu {

/// One spatial dimension's taps: offset of each, and the kernel index that it is.
struct TapAxis {
  std::vector<int64_t> offset, kernel_index;
};

template <typename C> class Patches {
public:
  const void *base = nullptr;
  ElementType type{};
  bool channels_last = false;
  bool image_per_batch = false; ///< batch = image · groups + group; otherwise batch = group, and
                                ///< the pixel index counts over all images
  int64_t groups = 1, channels = 1; ///< channels per group
  Triple image{}, lattice{}, step{};
  std::array<TapAxis, 3> taps;

  void prepare(); ///< after the fields are set

  int64_t tapCount() const;
  int64_t depth() const { return tapCount() * channels; }
  /// For each column: its tap as an index into the kernel's [depth, height, width], and its
  /// channel.
  struct Column {
    int64_t kernel_tap, channel;
  };
  std::vector<Column> columns(const Triple &kernel) const;

  /// to[0, count) = columns [first, first + count) of a pixel's row. channels_last: columns are
  /// (tap, channel).
  void pixelRow(int64_t batch, int64_t pixel, int64_t first, int64_t count, C *to) const;
  /// to[0, count) = one column of pixels [pixel, pixel + count). Otherwise: columns are (channel,
  /// tap).
  void tapRow(int64_t batch, int64_t column, int64_t pixel, int64_t count, C *to) const;

private:
  const char *imageStart(int64_t batch, int64_t n) const;
  int64_t channel_stride = 0;
  Triple pixel_stride{};
  int64_t image_stride = 0, run_taps = 1; ///< taps next to each other in memory
  LoadFunction<C> load = nullptr;
};

/// outer = pixels, depth = columns of the patch matrix.
template <typename C> class PatchSource : public PanelSource<C> {
public:
  explicit PatchSource(const Patches<C> &patches) : patches(patches) {}
  bool depthRuns() const override { return patches.channels_last; }
  void rows(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth,
            C *to) const override;
  void columns(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth, C *to,
               int64_t width) const override;
  const Patches<C> &patches;
};

/// outer = columns of the patch matrix, depth = pixels.
template <typename C> class TransposedPatchSource : public PanelSource<C> {
public:
  explicit TransposedPatchSource(const Patches<C> &patches) : patches(patches) {}
  bool depthRuns() const override { return !patches.channels_last; }
  void rows(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth,
            C *to) const override;
  void columns(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth, C *to,
               int64_t width) const override;
  const Patches<C> &patches;
};

} // namespace mpc::cpu

#endif // MPC_RUNTIME_CPU_PATCHES_H
