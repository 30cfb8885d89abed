//===- Parameters.cpp - which initializers are trained --------------------===//
//
// What the exporter's metadata calls a parameter is one, what it calls a buffer is none. Where
// it says nothing, use decides:
//
//   (a) a weight, bias, scale, slope or table operand of an operator that has one; but a scale or
//       bias that PyTorch's call does not have, or that its group_norm is written with, is a
//       constant, and the group_norm's own is behind it;
//   (b) an initial state of a recurrent layer, an operand of arithmetic or of a function of one
//       operand (exp, sigmoid, elu), if it also looks like a parameter: a name
//       that exporters do not make for constants, no mask's values, more than one element (in
//       PyTorch's files without metadata one is enough, since these keep their constants in
//       Constant nodes).
//
// Where the metadata tells what the exporter has computed a value of, it is one if a parameter was
// among that, whatever its name is, unless it only has its shape (ones_like) or a mask's values;
// and none if it was made of buffers and constants alone. Where that is not certain it is trained,
// and told.
//
// --train replaces this rule, --freeze takes from it.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "llvm/Support/Regex.h"
#include <cmath>

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;

namespace {

constexpr double kMaskMagnitude = 1e4;

class RoleAssigner {
public:
  RoleAssigner(OnnxModel &model, const ImportOptions &options, WeightStore &weights, Roles &roles,
               Problems &problems)
      : model(model), options(options), weights(weights), roles(roles), problems(problems),
        signature(readSignature(model.proto)), uses(model.proto.graph()) {}
  bool run();

private:
  /// Empty: it is a parameter. Otherwise why it is none.
  std::string reasonAgainst(const onnx::TensorProto &tensor, const std::vector<Site> &sites);
  std::string reasonByUse(const onnx::TensorProto &tensor, const std::vector<Site> &sites);
  bool isNormConstant(const onnx::TensorProto &tensor, const std::vector<Site> &sites);
  bool isGroupNormParameter(const onnx::TensorProto &tensor, const std::vector<Site> &sites);
  void leaveOut(const onnx::TensorProto &tensor, const std::string &reason, bool isFrozen);
  void noteTies(StringRef name, const std::vector<Site> &sites);
  bool isComputedAhead(StringRef name);
  std::optional<std::vector<std::string>> parametersBehind(StringRef name);
  bool isMadeOfParameters(const onnx::TensorProto &tensor);
  bool isReadAsAnother(StringRef name);
  bool mayHideParameter(StringRef name, const std::vector<Site> &sites);
  bool mayBeConstant(const std::string &name);
  void noteComputed();
  std::vector<std::string> lost(Signature::Kind kind, StringRef ending);
  void noteLost();

  OnnxModel &model;
  const ImportOptions &options;
  WeightStore &weights;
  Roles &roles;
  Problems &problems;
  Signature signature;
  Uses uses;
  std::vector<std::string> unexplained; ///< parameters that the file has in no form
  std::vector<std::string> untrained;   ///< values made of parameters that are none
  std::optional<llvm::Regex> train, freeze;
  unsigned trainMatches = 0, freezeMatches = 0;
};

std::string siteText(const Site &site) {
  return site.node->op_type() + " '" + nodeName(*site.node) + "'";
}

/// A scale or bias of BatchNormalization, which --freeze keeps in inference mode by it.
bool isOfBatchNorm(const Site &site) {
  return site.node->op_type() == "BatchNormalization" &&
         (site.use == Use::scale || site.use == Use::bias);
}

bool makeRegex(StringRef option, const std::string &text, std::optional<llvm::Regex> &regex,
               Problems &problems) {
  if (text.empty())
    return true;
  regex.emplace(text);
  std::string error;
  if (regex->isValid(error))
    return true;
  return problems.add(option + "='" + text +
                      "' is no regular expression (POSIX extended): " + error);
}

} // namespace

bool mpc::import::isConstantName(StringRef name) {
  static const llvm::Regex made("^(val_[0-9]+|onnx::[A-Za-z0-9]+_[0-9]+|[0-9]+)$");
  return name.contains("Constant") || made.match(name);
}

/// The call that made it takes a tensor's shape and type.
static bool hasShapeOnly(StringRef name) {
  static const llvm::Regex calls("^((zeros|ones|full|empty|rand|randn|randint)_like|"
                                 "new_(zeros|ones|full|empty))(_[0-9]+)?$");
  return calls.match(name);
}

