//===- OnnxConversion.cpp - what handlers of ONNX operators see of a node --------===//
//
// NodeContext reads operands and attributes, and says in one sentence what is wrong with
// them. The registry collects the handlers of all op families.
//
//===----------------------------------------------------------------------------===//

#include "OnnxConversion.h"
#include "Build.h"
#include "OnnxConverter.h"
#include "Unsigned.h"
#include "Unsupported.h"

using namespace mlir;

namespace mpc {

// Operands. ---------------------------------------------------------------------------------

bool NodeContext::has(unsigned i) {
  return i < operandCount() && !converter.absent.contains(op.getInputs()[i]);
}

Value NodeContext::operand(unsigned i) {
  if (!has(i)) {
    error() << "operand " << i << " is left out, but needed";
    return {};
  }
  Value input = op.getInputs()[i];
  if (isa<onnx::SequenceType>(input.getType())) {
    error() << "operand " << i << " is a sequence where a tensor is needed";
    return {};
  }
  return converter.values.find(input)->second.front();
}

ValueRange NodeContext::sequence(unsigned i) {
  if (!has(i))
    return {};
  return converter.values.find(op.getInputs()[i])->second;
}

DenseElementsAttr NodeContext::constant(unsigned i) {
  DenseElementsAttr value;
  if (has(i) && !isa<onnx::SequenceType>(op.getInputs()[i].getType()))
    matchPattern(operand(i), m_Constant(&value));
  return value;
}

std::optional<SmallVector<int64_t>> NodeContext::integers(unsigned i) {
  if (!has(i)) {
    error() << "operand " << i << " is left out, but needed";
    return std::nullopt;
  }
  DenseElementsAttr value = constant(i);
  if (!value || !value.getElementType().isSignlessInteger()) {
    (value ? error() : unsupported())
        << "operand " << i << " must be " << (value ? "integers" : "known at compile time")
        << "; make it an initializer or a constant, or simplify the model before export";
    return std::nullopt;
  }
  SmallVector<int64_t> result;
  bool isBool = value.getElementType().isInteger(1);
  for (const APInt &x : value.getValues<APInt>())
    result.push_back(isBool ? x.getZExtValue() : x.getSExtValue());
  return result;
}

std::optional<double> NodeContext::scalar(unsigned i) {
  DenseElementsAttr value = constant(i);
  if (!value || value.getNumElements() != 1)
    return std::nullopt;
  if (isa<FloatType>(value.getElementType())) {
    APFloat x = *value.value_begin<APFloat>();
    bool ignored;
    x.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &ignored);
    return x.convertToDouble();
  }
  APInt x = *value.value_begin<APInt>();
  return value.getElementType().isInteger(1) ? double(x.getZExtValue()) : double(x.getSExtValue());
}

// Attributes. -------------------------------------------------------------------------------

Attribute NodeContext::attr(StringRef name) { return op.getOnnxAttributes().get(name); }

int64_t NodeContext::intAttr(StringRef name, int64_t otherwise) {
  auto value = dyn_cast_if_present<IntegerAttr>(attr(name));
  return value ? value.getValue().getSExtValue() : otherwise;
}

double NodeContext::floatAttr(StringRef name, double otherwise) {
  auto value = dyn_cast_if_present<FloatAttr>(attr(name));
  return value ? value.getValueAsDouble() : otherwise;
}

std::string NodeContext::stringAttr(StringRef name, StringRef otherwise) {
  auto value = dyn_cast_if_present<StringAttr>(attr(name));
  return (value ? value.getValue() : otherwise).str();
}

std::optional<SmallVector<int64_t>> NodeContext::intsAttr(StringRef name) {
  if (auto value = dyn_cast_if_present<DenseI64ArrayAttr>(attr(name)))
    return SmallVector<int64_t>(value.asArrayRef());
  return std::nullopt;
}

// Results. ----------------------------------------------------------------------------------

bool NodeContext::resultUsed(unsigned i) {
  return i < resultCount() && !op->getResult(i).use_empty();
}

/// ONNX's own shape inference has been run on the model: a static type that it found must be the
/// one built, or a handler has read the node wrongly.
static LogicalResult checkResult(NodeContext &node, unsigned i, Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.hasStaticShape()) {
    node.error()
        << "result " << i
        << " has no static shape; give the sizes of the inputs' dimensions with --batch and --dim";
    return failure();
  }
  auto inferred = dyn_cast<RankedTensorType>(node.op->getResult(i).getType());
  if (inferred && inferred.hasStaticShape() && inferred != type) {
    node.error() << "result " << i << " would be " << type << ", but shape inference says "
                 << inferred;
    return failure();
  }
  return success();
}

LogicalResult NodeContext::results(ArrayRef<Value> built) {
  for (unsigned i = 0; i < resultCount(); ++i) {
    Value value = i < built.size() ? built[i] : Value();
    if (!value) {
      if (!resultUsed(i))
        continue;
      unsupported() << "result " << i << " is not supported; use the model without it";
      return failure();
    }
    if (!converter.ignoreShapes && failed(checkResult(*this, i, value)))
      return failure();
    converter.values[op->getResult(i)] = {wrapped(*this, value, unsignedBits(op->getResult(i)))};
  }
  return success();
}

