//===- ConvertOnnxToMpc.cpp - nodes become core operations -----------------------===//
//
// Walks @graph in order and hands every node to the handler of its operator and version.
// A node that cannot be converted does not stop the walk: every problem of a model is
// shown in one run. Nodes that only lack an operand because of an earlier problem stay
// silent, unless they have no handler themselves.
//
//   %1 = onnx.node "Relu" 14 "relu" (%0) {} : (tensor<4xf32>) -> tensor<4xf32>
//   // becomes
//   %1 = arith.maximumf %0, %zero {mpc.node = "relu", mpc.op = "Relu"} : tensor<4xf32>
//
//===----------------------------------------------------------------------------===//

#include "Build.h"
#include "OnnxConverter.h"
#include "Unsigned.h"
#include "Unsupported.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/Passes.h"

using namespace mlir;

namespace mpc {
#define GEN_PASS_DEF_CONVERTONNXTOMPC
#include "Passes.h.inc"

std::string operatorName(onnx::NodeOp node) {
  StringRef domain = node.getDomain().value_or("");
  if (domain.empty() || domain == "ai.onnx")
    return node.getOpType().str();
  return (domain + ":" + node.getOpType()).str();
}

OnnxConverter::OnnxConverter(ModuleOp module) : module(module), b(module.getContext(), this) {}

void OnnxConverter::notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) {
  if (!current || op->hasTrait<OpTrait::ConstantLike>())
    return;
  op->setAttr(MpcDialect::kNodeAttr, current.getNodeNameAttr());
  op->setAttr(MpcDialect::kOpAttr, currentOperator);
}

const OnnxHandler *OnnxConverter::findHandler(onnx::NodeOp node, NodeContext &context) {
  const OnnxRegistry &registry = OnnxRegistry::get();
  std::string name = operatorName(node);
  if (const OnnxRegistry::Entry *entry = registry.find(name, node.getSinceVersion()))
    return &entry->handler;
  SmallVector<int64_t> versions = registry.versions(name);
  ++problems;
  InFlightDiagnostic diagnostic = emitError(context.loc);
  markUnsupported(diagnostic);
  diagnostic << "operator " << name << " (node " << node.getNodeName() << ", opset "
             << node.getSinceVersion() << ") has no handler";
  if (versions.empty()) {
    diagnostic << "; supported: see mpc --list-ops";
  } else {
    diagnostic << " for this version; supported: ";
    llvm::interleaveComma(versions, diagnostic);
    diagnostic << "; convert the model to such an opset";
  }
  return nullptr;
}

static bool isAbsurd(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    if (size < 0 || (size != 0 && __builtin_mul_overflow(count, size, &count)) ||
        count > kMostElements)
      return true;
  return false;
}

/// An If whose condition is known is the branch it takes.
bool OnnxConverter::convertIf(onnx::NodeOp node, NodeContext &context) {
  auto condition = context.scalar(0);
  if (!condition || node.getGraphs().size() != 2) {
    context.unsupported()
        << "the condition must be known at compile time; simplify the model before export";
    return false;
  }
  if (dependsOnBatch(node))
    refuseTail(node); // a smaller batch might take the other
  // ONNX sorts attributes by name or not at all: the importer puts then_branch first.
  Region &branch = node.getGraphs()[*condition != 0 ? 0 : 1];
  convertBlock(branch.front());
  auto yield = dyn_cast<onnx::YieldOp>(branch.front().getTerminator());
  if (!yield || yield.getOutputs().size() != node.getNumResults()) {
    context.error() << "the branch taken has another number of outputs than the node";
    return false;
  }
  for (auto [result, output] : llvm::zip(node.getResults(), yield.getOutputs())) {
    auto found = values.find(output);
    if (found == values.end())
      return false;
    Built built = found->second;
    values[result] = built;
    if (DenseElementsAttr whole;
        trace.follows(output) && matchPattern(single(output), m_Constant(&whole)))
      trace.record(result, whole, trace.constants(output));
  }
  return true;
}

/// The node's operations and results; false after an error.
bool OnnxConverter::runHandler(NodeContext &context, const OnnxHandler &handler) {
  onnx::NodeOp node = context.op;
  unsigned before = problems;
  Block &block = forward.front();
  Operation *last = block.empty() ? nullptr : &block.back();
  auto first = [&] { return last ? std::next(last->getIterator()) : block.begin(); };
  bool converted = succeeded(handler(context));
  if (!converted && problems == before)
    context.error() << "could not be converted";
  if (!converted || !checkBuilt(context, first())) {
    for (Value result : node.getResults())
      values.erase(result);
    return false;
  }
  SmallVector<Built> results;
  for (Value result : node.getResults())
    results.push_back(values.lookup(result));
  countSamples(first(), results);
  for (auto [result, built] : llvm::zip(node.getResults(), results))
    if (values.contains(result))
      values[result] = built;
  if (trace.active() && (node.getOpType() == "Shape" || node.getOpType() == "Size"))
    recordShape(node);
  else if (!placeFolded(node))
    refuseTail(node);
  return true;
}

void OnnxConverter::convertNode(onnx::NodeOp node) {
  Location loc = node.getLoc();
  auto named = dyn_cast<NameLoc>(loc);
  if (!named || named.getName() != node.getNodeName())
    loc = NameLoc::get(node.getNodeNameAttr(), loc);
  NodeContext context(b, loc, node, *this);

  bool isIf = operatorName(node) == "If";
  const OnnxHandler *handler = isIf ? nullptr : findHandler(node, context);
  bool ready = llvm::all_of(node.getInputs(),
                            [&](Value v) { return absent.contains(v) || values.contains(v); });
  if (!ready || (!isIf && !handler))
    return;
  if (isIf) {
    convertIf(node, context);
    return;
  }
  if (!checkUint64(context))
    return;
  current = node;
  currentOperator = b.getStringAttr(operatorName(node));
  if (dependsOnBatch(node))
    convertDependent(context, *handler);
  else
    runHandler(context, *handler);
  if (trace.active() && !sameForFewer(node))
    refuseSmallerBatch(module, "node '" + node.getNodeName() + "' (" + operatorName(node) +
                                   ") has sizes or positions that fit a whole batch only");
  current = {};
}

