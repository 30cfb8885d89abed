//===- Uses.cpp - what the graph does with an initializer -----------------===//
//
// Tells a weight from a constant by where it arrives: as an operand of an operator that has
// weights, through nodes that only look at it (Reshape, Transpose, Cast, …).
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;

Use mpc::import::operandUse(const onnx::NodeProto &node, int operand) {
  // The operands from 0 on that have a use; the last one counts for all that follow where `more` is
  // set.
  struct Row {
    std::vector<Use> operands;
    bool more = false;
  };
  using enum Use;
  static const llvm::StringMap<Row> standard = {
      {"MatMul", {{weight, weight}}},
      {"Gemm", {{weight, weight, bias}}},
      {"Einsum", {{weight}, true}},
      {"Conv", {{none, weight, bias}}},
      {"ConvTranspose", {{none, weight, bias}}},
      {"DeformConv", {{none, weight, none, bias}}},
      {"BatchNormalization", {{none, scale, bias, mean, variance}}},
      {"InstanceNormalization", {{none, scale, bias}}},
      {"LayerNormalization", {{none, scale, bias}}},
      {"GroupNormalization", {{none, scale, bias}}},
      {"RMSNormalization", {{none, scale}}},
      {"PRelu", {{none, scale}}},
      {"Gather", {{table}}},
      {"RNN", {{none, weight, weight, bias, none, state}}},
      {"GRU", {{none, weight, weight, bias, none, state}}},
      {"LSTM", {{none, weight, weight, bias, none, state, state, weight}}},
      {"Add", {{arithmetic, arithmetic}}},
      {"Sub", {{arithmetic, arithmetic}}},
      {"Mul", {{arithmetic, arithmetic}}},
      {"Div", {{arithmetic, arithmetic}}},
      {"Pow", {{arithmetic, arithmetic}}},
      {"Sum", {{arithmetic}, true}},
      {"Mean", {{arithmetic}, true}},
      // Of parameters alone: exp(logit_scale), sigmoid(gate), softmax(mixture), elu(p).
      {"Abs", {{arithmetic}}},
      {"Celu", {{arithmetic}}},
      {"Clip", {{arithmetic}}},
      {"Elu", {{arithmetic}}},
      {"Exp", {{arithmetic}}},
      {"Gelu", {{arithmetic}}},
      {"HardSigmoid", {{arithmetic}}},
      {"HardSwish", {{arithmetic}}},
      {"LeakyRelu", {{arithmetic}}},
      {"LogSoftmax", {{arithmetic}}},
      {"Mish", {{arithmetic}}},
      {"Neg", {{arithmetic}}},
      {"Relu", {{arithmetic}}},
      {"Selu", {{arithmetic}}},
      {"Sigmoid", {{arithmetic}}},
      {"Softmax", {{arithmetic}}},
      {"Softplus", {{arithmetic}}},
      {"Softsign", {{arithmetic}}},
      {"Tanh", {{arithmetic}}},
  };
  static const llvm::StringMap<Row> microsoft = {
      {"FusedMatMul", {{weight, weight}}},
      {"FusedGemm", {{weight, weight, bias}}},
      {"FusedConv", {{none, weight, bias}}},
      {"BiasGelu", {{none, bias}}},
      {"FastGelu", {{none, bias}}},
      {"LayerNormalization", {{none, scale, bias}}},
      {"SkipLayerNormalization", {{none, none, scale, bias, bias}}},
      {"SimplifiedLayerNormalization", {{none, scale}}},
      {"SkipSimplifiedLayerNormalization", {{none, none, scale, bias}}},
  };
  const llvm::StringMap<Row> *rows = node.domain().empty()              ? &standard
                                     : node.domain() == "com.microsoft" ? &microsoft
                                                                        : nullptr;
  if (!rows)
    return none;
  auto row = rows->find(node.op_type());
  if (row == rows->end())
    return none;
  const Row &found = row->second;
  if (operand < int(found.operands.size()))
    return found.operands[operand];
  return found.more ? found.operands.back() : none;
}

bool mpc::import::isView(const onnx::NodeProto &node, int operand) {
  if (!node.domain().empty())
    return false;
  if (node.op_type() == "Concat")
    return true;
  static const llvm::StringSet<> views = {"Identity",  "Cast",    "CastLike",  "Reshape",
                                          "Transpose", "Squeeze", "Unsqueeze", "Expand",
                                          "Tile",      "Slice"};
  return operand == 0 && views.contains(node.op_type());
}

Uses::Uses(const onnx::GraphProto &graph) { addGraph(graph); }

void Uses::addGraph(const onnx::GraphProto &graph) {
  for (const onnx::NodeProto &node : graph.node()) {
    for (int i = 0; i < node.input_size(); ++i)
      if (!node.input(i).empty())
        edges[node.input(i)].push_back({&node, i});
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      if (attribute.has_g())
        addGraph(attribute.g());
      for (const onnx::GraphProto &inner : attribute.graphs())
        addGraph(inner);
    }
  }
  for (const onnx::ValueInfoProto &output : graph.output())
    outputs.insert(output.name());
}

llvm::ArrayRef<Uses::Edge> Uses::consumers(StringRef value) const {
  auto found = edges.find(value);
  if (found == edges.end())
    return {};
  return found->second;
}

std::vector<Site> Uses::sites(StringRef value) const {
  std::vector<Site> sites;
  llvm::StringSet<> seen; // one view may be reached on several ways
  std::vector<std::string> open = {value.str()};
  while (!open.empty()) {
    std::string name = std::move(open.back());
    open.pop_back();
    if (!seen.insert(name).second)
      continue;
    for (const Edge &edge : consumers(name)) {
      if (isView(*edge.node, edge.operand)) {
        if (edge.node->output_size())
          open.push_back(edge.node->output(0));
        continue;
      }
      sites.push_back({edge.node, edge.operand, operandUse(*edge.node, edge.operand), ""});
    }
  }
  return sites;
}