LogicalResult NodeContext::sequenceResult(ArrayRef<Value> built) {
  converter.values[op->getResult(0)] = SmallVector<Value, 1>(built);
  return success();
}

// Problems, randomness, constants. ----------------------------------------------------------

InFlightDiagnostic NodeContext::error() {
  ++converter.problems;
  InFlightDiagnostic diagnostic = emitError(loc);
  diagnostic << op.getNodeName() << " (" << operatorName(op) << ", opset " << version() << "): ";
  return diagnostic;
}

InFlightDiagnostic NodeContext::unsupported() {
  InFlightDiagnostic diagnostic = error();
  markUnsupported(diagnostic);
  return diagnostic;
}

/// The argument of that role and name, added to @forward when first asked for.
Value OnnxConverter::stateArgument(StringRef role, RankedTensorType type) {
  for (BlockArgument argument : forward.getArguments()) {
    auto known =
        forward.getArgAttrOfType<StringAttr>(argument.getArgNumber(), MpcDialect::kRoleAttr);
    if (known && known.getValue() == role)
      return argument;
  }
  auto attributes =
      b.getDictionaryAttr({b.getNamedAttr(MpcDialect::kRoleAttr, b.getStringAttr(role)),
                           b.getNamedAttr(MpcDialect::kNameAttr, b.getStringAttr(role))});
  unsigned position = forward.getNumArguments();
  if (failed(forward.insertArgument(position, type, attributes, forward.getLoc())))
    return {};
  return forward.getArgument(position);
}

Value NodeContext::randomState() {
  return converter.stateArgument("random_state", RankedTensorType::get({2}, b.getI64Type()));
}

Value NodeContext::countAlong(Value v, ArrayRef<int64_t> axes, Type elementType) {
  return castTo(b, loc, converter.sizeAlong(loc, v, axes), elementType);
}

Value NodeContext::rowsLike(Value v, Value like) {
  SamplePlaces places = converter.analysis.of(like);
  if (places.mixed())
    converter.refuseTail(op);
  for (const SamplePlace &p : places.places)
    v = converter.placed(loc, v, p);
  return v;
}

Value NodeContext::diagonalLike(Value v, Value like, int64_t k) {
  SamplePlaces places = converter.analysis.of(like);
  int64_t rank = shapeOf(like).size();
  const SamplePlace *row = places.on(rank - 2), *column = places.on(rank - 1);
  // Behind the first block of all samples numbers depend on how many there are, for both alike.
  bool inBlocks = (row && row->outer > 1) || (column && column->outer > 1);
  bool isSquare = row && column && row->outer == column->outer && row->inner == column->inner;
  if (places.mixed() || (inBlocks && !(isSquare && k == 0)))
    converter.refuseTail(op);
  for (const SamplePlace *place : {row, column})
    if (place)
      v = converter.placed(loc, v, *place);
  return v;
}

bool NodeContext::sameSamples(unsigned i, unsigned j, function_ref<bool(int64_t)> allowed) {
  SamplePlaces x = converter.analysis.of(operand(i)), y = converter.analysis.of(operand(j));
  return !x.mixed() && !y.mixed() && !x.none() && x.places.size() == y.places.size() &&
         llvm::all_of(x.places, [&](const SamplePlace &p) {
           const SamplePlace *other = y.on(p.axis);
           return other && other->samePlace(p) && allowed(p.axis);
         });
}

int64_t NodeContext::nextRandomOperator() { return converter.randomOperators++; }

Value NodeContext::splat(Type tensorType, double value) {
  return mpc::splat(b, loc, tensorType, value);
}

// Registry. ---------------------------------------------------------------------------------

void OnnxRegistry::add(StringRef op, ArrayRef<int64_t> versions, OnnxHandler handler) {
  entries[op].push_back({SmallVector<int64_t>(versions), std::move(handler)});
}

const OnnxRegistry::Entry *OnnxRegistry::find(StringRef op, int64_t sinceVersion) const {
  auto found = entries.find(op);
  if (found != entries.end())
    for (const Entry &entry : found->second)
      if (llvm::is_contained(entry.versions, sinceVersion))
        return &entry;
  return nullptr;
}

SmallVector<int64_t> OnnxRegistry::versions(StringRef op) const {
  SmallVector<int64_t> result;
  auto found = entries.find(op);
  if (found != entries.end())
    for (const Entry &entry : found->second)
      result.append(entry.versions);
  llvm::sort(result);
  return result;
}

const OnnxRegistry &OnnxRegistry::get() {
  static const OnnxRegistry registry = [] {
    OnnxRegistry r;
    registerElementwiseHandlers(r);
    registerActivationHandlers(r);
    registerShapeHandlers(r);
    registerSliceHandlers(r);
    registerGatherHandlers(r);
    registerReductionHandlers(r);
    registerLinearHandlers(r);
    registerConvHandlers(r);
    registerPoolHandlers(r);
    registerNormHandlers(r);
    registerRandomHandlers(r);
    registerLossHandlers(r);
    return r;
  }();
  return registry;
}

} // namespace mpc
