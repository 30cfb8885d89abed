//===- Conv.cpp - convolutions and their gradients --------------------------------------===//
//
// mpc.conv, conv_backward_data and conv_backward_weights: verifiers, derivatives and cost, and
// the ONNX operators Conv and ConvTranspose (which is the gradient of a convolution with
// respect to its input). The filter is [M, C/groups, kernel...] whatever the layout.
//
//===--------------------------------------------------------------------------------===//

#include "compiler/ops/ConvShape.h"

using namespace mlir;
using namespace mpc;

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

// All three operations relate an input, a filter and an output (gradient) of one convolution.
template <typename Op>
static LogicalResult verifyConvolution(Op op, Value inputValue, Value filterValue,
                                       Value outputValue) {
  ArrayRef<int64_t> input = shapeOf(inputValue), filter = shapeOf(filterValue),
                    output = shapeOf(outputValue);
  if (input.size() < 3 || input.size() > 5 || filter.size() != input.size() ||
      output.size() != input.size())
    return op.emitOpError("needs an input, a filter and an output of one rank, 3 to 5");
  ImageLayout layout{op.getChannelsLast()};
  Window window{SmallVector<int64_t>(filter.drop_front(2)), SmallVector<int64_t>(op.getStrides()),
                SmallVector<int64_t>(op.getPads()), SmallVector<int64_t>(op.getDilations())};
  if (failed(verifyWindow(op, layout.spatial(input), window)))
    return failure();
  int64_t groups = op.getGroups(), c = layout.channels(input), m = layout.channels(output);
  if (groups < 1 || c % groups || m % groups)
    return op.emitOpError("has ") << groups << " groups, which do not divide " << c << " and " << m
                                  << " channels";
  if (filter[0] != m || filter[1] != c / groups)
    return op.emitOpError("needs a filter [")
           << m << ", " << c / groups << ", kernel...], not " << filterValue.getType();
  if (input[0] != output[0] ||
      layout.spatial(output) != ArrayRef<int64_t>(windowOutputs(layout.spatial(input), window)))
    return op.emitOpError("has an output of type ")
           << outputValue.getType() << ", which is not what its window makes of "
           << inputValue.getType();
  return success();
}

static LogicalResult verifyOperandTypes(Operation *op, Value a, Value b) {
  if (!isa<FloatType>(elementType(a)) || elementType(a) != elementType(b))
    return op->emitOpError("needs two operands of one floating-point type, has ")
           << elementType(a) << " and " << elementType(b);
  return success();
}

LogicalResult ConvOp::verify() {
  Type element = elementType(getInput()), result = elementType(getResult());
  if (failed(verifyOperandTypes(*this, getInput(), getFilter())) ||
      failed(verifyConvolution(*this, getInput(), getFilter(), getResult())))
    return failure();
  if (result != element && result != computeType(element))
    return emitOpError("makes ") << result << " of " << element
                                 << "; the result has the operands' type or f32";
  if (getBias() && (shapeOf(getBias()) != ArrayRef<int64_t>(shapeOf(getFilter())[0]) ||
                    elementType(getBias()) != element))
    return emitOpError("needs a bias of ") << shapeOf(getFilter())[0] << " elements of type "
                                           << element << ", not " << getBias().getType();
  return success();
}

LogicalResult ConvBackwardDataOp::verify() {
  Type element = elementType(getFilter()), result = elementType(getResult());
  if (failed(verifyOperandTypes(*this, getOutputGradient(), getFilter())) ||
      failed(verifyConvolution(*this, getResult(), getFilter(), getOutputGradient())))
    return failure();
  if (result != element && result != computeType(element))
    return emitOpError("makes ") << result << " of " << element
                                 << "; the result has the operands' type or f32";
  return success();
}

LogicalResult ConvBackwardWeightsOp::verify() {
  if (failed(verifyOperandTypes(*this, getInput(), getOutputGradient())) ||
      failed(verifyConvolution(*this, getInput(), getResult(), getOutputGradient())))
    return failure();
  if (elementType(getResult()) != computeType(elementType(getInput())))
    return emitOpError("makes ") << elementType(getResult())
                                 << "; the gradient of a filter is f32 (f64 of f64)";
  return success();
}

//===----------------------------------------------------------------------===//
// Cost: every output element is a sum over a filter's C/groups · kernel.
//===----------------------------------------------------------------------===//

static int64_t convolutionFlops(Value output, ArrayRef<int64_t> filter) {
  return 2 * tensorType(output).getNumElements() * llvm::product_of(filter.drop_front());
}
int64_t ConvOp::flops() { return convolutionFlops(getResult(), shapeOf(getFilter())); }
int64_t ConvBackwardDataOp::flops() {
  return convolutionFlops(getOutputGradient(), shapeOf(getFilter()));
}
int64_t ConvBackwardWeightsOp::flops() {
  return convolutionFlops(getOutputGradient(), shapeOf(getResult()));
}

