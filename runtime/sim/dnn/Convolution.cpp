//===- Convolution.cpp - a convolution as the simulated cuDNN computes it -----------------===//
//
// Tensors are widened to float with the channels innermost and three spatial extents. Then each of
// the three is a product result[m, n] = Σ_k left[m, k] · right[n, k] (library/Sums.h), for a group:
//
//                    rows m               columns n    depth k
//   forward          pixels of the y      features     taps × channels
//   backwardData     pixels of the x      channels     taps × features
//   backwardFilter   taps × channels      features     pixels of the y
//
// A panel of the left side is gathered when its turn comes.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/dnn/Convolution.h"
#include "runtime/sim/dnn/Fused.h"
#include "runtime/sim/library/Sums.h"
#include <algorithm>
#include <array>

namespace mpc::sim::dnn {

namespace {
using Place = std::array<int64_t, 3>; ///< spatial; leading entries are 0 where there are two only

int64_t pixels(const Place &extents) { return extents[0] * extents[1] * extents[2]; }

Place place(const Place &extents, int64_t index) {
  return {index / (extents[1] * extents[2]), index / extents[2] % extents[1], index % extents[2]};
}

/// Of a list with an entry per spatial dimension.
Place spatial(const std::vector<int64_t> &list, int64_t otherwise) {
  Place to{otherwise, otherwise, otherwise};
  std::copy(list.begin(), list.end(), to.end() - static_cast<int64_t>(list.size()));
  return to;
}

/// A tensor's extents and strides with three spatial dimensions.
struct Shape {
  int64_t outer = 1, channels = 1; ///< N and C, of a filter K and C/groups
  Place extents{1, 1, 1};
  int64_t outerStride = 0, channelStride = 0;
  Place strides{};

  explicit Shape(const Tensor &t)
      : outer(t.extents[0]), channels(t.extents[1]),
        extents(spatial({t.extents.begin() + 2, t.extents.end()}, 1)), outerStride(t.strides[0]),
        channelStride(t.strides[1]), strides(spatial({t.strides.begin() + 2, t.strides.end()}, 0)) {
  }
  int64_t offset(int64_t n, int64_t c, const Place &at) const {
    return n * outerStride + c * channelStride + at[0] * strides[0] + at[1] * strides[1] +
           at[2] * strides[2];
  }
};

/// [N, D, H, W, C] in float.
struct Wide : Shape {
  std::vector<float> values;

  Wide(const Tensor &t, const void *from, int bits) : Shape(t) {
    Number type = numberOf(t);
    values.reserve(outer * pixels(extents) * channels);
    for (int64_t n = 0; n < outer; ++n)
      for (int64_t p = 0; p < pixels(extents); ++p) {
        int64_t begin = offset(n, 0, place(extents, p));
        for (int64_t c = 0; c < channels; ++c)
          values.push_back(cutTo(bits, loadNumber(type, from, begin + c * channelStride)));
      }
  }
  const float *pixel(int64_t n, const Place &at) const {
    return values.data() +
           (((n * extents[0] + at[0]) * extents[1] + at[1]) * extents[2] + at[2]) * channels;
  }
};

struct Product {
  const Problem &problem;
  Parts parts;
  const Shape x, w, y;
  const Place padding, stride, dilation;
  int64_t taps, groupChannels, groupFeatures;
  std::vector<float> panel;

  Product(const Problem &p, const Parts &parts)
      : problem(p), parts(parts), x(p.x), w(p.w), y(p.y), padding(spatial(p.prePadding, 0)),
        stride(spatial(p.strides, 1)), dilation(spatial(p.dilations, 1)), taps(pixels(w.extents)),
        groupChannels(w.channels), groupFeatures(w.outer / p.groups) {}

