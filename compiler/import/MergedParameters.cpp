//===- MergedParameters.cpp - parameters that an exporter merged are separate again -===//
//
// Exporters give initializers of equal values one name. In a freshly initialized model the
// scales of all norms are equal, and so are all zero biases: trained as it stands, such a
// file has tied parameters where the model had none. Two signs tell a merged parameter from
// one that the model really shares:
//
//   - PyTorch's metadata: the node's call names another parameter;
//   - an Identity from the one initializer to the name of the other (the legacy exporter).
//
// Either counts only for tensors that are one number throughout: others are equal because they
// are the same parameter. Without either sign such a tensor in several norms, or several
// biases, counts as merged too, unless the file shows that it is not: it has other equal tensors
// that were left apart, or a matrix used by several nodes, as where a whole layer is shared.
//
//   LayerNormalization(x, norm1.weight, …)        LayerNormalization(x, norm1.weight, …)
//   LayerNormalization(y, norm1.weight, …)   →    LayerNormalization(y, norm2.weight, …)
//
// Tables and matrices are never separated: the embedding that is also the output layer stays
// one parameter.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include <set>

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;

namespace {

bool isMatrix(Use use) { return use == Use::weight || use == Use::table; }
bool isSeparable(Use use) { return use != Use::none && use != Use::state && !isMatrix(use); }

/// One operand of the main graph that reads an initializer: directly, or by the name that an
/// Identity gave it.
struct Reader {
  int node, operand;
  std::string alias;
  std::string key; ///< the parameter it belongs to
};

class Separator {
public:
  Separator(OnnxModel &model, WeightStore &weights)
      : model(model), weights(weights), graph(*model.proto.mutable_graph()),
        signature(readSignature(model.proto)), uses(graph) {
    for (int i = 0; i < graph.node_size(); ++i) {
      index[&graph.node(i)] = i;
      for (const std::string &output : graph.node(i).output())
        producers[output] = &graph.node(i);
    }
    collectNames(graph, names);
  }
  void run();

private:
  void readers(StringRef value, const std::string &alias, std::vector<Reader> &found,
               std::vector<int> &identities);
  Site target(const Reader &reader) const;
  std::string parameterOf(const Reader &reader, const Site &site, StringRef tensor) const;
  bool sharesLayers();
  bool leftEqualTensorsApart();
  bool isNormOrBias(const Site &site) const;
  void separate(int initializer);
  void addInitializer(const onnx::TensorProto &original, const std::string &name);

  OnnxModel &model;
  WeightStore &weights;
  onnx::GraphProto &graph;
  Signature signature;
  Uses uses;
  std::map<const onnx::NodeProto *, int> index;
  llvm::StringSet<> names;
  bool guess = false; ///< no metadata: uniform values that several norms use count as merged
  llvm::StringMap<const onnx::NodeProto *> producers;
  std::map<std::pair<int, int>, std::string> rewired; ///< (node, operand) → new input
  std::set<int> dropped;                              ///< Identity nodes that nothing needs now
  std::vector<std::string> made;
};

} // namespace

/// Operands of the main graph that read `value`, looked through Identity.
void Separator::readers(StringRef value, const std::string &alias, std::vector<Reader> &found,
                        std::vector<int> &identities) {
  for (const Uses::Edge &edge : uses.consumers(value)) {
    auto node = index.find(edge.node);
    if (node == index.end()) {
      found.push_back({-1, edge.operand, alias, ""}); // in a subgraph
      continue;
    }
    const onnx::NodeProto &consumer = *edge.node;
    if (consumer.domain().empty() && consumer.op_type() == "Identity" &&
        consumer.output_size() == 1 && !uses.isOutput(consumer.output(0))) {
      identities.push_back(node->second);
      readers(consumer.output(0), consumer.output(0), found, identities);
      continue;
    }
    found.push_back({node->second, edge.operand, alias, ""});
  }
}

