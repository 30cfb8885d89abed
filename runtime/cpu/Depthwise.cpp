//===- Depthwise.cpp - depthwise convolutions, channels last ------------------------===//
//
// As products they would be one column wide. Channels are the vectors here:
//
//   forward           result[o, c]  = Σ_t x[i(o, t), c] · filter[c, t]
//   gradient, input   result[i, c]  = Σ_t dY[o(i, t), c] · filter[c, t]
//   gradient, filter  result[c, t]  = Σ_o x[i(o, t), c] · dY[o, c]
//
// The filter gradient is summed over chunks of lines, whose number does not depend on the
// threads, and the chunks are added in order.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/ConvolutionShape.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Library.h"
#include "runtime/cpu/Threads.h"
#include "runtime/cpu/Widen.h"

using namespace mpc;
using namespace mpc::cpu;

namespace {

template <typename C> DepthwiseFunction<C> depthwiseFunction(ElementType type) {
  if constexpr (sizeof(C) == 8)
    return kernels().depthwise_f64;
  else
    return type == ElementType::f16    ? kernels().depthwise_f16
           : type == ElementType::bf16 ? kernels().depthwise_bf16
                                       : kernels().depthwise_f32;
}
template <typename C> DepthwiseSumFunction<C> depthwiseSumFunction(ElementType type) {
  if constexpr (sizeof(C) == 8)
    return kernels().depthwise_sum_f64;
  else
    return type == ElementType::f16    ? kernels().depthwise_sum_f16
           : type == ElementType::bf16 ? kernels().depthwise_sum_bf16
                                       : kernels().depthwise_sum_f32;
}

/// For a position along one axis of the result: the positions that it reads, and with which tap.
struct Meeting {
  int64_t tap, position;
};
using Meetings = std::vector<std::vector<Meeting>>;

constexpr int64_t kMaxChunks = 64;

template <typename C> class DepthwiseConvolution : public LibraryCommand {
public:
  DepthwiseConvolution(Library &library, const Command &command)
      : library(library), c(command), s(c), channels(s.groups),
        size(int64_t(elementSize(c.lhs.type))) {
    bool backward = c.kind == CommandKind::conv_backward_data;
    target = backward ? s.in : s.out;
    source = backward ? s.out : s.in;
    for (int axis = 0; axis < 3; ++axis) {
      meetings[axis].resize(size_t(target[axis]));
      for (int64_t o = 0; o < s.out[axis]; ++o)
        for (int64_t k = 0; k < s.kernel[axis]; ++k) {
          int64_t i = o * s.stride[axis] + k * s.dilation[axis] - s.pad_begin[axis];
          if (i < 0 || i >= s.in[axis])
            continue;
          meetings[axis][size_t(backward ? i : o)].push_back({k, backward ? o : i});
        }
    }
    if (c.kind != CommandKind::conv_backward_weights) {
      filter.resize(size_t(s.taps() * channels));
      plain_filter.resize(filter.size());
      line_memory.resize(size_t(library.threads));
      for (Line &line : line_memory) {
        line.sums.resize(size_t(channels));
        line.rows.resize(size_t(s.taps()));
        line.weights.resize(size_t(s.taps()));
      }
    }
    if (c.bias.present)
      bias.resize(size_t(channels));
  }

  void run() override {
    if (c.kind == CommandKind::conv_backward_weights)
      return backwardWeights();
    uint64_t version = library.versionOf(c.rhs);
    if (version == 0 || version != filter_version)
      arrangeFilter();
    filter_version = version;
    if (c.bias.present)
      loadFunction<C>(c.bias.type)(library.at(c.bias.buffer), bias.data(), channels);
    int64_t lines = s.n * target[0] * target[1];
    // Some 10 µs of work for each thread.
    int64_t grain = 1 + 200'000 / std::max<int64_t>(1, target[2] * s.taps() * channels);
    parallelRanges(lines, grain, library.threads, [this](int64_t begin, int64_t end) {
      Line &own = line_memory[size_t(omp_get_thread_num())];
      for (int64_t line = begin; line < end; ++line)
        computeLine(line, own.sums.data(), own.rows.data(), own.weights.data());
    });
  }
  std::string describe() const override {
    return std::string("plain loops (depthwise), ") + kernels().name;
  }
  size_t scratchBytes() const override {
    if (c.kind != CommandKind::conv_backward_weights)
      return 0;
    return alignedBytes(size_t(chunks() * s.taps() * channels) * sizeof(C));
  }
  void bind(std::byte *memory) override { scratch = reinterpret_cast<C *>(memory); }

private:
  // [channels, taps] → [taps, channels], widened.
  void arrangeFilter() {
    loadFunction<C>(c.rhs.type)(library.at(c.rhs.buffer), plain_filter.data(),
                                int64_t(plain_filter.size()));
    for (int64_t ch = 0; ch < channels; ++ch)
      for (int64_t t = 0; t < s.taps(); ++t)
        filter[size_t(t * channels + ch)] = plain_filter[size_t(ch * s.taps() + t)];
  }

  /// A line of the result: the pixels of one image at one depth and height.
  void computeLine(int64_t line, C *sums, const void **rows, const C **weights) const {
    int64_t h = line % target[1], d = line / target[1] % target[0],
            n = line / target[1] / target[0];
    const char *from = reinterpret_cast<const char *>(library.at(c.lhs.buffer));
    char *to = reinterpret_cast<char *>(library.at(c.result.buffer)) +
               line * target[2] * channels * int64_t(elementSize(c.result.type));
    DepthwiseFunction<C> function = depthwiseFunction<C>(c.lhs.type);
    StoreFunction<C> store = storeFunction<C>(c.result.type);
    for (int64_t w = 0; w < target[2]; ++w) {
      int64_t taps = 0;
      for (const Meeting &md : meetings[0][size_t(d)])
        for (const Meeting &mh : meetings[1][size_t(h)]) {
          int64_t start = ((n * source[0] + md.position) * source[1] + mh.position) * source[2];
          int64_t tap = (md.tap * s.kernel[1] + mh.tap) * s.kernel[2];
          for (const Meeting &mw : meetings[2][size_t(w)]) {
            rows[taps] = from + (start + mw.position) * channels * size;
            weights[taps++] = filter.data() + (tap + mw.tap) * channels;
          }
        }
      function(taps, rows, weights, sums, channels);
      if (c.bias.present)
        for (int64_t ch = 0; ch < channels; ++ch)
          sums[ch] += bias[size_t(ch)];
      if (c.relu)
        for (int64_t ch = 0; ch < channels; ++ch)
          sums[ch] = sums[ch] < 0 ? C(0) : sums[ch];
      store(sums, to + w * channels * int64_t(elementSize(c.result.type)), channels);
    }
  }

  int64_t lines() const { return s.n * s.out[0] * s.out[1]; }
  int64_t chunks() const { return std::clamp<int64_t>(lines(), 1, kMaxChunks); }

  void backwardWeights() {
    int64_t count = chunks(), each = s.taps() * channels;
    bool serial = s.multiplications() < 200'000;
    parallelRanges(count, 1, serial ? 1 : library.threads, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        C *sums = scratch + chunk * each;
        std::fill(sums, sums + each, C(0));
        for (int64_t line = lines() * chunk / count; line < lines() * (chunk + 1) / count; ++line)
          addLine(line, sums);
      }
    });
    C *to = reinterpret_cast<C *>(library.at(c.result.buffer));
    for (int64_t t = 0; t < s.taps(); ++t)
      for (int64_t ch = 0; ch < channels; ++ch) {
        C sum = 0;
        for (int64_t chunk = 0; chunk < count; ++chunk)
          sum += scratch[chunk * each + t * channels + ch];
        to[ch * s.taps() + t] = sum;
      }
  }

  void addLine(int64_t line, C *sums) const {
    int64_t h = line % s.out[1], d = line / s.out[1] % s.out[0], n = line / s.out[1] / s.out[0];
    const char *x = reinterpret_cast<const char *>(library.at(c.lhs.buffer));
    const char *y = reinterpret_cast<const char *>(library.at(c.rhs.buffer)) +
                    line * s.out[2] * channels * size;
    DepthwiseSumFunction<C> function = depthwiseSumFunction<C>(c.lhs.type);
    for (const Meeting &md : meetings[0][size_t(d)])
      for (const Meeting &mh : meetings[1][size_t(h)])
        for (int64_t k = 0; k < s.kernel[2]; ++k) {
          // The output columns whose tap k lies inside: 0 ≤ w · stride + offset < width.
          int64_t stride = s.stride[2], offset = k * s.dilation[2] - s.pad_begin[2];
          int64_t first = offset < 0 ? (-offset + stride - 1) / stride : 0;
          int64_t room = s.in[2] - offset;
          int64_t last = std::min(s.out[2], room > 0 ? (room + stride - 1) / stride : 0);
          if (first >= last)
            continue;
          int64_t start = ((n * s.in[0] + md.position) * s.in[1] + mh.position) * s.in[2];
          int64_t tap = (md.tap * s.kernel[1] + mh.tap) * s.kernel[2] + k;
          function(last - first, x + (start + first * stride + offset) * channels * size,
                   stride * channels, y + first * channels * size, channels, sums + tap * channels,
                   channels);
        }
  }

  Library &library;
  Command c;
  ConvolutionShape s;
  int64_t channels, size;
  Triple target, source;
  std::array<Meetings, 3> meetings;
  std::vector<C> filter, plain_filter, bias;
  struct Line { // of one thread
    std::vector<C> sums;
    std::vector<const void *> rows;
    std::vector<const C *> weights;
  };
  std::vector<Line> line_memory;
  uint64_t filter_version = 0;
  C *scratch = nullptr;
};

} // namespace

bool mpc::cpu::isDepthwise(const Command &c) {
  if (c.kind == CommandKind::matmul || c.kind == CommandKind::kernel || !c.channels_last ||
      c.groups < 2)
    return false;
  ConvolutionShape s(c);
  return s.channels == 1 && s.features == 1;
}

std::unique_ptr<LibraryCommand> mpc::cpu::makeDepthwiseConvolution(Library &library,
                                                                   const Command &c) {
  if (c.lhs.type == ElementType::f64)
    return std::make_unique<DepthwiseConvolution<double>>(library, c);
  return std::make_unique<DepthwiseConvolution<float>>(library, c);
}
