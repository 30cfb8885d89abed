//===- Emit.cpp - the protobuf becomes a module of the onnx dialect -------===//
//
// One onnx.node per node, with its attributes; large floating-point initializers are
// arguments that refer to the file, everything small is a constant.
//
//===----------------------------------------------------------------------===//

#include "OnnxDialect.h"
#include "compiler/import/Model.h"
#include "compiler/ops/Build.h"
#include "compiler/ops/FewerRows.h"
#include "compiler/ops/Unsigned.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/Path.h"
#include <cmath>
#include <onnx/defs/schema.h>

using namespace mlir;
using namespace mpc;
using namespace mpc::import;

namespace {

constexpr int64_t kLargeFloats = 1024, kLargeIntegers = int64_t(1) << 20;

class Emitter {
public:
  Emitter(OnnxModel &model, const Roles &roles, const BatchAxes &batch, const Overrides &overrides,
          WeightStore &weights, StringRef lossInput, MLIRContext &context, Problems &problems)
      : model(model), roles(roles), batch(batch), overrides(overrides), weights(weights),
        lossInput(lossInput), b(&context), problems(problems) {}
  OwningOpRef<ModuleOp> run();

private:
  // Types.
  Type elementType(int32_t onnxType);
  Type storedType(Type held, int32_t onnxType);
  Type type(const ::onnx::TypeProto &proto);
  Type typeOf(StringRef value);
  int32_t elementOf(StringRef value);
  DenseI64ArrayAttr unsignedBits(ArrayRef<int32_t> onnxTypes);
  void addTypes(const ::onnx::GraphProto &graph);
  RankedTensorType tensorType(const ::onnx::TensorProto &tensor);

  // Values: one scope per graph, innermost last.
  Value lookup(StringRef name);
  void define(StringRef name, Value value) { scopes.back()[name] = value; }

  bool isArgument(const ::onnx::TensorProto &tensor);
  Value asRead(BlockArgument argument, Type type);
  DenseElementsAttr elements(RankedTensorType type, ArrayRef<char> bytes);
  DenseElementsAttr elements(const ::onnx::TensorProto &tensor);
  void constant(StringRef name, StringRef location, DenseElementsAttr value,
                int32_t onnxType = ::onnx::TensorProto::UNDEFINED);
  void initializerConstant(const ::onnx::TensorProto &tensor);
  bool constantNode(const ::onnx::NodeProto &node);
  Attribute attribute(const ::onnx::NodeProto &node, const ::onnx::AttributeProto &proto);
  void node(const ::onnx::NodeProto &node);
  void subgraph(Region &region, const ::onnx::NodeProto &owner, const ::onnx::GraphProto &graph);

  // The function @graph.
  DictionaryAttr nameAndRole(StringRef name, StringRef role, Attribute weights = {});
  void addWeight(const ::onnx::TensorProto &tensor);
  void describe(const ::onnx::TensorProto &tensor, const DataRange &data,
                NamedAttrList &attributes);
  func::FuncOp createFunction();
  void addResults(func::FuncOp function);
  void addModuleAttributes(ModuleOp module);
  int64_t sinceVersion(const ::onnx::NodeProto &node);
  Location nodeLoc(StringRef name) { return NameLoc::get(b.getStringAttr(name)); }
  bool problem(const ::onnx::NodeProto &node, const Twine &text) {
    return problems.add(node, model.opset(node.domain()), text);
  }

  OnnxModel &model;
  const Roles &roles;
  const BatchAxes &batch;
  const Overrides &overrides;
  WeightStore &weights;
  StringRef lossInput;
  OpBuilder b;
  Problems &problems;
  std::vector<llvm::StringMap<Value>> scopes;
  llvm::StringMap<const ::onnx::TypeProto *> types;
  Value none;
  struct Argument {
    std::string name;
    Type type;
    DictionaryAttr attributes;
    RankedTensorType read; ///< the type in which the model reads a weight; null: as it is
  };
  std::vector<Argument> arguments;
};

} // namespace

