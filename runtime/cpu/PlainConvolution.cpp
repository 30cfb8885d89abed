//===- PlainConvolution.cpp - convolutions as products of patches -----------------===//
//
//   forward           result[pixel, m]      = Σ_(t,c) patch(pixel, (t,c)) · filter[m, c, t]
//   gradient, input   result[pixel, c]      = Σ_(t,m) patch of dY(pixel, (t,m)) · filter[m, c, t],
//                     once per phase of the stride, with the taps that meet it
//   gradient, filter  result[m, (t,c)]      = Σ_pixel dY[pixel, m] · patch(pixel, (t,c))
//
// Channels last, pixels are the rows of the product; channels first, they are its columns,
// one image at a time, so that both operand and result are read and written along memory.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/PackedCopy.h"
#include "runtime/cpu/Patches.h"

using namespace mpc;
using namespace mpc::cpu;

namespace {

/// A filter as an operand: element (batch = group, outer, p) is `offset[p]` behind the group's and
/// the outer index's start.
template <typename C> class FilterSource : public PanelSource<C> {
public:
  const void *base = nullptr;
  ElementType type{};
  int64_t group_stride = 0, outer_stride = 0;
  std::vector<int64_t> offset;

  bool depthRuns() const override { return false; }
  void columns(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth, C *to,
               int64_t width) const override {
    elementSize(type) == 2   ? gather<uint16_t>(batch, outer, count, first, depth, to, width)
    : elementSize(type) == 4 ? gather<uint32_t>(batch, outer, count, first, depth, to, width)
                             : gather<uint64_t>(batch, outer, count, first, depth, to, width);
  }

private:
  template <typename Bits>
  void gather(int64_t batch, int64_t outer, int64_t count, int64_t first, int64_t depth, C *to,
              int64_t width) const {
    LoadFunction<C> load = loadFunction<C>(type);
    Bits codes[64];
    for (int64_t p = 0; p < depth; ++p, to += width) {
      const Bits *from = static_cast<const Bits *>(base) + batch * group_stride +
                         outer * outer_stride + offset[size_t(first + p)];
      for (int64_t i = 0; i < count; ++i)
        codes[i] = from[i * outer_stride];
      load(codes, to, count);
      std::fill(to + count, to + width, C(0));
    }
  }
};

/// Writes a filter gradient: row = feature, column j is at `offset[j]` of the feature's [channels,
/// taps].
template <typename C> class FilterSink : public ResultSink<C> {
public:
  void *base = nullptr;
  ElementType type{};
  int64_t group_stride = 0, row_stride = 0;
  bool in_order = false;
  std::vector<int64_t> offset;

  void store(int64_t batch, int64_t i, int64_t j, int64_t count, C *row) const override {
    C *to = static_cast<C *>(base) + batch * group_stride + i * row_stride;
    if (in_order)
      std::copy(row, row + count, to + j);
    else
      for (int64_t x = 0; x < count; ++x)
        to[offset[size_t(j + x)]] = row[x];
  }
};

/// Writes an input gradient: pixel q of the lattice is the image's pixel phase + stride · q.
template <typename C> class LatticeSink : public ResultSink<C> {
public:
  void *base = nullptr;
  ElementType type{};
  bool channels_last = false;
  int64_t groups = 1, channels = 1;
  Triple image{}, lattice{}, phase{}, stride{};

  void store(int64_t batch, int64_t i, int64_t j, int64_t count, C *row) const override {
    int64_t all = groups * channels, pixels = image[0] * image[1] * image[2];
    if (channels_last) { // row = pixel over all images, column = channel of group `batch`
      auto [n, pixel] = locate(i);
      write(row, (n * pixels + pixel) * all + batch * channels + j, 1, count);
      return;
    }
    // row = channel of batch = image · groups + group, column = pixel
    int64_t start = (batch / groups * all + batch % groups * channels + i) * pixels;
    while (count > 0) {
      int64_t run = std::min(count, lattice[2] - j % lattice[2]);
      write(row, start + locate(j).second, stride[2], run);
      j += run;
      row += run;
      count -= run;
    }
  }

private:
  std::pair<int64_t, int64_t> locate(int64_t q) const {
    int64_t w = q % lattice[2], rest = q / lattice[2];
    int64_t h = rest % lattice[1];
    rest /= lattice[1];
    int64_t d = rest % lattice[0];
    int64_t pixel = ((phase[0] + stride[0] * d) * image[1] + phase[1] + stride[1] * h) * image[2] +
                    phase[2] + stride[2] * w;
    return {rest / lattice[0], pixel};
  }
  void write(const C *from, int64_t offset, int64_t apart, int64_t count) const {
    storeStrided(type, from, static_cast<char *>(base) + offset * int64_t(elementSize(type)), apart,
                 count);
  }
};

/// One product with what it reads and writes.
template <typename C> struct Part {
  Patches<C> patches;
  std::unique_ptr<PanelSource<C>> patch_source, other_source;
  std::unique_ptr<ResultSink<C>> sink;
  Product<C> product;
  std::shared_ptr<WeightCopy> filter;
};

template <typename C> class PlainConvolution : public LibraryCommand {
public:
  PlainConvolution(Library &library, const Command &command) : library(library), c(command), s(c) {
    if (c.kind == CommandKind::conv)
      forward();
    else if (c.kind == CommandKind::conv_backward_data)
      backwardData();
    else
      backwardWeights();
  }

  void run() override {
    if (c.bias.present)
      loadFunction<C>(c.bias.type)(library.at(c.bias.buffer), bias.data(), int64_t(bias.size()));
    for (auto &part : parts) {
      Product<C> &p = part->product;
      if (part->filter) {
        auto *packed = static_cast<const C *>(part->filter->current(library.versionOf(c.rhs)));
        (s.channels_last ? p.packed_rhs : p.packed_lhs) = packed;
      }
      multiply(p, library.threads, scratch);
    }
  }
  std::string describe() const override {
    return std::string("plain loops, ") + kernels().name +
           (isHalf(c.lhs.type) ? ", widened to f32 in cache" : "");
  }
  size_t scratchBytes() const override {
    int64_t elements = 0;
    for (const auto &part : parts) {
      Product<C> p = part->product;
      // A packed operand needs no scratch; any pointer says so.
      if (part->filter)
        (s.channels_last ? p.packed_rhs : p.packed_lhs) = reinterpret_cast<const C *>(&c);
      elements = std::max(elements, productScratch(p, library.threads));
    }
    return alignedBytes(size_t(elements) * sizeof(C));
  }
  void bind(std::byte *memory) override { scratch = reinterpret_cast<C *>(memory); }

private:
  Part<C> &newPart() {
    parts.push_back(std::make_unique<Part<C>>());
    return *parts.back();
  }

  void readImage(Patches<C> &p, const Operand &image, const Triple &extents, int64_t channels) {
    p.base = library.at(image.buffer);
    p.type = image.type;
    p.channels_last = s.channels_last;
    p.groups = s.groups;
    p.channels = channels;
    p.image = extents;
  }

  // The taps of the forward convolution (and of the filter gradient).
  void forwardTaps(Patches<C> &p) {
    p.lattice = s.out;
    p.step = s.stride;
    for (int axis = 0; axis < 3; ++axis)
      for (int64_t k = 0; k < s.kernel[axis]; ++k) {
        p.taps[axis].offset.push_back(k * s.dilation[axis] - s.pad_begin[axis]);
        p.taps[axis].kernel_index.push_back(k);
      }
    p.prepare();
  }

  // `other`: extent of the product's side that is no pixel (features forward, channels backward).
  void imageTimesFilter(Part<C> &part, int64_t other, int64_t outer_stride, int64_t tap_stride,
                        int64_t channel_stride, const std::string &form) {
    Patches<C> &patches = part.patches;
    patches.image_per_batch = !s.channels_last;
    part.patch_source = std::make_unique<PatchSource<C>>(patches);
    auto filter = std::make_shared<FilterSource<C>>();
    filter->base = library.at(c.rhs.buffer);
    filter->type = c.rhs.type;
    filter->group_stride = s.features * s.channels * s.taps();
    filter->outer_stride = outer_stride;
    for (const auto &column : patches.columns(s.kernel))
      filter->offset.push_back(column.kernel_tap * tap_stride + column.channel * channel_stride);
    Product<C> &p = part.product;
    p.k = patches.depth();
    p.packed_batches = s.groups;
    int64_t pixels = patches.lattice[0] * patches.lattice[1] * patches.lattice[2];
    const TileKernels<C> &tile = tileKernels<C>();
    if (s.channels_last) {
      p.batch = s.groups;
      p.m = s.n * pixels;
      p.n = other;
      p.lhs = part.patch_source.get();
    } else {
      p.batch = s.n * s.groups;
      p.m = other;
      p.n = pixels;
      p.rhs = part.patch_source.get();
    }
    part.filter =
        packedCopy<C>(library, c.rhs, form + (s.channels_last ? "-last" : "-first"), s.groups,
                      other, p.k, s.channels_last ? tile.columns : tile.rows, filter);
    p.sink = part.sink.get();
  }

  void forward() {
    Part<C> &part = newPart();
    readImage(part.patches, c.lhs, s.in, s.channels);
    forwardTaps(part.patches);
    auto sink = std::make_unique<StridedSink<C>>();
    int64_t all = s.groups * s.features, pixels = s.outPixels();
    sink->base = library.at(c.result.buffer);
    sink->type = c.result.type;
    sink->epilogue.relu = c.relu;
    sink->epilogue.batch_modulus = s.groups;
    sink->epilogue.bias_batch_stride = s.features;
    if (s.channels_last) {
      sink->batch_stride = s.features;
      sink->row_stride = all;
    } else {
      sink->batch_inner = s.groups;
      sink->batch_stride = s.features * pixels;
      sink->batch_outer_stride = all * pixels;
      sink->row_stride = pixels;
    }
    if (c.bias.present) {
      bias.resize(size_t(all));
      (s.channels_last ? sink->epilogue.column_bias : sink->epilogue.row_bias) = bias.data();
    }
    part.sink = std::move(sink);
    imageTimesFilter(part, s.features, s.channels * s.taps(), 1, s.taps(), geometry("conv"));
  }

  void backwardData() {
    Triple phase;
    for (phase[0] = 0; phase[0] < std::min(s.stride[0], s.in[0]); ++phase[0])
      for (phase[1] = 0; phase[1] < std::min(s.stride[1], s.in[1]); ++phase[1])
        for (phase[2] = 0; phase[2] < std::min(s.stride[2], s.in[2]); ++phase[2])
          backwardPhase(phase);
  }

  void backwardPhase(const Triple &phase) {
    Part<C> &part = newPart();
    Patches<C> &patches = part.patches;
    readImage(patches, c.lhs, s.out, s.features);
    patches.step = {1, 1, 1};
    for (int axis = 0; axis < 3; ++axis) {
      patches.lattice[axis] = (s.in[axis] - phase[axis] + s.stride[axis] - 1) / s.stride[axis];
      // Offsets ascend, so that neighboring taps are neighbors in memory.
      for (int64_t k = s.kernel[axis]; k-- > 0;) {
        int64_t offset = phase[axis] + s.pad_begin[axis] - k * s.dilation[axis];
        if (offset % s.stride[axis])
          continue;
        patches.taps[axis].offset.push_back(offset / s.stride[axis]);
        patches.taps[axis].kernel_index.push_back(k);
      }
    }
    patches.prepare();
    auto sink = std::make_unique<LatticeSink<C>>();
    sink->base = library.at(c.result.buffer);
    sink->type = c.result.type;
    sink->channels_last = s.channels_last;
    sink->groups = s.groups;
    sink->channels = s.channels;
    sink->image = s.in;
    sink->lattice = patches.lattice;
    sink->phase = phase;
    sink->stride = s.stride;
    part.sink = std::move(sink);
    std::string form = geometry("grad");
    for (int64_t p : phase)
      form.append("p").append(std::to_string(p));
    imageTimesFilter(part, s.channels, s.taps(), 1, s.channels * s.taps(), form);
  }

  void backwardWeights() {
    Part<C> &part = newPart();
    Patches<C> &patches = part.patches;
    readImage(patches, c.lhs, s.in, s.channels);
    forwardTaps(patches);
    int64_t pixels = s.outPixels(), all = s.groups * s.features;
    auto gradient = std::make_unique<StridedSource<C>>();
    gradient->base = library.at(c.rhs.buffer);
    gradient->type = c.rhs.type;
    if (s.channels_last) {
      gradient->batch_stride = s.features;
      gradient->outer_stride = 1;
      gradient->depth_stride = all;
    } else {
      gradient->batch_stride = s.features * pixels;
      gradient->outer_stride = pixels;
      gradient->depth_stride = 1;
      gradient->depth_inner = std::max<int64_t>(pixels, 1);
      gradient->depth_outer_stride = all * pixels;
    }
    part.other_source = std::move(gradient);
    part.patch_source = std::make_unique<TransposedPatchSource<C>>(patches);
    auto sink = std::make_unique<FilterSink<C>>();
    sink->base = library.at(c.result.buffer);
    sink->type = c.result.type;
    sink->row_stride = s.channels * s.taps();
    sink->group_stride = s.features * sink->row_stride;
    sink->in_order = !s.channels_last;
    for (const auto &column : patches.columns(s.kernel))
      sink->offset.push_back(column.channel * s.taps() + column.kernel_tap);
    part.sink = std::move(sink);
    Product<C> &p = part.product;
    p.batch = s.groups;
    p.m = s.features;
    p.n = patches.depth();
    p.k = s.n * pixels;
    p.lhs = part.other_source.get();
    p.rhs = part.patch_source.get();
    p.sink = part.sink.get();
  }

  /// Everything that decides the order of a packed filter, besides its shape.
  std::string geometry(const std::string &kind) const {
    std::string text = kind + std::to_string(s.groups);
    for (const Triple *t : {&s.stride, &s.dilation, &s.pad_begin})
      for (int64_t value : *t)
        text.append(",").append(std::to_string(value));
    return text;
  }

  Library &library;
  Command c;
  ConvolutionShape s;
  std::vector<std::unique_ptr<Part<C>>> parts;
  std::vector<C> bias;
  C *scratch = nullptr;
};

} // namespace

std::unique_ptr<LibraryCommand> mpc::cpu::makePlainConvolution(Library &library, const Command &c) {
  if (isDepthwise(c))
    return makeDepthwiseConvolution(library, c);
  if (c.lhs.type == ElementType::f64)
    return std::make_unique<PlainConvolution<double>>(library, c);
  return std::make_unique<PlainConvolution<float>>(library, c);
}
