//===- Build.h - small builders that every op family uses -----------------------------===//
//
// Every function folds at once where it can (OpBuilder::createOrFold), so that shape
// arithmetic on constants never becomes an operation.
//
//===--------------------------------------------------------------------------------===//

#ifndef MPC_OPS_BUILD_H
#define MPC_OPS_BUILD_H

#include "MpcDialect.h"

namespace mpc {

using mlir::ArrayRef;
using mlir::Location;
using mlir::OpBuilder;
using mlir::RankedTensorType;
using mlir::Type;
using mlir::Value;

inline RankedTensorType tensorType(Value v) { return mlir::cast<RankedTensorType>(v.getType()); }
inline ArrayRef<int64_t> shapeOf(Value v) { return tensorType(v).getShape(); }
inline Type elementType(Value v) { return tensorType(v).getElementType(); }
/// A tensor with a dimension 0.
inline bool hasNoElements(Type type) {
  auto tensor = mlir::dyn_cast<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape() && tensor.getNumElements() == 0;
}
inline bool hasNoElements(Value v) { return hasNoElements(v.getType()); }
/// More elements than any memory holds. A model with such a tensor is refused before something is
/// computed with its sizes: byte offsets would not fit their 64 bits.
constexpr int64_t kMostElements = int64_t(1) << 42;

bool isHalf(Type elementType); ///< f16 or bf16
/// f32 for halves and f32, f64 for f64: the type elementwise arithmetic and accumulators use.
Type computeType(Type elementType);

/// The name of the node an operation came from ("" if unknown) and its operator (the operation's
/// name if unknown).
llvm::StringRef nodeOf(mlir::Operation *op);
llvm::StringRef operatorOf(mlir::Operation *op);

/// A splat constant of a tensor type (float or integer).
Value splat(OpBuilder &b, Location loc, Type tensorType, double value);
/// A rank-0 constant tensor.
Value scalarTensor(OpBuilder &b, Location loc, Type elementType, double value);
/// A splat of the value that changes no other in a reduction: 0, 1, or the lowest or largest.
Value neutralTensor(OpBuilder &b, Location loc, ReductionKind kind, Type tensorType);

Value reshape(OpBuilder &b, Location loc, Value v,
              ArrayRef<int64_t> shape); ///< v itself if it has that shape
Value transpose(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> permutation);
/// Operand dimension i becomes result dimension dimensions[i]; the others are new.
Value broadcast(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> dimensions,
                ArrayRef<int64_t> shape);
/// numpy broadcasting to `shape` (drops stretched 1s with a reshape first).
Value broadcastTo(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> shape);
/// A rank-0 tensor repeated to `shape`.
Value broadcastScalar(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> shape);
/// The numpy broadcast of two shapes; nullopt if they do not fit.
std::optional<llvm::SmallVector<int64_t>> broadcastShape(ArrayRef<int64_t> a, ArrayRef<int64_t> b);
Value slice(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> starts, ArrayRef<int64_t> steps,
            ArrayRef<int64_t> shape);
Value reduce(OpBuilder &b, Location loc, ReductionKind kind, Value v, ArrayRef<int64_t> axes,
             Type resultElementType = {});

/// Casts between any two element types: extf/truncf, sitofp, fptosi (saturating is not needed),
/// integer casts, i1 by comparison with 0. Never carries fast-math flags. v itself if it has that
/// element type.
Value castTo(OpBuilder &b, Location loc, Value v, Type elementType);
/// To the compute type.
Value widen(OpBuilder &b, Location loc, Value v);

// Elementwise arithmetic on equal types; floats only unless said otherwise.
Value add(OpBuilder &b, Location loc, Value x, Value y); ///< floats or integers
Value sub(OpBuilder &b, Location loc, Value x, Value y); ///< floats or integers
Value mul(OpBuilder &b, Location loc, Value x, Value y); ///< floats or integers
Value div(OpBuilder &b, Location loc, Value x,
          Value y); ///< floats, or signed integers (towards zero)

/// A comparison of floats; folds constants (arith folds scalars only).
Value compare(OpBuilder &b, Location loc, mlir::arith::CmpFPredicate predicate, Value x, Value y);

} // namespace mpc

#endif // MPC_OPS_BUILD_H
