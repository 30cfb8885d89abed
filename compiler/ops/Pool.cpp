//===- Pool.cpp - max and average pooling ------------------------------------===//
//
// Verifiers and derivatives of the pools, and the ONNX operators MaxPool, AveragePool and
// their global forms. max_pool saves the winner's place in its window, in a byte where that
// suffices, so that its gradient goes to one element per window: the first of ties.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/ConvShape.h"

using namespace mlir;
using namespace mpc;

//===----------------------------------------------------------------------===//
// The operations
//===----------------------------------------------------------------------===//

template <typename Op> static LogicalResult verifyPool(Op op) {
  ArrayRef<int64_t> input = shapeOf(op.getInput()), output = shapeOf(op.getResult());
  if (input.size() < 3 || input.size() != output.size())
    return op.emitOpError("needs an operand and a result of one rank, 3 or more");
  if (elementType(op.getInput()) != elementType(op.getResult()))
    return op.emitOpError("changes the element type");
  ImageLayout layout{op.getChannelsLast()};
  Window window{SmallVector<int64_t>(op.getKernel()), SmallVector<int64_t>(op.getStrides()),
                SmallVector<int64_t>(op.getPads()), SmallVector<int64_t>(op.getDilations())};
  if (failed(verifyWindow(op, layout.spatial(input), window)))
    return failure();
  if (input[0] != output[0] || layout.channels(input) != layout.channels(output))
    return op.emitOpError("changes the number of samples or channels");
  ArrayRef<int64_t> outputs = layout.spatial(output);
  if (outputs != ArrayRef<int64_t>(windowOutputs(layout.spatial(input), window, false)) &&
      outputs != ArrayRef<int64_t>(windowOutputs(layout.spatial(input), window, true)))
    return op.emitOpError("has a result of type ")
           << op.getResult().getType() << ", which is not what its window makes of "
           << op.getInput().getType();
  return success();
}

/// Places in a window of up to 255 elements are bytes; all bits set is none of them.
static Type indexType(MLIRContext *context, ArrayRef<int64_t> kernel) {
  return IntegerType::get(context, llvm::product_of(kernel) <= 255 ? 8 : 32);
}

LogicalResult MaxPoolOp::verify() {
  Type index = indexType(getContext(), getKernel());
  if (getIndex().getType() != tensorType(getResult()).clone(index))
    return emitOpError("needs an index of the result's shape and type ")
           << index << ", not " << getIndex().getType();
  return verifyPool(*this);
}

LogicalResult AveragePoolOp::verify() {
  if (!isa<FloatType>(elementType(getInput())))
    return emitOpError("averages floats, not ") << elementType(getInput());
  return verifyPool(*this);
}

SmallVector<Value> MaxPoolOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0])
    return {Value()};
  auto type = tensorType(getInput()).clone(wanted[0]);
  return {MaxPoolGradOp::create(b, getLoc(), type, cotangents[0], getIndex(), getKernel(),
                                getStrides(), getPads(), getDilations(), getChannelsLast())};
}

SmallVector<Value> AveragePoolOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  if (!cotangents[0] || !wanted[0])
    return {Value()};
  auto type = tensorType(getInput()).clone(wanted[0]);
  return {AveragePoolGradOp::create(b, getLoc(), type, cotangents[0], getKernel(), getStrides(),
                                    getPads(), getDilations(), getChannelsLast(),
                                    getCountIncludePad())};
}

//===----------------------------------------------------------------------===//
// ONNX
//===----------------------------------------------------------------------===//