  /// The pixel of the input that a pixel of the output meets with a tap. False beside the image.
  bool input(const Place &output, const Place &tap, Place &to) const {
    for (int d = 0; d < 3; ++d) {
      to[d] = output[d] * stride[d] + tap[d] * dilation[d] - padding[d];
      if (to[d] < 0 || to[d] >= x.extents[d])
        return false;
    }
    return true;
  }
  /// The pixel of the output that meets a pixel of the input with a tap. False where none does.
  bool output(const Place &input, const Place &tap, Place &to) const {
    for (int d = 0; d < 3; ++d) {
      int64_t at = input[d] + padding[d] - tap[d] * dilation[d];
      to[d] = at / stride[d];
      if (at < 0 || at % stride[d] != 0 || to[d] >= y.extents[d])
        return false;
    }
    return true;
  }

  /// `gather(m, lane)` fills a lane of the panel, which is all zeros; `take(m, n, sum)`.
  template <typename Gather, typename Take>
  void run(int64_t rows, int64_t columns, int64_t depth, const float *right, Gather gather,
           Take take) {
    for (int64_t m = 0; m < rows; m += kPanel) {
      panel.assign(depth * kPanel, 0);
      for (int64_t i = 0; i < std::min(kPanel, rows - m); ++i)
        gather(m + i, panel.data() + i);
      for (int64_t n = 0; n < columns; n += kTile) {
        const float *row[kTile];
        for (int64_t j = 0; j < kTile; ++j)
          row[j] = right + std::min(n + j, columns - 1) * depth;
        float sums[kTile][kPanel];
        sumTile(parts, panel.data(), row, depth, sums);
        for (int64_t j = 0; j < std::min(kTile, columns - n); ++j)
          for (int64_t i = 0; i < std::min(kPanel, rows - m); ++i)
            take(m + i, n + j, sums[j][i]);
      }
    }
  }

  static void copy(const float *from, int64_t count, float *lane) {
    for (int64_t k = 0; k < count; ++k)
      lane[k * kPanel] = from[k];
  }

  template <typename Take>
  void forward(const Wide &input, const Wide &filter, int64_t group, Take take) {
    int64_t image = pixels(y.extents);
    auto gather = [&](int64_t m, float *lane) {
      Place at = place(y.extents, m % image), from{};
      for (int64_t t = 0; t < taps; ++t, lane += groupChannels * kPanel)
        if (this->input(at, place(w.extents, t), from))
          copy(input.pixel(m / image, from) + group * groupChannels, groupChannels, lane);
    };
    run(y.outer * image, groupFeatures, taps * groupChannels,
        filter.pixel(group * groupFeatures, {}), gather, [&](int64_t m, int64_t n, float sum) {
          take(m / image, group * groupFeatures + n, place(y.extents, m % image), sum);
        });
  }

  template <typename Take>
  void backwardData(const Wide &gradient, const Wide &filter, int64_t group, Take take) {
    int64_t image = pixels(x.extents), depth = taps * groupFeatures;
    std::vector<float> right(groupChannels * depth); // [channel, tap, feature]
    for (int64_t f = 0; f < groupFeatures; ++f)
      for (int64_t t = 0; t < taps; ++t) {
        const float *from = filter.pixel(group * groupFeatures + f, place(w.extents, t));
        for (int64_t c = 0; c < groupChannels; ++c)
          right[c * depth + t * groupFeatures + f] = from[c];
      }
    auto gather = [&](int64_t m, float *lane) {
      Place at = place(x.extents, m % image), from{};
      for (int64_t t = 0; t < taps; ++t, lane += groupFeatures * kPanel)
        if (output(at, place(w.extents, t), from))
          copy(gradient.pixel(m / image, from) + group * groupFeatures, groupFeatures, lane);
    };
    run(x.outer * image, groupChannels, depth, right.data(), gather,
        [&](int64_t m, int64_t n, float sum) {
          take(m / image, group * groupChannels + n, place(x.extents, m % image), sum);
        });
  }