/// The call makes a tensor of numbers alone.
static bool isFactory(StringRef name) {
  static const llvm::Regex calls("^(arange|linspace|full|zeros|ones|eye|scalar_tensor|tensor|"
                                 "lift_fresh_copy)(_default)?(_[0-9]+)?$");
  return hasShapeOnly(name) || calls.match(name);
}

/// The call that made it has no derivative, or one of zero.
static bool hasNoDerivative(StringRef name) {
  static const llvm::Regex calls(
      "^(eq|ne|lt|le|gt|ge|sign|sgn|floor|ceil|round|trunc|argmax|argmin|argsort|isnan|isinf|"
      "isfinite|detach)(_[0-9]+)?$");
  return hasShapeOnly(name) || calls.match(name);
}

/// A node through which gradients come, though it mostly reads no parameter there.
static bool passesOn(const Site &site) {
  StringRef op = site.node->op_type();
  return op == "Max" || op == "Min" || (op == "Where" && site.operand > 0) ||
         (op == "Attention" && site.operand < 3) ||
         ((op == "GatherND" || op == "GatherElements") && site.operand == 0);
}

/// All that read it are normalizations that have no parameter there.
bool RoleAssigner::isNormConstant(const onnx::TensorProto &tensor, const std::vector<Site> &sites) {
  return isConstantName(tensor.name()) && llvm::all_of(sites, [&](const Site &site) {
           return import::isNormConstant(site, signature);
         });
}

bool RoleAssigner::isGroupNormParameter(const onnx::TensorProto &tensor,
                                        const std::vector<Site> &sites) {
  return signature.present && !sites.empty() && llvm::all_of(sites, [&](const Site &site) {
           return isGroupNormAffine(site) &&
                  normArgument(site, signature).kind == Signature::Kind::parameter;
         });
}

std::string RoleAssigner::reasonByUse(const onnx::TensorProto &tensor,
                                      const std::vector<Site> &sites) {
  auto has = [&](std::initializer_list<Use> wanted) {
    return llvm::any_of(sites,
                        [&](const Site &site) { return llvm::is_contained(wanted, site.use); });
  };
  auto behind = parametersBehind(tensor.name());
  bool isMadeOfParameters = this->isMadeOfParameters(tensor);
  if (isMadeOfParameters && hasShapeOnly(tensor.name()) && !isReadAsAnother(tensor.name()))
    return "a value that the exporter has computed, with the shape of a parameter alone";
  if (behind && behind->empty() && !mayHideParameter(tensor.name(), sites))
    return "a value that the exporter has computed, and no parameter was part of it";
  if (model.constants.count(tensor.name()))
    return "the normalization has no parameters, by the exporter's metadata";
  if (signature.present && has({Use::scale, Use::bias}) && isNormConstant(tensor, sites))
    return "a constant of a normalization, by the exporter's metadata";
  if (has({Use::weight, Use::scale, Use::bias, Use::table}) || isGroupNormParameter(tensor, sites))
    return "";
  bool isChosen = isMadeOfParameters && llvm::any_of(sites, passesOn);
  if (!has({Use::state, Use::arithmetic}) && !isChosen)
    return sites.empty() ? "no operator with weights reads it"
                         : "used by " + siteText(sites.front()) + ", which has no weight there";
  if (isConstantName(tensor.name()) && !isMadeOfParameters)
    return "a name that exporters give to constants";
  int64_t count = elementCount(tensor.dims());
  bool singleCounts =
      isMadeOfParameters || (model.proto.producer_name() == "pytorch" && !signature.present);
  if (count < 1 || (count == 1 && !singleCounts))
    return "a single element";
  auto bytes = initializerBytes(model, tensor, weights);
  if (!bytes) {
    problems.add(llvm::toString(bytes.takeError()));
    return "";
  }
  for (int64_t i = 0; i < count; ++i)
    if (!(std::abs(floatAt(*bytes, tensor.data_type(), i)) < kMaskMagnitude))
      return "values of 10000 or more in magnitude, as masks have";
  return "";
}

