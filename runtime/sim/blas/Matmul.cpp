//===- Matmul.cpp - the simulated cuBLASLt: algorithms and products -----------------------===//
//
// Stricter than the real library: the first algorithms that it offers are fast and inexact ones,
// unless the caller has excluded them; an algorithm serves only the product that it was made for;
// the workspace is destroyed, also where an algorithm could do with less.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/blas/Product.h"
#include "runtime/sim/driver/Library.h"
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

using namespace mpc::sim;
using namespace mpc::sim::blas;

namespace {
//===- What is to be multiplied -----------------------------------------------------------===//

const char *typeName(cudaDataType_t type) {
  switch (type) {
  case CUDA_R_32F:
    return "32F";
  case CUDA_R_16F:
    return "16F";
  case CUDA_R_16BF:
    return "16BF";
  case CUDA_R_64F:
    return "64F";
  }
  return "of another type";
}

/// The bytes between the first element of a matrix and the end of its last one.
int64_t span(const Layout &layout) {
  return (layout.leading * (layout.columns - 1) + layout.rows) * elementBytes(layout.type);
}

cublasStatus_t checkLayout(const char *function, const char *name, const Layout &layout) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (layout.rows < 1 || layout.rows > kMost || layout.columns < 1 || layout.columns > kMost ||
      layout.leading < layout.rows)
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  "%s: %s has %" PRId64 " rows, %" PRId64 " columns and the leading dimension "
                  "%" PRId64,
                  function, name, layout.rows, layout.columns, layout.leading);
  if (layout.batch < 1 || layout.stride < 0)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: %s is %d matrices %" PRId64 " elements apart",
                  function, name, layout.batch, layout.stride);
  return CUBLAS_STATUS_SUCCESS;
}

/// The types that go together in 32F: the manual's table at cublasLtMatmul.
cublasStatus_t checkTypes(const char *function, const Handle &handle,
                          const Description &description, const Problem &p) {
  if (description.computeType != CUBLAS_COMPUTE_32F || description.scaleType != CUDA_R_32F)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%s: only sums in 32F are simulated", function);
  bool isKnown = elementBytes(p.a.type) > 0 && p.a.type == p.b.type && p.c.type == p.d.type &&
                 (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
  if (!isKnown || (p.hasBias() && p.biasType != p.d.type))
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                  "%s: A %s, B %s, C %s, D %s and bias %s do not go together", function,
                  typeName(p.a.type), typeName(p.b.type), typeName(p.c.type), typeName(p.d.type),
                  typeName(p.biasType));
  if (p.a.type == CUDA_R_16BF && handle.capability < 80)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

struct Arguments {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t a, b, c, d;
};

/// Looks everything up and checks that it makes a product.
cublasStatus_t findProblem(const char *function, const Arguments &arguments, Problem &p) {
  Handle *handle = library().handles.find(arguments.handle);
  if (!handle)
    return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "%s: there is no such handle", function);
  Description *description = library().descriptions.find(arguments.description);
  const Layout *layouts[] = {
      library().layouts.find(arguments.a), library().layouts.find(arguments.b),
      library().layouts.find(arguments.c), library().layouts.find(arguments.d)};
  if (!description || std::count(std::begin(layouts), std::end(layouts), nullptr) > 0)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: there is no such description or layout",
                  function);
  constexpr const char *kNames[] = {"A", "B", "C", "D"};
  for (int i = 0; i < 4; ++i) {
    if (cublasStatus_t status = checkLayout(function, kNames[i], *layouts[i]))
      return status;
    if (layouts[i]->batch != layouts[3]->batch)
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: %s is %d matrices, D %d", function, kNames[i],
                    layouts[i]->batch, layouts[3]->batch);
  }
  p.a = *layouts[0];
  p.b = *layouts[1];
  p.c = *layouts[2];
  p.d = *layouts[3];
  for (int32_t operation : {description->transposeA, description->transposeB})
    if (operation != CUBLAS_OP_N && operation != CUBLAS_OP_T)
      return CUBLAS_STATUS_INVALID_VALUE;
  p.isTransposedA = description->transposeA == CUBLAS_OP_T;
  p.isTransposedB = description->transposeB == CUBLAS_OP_T;
  p.m = p.d.rows;
  p.n = p.d.columns;
  p.k = p.isTransposedA ? p.a.rows : p.a.columns;
  p.batch = p.d.batch;
  if ((p.isTransposedA ? p.a.columns : p.a.rows) != p.m || p.c.rows != p.m || p.c.columns != p.n ||
      (p.isTransposedB ? p.b.columns : p.b.rows) != p.k ||
      (p.isTransposedB ? p.b.rows : p.b.columns) != p.n)
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  "%s: the extents of A, B, C and D (%" PRId64 " x %" PRId64 ") do not fit",
                  function, p.m, p.n);
  if (p.batch > 1 && p.d.stride * elementBytes(p.d.type) < span(p.d))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: the matrices of D overlap", function);
  p.epilogue = description->epilogue;
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      (p.epilogue & ~unsigned(CUBLASLT_EPILOGUE_RELU_BIAS)) != 0)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%s: epilogue %u is not simulated", function,
                  p.epilogue);
  p.biasType = description->biasType == -1 ? p.d.type : cudaDataType_t(description->biasType);
  p.biasStride = description->biasStride;
  return checkTypes(function, *handle, *description, p);
}