Type Emitter::elementType(int32_t onnxType) {
  switch (onnxType) {
  case ::onnx::TensorProto::FLOAT:
    return b.getF32Type();
  case ::onnx::TensorProto::DOUBLE:
    return b.getF64Type();
  case ::onnx::TensorProto::FLOAT16:
    return b.getF16Type();
  case ::onnx::TensorProto::BFLOAT16:
    return b.getBF16Type();
  case ::onnx::TensorProto::BOOL:
    return b.getI1Type();
  case ::onnx::TensorProto::INT8:
  case ::onnx::TensorProto::INT16:
  case ::onnx::TensorProto::INT32:
  case ::onnx::TensorProto::INT64:
    return b.getIntegerType(unsigned(8 * elementBytes(onnxType)));
  case ::onnx::TensorProto::UINT8:
  case ::onnx::TensorProto::UINT16:
  case ::onnx::TensorProto::UINT32:
    return b.getIntegerType(
        unsigned(16 * elementBytes(onnxType))); // the signed type that holds all of its values
  case ::onnx::TensorProto::UINT64:
    return b.getI64Type();
  default:
    return {};
  }
}

/// The type of a tensor in the program's own memory: as many bits as in ONNX.
Type Emitter::storedType(Type held, int32_t onnxType) {
  auto tensor = dyn_cast<RankedTensorType>(held);
  if (!tensor || !isUnsignedType(onnxType))
    return held;
  return tensor.clone(b.getIntegerType(unsigned(8 * elementBytes(onnxType))));
}

/// none: a type that no tensor of ours has (strings, maps).
Type Emitter::type(const ::onnx::TypeProto &proto) {
  if (proto.has_sequence_type())
    return mpc::onnx::SequenceType::get(b.getContext());
  if (!proto.has_tensor_type())
    return proto.value_case() == ::onnx::TypeProto::VALUE_NOT_SET
               ? Type(UnrankedTensorType::get(b.getF32Type()))
               : Type(b.getNoneType());
  const auto &tensor = proto.tensor_type();
  if (tensor.elem_type() == ::onnx::TensorProto::UNDEFINED)
    return UnrankedTensorType::get(b.getF32Type());
  Type element = elementType(tensor.elem_type());
  if (!element)
    return b.getNoneType();
  if (!tensor.has_shape())
    return UnrankedTensorType::get(element);
  SmallVector<int64_t> shape, known;
  for (const auto &dim : tensor.shape().dim()) {
    bool isKnown = dim.has_dim_value() && dim.dim_value() >= 0;
    shape.push_back(isKnown ? dim.dim_value() : ShapedType::kDynamic);
    if (isKnown)
      known.push_back(dim.dim_value());
  }
  int64_t count = elementCount(known);
  if (count < 0 || count > kMostElements)
    return {};
  return RankedTensorType::get(shape, element);
}

Type Emitter::typeOf(StringRef value) {
  const ::onnx::TypeProto *proto = types.lookup(value);
  return proto ? type(*proto) : Type(UnrankedTensorType::get(b.getF32Type()));
}

/// UNDEFINED: no tensor, or not known.
int32_t Emitter::elementOf(StringRef value) {
  const ::onnx::TypeProto *proto = types.lookup(value);
  return proto && proto->has_tensor_type() ? proto->tensor_type().elem_type()
                                           : int32_t(::onnx::TensorProto::UNDEFINED);
}

/// kUnsignedAttr of a node or constant; null where no result is unsigned.
DenseI64ArrayAttr Emitter::unsignedBits(ArrayRef<int32_t> onnxTypes) {
  if (llvm::none_of(onnxTypes, isUnsignedType))
    return {};
  SmallVector<int64_t> bits;
  for (int32_t type : onnxTypes)
    bits.push_back(isUnsignedType(type) ? 8 * elementBytes(type) : 0);
  return b.getDenseI64ArrayAttr(bits);
}