std::string RoleAssigner::reasonAgainst(const onnx::TensorProto &tensor,
                                        const std::vector<Site> &sites) {
  StringRef name = tensor.name();
  bool chosen = train && train->match(name);
  trainMatches += chosen;
  if (train)
    return chosen ? "" : "not matched by --train";
  switch (signature.kind(name)) {
  case Signature::Kind::parameter:
    return "";
  case Signature::Kind::buffer:
    return "a buffer by the exporter's metadata";
  case Signature::Kind::constant:
    return "a constant by the exporter's metadata";
  case Signature::Kind::none:
  case Signature::Kind::absent: // of arguments only
    break;
  }
  return reasonByUse(tensor, sites);
}

/// A parameter that several operators share as a weight, scale, bias or table: say so.
void RoleAssigner::noteTies(StringRef name, const std::vector<Site> &sites) {
  std::vector<std::string> readers;
  bool isLayers = false;
  for (const Site &site : sites)
    if (site.use != Use::none) {
      readers.push_back(siteText(site));
      isLayers |= site.use != Use::arithmetic && site.use != Use::state;
    }
  if (readers.size() > 1 && isLayers)
    roles.notes.push_back(name.str() + " is one parameter that " + std::to_string(readers.size()) +
                          " nodes share: " + readers[0] + ", " + readers[1] +
                          (readers.size() > 2 ? ", …" : ""));
}

/// Of what the exporter has computed the initializer: the parameters of the PyTorch model among it.
std::optional<std::vector<std::string>> RoleAssigner::parametersBehind(StringRef name) {
  auto told = model.foldedFrom.find(name.str());
  if (!signature.present || told == model.foldedFrom.end())
    return std::nullopt;
  std::vector<std::string> parameters = told->second;
  llvm::erase_if(parameters, [&](const std::string &value) {
    return signature.kind(value) != Signature::Kind::parameter;
  });
  return parameters;
}

/// A number of the exporter's own, such as attention's scale, has only the shape of one.
bool RoleAssigner::isMadeOfParameters(const onnx::TensorProto &tensor) {
  auto behind = parametersBehind(tensor.name());
  return behind && !behind->empty() &&
         !(isConstantName(tensor.name()) && elementCount(tensor.dims()) == 1);
}

/// While a parameter is nowhere, a reader's call names another value: the exporter has merged equal
/// ones.
bool RoleAssigner::isReadAsAnother(StringRef name) {
  return !unexplained.empty() && !isConstantName(name) &&
         llvm::any_of(uses.consumers(name), [&](const Uses::Edge &reader) {
           return !callText(*reader.node).empty() && !readsResult(*reader.node, name, signature);
         });
}

/// While a parameter is nowhere, the value may have been made of it: it is read as another; nothing
/// that the file knows went into it; or it is a weight, and something that the file does not know
/// did.
bool RoleAssigner::mayHideParameter(StringRef name, const std::vector<Site> &sites) {
  if (unexplained.empty())
    return false;
  const std::vector<std::string> &sources = model.foldedFrom[name.str()];
  auto isKnown = [&](const std::string &source) {
    return signature.kinds.count(source) || isFactory(source);
  };
  auto isUnknown = [&](const std::string &source) {
    return !isConstantName(source) && !isKnown(source) && !roles.of.count(source);
  };
  auto isWeight = [](const Site &site) {
    return site.use == Use::weight || site.use == Use::table;
  };
  bool hasUnknown = llvm::any_of(sources, isUnknown);
  return isReadAsAnother(name) ||
         (hasUnknown && (llvm::none_of(sources, isKnown) || llvm::any_of(sites, isWeight)));
}

/// Of a value that is trained.
bool RoleAssigner::mayBeConstant(const std::string &name) {
  auto behind = parametersBehind(name);
  if (!behind) // an older exporter, which does not tell
    return model.foldedFrom.empty() && isComputedAhead(name);
  return behind->empty() || hasNoDerivative(name) ||
         llvm::any_of(model.foldedFrom[name], [&](const std::string &source) {
           return !signature.kinds.count(source) && hasNoDerivative(source);
         });
}

bool RoleAssigner::isComputedAhead(StringRef name) {
  return signature.present && llvm::any_of(uses.consumers(name), [&](const Uses::Edge &reader) {
           return readsResult(*reader.node, name, signature);
         });
}

