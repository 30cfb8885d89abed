//===- AssignPrecision.cpp - half, f32 or f64 for every value ------------------===//
//
// Carries out a PrecisionPlan: products get half operands, elementwise arithmetic stays
// f32 between arith.extf and arith.truncf, norms and index maps change type. Every value
// is cast once, behind the operation that makes it, whatever the number of its users:
//
//   %1 = mpc.matmul %x, %w : f32                 %xh = arith.truncf %x    %wh = arith.truncf %w
//   %2 = arith.maximumf %1, %zero                %1 = mpc.matmul %xh, %wh : f16
//                                           →    %1f = arith.extf %1
//                                                %2 = arith.maximumf %1f, %zero : f32
//                                                %2h = arith.truncf %2
//
// This is before differentiation: what backward saves is what is stored here.
//
//===----------------------------------------------------------------------------===//

#include "FunctionArguments.h"
#include "Passes.h"
#include "PrecisionPlan.h"
#include "compiler/ops/Build.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Format.h"

namespace mpc {
#define GEN_PASS_DEF_ASSIGNPRECISION
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {
struct AssignPrecision : mpc::impl::AssignPrecisionBase<AssignPrecision> {
  using AssignPrecisionBase::AssignPrecisionBase;
  void runOnOperation() override;

private:
  LogicalResult read(ArrayRef<std::string> texts, StringRef option, StringRef attribute,
                     PrecisionOverride &found);
};

/// Rewrites one function by its plan.
class Rewriter {
public:
  Rewriter(func::FuncOp f, const PrecisionPlan &plan, Type half)
      : f(f), plan(plan), half(half), b(f.getContext(), &listener) {}
  void run();

private:
  using State = PrecisionPlan::State;
  bool isHalfTyped(Value v) { return elementType(v) == half; }
  Value cached(DenseMap<Value, Value> &cache, Value v, llvm::function_ref<Value()> make);
  Value narrow(Value v);
  Value wide(Value v);
  Value roundConstant(Value v, Attribute constant);
  void setType(Value v, Type element) { v.setType(tensorType(v).clone(element)); }
  void round(OpResult v);
  void widen(Operation *op, ArrayRef<unsigned> except = {});
  void rewrite(Operation *op);
  void rewriteNorm(Operation *op);
  void rewriteView(Operation *op);

  func::FuncOp f;
  const PrecisionPlan &plan;
  Type half;
  NodeAttributeListener listener;
  OpBuilder b;
  DenseMap<Value, Value> narrowed, widened;
  DenseSet<Value> own; ///< halves of the model itself: no decision of ours, so they stay
};
} // namespace

// Makes a cast of v once, right behind it.
Value Rewriter::cached(DenseMap<Value, Value> &cache, Value v, llvm::function_ref<Value()> make) {
  auto it = cache.find(v);
  if (it != cache.end())
    return it->second;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(v);
  listener.setOrigin(v.getDefiningOp());
  Value made = make();
  return cache[v] = made;
}

Value Rewriter::roundConstant(Value v, Attribute constant) {
  auto elements = cast<DenseFPElementsAttr>(constant);
  auto round = [&](const APFloat &x) {
    APFloat y = x;
    bool lossy;
    y.convert(cast<FloatType>(half).getFloatSemantics(), APFloat::rmNearestTiesToEven, &lossy);
    return y;
  };
  auto type = tensorType(v).clone(half);
  DenseElementsAttr rounded =
      elements.isSplat() ? DenseElementsAttr::get(type, round(elements.getSplatValue<APFloat>()))
                         : DenseElementsAttr(elements.mapValues(
                               half, [&](const APFloat &x) { return round(x).bitcastToAPInt(); }));
  return arith::ConstantOp::create(b, v.getLoc(), rounded);
}

// v in half. Parameters and constants are rounded themselves, before any index map, so that the
// copy is the parameter's.
Value Rewriter::narrow(Value v) {
  if (isHalfTyped(v))
    return v;
  return cached(narrowed, v, [&]() -> Value {
    Attribute constant;
    if (matchPattern(v, m_Constant(&constant)) && isa<DenseFPElementsAttr>(constant))
      return roundConstant(v, constant);
    Operation *op = v.getDefiningOp();
    if (op && plan.state(v) == State::follow &&
        isa<BroadcastOp, ReshapeOp, TransposeOp, SliceOp, ConcatOp, GatherOp>(op)) {
      IRMapping mapping;
      for (unsigned i : viewOperands(op))
        mapping.map(op->getOperand(i), narrow(op->getOperand(i)));
      b.setInsertionPointAfter(op);
      listener.setOrigin(op);
      Operation *copy = b.clone(*op, mapping);
      setType(copy->getResult(0), half);
      return copy->getResult(0);
    }
    return castTo(b, v.getLoc(), v, half);
  });
}

Value Rewriter::wide(Value v) {
  if (!isHalfTyped(v) || own.contains(v))
    return v;
  return cached(widened, v, [&] { return castTo(b, v.getLoc(), v, b.getF32Type()); });
}

// The f32 result is stored rounded: all users read the rounded value.
void Rewriter::round(OpResult v) {
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : v.getUses())
    uses.push_back(&use);
  Value rounded = narrow(v);
  for (OpOperand *use : uses)
    use->set(rounded);
}