void Emitter::addTypes(const ::onnx::GraphProto &graph) {
  for (const auto *infos : {&graph.input(), &graph.output(), &graph.value_info()})
    for (const ::onnx::ValueInfoProto &info : *infos)
      types[info.name()] = &info.type();
}

RankedTensorType Emitter::tensorType(const ::onnx::TensorProto &tensor) {
  SmallVector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  return RankedTensorType::get(shape, elementType(tensor.data_type()));
}

Value Emitter::lookup(StringRef name) {
  if (name.empty()) {
    if (!none) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(
          &b.getBlock()->getParent()->getParentOfType<func::FuncOp>().getBody().front());
      none = mpc::onnx::NoneOp::create(b, b.getUnknownLoc(), b.getNoneType());
    }
    return none;
  }
  for (auto &scope : llvm::reverse(scopes))
    if (auto found = scope.find(name); found != scope.end())
      return found->second;
  return {};
}

/// Parameters, frozen ones too, and statistics, and what is too large to stand in the text.
bool Emitter::isArgument(const ::onnx::TensorProto &tensor) {
  InitializerRole role = roles.of.at(tensor.name());
  if (role == InitializerRole::unused)
    return false;
  bool isFloat = isFloatType(tensor.data_type());
  return role != InitializerRole::constant || roles.frozen.count(tensor.name()) ||
         elementCount(tensor.dims()) > (isFloat ? kLargeFloats : kLargeIntegers);
}

/// A weight in the type in which the model reads it; null: the argument's.
Value Emitter::asRead(BlockArgument argument, Type type) {
  if (!type || type == argument.getType())
    return argument;
  auto bits = [](Type tensor) { return cast<RankedTensorType>(tensor).getElementTypeBitWidth(); };
  if (bits(type) > bits(argument.getType()))
    return arith::ExtFOp::create(b, argument.getLoc(), type, argument);
  return arith::TruncFOp::create(b, argument.getLoc(), type, argument);
}

DenseElementsAttr Emitter::elements(RankedTensorType type, ArrayRef<char> bytes) {
  if (type.getElementType().isInteger(1)) {
    SmallVector<bool> values;
    for (char byte : bytes)
      values.push_back(byte != 0);
    return DenseElementsAttr::get(type, values);
  }
  return DenseElementsAttr::getFromRawBuffer(type, bytes);
}

/// Null, with a problem added, where the tensor cannot be read.
DenseElementsAttr Emitter::elements(const ::onnx::TensorProto &tensor) {
  auto bytes = tensorBytes(tensor);
  if (!bytes) {
    problems.add(llvm::toString(bytes.takeError()));
    return {};
  }
  return elements(tensorType(tensor), widenUnsigned(*bytes, tensor.data_type()));
}

void Emitter::constant(StringRef name, StringRef location, DenseElementsAttr value,
                       int32_t onnxType) {
  if (!value)
    return;
  auto op = arith::ConstantOp::create(b, nodeLoc(location), value);
  op->setAttr(MpcDialect::kNameAttr, b.getStringAttr(name));
  if (auto bits = unsignedBits(onnxType))
    op->setAttr(kUnsignedAttr, bits);
  define(name, op);
}

void Emitter::initializerConstant(const ::onnx::TensorProto &tensor) {
  if (elementBytes(tensor.data_type()) == 0) {
    problems.addUnsupported("initializer '" + tensor.name() + "' has elements of type " +
                            mpc::import::elementTypeName(tensor.data_type()) +
                            ", which is not supported");
    return;
  }
  auto bytes = initializerBytes(model, tensor, weights);
  if (!bytes) {
    problems.add(llvm::toString(bytes.takeError()));
    return;
  }
  constant(tensor.name(), tensor.name(),
           elements(tensorType(tensor), widenUnsigned(*bytes, tensor.data_type())),
           tensor.data_type());
}

