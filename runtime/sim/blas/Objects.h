//===- Objects.h - what the simulated cuBLASLt is made of ---------------------------------===//
//
// Calls come one at a time.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_BLAS_OBJECTS_H
#define MPC_RUNTIME_SIM_BLAS_OBJECTS_H

#include "runtime/cuda/CublasLt.h"
#include "runtime/sim/library/Table.h"
#include <array>
#include <mutex>
#include <new>

namespace mpc::sim::blas {

/// cublasLtHandle_t: the context that was current when it was made.
struct Handle {
  CUcontext context = nullptr;
  int capability = 0; ///< 10 · major + minor
};

/// cublasLtMatrixLayout_t: column-major matrices, `stride` elements apart.
struct Layout {
  cudaDataType_t type{};
  int64_t rows = 0, columns = 0, leading = 0;
  int32_t batch = 1;
  int64_t stride = 0;
};

/// cublasLtMatmulDesc_t.
struct Description {
  cublasComputeType_t computeType = CUBLAS_COMPUTE_32F;
  cudaDataType_t scaleType = CUDA_R_32F;
  int32_t transposeA = CUBLAS_OP_N, transposeB = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void *bias = nullptr;
  int64_t biasStride = 0;
  int32_t biasType = -1;
};

/// cublasLtMatmulPreference_t.
struct Preference {
  uint64_t workspaceBytes = 0;
  uint32_t reductionSchemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::array<uint32_t, 4> alignments{256, 256, 256, 256}; ///< of A, B, C, D
};

struct Library {
  std::mutex mutex;
  LibraryTable<cublasLtHandle_t, Handle> handles;
  LibraryTable<cublasLtMatrixLayout_t, Layout> layouts;
  LibraryTable<cublasLtMatmulDesc_t, Description> descriptions;
  LibraryTable<cublasLtMatmulPreference_t, Preference> preferences;
};

/// The one of this process. It stays until the process has ended.
Library &library();

/// Runs a call, alone.
template <typename Body> cublasStatus_t call(Body body) {
  std::lock_guard lock(library().mutex);
  try {
    return body(library());
  } catch (const std::bad_alloc &) {
    return CUBLAS_STATUS_ALLOC_FAILED;
  }
}

/// Says on stderr why a call fails, and returns its result.
[[gnu::format(printf, 2, 3)]] cublasStatus_t refuse(cublasStatus_t status, const char *format, ...);

} // namespace mpc::sim::blas

#endif // MPC_RUNTIME_SIM_BLAS_OBJECTS_H
