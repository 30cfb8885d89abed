//===- Blas.h - matrix products by NVIDIA's cuBLASLt -------------------------------------===//
//
// Every matrix product of a program has a generated kernel. Where cuBLASLt is there, it takes those
// that it can compute as exactly: operands as they are, sums in f32, one rounding at the end, the
// same bits in every run. Algorithms are chosen and memory is sized before an entry point is
// recorded, so that recording it as a graph only calls the product.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_BLAS_H
#define MPC_RUNTIME_CUDA_BLAS_H

#include "runtime/core/Program.h"
#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Gpu.h"
#include <map>
#include <memory>
#include <set>

#define MPC_CUBLASLT_FUNCTIONS(X)                                                                  \
  X(cublasLtGetVersion)                                                                            \
  X(cublasLtGetStatusName)                                                                         \
  X(cublasLtCreate)                                                                                \
  X(cublasLtDestroy)                                                                               \
  X(cublasLtMatrixLayoutCreate)                                                                    \
  X(cublasLtMatrixLayoutDestroy)                                                                   \
  X(cublasLtMatrixLayoutSetAttribute)                                                              \
  X(cublasLtMatmulDescCreate)                                                                      \
  X(cublasLtMatmulDescDestroy)                                                                     \
  X(cublasLtMatmulDescSetAttribute)                                                                \
  X(cublasLtMatmulPreferenceCreate)                                                                \
  X(cublasLtMatmulPreferenceDestroy)                                                               \
  X(cublasLtMatmulPreferenceSetAttribute)                                                          \
  X(cublasLtMatmulAlgoGetHeuristic)                                                                \
  X(cublasLtMatmulAlgoCapGetAttribute)                                                             \
  X(cublasLtMatmul)

namespace mpc::cuda {

/// The library's functions, by their names.
struct BlasFunctions {
#define MPC_CUBLASLT_DECLARE(name) decltype(&::name) name = nullptr;
  MPC_CUBLASLT_FUNCTIONS(MPC_CUBLASLT_DECLARE)
#undef MPC_CUBLASLT_DECLARE
  /// Empty, or the function that `library` (of dlopen) lacks.
  std::string resolve(void *library);
};

class Blas {
public:
  /// cuBLASLt, for the program's matrix products; null where generated kernels execute all of them
  /// (openFor() in Libraries.h).
  static std::unique_ptr<Blas> open(const Gpu &gpu, const Program &program,
                                    const std::string &folder);

  std::string name() const; ///< "cuBLASLt 12.9"
  bool executes(const Command &command) const { return plans.count(&command) != 0; }

  /// Chooses algorithms for those of the commands that are products, before they run first.
  void prepare(const std::vector<const Command *> &commands);
  /// What the products so far prepared need beside their operands; to be given before they run.
  /// Work of one stream may share it.
  uint64_t workspaceBytes() const { return neededBytes; }
  void use(CUdeviceptr memory) { workspace = memory; }

  /// Gives a matmul to the stream: `addresses` of lhs, rhs, bias where there is one, result. False
  /// where it is left to the generated kernel. Throws Error where the library fails.
  bool run(CUstream stream, const Command &command, const std::vector<CUdeviceptr> &addresses);

private:
  /// A product as the library wants it: column-major, so that its A is our rhs, its B our lhs, and
  /// its D the result, all transposed.
  struct Plan {
    Owned<cublasLtMatmulDesc_t> description;
    Owned<cublasLtMatrixLayout_t> a, b, d;
    cublasLtMatmulAlgo_t algorithm{};
  };

  Blas(const BlasFunctions &library, cublasLtHandle_t handle);
  /// Nothing where the library has no algorithm for it.
  void plan(const Command &command);
  bool describe(const Command &command, Plan &plan) const;
  bool chooseAlgorithm(const Command &command, Plan &plan);
  Owned<cublasLtMatrixLayout_t> layout(ElementType type, int64_t rows, int64_t columns,
                                       int64_t batch) const;

  BlasFunctions library;
  Owned<cublasLtHandle_t> handle;
  std::set<const Command *> asked;
  std::map<const Command *, Plan> plans;
  uint64_t neededBytes = 0;
  CUdeviceptr workspace = 0;
};

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_BLAS_H
