//===- OnnxConverter.h - state of one run of convert-onnx-to-mpc --------------===//
//
// What NodeContext, the handlers' view, is a window on: the values converted so far,
// where the samples are in them and what depends on their number, and the problems found.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_OPS_ONNXCONVERTER_H
#define MPC_OPS_ONNXCONVERTER_H

#include "BatchTrace.h"
#include "OnnxConversion.h"
#include "llvm/ADT/DenseSet.h"

namespace mpc {

class OnnxConverter : private mlir::OpBuilder::Listener {
public:
  explicit OnnxConverter(mlir::ModuleOp module);
  /// @graph becomes @forward. All problems are emitted before it fails.
  mlir::LogicalResult run();

private:
  friend class NodeContext;
  using Built = llvm::SmallVector<mlir::Value, 1>; ///< a tensor, or those of a sequence

  void convertBlock(mlir::Block &block);
  void convertNode(onnx::NodeOp node);
  bool convertIf(onnx::NodeOp node, NodeContext &context);
  const OnnxHandler *findHandler(onnx::NodeOp node, NodeContext &context);
  mlir::LogicalResult finish(mlir::func::FuncOp graph);
  bool runHandler(NodeContext &context, const OnnxHandler &handler);
  mlir::Value stateArgument(mlir::StringRef role, mlir::RankedTensorType type);
  mlir::Value single(mlir::Value v) const;
  static mlir::DenseElementsAttr constantOf(mlir::Value v); ///< null if it is none
  bool checkBuilt(NodeContext &context, mlir::Block::iterator first);

  // CountSamples.cpp
  mlir::Value samples();
  mlir::Value sizeAlong(mlir::Location loc, mlir::Value v, llvm::ArrayRef<int64_t> axes);
  void refuseTail(onnx::NodeOp node);
  mlir::Value masked(mlir::Location loc, mlir::Value v, const SamplePlace &place,
                     ReductionKind kind);
  mlir::Value replaced(mlir::Location loc, mlir::Value v, const SamplePlace &place,
                       llvm::function_ref<mlir::Value(mlir::Value, int64_t)> function);
  mlir::Value copiesOfFirst(mlir::Location loc, mlir::Value v, int64_t axis, int64_t inner);
  mlir::Value whereThere(mlir::Location loc, mlir::Value part, mlir::Value other, int64_t axis,
                         int64_t inner);
  mlir::Value placed(mlir::Location loc, mlir::Value v, const SamplePlace &place);
  void maskOperands(mlir::Operation *op);
  void countSamples(mlir::Block::iterator first, llvm::MutableArrayRef<Built> results);
  bool dependsOnBatch(onnx::NodeOp node) const;
  void convertDependent(NodeContext &context, const OnnxHandler &handler);
  std::optional<llvm::SmallVector<Built>>
  convertAgain(onnx::NodeOp node, llvm::ArrayRef<std::pair<mlir::Value, mlir::Value>> replaced,
               bool otherShapes);
  void recordShape(onnx::NodeOp node);
  bool recordConstants(onnx::NodeOp node);
  mlir::Value liveIntegers(mlir::Location loc, mlir::DenseElementsAttr whole,
                           const BatchTrace::Constants &constants);
  mlir::Value live(mlir::Value v);
  SamplePlace rowsOf(mlir::Value v, int64_t axis) const;
  bool checkSlice(onnx::NodeOp node);
  bool checkShapeOperands(onnx::NodeOp node);

  // CombineSamples.cpp
  mlir::Value alongSamples(mlir::Operation *op); ///< null: as it is
  void repeatDropouts();

  // ConvertForFewer.cpp
  bool sameForFewer(onnx::NodeOp node);
  mlir::Value ofFewer(mlir::Location loc, mlir::Value v, int64_t n);
  bool placeFolded(onnx::NodeOp node);

  /// Marks what a handler built with the node's name and operator.
  void notifyOperationInserted(mlir::Operation *op, mlir::OpBuilder::InsertPoint) override;

  mlir::ModuleOp module;
  mlir::OpBuilder b;
  mlir::func::FuncOp forward;
  llvm::DenseMap<mlir::Value, Built> values; ///< of each converted value
  llvm::DenseSet<mlir::Value> absent;        ///< results of onnx.none
  BatchAnalysis analysis;                    ///< of what has been built so far
  BatchTrace trace;
  llvm::DenseMap<mlir::Value, mlir::Value> liveValues; ///< followed values as data; null: unknown
  onnx::NodeOp current;
  mlir::StringAttr currentOperator;
  bool ignoreShapes = false; ///< a node is converted for another batch size
  int64_t randomOperators = 0;
  unsigned problems = 0;
};

/// "Gemm", or "DOMAIN:NAME" outside ONNX's own domain.
std::string operatorName(onnx::NodeOp node);

/// Values without elements become constants, and so does what only reads such; what cannot is an
/// error that names the node.
mlir::LogicalResult foldEmptyTensors(mlir::func::FuncOp forward);

} // namespace mpc

#endif // MPC_OPS_ONNXCONVERTER_H
