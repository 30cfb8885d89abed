//===- BatchTrace.cpp - which dimensions, and which integers, come from the batch size -===//
//
// Dimensions are followed through the core operations, which say exactly where each index
// goes; integers through the few ONNX operators that exporters use for shape arithmetic,
// element by element: Shape(x)[0] depends on the batch, Shape(x)[3] (a head's size, cast
// to float for attention's scale) does not.
//
//===----------------------------------------------------------------------------===//

#include "BatchTrace.h"
#include "Build.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace mpc {

void BatchTrace::start(func::FuncOp forward) {
  auto module = forward->getParentOfType<ModuleOp>();
  auto batchAttr = module->getAttrOfType<IntegerAttr>("mpc.batch");
  if (!batchAttr)
    return;
  batch = batchAttr.getInt();
  auto axes = module->getAttrOfType<DictionaryAttr>("mpc.batch_axes");
  for (BlockArgument argument : forward.getArguments()) {
    unsigned i = argument.getArgNumber();
    auto role = forward.getArgAttrOfType<StringAttr>(i, MpcDialect::kRoleAttr);
    if (role && role.getValue() != "input" && role.getValue() != "labels")
      continue;
    auto name = forward.getArgAttrOfType<StringAttr>(i, MpcDialect::kNameAttr);
    auto axisAttr = axes && name ? axes.getAs<IntegerAttr>(name.getValue()) : IntegerAttr();
    int64_t axis = axisAttr ? axisAttr.getInt() : 0;
    ArrayRef<int64_t> shape = shapeOf(argument);
    if (axis < int64_t(shape.size()) && shape[axis] == batch && (axisAttr || !axes))
      known[argument] = {{axis, 1}};
  }
}

/// The dimension of `shape` that holds the factors (position, position · batch) of the row-major
/// order, or nothing if these are split among dimensions.
static std::optional<std::pair<int64_t, int64_t>> locate(ArrayRef<int64_t> shape, int64_t position,
                                                         int64_t batch) {
  int64_t before = 1;
  for (auto [axis, size] : llvm::enumerate(shape)) {
    int64_t after = before * size;
    if (before <= position && position * batch <= after && size > 1 && position % before == 0)
      return std::pair<int64_t, int64_t>(axis, position / before);
    before = after;
  }
  return std::nullopt;
}

const BatchTrace::Places &BatchTrace::places(Value value) {
  auto found = known.find(value);
  if (found != known.end())
    return found->second;
  Places result;
  if (Operation *op = value.getDefiningOp())
    result = computePlaces(op, value);
  return known[value] = result;
}

BatchTrace::Places BatchTrace::computePlaces(Operation *op, Value value) {
  Places result;
  ArrayRef<int64_t> shape = shapeOf(value);
  auto put = [&](int64_t axis, int64_t outer) {
    if (!llvm::is_contained(result, Place{axis, outer}))
      result.push_back({axis, outer});
  };
  auto putEverywhere = [&] {
    for (int64_t axis = 0; axis < int64_t(shape.size()); ++axis)
      put(axis, 1);
  };
  // Copies: the maps below look at the trace of the operand while `known` may grow.
  auto of = [&](Value v) { return Places(places(v)); };

  if (auto reshape = dyn_cast<ReshapeOp>(op)) {
    ArrayRef<int64_t> from = shapeOf(reshape.getInput());
    for (Place p : of(reshape.getInput())) {
      int64_t position = p.outer;
      for (int64_t i = 0; i < p.axis; ++i)
        position *= from[i];
      if (batch == 1 && p.outer == 1) { // no factor to follow: keep to the leading place
        put(std::min<int64_t>(p.axis, std::max<int64_t>(0, shape.size() - 1)), 1);
      } else if (auto place = locate(shape, position, batch)) {
        put(place->first, place->second);
      } else {
        putEverywhere();
      }
    }
  } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
    for (Place p : of(transpose.getInput()))
      put(llvm::find(transpose.getPermutation(), p.axis) - transpose.getPermutation().begin(),
          p.outer);
  } else if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    for (Place p : of(broadcast.getInput()))
      put(broadcast.getDimensions()[p.axis], p.outer);
  } else if (auto reduce = dyn_cast<ReduceOp>(op)) {
    for (Place p : of(reduce.getInput()))
      if (!llvm::is_contained(reduce.getAxes(), p.axis))
        put(p.axis - llvm::count_if(reduce.getAxes(), [&](int64_t axis) { return axis < p.axis; }),
            p.outer);
  } else if (auto gather = dyn_cast<GatherOp>(op)) {
    int64_t axis = gather.getAxis(), indexRank = shapeOf(gather.getIndices()).size();
    for (Place p : of(gather.getInput()))
      if (p.axis != axis)
        put(p.axis < axis ? p.axis : p.axis + indexRank - 1, p.outer);
    for (Place p : of(gather.getIndices()))
      put(axis + p.axis, p.outer);
  } else if (auto matmul = dyn_cast<MatmulOp>(op)) {
    int64_t last = shape.size() - 1;
    for (Place p : of(matmul.getLhs())) {
      int64_t rows = matmul.getTransposeLhs() ? last : last - 1;
      if (p.axis < last - 1 || p.axis == rows)
        put(std::min(p.axis, last - 1), p.outer);
    }
    for (Place p : of(matmul.getRhs())) {
      int64_t columns = matmul.getTransposeRhs() ? last - 1 : last;
      if (p.axis < last - 1 || p.axis == columns)
        put(p.axis < last - 1 ? p.axis : last, p.outer);
    }
  } else {
    // Everything else keeps a dimension where it is, or it is lost from sight.
    for (Value operand : op->getOperands()) {
      if (!isa<RankedTensorType>(operand.getType()))
        continue;
      for (Place p : of(operand)) {
        if (p.axis < int64_t(shape.size()) && shapeOf(operand)[p.axis] == shape[p.axis])
          put(p.axis, p.outer);
        else
          putEverywhere();
      }
    }
  }
  return result;
}

