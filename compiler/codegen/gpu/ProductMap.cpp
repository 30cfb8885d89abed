//===- ProductMap.cpp - where the elements of a product lie ----------------------------===//
//
// A batch of products per group of a convolution (t: taps of the kernel, c: channels of the
// group, f: features of the group, pixels of all images):
//
//   forward           result[pixel, f]   = Σ_(t,c) patch(pixel, (t,c)) · filter[f, c, t]
//   gradient, input   result[pixel, c]   = Σ_(t,f) dY met by (pixel, t) [f] · filter[f, c, t]
//   gradient, filter  result[f, (t,c)]   = Σ_pixel dY[pixel, f] · patch(pixel, (t,c))
//
// Channels last, the channel varies fastest wherever it is part of an index, as in memory;
// channels first, pixels are columns and (c,t) stands in the place of (t,c). The filter's own
// order is [f, c, t] whatever the layout: channels last, a copy in the order of the depth is
// made first, unless the pixels are too few to be worth it.
//
//===----------------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/ProductMap.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace mpc::gpu {

/// A convolution, its gradient or not. `image` is the larger side, `output` what the window makes.
struct ProductMap::Convolution {
  template <typename Op> Convolution(Op op, Value image, Value filter, Value output);

  using Index = SmallVector<Affine, 3>;
  int64_t images, groups, channels, features, taps, imagePixels, outputPixels;
  SmallVector<int64_t, 3> image, output, kernel, stride, dilation, pad; ///< per spatial dimension
  bool channelsLast;
  bool isPointwise = false; ///< one tap that meets every pixel: nothing spatial is left

  /// The index of channel `channel` (of all `channels`) of a pixel.
  Affine activation(const Affine &image, const Affine &pixel, const Affine &channel,
                    int64_t channels, int64_t pixels) const {
    return channelsLast ? (image * pixels + pixel) * channels + channel
                        : (image * channels + channel) * pixels + pixel;
  }
  /// Takes (t,c) or (c,t) apart, `taps` being the extents of t.
  std::pair<Affine, Index> channelAndTap(GpuEmitter &e, const Affine &at, int64_t channels,
                                         ArrayRef<int64_t> taps) const;
  std::pair<Affine, Index> channelAndTap(GpuEmitter &e, const Affine &at, int64_t channels) const {
    return channelAndTap(e, at, channels, kernel);
  }
  Affine filter(const Affine &group, const Affine &f, const Affine &c, const Index &tap) const {
    return ((group * features + f) * channels + c) * taps + IndexSpace::join(tap, kernel);
  }
  /// Where element `at` of a filter [f, (t,c)], of all groups, is in one that is stored.
  Affine storedAt(GpuEmitter &e, const Affine &at) const {
    auto [f, k] = e.divide(at, channels * taps);
    auto [channel, tap] = channelAndTap(e, k, channels);
    return filter(0, f, channel, tap);
  }
  Affine ofOutput(GpuEmitter &e, const Affine &group, const Affine &pixel, const Affine &f) const {
    auto [n, p] = e.divide(pixel, outputPixels);
    return activation(n, p, group * features + f, groups * features, outputPixels);
  }
  /// What tap `tap` of the window of output pixel `pixel` reads.
  ProductElement patch(GpuEmitter &e, const Affine &group, const Affine &pixel, const Affine &c,
                       const Index &tap) const;
};

template <typename Op>
ProductMap::Convolution::Convolution(Op op, Value imageValue, Value filterValue, Value outputValue)
    : groups(op.getGroups()), channelsLast(op.getChannelsLast()) {
  ArrayRef<int64_t> in = tensorShape(imageValue), weights = tensorShape(filterValue),
                    out = tensorShape(outputValue);
  auto spatial = [&](ArrayRef<int64_t> shape) {
    return shape.slice(channelsLast ? 1 : 2, shape.size() - 2);
  };
  images = in[0];
  features = weights[0] / groups;
  channels = weights[1];
  image.assign(spatial(in).begin(), spatial(in).end());
  output.assign(spatial(out).begin(), spatial(out).end());
  kernel.assign(weights.begin() + 2, weights.end());
  stride.assign(op.getStrides().begin(), op.getStrides().end());
  dilation.assign(op.getDilations().begin(), op.getDilations().end());
  pad.assign(op.getPads().begin(), op.getPads().begin() + kernel.size());
  taps = elementsOf(kernel);
  imagePixels = elementsOf(image);
  outputPixels = elementsOf(output);
  auto all = [](ArrayRef<int64_t> values, int64_t value) {
    return llvm::all_of(values, [&](int64_t x) { return x == value; });
  };
  if (taps == 1 && all(stride, 1) && all(op.getPads(), 0)) {
    isPointwise = true;
    image = output = {imagePixels};
    kernel = stride = dilation = {1};
    pad = {0};
  }
}

