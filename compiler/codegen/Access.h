//===- Access.h - which elements a kernel's values are read at ------------------===//
//
// Before a kernel is emitted, one walk over its body by demand, from a result at the index
// of the iteration, tells what the loops should look like: where the iteration space is cut
// (a bias that is repeated every 16 elements wants an innermost loop of 16), what an element
// costs, and which values several phases of a row kernel need.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_ACCESS_H
#define MPC_CODEGEN_ACCESS_H

#include "MpcDialect.h"
#include "compiler/codegen/Affine.h"
#include "llvm/ADT/SetVector.h"
#include <set>

namespace mpc {

inline llvm::ArrayRef<int64_t> tensorShape(mlir::Value v) {
  return mlir::cast<mlir::RankedTensorType>(v.getType()).getShape();
}
inline int64_t elementsOf(llvm::ArrayRef<int64_t> shape) {
  int64_t n = 1;
  for (int64_t d : shape)
    n *= d;
  return n;
}

/// An operation of arith or math that works element by element (constants are not).
bool isPointwise(mlir::Operation *op);
/// The value whose memory `v` is: `v` without the reshapes around it.
mlir::Value stripReshapes(mlir::Value v);

/// The element of its operand that a reshape, transpose, broadcast or slice reads for element `at`
/// of its result.
Affine viewedIndex(IndexSpace &space, mlir::Operation *view, const Affine &at);
bool isView(mlir::Operation *op);

/// A shape around one axis: elements before it, its size, elements behind it.
llvm::SmallVector<int64_t, 3> aroundAxis(llvm::ArrayRef<int64_t> shape, int64_t axis);

/// Spatial dimensions of a window operation: their place in the shapes, and its parameters.
struct PoolWindow {
  llvm::ArrayRef<int64_t> kernel, strides, pads, dilations;
  unsigned first; ///< the first spatial dimension of operand and result
  explicit PoolWindow(mlir::Operation *pool);
  size_t rank() const { return kernel.size(); }
  bool channelsLast() const { return first == 1; }
  bool isDilated() const {
    return llvm::any_of(dilations, [](int64_t dilation) { return dilation != 1; });
  }
  /// How many windows of dimension d, of `outputs`, can cover one input element; with dilation, how
  /// many are tried.
  int64_t covering(size_t d, int64_t outputs) const {
    return isDilated() ? kernel[d] : std::min((kernel[d] + strides[d] - 1) / strides[d], outputs);
  }
};
/// Up to so many window cells are emitted one by one; beyond, they are a loop.
constexpr int64_t kUnrolledCells = 16;

/// What one element of an operation costs, in the time of a vectorized addition.
double operationCost(mlir::Operation *op);

/// A walk over a kernel's body by demand.
class AccessWalk : public IndexSpace {
public:
  /// Reaches `value` at element `at`, and all that it needs. A reduction is reached, but not its
  /// operand.
  void visit(mlir::Value value, const Affine &at);

  /// Every (value, element) reached, in the order of a walk that meets users first.
  llvm::SmallVector<std::pair<mlir::Value, Affine>> reached;
  /// Multiples of the iteration's elements at which something else than a plain running index
  /// begins.
  std::set<int64_t> cuts;
  double cost = 0;

protected:
  std::pair<mlir::Value, mlir::Value> divideValues(const Affine &index, int64_t divisor) override;

private:
  void visitOperands(mlir::Operation *op, const Affine &at);
  std::set<std::pair<void *, Affine>> seen;
  double repeats = 1;
};

} // namespace mpc

#endif // MPC_CODEGEN_ACCESS_H