llvm::BitVector BatchTrace::dimensions(Value coreValue) {
  llvm::BitVector result(shapeOf(coreValue).size());
  for (Place p : places(coreValue))
    result.set(p.axis);
  return result;
}

static int64_t intAttribute(onnx::NodeOp node, StringRef name, int64_t otherwise) {
  auto value = node.getOnnxAttributes().getAs<IntegerAttr>(name);
  return value ? value.getInt() : otherwise;
}

/// Gather and Slice along the only axis, by constant indices: which element each result element is.
static std::optional<SmallVector<int64_t>> pickedElements(onnx::NodeOp node, int64_t count,
                                                          function_ref<Value(Value)> core) {
  auto constants = [&](unsigned i) -> std::optional<SmallVector<int64_t>> {
    DenseIntElementsAttr value;
    Value converted = i < node.getInputs().size() ? core(node.getInputs()[i]) : Value();
    if (!converted || !matchPattern(converted, m_Constant(&value)))
      return std::nullopt;
    SmallVector<int64_t> result;
    for (const APInt &x : value.getValues<APInt>())
      result.push_back(x.getSExtValue());
    return result;
  };
  if (node.getOpType() == "Gather") {
    auto indices = constants(1);
    if (indices)
      for (int64_t &i : *indices)
        i = i < 0 ? i + count : i;
    return indices;
  }
  auto attribute = [&](StringRef name, unsigned operand) {
    if (auto value = node.getOnnxAttributes().getAs<DenseI64ArrayAttr>(name))
      return std::optional(SmallVector<int64_t>(value.asArrayRef()));
    return constants(operand);
  };
  auto starts = attribute("starts", 1), ends = attribute("ends", 2), steps = constants(4);
  if (!starts || !ends || starts->size() != 1 || ends->size() != 1 || (steps && steps->size() != 1))
    return std::nullopt;
  int64_t step = steps ? steps->front() : 1;
  auto clamp = [&](int64_t x, int64_t low, int64_t high) {
    return std::clamp(x < 0 ? x + count : x, low, high);
  };
  SmallVector<int64_t> picked;
  if (step > 0)
    for (int64_t i = clamp((*starts)[0], 0, count), end = clamp((*ends)[0], 0, count); i < end;
         i += step)
      picked.push_back(i);
  else if (step < 0)
    for (int64_t i = clamp((*starts)[0], 0, count - 1), end = clamp((*ends)[0], -1, count - 1);
         i > end; i += step)
      picked.push_back(i);
  return picked;
}

bool BatchTrace::follow(onnx::NodeOp node, function_ref<Value(Value)> core) {
  if (!batch || node.getNumResults() == 0)
    return false;
  StringRef type = node.getOpType();
  Value result = node->getResult(0), converted = core(result);
  Value input = node.getInputs().empty() ? Value() : node.getInputs()[0];
  Value convertedInput = input ? core(input) : Value();
  if (!converted)
    return false;
  auto resultType = tensorType(converted);

  if ((type == "Shape" || type == "Size") && convertedInput) {
    llvm::BitVector dims = dimensions(convertedInput);
    if (type == "Size") {
      if (dims.any())
        integers[result] = llvm::BitVector(1, true);
      return false;
    }
    int64_t rank = dims.size(), start = intAttribute(node, "start", 0);
    start = std::clamp<int64_t>(start < 0 ? start + rank : start, 0, rank);
    llvm::BitVector elements(resultType.getNumElements());
    for (unsigned i = 0; i < elements.size() && start + i < dims.size(); ++i)
      elements[i] = dims[start + i];
    if (elements.any())
      integers[result] = elements;
    return false;
  }

  bool tainted = llvm::any_of(node.getInputs(), [&](Value v) { return elements(v).any(); });
  if (!tainted)
    return false;
  llvm::BitVector from = elements(input);
  int64_t count = resultType.getNumElements();
  if (type == "Cast" || type == "CastLike") {
    if (isa<FloatType>(resultType.getElementType()))
      return from.any();
    integers[result] = from;
  } else if (type == "Gather" || type == "Slice") {
    auto picked = pickedElements(node, from.size(), core);
    llvm::BitVector elements(count, from.any() && !picked);
    if (picked)
      for (auto [to, i] : llvm::enumerate(*picked))
        if (i >= 0 && i < int64_t(from.size()) && int64_t(to) < count)
          elements[to] = from[i];
    if (elements.any())
      integers[result] = elements;
  } else if (type == "Concat") {
    llvm::BitVector joined;
    for (Value operand : node.getInputs()) {
      Value c = core(operand);
      llvm::BitVector part = elements(operand);
      part.resize(c ? tensorType(c).getNumElements() : part.size());
      for (unsigned i = 0; i < part.size(); ++i)
        joined.push_back(part[i]);
    }
    joined.resize(count);
    integers[result] = joined;
  } else if (from.any() && (type == "Identity" || type == "Squeeze" || type == "Unsqueeze" ||
                            type == "Reshape" || type == "Flatten")) {
    integers[result] = from;
  } else if (isa<IntegerType>(resultType.getElementType()) && type != "Reshape" &&
             type != "Expand" && type != "ConstantOfShape" && type != "Range" && type != "Tile") {
    integers[result] = llvm::BitVector(count, true);
  }
  return false;
}

} // namespace mpc
