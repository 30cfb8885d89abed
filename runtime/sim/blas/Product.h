//===- Product.h - a matrix product as the simulated cuBLASLt computes it -----------------===//
//
//   D[i, j] = round(epilogue(alpha · Σ_k A(i, k) · B(k, j) + beta · C[i, j] + bias[i]))
//
// in float, whatever the types in memory. Matrices are column-major.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_BLAS_PRODUCT_H
#define MPC_RUNTIME_SIM_BLAS_PRODUCT_H

#include "runtime/sim/blas/Objects.h"
#include <type_traits>

namespace mpc::sim::blas {

int64_t elementBytes(cudaDataType_t type); ///< 0 for a type that is not simulated

/// Everything but addresses.
struct Problem {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  Layout a, b, c, d;
  bool isTransposedA = false, isTransposedB = false;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t biasType{};
  int64_t biasStride = 0;

  bool hasBias() const { return epilogue & CUBLASLT_EPILOGUE_BIAS; }
};

/// How its sums are taken.
struct Algorithm {
  int32_t splits = 1;                                     ///< parts of the depth
  uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;       ///< how parts come together
  bool isHalfSum = false;                                 ///< in halves
  bool isTensorFloat = false;                             ///< from operands of 10 bits
  std::array<uint16_t, 4> alignments{256, 256, 256, 256}; ///< that A, B, C and D have to have
  std::array<uint16_t, 3> unused{};                       ///< so that equal ones have equal bytes
  uint64_t workspaceBytes = 0;
};
static_assert(std::has_unique_object_representations_v<Algorithm>);

struct Operands {
  const void *a = nullptr, *b = nullptr, *c = nullptr, *bias = nullptr;
  void *d = nullptr;
  float alpha = 1, beta = 0;
};

void multiply(const Problem &problem, const Algorithm &algorithm, const Operands &operands);

} // namespace mpc::sim::blas

#endif // MPC_RUNTIME_SIM_BLAS_PRODUCT_H
