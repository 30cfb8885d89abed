//===- Uniform.cpp - kernels that are the same for every number of elements ------------===//
//
// Built by demand from the results, so that the order of its operations, and with it the text,
// follows from what is computed alone. A value is wide (an element per element of the domain) or
// narrow (computed the same for all of them); a broadcast of one element leads from narrow to
// wide, a reduction of everything back.
//
//===-------------------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/Uniform.h"
#include "compiler/codegen/Access.h"
#include "compiler/codegen/Loops.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace mpc::gpu {

namespace {
class Generalizer {
public:
  explicit Generalizer(func::FuncOp kernel) : kernel(kernel), b(kernel.getContext()) {}
  OwningOpRef<func::FuncOp> run();

private:
  bool isCandidate();
  Value fail() {
    failed = true;
    return {};
  }
  RankedTensorType wideType(Value v) {
    return RankedTensorType::get({kUniformElements}, getElementTypeOrSelf(v.getType()));
  }
  bool isWide(Value v) {
    auto type = dyn_cast<RankedTensorType>(v.getType());
    return type && elementsOf(type.getShape()) == elements;
  }
  Value inShape(Value v, ArrayRef<int64_t> shape);
  Operation *copy(Operation *op, const IRMapping &operands);
  Value wide(Value v);
  Value buildWide(Value v);
  Value narrow(Value v);
  Value buildNarrow(Value v);

  func::FuncOp kernel;
  OpBuilder b;
  OwningOpRef<func::FuncOp> result;
  int64_t elements = 0;
  bool reduces = false, failed = false;
  DenseMap<Value, Value> wides, narrows;
  DenseSet<Value> ofReductions; ///< narrow values that a reduction is computed for
};
} // namespace

bool Generalizer::isCandidate() {
  KernelAttr attr = getKernelAttr(kernel);
  ArrayRef<int64_t> domain = attr.getDomain().asArrayRef();
  elements = elementsOf(domain);
  if (elements < 2 || elements >= kUniformElements || getScatterRoot(kernel))
    return false;
  reduces = attr.getKind() != KernelKind::map;
  if (!reduces)
    return true;
  ArrayRef<int64_t> kept = attr.getKind() == KernelKind::row ? domain.take_front(attr.getSplit())
                                                             : domain.drop_front(attr.getSplit());
  return elementsOf(kept) == 1 &&
         llvm::all_of(attr.getAliases().asArrayRef(), [](int64_t alias) { return alias < 0; });
}

Value Generalizer::inShape(Value v, ArrayRef<int64_t> shape) {
  auto type = cast<RankedTensorType>(v.getType());
  if (type.getShape() == shape)
    return v;
  return ReshapeOp::create(b, kernel.getLoc(), type.clone(shape), v);
}

Operation *Generalizer::copy(Operation *op, const IRMapping &operands) {
  IRMapping mapping(operands);
  Operation *made = b.clone(*op, mapping);
  made->removeDiscardableAttr(MpcDialect::kNodeAttr);
  made->removeDiscardableAttr(MpcDialect::kOpAttr);
  return made;
}

Value Generalizer::wide(Value v) {
  if (failed)
    return {};
  auto [entry, isNew] = wides.try_emplace(v);
  if (!isNew)
    return entry->second;
  Value made = isWide(v) && !narrows.count(v) ? buildWide(v) : fail();
  return wides[v] = made;
}