//===----------------------------------------------------------------------===//
// Derivatives
//===----------------------------------------------------------------------===//

template <typename Op>
static Value backwardWeights(OpBuilder &b, Op op, Value input, Value outputGradient,
                             ArrayRef<int64_t> filterShape, Type wanted) {
  auto type = RankedTensorType::get(filterShape, computeType(elementType(input)));
  Value gradient = ConvBackwardWeightsOp::create(b, op.getLoc(), type, input, outputGradient,
                                                 op.getStrides(), op.getPads(), op.getDilations(),
                                                 op.getGroups(), op.getChannelsLast());
  return castTo(b, op.getLoc(), gradient, wanted);
}

SmallVector<Value> ConvOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  SmallVector<Value> gradients(getNumOperands());
  if (!cotangents[0])
    return gradients;
  Value g = castTo(b, getLoc(), cotangents[0], elementType(getInput()));
  if (wanted[0]) {
    Value d =
        ConvBackwardDataOp::create(b, getLoc(), getInput().getType(), g, getFilter(), getStrides(),
                                   getPads(), getDilations(), getGroups(), getChannelsLast());
    gradients[0] = castTo(b, getLoc(), d, wanted[0]);
  }
  if (wanted[1])
    gradients[1] = backwardWeights(b, *this, getInput(), g, shapeOf(getFilter()), wanted[1]);
  if (getBias() && wanted[2]) {
    int64_t rank = shapeOf(g).size(), channels = ImageLayout{getChannelsLast()}.channelAxis(rank);
    SmallVector<int64_t> axes;
    for (int64_t d = 0; d < rank; ++d)
      if (d != channels)
        axes.push_back(d);
    Value sum = reduce(b, getLoc(), ReductionKind::sum, cotangents[0], axes,
                       computeType(elementType(cotangents[0])));
    gradients[2] = castTo(b, getLoc(), sum, wanted[2]);
  }
  return gradients;
}

// Linear in both operands: with a cotangent c of the (input-shaped) result, the output gradient's
// gradient is conv(c, filter), and the filter's is that of a convolution of c whose output gradient
// is the operand.
SmallVector<Value> ConvBackwardDataOp::vjp(OpBuilder &b, ValueRange cotangents,
                                           ArrayRef<Type> wanted) {
  SmallVector<Value> gradients(2);
  if (!cotangents[0])
    return gradients;
  Value c = castTo(b, getLoc(), cotangents[0], elementType(getFilter()));
  if (wanted[0]) {
    Value d = ConvOp::create(b, getLoc(), getOutputGradient().getType(), c, getFilter(), Value(),
                             getStrides(), getPads(), getDilations(), getGroups(),
                             getChannelsLast(), /*relu=*/false);
    gradients[0] = castTo(b, getLoc(), d, wanted[0]);
  }
  if (wanted[1])
    gradients[1] =
        backwardWeights(b, *this, c, getOutputGradient(), shapeOf(getFilter()), wanted[1]);
  return gradients;
}

//===----------------------------------------------------------------------===//
// ONNX
//===----------------------------------------------------------------------===//

// What Conv and ConvTranspose share: ranks, types, kernel_shape.
static bool checkOperands(NodeContext &node, Value x, Value w) {
  if (!isa<FloatType>(elementType(x)) || elementType(x) != elementType(w)) {
    node.error() << "convolves " << x.getType() << " with " << w.getType()
                 << "; both must have one floating-point type";
    return false;
  }
  ArrayRef<int64_t> filter = shapeOf(w);
  if (filter.size() < 3 || filter.size() > 5 || shapeOf(x).size() != filter.size()) {
    node.error() << "has an input of rank " << shapeOf(x).size() << " and a filter of rank "
                 << filter.size() << "; convolutions over 1 to 3 spatial dimensions are supported";
    return false;
  }
  if (std::optional<SmallVector<int64_t>> kernel = node.intsAttr("kernel_shape");
      kernel && ArrayRef<int64_t>(*kernel) != filter.drop_front(2)) {
    node.error() << "kernel_shape is not the filter's, which is " << w.getType();
    return false;
  }
  return true;
}

