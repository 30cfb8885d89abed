//===- Resize.cpp - interpolation ----------------------------------------------------===//
//
// Resize and Upsample are separable: along each axis an output element is a weighted sum of
// a few input elements, whose positions and weights are known at compile time. So every axis
// is a sum of gathers times constants. Enlarging by a whole factor with the nearest element is
// a broadcast, whose gradient is a sum.
//
//===------------------------------------------------------------------------------===//

#include "compiler/ops/Axis.h"
#include "compiler/ops/Build.h"
#include "compiler/ops/OnnxConversion.h"

using namespace mlir;
using namespace mpc;

namespace {
/// What an axis' output elements read: tap t of element i is input element positions[t][i], times
/// weights[t][i].
struct Taps {
  SmallVector<SmallVector<int64_t>> positions;
  SmallVector<SmallVector<double>> weights;
};

struct ResizeMode {
  std::string mode, coordinates, nearest;
  double cubicCoefficient = -0.75;
  bool excludeOutside = false;
};
} // namespace

// Where output element i of an axis lies on the input's scale (ONNX Resize,
// coordinate_transformation_mode).
static double coordinate(const ResizeMode &mode, int64_t i, int64_t from, int64_t to,
                         double scale) {
  if (mode.coordinates == "align_corners")
    return to == 1 ? 0
                   : static_cast<double>(i) * static_cast<double>(from - 1) /
                         static_cast<double>(to - 1);
  if (mode.coordinates == "asymmetric")
    return static_cast<double>(i) / scale;
  double halfPixel = (static_cast<double>(i) + 0.5) / scale - 0.5;
  if (mode.coordinates == "pytorch_half_pixel")
    return to > 1 ? halfPixel : 0;
  if (mode.coordinates == "half_pixel_symmetric")
    return static_cast<double>(from) / 2 *
               (1 - static_cast<double>(to) / (scale * static_cast<double>(from))) +
           halfPixel;
  return halfPixel;
}

static int64_t nearestElement(const ResizeMode &mode, double x) {
  if (mode.nearest == "floor")
    return static_cast<int64_t>(std::floor(x));
  if (mode.nearest == "ceil")
    return static_cast<int64_t>(std::ceil(x));
  return static_cast<int64_t>(mode.nearest == "round_prefer_ceil" ? std::floor(x + 0.5)
                                                                  : std::ceil(x - 0.5));
}

