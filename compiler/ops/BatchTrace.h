//===- BatchTrace.h - which dimensions, and which integers, come from the batch size -===//
//
// The batch size is a constant of the compiled program, but a smaller last batch runs
// through the same program. Where a model turns the batch size into a number it computes
// with (Shape or Size, then Cast to float), that number would be wrong there.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_OPS_BATCHTRACE_H
#define MPC_OPS_BATCHTRACE_H

#include "OnnxDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"

namespace mpc {

class BatchTrace {
public:
  /// Reads mpc.batch and mpc.batch_axes of the module.
  void start(mlir::func::FuncOp forward);

  /// The dimensions of a core-level value that hold the batch (perhaps among other factors).
  llvm::BitVector dimensions(mlir::Value coreValue);

  /// The elements of an ONNX value (an integer constant) that depend on the batch size; empty:
  /// none.
  llvm::BitVector elements(mlir::Value onnxValue) const { return integers.lookup(onnxValue); }

  /// Follows one node. `core` gives the converted value of an ONNX value (null if unknown).
  /// Returns true if the node makes floats out of integers that depend on the batch size.
  bool follow(onnx::NodeOp node, llvm::function_ref<mlir::Value(mlir::Value)> core);

private:
  /// The batch is one factor of dimension `axis`; the factors before it there multiply to `outer`.
  struct Place {
    int64_t axis, outer;
    bool operator==(const Place &) const = default;
  };
  using Places = llvm::SmallVector<Place, 1>;
  const Places &places(mlir::Value value);
  Places computePlaces(mlir::Operation *op, mlir::Value value);

  int64_t batch = 0;
  llvm::DenseMap<mlir::Value, Places> known;
  llvm::DenseMap<mlir::Value, llvm::BitVector> integers;
};

} // namespace mpc

#endif // MPC_OPS_BATCHTRACE_H
