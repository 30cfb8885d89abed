//===- Blas.cpp - matrix products by NVIDIA's cuBLASLt -----------------------------------===//

#include "runtime/cuda/Blas.h"
#include "runtime/core/Error.h"
#include "runtime/core/ProductShape.h"
#include "runtime/cuda/Libraries.h"
#include <algorithm>
#include <dlfcn.h>
#include <limits>
#include <optional>
#include <span>

using namespace mpc;
using namespace mpc::cuda;

// Beyond this a split product gains nothing.
static constexpr uint64_t kMostWorkspace = 32 << 20;
// That the library is asked for.
static constexpr int kAlgorithms = 8;
// cuBLAS, as cublasLtGetVersion counts.
static constexpr size_t kLeastVersion = 120000, kEndVersion = 140000;

std::string BlasFunctions::resolve(void *library) {
#define MPC_CUBLASLT_RESOLVE(name)                                                                 \
  this->name = reinterpret_cast<decltype(this->name)>(dlsym(library, #name));                      \
  if (!this->name)                                                                                 \
    return #name;
  MPC_CUBLASLT_FUNCTIONS(MPC_CUBLASLT_RESOLVE)
#undef MPC_CUBLASLT_RESOLVE
  return "";
}

//===----------------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------------===//

static bool isProduct(const Command &command) { return command.kind == CommandKind::matmul; }

std::unique_ptr<Blas> Blas::open(const Gpu &gpu, CUstream stream, const Program &program,
                                 const std::string &folder) {
  static const LibraryUse kUse{"MPC_CUDA_BLAS",      {"libcublasLt.so.13", "libcublasLt.so.12"},
                               "cuBLASLt",           "matrix products",
                               "nvidia-cublas-cu12", isProduct};
  BlasFunctions functions;
  cublasLtHandle_t handle = nullptr;
  auto start = [&](void *opened) -> std::string {
    if (std::string missing = functions.resolve(opened); !missing.empty())
      return "it has no function " + missing;
    size_t version = functions.cublasLtGetVersion();
    if (version < kLeastVersion || version >= kEndVersion)
      return "it is of version " + libraryVersionText(version) + ", and 12 or 13 is needed";
    if (static_cast<int>(version / 10000) > gpu.driverVersion() / 1000)
      return "it is of version " + libraryVersionText(version) + ", and the driver is of CUDA " +
             versionText(gpu.driverVersion());
    cublasStatus_t status = functions.cublasLtCreate(&handle);
    return status == CUBLAS_STATUS_SUCCESS
               ? ""
               : std::string("it does not start: ") + functions.cublasLtGetStatusName(status);
  };
  if (!openFor(program, kUse, folder, start))
    return nullptr;
  return std::unique_ptr<Blas>(new Blas(functions, handle, stream));
}

Blas::Blas(const BlasFunctions &library, cublasLtHandle_t handle, CUstream stream)
    : library(library),
      handle(handle, [this](cublasLtHandle_t handle) { this->library.cublasLtDestroy(handle); }),
      stream(stream) {}

//===----------------------------------------------------------------------------===//
// Preparing
//===----------------------------------------------------------------------------===//

namespace {
/// As the library counts.
bool areUsual(const ProductShape &shape) {
  for (int64_t extent : {shape.batch, shape.m, shape.n, shape.k})
    if (extent < 1 || extent > std::numeric_limits<int32_t>::max())
      return false;
  return true;
}

/// None for a type that no product here is computed in.
std::optional<cudaDataType_t> dataType(ElementType type) {
  switch (type) {
  case ElementType::f32:
    return CUDA_R_32F;
  case ElementType::f16:
    return CUDA_R_16F;
  case ElementType::bf16:
    return CUDA_R_16BF;
  default:
    return std::nullopt;
  }
}

/// An algorithm's bytes: NVIDIA's manual lets them be stored and used again with the same version.
std::string textOf(const cublasLtMatmulAlgo_t &algorithm) {
  std::string text;
  for (std::byte byte : std::as_bytes(std::span(algorithm.data)))
    for (int digit : {static_cast<int>(byte) >> 4, static_cast<int>(byte) & 15})
      text += "0123456789abcdef"[digit];
  return text;
}

/// In bytes: regions begin at multiples of 256.
uint32_t alignment(const Buffer &buffer) {
  uint64_t lowest = buffer.offset & (~buffer.offset + 1);
  return lowest == 0 ? 256 : static_cast<uint32_t>(std::min<uint64_t>(lowest, 256));
}
} // namespace

Owned<cublasLtMatrixLayout_t> Blas::layout(ElementType type, int64_t rows, int64_t columns,
                                           int64_t batch) const {
  cublasLtMatrixLayout_t made = nullptr;
  if (library.cublasLtMatrixLayoutCreate(&made, *dataType(type), rows, columns, rows) !=
      CUBLAS_STATUS_SUCCESS)
    return {};
  Owned<cublasLtMatrixLayout_t> layout(
      made, [this](cublasLtMatrixLayout_t old) { library.cublasLtMatrixLayoutDestroy(old); });
  auto count = static_cast<int32_t>(batch);
  int64_t stride = rows * columns;
  if (library.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                               sizeof count) != CUBLAS_STATUS_SUCCESS ||
      library.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &stride, sizeof stride) != CUBLAS_STATUS_SUCCESS)
    return {};
  return layout;
}

