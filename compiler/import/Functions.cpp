//===- Functions.cpp - calls of functions become their nodes --------------===//
//
// Local functions are inlined with ONNX's inliner, after a look at how large the graph would
// become. Operators of the standard that no conversion exists for are replaced by the body
// the standard gives, where it gives one; such a body may depend on the operands' types, so
// shapes have been inferred before.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>
#include <onnx/shape_inference/attribute_binder.h>
#include <set>

using namespace mpc;
using namespace mpc::import;
using llvm::Twine;

namespace {

constexpr int64_t kMostNodes = 1000000;
constexpr int kMostExpansions = 100000;

using FunctionId = std::tuple<std::string, std::string, std::string>;

std::string domainOf(const std::string &written) { return written == "ai.onnx" ? "" : written; }

FunctionId idOf(const onnx::FunctionProto &function) {
  return {domainOf(function.domain()), function.name(), function.overload()};
}
FunctionId idOf(const onnx::NodeProto &call) {
  return {domainOf(call.domain()), call.op_type(), call.overload()};
}

/// Nodes of the graph after inlining, without inlining.
class InlinedSize {
public:
  explicit InlinedSize(const onnx::ModelProto &model) {
    for (const onnx::FunctionProto &function : model.functions())
      functions[idOf(function)] = &function;
  }
  template <typename Nodes> int64_t count(const Nodes &nodes) {
    int64_t total = 0;
    for (const onnx::NodeProto &node : nodes) {
      auto function = functions.find(idOf(node));
      total += function == functions.end() ? 1 : countFunction(*function->second);
      for (const onnx::AttributeProto &attribute : node.attribute()) {
        if (attribute.has_g())
          total += count(attribute.g().node());
        for (const onnx::GraphProto &graph : attribute.graphs())
          total += count(graph.node());
      }
      total = std::min(total, kMostNodes + 1);
    }
    return total;
  }

private:
  int64_t countFunction(const onnx::FunctionProto &function) {
    auto [known, isNew] = counts.insert({&function, 0}); // the checker has refused cycles
    if (isNew) {
      int64_t nodes = count(function.node());
      counts[&function] = nodes;
      return nodes;
    }
    return known->second;
  }
  std::map<FunctionId, const onnx::FunctionProto *> functions;
  std::map<const onnx::FunctionProto *, int64_t> counts;
};

/// Writes into every call of a local function the default values of the attributes that it leaves
/// out (FunctionProto.attribute_proto): the inliner does not look at them. In a function's body an
/// attribute that refers to one that has no value is left out too, and what is called there may
/// have a default: a call that leaves out what the body refers to calls a copy of the function, an
/// overload, without those attributes.
class DefaultAttributes {
public:
  using Names = std::set<std::string>;

  explicit DefaultAttributes(onnx::ModelProto &model) : model(model) {
    functions.Swap(model.mutable_functions());
    for (const onnx::FunctionProto &function : functions) {
      Known &known = byId[idOf(function)];
      known.function = &function;
      collectReferences(function.node(), known.references);
    }
  }
  /// Leaves the functions that the graph calls.
  void run() { fill(*model.mutable_graph()->mutable_node(), {}); }

private:
  using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
  struct Known {
    const onnx::FunctionProto *function;
    Names references; ///< attributes of the function that its body refers to
  };
  static void collectReferences(const Nodes &nodes, Names &names) {
    for (const onnx::NodeProto &node : nodes)
      for (const onnx::AttributeProto &attribute : node.attribute()) {
        if (!attribute.ref_attr_name().empty())
          names.insert(attribute.ref_attr_name());
        collectReferences(attribute.g().node(), names);
        for (const onnx::GraphProto &graph : attribute.graphs())
          collectReferences(graph.node(), names);
      }
  }

  /// `absent`: the attributes of the enclosing function that have no value.
  void fill(Nodes &nodes, const Names &absent) {
    for (onnx::NodeProto &node : nodes) {
      auto &attributes = *node.mutable_attribute();
      for (auto attribute = attributes.begin(); attribute != attributes.end();)
        attribute = absent.count(attribute->ref_attr_name()) ? attributes.erase(attribute)
                                                             : std::next(attribute);
      for (onnx::AttributeProto &attribute : attributes) {
        if (attribute.has_g())
          fill(*attribute.mutable_g()->mutable_node(), absent);
        for (onnx::GraphProto &graph : *attribute.mutable_graphs())
          fill(*graph.mutable_node(), absent);
      }
      if (auto called = byId.find(idOf(node)); called != byId.end())
        fillCall(node, called->second);
    }
  }

