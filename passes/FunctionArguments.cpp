//===- FunctionArguments.cpp - arguments and results by role and name ----------===//

#include "FunctionArguments.h"

using namespace mlir;
using namespace mpc;

static StringRef stringOf(Attribute a) {
  auto s = dyn_cast_or_null<StringAttr>(a);
  return s ? s.getValue() : StringRef();
}

StringRef mpc::argumentRole(func::FuncOp f, unsigned i) {
  return stringOf(f.getArgAttr(i, MpcDialect::kRoleAttr));
}
StringRef mpc::argumentName(func::FuncOp f, unsigned i) {
  return stringOf(f.getArgAttr(i, MpcDialect::kNameAttr));
}
StringRef mpc::resultRole(func::FuncOp f, unsigned i) {
  return stringOf(f.getResultAttr(i, MpcDialect::kRoleAttr));
}
StringRef mpc::resultName(func::FuncOp f, unsigned i) {
  return stringOf(f.getResultAttr(i, MpcDialect::kNameAttr));
}

std::optional<int64_t> mpc::tiedArgument(func::FuncOp f, unsigned result) {
  auto tied = f.getResultAttrOfType<IntegerAttr>(result, MpcDialect::kTiedAttr);
  return tied ? std::optional<int64_t>(tied.getInt()) : std::nullopt;
}

Value mpc::findArgument(func::FuncOp f, StringRef role, StringRef name) {
  for (unsigned i = 0; i < f.getNumArguments(); ++i)
    if (argumentRole(f, i) == role && (name.empty() || argumentName(f, i) == name))
      return f.getArgument(i);
  return {};
}

SmallVector<BlockArgument> mpc::argumentsOf(func::FuncOp f, StringRef role) {
  SmallVector<BlockArgument> found;
  for (BlockArgument argument : f.getArguments())
    if (argumentRole(f, argument.getArgNumber()) == role)
      found.push_back(argument);
  return found;
}

static DictionaryAttr attributesOf(MLIRContext *context, StringRef role, StringRef name,
                                   Attribute weights, std::optional<int64_t> tied) {
  Builder b(context);
  SmallVector<NamedAttribute> attributes{
      b.getNamedAttr(MpcDialect::kRoleAttr, b.getStringAttr(role)),
      b.getNamedAttr(MpcDialect::kNameAttr, b.getStringAttr(name))};
  if (weights)
    attributes.push_back(b.getNamedAttr(MpcDialect::kWeightsAttr, weights));
  if (tied)
    attributes.push_back(b.getNamedAttr(MpcDialect::kTiedAttr, b.getI64IntegerAttr(*tied)));
  return b.getDictionaryAttr(attributes);
}

Value mpc::addArgument(func::FuncOp f, StringRef role, StringRef name, Type type,
                       Attribute weights) {
  unsigned i = f.getNumArguments();
  [[maybe_unused]] LogicalResult done = f.insertArgument(
      i, type, attributesOf(f.getContext(), role, name, weights, std::nullopt), f.getLoc());
  return f.getArgument(i);
}

Value mpc::getOrAddArgument(func::FuncOp f, StringRef role, StringRef name, Type type,
                            Attribute weights) {
  if (Value found = findArgument(f, role, name))
    return found;
  return addArgument(f, role, name, type, weights);
}

void mpc::setArgumentRole(func::FuncOp f, unsigned i, StringRef role) {
  f.setArgAttr(i, MpcDialect::kRoleAttr, StringAttr::get(f.getContext(), role));
}

void mpc::addResult(func::FuncOp f, Value value, StringRef role, StringRef name, Value tied) {
  std::optional<int64_t> index;
  if (tied)
    index = cast<BlockArgument>(tied).getArgNumber();
  Operation *terminator = terminatorOf(f);
  [[maybe_unused]] LogicalResult done = f.insertResult(
      f.getNumResults(), value.getType(), attributesOf(f.getContext(), role, name, {}, index));
  terminator->insertOperands(terminator->getNumOperands(), value);
}

