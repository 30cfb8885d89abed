//===- Sums.h - sums of products, as simulated libraries take them --------------------===//
//
// One side lies in a panel of 16 rows, whose elements of one depth are side by side; of the other
// side, the elements of a row are. A tile of 16 × 4 sums stays in registers.
//
//===----------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_LIBRARY_SUMS_H
#define MPC_RUNTIME_SIM_LIBRARY_SUMS_H

#include "runtime/sim/library/Numbers.h"

namespace mpc::sim {

constexpr int64_t kPanel = 16, kTile = 4;

/// How the depth is divided, and what becomes of its parts.
struct Parts {
  int64_t depth = 1; ///< of a part, which is added up in float
  /// That a part is rounded to before it meets the others, and their sum after each.
  Number type = Number::f32;
  int64_t first = 0; ///< the part that comes first; the others follow in a circle
};

/// sums[j][i] = Σ_k panel[k][i] · rows[j][k].
void sumTile(const Parts &parts, const float *panel, const float *const *rows, int64_t depth,
             float (*sums)[kPanel]);

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_LIBRARY_SUMS_H
