//===- TensorCores.h - what tensor cores of a simulated GPU compute ---------------------===//

#ifndef MPC_RUNTIME_SIM_TENSORCORES_H
#define MPC_RUNTIME_SIM_TENSORCORES_H

#include <array>
#include <cstdint>

namespace mpc::sim {

/// The words of each lane of a warp.
using WarpWords = std::array<uint32_t *, 32>;

/// mpc_sim_multiply of a whole warp.
void multiply(uint32_t kind, const WarpWords &words);
/// mpc_sim_load_matrices of a whole warp.
void loadMatrices(bool transposed, const std::array<const void *, 32> &rows,
                  const WarpWords &words);

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_TENSORCORES_H