Value Generalizer::buildWide(Value v) {
  if (auto argument = dyn_cast<BlockArgument>(v)) {
    Value own = result->getArgument(argument.getArgNumber());
    own.setType(wideType(v));
    return own;
  }
  Operation *op = v.getDefiningOp();
  if (auto reshape = dyn_cast<ReshapeOp>(op))
    return wide(reshape.getInput());
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    Value input = broadcast.getInput();
    if (isWide(input))
      return wide(input); // new dimensions of size 1
    if (elementsOf(tensorShape(input)) != 1)
      return fail();
    Value scalar = narrow(input);
    if (failed || ofReductions.contains(input))
      return fail();
    return BroadcastOp::create(b, kernel.getLoc(), wideType(v), inShape(scalar, {}),
                               ArrayRef<int64_t>());
  }
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (!dense || !dense.isSplat())
      return fail();
    return arith::ConstantOp::create(b, kernel.getLoc(), dense.resizeSplat(wideType(v)));
  }
  if (!isPointwise(op))
    return fail();
  IRMapping operands;
  for (Value operand : op->getOperands()) {
    Value made = wide(operand);
    if (!made)
      return fail();
    operands.map(operand, made);
  }
  Value made = copy(op, operands)->getResult(0);
  made.setType(wideType(v));
  return made;
}

Value Generalizer::narrow(Value v) {
  if (failed)
    return {};
  auto [entry, isNew] = narrows.try_emplace(v);
  if (!isNew)
    return entry->second;
  Value made = wides.count(v) ? fail() : buildNarrow(v);
  return narrows[v] = made;
}

Value Generalizer::buildNarrow(Value v) {
  if (auto argument = dyn_cast<BlockArgument>(v))
    return result->getArgument(argument.getArgNumber());
  Operation *op = v.getDefiningOp();
  if (auto reduce = dyn_cast<ReduceOp>(op)) {
    if (!reduces || elementsOf(tensorShape(v)) != 1)
      return fail();
    Value input = wide(reduce.getInput());
    if (!input)
      return fail();
    ofReductions.insert(v);
    auto type = cast<RankedTensorType>(v.getType());
    Value sum = ReduceOp::create(b, kernel.getLoc(), type.clone(ArrayRef<int64_t>()),
                                 reduce.getKind(), input, ArrayRef<int64_t>{0});
    return inShape(sum, type.getShape());
  }
  if (op->getNumRegions() != 0)
    return fail();
  IRMapping operands;
  for (Value operand : op->getOperands()) {
    Value made = narrow(operand);
    if (!made)
      return fail();
    operands.map(operand, made);
    if (ofReductions.contains(operand))
      ofReductions.insert(v);
  }
  Operation *made = copy(op, operands);
  return made->getResult(cast<OpResult>(v).getResultNumber());
}

OwningOpRef<func::FuncOp> Generalizer::run() {
  if (!isCandidate())
    return {};
  Location loc = kernel.getLoc();
  result = func::FuncOp::create(loc, kernel.getName(), kernel.getFunctionType());
  result->setPrivate();
  b.setInsertionPointToEnd(result->addEntryBlock());
  SmallVector<Value> returned;
  for (Value value : kernelResults(kernel)) {
    bool isRight = reduces ? elementsOf(tensorShape(value)) == 1 : isWide(value);
    returned.push_back(!isRight ? fail() : reduces ? narrow(value) : wide(value));
    if (failed)
      return {};
  }
  if (reduces && ofReductions.empty())
    return {};
  func::ReturnOp::create(b, loc, returned);
  result->setType(b.getFunctionType(result->getBody().front().getArgumentTypes(),
                                    ValueRange(returned).getTypes()));
  KernelAttr attr = getKernelAttr(kernel);
  (*result)->setAttr(MpcDialect::kKernelAttr,
                     KernelAttr::get(b.getContext(), reduces ? KernelKind::column : KernelKind::map,
                                     b.getDenseI64ArrayAttr({kUniformElements}), reduces ? 1 : 0,
                                     attr.getAliases()));
  return std::move(result);
}

OwningOpRef<func::FuncOp> uniformKernel(func::FuncOp kernel) { return Generalizer(kernel).run(); }

std::string uniformText(func::FuncOp kernel) {
  OwningOpRef<func::FuncOp> uniform = uniformKernel(kernel);
  if (!uniform)
    return "";
  uniform->setName("kernel");
  std::string text;
  llvm::raw_string_ostream stream(text);
  uniform->print(stream, OpPrintingFlags().useLocalScope());
  return text;
}

} // namespace mpc::gpu
