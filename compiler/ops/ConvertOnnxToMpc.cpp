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
  auto diagnostic = emitError(context.loc);
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

/// An If whose condition is known is the branch it takes.
bool OnnxConverter::convertIf(onnx::NodeOp node, NodeContext &context) {
  auto condition = context.scalar(0);
  if (!condition || node.getGraphs().size() != 2) {
    context.error()
        << "the condition must be known at compile time; simplify the model before export";
    return false;
  }
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
    SmallVector<Value, 1> built = found->second;
    values[result] = built;
  }
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
  current = node;
  currentOperator = b.getStringAttr(operatorName(node));
  unsigned before = problems;
  if (failed((*handler)(context))) {
    if (problems == before)
      context.error() << "could not be converted";
    for (Value result : node.getResults())
      values.erase(result);
  } else {
    traceBatch(node);
  }
  current = {};
}

void OnnxConverter::traceBatch(onnx::NodeOp node) {
  auto core = [&](Value v) {
    auto found = values.find(v);
    return found == values.end() || found->second.size() != 1 ? Value() : found->second.front();
  };
  if (!trace.follow(node, core) || module->hasAttr("mpc.tail_refused"))
    return;
  module->setAttr("mpc.tail_refused",
                  b.getStringAttr("node " + node.getNodeName() + " computes with the batch size"));
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
    outputs.push_back(found->second.front());
  }
  func::ReturnOp::create(b, returned.getLoc(), outputs);
  forward.setFunctionType(
      b.getFunctionType(forward.front().getArgumentTypes(), ValueRange(outputs).getTypes()));
  for (unsigned i = 0; i < outputs.size(); ++i)
    if (DictionaryAttr attributes = graph.getResultAttrDict(i))
      forward.setResultAttrs(i, attributes);
  eraseDeadOperations(forward.front());
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
  trace.start(forward);
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
