//===- MergedParameters.cpp - parameters that an exporter merged are separate again -===//
//
// PyTorch's exporters give initializers of equal values one name. In a freshly initialized model
// the scales of all norms are equal, and so are all zero biases: trained as it stands, such a
// file has tied parameters where the model had none.
//
//   LayerNormalization(x, norm1.weight, …)        LayerNormalization(x, norm1.weight, …)
//   LayerNormalization(y, norm1.weight, …)   →    LayerNormalization(y, norm2.weight, …)
//
// But a file means what it says: a tensor that several nodes read is one parameter, and its
// gradient is the sum of all paths. It is separated only where the exporter left a trace of the
// merge:
//
//   - The dynamo exporter: the tensor has a parameter's name, and the node's call names one that
//     the file does not have. One reader whose call does not tell, because a view between was
//     dropped, keeps all together; so does a folded view, which has no parameter's name (val_14),
//     but for a group_norm's scale and bias, whose call tells.
//   - The TorchScript exporter: an Identity from the one initializer to the name of the other. It
//     writes these before all other nodes, as Identity_0, Identity_1, …; what the model itself
//     computes comes later or has a result named by a number or by a path. Tensors of one memory
//     get such an Identity too, and in training mode only these; then other equal tensors are still
//     apart. A constant that the exporter folded (onnx::Mul_13) may be the parameter itself, seen
//     through a cast, and stays with it; the bias of a convolution with a BatchNormalization folded
//     in is none of these.
//
// Either counts only for tensors that are one number throughout: others are equal because they
// are the same parameter. Tables and matrices are never separated: the embedding that is also the
// output layer stays one parameter. Running statistics are separated without a trace too, since
// every node moves its own, but in PyTorch's files for those of one layer that is called several
// times: in a file that shows its exporter's merges, by the nodes' names, or behind the same
// weight.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include <set>

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;

namespace {

using Kind = Signature::Kind;

/// Of scales and biases that no name is known for.
constexpr char kAffine[] = "#affine";

bool isStatistic(Use use) { return use == Use::mean || use == Use::variance; }
/// A use by which a parameter is never separated.
bool isWhole(Use use) { return use == Use::weight || use == Use::table || use == Use::state; }

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
      for (const std::string &result : graph.node(i).output())
        producers[result] = &graph.node(i);
    }
    for (const onnx::TensorProto &tensor : graph.initializer())
      initializers.insert(tensor.name());
    collectNames(graph, names);
  }
  void run();

private:
  bool isExporterIdentity(const onnx::NodeProto &node) const;
  bool leftEqualTensorsApart();
  void findMerges();
  bool isFoldedBias(StringRef name) const;
  void readers(StringRef value, std::vector<Reader> &found, std::vector<int> &identities);
  Site target(const Reader &reader) const;
  std::string parameterOf(const Reader &reader, const Site &site, StringRef tensor) const;
  int placeInCall(const Reader &reader, const Site &site,
                  const std::vector<Signature::Placeholder> &values) const;
  std::string calledParameter(const Reader &reader, const Site &site, StringRef tensor) const;
  std::string layerOf(const Reader &norm) const;
  std::string layerOfStatistic(const Reader &norm, const std::string &tensor,
                               const std::map<std::string, std::string> &known) const;
  void findKeys(std::vector<Reader> &found, const std::string &tensor, bool uniform);
  void separate(int initializer);
  void addInitializer(const onnx::TensorProto &original, const std::string &name);

  OnnxModel &model;
  WeightStore &weights;
  onnx::GraphProto &graph;
  Signature signature;
  Uses uses;
  std::map<const onnx::NodeProto *, int> index;
  llvm::StringMap<const onnx::NodeProto *> producers; ///< of a value
  llvm::StringSet<> names;
  llvm::StringSet<> initializers; ///< names of those that the file has
  llvm::StringSet<> merges;       ///< results of the Identities that show a merge
  bool showsMerges = false;       ///< the TorchScript exporter wrote the file as it is
  std::map<std::pair<int, int>, std::string> rewired; ///< (node, operand) → new input
  std::set<int> dropped;                              ///< Identity nodes that nothing needs now
  std::vector<std::string> made;
};

} // namespace