  void fillCall(onnx::NodeProto &call, const Known &called) {
    Names given;
    for (const onnx::AttributeProto &attribute : call.attribute())
      given.insert(attribute.name());
    for (const onnx::AttributeProto &standard : called.function->attribute_proto())
      if (given.insert(standard.name()).second)
        *call.add_attribute() = standard;
    Names absent;
    for (const std::string &name : called.references)
      if (!given.count(name))
        absent.insert(name);
    for (const std::string &name : absent)
      call.set_overload(call.overload() + " without " + name);
    if (!made.insert(idOf(call)).second)
      return;
    onnx::FunctionProto &copy = *model.add_functions();
    copy = *called.function;
    copy.set_overload(call.overload());
    fill(*copy.mutable_node(), absent);
  }

  onnx::ModelProto &model;
  google::protobuf::RepeatedPtrField<onnx::FunctionProto> functions; // as they were
  std::map<FunctionId, Known> byId;
  std::set<FunctionId> made;
};

} // namespace

/// The operator's definition in the model's opset; null if there is none.
static const onnx::OpSchema *schemaOf(const OnnxModel &model, const onnx::NodeProto &node) {
  int version = int(model.opset(node.domain()));
  return version < 0 ? nullptr
                     : onnx::OpSchemaRegistry::Schema(node.op_type(), version, node.domain());
}

/// What a call gives for an attribute may be of another type than the operator inside has it; the
/// checker has seen the call only.
static bool verifyBodies(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                         const OnnxModel &model, Problems &problems) {
  bool good = true;
  for (const onnx::NodeProto &node : nodes) {
    const onnx::OpSchema *schema = schemaOf(model, node);
    try {
      if (schema)
        schema->Verify(node);
    } catch (const std::exception &problem) {
      good = problems.add("a call of a local function does not fit its body, in which the node " +
                          nodeName(node) + " (" + node.op_type() +
                          ") is wrong then: " + problem.what());
    }
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      good &= verifyBodies(attribute.g().node(), model, problems);
      for (const onnx::GraphProto &graph : attribute.graphs())
        good &= verifyBodies(graph.node(), model, problems);
    }
  }
  return good;
}

bool mpc::import::inlineLocalFunctions(OnnxModel &model, Problems &problems) {
  if (model.proto.functions_size() == 0)
    return true;
  if (InlinedSize(model.proto).count(model.proto.graph().node()) > kMostNodes)
    return problems.add("has more than " + Twine(kMostNodes) +
                        " nodes once its functions are inlined");
  if (llvm::any_of(model.proto.functions(), [](const onnx::FunctionProto &function) {
        return function.attribute_proto_size() > 0;
      }))
    DefaultAttributes(model.proto).run();
  // The checker has compared the operators of a function's opset with those of the model's: they
  // have the same definitions.
  for (onnx::FunctionProto &function : *model.proto.mutable_functions())
    for (onnx::OperatorSetIdProto &import : *function.mutable_opset_import()) {
      int64_t version = model.opset(import.domain());
      if (version >= 0)
        import.set_version(version);
      else
        *model.proto.add_opset_import() = import;
    }
  try {
    onnx::inliner::InlineLocalFunctions(model.proto, false);
  } catch (const std::exception &problem) {
    return problems.add("its local functions cannot be inlined: " + Twine(problem.what()));
  }
  return verifyBodies(model.proto.graph().node(), model, problems);
}

namespace {

class BodyExpander {
public:
  BodyExpander(OnnxModel &model, const ImportOptions &options) : model(model), options(options) {}
  bool run(Problems &problems);
  int expanded = 0;

private:
  bool isValid(const onnx::FunctionProto &function) const;
  bool body(const onnx::NodeProto &node, onnx::FunctionProto &function) const;
  void append(onnx::NodeProto &node);
  OnnxModel &model;
  const ImportOptions &options;
  llvm::StringMap<const onnx::TypeProto *> types;
  llvm::StringSet<> names;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> result;
};

} // namespace

/// Whether the nodes of a body are valid in the model's opset: a body may have been written for an
/// earlier one, in which an operand was an attribute.
bool BodyExpander::isValid(const onnx::FunctionProto &function) const {
  for (const onnx::NodeProto &node : function.node()) {
    const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(
        node.op_type(), int(model.opset(node.domain())), node.domain());
    if (!schema)
      return false;
    try {
      schema->Verify(node);
    } catch (const std::exception &) {
      return false;
    }
  }
  return true;
}

