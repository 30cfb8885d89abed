//===- Objects.cpp - the simulated cuBLASLt: handles and descriptions ---------------------===//

#include "runtime/sim/blas/Objects.h"
#include "runtime/sim/driver/Library.h"
#include "runtime/sim/library/Say.h"
#include <cstdarg>
#include <cstdlib>
#include <cstring>

using namespace mpc::sim;
using namespace mpc::sim::blas;

namespace mpc::sim::blas {

Library &library() {
  static auto *library = new Library;
  return *library;
}

cublasStatus_t refuse(cublasStatus_t status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  sayText(format, arguments);
  va_end(arguments);
  return status;
}

} // namespace mpc::sim::blas

//===- Library ----------------------------------------------------------------------------===//

size_t cublasLtGetVersion() {
  const char *version = std::getenv("MPC_SIM_BLAS_VERSION");
  return version ? std::strtoull(version, nullptr, 10) : 120900;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
#define MPC_STATUS(name)                                                                           \
  case name:                                                                                       \
    return #name;
  switch (status) {
    MPC_STATUS(CUBLAS_STATUS_SUCCESS)
    MPC_STATUS(CUBLAS_STATUS_NOT_INITIALIZED)
    MPC_STATUS(CUBLAS_STATUS_ALLOC_FAILED)
    MPC_STATUS(CUBLAS_STATUS_INVALID_VALUE)
    MPC_STATUS(CUBLAS_STATUS_ARCH_MISMATCH)
    MPC_STATUS(CUBLAS_STATUS_EXECUTION_FAILED)
    MPC_STATUS(CUBLAS_STATUS_INTERNAL_ERROR)
    MPC_STATUS(CUBLAS_STATUS_NOT_SUPPORTED)
  }
#undef MPC_STATUS
  return "unrecognized status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  return call([&](Library &library) {
    const char *isThere = std::getenv("MPC_SIM_BLAS");
    if (!handle)
      return CUBLAS_STATUS_INVALID_VALUE;
    Handle made;
    if ((isThere && std::strcmp(isThere, "0") == 0) ||
        mpc_sim_current(&made.context, &made.capability) != CUDA_SUCCESS ||
        mpc_sim_check_unsafe("cublasLtCreate") != CUDA_SUCCESS)
      return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = library.handles.add(made);
    return CUBLAS_STATUS_SUCCESS;
  });
}

namespace {
template <typename Opaque, typename T>
cublasStatus_t destroy(LibraryTable<Opaque, T> &table, Opaque handle, const char *function) {
  if (!handle || table.remove(handle))
    return CUBLAS_STATUS_SUCCESS;
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: there is no such object", function);
}

/// An attribute's value, of exactly its size.
template <typename T>
cublasStatus_t take(T &to, const void *value, size_t bytes, const char *function) {
  if (bytes != sizeof to)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: the value has %zu bytes, %zu were given",
                  function, sizeof to, bytes);
  std::memcpy(static_cast<void *>(&to), value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t refuseAttribute(const char *function, int attribute) {
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: attribute %d is not simulated", function,
                attribute);
}
} // namespace

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return call([&](Library &library) {
    if (mpc_sim_check_unsafe("cublasLtDestroy") == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
      return CUBLAS_STATUS_INTERNAL_ERROR;
    if (library.handles.remove(handle))
      return CUBLAS_STATUS_SUCCESS;
    return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "cublasLtDestroy: there is no such handle");
  });
}

//===- Layouts ----------------------------------------------------------------------------===//

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns,
                                          int64_t leadingDimension) {
  return call([&](Library &library) {
    if (!layout)
      return CUBLAS_STATUS_INVALID_VALUE;
    *layout = library.layouts.add(
        {type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leadingDimension});
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return call([&](Library &library) {
    return destroy(library.layouts, layout, "cublasLtMatrixLayoutDestroy");
  });
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
  return call([&](Library &library) {
    constexpr const char *kName = "cublasLtMatrixLayoutSetAttribute";
    Layout *layout = library.layouts.find(handle);
    if (!layout || !value)
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: there is no such layout, or no value", kName);
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(layout->batch, value, bytes, kName);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(layout->stride, value, bytes, kName);
    }
    return refuseAttribute(kName, attribute);
  });
}

//===- Products ---------------------------------------------------------------------------===//

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description,
                                        cublasComputeType_t computeType, cudaDataType_t scaleType) {
  return call([&](Library &library) {
    if (!description)
      return CUBLAS_STATUS_INVALID_VALUE;
    Description made;
    made.computeType = computeType;
    made.scaleType = scaleType;
    *description = library.descriptions.add(made);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return call([&](Library &library) {
    return destroy(library.descriptions, description, "cublasLtMatmulDescDestroy");
  });
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
  return call([&](Library &library) {
    constexpr const char *kName = "cublasLtMatmulDescSetAttribute";
    Description *description = library.descriptions.find(handle);
    if (!description || !value)
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: there is no such description, or no value",
                    kName);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(description->transposeA, value, bytes, kName);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(description->transposeB, value, bytes, kName);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(description->epilogue, value, bytes, kName);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(description->bias, value, bytes, kName);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return take(description->biasStride, value, bytes, kName);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(description->biasType, value, bytes, kName);
    }
    return refuseAttribute(kName, attribute);
  });
}

//===- Preferences ------------------------------------------------------------------------===//

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  return call([&](Library &library) {
    if (!preference)
      return CUBLAS_STATUS_INVALID_VALUE;
    *preference = library.preferences.add({});
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return call([&](Library &library) {
    return destroy(library.preferences, preference, "cublasLtMatmulPreferenceDestroy");
  });
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
  return call([&](Library &library) {
    constexpr const char *kName = "cublasLtMatmulPreferenceSetAttribute";
    Preference *preference = library.preferences.find(handle);
    if (!preference || !value)
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: there is no such preference, or no value",
                    kName);
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference->workspaceBytes, value, bytes, kName);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference->reductionSchemes, value, bytes, kName);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                  value, bytes, kName);
    }
    return refuseAttribute(kName, attribute);
  });
}
