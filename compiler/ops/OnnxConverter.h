//===- OnnxConverter.h - state of one run of convert-onnx-to-mpc --------------===//
//
// What NodeContext, the handlers' view, is a window on: the values converted so far,
// the batch dimension's trace in integer constants, and the problems found.
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

  void convertBlock(mlir::Block &block);
  void convertNode(onnx::NodeOp node);
  bool convertIf(onnx::NodeOp node, NodeContext &context);
  const OnnxHandler *findHandler(onnx::NodeOp node, NodeContext &context);
  mlir::LogicalResult finish(mlir::func::FuncOp graph);
  void traceBatch(onnx::NodeOp node);
  /// Marks what a handler built with the node's name and operator.
  void notifyOperationInserted(mlir::Operation *op, mlir::OpBuilder::InsertPoint) override;

  mlir::ModuleOp module;
  mlir::OpBuilder b;
  mlir::func::FuncOp forward;
  /// The tensors of each converted value: one, or those of a sequence.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value, 1>> values;
  llvm::DenseSet<mlir::Value> absent; ///< results of onnx.none
  BatchTrace trace;
  onnx::NodeOp current;
  mlir::StringAttr currentOperator;
  mlir::Value randomState;
  int64_t randomOperators = 0;
  unsigned problems = 0;
};

/// "Gemm", or "DOMAIN:NAME" outside ONNX's own domain.
std::string operatorName(onnx::NodeOp node);

} // namespace mpc

#endif // MPC_OPS_ONNXCONVERTER_H
