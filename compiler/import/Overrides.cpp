//===- Overrides.cpp - which nodes --keep-fp32 and --allow-half mean ------===//
//
// Both options name nodes or tensors. Only the file has the names of all tensors: a node that
// makes a tensor of that name is found here, and passes know it by its own name. Initializers are
// arguments, which passes find by their names.
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
  explicit NodeFinder(const std::string &text) : regex(text) {}

  void find(const onnx::GraphProto &graph) {
    for (const onnx::ValueInfoProto &input : graph.input())
      matches(input.name());
    for (const onnx::TensorProto &tensor : graph.initializer())
      matches(tensor.name());
    for (const onnx::NodeProto &node : graph.node()) {
      std::string name = nodeName(node);
      bool byOutput = false;
      for (const std::string &output : node.output())
        byOutput |= !output.empty() && matches(output);
      if (!matches(name) && byOutput)
        nodes.push_back(name);
      for (const onnx::AttributeProto &attribute : node.attribute()) {
        if (attribute.has_g())
          find(attribute.g());
        for (const onnx::GraphProto &inner : attribute.graphs())
          find(inner);
      }
    }
  }

  bool any = false;               ///< some name matches
  std::vector<std::string> nodes; ///< that only the name of a result tells

private:
  bool matches(StringRef name) {
    bool found = regex.match(name);
    any |= found;
    return found;
  }
  llvm::Regex regex;
};

} // namespace

void mpc::import::findOverrides(const OnnxModel &model, const ImportOptions &options,
                                Overrides &overrides, Problems &problems) {
  auto find = [&](StringRef option, const std::vector<std::string> &texts,
                  std::vector<std::string> &nodes) {
    for (const std::string &text : texts) {
      NodeFinder finder(text);
      finder.find(model.proto.graph());
      if (!finder.any)
        problems.add(option + "='" + text + "' matches the name of no node and no tensor");
      nodes.insert(nodes.end(), finder.nodes.begin(), finder.nodes.end());
    }
  };
  find("--keep-fp32", options.keepFp32, overrides.keepFp32);
  find("--allow-half", options.allowHalf, overrides.allowHalf);
}