std::pair<Affine, ProductMap::Convolution::Index>
ProductMap::Convolution::channelAndTap(GpuEmitter &e, const Affine &at, int64_t channels,
                                       ArrayRef<int64_t> taps) const {
  SmallVector<int64_t> shape(taps);
  shape.insert(channelsLast ? shape.end() : shape.begin(), channels);
  SmallVector<Affine> indices = e.split(at, shape);
  ArrayRef<Affine> tap(indices);
  tap = channelsLast ? tap.drop_back() : tap.drop_front();
  return {channelsLast ? indices.back() : indices.front(), Index(tap.begin(), tap.end())};
}

//   position = stride · o + dilation · tap - pad, which exists inside of the image
ProductElement ProductMap::Convolution::patch(GpuEmitter &e, const Affine &group,
                                              const Affine &pixel, const Affine &c,
                                              const Index &tap) const {
  auto [n, p] = e.divide(pixel, outputPixels);
  SmallVector<Affine> o = e.split(p, output), position;
  Value exists;
  for (size_t d = 0; d < kernel.size(); ++d) {
    position.push_back(o[d] * stride[d] + tap[d] * dilation[d] + Affine(-pad[d]));
    exists = e.both(exists, e.inside(position[d], image[d]), e.depth());
  }
  return {activation(n, IndexSpace::join(position, image), group * channels + c, groups * channels,
                     imagePixels),
          exists};
}

/// The gradient of a convolution's image. Where the stride divides the image, its pixels come in
/// phases, each a product of the batch: pixels of one phase meet the same taps, every stride-th
/// one, and no others are multiplied. Elsewhere all taps are, those that meet no output by zero.
struct ProductMap::ImageGradient : Convolution {
  explicit ImageGradient(const Convolution &convolution);

  // Per spatial dimension: a pixel is at q · phases + phase, for q below `lattice`; a phase has up
  // to `steps` taps.
  SmallVector<int64_t, 3> phases, lattice, steps;

  int64_t batch() const { return groups * elementsOf(phases); }
  int64_t pixels() const { return images * elementsOf(lattice); }
  int64_t depth() const { return features * elementsOf(steps); }
  bool hasPhases() const { return elementsOf(phases) > 1; }

  /// (group, phase) of the batch.
  std::pair<Affine, Index> phaseOf(GpuEmitter &e, const Affine &b) const {
    SmallVector<int64_t> shape{groups};
    shape.append(phases.begin(), phases.end());
    SmallVector<Affine> index = e.split(b, shape);
    return {index[0], Index(index.begin() + 1, index.end())};
  }
  /// (image, q) of a pixel.
  std::pair<Affine, Index> placeOf(GpuEmitter &e, const Affine &pixel) const {
    SmallVector<int64_t> shape{images};
    shape.append(lattice.begin(), lattice.end());
    SmallVector<Affine> index = e.split(pixel, shape);
    return {index[0], Index(index.begin() + 1, index.end())};
  }
  /// A tap of the kernel that the depth stands for, in a phase.
  struct Tap {
    Affine feature;
    Index step, at;
    Value exists;
  };
  Tap tapOf(GpuEmitter &e, const Index &phase, const Affine &k) const;
  /// The output whose window meets a pixel with a tap.
  ProductElement met(GpuEmitter &e, const Affine &b, const Affine &pixel, const Affine &k) const;
  ProductElement filterAt(GpuEmitter &e, const Affine &b, const Affine &c, const Affine &k,
                          bool packed) const;
  Affine resultAt(GpuEmitter &e, const Affine &b, const Affine &pixel, const Affine &c) const;
};

ProductMap::ImageGradient::ImageGradient(const Convolution &convolution)
    : Convolution(convolution) {
  for (size_t d = 0; d < kernel.size(); ++d) {
    bool divides = dilation[d] == 1 && kernel[d] > 1 && image[d] % stride[d] == 0;
    phases.push_back(divides ? stride[d] : 1);
    lattice.push_back(image[d] / phases[d]);
    steps.push_back(llvm::divideCeil(kernel[d], phases[d]));
  }
}

