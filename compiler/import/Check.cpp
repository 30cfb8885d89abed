//===- Check.cpp - the ONNX checker ---------------------------------------===//
//
// The checker stops at its first problem. When it has one, every node is checked alone too,
// so that all bad nodes of a file are named at once. Weights that stayed in the file are
// missing from the protobuf, so their tensors are shown to it without elements.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"
#include <onnx/checker.h>

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;
using llvm::Twine;

namespace {

constexpr int64_t kLastIrVersion = 13, kLastOpset = 26;

/// "ai.onnx" is another spelling of the empty domain.
template <typename Nodes> void normalizeDomains(Nodes &nodes) {
  for (onnx::NodeProto &node : nodes) {
    if (node.domain() == "ai.onnx")
      node.clear_domain();
    for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
      if (attribute.has_g())
        normalizeDomains(*attribute.mutable_g()->mutable_node());
      for (onnx::GraphProto &graph : *attribute.mutable_graphs())
        normalizeDomains(*graph.mutable_node());
    }
  }
}

template <typename Imports> void normalizeImports(Imports &imports) {
  for (onnx::OperatorSetIdProto &import : imports)
    if (import.domain() == "ai.onnx")
      import.clear_domain();
}

/// The checker's text on one line, without its long contexts.
std::string oneLine(StringRef text) {
  text = text.split("\n\n==> Context").first;
  std::string line;
  for (char c : text)
    if (c != '\n')
      line.push_back(c);
    else if (!line.empty() && line.back() != ' ')
      line.push_back(' ');
  return line;
}

/// Names go into messages, JSON and checkpoints as they are. protobuf lets any bytes pass.
class NameChecker {
public:
  explicit NameChecker(Problems &problems) : problems(problems) {}
  template <typename Nodes> void nodes(const Nodes &nodes) {
    for (const onnx::NodeProto &node : nodes) {
      for (const std::string *name : {&node.name(), &node.op_type(), &node.domain()})
        check(*name);
      list(node.input());
      list(node.output());
      for (const onnx::AttributeProto &attribute : node.attribute()) {
        check(attribute.name());
        if (attribute.has_g())
          graph(attribute.g());
        for (const onnx::GraphProto &inner : attribute.graphs())
          graph(inner);
      }
    }
  }
  void graph(const onnx::GraphProto &graph) {
    for (const auto *infos : {&graph.input(), &graph.output(), &graph.value_info()})
      for (const onnx::ValueInfoProto &info : *infos) {
        check(info.name());
        for (const auto &dim : info.type().tensor_type().shape().dim())
          check(dim.dim_param());
      }
    for (const onnx::TensorProto &tensor : graph.initializer())
      check(tensor.name());
    nodes(graph.node());
  }
  template <typename Names> void list(const Names &names) {
    for (const std::string &name : names)
      check(name);
  }

private:
  void check(const std::string &name) {
    if (!llvm::json::isUTF8(name) && seen.insert(name).second)
      problems.add("the name '" + name + "' is not UTF-8, which ONNX wants names to be: rename it");
  }
  Problems &problems;
  llvm::StringSet<> seen;
};

bool checkVersions(const OnnxModel &model, Problems &problems) {
  if (!model.proto.has_ir_version())
    return problems.add("is not an ONNX file: it has no IR version");
  int64_t ir = model.proto.ir_version(), opset = model.opset("");
  if (ir < 1 || ir > kLastIrVersion)
    problems.add("has ONNX IR version " + Twine(ir) + "; this compiler reads 1 to " +
                 Twine(kLastIrVersion) + ": export it with an older opset");
  if (opset != -1 && (opset < 1 || opset > kLastOpset))
    problems.add("uses opset " + Twine(opset) + "; this compiler reads 1 to " + Twine(kLastOpset) +
                 ": export it with an older opset");
  if (opset == -1 && model.proto.opset_import_size() == 0 && ir >= 3)
    problems.add("imports no operator set");
  return problems.none();
}