/// What the signature lists and the file does not have. A weight that the file has under another
/// name, mostly transposed, is not lost: its node's call tells.
std::vector<std::string> RoleAssigner::lost(Signature::Kind kind, StringRef ending) {
  llvm::StringSet<> there;
  for (const onnx::TensorProto &tensor : model.proto.graph().initializer()) {
    there.insert(tensor.name());
    if (signature.kind(tensor.name()) != Signature::Kind::none ||
        !isFloatType(tensor.data_type()) || isComputedAhead(tensor.name()))
      continue;
    bool isNumber = isConstantName(tensor.name()) || elementCount(tensor.dims()) == 1;
    for (const Site &site : uses.sites(tensor.name())) {
      if (site.use == Use::none ||
          (isNumber && (site.use == Use::arithmetic || site.use == Use::state)))
        continue;
      for (const Signature::Placeholder &argument : callArguments(*site.node, signature))
        there.insert(argument.target);
    }
  }
  std::vector<std::string> names;
  for (const auto &entry : signature.kinds)
    if (entry.second == kind && entry.getKey().ends_with(ending) && !there.contains(entry.getKey()))
      names.push_back(entry.getKey().str());
  llvm::sort(names);
  return names;
}

/// "a, b, c, d, …"
static std::string listOf(llvm::ArrayRef<std::string> names) {
  return llvm::join(names.take_front(4), ", ") + (names.size() > 4 ? ", …" : "");
}

/// Parameters that are in the file more than once, as they are or as what the exporter has computed
/// of them, and what may be none.
void RoleAssigner::noteComputed() {
  std::map<std::string, std::vector<std::string>> madeOf; // parameter → what is trained of it
  std::vector<std::string> perhaps, apart;
  for (const auto &[name, role] : roles.of) {
    if (role != InitializerRole::parameter)
      continue;
    if (auto behind = parametersBehind(name))
      for (const std::string &parameter : *behind)
        madeOf[parameter].push_back(name);
    if (mayBeConstant(name))
      perhaps.push_back(name);
  }
  for (const auto &[parameter, made] : madeOf) {
    auto own = roles.of.find(parameter);
    bool isThere = roles.frozen.count(parameter) ||
                   (own != roles.of.end() && own->second == InitializerRole::parameter);
    if (isThere || made.size() > 1)
      apart.push_back(parameter + " (" + (isThere ? "itself, " : "") + listOf(made) + ")");
  }
  if (!apart.empty())
    roles.notes.push_back("the exporter has computed values of parameters, which are trained apart "
                          "from what else the file has of these: " +
                          listOf(apart) + "; exported with optimize=False they are one");
  if (!untrained.empty())
    roles.notes.push_back("the exporter has computed values of parameters that are not trained "
                          "(`info` tells why): " +
                          listOf(untrained) +
                          "; exported with optimize=False the parameters are in their place");
  if (!perhaps.empty())
    roles.notes.push_back(
        "the exporter has computed values that perhaps are constants, which the file does not "
        "tell; they are trained, and --freeze leaves them out: " +
        listOf(perhaps));
}

/// Parameters of the PyTorch model that the file does not have: a BatchNormalization folded into
/// the convolution before it, zero biases, what the exporter has computed something of.
void RoleAssigner::noteLost() {
  auto note = [&](const std::vector<std::string> &names, const std::string &what,
                  const std::string &where) {
    if (names.empty())
      return;
    roles.notes.push_back(
        std::to_string(names.size()) + " " + what +
        (names.size() == 1 ? " of the PyTorch model is " : "s of the PyTorch model are ") + where +
        ": " + listOf(names) + "; exported with optimize=False what the model reads stays");
  };
  std::vector<std::string> parameters = lost(Signature::Kind::parameter, ""), computed;
  for (const std::string &parameter : parameters)
    if (!llvm::is_contained(unexplained, parameter))
      computed.push_back(parameter);
  note(computed, "parameter", "in the file only as what the exporter has computed");
  note(unexplained, "parameter",
       "not in the file under this name: not read, tied to another, or folded, renamed or dropped "
       "by the exporter");
  if (!parameters.empty())
    return;
  // A BatchNormalization without parameters leaves nothing else behind.
  std::vector<std::string> means = lost(Signature::Kind::buffer, ".running_mean");
  size_t known = llvm::count_if(signature.kinds, [](const auto &entry) {
    return entry.second == Signature::Kind::buffer && entry.getKey().ends_with(".running_mean");
  });
  size_t used = llvm::count_if(model.proto.graph().initializer(), [&](const auto &tensor) {
    return llvm::any_of(uses.sites(tensor.name()),
                        [](const Site &site) { return site.use == Use::mean; });
  });
  if (!means.empty() && used < known)
    note(means, "running mean",
         "not in the file, since the exporter folded or dropped the normalization");
}