//   tap = (phase + pad) mod stride + stride · step
ProductMap::ImageGradient::Tap ProductMap::ImageGradient::tapOf(GpuEmitter &e, const Index &phase,
                                                                const Affine &k) const {
  auto [f, step] = channelAndTap(e, k, features, steps);
  Tap tap{f, step, {}, {}};
  for (size_t d = 0; d < kernel.size(); ++d) {
    Affine first = e.divide(phase[d] + Affine(pad[d]), phases[d]).second;
    tap.at.push_back(first + step[d] * phases[d]);
    tap.exists = e.both(tap.exists, e.inside(tap.at[d], kernel[d]), e.depth());
  }
  return tap;
}

//   stride · o = i + pad - dilation · tap, where that is a multiple of the stride; in a phase it is
//   one: o = q + (phase + pad) / stride - step
ProductElement ProductMap::ImageGradient::met(GpuEmitter &e, const Affine &b, const Affine &pixel,
                                              const Affine &k) const {
  auto [group, phase] = phaseOf(e, b);
  auto [n, q] = placeOf(e, pixel);
  Tap tap = tapOf(e, phase, k);
  SmallVector<Affine> position;
  Value exists = tap.exists;
  for (size_t d = 0; d < kernel.size(); ++d) {
    if (phases[d] > 1) {
      Affine whole = e.divide(phase[d] + Affine(pad[d]), phases[d]).first;
      position.push_back(q[d] + whole - tap.step[d]);
    } else {
      auto [o, rest] = e.divide(q[d] + Affine(pad[d]) - tap.at[d] * dilation[d], stride[d]);
      position.push_back(o);
      exists = e.both(exists, e.inside(rest, 1), e.depth());
    }
    exists = e.both(exists, e.inside(position[d], output[d]), e.depth());
  }
  return {activation(n, IndexSpace::join(position, output), group * features + tap.feature,
                     groups * features, outputPixels),
          exists};
}

/// `packed`: of the copy, which is [group, (t,f), c].
ProductElement ProductMap::ImageGradient::filterAt(GpuEmitter &e, const Affine &b, const Affine &c,
                                                   const Affine &k, bool packed) const {
  auto [group, phase] = phaseOf(e, b);
  if (packed && !hasPhases())
    return {(group * (features * taps) + k) * channels + c, {}};
  Tap tap = tapOf(e, phase, k);
  Affine t = IndexSpace::join(tap.at, kernel);
  return {packed ? (group * (features * taps) + t * features + tap.feature) * channels + c
                 : filter(group, tap.feature, c, tap.at),
          tap.exists};
}

Affine ProductMap::ImageGradient::resultAt(GpuEmitter &e, const Affine &b, const Affine &pixel,
                                           const Affine &c) const {
  auto [group, phase] = phaseOf(e, b);
  auto [n, q] = placeOf(e, pixel);
  SmallVector<Affine> position;
  for (size_t d = 0; d < kernel.size(); ++d)
    position.push_back(q[d] * phases[d] + phase[d]);
  return activation(n, IndexSpace::join(position, image), group * channels + c, groups * channels,
                    imagePixels);
}

/// Elements of a 16-byte piece at most.
static int64_t pieceWidth(int64_t neighbors, Type element) {
  return dividing(neighbors, 16 / storedBytes(element));
}

// Pixels for which a filter is copied: each of its elements is then read by so many tiles that the
// copy is a small part of the time.
constexpr int64_t kPackedPixels = 1024;

bool ProductMap::packs(const Convolution &c, int64_t pixels) const {
  return c.channelsLast && c.taps > 1 && pieceWidth(c.channels, element) > 1 &&
         pixels >= kPackedPixels;
}

// What a thread has registers for: taps times features of a channel; fewer of them as sums.
constexpr int64_t kMostDepthwise = 64, kMostDepthwiseFeatures = 4, kMostDepthwiseSums = 28;

int64_t ProductMap::depthwiseGroupsOf(const Convolution &c) {
  bool isDepthwise = c.channelsLast && c.groups > 1 && c.channels == 1 &&
                     c.features <= kMostDepthwiseFeatures && c.features * c.taps <= kMostDepthwise;
  return isDepthwise ? c.groups : 0;
}