/// A Constant node in any of its forms but strings; false for those.
bool Emitter::constantNode(const ::onnx::NodeProto &node) {
  if (!node.domain().empty() || node.op_type() != "Constant" || node.attribute_size() != 1 ||
      node.output_size() != 1)
    return false;
  const ::onnx::AttributeProto &value = node.attribute(0);
  DenseElementsAttr result;
  int32_t onnxType = ::onnx::TensorProto::UNDEFINED;
  auto type = [&](ArrayRef<int64_t> shape, Type element) {
    return RankedTensorType::get(shape, element);
  };
  if (value.name() == "value" && value.has_t() && elementBytes(value.t().data_type()) != 0) {
    result = elements(value.t());
    if (!result)
      return true;
    onnxType = value.t().data_type();
  } else if (value.name() == "value_float") {
    result = DenseElementsAttr::get(type({}, b.getF32Type()), value.f());
  } else if (value.name() == "value_int") {
    result = DenseElementsAttr::get(type({}, b.getI64Type()), int64_t(value.i()));
  } else if (value.name() == "value_floats") {
    SmallVector<float> list(value.floats().begin(), value.floats().end());
    result =
        DenseElementsAttr::get(type(int64_t(list.size()), b.getF32Type()), ArrayRef<float>(list));
  } else if (value.name() == "value_ints") {
    SmallVector<int64_t> list(value.ints().begin(), value.ints().end());
    result =
        DenseElementsAttr::get(type(int64_t(list.size()), b.getI64Type()), ArrayRef<int64_t>(list));
  } else {
    return false;
  }
  constant(node.output(0), nodeName(node), result, onnxType);
  return true;
}

/// Null: a graph (a region of the node), or nothing; a problem is added for forms that no supported
/// operator has.
Attribute Emitter::attribute(const ::onnx::NodeProto &node, const ::onnx::AttributeProto &proto) {
  switch (proto.type()) {
  case ::onnx::AttributeProto::INT:
    return b.getI64IntegerAttr(proto.i());
  case ::onnx::AttributeProto::FLOAT:
    return b.getF32FloatAttr(proto.f());
  case ::onnx::AttributeProto::STRING:
    return b.getStringAttr(proto.s());
  case ::onnx::AttributeProto::INTS:
    return b.getDenseI64ArrayAttr(SmallVector<int64_t>(proto.ints().begin(), proto.ints().end()));
  case ::onnx::AttributeProto::FLOATS:
    return b.getDenseF32ArrayAttr(SmallVector<float>(proto.floats().begin(), proto.floats().end()));
  case ::onnx::AttributeProto::STRINGS: {
    SmallVector<Attribute> list;
    for (const std::string &text : proto.strings())
      list.push_back(b.getStringAttr(text));
    return b.getArrayAttr(list);
  }
  case ::onnx::AttributeProto::TENSOR:
    if (elementBytes(proto.t().data_type()) == 0) {
      problem(node, "its attribute " + proto.name() + " is a tensor of type " +
                        mpc::import::elementTypeName(proto.t().data_type()) +
                        ", which is not supported");
      problems.list.back().unsupported = true;
      return {};
    }
    return elements(proto.t());
  case ::onnx::AttributeProto::TYPE_PROTO:
    if (Type found = type(proto.tp()))
      return TypeAttr::get(found);
    problem(node, "its attribute " + proto.name() + " is a type of absurd size");
    return {};
  case ::onnx::AttributeProto::GRAPH:
  case ::onnx::AttributeProto::GRAPHS:
    return {};
  default:
    problem(node, "its attribute " + proto.name() + " is of kind " +
                      ::onnx::AttributeProto::AttributeType_Name(proto.type()) +
                      ", which is not supported");
    problems.list.back().unsupported = true;
    return {};
  }
}

/// The version in which the operator was last changed; 0: not an operator of its domain; the
/// imported version for domains that ONNX does not define.
int64_t Emitter::sinceVersion(const ::onnx::NodeProto &node) {
  int64_t version = model.opset(node.domain());
  if (version < 0)
    return 0;
  const auto &domains = ::onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  if (!domains.count(node.domain()))
    return version;
  const ::onnx::OpSchema *schema =
      ::onnx::OpSchemaRegistry::Schema(node.op_type(), int(version), node.domain());
  return schema ? schema->SinceVersion() : 0;
}