/// A row-major matrix is the column-major one of its transpose:
///   resultᵀ[n, m] = rhsᵀ[n, k] · lhsᵀ[k, m]
/// so that an operand that is stored as it is used is not transposed for the library either.
bool Blas::describe(const Command &command, Product &product) const {
  const ProductShape e(command);
  cublasLtMatmulDesc_t made = nullptr;
  if (library.cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F) !=
      CUBLAS_STATUS_SUCCESS)
    return false;
  product.description = {
      made, [this](cublasLtMatmulDesc_t old) { library.cublasLtMatmulDescDestroy(old); }};
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    return library.cublasLtMatmulDescSetAttribute(made, attribute, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
  };
  auto transposed = [](bool isTransposed) {
    return static_cast<int32_t>(isTransposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  uint32_t epilogue = command.bias.present ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (command.relu)
    epilogue = command.bias.present ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  bool isSet = set(CUBLASLT_MATMUL_DESC_TRANSA, transposed(command.transpose_rhs)) &&
               set(CUBLASLT_MATMUL_DESC_TRANSB, transposed(command.transpose_lhs)) &&
               set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  // Algorithms are chosen by this address's alignment, too: any other one with the same will do.
  if (isSet && command.bias.present)
    isSet = set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, uint64_t(alignment(command.bias.buffer))) &&
            set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                static_cast<int32_t>(*dataType(command.bias.type)));
  auto stored = [&](const Operand &operand, int64_t rows, int64_t columns, bool isTransposed) {
    return layout(operand.type, isTransposed ? columns : rows, isTransposed ? rows : columns,
                  e.batch);
  };
  product.a = stored(command.rhs, e.n, e.k, command.transpose_rhs);
  product.b = stored(command.lhs, e.k, e.m, command.transpose_lhs);
  product.d = stored(command.result, e.n, e.m, /*isTransposed=*/false);
  return isSet && product.a && product.b && product.d;
}

std::vector<std::shared_ptr<CommandLibrary::Way>> Blas::algorithms(const Command &command) const {
  auto product = std::make_shared<Product>();
  cublasLtMatmulPreference_t made = nullptr;
  if (!describe(command, *product) ||
      library.cublasLtMatmulPreferenceCreate(&made) != CUBLAS_STATUS_SUCCESS)
    return {};
  Owned<cublasLtMatmulPreference_t> preference(made, [this](cublasLtMatmulPreference_t old) {
    library.cublasLtMatmulPreferenceDestroy(old);
  });
  auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return library.cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
  };
  // Parts of a sum meet in float and in one order, or there are no parts.
  bool isSet = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace) &&
               set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) &&
               set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(command.rhs.buffer)) &&
               set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(command.lhs.buffer)) &&
               set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(command.result.buffer)) &&
               set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(command.result.buffer));
  cublasLtMatmulHeuristicResult_t found[kAlgorithms]{};
  int count = 0;
  if (!isSet || library.cublasLtMatmulAlgoGetHeuristic(
                    handle, product->description, product->a, product->b, product->d, product->d,
                    preference, kAlgorithms, found, &count) != CUBLAS_STATUS_SUCCESS)
    return {};
  uint64_t inexact = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F;
  if (command.lhs.type == ElementType::f32)
    inexact |= CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF |
               CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32;
  std::vector<std::shared_ptr<Way>> exact;
  for (const cublasLtMatmulHeuristicResult_t &each : std::span(found, count)) {
    // None where the library cannot say: the compute type promises the same.
    uint64_t flags = 0;
    size_t written = 0;
    library.cublasLtMatmulAlgoCapGetAttribute(&each.algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS,
                                              &flags, sizeof flags, &written);
    if (each.state != CUBLAS_STATUS_SUCCESS || each.workspaceSize > kMostWorkspace ||
        (flags & inexact))
      continue;
    auto way = std::make_shared<Algorithm>();
    way->text = textOf(each.algo);
    way->workspaceBytes = each.workspaceSize;
    way->product = product;
    way->algorithm = each.algo;
    exact.push_back(way);
  }
  return exact;
}