int64_t ProductMap::packedBytes() const {
  return llvm::alignTo(packedElements * storedBytes(element), 64);
}

/// Columns that a thread stores together at most.
static int64_t storedWidth(int64_t neighbors) { return dividing(neighbors, 4); }

ProductMap::ProductMap(Operation *command) {
  element = getElementTypeOrSelf(command->getOperand(0).getType());
  result = getElementTypeOrSelf(command->getResult(0).getType());
  accumulator = accumulatorType(element, result);
  Value a = command->getOperand(0), b = command->getOperand(1), out = command->getResult(0);
  hasBias = command->getNumOperands() > 2;
  if (auto op = dyn_cast<MatmulOp>(command)) {
    readMatmul(op);
  } else if (auto op = dyn_cast<ConvOp>(command)) {
    relu = op.getRelu();
    readForward(Convolution(op, a, b, out));
  } else if (auto op = dyn_cast<ConvBackwardDataOp>(command)) {
    readBackwardData(ImageGradient(Convolution(op, out, b, a)));
  } else {
    readBackwardWeights(Convolution(cast<ConvBackwardWeightsOp>(command), a, out, b));
  }
}

void ProductMap::readMatmul(MatmulOp op) {
  ArrayRef<int64_t> lhs = tensorShape(op.getLhs()), out = tensorShape(op.getResult());
  bool transposeLhs = op.getTransposeLhs(), transposeRhs = op.getTransposeRhs();
  batch = elementsOf(out.drop_back(2));
  rows = out.drop_back().back();
  columns = out.back();
  depth = transposeLhs ? lhs.drop_back().back() : lhs.back();
  auto side = [&](unsigned operand, int64_t outers, bool alongDepth) {
    ProductSide side{operand, alongDepth, pieceWidth(alongDepth ? depth : outers, element), {}};
    side.at = [outers, alongDepth, depth = depth](GpuEmitter &, const Affine &b,
                                                  const Affine &outer, const Affine &k) {
      return ProductElement{
          alongDepth ? (b * outers + outer) * depth + k : (b * depth + k) * outers + outer, {}};
    };
    return side;
  };
  left = side(0, rows, !transposeLhs);
  right = side(1, columns, transposeRhs);
  relu = op.getRelu();
  resultWidth = storedWidth(columns);
  resultAt = [rows = rows, columns = columns](GpuEmitter &, const Affine &b, const Affine &row,
                                              const Affine &column) {
    return (b * rows + row) * columns + column;
  };
}

void ProductMap::readForward(const Convolution &c) {
  ProductSide patches{0, c.channelsLast, 1, {}}, filter{1, true, 1, {}};
  patches.width =
      pieceWidth(c.channelsLast ? c.channels : (c.isPointwise ? c.outputPixels : 1), element);
  patches.at = [c](GpuEmitter &e, const Affine &group, const Affine &pixel, const Affine &k) {
    auto [channel, tap] = c.channelAndTap(e, k, c.channels);
    return c.patch(e, group, pixel, channel, tap);
  };
  filter.width =
      pieceWidth(c.channelsLast ? (c.taps == 1 ? c.channels : 1) : c.channels * c.taps, element);
  filter.at = [c](GpuEmitter &e, const Affine &group, const Affine &f, const Affine &k) {
    auto [channel, tap] = c.channelAndTap(e, k, c.channels);
    return ProductElement{c.filter(group, f, channel, tap), {}};
  };
  batch = c.groups;
  depthwiseGroups = depthwiseGroupsOf(c);
  depth = c.channels * c.taps;
  int64_t pixels = c.images * c.outputPixels;
  if (packs(c, pixels)) { // [group, f, (t,c)]
    filter.operand = kPacked;
    filter.width = pieceWidth(c.channels, element);
    filter.at = [c](GpuEmitter &, const Affine &group, const Affine &f, const Affine &k) {
      return ProductElement{(group * c.features + f) * (c.channels * c.taps) + k, {}};
    };
    packedElements = c.groups * c.features * depth;
    packedFrom = [c](GpuEmitter &e, const Affine &at) { return c.storedAt(e, at); };
  }
  rows = c.channelsLast ? pixels : c.features;
  columns = c.channelsLast ? c.features : pixels;
  left = c.channelsLast ? patches : filter;
  right = c.channelsLast ? filter : patches;
  biasPerRow = !c.channelsLast;
  biasStride = c.features;
  resultWidth = storedWidth(c.channelsLast ? c.features : c.outputPixels);
  resultAt = [c](GpuEmitter &e, const Affine &group, const Affine &row, const Affine &column) {
    return c.channelsLast ? c.ofOutput(e, group, row, column) : c.ofOutput(e, group, column, row);
  };
}