void Emitter::subgraph(Region &region, const ::onnx::NodeProto &owner,
                       const ::onnx::GraphProto &graph) {
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&region);
  scopes.emplace_back();
  addTypes(graph);
  for (const ::onnx::ValueInfoProto &input : graph.input()) {
    Type inputType = type(input.type());
    define(input.name(), block->addArgument(inputType ? inputType : Type(b.getNoneType()),
                                            nodeLoc(nodeName(owner))));
  }
  for (const ::onnx::NodeProto &inner : graph.node())
    node(inner);
  SmallVector<Value> outputs;
  for (const ::onnx::ValueInfoProto &output : graph.output())
    if (Value value = lookup(output.name()))
      outputs.push_back(value);
    else
      problem(owner, "output '" + output.name() + "' of its subgraph has no value");
  mpc::onnx::YieldOp::create(b, nodeLoc(nodeName(owner)), outputs);
  scopes.pop_back();
}

void Emitter::node(const ::onnx::NodeProto &node) {
  if (constantNode(node))
    return;
  SmallVector<Value> operands;
  for (const std::string &input : node.input()) {
    Value value = lookup(input);
    if (!value) { // its own problem has been reported
      if (problems.none())
        problem(node, "operand '" + input + "' has no value");
      return;
    }
    operands.push_back(value);
  }
  SmallVector<Type> results;
  SmallVector<int32_t> onnxTypes;
  for (const std::string &output : node.output()) {
    Type found = output.empty() ? Type(UnrankedTensorType::get(b.getF32Type())) : typeOf(output);
    if (!found) {
      problem(node, "its result '" + output + "' would have an absurd number of elements");
      return;
    }
    results.push_back(found);
    onnxTypes.push_back(elementOf(output));
  }
  SmallVector<NamedAttribute> attributes;
  SmallVector<const ::onnx::GraphProto *> graphs;
  for (const ::onnx::AttributeProto &proto : node.attribute()) {
    if (Attribute value = attribute(node, proto))
      attributes.push_back(b.getNamedAttr(proto.name(), value));
    if (proto.has_g())
      graphs.push_back(&proto.g());
    for (const ::onnx::GraphProto &graph : proto.graphs())
      graphs.push_back(&graph);
  }
  if (auto bits = unsignedBits(onnxTypes))
    attributes.push_back(b.getNamedAttr(kUnsignedAttr, bits));
  // An If has its regions in the order then, else, whatever the file's order of attributes.
  if (node.op_type() == "If" && node.attribute_size() == 2 &&
      node.attribute(0).name() == "else_branch" && graphs.size() == 2)
    std::swap(graphs[0], graphs[1]);
  std::string name = nodeName(node);
  auto op = mpc::onnx::NodeOp::create(
      b, nodeLoc(name), results, b.getStringAttr(node.op_type()),
      b.getI64IntegerAttr(sinceVersion(node)), b.getStringAttr(name), operands,
      b.getDictionaryAttr(attributes),
      node.domain().empty() ? StringAttr() : b.getStringAttr(node.domain()),
      unsigned(graphs.size()));
  for (size_t i = 0; i < graphs.size(); ++i)
    subgraph(op.getGraphs()[i], node, *graphs[i]);
  for (auto [output, value] : llvm::zip(node.output(), op->getResults()))
    if (!output.empty())
      define(output, value);
}

DictionaryAttr Emitter::nameAndRole(StringRef name, StringRef role, Attribute weights) {
  SmallVector<NamedAttribute> attrs = {
      b.getNamedAttr(MpcDialect::kNameAttr, b.getStringAttr(name)),
      b.getNamedAttr(MpcDialect::kRoleAttr, b.getStringAttr(role))};
  if (weights)
    attrs.push_back(b.getNamedAttr(MpcDialect::kWeightsAttr, weights));
  return b.getDictionaryAttr(attrs);
}