//===- Algorithms -------------------------------------------------------------------------===//

/// What cublasLtMatmulAlgo_t holds.
struct Packed {
  uint64_t magic;
  uint64_t product; ///< fingerprint
  Algorithm algorithm;
};
constexpr uint64_t kMagic = 0x6D70632D73696D31;
static_assert(sizeof(Packed) <= sizeof(cublasLtMatmulAlgo_t) &&
              std::is_trivially_copyable_v<Packed>);

/// Equal for products that an algorithm can be used for alike.
uint64_t fingerprint(const Problem &p) {
  uint64_t hash = 0xCBF29CE484222325; // FNV-1a
  auto add = [&](int64_t value) { hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001B3; };
  for (const Layout *layout : {&p.a, &p.b, &p.c, &p.d})
    for (int64_t value : {int64_t(layout->type), layout->rows, layout->columns, layout->leading,
                          int64_t(layout->batch), layout->stride})
      add(value);
  for (int64_t value : {int64_t(p.isTransposedA), int64_t(p.isTransposedB), int64_t(p.epilogue),
                        int64_t(p.biasType), p.biasStride})
    add(value);
  return hash;
}

cublasLtMatmulAlgo_t pack(const Problem &p, const Algorithm &algorithm) {
  Packed packed{kMagic, fingerprint(p), algorithm};
  cublasLtMatmulAlgo_t to{};
  std::memcpy(&to, &packed, sizeof packed);
  return to;
}

bool unpack(const cublasLtMatmulAlgo_t *from, Packed &packed) {
  if (!from)
    return false;
  std::memcpy(static_cast<void *>(&packed), from, sizeof packed);
  return packed.magic == kMagic;
}

/// All algorithms for a product, the careless ones first.
std::vector<Algorithm> algorithms(const Problem &p, const Handle &handle,
                                  const Preference &preference) {
  Algorithm plain;
  // A wide access needs 16 bytes; others take what there is.
  for (int i = 0; i < 4; ++i)
    plain.alignments[i] = std::min<uint32_t>(preference.alignments[i], 16);
  std::vector<Algorithm> all;
  if (p.a.type == CUDA_R_16F && p.k >= 32) {
    all.push_back(plain);
    all.back().isHalfSum = true;
    all.back().splits = static_cast<int32_t>(p.k / 16);
  }
  if (p.a.type == CUDA_R_32F && handle.capability >= 80) {
    all.push_back(plain);
    all.back().isTensorFloat = true;
  }
  auto splits = static_cast<int32_t>(std::min<int64_t>(8, p.k / 64));
  if (splits > 1 && p.k >= 2 * std::max(p.m, p.n)) {
    uint64_t results = uint64_t(p.m) * p.n * p.batch;
    const std::pair<uint32_t, uint64_t> schemes[] = {
        {CUBLASLT_REDUCTION_SCHEME_INPLACE, 64},
        {CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, results * splits * elementBytes(p.d.type)},
        {CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, results * splits * sizeof(float)}};
    for (auto [scheme, bytes] : schemes)
      if ((preference.reductionSchemes & scheme) && bytes <= preference.workspaceBytes) {
        all.push_back(plain);
        all.back().splits = splits;
        all.back().scheme = scheme;
        all.back().workspaceBytes = bytes;
      }
  }
  all.push_back(plain);
  // The last one: a caller that measures may prefer it. Nothing has to be stored between its parts.
  if (p.k > 1) {
    all.push_back(plain);
    all.back().splits = 2;
  }
  return all;
}