// Reads the window and the result's type; nullopt after an error.
static std::optional<std::pair<Window, RankedTensorType>> readPool(NodeContext &node, Value x) {
  ArrayRef<int64_t> input = shapeOf(x);
  if (input.size() < 3) {
    node.error() << "needs an input [N, C, spatial...], not " << x.getType();
    return std::nullopt;
  }
  std::optional<SmallVector<int64_t>> kernel = node.intsAttr("kernel_shape");
  if (!kernel) {
    node.error() << "the attribute kernel_shape is missing";
    return std::nullopt;
  }
  std::optional<Window> window = readWindow(node, input.drop_front(2), *kernel);
  if (!window)
    return std::nullopt;
  // With auto_pad the output size is given by it: floor of a padded size that divides.
  std::string mode = node.stringAttr("auto_pad", "NOTSET");
  bool ceil = node.intAttr("ceil_mode", 0) && (mode == "NOTSET" || mode == "VALID");
  SmallVector<int64_t> outputs = windowOutputs(input.drop_front(2), *window, ceil);
  if (llvm::any_of(outputs, [](int64_t size) { return size < 1; })) {
    node.error() << "the window is larger than the padded input " << x.getType();
    return std::nullopt;
  }
  for (int64_t d = 0; d < window->rank(); ++d)
    if (std::max(window->pads[d], window->pads[d + window->rank()]) >=
        windowSpan(window->kernel[d], window->dilations[d])) {
      node.error() << "has pads as wide as its window in spatial dimension " << d
                   << ", so that a window would be empty";
      return std::nullopt;
    }
  return std::pair(
      *window,
      RankedTensorType::get(ImageLayout{false}.shape(input[0], input[1], outputs), elementType(x)));
}

static Value maxPool(NodeContext &node, Value x, const Window &window, RankedTensorType type) {
  Type index = indexType(node.b.getContext(), window.kernel);
  return MaxPoolOp::create(node.b, node.loc, type, type.clone(index), x, window.kernel,
                           window.strides, window.pads, window.dilations,
                           /*channels_last=*/false)
      .getResult();
}

static Value averagePool(NodeContext &node, Value x, const Window &window, RankedTensorType type,
                         bool countIncludePad) {
  return AveragePoolOp::create(node.b, node.loc, type, x, window.kernel, window.strides,
                               window.pads, window.dilations,
                               /*channels_last=*/false, countIncludePad);
}

static LogicalResult convertMaxPool(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  if (node.resultUsed(1))
    return node.unsupported() << "the output Indices is not supported; use the model without it";
  if (node.intAttr("storage_order", 0))
    return node.unsupported() << "storage_order = 1 is not supported";
  auto pool = readPool(node, x);
  if (!pool)
    return failure();
  return node.results({maxPool(node, x, pool->first, pool->second)});
}

static LogicalResult convertAveragePool(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  if (!isa<FloatType>(elementType(x)))
    return node.error() << "averages floats, not " << x.getType();
  auto pool = readPool(node, x);
  if (!pool)
    return failure();
  return node.results(
      {averagePool(node, x, pool->first, pool->second, node.intAttr("count_include_pad", 0))});
}

// One window over all of the spatial dimensions.
static LogicalResult convertGlobalPool(NodeContext &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  ArrayRef<int64_t> input = shapeOf(x);
  bool average = node.type() == "GlobalAveragePool";
  if (input.size() < 3 || input.size() > 5 || (average && !isa<FloatType>(elementType(x))))
    return node.error() << "needs an input [N, C, spatial...] with 1 to 3 spatial dimensions, not "
                        << x.getType();
  size_t rank = input.size() - 2;
  Window window{SmallVector<int64_t>(input.drop_front(2)), SmallVector<int64_t>(rank, 1),
                SmallVector<int64_t>(2 * rank, 0), SmallVector<int64_t>(rank, 1)};
  auto type = RankedTensorType::get(
      ImageLayout{false}.shape(input[0], input[1], SmallVector<int64_t>(rank, 1)), elementType(x));
  return node.results(
      {average ? averagePool(node, x, window, type, false) : maxPool(node, x, window, type)});
}

namespace mpc {
void registerResizeHandlers(OnnxRegistry &r); // Resize.cpp
}

void mpc::registerPoolHandlers(OnnxRegistry &r) {
  r.add("MaxPool", {1, 8, 10, 11, 12, 22}, convertMaxPool);
  r.add("AveragePool", {1, 7, 10, 11, 19, 22}, convertAveragePool);
  r.add("GlobalAveragePool", {1, 22}, convertGlobalPool);
  r.add("GlobalMaxPool", {1, 22}, convertGlobalPool);
  registerResizeHandlers(r);
}