void mpc::removeResults(func::FuncOp f, llvm::function_ref<bool(unsigned)> drop) {
  llvm::BitVector dropped(f.getNumResults());
  for (unsigned i = 0; i < f.getNumResults(); ++i)
    dropped[i] = drop(i);
  terminatorOf(f)->eraseOperands(dropped);
  [[maybe_unused]] LogicalResult done = f.eraseResults(dropped);
}

void mpc::removeUnusedArguments(func::FuncOp f) {
  llvm::BitVector dropped(f.getNumArguments());
  for (BlockArgument argument : f.getArguments()) {
    StringRef role = argumentRole(f, argument.getArgNumber());
    dropped[argument.getArgNumber()] = argument.use_empty() && role != "input" && role != "labels";
  }
  for (unsigned i = 0; i < f.getNumResults(); ++i)
    if (auto tied = tiedArgument(f, i))
      dropped[*tied] = false;
  if (dropped.none())
    return;
  // A tied result names its argument by number: count those that stay before it.
  for (unsigned i = 0; i < f.getNumResults(); ++i)
    if (auto tied = tiedArgument(f, i)) {
      int64_t removed =
          llvm::count_if(llvm::seq<int64_t>(0, *tied), [&](int64_t k) { return dropped[k]; });
      f.setResultAttr(i, MpcDialect::kTiedAttr,
                      Builder(f.getContext()).getI64IntegerAttr(*tied - removed));
    }
  [[maybe_unused]] LogicalResult done = f.eraseArguments(dropped);
}

func::FuncOp mpc::findFunction(ModuleOp module, StringRef name) {
  return module.lookupSymbol<func::FuncOp>(name);
}

func::FuncOp mpc::createFunction(ModuleOp module, StringRef name) {
  OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
  auto f = func::FuncOp::create(b, module.getLoc(), name, b.getFunctionType({}, {}));
  Block *block = f.addEntryBlock();
  b.setInsertionPointToEnd(block);
  func::ReturnOp::create(b, module.getLoc());
  return f;
}

Operation *mpc::terminatorOf(func::FuncOp f) { return f.front().getTerminator(); }

void mpc::eraseDeadOperations(func::FuncOp f) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(f.front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

bool mpc::isFloatTensor(Value v) {
  auto type = dyn_cast<RankedTensorType>(v.getType());
  return type && isa<FloatType>(type.getElementType());
}

BlockArgument mpc::argumentBehind(Value v) {
  while (Operation *op = v.getDefiningOp()) {
    if (!isa<arith::TruncFOp, arith::ExtFOp, BroadcastOp, ReshapeOp, TransposeOp, SliceOp>(op))
      return {};
    v = op->getOperand(0);
  }
  return cast<BlockArgument>(v);
}

void mpc::addNote(ModuleOp module, const Twine &note) {
  SmallVector<Attribute> notes;
  if (auto old = module->getAttrOfType<ArrayAttr>("mpc.notes"))
    notes.assign(old.begin(), old.end());
  notes.push_back(StringAttr::get(module.getContext(), note));
  module->setAttr("mpc.notes", ArrayAttr::get(module.getContext(), notes));
}

void NodeAttributeListener::setOrigin(Operation *origin) {
  node = origin ? origin->getDiscardableAttr(MpcDialect::kNodeAttr) : Attribute();
  op = origin ? origin->getDiscardableAttr(MpcDialect::kOpAttr) : Attribute();
}

void NodeAttributeListener::notifyOperationInserted(Operation *inserted, OpBuilder::InsertPoint) {
  if (inserted->hasTrait<OpTrait::ConstantLike>())
    return;
  if (node && !inserted->getDiscardableAttr(MpcDialect::kNodeAttr))
    inserted->setDiscardableAttr(MpcDialect::kNodeAttr, node);
  if (op && !inserted->getDiscardableAttr(MpcDialect::kOpAttr))
    inserted->setDiscardableAttr(MpcDialect::kOpAttr, op);
}
