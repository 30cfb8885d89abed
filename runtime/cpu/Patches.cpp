//===- Patches.cpp - an image as the matrix of its patches ------------------------===//

#include "runtime/cpu/Patches.h"
#include <algorithm>

using namespace mpc;
using namespace mpc::cpu;

ConvolutionShape::ConvolutionShape(const Command &c) {
  input = c.kind == CommandKind::conv_backward_data ? &c.result : &c.lhs;
  filter = c.kind == CommandKind::conv_backward_weights ? &c.result : &c.rhs;
  output = c.kind == CommandKind::conv                 ? &c.result
           : c.kind == CommandKind::conv_backward_data ? &c.lhs
                                                       : &c.rhs;
  size_t rank = input->shape.size(), spatial = rank - 2, lead = 3 - spatial;
  channels_last = c.channels_last;
  groups = c.groups;
  n = input->shape[0];
  features = filter->shape[0] / groups;
  channels = filter->shape[1];
  in = out = kernel = stride = dilation = {1, 1, 1};
  pad_begin = pad_end = {0, 0, 0};
  size_t first = channels_last ? 1 : 2;
  for (size_t d = 0; d < spatial; ++d) {
    in[lead + d] = input->shape[first + d];
    out[lead + d] = output->shape[first + d];
    kernel[lead + d] = filter->shape[2 + d];
    stride[lead + d] = c.strides[d];
    dilation[lead + d] = c.dilations[d];
    pad_begin[lead + d] = c.pads[d];
    pad_end[lead + d] = c.pads[spatial + d];
  }
}

template <typename C> int64_t Patches<C>::tapCount() const {
  return int64_t(taps[0].offset.size() * taps[1].offset.size() * taps[2].offset.size());
}

template <typename C> void Patches<C>::prepare() {
  int64_t pixels = image[0] * image[1] * image[2], all = groups * channels;
  channel_stride = channels_last ? 1 : pixels;
  int64_t unit = channels_last ? all : 1;
  pixel_stride = {image[1] * image[2] * unit, image[2] * unit, unit};
  image_stride = pixels * all;
  load = loadFunction<C>(type);
  // Along the width, neighboring taps of an ungrouped channels-last image are one run of memory.
  run_taps = 1;
  const std::vector<int64_t> &w = taps[2].offset;
  bool together = channels_last && groups == 1 && !w.empty();
  for (size_t i = 1; i < w.size(); ++i)
    together &= w[i] == w[i - 1] + 1;
  if (together)
    run_taps = int64_t(w.size());
}

template <typename C>
std::vector<typename Patches<C>::Column> Patches<C>::columns(const Triple &kernel) const {
  std::vector<int64_t> kernel_taps;
  for (int64_t d : taps[0].kernel_index)
    for (int64_t h : taps[1].kernel_index)
      for (int64_t w : taps[2].kernel_index)
        kernel_taps.push_back((d * kernel[1] + h) * kernel[2] + w);
  std::vector<Column> result;
  if (channels_last) {
    for (int64_t tap : kernel_taps)
      for (int64_t c = 0; c < channels; ++c)
        result.push_back({tap, c});
  } else {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t tap : kernel_taps)
        result.push_back({tap, c});
  }
  return result;
}

template <typename C> const char *Patches<C>::imageStart(int64_t batch, int64_t n) const {
  int64_t group = batch % groups;
  if (image_per_batch)
    n += batch / groups;
  int64_t offset = n * image_stride + group * channels * channel_stride;
  return static_cast<const char *>(base) + offset * int64_t(elementSize(type));
}

template <typename C>
void Patches<C>::pixelRow(int64_t batch, int64_t pixel, int64_t first, int64_t count, C *to) const {
  int64_t size = int64_t(elementSize(type));
  int64_t qw = pixel % lattice[2], rest = pixel / lattice[2];
  int64_t qh = rest % lattice[1];
  rest /= lattice[1];
  int64_t qd = rest % lattice[0];
  const char *start = imageStart(batch, rest / lattice[0]);
  int64_t width_taps = int64_t(taps[2].offset.size()), height_taps = int64_t(taps[1].offset.size());
  int64_t run_length = run_taps * channels;
  int64_t runs_per_row = width_taps / run_taps;
  for (int64_t end = first + count; first < end;) {
    int64_t run = first / run_length, within = first % run_length;
    int64_t length = std::min(run_length - within, end - first);
    int64_t tw = run % runs_per_row * run_taps, row = run / runs_per_row;
    int64_t h = qh * step[1] + taps[1].offset[size_t(row % height_taps)];
    int64_t d = qd * step[0] + taps[0].offset[size_t(row / height_taps)];
    int64_t w = qw * step[2] + taps[2].offset[size_t(tw)];
    // Of the run's elements, relative to image column w, those inside the image are [low, high).
    int64_t low = within, high = within + length;
    if (h < 0 || h >= image[1] || d < 0 || d >= image[0]) {
      high = low;
    } else {
      low = std::clamp(-w * channels, within, within + length);
      high = std::clamp((image[2] - w) * channels, low, within + length);
    }
    std::fill(to, to + (low - within), C(0));
    if (high > low)
      load(start + (d * pixel_stride[0] + h * pixel_stride[1] + w * pixel_stride[2] + low) * size,
           to + (low - within), high - low);
    std::fill(to + (high - within), to + length, C(0));
    first += length;
    to += length;
  }
}