/// What later stages ask of a constant's numbers, which are not in the module.
void Emitter::describe(const ::onnx::TensorProto &tensor, const DataRange &data,
                       NamedAttrList &attributes) {
  auto bytes = weights.bytes(data.file, data.offset, data.bytes);
  if (!bytes) {
    problems.add(llvm::toString(bytes.takeError()));
    return;
  }
  if (isFloatType(tensor.data_type()) && !roles.frozen.count(tensor.name()))
    if (auto range = magnitudes(*bytes, tensor.data_type()))
      attributes.set("mpc.magnitudes", b.getDenseF64ArrayAttr({range->first, range->second}));
  std::vector<int64_t> axes = repeatedAxes(tensor, *bytes, batch.batch);
  if (!axes.empty())
    attributes.set(kRepeatedAttr, b.getDenseI64ArrayAttr(axes));
}

void Emitter::addWeight(const ::onnx::TensorProto &tensor) {
  auto data = initializerData(model, tensor, weights);
  if (!data) {
    problems.add(llvm::toString(data.takeError()));
    return;
  }
  InitializerRole role = roles.of.at(tensor.name());
  StringRef roleName = role == InitializerRole::parameter   ? "parameter"
                       : role == InitializerRole::statistic ? "statistic"
                                                            : "constant";
  // What training changes is f32, not half: the model reads it in the file's type.
  auto read = cast<RankedTensorType>(storedType(tensorType(tensor), tensor.data_type()));
  bool isHalf = read.getElementTypeBitWidth() == 16;
  bool wide = role == InitializerRole::parameter || (role == InitializerRole::statistic && isHalf);
  auto where = WeightsAttr::get(b.getContext(), data->file, data->offset, data->bytes,
                                read.getElementType());
  NamedAttrList attributes = nameAndRole(tensor.name(), roleName, where);
  if (roles.frozen.count(tensor.name()))
    attributes.set("mpc.frozen", b.getUnitAttr());
  if (role == InitializerRole::constant)
    describe(tensor, *data, attributes);
  arguments.push_back({tensor.name(), wide ? read.clone(b.getF32Type()) : read,
                       attributes.getDictionary(b.getContext()), read});
}

/// @graph with its arguments defined by name, and without results.
func::FuncOp Emitter::createFunction() {
  SmallVector<Type> argumentTypes;
  SmallVector<DictionaryAttr> attributes;
  for (const Argument &argument : arguments) {
    argumentTypes.push_back(argument.type);
    attributes.push_back(argument.attributes);
  }
  auto function =
      func::FuncOp::create(b, b.getUnknownLoc(), "graph", b.getFunctionType(argumentTypes, {}));
  function.setAllArgAttrs(attributes);
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  for (auto [argument, value] : llvm::zip_equal(arguments, entry->getArguments()))
    define(argument.name, asRead(value, argument.read));
  return function;
}

/// The graph's outputs, and the tensor that the loss reads where that is none of them.
void Emitter::addResults(func::FuncOp function) {
  SmallVector<Value> outputs;
  SmallVector<DictionaryAttr> attributes;
  auto add = [&](StringRef name, StringRef role, Value value) {
    outputs.push_back(value);
    attributes.push_back(nameAndRole(name, role));
  };
  bool isOutput = false;
  for (const ::onnx::ValueInfoProto &output : model.proto.graph().output()) {
    Value value = lookup(output.name());
    if (!value) {
      if (problems.none())
        problems.add("graph output '" + output.name() + "' has no value");
      return;
    }
    add(output.name(), "output", value);
    isOutput |= StringRef(output.name()) == lossInput;
  }
  if (!lossInput.empty() && !isOutput)
    if (Value value = lookup(lossInput))
      add(lossInput, "loss_input", value);
  func::ReturnOp::create(b, b.getUnknownLoc(), outputs);
  function.setFunctionType(
      b.getFunctionType(function.getArgumentTypes(), ValueRange(outputs).getTypes()));
  function.setAllResultAttrs(attributes);
}