std::string Blas::keyOf(const Command &command) const {
  if (!isProduct(command))
    return "";
  for (const Operand *operand : {&command.lhs, &command.rhs, &command.result})
    if (!dataType(operand->type))
      return "";
  // The library's bias has the result's type.
  const ProductShape e(command);
  if (!areUsual(e) || command.lhs.type != command.rhs.type ||
      (command.bias.present && command.bias.type != command.result.type))
    return "";
  // "[2] 128 x 784 f16 · 784 x 10ᵀ f16 = f32 + bias, relu, aligned to 256, 64, 256 and 128 bytes"
  auto number = [](int64_t value) { return std::to_string(value); };
  auto side = [&](const Operand &operand, int64_t rows, int64_t columns, bool isTransposed) {
    return number(rows) + " x " + number(columns) + (isTransposed ? "ᵀ " : " ") +
           elementTypeName(operand.type);
  };
  std::string key =
      "[" + number(e.batch) + "] " + side(command.lhs, e.m, e.k, command.transpose_lhs) + " · " +
      side(command.rhs, e.k, e.n, command.transpose_rhs) + " = " +
      elementTypeName(command.result.type) + (command.bias.present ? " + bias" : "") +
      (command.relu ? ", relu" : "") + ", aligned to " + number(alignment(command.lhs.buffer)) +
      ", " + number(alignment(command.rhs.buffer)) + ", ";
  if (command.bias.present)
    key += number(alignment(command.bias.buffer)) + ", ";
  return key + number(alignment(command.result.buffer)) + " bytes";
}

void Blas::find(const std::vector<Problem *> &problems, bool) {
  for (Problem *problem : problems) {
    problem->found = algorithms(*problem->commands.front());
    // To the front, the others' order stays.
    for (size_t i = 1; i < problem->found.size(); ++i)
      if (problem->found[i]->text == problem->wanted)
        std::rotate(problem->found.begin(), problem->found.begin() + i,
                    problem->found.begin() + i + 1);
  }
}

//===----------------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------------===//

bool Blas::execute(const Way &way, const Command &command,
                   const std::vector<CUdeviceptr> &addresses) {
  const auto &chosen = static_cast<const Algorithm &>(way);
  const Product &product = *chosen.product;
  auto pointer = [&](size_t index) { return reinterpret_cast<void *>(addresses[index]); };
  size_t result = 2;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (command.bias.present) {
    CUdeviceptr bias = addresses[result++];
    status = library.cublasLtMatmulDescSetAttribute(
        product.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  }
  const float one = 1, zero = 0;
  if (status == CUBLAS_STATUS_SUCCESS)
    status = library.cublasLtMatmul(
        handle, product.description, &one, pointer(1), product.a, pointer(0), product.b, &zero,
        pointer(result), product.d, pointer(result), product.d, &chosen.algorithm,
        reinterpret_cast<void *>(workspace), way.workspaceBytes, stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH)
    return false;
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error("the matrix product of '" + command.node + "' by " + name() +
                " failed: " + library.cublasLtGetStatusName(status) +
                "; MPC_CUDA_BLAS=0 in the environment runs it as a generated kernel");
  return true;
}
