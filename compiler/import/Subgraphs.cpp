//===- Subgraphs.cpp - branches and bodies of control flow ----------------===//
//
// Initializers of subgraphs become initializers of the graph, which a subgraph may read: a
// parameter is then found, named and exported in one place. An `If` whose condition is known
// is replaced by the nodes of its branch, before shapes are inferred, since the two branches
// may have results of different ranks.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include <functional>

using namespace mpc;
using namespace mpc::import;
using llvm::StringMap;
using llvm::StringRef;
using llvm::StringSet;

namespace {

template <typename Visit> void forEachSubgraph(const onnx::NodeProto &node, Visit visit) {
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    if (attribute.has_g())
      visit(attribute.g());
    for (const onnx::GraphProto &graph : attribute.graphs())
      visit(graph);
  }
}

template <typename Visit> void forEachMutableSubgraph(onnx::NodeProto &node, const Visit &visit) {
  for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
    if (attribute.has_g())
      visit(*attribute.mutable_g());
    for (onnx::GraphProto &graph : *attribute.mutable_graphs())
      visit(graph);
  }
}

std::optional<bool> booleanScalar(const onnx::TensorProto &tensor) {
  if (elementCount(tensor.dims()) != 1 || tensor.data_type() != onnx::TensorProto::BOOL)
    return std::nullopt;
  auto bytes = tensorBytes(tensor);
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return std::nullopt;
  }
  return (*bytes)[0] != 0;
}

/// Boolean scalars of the main graph whose value the file tells.
class KnownConditions {
public:
  explicit KnownConditions(const onnx::GraphProto &graph) {
    for (const onnx::TensorProto &tensor : graph.initializer())
      if (auto value = booleanScalar(tensor))
        known[tensor.name()] = *value;
  }
  /// To be called for every node, in order.
  void visit(const onnx::NodeProto &node) {
    if (!node.domain().empty() || node.output_size() != 1)
      return;
    if (node.op_type() == "Constant" && node.attribute_size() == 1 && node.attribute(0).has_t()) {
      if (auto value = booleanScalar(node.attribute(0).t()))
        known[node.output(0)] = *value;
      return;
    }
    static const StringSet<> copies = {"Identity", "Squeeze", "Unsqueeze", "Reshape", "Not"};
    auto operand = node.input_size() ? known.find(node.input(0)) : known.end();
    if (operand != known.end() && copies.contains(node.op_type()))
      known[node.output(0)] = operand->second != (node.op_type() == "Not");
  }
  /// The attribute that is the branch an If takes; empty: not known, or no If.
  StringRef branch(const onnx::NodeProto &node) const {
    if (!node.domain().empty() || node.op_type() != "If" || node.input_size() != 1)
      return "";
    auto condition = known.find(node.input(0));
    return condition == known.end() ? "" : condition->second ? "then_branch" : "else_branch";
  }

private:
  StringMap<bool> known;
};

} // namespace

std::string mpc::import::nodeName(const onnx::NodeProto &node) {
  if (!node.name().empty())
    return node.name();
  for (const std::string &output : node.output())
    if (!output.empty())
      return output;
  return node.op_type();
}

namespace {

void rename(std::string &name, const StringMap<std::string> &names) {
  if (auto found = names.find(name); found != names.end())
    name = found->second;
}

void renameValues(onnx::GraphProto &graph, const StringMap<std::string> &names, bool definitions) {
  for (onnx::NodeProto &node : *graph.mutable_node())
    mpc::import::renameValues(node, names, definitions);
  for (onnx::ValueInfoProto &output : *graph.mutable_output())
    rename(*output.mutable_name(), names);
  if (definitions)
    for (onnx::ValueInfoProto &info : *graph.mutable_value_info())
      rename(*info.mutable_name(), names);
}

} // namespace

void mpc::import::renameValues(onnx::NodeProto &node, const StringMap<std::string> &names,
                               bool definitions) {
  for (std::string &name : *node.mutable_input())
    rename(name, names);
  if (definitions)
    for (std::string &name : *node.mutable_output())
      rename(name, names);
  forEachMutableSubgraph(
      node, [&](onnx::GraphProto &inner) { ::renameValues(inner, names, definitions); });
}

void mpc::import::collectNames(const onnx::GraphProto &graph, StringSet<> &names) {
  for (const onnx::ValueInfoProto &input : graph.input())
    names.insert(input.name());
  for (const onnx::TensorProto &tensor : graph.initializer())
    names.insert(tensor.name());
  for (const onnx::NodeProto &node : graph.node()) {
    for (const std::string &name : node.input())
      names.insert(name);
    for (const std::string &name : node.output())
      names.insert(name);
    forEachSubgraph(node, [&](const onnx::GraphProto &inner) { collectNames(inner, names); });
  }
}

std::string mpc::import::uniqueName(StringRef name, StringSet<> &names) {
  std::string unique = name.str();
  for (unsigned i = 2; !names.insert(unique).second; ++i)
    unique = (name + "__" + llvm::Twine(i)).str();
  return unique;
}

std::vector<const onnx::ValueInfoProto *> mpc::import::trueInputs(const onnx::GraphProto &graph) {
  StringSet<> initializers;
  for (const onnx::TensorProto &tensor : graph.initializer())
    initializers.insert(tensor.name());
  std::vector<const onnx::ValueInfoProto *> inputs;
  for (const onnx::ValueInfoProto &input : graph.input())
    if (!initializers.contains(input.name()))
      inputs.push_back(&input);
  return inputs;
}