void ProductMap::readBackwardData(const ImageGradient &c) {
  ProductSide gradients{0, c.channelsLast, 1, {}}, filter{1, false, 1, {}};
  gradients.width =
      pieceWidth(c.channelsLast ? c.features : (c.isPointwise ? c.imagePixels : 1), element);
  gradients.at = [c](GpuEmitter &e, const Affine &b, const Affine &pixel, const Affine &k) {
    return c.met(e, b, pixel, k);
  };
  // With several taps nothing is contiguous; the least strides are the taps', then the channels'.
  filter.alongDepth = !c.channelsLast && c.taps > 1;
  filter.width = pieceWidth(c.taps == 1 ? c.channels : 1, element);
  bool packed = packs(c, c.images * c.imagePixels);
  if (packed) {
    filter.operand = kPacked;
    filter.width = pieceWidth(c.channels, element);
    packedElements = c.groups * c.features * c.taps * c.channels;
    packedFrom = [c](GpuEmitter &e, const Affine &at) {
      SmallVector<Affine> index = e.split(at, {c.groups, c.features * c.taps, c.channels});
      auto [f, tap] = c.channelAndTap(e, index[1], c.features);
      return c.filter(index[0], f, index[2], tap);
    };
  }
  filter.at = [c, packed](GpuEmitter &e, const Affine &b, const Affine &channel, const Affine &k) {
    return c.filterAt(e, b, channel, k, packed);
  };
  batch = c.batch();
  depthwiseGroups = depthwiseGroupsOf(c);
  depth = c.depth();
  rows = c.channelsLast ? c.pixels() : c.channels;
  columns = c.channelsLast ? c.channels : c.pixels();
  left = c.channelsLast ? gradients : filter;
  right = c.channelsLast ? filter : gradients;
  resultWidth = storedWidth(c.channelsLast ? c.channels : (c.hasPhases() ? 1 : c.imagePixels));
  resultAt = [c](GpuEmitter &e, const Affine &b, const Affine &row, const Affine &column) {
    return c.channelsLast ? c.resultAt(e, b, row, column) : c.resultAt(e, b, column, row);
  };
}

void ProductMap::readBackwardWeights(const Convolution &c) {
  batch = c.groups;
  depthwiseGroups = depthwiseGroupsOf(c);
  sumsPixels = true;
  tapsTogether = c.taps;
  for (size_t d = 0; c.features * tapsTogether > kMostDepthwiseSums && d + 1 < c.kernel.size(); ++d)
    tapsTogether /= c.kernel[d];
  rows = c.features;
  columns = c.channels * c.taps;
  depth = c.images * c.outputPixels;
  left = {1, !c.channelsLast, pieceWidth(c.channelsLast ? c.features : c.outputPixels, element),
          [c](GpuEmitter &e, const Affine &group, const Affine &f, const Affine &pixel) {
            return ProductElement{c.ofOutput(e, group, pixel, f), {}};
          }};
  right = {0, !c.channelsLast,
           pieceWidth(c.channelsLast ? c.channels : (c.isPointwise ? c.outputPixels : 1), element),
           [c](GpuEmitter &e, const Affine &group, const Affine &column, const Affine &pixel) {
             auto [channel, tap] = c.channelAndTap(e, column, c.channels);
             return c.patch(e, group, pixel, channel, tap);
           }};
  resultWidth = storedWidth(c.channelsLast ? (c.taps == 1 ? c.channels : 1) : c.channels * c.taps);
  resultAt = [c](GpuEmitter &e, const Affine &group, const Affine &row, const Affine &column) {
    auto [channel, tap] = c.channelAndTap(e, column, c.channels);
    return c.filter(group, row, channel, tap);
  };
  if (c.channelsLast && c.taps > 1 && c.channels > 1) {
    unpackedElements = batch * rows * columns;
    unpackedTo = [c](GpuEmitter &e, const Affine &at) { return c.storedAt(e, at); };
  }
}

} // namespace mpc::gpu