/// The first use other than none that the operand leads to.
Site Separator::target(const Reader &reader) const {
  if (reader.node < 0)
    return {nullptr, 0, Use::none, ""};
  const onnx::NodeProto &node = graph.node(reader.node);
  if (!isView(node, reader.operand))
    return {&node, reader.operand, operandUse(node, reader.operand), ""};
  if (node.op_type() == "Concat" || node.output_size() == 0) // several values in one
    return {&node, reader.operand, Use::none, ""};
  for (const Site &site : uses.sites(node.output(0)))
    if (site.use != Use::none)
      return site;
  return {&node, reader.operand, Use::none, ""};
}

/// The name of the parameter that the operand really is, as far as the file tells. Empty: not
/// known.
std::string Separator::parameterOf(const Reader &reader, const Site &site, StringRef tensor) const {
  if (!reader.alias.empty())
    return reader.alias;
  bool statistic = site.use == Use::mean || site.use == Use::variance;
  if (site.node && signature.present &&
      signature.kind(tensor) ==
          (statistic ? Signature::Kind::buffer : Signature::Kind::parameter)) {
    std::vector<std::string> parameters, buffers;
    for (const Signature::Placeholder &argument : callArguments(*site.node, signature))
      (argument.kind == Signature::Kind::parameter ? parameters : buffers)
          .push_back(argument.target);
    // A call's arguments are in PyTorch's order: weight before bias, mean before variance.
    switch (site.use) {
    case Use::scale:
      return parameters.empty() ? "" : parameters.front();
    case Use::bias:
    case Use::arithmetic:
      // With Mul a norm written out takes its weight, with Add its bias; a linear layer written out
      // has its bias in the Add.
      if (site.use == Use::arithmetic && site.node->op_type() != "Add")
        return parameters.empty() ? "" : parameters.front();
      return parameters.empty() ? "" : parameters.back();
    case Use::mean:
      return buffers.size() < 2 ? "" : buffers[0];
    case Use::variance:
      return buffers.size() < 2 ? "" : buffers[1];
    default:
      return "";
    }
  }
  return "";
}

/// What counts as merged without a sign of it: scale and bias of norms, biases of linear layers and
/// convolutions.
bool Separator::isNormOrBias(const Site &site) const {
  if (site.use == Use::scale || site.use == Use::bias)
    return true;
  if (site.use != Use::arithmetic || site.node->op_type() != "Add" || site.node->input_size() != 2)
    return false;
  auto product = producers.find(site.node->input(1 - site.operand));
  return product != producers.end() && product->second->op_type() == "MatMul";
}

/// Whether a matrix with values of its own is used by several nodes of one kind.
bool Separator::sharesLayers() {
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    if (!isFloatType(tensor.data_type()))
      continue;
    std::map<std::string, int> kinds;
    bool shared = false;
    for (const Site &site : uses.sites(tensor.name()))
      shared |= site.use == Use::weight && ++kinds[site.node->op_type()] > 1;
    if (!shared)
      continue;
    auto bytes = initializerBytes(model, tensor, weights);
    if (!bytes)
      llvm::consumeError(bytes.takeError());
    else if (!isUniform(*bytes, tensor.data_type()))
      return true;
  }
  return false;
}

/// Whether two initializers have the same bits: then the exporter did not merge what is equal.
bool Separator::leftEqualTensorsApart() {
  std::set<std::string> seen;
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    if (!isFloatType(tensor.data_type()) || elementCount(tensor.dims()) < 2)
      continue;
    auto bytes = initializerBytes(model, tensor, weights);
    if (!bytes) {
      llvm::consumeError(bytes.takeError());
      continue;
    }
    if (!isUniform(*bytes, tensor.data_type()))
      continue;
    std::string key = std::to_string(tensor.data_type());
    for (int64_t dim : tensor.dims())
      key += "," + std::to_string(dim);
    key.append(bytes->data(), elementBytes(tensor.data_type()));
    if (!seen.insert(key).second)
      return true;
  }
  return false;
}

void Separator::addInitializer(const onnx::TensorProto &original, const std::string &name) {
  onnx::TensorProto copy = original;
  copy.set_name(name);
  if (auto data = model.data.find(original.name()); data != model.data.end())
    model.data[name] = data->second;
  if (model.proto.ir_version() < 4) { // where every initializer is an input too
    onnx::ValueInfoProto &input = *graph.add_input();
    input.set_name(name);
    input.mutable_type()->mutable_tensor_type()->set_elem_type(copy.data_type());
    auto *shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (int64_t dim : copy.dims())
      shape->add_dim()->set_dim_value(dim);
  }
  graph.add_initializer()->Swap(&copy);
  made.push_back(name);
}