void Rewriter::widen(Operation *op, ArrayRef<unsigned> except) {
  for (OpOperand &operand : op->getOpOperands())
    if (isFloatTensor(operand.get()) && !llvm::is_contained(except, operand.getOperandNumber()))
      operand.set(wide(operand.get()));
}

// Half or f32 in and out; scale, bias and statistics f32.
void Rewriter::rewriteNorm(Operation *op) {
  OpResult result = op->getResult(0);
  bool sameType = isa<SoftmaxOp, LogSoftmaxOp>(op);
  bool toHalf = plan.storedHalf(result);
  bool direct = !sameType || (isHalfTyped(op->getOperand(0)) && toHalf);
  widen(op, direct ? ArrayRef<unsigned>(0u) : ArrayRef<unsigned>());
  if (!toHalf)
    return;
  if (direct)
    setType(result, half);
  else
    round(result);
}

// The result has the operands' type.
void Rewriter::rewriteView(Operation *op) {
  Value result = op->getResult(0);
  if (!isFloatTensor(result) || plan.state(result) == State::follow)
    return widen(op);
  bool toHalf = plan.storedHalf(result);
  for (unsigned i : viewOperands(op))
    op->setOperand(i, toHalf ? narrow(op->getOperand(i)) : wide(op->getOperand(i)));
  if (!toHalf)
    return;
  setType(result, half);
  if (auto pad = dyn_cast<PadOp>(op)) {
    FloatAttr value;
    b.setInsertionPoint(op);
    if (matchPattern(pad.getValue(), m_Constant(&value))) {
      APFloat rounded = value.getValue();
      bool lossy;
      rounded.convert(cast<FloatType>(half).getFloatSemantics(), APFloat::rmNearestTiesToEven,
                      &lossy);
      pad.getValueMutable().assign(
          arith::ConstantOp::create(b, op->getLoc(), FloatAttr::get(half, rounded)));
    } else {
      pad.getValueMutable().assign(arith::TruncFOp::create(b, op->getLoc(), half, pad.getValue()));
    }
  }
}

void Rewriter::rewrite(Operation *op) {
  if (op->hasTrait<OpTrait::ConstantLike>())
    return;
  if (!plan.decision(op)) // what reads or makes the model's own halves and doubles
    return op->getNumOperands() ? widen(op) : void();
  switch (precisionKind(op)) {
  case PrecisionKind::library:
    if (plan.state(op->getResult(0)) != State::half)
      return widen(op);
    for (OpOperand &operand : op->getOpOperands())
      operand.set(narrow(operand.get()));
    return setType(op->getResult(0), half);
  case PrecisionKind::norm:
    return rewriteNorm(op);
  case PrecisionKind::view:
    return rewriteView(op);
  case PrecisionKind::loss:
    return widen(op, {0});
  case PrecisionKind::sum:
    // a sum reads half itself, into its f32 accumulator
    widen(op, cast<ReduceOp>(op).getKind() == ReductionKind::sum ? ArrayRef<unsigned>(0u)
                                                                 : ArrayRef<unsigned>());
    break;
  case PrecisionKind::elementwise:
    widen(op);
    break;
  }
  for (OpResult result : op->getResults())
    if (plan.storedHalf(result))
      round(result);
}

