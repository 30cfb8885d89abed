//===- CublasLt.h - the part of cuBLASLt's interface that is used here -----------------===//
//
// NVIDIA's package with the real header has hundreds of megabytes of library beside it, and nobody
// needs either to build this project: the functions are looked up at run time (Blas.h), and the
// simulator's library defines them (runtime/sim/blas). Names, values and types are those of cuBLAS
// 12 and 13; NVIDIA's manual says what they mean.
//
//===----------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_CUBLASLT_H
#define MPC_RUNTIME_CUDA_CUBLASLT_H

#include <cstddef>
#include <cstdint>
#include <cuda.h>

// What calls return.
enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};

// Element types (cudaDataType).
enum cudaDataType_t : int {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,
};

// How products are added up. 32F: in float, from operands as they are.
enum cublasComputeType_t : int {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_32F = 68,
};

enum cublasOperation_t : int { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };

// The types of attributes' values are given beside their names. A matrix in memory is column-major
// unless ORDER says otherwise.
enum cublasLtMatrixLayoutAttribute_t : int {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,          // int32_t
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6, // int64_t, elements
};

enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,             // int32_t, cublasOperation_t
  CUBLASLT_MATMUL_DESC_TRANSB = 4,             // int32_t
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,           // uint32_t, cublasLtEpilogue_t
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,       // const void *, device memory
  CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10, // int64_t, elements; 0: one bias for all
  CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,    // int32_t, cudaDataType; -1: the result's
};

enum cublasLtEpilogue_t : unsigned {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4, // an element for each of the result's rows
  CUBLASLT_EPILOGUE_RELU_BIAS = 6,
};

enum cublasLtMatmulPreferenceAttributes_t : int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,   // uint64_t
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3, // uint32_t, cublasLtReductionScheme_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, // uint32_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6, // uint32_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7, // uint32_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8, // uint32_t
};

// How the sums of a product whose depth is split come together.
enum cublasLtReductionScheme_t : unsigned {
  CUBLASLT_REDUCTION_SCHEME_NONE = 0,
  CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,      // in the result, in its type
  CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2, // in the workspace, in float
  CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4,  // in the workspace, in the result's type
  CUBLASLT_REDUCTION_SCHEME_MASK = 7,
};

enum cublasLtMatmulAlgoCapAttributes_t : int {
  CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS = 15, // uint64_t, of the following
};

constexpr uint64_t CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA = 0x01;
constexpr uint64_t CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA = 0x02;
constexpr uint64_t CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F = 0x0100;
constexpr uint64_t CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F = 0x0200;
constexpr uint64_t CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F = 0x010000;
constexpr uint64_t CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF = 0x020000;
constexpr uint64_t CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 = 0x040000;

// Objects of the library.
using cublasLtHandle_t = struct cublasLtContext *;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutOpaque *;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescOpaque *;
using cublasLtMatmulPreference_t = struct cublasLtMatmulPreferenceOpaque *;

struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};

struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize; ///< bytes that the algorithm needs
  cublasStatus_t state; ///< the rest is valid with CUBLAS_STATUS_SUCCESS
  float wavesCount;
  int reserved[4];
};
static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 96);

extern "C" {
/// 10000 · major + 100 · minor + patch.
size_t cublasLtGetVersion();
const char *cublasLtGetStatusName(cublasStatus_t status); ///< "CUBLAS_STATUS_…"

/// Of the context that is current; needs a GPU.
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns,
                                          int64_t leadingDimension);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes);

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description,
                                        cublasComputeType_t computeType, cudaDataType_t scaleType);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes);

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes);

/// At most `requested` algorithms for the product, what the library thinks best first.
cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                               cublasLtMatrixLayout_t aLayout, cublasLtMatrixLayout_t bLayout,
                               cublasLtMatrixLayout_t cLayout, cublasLtMatrixLayout_t dLayout,
                               cublasLtMatmulPreference_t preference, int requested,
                               cublasLtMatmulHeuristicResult_t *results, int *returned);
cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t attribute,
                                                 void *value, size_t bytes, size_t *written);

/// D = epilogue(alpha · A · B + beta · C + bias); alpha and beta are floats of the host.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t aLayout,
                              const void *b, cublasLtMatrixLayout_t bLayout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t cLayout, void *d,
                              cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t *algorithm,
                              void *workspace, size_t workspaceBytes, CUstream stream);
}

#endif // MPC_RUNTIME_CUDA_CUBLASLT_H