/// A body refers to the node's attributes by name, and the ones that the node leaves out have the
/// operator's defaults.
static void addDefaultAttributes(onnx::NodeProto &node, const onnx::OpSchema &schema) {
  llvm::StringSet<> given;
  for (const onnx::AttributeProto &attribute : node.attribute())
    given.insert(attribute.name());
  for (const auto &[name, attribute] : schema.attributes())
    if (!given.contains(name) && !attribute.default_value.name().empty())
      *node.add_attribute() = attribute.default_value;
}

bool BodyExpander::body(const onnx::NodeProto &node, onnx::FunctionProto &function) const {
  int version = int(model.opset(node.domain()));
  const onnx::OpSchema *schema = schemaOf(model, node);
  if (!schema || options.supported(node.domain(), node.op_type(), schema->SinceVersion()))
    return false;
  if (schema->HasFunction())
    if (const onnx::FunctionProto *found = schema->GetFunction(version, false)) {
      function = *found;
      return isValid(function);
    }
  if (!schema->HasContextDependentFunction())
    return false;
  std::vector<onnx::TypeProto> inputs;
  for (const std::string &input : node.input()) {
    const onnx::TypeProto *type = input.empty() ? nullptr : types.lookup(input);
    inputs.push_back(type ? *type : onnx::TypeProto());
  }
  onnx::FunctionBodyBuildContextImpl context(node, inputs);
  return schema->BuildContextDependentFunction(context, function, version) && isValid(function);
}

void BodyExpander::append(onnx::NodeProto &node) {
  onnx::FunctionProto function;
  if (!body(node, function)) {
    result.Add()->Swap(&node);
    return;
  }
  if (++expanded > kMostExpansions)
    throw std::runtime_error("more than " + std::to_string(kMostExpansions) +
                             " operators of the model are defined by others; convert it to an "
                             "opset whose operators mpc --list-ops names");
  addDefaultAttributes(node, *schemaOf(model, node));
  onnx::internal::AttributeBinder::BindAttributes(node, function);
  std::string name = nodeName(node);
  // The operands' names for the formal ones, new names for what is inside.
  llvm::StringMap<std::string> renamed;
  for (int i = 0; i < function.input_size(); ++i)
    renamed[function.input(i)] = i < node.input_size() ? node.input(i) : "";
  for (int i = 0; i < function.output_size() && i < node.output_size(); ++i)
    if (!node.output(i).empty())
      renamed[function.output(i)] = node.output(i);
  for (const onnx::NodeProto &inner : function.node())
    for (const std::string &output : inner.output())
      if (!output.empty() && !renamed.count(output))
        renamed[output] = uniqueName(name + "/" + output, names);
  for (onnx::NodeProto &inner : *function.mutable_node()) {
    renameValues(inner, renamed, true);
    inner.set_name(name);
    append(inner);
  }
}

bool BodyExpander::run(Problems &problems) {
  onnx::GraphProto &graph = *model.proto.mutable_graph();
  std::vector<onnx::TypeProto> initializerTypes(graph.initializer_size());
  for (int i = 0; i < graph.initializer_size(); ++i) {
    auto *tensor = initializerTypes[i].mutable_tensor_type();
    tensor->set_elem_type(graph.initializer(i).data_type());
    for (int64_t dim : graph.initializer(i).dims())
      tensor->mutable_shape()->add_dim()->set_dim_value(dim);
    types[graph.initializer(i).name()] = &initializerTypes[i];
  }
  for (const auto *infos : {&graph.value_info(), &graph.input(), &graph.output()})
    for (const onnx::ValueInfoProto &info : *infos)
      types[info.name()] = &info.type();
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  collectNames(graph, names);
  nodes.Swap(graph.mutable_node());
  try {
    for (onnx::NodeProto &node : nodes)
      append(node);
  } catch (const std::exception &problem) {
    return problems.add("the definition of an operator cannot be expanded: " +
                        Twine(problem.what()));
  }
  graph.mutable_node()->Swap(&result);
  return true;
}

bool mpc::import::expandFunctionBodies(OnnxModel &model, const ImportOptions &options,
                                       Problems &problems) {
  if (!options.supported)
    return true;
  // A body may have operators with bodies that depend on types, which are known after the next
  // inference.
  for (int round = 0; round < 4; ++round) {
    BodyExpander expander(model, options);
    if (!expander.run(problems))
      return false;
    if (expander.expanded == 0)
      return true;
    if (!inferShapes(model, problems))
      return false;
  }
  return true;
}
