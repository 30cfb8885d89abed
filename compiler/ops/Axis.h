//===- Axis.h - axes that count from the back ---------------------------------===//

#ifndef MPC_OPS_AXIS_H
#define MPC_OPS_AXIS_H

#include "compiler/ops/OnnxConversion.h"

namespace mpc {

/// ONNX's axis in [-rank, rank) as one in [0, rank); emits an error and returns nullopt for one
/// outside.
inline std::optional<int64_t> normalizedAxis(NodeContext &node, int64_t axis, int64_t rank) {
  if (axis >= -rank && axis < rank)
    return axis < 0 ? axis + rank : axis;
  node.error() << "axis " << axis << " is outside a tensor of rank " << rank;
  return std::nullopt;
}

struct AxisOperand {
  mlir::Value value;
  int64_t axis; ///< in [0, rank)
};

/// Operand 0 and the axis of it that the attribute `axis` names; nullopt after an error.
inline std::optional<AxisOperand> axisOperand(NodeContext &node, int64_t otherwise) {
  mlir::Value value = node.operand(0);
  if (!value)
    return std::nullopt;
  int64_t rank = mlir::cast<mlir::RankedTensorType>(value.getType()).getRank();
  std::optional<int64_t> axis = normalizedAxis(node, node.intAttr("axis", otherwise), rank);
  if (!axis)
    return std::nullopt;
  return AxisOperand{value, *axis};
}

} // namespace mpc

#endif // MPC_OPS_AXIS_H