/// Whether the TorchScript exporter wrote the node in place of an initializer; its name tells so
/// only among the first nodes.
bool Separator::isExporterIdentity(const onnx::NodeProto &node) const {
  StringRef number = node.name();
  return node.domain().empty() && node.op_type() == "Identity" &&
         number.consume_front("Identity_") && llvm::all_of(number, llvm::isDigit) &&
         node.input_size() == 1 && node.output_size() == 1;
}

/// Whether two initializers of one number throughout are the same: then the exporter did not merge
/// what is equal.
bool Separator::leftEqualTensorsApart() {
  std::set<std::string> seen;
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    if (!isFloatType(tensor.data_type()) || elementCount(tensor.dims()) < 1)
      continue;
    auto bytes = initializerBytes(model, tensor, weights);
    if (!bytes) {
      llvm::consumeError(bytes.takeError()); // reported where the value is used
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

void Separator::findMerges() {
  if (model.proto.producer_name() != "pytorch" || signature.present)
    return;
  for (const onnx::NodeProto &node : graph.node()) {
    if (!isExporterIdentity(node))
      break;
    // Of an Identity of another's result the memory is that one's.
    if (initializers.contains(node.input(0)) && !uses.isOutput(node.output(0)) &&
        (!isConstantName(node.output(0)) || isFoldedBias(node.output(0))))
      merges.insert(node.output(0));
  }
  showsMerges = !merges.empty();
  if (showsMerges && leftEqualTensorsApart())
    merges.clear();
}

/// Whether the exporter made the value when it folded a BatchNormalization into a convolution: it
/// numbers the new weight and the new bias one after the other (onnx::Conv_31, onnx::Conv_32).
bool Separator::isFoldedBias(StringRef name) const {
  auto split = [](StringRef value) {
    StringRef prefix = value.rtrim("0123456789");
    int64_t number = 0;
    bool isNumbered = !value.drop_front(prefix.size()).getAsInteger(10, number);
    return std::pair(prefix, isNumbered ? number : -1);
  };
  auto [prefix, number] = split(name);
  return llvm::all_of(uses.consumers(name), [&](const Uses::Edge &edge) {
    const onnx::NodeProto &node = *edge.node;
    return node.op_type() == "Conv" && edge.operand == 2 && isConstantName(node.input(1)) &&
           split(node.input(1)) == std::pair(prefix, number - 1);
  });
}

/// Operands of the main graph that read `value`, looked through the Identities of merges.
void Separator::readers(StringRef value, std::vector<Reader> &found, std::vector<int> &identities) {
  StringRef alias = merges.contains(value) ? value : "";
  for (const Uses::Edge &edge : uses.consumers(value)) {
    auto node = index.find(edge.node);
    int number = node == index.end() ? -1 : node->second; // -1: in a subgraph
    if (number >= 0 && edge.node->output_size() == 1 && merges.contains(edge.node->output(0))) {
      identities.push_back(number);
      readers(edge.node->output(0), found, identities);
    } else {
      found.push_back({number, edge.operand, alias.str(), ""});
    }
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

/// The name of the parameter that the operand really is. Empty: the file does not tell.
std::string Separator::parameterOf(const Reader &reader, const Site &site, StringRef tensor) const {
  if (!reader.alias.empty())
    return reader.alias;
  if (isStatistic(site.use) ? !signature.present
                            : signature.kind(tensor) == Kind::none && !isGroupNormAffine(site))
    return isStatistic(site.use) ? "" : tensor.str();
  return reader.node < 0 ? "" : calledParameter(reader, site, tensor);
}

/// Which of its call's values an operand is, in PyTorch's order: a layer has its input, weight and
/// bias. -1: not known.
int Separator::placeInCall(const Reader &reader, const Site &site,
                           const std::vector<Signature::Placeholder> &values) const {
  const onnx::NodeProto &node = graph.node(reader.node);
  StringRef callee = callTarget(node);
  if (callee.contains("norm") || callee.contains("linear") || callee.contains("conv")) {
    // With Mul a norm written out takes its weight, with Add its bias; a linear layer written out
    // has its bias in the Add.
    bool isBias =
        site.use == Use::bias || (site.use == Use::arithmetic && site.node->op_type() == "Add");
    return !isBias ? 1 : callee.contains("bilinear") ? 3 : 2; // (x, [y,] weight, bias)
  }
  if (site.use == Use::bias) // addmm(bias, x, weight)
    return 0;
  if (isView(node, reader.operand))
    return llvm::count_if(values, [](auto &v) { return v.kind != Kind::absent; }) == 1 ? 0 : -1;
  // One node of several (alpha of sub) may have the operands in another order.
  StringRef function = callee.rsplit('.').first.rsplit('.').second;
  return function.equals_insensitive(node.op_type()) ? reader.operand : -1;
}

/// The same by the call that the reader came from. A candidate is the tensor itself, or what the
/// file does not have: had it an initializer of its own, the node would read that.
std::string Separator::calledParameter(const Reader &reader, const Site &site,
                                       StringRef tensor) const {
  std::vector<Signature::Placeholder> values = callArguments(graph.node(reader.node), signature);
  if (isStatistic(site.use)) { // mean before variance
    std::string name =
        (callModule(*site.node) + (site.use == Use::variance ? ".running_var" : ".running_mean"))
            .str();
    if (signature.kind(name) == Kind::buffer)
      return name;
    llvm::erase_if(values, [](auto &v) { return v.kind != Kind::buffer; });
    return values.size() < 2 ? "" : values[site.use == Use::variance].target;
  }
  auto isCandidate = [&](const Signature::Placeholder &value) {
    return value.kind == Kind::parameter &&
           (value.target == tensor || !initializers.contains(value.target));
  };
  int place = placeInCall(reader, site, values);
  return place >= 0 && place < int(values.size()) && isCandidate(values[place])
             ? values[place].target
             : "";
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

/// What a norm normalizes the result of: the weight that it is made with, or else the norm itself;
/// and which of the norm's statistics is read.
std::string Separator::layerOf(const Reader &norm) const {
  const onnx::NodeProto &node = graph.node(norm.node);
  const onnx::NodeProto *maker = producers.lookup(node.input(0));
  std::string weight = std::to_string(norm.node);
  for (int i = 0; maker && i < maker->input_size(); ++i)
    if (isWhole(operandUse(*maker, i)) && initializers.contains(maker->input(i)))
      weight = maker->input(i);
  return weight + "." + std::to_string(norm.operand);
}

/// Whether the TorchScript exporter names the node by the module that has the tensor:
/// /f/f.1_1/BatchNormalization is the second call of f.1, which has f.1.running_mean.
static bool isCallOf(StringRef node, StringRef tensor) {
  llvm::SmallVector<StringRef> scopes;
  node.split(scopes, '/', -1, /*KeepEmpty=*/false);
  if (!node.starts_with("/") || scopes.size() < 2)
    return false;
  scopes.pop_back();
  std::string module;
  for (StringRef scope : scopes) {
    auto [name, call] = scope.rsplit('_');
    if (!call.empty() && llvm::all_of(call, llvm::isDigit))
      scope = name;
    bool isWhole = module.empty() || scope.starts_with(module + ".");
    module = isWhole ? scope.str() : module + "." + scope.str();
  }
  return tensor.rsplit('.').first == module;
}

/// The parameter of a statistic's reader that the file does not tell; `known` is told of others, by
/// layer.
std::string Separator::layerOfStatistic(const Reader &norm, const std::string &tensor,
                                        const std::map<std::string, std::string> &known) const {
  if (model.proto.producer_name() != "pytorch")
    return "#" + std::to_string(norm.node) + "." + std::to_string(norm.operand);
  if (showsMerges || isCallOf(graph.node(norm.node).name(), tensor))
    return tensor;
  auto same = known.find(layerOf(norm));
  return same == known.end() ? "#" + layerOf(norm) : same->second;
}

/// Fills in which parameter each reader has.
void Separator::findKeys(std::vector<Reader> &found, const std::string &tensor, bool uniform) {
  std::vector<Site> sites;
  int changing = 0; // operands that training changes, each for itself
  bool known = true;
  std::set<std::string> whole;
  std::map<std::string, std::string> layers; // the statistics that are known
  for (Reader &reader : found) {
    Site site = target(reader);
    bool statistic = isStatistic(site.use);
    bool isAffine = site.use == Use::scale || site.use == Use::bias;
    if (uniform || statistic)
      reader.key = parameterOf(reader, site, tensor);
    if (uniform && signature.present && (isAffine || isGroupNormAffine(site)) &&
        isNormConstant(site, signature))
      reader.key = kAffine;
    known &= statistic || !reader.key.empty();
    if (statistic && reader.node >= 0 && !reader.key.empty())
      layers[layerOf(reader)] = reader.key;
    changing += statistic || site.use == Use::scale || site.use == Use::bias;
    if (isWhole(site.use))
      whole.insert(reader.key);
    sites.push_back(site);
  }
  bool mayMerge = uniform || model.proto.producer_name() != "pytorch";
  for (auto [reader, site] : llvm::zip_equal(found, sites))
    if (isStatistic(site.use) && mayMerge && reader.key.empty() && reader.node >= 0 && changing > 1)
      reader.key = layerOfStatistic(reader, tensor, layers);
  bool isRunning = llvm::any_of(llvm::zip_equal(found, sites), [&](auto pair) {
    auto &[reader, site] = pair;
    return isStatistic(site.use) && (reader.key.empty() || reader.key == tensor);
  });
  // One reader whose parameter is not known may have any of them: then all stay together, but for
  // what is known to be none. And what a norm moves is neither scale nor bias: those of equal
  // values have been merged with it.
  for (auto [reader, site] : llvm::zip_equal(found, sites)) {
    if (reader.key == kAffine)
      continue;
    bool statistic = isStatistic(site.use);
    bool isAffine = site.use == Use::scale || site.use == Use::bias;
    if (isRunning && uniform && isAffine && (reader.key.empty() || reader.key == tensor))
      reader.key = kAffine;
    else if (reader.key.empty() || (!statistic && (!known || whole.count(reader.key))))
      reader.key = tensor;
  }
}

void Separator::separate(int initializer) {
  const onnx::TensorProto tensor = graph.initializer(initializer); // a copy: adding moves them
  if (!isFloatType(tensor.data_type()) || uses.consumers(tensor.name()).empty())
    return;
  std::vector<Reader> found;
  std::vector<int> identities;
  readers(tensor.name(), found, identities);
  if (found.size() < 2)
    return;
  auto bytes = initializerBytes(model, tensor, weights);
  if (!bytes) {
    llvm::consumeError(bytes.takeError()); // reported where the value is used
    return;
  }
  std::set<std::string> keys;
  findKeys(found, tensor.name(), isUniform(*bytes, tensor.data_type()));
  for (const Reader &reader : found)
    keys.insert(reader.key);
  if (keys.size() < 2)
    return;
  // The name stays with its own parameter, or else with the first; a buffer's name with none.
  Kind kind = signature.kind(tensor.name());
  bool isFree = kind == Kind::none || kind == Kind::parameter;
  auto named =
      llvm::find_if(found, [&](const Reader &reader) { return isFree == (reader.key[0] != '#'); });
  std::string own = keys.count(tensor.name()) ? tensor.name()
                    : named == found.end()    ? found.front().key
                                              : named->key;
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
      if (signature.present && reader.key == kAffine)
        model.constants.insert(name);
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
  findMerges();
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
  std::string note =
      made.size() == 1
          ? "1 tensor that the exporter had merged with an equal one is separate again:"
          : std::to_string(made.size()) +
                " tensors that the exporter had merged with equal ones are separate again:";
  for (size_t i = 0; i < made.size() && i < 4; ++i)
    note += (i ? ", " : " ") + made[i];
  model.notes.push_back(note + (made.size() > 4 ? ", …" : ""));
}

void mpc::import::separateMergedParameters(OnnxModel &model, WeightStore &weights) {
  Separator(model, weights).run();
}
