//===- Types.cpp - operands have the types that their operators take ------===//
//
// Neither the checker nor shape inference compares element types. A model that adds an int64
// to a float32 is told here, by node and operand, before anything is converted.
//
// Types are taken from the operators' schemas, with one exception: where an operator takes
// float32, the other floating-point types pass too, since exporters write bfloat16 before the
// operator's ONNX version allows it.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include <onnx/defs/data_type_utils.h>
#include <onnx/defs/schema.h>

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;

namespace {

class TypeChecker {
public:
  TypeChecker(const OnnxModel &model, Problems &problems) : model(model), problems(problems) {}
  void run() {
    for (const onnx::TensorProto &tensor : model.proto.graph().initializer())
      types[tensor.name()] = tensor.data_type();
    check(model.proto.graph());
  }

private:
  using Parameter = onnx::OpSchema::FormalParameter;

  void check(const onnx::GraphProto &graph);
  void check(const onnx::NodeProto &node);
  /// The element type of a tensor; 0: no tensor, or not known.
  int32_t typeOf(StringRef value) const { return value.empty() ? 0 : types.lookup(value); }
  static bool takes(const Parameter &parameter, int32_t type);

  const OnnxModel &model;
  Problems &problems;
  llvm::StringMap<int32_t> types;
};

} // namespace

bool TypeChecker::takes(const Parameter &parameter, int32_t type) {
  const auto &allowed = parameter.GetTypes();
  auto has = [&](int32_t wanted) {
    onnx::TypeProto proto;
    proto.mutable_tensor_type()->set_elem_type(wanted);
    return allowed.count(onnx::Utils::DataTypeUtils::ToType(proto)) > 0;
  };
  return allowed.empty() || has(type) || (isFloatType(type) && has(onnx::TensorProto::FLOAT));
}

void TypeChecker::check(const onnx::NodeProto &node) {
  int64_t opset = model.opset(node.domain());
  const onnx::OpSchema *schema =
      opset < 0 ? nullptr
                : onnx::OpSchemaRegistry::Schema(node.op_type(), int(opset), node.domain());
  if (!schema)
    return;
  std::map<std::string, std::pair<int32_t, std::string>> bound; // "T" → its type, and who gave it
  auto visit = [&](const char *kind, int i, const std::string &name, const Parameter &parameter) {
    int32_t type = typeOf(name);
    if (!onnx::TensorProto::DataType_IsValid(type) || type == 0)
      return;
    std::string who = std::string(kind) + " " + std::to_string(i) + " ('" + name + "')";
    if (!takes(parameter, type))
      problems.add(node, opset,
                   who + " is " + elementTypeName(type) + ", which the operator does not take");
    if (!parameter.GetIsHomogeneous())
      return;
    auto [entry, isFirst] = bound.insert({parameter.GetTypeStr(), {type, who}});
    if (!isFirst && entry->second.first != type)
      problems.add(node, opset,
                   who + " is " + elementTypeName(type) + ", but " + entry->second.second +
                       ", which must have the same type, is " +
                       elementTypeName(entry->second.first) + ": a Cast is missing");
  };
  auto visitAll = [&](const char *kind, const auto &names, const std::vector<Parameter> &formal) {
    for (int i = 0; i < names.size() && !formal.empty(); ++i)
      visit(kind, i, names[i], formal[std::min<size_t>(i, formal.size() - 1)]);
  };
  visitAll("operand", node.input(), schema->inputs());
  visitAll("result", node.output(), schema->outputs());
}

void TypeChecker::check(const onnx::GraphProto &graph) {
  for (const auto *infos : {&graph.input(), &graph.output(), &graph.value_info()})
    for (const onnx::ValueInfoProto &info : *infos)
      if (info.type().has_tensor_type())
        types[info.name()] = info.type().tensor_type().elem_type();
  for (const onnx::NodeProto &node : graph.node()) {
    check(node);
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      if (attribute.has_g())
        check(attribute.g());
      for (const onnx::GraphProto &inner : attribute.graphs())
        check(inner);
    }
  }
}

bool mpc::import::checkTypes(const OnnxModel &model, Problems &problems) {
  TypeChecker(model, problems).run();
  return problems.none();
}