void Emitter::addModuleAttributes(ModuleOp module) {
  auto strings = [&](ArrayRef<std::string> list) {
    SmallVector<Attribute> attrs;
    for (const std::string &text : list)
      attrs.push_back(b.getStringAttr(text));
    return b.getArrayAttr(attrs);
  };
  SmallVector<NamedAttribute> axes;
  for (const auto &[name, axis] : batch.axes)
    axes.push_back(b.getNamedAttr(name, b.getI64IntegerAttr(axis)));
  std::vector<std::string> notes = roles.notes;
  notes.insert(notes.end(), model.notes.begin(), model.notes.end());
  SmallVector<Attribute> unsignedNames;
  for (const auto *infos : {&model.proto.graph().input(), &model.proto.graph().output()})
    for (const ::onnx::ValueInfoProto &info : *infos)
      if (isUnsignedType(elementOf(info.name())))
        unsignedNames.push_back(b.getStringAttr(info.name()));
  for (const ::onnx::TensorProto &tensor : model.proto.graph().initializer())
    if (isUnsignedType(tensor.data_type()) && isArgument(tensor))
      unsignedNames.push_back(b.getStringAttr(tensor.name()));
  if (!unsignedNames.empty())
    module->setAttr(kUnsignedAttr, b.getArrayAttr(unsignedNames));
  module->setAttr("mpc.batch", b.getI64IntegerAttr(batch.batch));
  module->setAttr("mpc.batch_axes", b.getDictionaryAttr(axes));
  if (batch.dynamic)
    module->setAttr("mpc.dynamic_batch", b.getUnitAttr());
  module->setAttr("mpc.model", b.getStringAttr(llvm::sys::path::stem(model.path)));
  module->setAttr("mpc.notes", strings(notes));
  module->setAttr("mpc.left_out", strings(roles.leftOut));
  if (int64_t opset = model.opset(""); opset > 0)
    module->setAttr("mpc.opset", b.getI64IntegerAttr(opset));
  if (!overrides.keepFp32.empty())
    module->setAttr("mpc.keep_fp32", strings(overrides.keepFp32));
  if (!overrides.allowHalf.empty())
    module->setAttr("mpc.allow_half", strings(overrides.allowHalf));
}

OwningOpRef<ModuleOp> Emitter::run() {
  const ::onnx::GraphProto &graph = model.proto.graph();
  OwningOpRef<ModuleOp> module = ModuleOp::create(b.getUnknownLoc());
  b.setInsertionPointToStart(module->getBody());
  scopes.emplace_back();
  addTypes(graph);

  for (const ::onnx::ValueInfoProto &input : graph.input())
    arguments.push_back({input.name(),
                         storedType(type(input.type()), elementOf(input.name())),
                         nameAndRole(input.name(), "input"),
                         {}});
  for (const ::onnx::TensorProto &tensor : graph.initializer())
    if (isArgument(tensor) && elementBytes(tensor.data_type()) != 0)
      addWeight(tensor);
  func::FuncOp function = createFunction();
  for (const ::onnx::TensorProto &tensor : graph.initializer())
    if (roles.of.at(tensor.name()) != InitializerRole::unused &&
        (!isArgument(tensor) || elementBytes(tensor.data_type()) == 0))
      initializerConstant(tensor);
  for (const ::onnx::NodeProto &inner : graph.node())
    node(inner);
  addResults(function);
  if (!problems.none())
    return {};
  addModuleAttributes(*module);
  return module;
}

OwningOpRef<ModuleOp> mpc::import::emitModule(OnnxModel &model, const Roles &roles,
                                              const BatchAxes &batch, const Overrides &overrides,
                                              StringRef lossInput, WeightStore &weights,
                                              MLIRContext &context, Problems &problems) {
  return Emitter(model, roles, batch, overrides, weights, lossInput, context, problems).run();
}