/// What is no parameter. --freeze names its normalization all the same.
void RoleAssigner::leaveOut(const onnx::TensorProto &tensor, const std::string &reason,
                            bool isFrozen) {
  roles.leftOut.push_back(tensor.name() + ": " + reason + (isFrozen ? ", frozen" : ""));
  if (isFrozen)
    roles.frozen.insert(tensor.name());
}

bool RoleAssigner::run() {
  makeRegex("--train", options.trainRegex, train, problems);
  makeRegex("--freeze", options.freezeRegex, freeze, problems);
  if (!problems.none())
    return false;
  unexplained = lost(Signature::Kind::parameter, "");
  llvm::erase_if(unexplained, [&](const std::string &parameter) {
    return llvm::any_of(model.foldedFrom, [&](const auto &told) {
      return llvm::is_contained(told.second, parameter);
    });
  });
  for (const onnx::TensorProto &tensor : model.proto.graph().initializer())
    roles.of[tensor.name()] = InitializerRole::constant;
  int64_t parameters = 0, elements = 0, frozen = 0;
  for (const onnx::TensorProto &tensor : model.proto.graph().initializer()) {
    InitializerRole &role = roles.of[tensor.name()];
    bool isUsed = !uses.consumers(tensor.name()).empty() || uses.isOutput(tensor.name());
    role = isUsed ? InitializerRole::constant : InitializerRole::unused;
    if (!isFloatType(tensor.data_type()))
      continue;
    if (!isUsed) {
      roles.leftOut.push_back(tensor.name() + ": not used");
      continue;
    }
    if (elementCount(tensor.dims()) == 0) {
      roles.leftOut.push_back(tensor.name() + ": no elements");
      continue;
    }
    std::vector<Site> sites = uses.sites(tensor.name());
    bool statistic = llvm::any_of(
        sites, [](const Site &site) { return site.use == Use::mean || site.use == Use::variance; });
    bool isFrozen = freeze && freeze->match(tensor.name());
    freezeMatches += isFrozen;
    if (statistic) {
      role = InitializerRole::statistic;
      leaveOut(tensor, "a running statistic of BatchNormalization", isFrozen);
      continue;
    }
    std::string reason = reasonAgainst(tensor, sites);
    if (!reason.empty()) { // other constants stay in the text, where they fold
      if (isMadeOfParameters(tensor) && !train && !hasShapeOnly(tensor.name()))
        untrained.push_back(tensor.name());
      leaveOut(tensor, reason, isFrozen && llvm::any_of(sites, isOfBatchNorm));
      continue;
    }
    if (isFrozen) { // a constant that keeps its name
      roles.leftOut.push_back(tensor.name() + ": --freeze");
      roles.frozen.insert(tensor.name());
      ++frozen;
      continue;
    }
    role = InitializerRole::parameter;
    ++parameters;
    elements += elementCount(tensor.dims());
    noteTies(tensor.name(), sites);
  }
  if (train && trainMatches == 0)
    problems.add("--train='" + options.trainRegex +
                 "' matches the name of no floating-point initializer that is used");
  if (freeze && freezeMatches == 0)
    problems.add("--freeze='" + options.freezeRegex +
                 "' matches the name of no floating-point initializer that is used");
  std::string left = roles.leftOut.empty()
                         ? "every floating-point initializer is one"
                         : std::to_string(roles.leftOut.size()) +
                               (roles.leftOut.size() == 1 ? " floating-point initializer is"
                                                          : " floating-point initializers are") +
                               " not trained (`info` lists them)";
  std::string count = parameters == 0
                          ? "no parameters"
                          : std::to_string(parameters) +
                                (parameters == 1 ? " parameter with " : " parameters with ") +
                                std::to_string(elements) + " elements";
  roles.notes.insert(roles.notes.begin(),
                     parameters == 0 && roles.leftOut.empty() ? count : count + "; " + left);
  if (freeze)
    roles.notes.push_back("--freeze=" + options.freezeRegex + ": " + std::to_string(frozen) +
                          (frozen == 1 ? " parameter is" : " parameters are") + " not trained");
  noteComputed();
  noteLost();
  return problems.none();
}

bool mpc::import::assignRoles(OnnxModel &model, const ImportOptions &options, WeightStore &weights,
                              Roles &roles, Problems &problems) {
  return RoleAssigner(model, options, weights, roles, problems).run();
}
