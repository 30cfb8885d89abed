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

} // namespace mpc

#endif // MPC_OPS_AXIS_H
