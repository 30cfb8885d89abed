//===- Metadata.cpp - what PyTorch's exporter says about its tensors ------===//
//
// torch.export's graph signature lists every parameter and buffer of the PyTorch model:
//
//   p_fc1_weight: PARAMETER target='fc1.weight'
//
// and each node has the text of the call it came from, with the parameters among its
// arguments by placeholder, also where the exporter has put another initializer there:
//
//   %layer_norm : [num_users=1] = call_function[target=torch.ops.aten.layer_norm.default](args =
//   (%x, [128], %p_norm2_weight, …
//
// A value that its optimizer computed ahead has the names of all that went into it (of what another
// run of the optimizer had made, not of what went into that):
//
//   slice_1   pkg.onnxscript.optimizer.folded_from   ['pe', 'val_0', 'val_1']
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "llvm/Support/JSON.h"

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;

namespace {

constexpr StringRef kCall = "pkg.torch.onnx.fx_node";
constexpr StringRef kScopes = "pkg.torch.onnx.name_scopes";
constexpr StringRef kFolded = "pkg.onnxscript.optimizer.folded_from";

template <typename Properties> StringRef property(const Properties &properties, StringRef key) {
  for (const onnx::StringStringEntryProto &entry : properties)
    if (entry.key() == key)
      return entry.value();
  return "";
}

} // namespace

Signature mpc::import::readSignature(const onnx::ModelProto &model) {
  constexpr StringRef key = "pkg.torch.export.ExportedProgram.graph_signature";
  StringRef text = property(model.metadata_props(), key);
  if (text.empty())
    text = property(model.graph().metadata_props(), key);
  Signature signature;
  while (!text.empty()) {
    StringRef line;
    std::tie(line, text) = text.split('\n');
    auto [placeholder, rest] = line.trim().split(": ");
    auto [kindName, target] = rest.split(" target='");
    Signature::Kind kind = kindName == "PARAMETER"            ? Signature::Kind::parameter
                           : kindName == "BUFFER"             ? Signature::Kind::buffer
                           : kindName.starts_with("CONSTANT") ? Signature::Kind::constant
                                                              : Signature::Kind::none;
    size_t end = target.rfind('\'');
    if (kind == Signature::Kind::none || end == StringRef::npos || !llvm::json::isUTF8(line))
      continue;
    target = target.take_front(end);
    signature.present = true;
    signature.kinds[target] = kind;
    signature.placeholders[placeholder] = {kind, target.str()};
  }
  return signature;
}

/// The strings of a list as Python prints it, ['mu', "it's"]. None where the text is no such list,
/// or one of them has a character that is written as a number.
static std::vector<std::string> quotedStrings(StringRef text) {
  std::vector<std::string> strings;
  if (!text.consume_front("[") || !text.consume_back("]"))
    return {};
  while (!text.empty()) {
    if (!strings.empty() && !text.consume_front(", "))
      return {};
    char quote = text.empty() ? 0 : text.front();
    if (quote != '\'' && quote != '"')
      return {};
    strings.emplace_back();
    for (text = text.drop_front(); !text.consume_front(StringRef(&quote, 1));) {
      bool isEscaped = text.consume_front("\\");
      if (text.empty() || (isEscaped && !StringRef("\\'\"").contains(text.front())))
        return {};
      strings.back() += text.front();
      text = text.drop_front();
    }
  }
  return strings;
}

void mpc::import::readFolded(OnnxModel &model) {
  std::set<std::string> initializers;
  for (const onnx::TensorProto &tensor : model.proto.graph().initializer())
    initializers.insert(tensor.name());
  for (const onnx::ValueInfoProto &value : model.proto.graph().value_info()) {
    auto sources = quotedStrings(property(value.metadata_props(), kFolded));
    if (!sources.empty() && initializers.count(value.name()))
      model.foldedFrom[value.name()] = std::move(sources);
  }
}

/// The values among a call's arguments as they are named there, "%x", and "None".
static std::vector<StringRef> argumentNames(const onnx::NodeProto &node) {
  std::vector<StringRef> names;
  StringRef text = callText(node);
  text = text.substr(text.find("(args = "));
  auto isWord = [](char c) { return llvm::isAlnum(c) || c == '_'; };
  char before = ' ';
  while (!text.empty()) {
    bool isValue = text.front() == '%' && !isWord(before);
    StringRef word = text.drop_front(isValue).take_while(isWord);
    if (word.empty()) {
      before = text.front();
      text = text.drop_front();
      continue;
    }
    if (isValue || word == "None")
      names.push_back(text.take_front(word.size() + isValue));
    before = word.back();
    text = text.drop_front(word.size() + isValue);
  }
  return names;
}

std::vector<Signature::Placeholder> mpc::import::callArguments(const onnx::NodeProto &node,
                                                               const Signature &signature) {
  std::vector<Signature::Placeholder> arguments;
  for (StringRef name : argumentNames(node)) {
    bool isValue = name.consume_front("%");
    auto found = signature.placeholders.find(name);
    if (!isValue)
      arguments.push_back({Signature::Kind::absent, ""});
    else if (found == signature.placeholders.end())
      arguments.push_back({Signature::Kind::none, ""});
    else
      arguments.push_back(found->second);
  }
  return arguments;
}

bool mpc::import::readsResult(const onnx::NodeProto &node, StringRef name,
                              const Signature &signature) {
  return !signature.placeholders.count(name) &&
         llvm::is_contained(argumentNames(node), ("%" + name).str());
}

StringRef mpc::import::callText(const onnx::NodeProto &node) {
  return property(node.metadata_props(), kCall);
}

StringRef mpc::import::callTarget(const onnx::NodeProto &node) {
  auto [before, target] = callText(node).split("[target=");
  return target.take_until([](char c) { return c == ']'; });
}

bool mpc::import::isInGroupNorm(const onnx::NodeProto &node) {
  return callTarget(node).contains("group_norm");
}

bool mpc::import::isGroupNormAffine(const Site &site) {
  return site.use == Use::arithmetic && isInGroupNorm(*site.node) &&
         (site.node->op_type() == "Mul" || site.node->op_type() == "Add");
}

Signature::Placeholder mpc::import::normArgument(const Site &site, const Signature &signature) {
  const onnx::NodeProto &node = *site.node;
  using Kind = Signature::Kind;
  if (!callTarget(node).contains("norm"))
    return {Kind::none, ""};
  if (isInGroupNorm(node) && node.op_type() == "InstanceNormalization")
    return {Kind::absent, ""};
  bool isAffine = isGroupNormAffine(site), isScale = isAffine && node.op_type() == "Mul";
  if (!isAffine && site.use != Use::scale && site.use != Use::bias)
    return {Kind::none, ""};
  // (input, weight, bias, ...), where what is None may be left out at the end
  size_t place = isScale || site.use == Use::scale ? 1 : 2;
  std::vector<Signature::Placeholder> arguments = callArguments(node, signature);
  return place < arguments.size() ? arguments[place] : Signature::Placeholder{Kind::absent, ""};
}

bool mpc::import::isNormConstant(const Site &site, const Signature &signature) {
  using Kind = Signature::Kind;
  Kind kind = normArgument(site, signature).kind;
  return kind == Kind::absent || kind == Kind::buffer || kind == Kind::constant;
}

// ['', 'layers', 'layers.2', 'batch_norm']: the last one is the call's.
StringRef mpc::import::callModule(const onnx::NodeProto &node) {
  llvm::SmallVector<StringRef> quoted;
  property(node.metadata_props(), kScopes).split(quoted, '\'');
  return quoted.size() < 5 ? "" : quoted[quoted.size() - 4];
}