void Rewriter::run() {
  SmallVector<Operation *> ops;
  auto collect = [&](ValueRange values) {
    for (Value v : values)
      if (isa<RankedTensorType>(v.getType()) && isHalfTyped(v))
        own.insert(v);
  };
  collect(f.getArguments());
  for (Operation &op : f.front().without_terminator()) {
    ops.push_back(&op);
    collect(op.getResults());
  }
  for (Operation *op : ops)
    rewrite(op);
  widen(terminatorOf(f)); // outputs keep the model's type
  eraseDeadOperations(f);
}

// fp64: every float type becomes f64, and casts between them disappear.
static void makeDouble(ModuleOp module) {
  Type f64 = Float64Type::get(module.getContext());
  auto doubled = [&](Type type) -> Type {
    if (isa<FloatType>(type))
      return f64;
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && isa<FloatType>(tensor.getElementType()) ? Type(tensor.clone(f64)) : type;
  };
  auto widenNumber = [](const APFloat &x) {
    APFloat y = x;
    bool lossy;
    y.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lossy);
    return y;
  };
  for (func::FuncOp f : module.getOps<func::FuncOp>()) {
    f.walk<WalkOrder::PreOrder>([&](Operation *op) {
      for (Value result : op->getResults())
        result.setType(doubled(result.getType()));
      for (Region &region : op->getRegions())
        for (Block &block : region)
          for (BlockArgument argument : block.getArguments())
            argument.setType(doubled(argument.getType()));
      if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
        if (auto number = dyn_cast<FloatAttr>(constant.getValue()))
          constant.setValueAttr(FloatAttr::get(f64, widenNumber(number.getValue())));
        else if (auto elements = dyn_cast<DenseFPElementsAttr>(constant.getValue()))
          constant.setValueAttr(
              elements.isSplat()
                  ? DenseElementsAttr::get(cast<ShapedType>(constant.getType()),
                                           widenNumber(elements.getSplatValue<APFloat>()))
                  : DenseElementsAttr(elements.mapValues(
                        f64, [&](const APFloat &x) { return widenNumber(x).bitcastToAPInt(); })));
      }
    });
    SmallVector<Operation *> casts;
    f.walk([&](Operation *op) {
      if (isa<arith::ExtFOp, arith::TruncFOp>(op))
        casts.push_back(op);
    });
    for (Operation *op : casts) {
      op->getResult(0).replaceAllUsesWith(op->getOperand(0));
      op->erase();
    }
    Builder b(module.getContext());
    SmallVector<Type> arguments(llvm::map_range(f.getArgumentTypes(), doubled)),
        results(llvm::map_range(f.getResultTypes(), doubled));
    f.setFunctionType(b.getFunctionType(arguments, results));
  }
}

