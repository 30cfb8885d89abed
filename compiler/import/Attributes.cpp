//===- Attributes.cpp - numbers that no operator has ----------------------===//
//
// ONNX's shape inference and the handlers compute with sizes, axes and counts from the file.
// It cuts some of them to 32 bits and uses others as indices unchecked; so numbers beyond any
// tensor are refused here, before it runs. Sentinels that mean "to the end", labels and plain
// data may be anything.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "llvm/Support/FormatVariadic.h"
#include <cstring>

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;
using llvm::Twine;

namespace {

constexpr int64_t kLargest = (int64_t(1) << 31) - 1;

/// Attributes whose value is clamped, compared or copied, never computed with.
bool mayBeAnything(StringRef op, StringRef attribute) {
  return op == "Constant" || ((op == "Slice" || op == "Shape") && attribute != "axes") ||
         attribute == "ignore_index" || attribute == "seed" || attribute == "pool_int64s";
}

/// Counts and numbers of axes, which shape inference takes for indices.
bool mustNotBeNegative(StringRef op, StringRef attribute) {
  return attribute == "batch_dims" || attribute == "num_scan_inputs" || attribute == "num_groups" ||
         attribute == "group" || attribute == "hidden_size" || (attribute == "k" && op == "TopK");
}

class AttributeChecker {
public:
  AttributeChecker(const OnnxModel &model, Problems &problems) : model(model), problems(problems) {
    for (const onnx::TensorProto &tensor : model.proto.graph().initializer())
      constants[tensor.name()] = &tensor;
  }
  template <typename Nodes> void check(const Nodes &nodes) {
    for (const onnx::NodeProto &node : nodes) {
      if (node.op_type() == "Range" && node.input_size() == 3)
        checkRange(node);
      for (const onnx::AttributeProto &attribute : node.attribute()) {
        if (node.domain().empty())
          check(node, attribute);
        if (node.op_type() == "Constant" && attribute.has_t() && node.output_size() == 1)
          constants[node.output(0)] = &attribute.t();
        if (attribute.has_g())
          check(attribute.g().node());
        for (const onnx::GraphProto &graph : attribute.graphs())
          check(graph.node());
      }
    }
  }

private:
  void check(const onnx::NodeProto &node, const onnx::AttributeProto &attribute) {
    if (mayBeAnything(node.op_type(), attribute.name()))
      return;
    // Shape inference makes a list of that many sizes.
    if (attribute.name() == "num_outputs" && attribute.i() != node.output_size())
      problems.add(node, model.opset(node.domain()),
                   "its attribute num_outputs is " + Twine(attribute.i()) + ", but it has " +
                       Twine(node.output_size()) + " outputs");
    number(node, attribute, attribute.i());
    for (int64_t value : attribute.ints())
      if (!number(node, attribute, value))
        return;
  }
  bool number(const onnx::NodeProto &node, const onnx::AttributeProto &attribute, int64_t value) {
    bool fits = value >= -kLargest && value <= kLargest;
    if (fits && (value >= 0 || !mustNotBeNegative(node.op_type(), attribute.name())))
      return true;
    return problems.add(
        node, model.opset(node.domain()),
        "its attribute " + attribute.name() + " is " + Twine(value) +
            (fits ? ", which must not be negative" : ", beyond the size of any tensor"));
  }
  /// A range becomes a constant, number by number.
  void checkRange(const onnx::NodeProto &node) {
    constexpr double kMostNumbers = 1 << 24;
    std::optional<double> start = scalar(node.input(0)), limit = scalar(node.input(1)),
                          delta = scalar(node.input(2));
    if (start && limit && delta && !((*limit - *start) / *delta <= kMostNumbers))
      problems.add(node, model.opset(node.domain()),
                   "from " + text(*start) + " to " + text(*limit) + " by " + text(*delta) +
                       " are more than 2^24 numbers");
  }
  static std::string text(double value) { return llvm::formatv("{0}", value).str(); }
  /// A constant number of the file.
  std::optional<double> scalar(StringRef name) const {
    const onnx::TensorProto *tensor = constants.lookup(name);
    if (!tensor || elementCount(tensor->dims()) != 1)
      return std::nullopt;
    auto bytes = tensorBytes(*tensor);
    if (!bytes) {
      llvm::consumeError(bytes.takeError());
      return std::nullopt;
    }
    int64_t integer = 0;
    if (isFloatType(tensor->data_type()))
      return floatAt(*bytes, tensor->data_type(), 0);
    std::memcpy(&integer, bytes->data(), bytes->size());
    unsigned unused = 64 - 8 * unsigned(bytes->size());
    return double(int64_t(uint64_t(integer) << unused) >> unused); // its sign
  }
  const OnnxModel &model;
  Problems &problems;
  llvm::StringMap<const onnx::TensorProto *> constants;
};

} // namespace

bool mpc::import::checkAttributes(const OnnxModel &model, Problems &problems) {
  AttributeChecker(model, problems).check(model.proto.graph().node());
  return problems.none();
}