template <typename C>
void Patches<C>::tapRow(int64_t batch, int64_t column, int64_t pixel, int64_t count, C *to) const {
  int64_t size = int64_t(elementSize(type)), tap_count = tapCount();
  int64_t channel = column / tap_count, tap = column % tap_count;
  int64_t width_taps = int64_t(taps[2].offset.size()), height_taps = int64_t(taps[1].offset.size());
  int64_t ow = taps[2].offset[size_t(tap % width_taps)];
  int64_t oh = taps[1].offset[size_t(tap / width_taps % height_taps)];
  int64_t od = taps[0].offset[size_t(tap / width_taps / height_taps)];
  for (int64_t end = pixel + count; pixel < end;) {
    int64_t qw = pixel % lattice[2], rest = pixel / lattice[2];
    int64_t qh = rest % lattice[1];
    rest /= lattice[1];
    int64_t qd = rest % lattice[0];
    int64_t length = std::min(lattice[2] - qw, end - pixel);
    int64_t h = qh * step[1] + oh, d = qd * step[0] + od, w = qw * step[2] + ow;
    if (h < 0 || h >= image[1] || d < 0 || d >= image[0]) {
      std::fill(to, to + length, C(0));
    } else {
      const char *line =
          imageStart(batch, rest / lattice[0]) +
          (channel * channel_stride + d * pixel_stride[0] + h * pixel_stride[1]) * size;
      // x is inside where 0 ≤ w + x · step < width.
      int64_t s = step[2];
      int64_t low = std::clamp<int64_t>(w < 0 ? (-w + s - 1) / s : 0, 0, length);
      int64_t high =
          std::clamp<int64_t>(image[2] > w ? (image[2] - w + s - 1) / s : 0, low, length);
      std::fill(to, to + low, C(0));
      if (s == 1 && high > low)
        load(line + (w + low) * size, to + low, high - low);
      else
        for (int64_t x = low; x < high; ++x)
          load(line + (w + x * s) * size, to + x, 1);
      std::fill(to + high, to + length, C(0));
    }
    pixel += length;
    to += length;
  }
}

template <typename C>
void PatchSource<C>::rows(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth,
                          C *to) const {
  for (int64_t i = 0; i < count; ++i)
    patches.pixelRow(batch, outer + i, first, depth, to + i * kRowPanelStride);
}

template <typename C>
void PatchSource<C>::columns(int64_t batch, int64_t outer, int64_t count, int64_t first,
                             int64_t depth, C *to, int64_t width) const {
  for (int64_t p = 0; p < depth; ++p, to += width) {
    patches.tapRow(batch, first + p, outer, count, to);
    std::fill(to + count, to + width, C(0));
  }
}

template <typename C>
void TransposedPatchSource<C>::rows(int64_t batch, int64_t outer, int64_t count, int64_t first,
                                    int64_t depth, C *to) const {
  for (int64_t i = 0; i < count; ++i)
    patches.tapRow(batch, outer + i, first, depth, to + i * kRowPanelStride);
}

template <typename C>
void TransposedPatchSource<C>::columns(int64_t batch, int64_t outer, int64_t count, int64_t first,
                                       int64_t depth, C *to, int64_t width) const {
  for (int64_t p = 0; p < depth; ++p, to += width) {
    patches.pixelRow(batch, first + p, outer, count, to);
    std::fill(to + count, to + width, C(0));
  }
}

namespace mpc::cpu {
template class Patches<float>;
template class Patches<double>;
template class PatchSource<float>;
template class PatchSource<double>;
template class TransposedPatchSource<float>;
template class TransposedPatchSource<double>;
} // namespace mpc::cpu