/// For MPC_SIM_TIMES.
std::string nameOf(const Algorithm &algorithm) {
  if (algorithm.isHalfSum)
    return "cublasLt-half-sums";
  if (algorithm.isTensorFloat)
    return "cublasLt-tf32";
  switch (algorithm.scheme) {
  case CUBLASLT_REDUCTION_SCHEME_INPLACE:
    return "cublasLt-split-in-place";
  case CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE:
    return "cublasLt-split-in-result";
  case CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE:
    return "cublasLt-split";
  default:
    return algorithm.splits > 1 ? "cublasLt-halves" : "cublasLt-plain";
  }
}
} // namespace

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                               cublasLtMatrixLayout_t aLayout, cublasLtMatrixLayout_t bLayout,
                               cublasLtMatrixLayout_t cLayout, cublasLtMatrixLayout_t dLayout,
                               cublasLtMatmulPreference_t preferenceHandle, int requested,
                               cublasLtMatmulHeuristicResult_t *results, int *returned) {
  return call([&](Library &library) {
    constexpr const char *kName = "cublasLtMatmulAlgoGetHeuristic";
    Preference *preference = library.preferences.find(preferenceHandle);
    if (!preference || requested < 1 || !results || !returned)
      return refuse(CUBLAS_STATUS_INVALID_VALUE,
                    "%s: there is no such preference, or nothing is asked for", kName);
    *returned = 0;
    Problem p;
    if (cublasStatus_t status =
            findProblem(kName, {handle, description, aLayout, bLayout, cLayout, dLayout}, p))
      return status;
    const Layout *layouts[] = {&p.a, &p.b, &p.c, &p.d};
    for (int i = 0; i < 4; ++i)
      if (preference->alignments[i] < elementBytes(layouts[i]->type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (const Algorithm &each : algorithms(p, *library.handles.find(handle), *preference)) {
      if (*returned == requested)
        break;
      results[(*returned)++] = {
          pack(p, each), each.workspaceBytes, CUBLAS_STATUS_SUCCESS, 1.0F, {}};
    }
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t attribute,
                                                 void *value, size_t bytes, size_t *written) {
  Packed packed;
  uint64_t flags = 0;
  if (!unpack(algorithm, packed) || attribute != CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS || !value ||
      bytes != sizeof flags)
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  "cublasLtMatmulAlgoCapGetAttribute: no algorithm, or attribute %d of %zu bytes, "
                  "which is not simulated",
                  attribute, bytes);
  flags = packed.algorithm.isHalfSum ? CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F
                                     : CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
  flags |= packed.algorithm.isTensorFloat
               ? CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32
               : CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA;
  std::memcpy(value, &flags, bytes);
  if (written)
    *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

//===- Products ---------------------------------------------------------------------------===//

namespace {
bool isAligned(const void *address, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

void touch(std::vector<Touched> &touched, const void *address, int64_t bytes, bool isWritten) {
  auto begin = reinterpret_cast<uintptr_t>(address);
  touched.push_back({begin, begin + static_cast<uintptr_t>(bytes), isWritten});
}

/// All matrices of an operand: in one piece where nothing lies between them.
void touch(std::vector<Touched> &touched, const Layout &layout, const void *base, bool isWritten) {
  int64_t element = elementBytes(layout.type);
  int64_t batches = layout.stride == 0 ? 1 : layout.batch;
  if (layout.leading == layout.rows &&
      (batches == 1 || layout.stride == layout.rows * layout.columns))
    return touch(touched, base, batches * layout.rows * layout.columns * element, isWritten);
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t column = 0; column < layout.columns; ++column)
      touch(touched,
            static_cast<const std::byte *>(base) +
                (batch * layout.stride + column * layout.leading) * element,
            layout.rows * element, isWritten);
}

cublasStatus_t checkAddresses(const char *function, const Problem &p, const Algorithm &algorithm,
                              const Operands &operands, const void *workspace,
                              size_t workspaceBytes) {
  const void *addresses[] = {operands.a, operands.b, operands.beta == 0 ? nullptr : operands.c,
                             operands.d};
  for (int i = 0; i < 4; ++i) {
    bool isNeeded = i != 2 || operands.beta != 0;
    if (isNeeded && (!addresses[i] || !isAligned(addresses[i], algorithm.alignments[i])))
      return refuse(CUBLAS_STATUS_INVALID_VALUE,
                    "%s: %c at %p is not aligned to the %u bytes that the algorithm needs",
                    function, "ABCD"[i], addresses[i], algorithm.alignments[i]);
  }
  auto overlapsD = [&](const Layout &layout, const void *base) {
    auto end = [](const Layout &each, const void *at) {
      return static_cast<const std::byte *>(at) +
             (each.batch - 1) * each.stride * elementBytes(each.type) + span(each);
    };
    return base < end(p.d, operands.d) && operands.d < end(layout, base);
  };
  if (overlapsD(p.a, operands.a) || overlapsD(p.b, operands.b))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: D at %p overlaps A at %p or B at %p", function,
                  operands.d, operands.a, operands.b);
  if (p.hasBias() && (!operands.bias || !isAligned(operands.bias, elementBytes(p.biasType))))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: the bias at %p is not there or not aligned",
                  function, operands.bias);
  if (algorithm.workspaceBytes > 0 &&
      (algorithm.workspaceBytes > workspaceBytes || !workspace || !isAligned(workspace, 256)))
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  "%s: the algorithm needs a workspace of %" PRIu64
                  " bytes, aligned to 256; it is given %zu at %p",
                  function, algorithm.workspaceBytes, workspaceBytes, workspace);
  return CUBLAS_STATUS_SUCCESS;
}
} // namespace

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t aLayout,
                              const void *b, cublasLtMatrixLayout_t bLayout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t cLayout, void *d,
                              cublasLtMatrixLayout_t dLayout,
                              const cublasLtMatmulAlgo_t *packedFrom, void *workspace,
                              size_t workspaceBytes, CUstream stream) {
  return call([&](Library &library) {
    constexpr const char *kName = "cublasLtMatmul";
    Problem p;
    if (cublasStatus_t status =
            findProblem(kName, {handle, description, aLayout, bLayout, cLayout, dLayout}, p))
      return status;
    Packed packed;
    if (!unpack(packedFrom, packed) || packed.product != fingerprint(p))
      return refuse(CUBLAS_STATUS_INVALID_VALUE,
                    "%s: the algorithm is none, or one for another product", kName);
    if (!alpha || !beta)
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "%s: alpha or beta is not there", kName);
    Operands operands{a, b, c, library.descriptions.find(description)->bias, d};
    std::memcpy(&operands.alpha, alpha, sizeof operands.alpha);
    std::memcpy(&operands.beta, beta, sizeof operands.beta);
    const Algorithm &algorithm = packed.algorithm;
    if (cublasStatus_t status =
            checkAddresses(kName, p, algorithm, operands, workspace, workspaceBytes))
      return status;
    if (mpc_sim_strikes(Fault::blasUnsupported))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (mpc_sim_strikes(Fault::blas))
      return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "%s: fails as MPC_SIM_FAULT asks for", kName);
    LibraryWork work;
    work.name = "a product of " + std::to_string(p.m) + " x " + std::to_string(p.n) + " x " +
                std::to_string(p.k) + " by cuBLASLt";
    work.algorithm = nameOf(algorithm);
    touch(work.touched, p.a, a, /*isWritten=*/false);
    touch(work.touched, p.b, b, /*isWritten=*/false);
    if (operands.beta != 0)
      touch(work.touched, p.c, c, /*isWritten=*/false);
    if (p.hasBias())
      touch(work.touched, operands.bias,
            ((p.batch - 1) * p.biasStride + p.m) * elementBytes(p.biasType), /*isWritten=*/false);
    touch(work.touched, p.d, d, /*isWritten=*/true);
    if (algorithm.workspaceBytes > 0)
      touch(work.touched, workspace, static_cast<int64_t>(algorithm.workspaceBytes),
            /*isWritten=*/true);
    work.run = [p, algorithm, operands, workspace] {
      if (algorithm.workspaceBytes > 0)
        std::memset(workspace, 0xFF, algorithm.workspaceBytes);
      multiply(p, algorithm, operands);
    };
    CUresult queued = mpc_sim_enqueue(library.handles.find(handle)->context, stream, work);
    return queued == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
  });
}
