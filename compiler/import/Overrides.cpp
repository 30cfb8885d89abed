//===- Overrides.cpp - which nodes --keep-fp32 and --allow-half mean ------===//
//
// Both options name nodes or tensors. Only the file has the names of all tensors: a node that
// makes a tensor of that name, or reads a constant of it, is found here, and passes know it by its
// own name. Other initializers are arguments, which passes find by their names; a constant that
// stands in the text may be one with others that have its value.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "llvm/Support/Regex.h"

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;

namespace {

class NodeFinder {
public:
  NodeFinder(const std::string &text, const Roles &roles, const Uses &uses)
      : regex(text), roles(roles), uses(uses) {}

  void find(const onnx::GraphProto &graph) {
    for (const onnx::ValueInfoProto &input : graph.input())
      matches(input.name());
    for (const onnx::TensorProto &tensor : graph.initializer())
      if (matches(tensor.name()) && isFloatType(tensor.data_type()) && isConstant(tensor.name()))
        addReaders(tensor.name());
    for (const onnx::NodeProto &node : graph.node()) {
      std::string name = nodeName(node);
      bool byOutput = false;
      for (const std::string &output : node.output())
        byOutput |= !output.empty() && matches(output);
      bool byName = matches(name);
      if ((byOutput || byName) && isFloatConstant(node))
        addReaders(node.output(0));
      else if (byOutput && !byName)
        nodes.insert(name);
      for (const onnx::AttributeProto &attribute : node.attribute()) {
        if (attribute.has_g())
          find(attribute.g());
        for (const onnx::GraphProto &inner : attribute.graphs())
          find(inner);
      }
    }
  }

  bool any = false; ///< some name matches
  /// That only the name of a result tells, or of a constant that they read.
  std::set<std::string> nodes;

private:
  bool isConstant(const std::string &initializer) {
    auto found = roles.of.find(initializer);
    return found != roles.of.end() && found->second == InitializerRole::constant;
  }

  static bool isFloatConstant(const onnx::NodeProto &node) {
    if (!node.domain().empty() || node.op_type() != "Constant" || node.attribute_size() != 1 ||
        node.output_size() != 1)
      return false;
    const onnx::AttributeProto &value = node.attribute(0);
    return value.name() == "value_float" || value.name() == "value_floats" ||
           (value.name() == "value" && isFloatType(value.t().data_type()));
  }

  /// The nodes that read a constant, also through casts and index maps.
  void addReaders(StringRef constant) {
    if (!constants.insert(constant).second)
      return;
    for (const Uses::Edge &edge : uses.consumers(constant)) {
      // A Concat makes one tensor of it and of others.
      bool isSame = isView(*edge.node, edge.operand) && edge.node->op_type() != "Concat" &&
                    edge.node->output_size() > 0;
      nodes.insert(nodeName(*edge.node));
      if (isSame)
        addReaders(edge.node->output(0));
    }
  }

  bool matches(StringRef name) {
    bool found = regex.match(name);
    any |= found;
    return found;
  }
  llvm::Regex regex;
  const Roles &roles;
  const Uses &uses;
  llvm::StringSet<> constants; ///< whose readers are found
};

} // namespace

void mpc::import::findOverrides(const OnnxModel &model, const Roles &roles,
                                const ImportOptions &options, Overrides &overrides,
                                Problems &problems) {
  Uses uses(model.proto.graph());
  auto find = [&](StringRef option, const std::vector<std::string> &texts,
                  std::vector<std::string> &nodes) {
    for (const std::string &text : texts) {
      NodeFinder finder(text, roles, uses);
      finder.find(model.proto.graph());
      if (!finder.any)
        problems.add(option + "='" + text + "' matches the name of no node and no tensor");
      nodes.insert(nodes.end(), finder.nodes.begin(), finder.nodes.end());
    }
  };
  find("--keep-fp32", options.keepFp32, overrides.keepFp32);
  find("--allow-half", options.allowHalf, overrides.allowHalf);
}