void mpc::import::hoistSubgraphInitializers(OnnxModel &model) {
  onnx::GraphProto &graph = *model.proto.mutable_graph();
  StringSet<> names;
  collectNames(graph, names);
  // A name may stand in several subgraphs; the first keeps it.
  StringSet<> taken;
  for (const onnx::TensorProto &tensor : graph.initializer())
    taken.insert(tensor.name());
  std::function<void(onnx::GraphProto &)> hoist = [&](onnx::GraphProto &inner) {
    for (onnx::NodeProto &node : *inner.mutable_node())
      forEachMutableSubgraph(node, hoist);
    StringSet<> inputs;
    for (const onnx::ValueInfoProto &input : inner.input())
      inputs.insert(input.name());
    StringMap<std::string> renamed;
    StringSet<> hoistedNames;
    for (onnx::TensorProto &tensor : *inner.mutable_initializer()) {
      if (inputs.contains(tensor.name()))
        continue; // a default that the caller always overrides
      std::string name = tensor.name();
      if (!taken.insert(name).second) {
        name = uniqueName(name, names);
        taken.insert(name);
        renamed[tensor.name()] = name;
      }
      if (model.proto.ir_version() < 4) { // where every initializer is an input too
        onnx::ValueInfoProto &input = *graph.add_input();
        input.set_name(name);
        input.mutable_type()->mutable_tensor_type()->set_elem_type(tensor.data_type());
        auto *shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
        for (int64_t dim : tensor.dims())
          shape->add_dim()->set_dim_value(dim);
      }
      onnx::TensorProto &hoisted = *graph.add_initializer();
      hoisted.Swap(&tensor);
      hoisted.set_name(name);
      hoistedNames.insert(name);
    }
    inner.clear_initializer();
    if (!renamed.empty())
      ::renameValues(inner, renamed, false);
    // A subgraph's output must be made in it.
    for (onnx::ValueInfoProto &output : *inner.mutable_output()) {
      if (!hoistedNames.contains(output.name()))
        continue;
      onnx::NodeProto &identity = *inner.add_node();
      identity.set_op_type("Identity");
      identity.add_input(output.name());
      identity.add_output(uniqueName(output.name() + "_output", names));
      identity.set_name(identity.output(0));
      output.set_name(identity.output(0));
    }
  };
  // Both branches of an If may use a name; the one that is known to be taken keeps it.
  KnownConditions conditions(graph);
  for (onnx::NodeProto &node : *graph.mutable_node()) {
    StringRef taken = conditions.branch(node);
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g() && attribute.name() == taken)
        hoist(*attribute.mutable_g());
    forEachMutableSubgraph(node, hoist);
    conditions.visit(node);
  }
}

namespace {

/// Inlines `If` nodes of the main graph.
class ConditionInliner {
public:
  explicit ConditionInliner(OnnxModel &model)
      : graph(*model.proto.mutable_graph()), conditions(graph) {
    countDefinitions(graph, 1);
    collectNames(graph, names);
  }
  void run();

private:
  void countDefinitions(const onnx::GraphProto &scope, int change);
  void append(onnx::NodeProto &node);
  void inlineBranch(const onnx::NodeProto &node, onnx::GraphProto &branch);

  onnx::GraphProto &graph;
  KnownConditions conditions;
  StringMap<int> definitions;
  StringSet<> names;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> result;
};

} // namespace

void ConditionInliner::countDefinitions(const onnx::GraphProto &scope, int change) {
  for (const onnx::ValueInfoProto &input : scope.input())
    definitions[input.name()] += change;
  for (const onnx::TensorProto &tensor : scope.initializer())
    definitions[tensor.name()] += change;
  for (const onnx::NodeProto &node : scope.node()) {
    for (const std::string &name : node.output())
      definitions[name] += change;
    forEachSubgraph(node, [&](const onnx::GraphProto &inner) { countDefinitions(inner, change); });
  }
}

void ConditionInliner::append(onnx::NodeProto &node) {
  StringRef taken = conditions.branch(node);
  onnx::GraphProto branch;
  bool found = false;
  for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
    if (taken.empty() || !attribute.has_g())
      continue;
    if (attribute.name() != taken) {
      countDefinitions(attribute.g(), -1); // this one goes
      continue;
    }
    branch.Swap(attribute.mutable_g());
    found = true;
  }
  if (found)
    return inlineBranch(node, branch);
  conditions.visit(node);
  result.Add()->Swap(&node);
}

void ConditionInliner::inlineBranch(const onnx::NodeProto &node, onnx::GraphProto &branch) {
  // Branches of different nodes may use the same names inside.
  StringMap<std::string> renamed;
  for (const onnx::NodeProto &inner : branch.node())
    for (const std::string &name : inner.output())
      if (!name.empty() && definitions.lookup(name) > 1 && !renamed.count(name))
        renamed[name] = uniqueName(name, names);
  ::renameValues(branch, renamed, true);
  for (onnx::ValueInfoProto &info : *branch.mutable_value_info())
    graph.add_value_info()->Swap(&info);
  for (onnx::NodeProto &inner : *branch.mutable_node())
    append(inner);
  for (int i = 0; i < node.output_size() && i < branch.output_size(); ++i) {
    if (node.output(i).empty())
      continue;
    onnx::NodeProto identity;
    identity.set_op_type("Identity");
    identity.set_name(node.name().empty() ? node.output(i) : node.name());
    identity.add_input(branch.output(i).name());
    identity.add_output(node.output(i));
    append(identity);
  }
}

void ConditionInliner::run() {
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  nodes.Swap(graph.mutable_node());
  for (onnx::NodeProto &node : nodes)
    append(node);
  graph.mutable_node()->Swap(&result);
}

void mpc::import::inlineConstantConditions(OnnxModel &model) { ConditionInliner(model).run(); }