static LogicalResult convertConv(NodeContext &node) {
  Value x = node.operand(0), w = node.operand(1), bias;
  if (!x || !w || !checkOperands(node, x, w))
    return failure();
  ArrayRef<int64_t> input = shapeOf(x), filter = shapeOf(w);
  int64_t groups = node.intAttr("group", 1), m = filter[0];
  if (groups < 1 || input[1] != filter[1] * groups || m % groups)
    return node.error() << "has " << input[1] << " channels, a filter of type " << w.getType()
                        << " and group = " << groups << ", which do not fit";
  std::optional<Window> window = readWindow(node, input.drop_front(2), filter.drop_front(2));
  if (!window)
    return failure();
  if (node.has(2)) {
    bias = node.operand(2);
    if (shapeOf(bias) != ArrayRef<int64_t>(m) || elementType(bias) != elementType(x))
      return node.error() << "has a bias of type " << bias.getType() << " for " << m << " channels";
  }
  SmallVector<int64_t> outputs = windowOutputs(input.drop_front(2), *window);
  if (llvm::any_of(outputs, [](int64_t size) { return size < 1; }))
    return node.error() << "the kernel is larger than the padded input " << x.getType();
  auto type = RankedTensorType::get(ImageLayout{false}.shape(input[0], m, outputs), elementType(x));
  return node.results({ConvOp::create(node.b, node.loc, type, x, w, bias, window->strides,
                                      window->pads, window->dilations, groups,
                                      /*channels_last=*/false, /*relu=*/false)});
}

// Output sizes: stride · (input - 1) + output_padding + span - pads. With output_shape (or SAME) it
// is the pads that follow from the sizes.
static LogicalResult transposedOutputs(NodeContext &node, ArrayRef<int64_t> input, Window &window,
                                       SmallVector<int64_t> &outputs) {
  int64_t rank = window.rank();
  SmallVector<int64_t> zeros(rank, 0), extra = node.intsAttr("output_padding").value_or(zeros);
  std::optional<SmallVector<int64_t>> wanted = node.intsAttr("output_shape");
  std::string mode = node.stringAttr("auto_pad", "NOTSET");
  bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (static_cast<int64_t>(extra.size()) != rank ||
      (wanted && static_cast<int64_t>(wanted->size()) != rank))
    return node.error() << "output_padding or output_shape does not fit " << rank
                        << " spatial dimensions";
  for (int64_t d = 0; d < rank; ++d) {
    int64_t stride = window.strides[d], full = stride * (input[d] - 1) + extra[d] +
                                               windowSpan(window.kernel[d], window.dilations[d]);
    if (!wanted && !same) {
      outputs.push_back(full - window.pads[d] - window.pads[d + rank]);
    } else {
      outputs.push_back(wanted ? (*wanted)[d] : input[d] * stride);
      int64_t total = std::max<int64_t>(full - outputs[d], 0), small = total / 2;
      window.pads[d] = mode == "SAME_UPPER" ? small : total - small;
      window.pads[d + rank] = mode == "SAME_UPPER" ? total - small : small;
    }
  }
  // The convolution whose gradient this is must make the input of the output.
  if (windowOutputs(outputs, window) != SmallVector<int64_t>(input))
    return node.error() << "output_padding or output_shape asks for a size that no convolution "
                           "with these strides reads";
  return success();
}

static LogicalResult convertConvTranspose(NodeContext &node) {
  Value x = node.operand(0), w = node.operand(1);
  if (!x || !w || !checkOperands(node, x, w))
    return failure();
  ArrayRef<int64_t> input = shapeOf(x), filter = shapeOf(w);
  int64_t groups = node.intAttr("group", 1), m = filter[1] * groups;
  if (groups < 1 || input[1] != filter[0] || filter[0] % groups)
    return node.error() << "has " << input[1] << " channels, a filter of type " << w.getType()
                        << " and group = " << groups << ", which do not fit";
  std::optional<Window> window = readWindow(node, input.drop_front(2), filter.drop_front(2));
  SmallVector<int64_t> outputs;
  if (!window || failed(transposedOutputs(node, input.drop_front(2), *window, outputs)))
    return failure();
  // With a bias the sum of halves stays f32 until that is added.
  auto type = RankedTensorType::get(ImageLayout{false}.shape(input[0], m, outputs),
                                    node.has(2) ? computeType(elementType(x)) : elementType(x));
  Value y = ConvBackwardDataOp::create(node.b, node.loc, type, x, w, window->strides, window->pads,
                                       window->dilations, groups,
                                       /*channels_last=*/false);
  if (node.has(2)) {
    Value bias = node.operand(2);
    if (shapeOf(bias) != ArrayRef<int64_t>(m) || elementType(bias) != elementType(x))
      return node.error() << "has a bias of type " << bias.getType() << " for " << m << " channels";
    bias = widen(node.b, node.loc, bias);
    y = add(node.b, node.loc, y, broadcast(node.b, node.loc, bias, {1}, type.getShape()));
  }
  return node.results({castTo(node.b, node.loc, y, elementType(x))});
}

void mpc::registerConvHandlers(OnnxRegistry &r) {
  r.add("Conv", {1, 11, 22}, convertConv);
  r.add("ConvTranspose", {1, 11, 22}, convertConvTranspose);
}