  template <typename Take>
  void backwardFilter(const Wide &input, const Wide &gradient, int64_t group, Take take) {
    int64_t image = pixels(y.extents), depth = y.outer * image;
    std::vector<float> right(groupFeatures * depth); // [feature, pixel]
    for (int64_t p = 0; p < depth; ++p)
      for (int64_t f = 0; f < groupFeatures; ++f)
        right[f * depth + p] = gradient.values[p * y.channels + group * groupFeatures + f];
    auto gather = [&](int64_t m, float *lane) {
      Place tap = place(w.extents, m / groupChannels), from{};
      int64_t channel = group * groupChannels + m % groupChannels;
      for (int64_t p = 0; p < depth; ++p, lane += kPanel)
        if (this->input(place(y.extents, p % image), tap, from))
          *lane = input.pixel(p / image, from)[channel];
    };
    run(taps * groupChannels, groupFeatures, depth, right.data(), gather,
        [&](int64_t m, int64_t n, float sum) {
          take(group * groupFeatures + n, m % groupChannels, place(w.extents, m / groupChannels),
               sum);
        });
  }
};
} // namespace

int64_t Tensor::elements() const {
  int64_t count = 1;
  for (int64_t extent : extents)
    count *= extent;
  return count;
}

int64_t Tensor::span() const {
  int64_t last = 0;
  for (size_t d = 0; d < extents.size(); ++d)
    last += (extents[d] - 1) * strides[d];
  return last + 1;
}

std::optional<Number> numberOf(cudnnDataType_t type) {
  switch (type) {
  case CUDNN_DATA_FLOAT:
    return Number::f32;
  case CUDNN_DATA_HALF:
    return Number::f16;
  case CUDNN_DATA_BFLOAT16:
    return Number::bf16;
  default:
    return std::nullopt;
  }
}

Number numberOf(const Tensor &tensor) { return *numberOf(tensor.dataType); }

int64_t bytesOf(const Tensor &tensor) { return bytesOf(numberOf(tensor)); }

static std::vector<const Tensor *> pointers(const std::vector<Tensor> &tensors) {
  std::vector<const Tensor *> all;
  for (const Tensor &each : tensors)
    all.push_back(&each);
  return all;
}

std::vector<const Tensor *> Problem::results() const {
  return fused ? pointers(fused->outputs) : std::vector<const Tensor *>{&result};
}

std::vector<const Tensor *> Problem::operands() const {
  if (fused)
    return pointers(fused->inputs);
  std::vector<const Tensor *> all;
  if (kind != Kind::backwardData)
    all.push_back(&x);
  if (kind != Kind::backwardFilter)
    all.push_back(&w);
  if (kind != Kind::forward)
    all.push_back(&y);
  if (bias)
    all.push_back(&*bias);
  return all;
}

void convolve(const Problem &p, const Arithmetic &arithmetic, const Addresses &addresses,
              uint64_t run) {
  Parts parts{arithmetic.partDepth, arithmetic.part};
  if (arithmetic.isUnordered)
    parts.first = static_cast<int64_t>(run & 0xFFFF);
  Product product(p, parts);
  const Shape to(p.result);
  const Number type = numberOf(p.result);
  auto take = [&](int64_t n, int64_t c, const Place &at, float value) {
    if (p.bias)
      value += loadNumber(numberOf(*p.bias), addresses.bias, c * p.bias->strides[1]);
    if (p.hasRelu && !(value > 0) && !(p.isNanKept && std::isnan(value)))
      value = 0;
    if (p.hasRelu && value > p.reluMost)
      value = p.reluMost;
    storeNumber(type, addresses.result, to.offset(n, c, at), value);
  };
  auto wide = [&](const Tensor &tensor, const void *from) {
    return Wide(tensor, from, arithmetic.operandBits);
  };
  switch (p.kind) {
  case Kind::forward: {
    const Wide x = wide(p.x, addresses.x), w = wide(p.w, addresses.w);
    for (int64_t group = 0; group < p.groups; ++group)
      product.forward(x, w, group, take);
    break;
  }
  case Kind::backwardData: {
    const Wide y = wide(p.y, addresses.y), w = wide(p.w, addresses.w);
    for (int64_t group = 0; group < p.groups; ++group)
      product.backwardData(y, w, group, take);
    break;
  }
  case Kind::backwardFilter: {
    const Wide x = wide(p.x, addresses.x), y = wide(p.y, addresses.y);
    for (int64_t group = 0; group < p.groups; ++group)
      product.backwardFilter(x, y, group, take);
    break;
  }
  }
}

} // namespace mpc::sim::dnn
