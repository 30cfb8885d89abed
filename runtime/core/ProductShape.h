//===- ProductShape.h - the extents of a matrix product ---------------------------===//

#ifndef MPC_RUNTIME_CORE_PRODUCTSHAPE_H
#define MPC_RUNTIME_CORE_PRODUCTSHAPE_H

#include "runtime/core/Program.h"

namespace mpc {

/// Of a command `matmul`: result[b, m, n] = Σ_k lhs[b, m, k] · rhs[b, k, n], whichever operand is
/// stored transposed.
struct ProductShape {
  explicit ProductShape(const Command &command) {
    const std::vector<int64_t> &lhs = command.lhs.shape, &result = command.result.shape;
    size_t rank = result.size();
    for (size_t i = 0; i + 2 < rank; ++i)
      batch *= result[i];
    m = result[rank - 2];
    n = result[rank - 1];
    k = lhs[rank - (command.transpose_lhs ? 2 : 1)];
  }
  int64_t batch = 1, m, n, k;
};

} // namespace mpc

#endif // MPC_RUNTIME_CORE_PRODUCTSHAPE_H