/// What is wrong with an operation, or nothing.
static std::string problemOf(Operation &op) {
  std::string why;
  llvm::raw_string_ostream os(why);
  for (Type type : op.getResultTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && isAbsurd(tensor.getShape())) {
      os << "it would make a tensor of shape [";
      llvm::interleaveComma(tensor.getShape(), os);
      os << "], which has more than 2^42 elements";
      return why;
    }
  ScopedDiagnosticHandler capture(op.getContext(), [&](Diagnostic &diagnostic) {
    std::string text = diagnostic.str();
    auto [name, reason] = StringRef(text).split("' op "); // the node's name stands for it
    os << "its operands or attributes do not fit together: " << (reason.empty() ? name : reason);
    return success();
  });
  (void)op.getName().verifyInvariants(&op);
  return why;
}

/// Shapes that the model made and no handler has compared are found by the verifiers.
bool OnnxConverter::checkBuilt(NodeContext &context, Block::iterator first) {
  for (Operation &op : llvm::make_range(first, forward.front().end()))
    if (std::string why = problemOf(op); !why.empty()) {
      context.error() << why;
      return false;
    }
  return true;
}

void OnnxConverter::convertBlock(Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (auto node = dyn_cast<onnx::NodeOp>(op)) {
      convertNode(node);
    } else if (isa<onnx::NoneOp>(op)) {
      absent.insert(op.getResult(0));
    } else {
      IRMapping mapping;
      for (Value operand : op.getOperands())
        if (auto found = values.find(operand); found != values.end() && found->second.size() == 1)
          mapping.map(operand, found->second.front());
      Operation *copy = b.clone(op, mapping);
      for (auto [from, to] : llvm::zip(op.getResults(), copy->getResults()))
        values[from] = {to};
    }
  }
}

static void eraseDeadOperations(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

/// The return, the function's type, and the graph's attributes of arguments and results.
LogicalResult OnnxConverter::finish(func::FuncOp graph) {
  SmallVector<Value> outputs;
  auto returned = cast<func::ReturnOp>(graph.front().getTerminator());
  for (Value output : returned.getOperands()) {
    auto found = values.find(output);
    if (found == values.end() || found->second.size() != 1)
      return returned.emitError("a graph output is not a tensor; mpc needs tensor outputs");
    Value built = found->second.front();
    if (trace.follows(output)) {
      if (Value counted = live(output))
        built = counted;
      else if (auto node = output.getDefiningOp<onnx::NodeOp>())
        refuseTail(node);
    }
    if (unsigned bits = unsignedBits(output))
      built = castTo(b, returned.getLoc(), built, b.getIntegerType(bits));
    outputs.push_back(built);
  }
  func::ReturnOp::create(b, returned.getLoc(), outputs);
  forward.setFunctionType(
      b.getFunctionType(forward.front().getArgumentTypes(), ValueRange(outputs).getTypes()));
  for (unsigned i = 0; i < outputs.size(); ++i)
    if (DictionaryAttr attributes = graph.getResultAttrDict(i))
      forward.setResultAttrs(i, attributes);
  if (failed(foldEmptyTensors(forward)))
    return failure();
  eraseDeadOperations(forward.front());
  repeatDropouts();
  graph.erase();
  return success();
}

LogicalResult OnnxConverter::run() {
  auto graph = module.lookupSymbol<func::FuncOp>("graph");
  if (!graph || graph.isExternal() || !graph.getBody().hasOneBlock())
    return module.emitError("has no @graph: the conversion runs on what the importer makes");
  b.setInsertionPoint(graph);
  forward = func::FuncOp::create(b, graph.getLoc(), "forward", graph.getFunctionType());
  Block *entry = forward.addEntryBlock();
  for (auto [from, to] : llvm::zip(graph.getArguments(), entry->getArguments())) {
    values[from] = {to};
    unsigned i = to.getArgNumber();
    if (DictionaryAttr attributes = graph.getArgAttrDict(i))
      forward.setArgAttrs(i, attributes);
    auto type = dyn_cast<RankedTensorType>(from.getType());
    if (!type || !type.hasStaticShape()) {
      auto name = graph.getArgAttrOfType<StringAttr>(i, MpcDialect::kNameAttr);
      ++problems;
      emitError(from.getLoc()) << "input " << (name ? name.getValue() : "") << " is "
                               << from.getType()
                               << ": its sizes must be fixed; give them with --batch and --dim";
    }
  }
  if (problems)
    return failure();
  b.setInsertionPointToEnd(entry);
  analysis.start(forward);
  trace.start(analysis.batchSize());
  for (auto [from, to] : llvm::zip(graph.getArguments(), entry->getArguments()))
    if (unsignedBits(from)) {
      values[from] = {held(b, to.getLoc(), to)};
      if (Operation *op = values[from].front().getDefiningOp())
        analysis.visit(op);
    }
  convertBlock(graph.front());
  return problems ? failure() : finish(graph);
}

namespace {
struct ConvertOnnxToMpc : impl::ConvertOnnxToMpcBase<ConvertOnnxToMpc> {
  void runOnOperation() override {
    if (failed(OnnxConverter(getOperation()).run()))
      signalPassFailure();
  }
};
} // namespace

} // namespace mpc