void Separator::separate(int initializer) {
  const onnx::TensorProto tensor = graph.initializer(initializer); // a copy: adding moves them
  if (!isFloatType(tensor.data_type()) || uses.consumers(tensor.name()).empty())
    return;
  std::vector<Reader> found;
  std::vector<int> identities;
  readers(tensor.name(), "", found, identities);
  if (found.size() < 2)
    return;
  auto bytes = initializerBytes(model, tensor, weights);
  if (!bytes) {
    llvm::consumeError(bytes.takeError()); // reported where the value is used
    return;
  }
  bool uniform = isUniform(*bytes, tensor.data_type());
  std::vector<Site> sites;
  std::map<Use, int> direct; // operands that read it by its own name
  for (const Reader &reader : found) {
    sites.push_back(target(reader));
    direct[sites.back().use] += reader.alias.empty();
  }
  std::set<std::string> keys;
  for (size_t i = 0; i < found.size(); ++i) {
    Reader &reader = found[i];
    bool statistic = sites[i].use == Use::mean || sites[i].use == Use::variance;
    if (isSeparable(sites[i].use) && (uniform || statistic))
      reader.key = parameterOf(reader, sites[i], tensor.name());
    // Statistics are never shared, since every node moves its own.
    bool guessed = guess && uniform && identities.empty() && isNormOrBias(sites[i]);
    if (reader.key.empty() && direct[sites[i].use] > 1 && (statistic || guessed))
      reader.key = "#" + std::to_string(reader.node) + "." + std::to_string(reader.operand);
    if (reader.key.empty())
      reader.key = tensor.name();
    keys.insert(reader.key);
  }
  if (keys.size() < 2)
    return;
  // The name stays with its own parameter, or else with the first.
  std::string own = keys.count(tensor.name()) ? tensor.name() : found.front().key;
  std::map<std::string, std::string> newNames = {{own, tensor.name()}};
  llvm::StringSet<> aliases;
  for (int identity : identities)
    aliases.insert(graph.node(identity).output(0));
  for (const Reader &reader : found) {
    std::string &name = newNames[reader.key];
    if (name.empty()) {
      // An Identity's result is replaced by an initializer of that name.
      if (aliases.contains(reader.key))
        name = reader.key;
      else
        name = uniqueName(reader.key[0] == '#' ? tensor.name() : reader.key, names);
      addInitializer(tensor, name);
    }
    if (reader.node >= 0)
      rewired[{reader.node, reader.operand}] = name;
  }
  // An Identity whose name is an initializer now must not make it too; the others may stay.
  for (int identity : identities)
    for (auto &[key, name] : newNames)
      if (graph.node(identity).output(0) == name)
        dropped.insert(identity);
}

void Separator::run() {
  guess = !signature.present && !sharesLayers() && !leftEqualTensorsApart();
  int count = graph.initializer_size();
  for (int i = 0; i < count; ++i)
    separate(i);
  if (made.empty())
    return;
  for (auto &[operand, name] : rewired)
    graph.mutable_node(operand.first)->set_input(operand.second, name);
  google::protobuf::RepeatedPtrField<onnx::NodeProto> kept;
  for (int i = 0; i < graph.node_size(); ++i)
    if (!dropped.count(i))
      kept.Add()->Swap(graph.mutable_node(i));
  graph.mutable_node()->Swap(&kept);
  std::string note = std::to_string(made.size()) +
                     " tensors that the exporter had merged with equal ones are separate again:";
  for (size_t i = 0; i < made.size() && i < 4; ++i)
    note += (i ? ", " : " ") + made[i];
  model.notes.push_back(note + (made.size() > 4 ? ", …" : ""));
}

void mpc::import::separateMergedParameters(OnnxModel &model, WeightStore &weights) {
  Separator(model, weights).run();
}
