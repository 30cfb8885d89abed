//===- OnnxConversion.h - handlers of ONNX operators --------------------------------===//
//
// A handler turns one node into core operations. It is registered by operator and since-version,
// in the file of its op family:
//
//   static LogicalResult convertRelu(NodeContext &node) {
//     Value x = node.operand(0);
//     if (!x) return failure();                     // operand() has said what is missing
//     Value zero = node.splat(x.getType(), 0.0);
//     return node.results({arith::MaximumFOp::create(node.b, node.loc, x, zero)});
//   }
//   void registerActivations(OnnxRegistry &r) { r.add("Relu", {6, 13, 14}, convertRelu); }
//
//===------------------------------------------------------------------------------===//

#ifndef MPC_OPS_ONNXCONVERSION_H
#define MPC_OPS_ONNXCONVERSION_H

#include "OnnxDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringMap.h"
#include <functional>
#include <optional>

namespace mpc {

class NodeContext {
public:
  mlir::OpBuilder &b;
  mlir::Location loc; ///< NameLoc of the node
  onnx::NodeOp op;

  mlir::StringRef type() { return op.getOpType(); }
  int64_t version() { return op.getSinceVersion(); }

  // Operands: converted values, statically shaped tensors. ---------------------------------------
  unsigned operandCount() { return op.getInputs().size(); }
  bool has(unsigned i);                  ///< present, not left out
  mlir::Value operand(unsigned i);       ///< emits an error and returns null if it is left out
  mlir::ValueRange sequence(unsigned i); ///< the tensors of a sequence operand
  /// The operand's value where it is known at compile time (shape arithmetic has been folded).
  mlir::DenseElementsAttr constant(unsigned i);
  /// constant(i) as integers; emits "must be known at compile time" and returns nullopt otherwise.
  std::optional<llvm::SmallVector<int64_t>> integers(unsigned i);
  std::optional<double> scalar(unsigned i);

  // Attributes, with ONNX's defaults given by the caller. ----------------------------------------
  int64_t intAttr(mlir::StringRef name, int64_t otherwise);
  double floatAttr(mlir::StringRef name, double otherwise); ///< the attribute's f32 value, widened
  std::string stringAttr(mlir::StringRef name, mlir::StringRef otherwise);
  std::optional<llvm::SmallVector<int64_t>> intsAttr(mlir::StringRef name);
  mlir::Attribute attr(mlir::StringRef name); ///< null if absent

  // Results. -------------------------------------------------------------------------------------
  unsigned resultCount() { return op->getNumResults(); }
  bool resultUsed(unsigned i); ///< has a use or is a graph output
  mlir::LogicalResult
  results(mlir::ArrayRef<mlir::Value> values); ///< one per result; null for one that is unused
  mlir::LogicalResult sequenceResult(mlir::ArrayRef<mlir::Value> values);

  // Problems: "NODE (OP, opset N): MESSAGE", at the node's location. All are shown at the end;
  // conversion goes on with the next node.
  mlir::InFlightDiagnostic error();
  /// The same, about something that mpc does not have (Unsupported.h).
  mlir::InFlightDiagnostic unsupported();

  // Randomness. ----------------------------------------------------------------------------------
  mlir::Value randomState();    ///< the argument of role random_state (tensor<2xi64>), added to
                                ///< @forward when first asked for
  int64_t nextRandomOperator(); ///< a number of its own for each random operation of the model

  // The number of samples. -----------------------------------------------------------------------
  /// How many elements a value has along `axes`, as a scalar of that type: a number where no
  /// sample is among them, else computed from the samples that are there. A sum over such axes
  /// adds only those, so this is what a mean divides by.
  mlir::Value countAlong(mlir::Value v, mlir::ArrayRef<int64_t> axes, mlir::Type elementType);
  /// `v`, which has only the shape of `like`, with the samples where `like` has them: the first
  /// one's for those that are not there.
  mlir::Value rowsLike(mlir::Value v, mlir::Value like);
  /// The same along the last two dimensions, of what compares a column's number with a row's plus
  /// `k`.
  mlir::Value diagonalLike(mlir::Value v, mlir::Value like, int64_t k);
  /// Operands i and j hold the samples along the same axes, all of which are allowed.
  bool sameSamples(unsigned i, unsigned j, llvm::function_ref<bool(int64_t)> allowed);

  // Building. All fold at once where their operands are constants: see compiler/ops/Build.h
  mlir::Value splat(mlir::Type tensorType, double value); ///< a constant of that (tensor) type

private:
  friend class OnnxConverter;
  class OnnxConverter &converter;
  NodeContext(mlir::OpBuilder &b, mlir::Location loc, onnx::NodeOp op,
              class OnnxConverter &converter)
      : b(b), loc(loc), op(op), converter(converter) {}
};

using OnnxHandler = std::function<mlir::LogicalResult(NodeContext &)>;

/// Operator (domain ai.onnx, or "com.microsoft:NAME") → since-versions → handler.
class OnnxRegistry {
public:
  struct Entry {
    llvm::SmallVector<int64_t> versions; ///< since-versions this handler understands
    OnnxHandler handler;
  };
  void add(mlir::StringRef op, mlir::ArrayRef<int64_t> versions, OnnxHandler handler);
  const Entry *find(mlir::StringRef op,
                    int64_t sinceVersion) const; ///< null: unknown operator or version
  llvm::SmallVector<int64_t> versions(mlir::StringRef op) const; ///< empty: unknown operator
  llvm::StringMap<llvm::SmallVector<Entry, 1>> entries;
  /// All handlers of the project.
  static const OnnxRegistry &get();
};

// One function per op family, in the file that is named. OnnxRegistry::get() calls them all.

/// Elementwise.cpp: arithmetic, comparisons, Where, Clip, Cast, Pow, …
void registerElementwiseHandlers(OnnxRegistry &registry);
/// Activations.cpp: Relu, Sigmoid, Gelu, Softplus, …
void registerActivationHandlers(OnnxRegistry &registry);
/// ShapeHandlers.cpp: Reshape, Transpose, Squeeze, Flatten, Identity, Expand, Tile, Shape, …
void registerShapeHandlers(OnnxRegistry &registry);
/// SliceHandlers.cpp: Slice, Split, Concat, Pad, Trilu, sequences
void registerSliceHandlers(OnnxRegistry &registry);
/// GatherHandlers.cpp: Gather, GatherElements, GatherND, Scatter*, OneHot, Range
void registerGatherHandlers(OnnxRegistry &registry);
/// Reduction.cpp: Reduce*, ArgMax, Softmax, LogSoftmax, CumSum
void registerReductionHandlers(OnnxRegistry &registry);
/// Linear.cpp: MatMul, Gemm, Einsum
void registerLinearHandlers(OnnxRegistry &registry);
/// Conv.cpp: Conv, ConvTranspose
void registerConvHandlers(OnnxRegistry &registry);
/// Pool.cpp: pools, Resize, Upsample
void registerPoolHandlers(OnnxRegistry &registry);
/// NormHandlers.cpp: LayerNormalization, BatchNormalization, …
void registerNormHandlers(OnnxRegistry &registry);
/// Random.cpp: Dropout
void registerRandomHandlers(OnnxRegistry &registry);
/// Loss.cpp: SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss
void registerLossHandlers(OnnxRegistry &registry);

} // namespace mpc

#endif // MPC_OPS_ONNXCONVERSION_H