// Keys' cubic convolution with coefficient a, at distance d.
static double cubicWeight(double a, double d) {
  d = std::abs(d);
  if (d <= 1)
    return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

static Taps axisTaps(const ResizeMode &mode, int64_t from, int64_t to, double scale) {
  int64_t count = mode.mode == "nearest" ? 1 : mode.mode == "linear" ? 2 : 4;
  Taps taps{SmallVector<SmallVector<int64_t>>(count), SmallVector<SmallVector<double>>(count)};
  for (int64_t i = 0; i < to; ++i) {
    double x = coordinate(mode, i, from, to, scale);
    int64_t first = count == 1 ? nearestElement(mode, x)
                               : static_cast<int64_t>(std::floor(x)) - (count / 2 - 1);
    SmallVector<double> weights;
    double sum = 0;
    for (int64_t t = 0; t < count; ++t) {
      double distance = x - static_cast<double>(first + t);
      double weight = count == 1   ? 1
                      : count == 2 ? 1 - std::abs(distance)
                                   : cubicWeight(mode.cubicCoefficient, distance);
      if (mode.excludeOutside && (first + t < 0 || first + t >= from))
        weight = 0;
      weights.push_back(weight);
      sum += weight;
    }
    // What is left of the weights inside counts as a whole.
    bool rescaled = mode.excludeOutside && count > 1 && sum != 0;
    for (int64_t t = 0; t < count; ++t) {
      taps.positions[t].push_back(std::clamp<int64_t>(first + t, 0, from - 1));
      taps.weights[t].push_back(rescaled ? weights[t] / sum : weights[t]);
    }
  }
  return taps;
}

// Every element k times: [..., n, ...] → [..., n, k, ...] → [..., n·k, ...].
static Value repeated(NodeContext &node, Value x, int64_t axis, int64_t factor) {
  SmallVector<int64_t> wide(shapeOf(x)), shape(shapeOf(x)), dimensions;
  wide.insert(wide.begin() + axis + 1, factor);
  shape[axis] *= factor;
  for (int64_t d = 0, rank = shape.size(); d < rank; ++d)
    dimensions.push_back(d <= axis ? d : d + 1);
  return reshape(node.b, node.loc, broadcast(node.b, node.loc, x, dimensions, wide), shape);
}

static Value resizedAxis(NodeContext &node, const ResizeMode &mode, Value x, int64_t axis,
                         int64_t to, double scale) {
  OpBuilder &b = node.b;
  int64_t from = shapeOf(x)[axis];
  Taps taps = axisTaps(mode, from, to, scale);
  bool whole = taps.positions.size() == 1 && to % from == 0;
  for (int64_t i = 0; whole && i < to; ++i)
    whole = taps.positions[0][i] == i / (to / from);
  if (whole)
    return repeated(node, x, axis, to / from);

  SmallVector<int64_t> shape(shapeOf(x));
  shape[axis] = to;
  auto type = RankedTensorType::get(shape, elementType(x));
  Value sum;
  for (auto [positions, weights] : llvm::zip_equal(taps.positions, taps.weights)) {
    auto indexType = RankedTensorType::get({to}, b.getI64Type());
    Value indices = arith::ConstantOp::create(
        b, node.loc, DenseElementsAttr::get(indexType, ArrayRef<int64_t>(positions)));
    Value term = b.createOrFold<GatherOp>(node.loc, type, x, indices, axis);
    if (taps.positions.size() == 1)
      return term;
    SmallVector<Attribute> values;
    for (double weight : weights)
      values.push_back(b.getFloatAttr(elementType(x), weight));
    Value factors = arith::ConstantOp::create(
        b, node.loc, DenseElementsAttr::get(RankedTensorType::get({to}, elementType(x)), values));
    term = mul(b, node.loc, term, broadcast(b, node.loc, factors, {axis}, shape));
    sum = sum ? add(b, node.loc, sum, term) : term;
  }
  return sum;
}

//===----------------------------------------------------------------------===//
// Reading the node
//===----------------------------------------------------------------------===//

// Upsample and Resize before opset 11: positions divide by the scale, the nearest element is the
// one before.
static LogicalResult readMode(NodeContext &node, ResizeMode &mode) {
  bool old = node.version() < 11;
  mode.mode = node.stringAttr("mode", "nearest");
  mode.coordinates =
      old ? "asymmetric" : node.stringAttr("coordinate_transformation_mode", "half_pixel");
  mode.nearest = old ? "floor" : node.stringAttr("nearest_mode", "round_prefer_floor");
  mode.cubicCoefficient = node.floatAttr("cubic_coeff_a", -0.75);
  mode.excludeOutside = node.intAttr("exclude_outside", 0);
  if (mode.mode == "bilinear")
    mode.mode = "linear";
  if (mode.mode != "nearest" && mode.mode != "linear" && mode.mode != "cubic")
    return node.unsupported() << "mode " << mode.mode
                              << " is not supported; nearest, linear and cubic are";
  static constexpr StringLiteral known[] = {"half_pixel", "half_pixel_symmetric",
                                            "pytorch_half_pixel", "align_corners", "asymmetric"};
  if (!llvm::is_contained(known, mode.coordinates))
    return node.unsupported() << "coordinate_transformation_mode " << mode.coordinates
                              << " is not supported";
  if (node.intAttr("antialias", 0))
    return node.unsupported() << "antialias = 1 is not supported";
  return success();
}

/// The whole number below; large ones stay far from what 64 bits hold.
static int64_t wholeSize(double size) {
  return static_cast<int64_t>(std::floor(std::min(size, 0x1p60)));
}

static std::optional<SmallVector<double>> readScales(NodeContext &node, unsigned operand) {
  DenseElementsAttr elements = node.constant(operand);
  if (!elements || !elements.getElementType().isF32()) {
    node.unsupported()
        << "scales must be known at compile time; make them an initializer or a constant";
    return std::nullopt;
  }
  SmallVector<double> scales;
  for (float scale : elements.getValues<float>()) {
    if (!(scale > 0)) {
      node.error() << "has the scale " << scale;
      return std::nullopt;
    }
    scales.push_back(scale);
  }
  return scales;
}

// The sizes of `axes` from the operand `sizes`; with keep_aspect_ratio_policy they bound one common
// scale.
static bool sizesToScales(NodeContext &node, Value x, ArrayRef<int64_t> axes,
                          SmallVector<int64_t> &sizes, SmallVector<double> &scales) {
  std::string policy = node.stringAttr("keep_aspect_ratio_policy", "stretch");
  for (auto [axis, size] : llvm::zip_equal(axes, sizes))
    scales.push_back(static_cast<double>(size) / static_cast<double>(shapeOf(x)[axis]));
  if (policy == "stretch")
    return true;
  if (policy != "not_larger" && policy != "not_smaller") {
    node.unsupported() << "keep_aspect_ratio_policy " << policy << " is not supported";
    return false;
  }
  double common = policy == "not_larger" ? *llvm::min_element(scales) : *llvm::max_element(scales);
  for (auto [axis, size, scale] : llvm::zip_equal(axes, sizes, scales)) {
    scale = common;
    size = wholeSize(common * static_cast<double>(shapeOf(x)[axis]) + 0.5);
  }
  return true;
}

// Which operand holds the scales and which the sizes, by version.
static LogicalResult readTargets(NodeContext &node, Value x, SmallVector<int64_t> &axes,
                                 SmallVector<int64_t> &sizes, SmallVector<double> &scales) {
  bool upsample = node.type() == "Upsample";
  axes = node.intsAttr("axes").value_or(llvm::to_vector(llvm::seq<int64_t>(0, shapeOf(x).size())));
  for (int64_t &axis : axes) {
    std::optional<int64_t> normalized = normalizedAxis(node, axis, shapeOf(x).size());
    if (!normalized)
      return failure();
    axis = *normalized;
  }
  if (!upsample && node.has(3)) {
    std::optional<SmallVector<int64_t>> given = node.integers(3);
    if (!given)
      return failure();
    sizes = *given;
  } else {
    std::optional<SmallVector<double>> given;
    if (upsample && node.version() < 9) {
      auto attribute = dyn_cast_if_present<DenseF32ArrayAttr>(node.attr("scales"));
      given.emplace();
      if (attribute)
        llvm::append_range(*given, attribute.asArrayRef());
    } else {
      given = readScales(node, node.version() < 11 ? 1 : 2);
    }
    if (!given)
      return failure();
    scales = *given;
  }
  if (scales.empty() ? sizes.size() != axes.size() : scales.size() != axes.size())
    return node.error() << "has " << std::max(sizes.size(), scales.size())
                        << " scales or sizes for " << axes.size() << " axes";
  if (scales.empty())
    return success(sizesToScales(node, x, axes, sizes, scales));
  for (auto [axis, scale] : llvm::zip_equal(axes, scales))
    sizes.push_back(wholeSize(static_cast<float>(shapeOf(x)[axis]) * static_cast<float>(scale)));
  return success();
}

static LogicalResult convertResize(NodeContext &node) {
  Value x = node.operand(0);
  ResizeMode mode;
  SmallVector<int64_t> axes, sizes;
  SmallVector<double> scales;
  if (!x || failed(readMode(node, mode)) || failed(readTargets(node, x, axes, sizes, scales)))
    return failure();
  if (mode.mode != "nearest" && !isa<FloatType>(elementType(x)))
    return node.error() << "interpolates floats, not " << x.getType();
  // Weighted sums of halves are f32, over all axes, and rounded once.
  Type element = elementType(x);
  if (mode.mode != "nearest")
    x = widen(node.b, node.loc, x);
  for (auto [axis, size, scale] : llvm::zip_equal(axes, sizes, scales)) {
    constexpr int64_t kMostPositions = 1 << 20; // a constant each, with their weights
    if (size > kMostPositions)
      return node.error() << "resizes axis " << axis << " to " << size << " elements; at most "
                          << kMostPositions << " are supported";
    if (size < 1 || shapeOf(x)[axis] < 1)
      return node.error() << "resizes axis " << axis << " from " << shapeOf(x)[axis] << " to "
                          << size << " elements";
    if (size != shapeOf(x)[axis] || scale != 1)
      x = resizedAxis(node, mode, x, axis, size, scale);
  }
  return node.results({castTo(node.b, node.loc, x, element)});
}

namespace mpc {
void registerResizeHandlers(OnnxRegistry &r) {
  r.add("Resize", {10, 11, 13, 18, 19}, convertResize);
  r.add("Upsample", {7, 9}, convertResize);
}
} // namespace mpc