// One row per node of a function, in program order: what its results are stored as, and why.
static void printReport(func::FuncOp f, const PrecisionPlan &plan, StringRef halfName) {
  struct Row {
    std::string op, precision, decision, reason;
    bool isNorm = false;
  };
  llvm::MapVector<std::pair<StringRef, StringRef>, Row> rows;
  for (Operation &op : f.front().without_terminator()) {
    const PrecisionPlan::Decision *decision = plan.decision(&op);
    if (!decision || decision->reason.empty() || op.getNumResults() == 0 ||
        !isFloatTensor(op.getResult(0)))
      continue;
    StringRef node = nodeOf(&op), type = operatorOf(&op);
    // A node of several operations is told by its last one, the one that others read; a
    // normalization by itself, not by its statistics.
    Row &row = rows[{node.empty() ? type : node, type}];
    const PrecisionEntry *entry = findPrecision(type);
    row.op = type.str();
    row.precision = nameOf(entry ? entry->precision : decision->precision).str();
    bool isNorm = precisionKind(&op) == PrecisionKind::norm;
    if (!row.decision.empty() &&
        ((decision->precision == PrecisionClass::K && row.precision != "K") ||
         (row.isNorm && !isNorm)))
      continue; // an index map behind the arithmetic
    row.isNorm = isNorm;
    row.decision = plan.state(op.getResult(0)) == PrecisionPlan::State::half     ? halfName.str()
                   : plan.state(op.getResult(0)) == PrecisionPlan::State::follow ? "follows"
                                                                                 : "f32";
    row.reason = decision->reason;
  }
  size_t nodeWidth = 4, opWidth = 2;
  for (auto &[key, row] : rows) {
    nodeWidth = std::max(nodeWidth, key.first.size());
    opWidth = std::max(opWidth, row.op.size());
  }
  auto &os = llvm::outs();
  auto line = [&](StringRef node, StringRef op, StringRef precision, StringRef decision,
                  StringRef reason) {
    os << llvm::left_justify(node, nodeWidth + 2) << llvm::left_justify(op, opWidth + 2)
       << precision
       << std::string(precision.starts_with("F") && precision.size() > 1
                          ? 5
                          : 7 - precision.size() + (precision.size() > 1 ? 1 : 0),
                      ' ')
       << llvm::left_justify(decision, 9) << reason << "\n";
  };
  os << "Precision of @" << f.getSymName() << "\n";
  line("node", "op", "class", "stored", "reason");
  for (auto &[key, row] : rows)
    line(key.first, row.op, row.precision, row.decision, row.reason);
  os.flush();
}

// An option, and the nodes that the importer has found by it.
LogicalResult AssignPrecision::read(ArrayRef<std::string> texts, StringRef option,
                                    StringRef attribute, PrecisionOverride &found) {
  for (const std::string &text : texts) {
    auto regex = std::make_shared<llvm::Regex>(text);
    std::string why;
    if (!regex->isValid(why))
      return emitError(getOperation().getLoc())
             << option << "=" << text << ": not a POSIX extended regular expression: " << why;
    found.regexes.push_back(regex);
  }
  if (auto nodes = getOperation()->getAttrOfType<ArrayAttr>(attribute))
    for (Attribute node : nodes)
      found.nodes.insert(cast<StringAttr>(node).getValue());
  return success();
}

void AssignPrecision::runOnOperation() {
  ModuleOp module = getOperation();
  Builder b(&getContext());
  module->setAttr("mpc.precision", b.getStringAttr(precision));
  if (precision == "fp64")
    return makeDouble(module);
  if (precision == "fp32") {
    if (report)
      llvm::outs() << "Precision: everything is f32\n";
    return;
  }
  if (precision != "fp16" && precision != "bf16") {
    emitError(module.getLoc()) << "--precision=" << precision << ": fp16, bf16, fp32 or fp64";
    return signalPassFailure();
  }
  PrecisionOverrides overrides;
  if (failed(read(keepFp32, "--keep-fp32", "mpc.keep_fp32", overrides.keepFp32)) ||
      failed(read(allowHalf, "--allow-half", "mpc.allow_half", overrides.allowHalf)))
    return signalPassFailure();
  Type half = precision == "fp16" ? Type(b.getF16Type()) : Type(b.getBF16Type());
  bool reported = false;
  for (StringRef name : {"forward", "predict", "eval_step"})
    if (func::FuncOp f = findFunction(module, name)) {
      PrecisionPlan plan(f, half, overrides);
      if (report && !reported)
        printReport(f, plan, precision == "fp16" ? "f16" : "bf16");
      reported = true;
      Rewriter(f, plan, half).run();
    }
}