/// Each node against its schema alone.
void checkNodes(const OnnxModel &model, Problems &problems) {
  onnx::checker::CheckerContext context;
  context.set_ir_version(int(model.proto.ir_version()));
  std::unordered_map<std::string, int> imports;
  for (const onnx::OperatorSetIdProto &import : model.proto.opset_import())
    imports[import.domain()] = int(import.version());
  context.set_opset_imports(imports);
  onnx::checker::LexicalScopeContext scope;
  llvm::StringSet<> names;
  collectNames(model.proto.graph(), names);
  for (const auto &name : names)
    scope.add(name.getKey().str());
  std::set<std::pair<std::string, std::string>> functions;
  for (const onnx::FunctionProto &function : model.proto.functions())
    functions.insert({function.domain(), function.name()});
  for (const onnx::NodeProto &node : model.proto.graph().node()) {
    if (functions.count({node.domain(), node.op_type()}))
      continue;
    try {
      onnx::checker::check_node(node, context, scope);
    } catch (const std::exception &problem) {
      problems.add(node, model.opset(node.domain()), oneLine(problem.what()));
    }
  }
}

} // namespace

bool mpc::import::checkModel(OnnxModel &model, Problems &problems) {
  onnx::GraphProto &graph = *model.proto.mutable_graph();
  normalizeDomains(*graph.mutable_node());
  normalizeImports(*model.proto.mutable_opset_import());
  for (onnx::FunctionProto &function : *model.proto.mutable_functions()) {
    normalizeDomains(*function.mutable_node());
    normalizeImports(*function.mutable_opset_import());
  }
  if (graph.name().empty())
    graph.set_name("main");
  if (!checkVersions(model, problems))
    return false;
  NameChecker names(problems);
  names.graph(graph);
  for (const onnx::FunctionProto &function : model.proto.functions()) {
    names.list(function.input());
    names.list(function.output());
    names.nodes(function.node());
  }
  if (!problems.none())
    return false;
  if (graph.sparse_initializer_size())
    return problems.addUnsupported(
        "has sparse initializers, which are not supported: export it with dense ones");
  auto checkShape = [&](const onnx::ValueInfoProto &info, const char *kind) {
    if (info.type().has_tensor_type() && !info.type().tensor_type().has_shape())
      problems.add(Twine(kind) + " '" + info.name() +
                   "' has no shape in the file, not even a rank: export it with its shape");
  };
  for (const onnx::ValueInfoProto &input : graph.input())
    checkShape(input, "input");
  for (const onnx::ValueInfoProto &output : graph.output())
    checkShape(output, "output");
  // Tensors of no supported type may still be unused; what is used is reported where it is.
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    int64_t width = elementBytes(tensor.data_type()), count = elementCount(tensor.dims());
    auto known = model.data.find(tensor.name());
    if (count < 0)
      problems.add("initializer '" + tensor.name() +
                   "' has dimensions that are negative, or whose product is absurd");
    else if (width != 0 && known != model.data.end() && known->second.bytes != count * width)
      problems.add("initializer '" + tensor.name() + "' has " + Twine(known->second.bytes) +
                   " bytes of data, but its dimensions and type make " + Twine(count * width));
  }
  if (!problems.none())
    return false;

  std::vector<std::pair<onnx::TensorProto *, google::protobuf::RepeatedField<int64_t>>> hidden;
  for (onnx::TensorProto &tensor : *graph.mutable_initializer())
    if (model.data.count(tensor.name()) && tensor.raw_data().empty()) {
      hidden.push_back({&tensor, tensor.dims()});
      tensor.clear_dims();
      tensor.add_dims(0);
    }
  std::string failure;
  try {
    onnx::checker::check_model(model.proto);
  } catch (const std::exception &problem) {
    failure = oneLine(problem.what());
  }
  if (!failure.empty()) {
    checkNodes(model, problems);
    // The whole graph's problem is news unless a node's message says the same.
    if (llvm::none_of(problems.list, [&](const Problem &problem) {
          return StringRef(problem.text).contains(failure);
        }))
      problems.add("is not a valid ONNX model: " + failure);
  }
  for (auto &[tensor, dims] : hidden)
    *tensor->mutable_dims() = dims;
  return problems.none();
}
