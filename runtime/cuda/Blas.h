//===- Blas.h - matrix products by NVIDIA's cuBLASLt -------------------------------------===//
//
// The ways to execute a product are the algorithms that the library's heuristic proposes. To choose
// one before an entry point is recorded makes recording it as a graph only call the product.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_BLAS_H
#define MPC_RUNTIME_CUDA_BLAS_H

#include "runtime/cuda/CommandLibrary.h"
#include "runtime/cuda/CublasLt.h"
#include "runtime/cuda/Gpu.h"

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

class Blas : public CommandLibrary {
public:
  /// cuBLASLt, for the program's matrix products, which it gives to `stream`; null where generated
  /// kernels execute all of them (openFor() in Libraries.h).
  static std::unique_ptr<Blas> open(const Gpu &gpu, CUstream stream, const Program &program,
                                    const std::string &folder);
  ~Blas() override { forget(); }

  const char *title() const override { return "cuBLASLt"; }
  int64_t version() const override { return static_cast<int64_t>(library.cublasLtGetVersion()); }

private:
  /// A product as the library wants it: column-major, so that its A is our rhs, its B our lhs, and
  /// its D the result, all transposed.
  struct Product {
    Owned<cublasLtMatmulDesc_t> description;
    Owned<cublasLtMatrixLayout_t> a, b, d;
  };
  struct Algorithm : Way {
    std::shared_ptr<const Product> product; ///< of all its algorithms
    cublasLtMatmulAlgo_t algorithm{};
  };

  Blas(const BlasFunctions &library, cublasLtHandle_t handle, CUstream stream);
  std::string keyOf(const Command &command) const override;
  void find(const std::vector<Problem *> &problems, bool all) override;
  bool execute(const Way &way, const Command &command,
               const std::vector<CUdeviceptr> &addresses) override;
  bool describe(const Command &command, Product &product) const;
  /// Those that are exact, in the heuristic's order.
  std::vector<std::shared_ptr<Way>> algorithms(const Command &command) const;
  Owned<cublasLtMatrixLayout_t> layout(ElementType type, int64_t rows, int64_t columns,
                                       int64_t batch) const;

  BlasFunctions library;
  Owned<cublasLtHandle_t> handle;
  CUstream stream;
};

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_BLAS_H
