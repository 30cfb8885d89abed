//===- SimDriverBlasTest.cpp - the simulated cuBLASLt ---------------------------------------===//

#include "SimDriverSupport.h"
#include "runtime/cuda/Blas.h"
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

using namespace mpc::test;

namespace {
constexpr cublasStatus_t kOk = CUBLAS_STATUS_SUCCESS;
constexpr cublasStatus_t kInvalid = CUBLAS_STATUS_INVALID_VALUE;

/// A library's functions; none where it cannot be opened.
struct Functions {
#define MPC_TEST_DECLARE(name) decltype(&::name) name = nullptr;
  MPC_CUBLASLT_FUNCTIONS(MPC_TEST_DECLARE)
#undef MPC_TEST_DECLARE

  explicit Functions(const char *file) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
      return;
#define MPC_TEST_RESOLVE(name)                                                                     \
  this->name = reinterpret_cast<decltype(this->name)>(dlsym(library, #name));                      \
  EXPECT_NE(this->name, nullptr) << #name;
    MPC_CUBLASLT_FUNCTIONS(MPC_TEST_RESOLVE)
#undef MPC_TEST_RESOLVE
  }
};

template <typename Attribute, typename Object, typename Value>
cublasStatus_t set(cublasStatus_t (*function)(Object, Attribute, const void *, size_t),
                   Object object, Attribute attribute, Value value) {
  return function(object, attribute, static_cast<const void *>(&value), sizeof value);
}

/// A product as a test wants it: column-major, without gaps unless `gap` says so.
struct Wanted {
  int64_t m = 8, n = 4, k = 16, batch = 1;
  cudaDataType_t type = CUDA_R_32F, resultType = CUDA_R_32F;
  bool isTransposedA = false, isTransposedB = false;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int64_t gap = 0; ///< between the columns of the result
  uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  uint64_t mostWorkspace = 0;
  uint32_t alignment = 256;
};

uint64_t bytes(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

double value(cudaDataType_t type, const uint8_t *from, int64_t index) {
  if (type == CUDA_R_32F) {
    float value = 0;
    std::memcpy(&value, from + 4 * index, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, from + 2 * index, 2);
  return type == CUDA_R_16F ? static_cast<double>(std::bit_cast<_Float16>(bits))
                            : std::bit_cast<float>(uint32_t(bits) << 16);
}

/// Numbers that every type holds.
std::vector<uint8_t> numbers(cudaDataType_t type, int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> to(count * bytes(type));
  for (int64_t i = 0; i < count; ++i) {
    float number = static_cast<float>(static_cast<int>(random() % 129) - 64) / 64;
    uint32_t bits = std::bit_cast<uint32_t>(number) >> (type == CUDA_R_16BF ? 16 : 0);
    if (type == CUDA_R_16F)
      bits = std::bit_cast<uint16_t>(static_cast<_Float16>(number));
    std::memcpy(to.data() + i * bytes(type), &bits, bytes(type));
  }
  return to;
}

/// A GPU, the library and one product on it.
struct Product : Functions {
  SimGpu &gpu;
  Wanted w;
  CUstream stream;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t aLayout, bLayout, dLayout;
  CUdeviceptr a = 0, b = 0, bias = 0, d = 0, workspace = 0;
  std::vector<uint8_t> hostA, hostB, hostBias;
  std::vector<cublasLtMatmulHeuristicResult_t> found;

  Product(SimGpu &gpu, const Wanted &wanted)
      : Functions(MPC_TEST_SIM_BLAS), gpu(gpu), w(wanted), stream(gpu.stream()) {
    EXPECT_EQ(cublasLtCreate(&handle), kOk);
    EXPECT_EQ(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), kOk);
    describe(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(w.isTransposedA));
    describe(CUBLASLT_MATMUL_DESC_TRANSB, int32_t(w.isTransposedB));
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE, w.epilogue);
    aLayout = w.isTransposedA ? layout(w.type, w.k, w.m) : layout(w.type, w.m, w.k);
    bLayout = w.isTransposedB ? layout(w.type, w.n, w.k) : layout(w.type, w.k, w.n);
    dLayout = layout(w.resultType, w.m, w.n, w.gap);
    hostA = numbers(w.type, w.batch * w.m * w.k, 1);
    hostB = numbers(w.type, w.batch * w.k * w.n, 2);
    hostBias = numbers(w.resultType, w.m, 3);
    a = upload(hostA);
    b = upload(hostB);
    bias = upload(hostBias);
    gpu.ok(gpu.cuMemAlloc(&d, resultElements() * bytes(w.resultType)));
    gpu.ok(gpu.cuMemsetD8Async(d, 0, resultElements() * bytes(w.resultType), stream));
    describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }

  int64_t resultElements() const { return w.batch * w.n * (w.m + w.gap); }

  template <typename Value> void describe(cublasLtMatmulDescAttributes_t attribute, Value value) {
    EXPECT_EQ(set(cublasLtMatmulDescSetAttribute, description, attribute, value), kOk);
  }
  cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns,
                                int64_t gap = 0) {
    cublasLtMatrixLayout_t made = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&made, type, rows, columns, rows + gap), kOk);
    EXPECT_EQ(set(cublasLtMatrixLayoutSetAttribute, made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                  int32_t(w.batch)),
              kOk);
    EXPECT_EQ(set(cublasLtMatrixLayoutSetAttribute, made,
                  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (rows + gap) * columns),
              kOk);
    return made;
  }
  CUdeviceptr upload(const std::vector<uint8_t> &from) {
    CUdeviceptr to = 0;
    gpu.ok(gpu.cuMemAlloc(&to, from.size()));
    gpu.ok(gpu.cuMemcpyHtoDAsync(to, from.data(), from.size(), stream));
    return to;
  }

  cublasStatus_t find() {
    cublasLtMatmulPreference_t preference = nullptr;
    EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), kOk);
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      EXPECT_EQ(set(cublasLtMatmulPreferenceSetAttribute, preference, attribute, value), kOk);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, w.mostWorkspace);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, w.schemes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, w.alignment);
    found.resize(16);
    int count = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, description, aLayout, bLayout, dLayout, dLayout,
                                       preference, 16, found.data(), &count);
    found.resize(count);
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), kOk);
    return status;
  }
  uint64_t flags(const cublasLtMatmulHeuristicResult_t &result) {
    uint64_t flags = 0;
    size_t written = 0;
    EXPECT_EQ(cublasLtMatmulAlgoCapGetAttribute(&result.algo,
                                                CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags,
                                                sizeof flags, &written),
              kOk);
    EXPECT_EQ(written, sizeof flags);
    return flags;
  }
  /// The first one that is exact.
  const cublasLtMatmulHeuristicResult_t &exact() {
    EXPECT_EQ(find(), kOk);
    for (const cublasLtMatmulHeuristicResult_t &each : found)
      if (!(flags(each) & (CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F |
                           CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32)))
        return each;
    ADD_FAILURE() << "no exact algorithm";
    return found.front();
  }
  cublasStatus_t run(const cublasLtMatmulHeuristicResult_t &result, float alpha = 1, float beta = 0,
                     size_t lessWorkspace = 0) {
    if (result.workspaceSize > 0 && !workspace)
      gpu.ok(gpu.cuMemAlloc(&workspace, result.workspaceSize));
    auto pointer = [](CUdeviceptr address) { return std::bit_cast<void *>(address); };
    return cublasLtMatmul(handle, description, &alpha, pointer(a), aLayout, pointer(b), bLayout,
                          &beta, pointer(d), dLayout, pointer(d), dLayout, &result.algo,
                          pointer(workspace), result.workspaceSize - lessWorkspace, stream);
  }
  std::vector<uint8_t> result() {
    std::vector<uint8_t> to(resultElements() * bytes(w.resultType));
    gpu.ok(gpu.cuMemcpyDtoHAsync(to.data(), d, to.size(), stream));
    return to;
  }
  /// The largest distance from the product in double, in units of the result's last place.
  double error(double alpha = 1, const std::vector<uint8_t> &before = {}, double beta = 0) {
    std::vector<uint8_t> got = result();
    double worst = 0, unit = w.resultType == CUDA_R_32F   ? 0x1p-21
                             : w.resultType == CUDA_R_16F ? 0x1p-11
                                                          : 0x1p-8;
    for (int64_t batch = 0; batch < w.batch; ++batch)
      for (int64_t j = 0; j < w.n; ++j)
        for (int64_t i = 0; i < w.m; ++i) {
          double sum = 0;
          for (int64_t p = 0; p < w.k; ++p)
            sum += value(w.type, hostA.data(),
                         batch * w.m * w.k + (w.isTransposedA ? i * w.k + p : p * w.m + i)) *
                   value(w.type, hostB.data(),
                         batch * w.k * w.n + (w.isTransposedB ? p * w.n + j : j * w.k + p));
          int64_t at = (batch * w.n + j) * (w.m + w.gap) + i;
          sum *= alpha;
          if (beta != 0)
            sum += beta * value(w.resultType, before.data(), at);
          if (w.epilogue & CUBLASLT_EPILOGUE_BIAS)
            sum += value(w.resultType, hostBias.data(), i);
          if (w.epilogue & CUBLASLT_EPILOGUE_RELU)
            sum = std::max(sum, 0.0);
          double difference = std::abs(value(w.resultType, got.data(), at) - sum);
          worst = std::max(worst, difference / (unit * std::max(1.0, std::abs(sum))));
        }
    return worst;
  }
};

std::string onProduct(const Wanted &wanted, const std::function<void(Product &)> &body,
                      const SimSettings &settings = {}) {
  return onGpu(
      [&](SimGpu &gpu) {
        Product product(gpu, wanted);
        body(product);
      },
      settings);
}
} // namespace

//===- Numbers ----------------------------------------------------------------------------===//

TEST(SimBlas, Types) {
  for (auto [type, resultType] : {std::pair(CUDA_R_32F, CUDA_R_32F),
                                  {CUDA_R_16F, CUDA_R_16F},
                                  {CUDA_R_16F, CUDA_R_32F},
                                  {CUDA_R_16BF, CUDA_R_16BF},
                                  {CUDA_R_16BF, CUDA_R_32F}}) {
    Wanted wanted{.m = 37, .n = 21, .k = 131};
    wanted.type = type;
    wanted.resultType = resultType;
    onProduct(wanted, [](Product &p) {
      EXPECT_EQ(p.run(p.exact()), kOk);
      EXPECT_LE(p.error(), 1);
    });
  }
}

TEST(SimBlas, TransposesBatchesAndGaps) {
  for (int bits = 0; bits < 16; ++bits) {
    Wanted wanted{.m = 19, .n = 5, .k = 33, .batch = bits & 4 ? 3 : 1};
    wanted.isTransposedA = bits & 1;
    wanted.isTransposedB = bits & 2;
    wanted.gap = bits & 8 ? 2 : 0;
    onProduct(wanted, [](Product &p) {
      EXPECT_EQ(p.run(p.exact()), kOk);
      EXPECT_LE(p.error(), 1);
      double behind = p.w.gap ? value(CUDA_R_32F, p.result().data(), p.w.m) : 0;
      EXPECT_EQ(behind, 0);
    });
  }
}

TEST(SimBlas, Epilogues) {
  for (auto epilogue :
       {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS}) {
    Wanted wanted{.m = 40, .n = 7, .k = 12, .batch = 2};
    wanted.type = wanted.resultType = CUDA_R_16BF;
    wanted.epilogue = epilogue;
    onProduct(wanted, [](Product &p) {
      EXPECT_EQ(p.run(p.exact()), kOk);
      EXPECT_LE(p.error(), 1);
    });
  }
}

TEST(SimBlas, AlphaAndBeta) {
  onProduct({}, [](Product &p) {
    EXPECT_EQ(p.run(p.exact()), kOk);
    std::vector<uint8_t> before = p.result();
    EXPECT_EQ(p.run(p.exact(), 2, -0.5), kOk);
    EXPECT_LE(p.error(2, before, -0.5), 1);
  });
}

// What a caller gets that does not look.
TEST(SimBlas, TheFirstAlgorithmsAreInexact) {
  for (cudaDataType_t type : {CUDA_R_16F, CUDA_R_32F}) {
    Wanted wanted{.m = 16, .n = 16, .k = 2048, .mostWorkspace = 32 << 20};
    wanted.type = wanted.resultType = type;
    wanted.schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    onProduct(wanted, [&](Product &p) {
      uint64_t inexact = type == CUDA_R_16F ? CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F
                                            : CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32;
      EXPECT_EQ(p.find(), kOk);
      EXPECT_TRUE(p.flags(p.found[0]) & inexact);
      EXPECT_FALSE(p.flags(p.found[1]) & inexact);
      // The numbers of these tests fit 10 bits.
      for (size_t i = 0; i < p.found.size(); ++i) {
        EXPECT_EQ(p.run(p.found[i]), kOk);
        bool isRounded = type == CUDA_R_16F && i <= 2; // halves, in place, in the output's type
        EXPECT_EQ(p.error() > 1, isRounded) << i;
        p.workspace = 0;
      }
    });
  }
}

TEST(SimBlas, Workspace) {
  Wanted wanted{.m = 8, .n = 8, .k = 1024, .mostWorkspace = 32 << 20};
  std::string said = onProduct(wanted, [](Product &p) {
    const cublasLtMatmulHeuristicResult_t &split = p.exact();
    EXPECT_EQ(split.workspaceSize, 8u * 8 * 8 * 4);
    EXPECT_EQ(p.run(split), kOk);
    EXPECT_LE(p.error(), 1);
    // What was there is gone.
    EXPECT_EQ(p.gpu.download(p.stream, p.workspace, 1)[0], 0xFFFFFFFF);
    EXPECT_EQ(p.run(split, 1, 0, 1), kInvalid);
    p.workspace += 64;
    EXPECT_EQ(p.run(split), kInvalid);
    p.w.mostWorkspace = 100;
    EXPECT_EQ(p.exact().workspaceSize, 0u);
  });
  expectSaid(said, "needs a workspace of 2048 bytes, aligned to 256; it is given 2047");
}

//===- What is refused --------------------------------------------------------------------===//

TEST(SimBlas, DeadObjects) {
  onProduct({}, [](Product &p) {
    cublasLtMatmulHeuristicResult_t algorithm = p.exact();
    EXPECT_EQ(p.cublasLtMatrixLayoutDestroy(p.aLayout), kOk);
    EXPECT_EQ(p.cublasLtMatrixLayoutDestroy(p.aLayout), kInvalid);
    EXPECT_EQ(p.run(algorithm), kInvalid);
    p.aLayout = p.layout(p.w.type, p.w.m, p.w.k);
    EXPECT_EQ(p.run(algorithm), kOk);
    EXPECT_EQ(p.cublasLtMatmulDescDestroy(p.description), kOk);
    EXPECT_EQ(p.run(algorithm), kInvalid);
    EXPECT_EQ(p.cublasLtDestroy(p.handle), kOk);
    EXPECT_EQ(p.cublasLtDestroy(p.handle), CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_EQ(p.run(algorithm), CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_EQ(p.find(), CUBLAS_STATUS_NOT_INITIALIZED);
  });
}

TEST(SimBlas, ExtentsThatDoNotFit) {
  onProduct({}, [](Product &p) {
    cublasLtMatmulHeuristicResult_t algorithm = p.exact();
    cublasLtMatrixLayout_t right = p.aLayout;
    for (cublasLtMatrixLayout_t wrong :
         {p.layout(CUDA_R_32F, p.w.m, p.w.k + 1), p.layout(CUDA_R_32F, p.w.m, p.w.k, -1),
          p.layout(CUDA_R_32F, 0, p.w.k)}) {
      p.aLayout = wrong;
      EXPECT_EQ(p.find(), kInvalid);
      EXPECT_EQ(p.run(algorithm), kInvalid);
    }
    p.aLayout = right;
    EXPECT_EQ(set(p.cublasLtMatrixLayoutSetAttribute, right, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                  int32_t(2)),
              kOk);
    EXPECT_EQ(p.run(algorithm), kInvalid); // D is one matrix
  });
}

TEST(SimBlas, TypesThatDoNotGoTogether) {
  onProduct({}, [](Product &p) {
    p.dLayout = p.layout(CUDA_R_16F, p.w.m, p.w.n);
    EXPECT_EQ(p.find(), CUBLAS_STATUS_NOT_SUPPORTED);
    p.dLayout = p.layout(CUDA_R_64F, p.w.m, p.w.n);
    EXPECT_EQ(p.find(), CUBLAS_STATUS_NOT_SUPPORTED);
    p.dLayout = p.layout(CUDA_R_32F, p.w.m, p.w.n);
    EXPECT_EQ(p.find(), kOk);
    p.describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    p.describe(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(CUDA_R_16F));
    EXPECT_EQ(p.find(), CUBLAS_STATUS_NOT_SUPPORTED);
    p.describe(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(32)); // GELU
    EXPECT_EQ(p.find(), CUBLAS_STATUS_NOT_SUPPORTED);
    p.describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    EXPECT_EQ(p.cublasLtMatmulDescCreate(&p.description, CUBLAS_COMPUTE_16F, CUDA_R_16F), kOk);
    EXPECT_EQ(p.find(), CUBLAS_STATUS_NOT_SUPPORTED);
  });
  Wanted brain;
  brain.type = brain.resultType = CUDA_R_16BF;
  onProduct(brain, [](Product &p) { EXPECT_EQ(p.find(), CUBLAS_STATUS_NOT_SUPPORTED); },
            {{"MPC_SIM_CC", "7.5"}});
}

TEST(SimBlas, AlgorithmOfAnotherProduct) {
  std::string said = onProduct({}, [](Product &p) {
    cublasLtMatmulHeuristicResult_t algorithm = p.exact();
    p.describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
    EXPECT_EQ(p.run(algorithm), kInvalid);
    EXPECT_EQ(p.run({}), kInvalid);
    EXPECT_EQ(p.run(p.exact()), kOk);
  });
  expectSaid(said, "one for another product");
}

TEST(SimBlas, Addresses) {
  std::string said = onProduct({}, [](Product &p) {
    p.w.alignment = 2; // less than an element
    EXPECT_EQ(p.find(), CUBLAS_STATUS_NOT_SUPPORTED);
    p.w.alignment = 4;
    cublasLtMatmulHeuristicResult_t narrow = p.exact();
    p.w.alignment = 256;
    cublasLtMatmulHeuristicResult_t wide = p.exact();
    CUdeviceptr a = p.a;
    p.a = a - 4; // not in the buffer, which nobody looks at yet
    EXPECT_EQ(p.run(wide), kInvalid);
    p.a = a;
    EXPECT_EQ(p.run(narrow), kOk);
    p.d = p.a + 16;
    EXPECT_EQ(p.run(wide), kInvalid);
    p.d = 0;
    EXPECT_EQ(p.run(wide), kInvalid);
    p.describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    p.describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUdeviceptr(0));
    EXPECT_EQ(p.run(p.exact()), kInvalid);
  });
  expectSaid(said, "is not aligned to the 16 bytes that the algorithm needs");
  expectSaid(said, "overlaps A");
}

//===- As kernels -------------------------------------------------------------------------===//

TEST(SimBlas, RunsWhenTheStreamGetsThere) {
  onProduct({}, [](Product &p) {
    uint32_t *seen = p.gpu.pinned(1);
    *seen = 7;
    EXPECT_EQ(p.run(p.exact()), kOk);
    EXPECT_EQ(p.gpu.cuMemcpyDtoHAsync(seen, p.d, 4, p.stream), CUDA_SUCCESS);
    EXPECT_EQ(*seen, 7u);
    EXPECT_EQ(p.gpu.cuStreamSynchronize(p.stream), CUDA_SUCCESS);
    EXPECT_NE(*seen, 7u);
    EXPECT_LE(p.error(), 1);
  });
}

TEST(SimBlas, InAGraph) {
  std::string said = onProduct({}, [](Product &p) {
    cublasLtMatmulHeuristicResult_t algorithm = p.exact();
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    SimGpu &gpu = p.gpu;
    gpu.ok(gpu.cuStreamSynchronize(p.stream));
    gpu.ok(gpu.cuStreamBeginCapture(p.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_EQ(p.run(algorithm), kOk);
    gpu.ok(gpu.cuStreamEndCapture(p.stream, &graph));
    gpu.ok(gpu.cuGraphInstantiate(&executable, graph, 0));
    EXPECT_GT(p.error(), 1);
    for (int i = 0; i < 2; ++i) {
      gpu.ok(gpu.set(p.stream, p.d, 0, p.resultElements()));
      gpu.ok(gpu.cuGraphLaunch(executable, p.stream));
      EXPECT_LE(p.error(), 1);
    }
    // A handle allocates.
    gpu.ok(gpu.cuStreamBeginCapture(p.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_EQ(p.cublasLtCreate(&p.handle), CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_EQ(gpu.cuStreamEndCapture(p.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
  expectSaid(said, "cublasLtCreate is not allowed while a stream captures");
}

TEST(SimBlas, Races) {
  for (bool isOrdered : {true, false}) {
    std::string said = onProduct({}, [&](Product &p) {
      CUstream other = p.gpu.stream();
      p.gpu.ok(p.gpu.cuStreamSynchronize(p.stream));
      p.gpu.ok(p.gpu.set(other, p.a, 0, 1));
      if (isOrdered)
        p.gpu.order(other, p.stream);
      EXPECT_EQ(p.run(p.exact()), kOk);
      p.gpu.cuStreamSynchronize(p.stream);
      EXPECT_EQ(p.gpu.cuCtxSynchronize(), isOrdered ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
    });
    if (isOrdered) {
      EXPECT_EQ(said, "");
      continue;
    }
    expectSaid(said, "a race between streams: a product of 8 x 4 x 16 by cuBLASLt in stream");
  }
}

TEST(SimBlas, OutsideOfABuffer) {
  std::string said = onProduct({}, [](Product &p) {
    cublasLtMatmulHeuristicResult_t algorithm = p.exact();
    p.b += 16;
    EXPECT_EQ(p.run(algorithm), kOk);
    EXPECT_EQ(p.gpu.cuStreamSynchronize(p.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
  expectSaid(said, "a product of 8 x 4 x 16 by cuBLASLt: accesses memory outside of every buffer");
}

TEST(SimBlas, Faults) {
  std::string said =
      onProduct({},
                [](Product &p) {
                  EXPECT_EQ(p.run(p.exact()), kOk);
                  EXPECT_EQ(p.run(p.exact()), CUBLAS_STATUS_EXECUTION_FAILED);
                  EXPECT_STREQ(p.cublasLtGetStatusName(CUBLAS_STATUS_EXECUTION_FAILED),
                               "CUBLAS_STATUS_EXECUTION_FAILED");
                  EXPECT_EQ(p.run(p.exact()), kOk);
                  EXPECT_EQ(p.gpu.cuStreamSynchronize(p.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
                },
                {{"MPC_SIM_FAULT", "blas:2,sticky:2"}});
  expectSaid(said, "cublasLtMatmul: fails as MPC_SIM_FAULT asks for");
}

TEST(SimBlas, AbsentAndOld) {
  onGpu(
      [](SimGpu &) {
        Functions library(MPC_TEST_SIM_BLAS);
        cublasLtHandle_t handle = nullptr;
        EXPECT_EQ(library.cublasLtCreate(&handle), CUBLAS_STATUS_NOT_INITIALIZED);
        EXPECT_EQ(library.cublasLtGetVersion(), 110400u);
      },
      {{"MPC_SIM_BLAS", "0"}, {"MPC_SIM_BLAS_VERSION", "110400"}});
  inProcess({}, [] {
    SimDriver driver;
    Functions library(MPC_TEST_SIM_BLAS);
    cublasLtHandle_t handle = nullptr;
    EXPECT_EQ(library.cublasLtCreate(&handle), CUBLAS_STATUS_NOT_INITIALIZED); // no context
    EXPECT_EQ(library.cublasLtGetVersion(), 120900u);
  });
}

//===- The interface ----------------------------------------------------------------------===//

// What needs no GPU, so that it can be asked of the real library, too, where there is one.
TEST(SimBlas, DescriptionsAreTheRealOnes) {
  for (const char *file : {MPC_TEST_SIM_BLAS, "libcublasLt.so.13", "libcublasLt.so.12"})
    inProcess({}, [&] {
      SimDriver driver; // before, since the simulated library would take NVIDIA's otherwise
      Functions library(file);
      if (!library.cublasLtGetVersion)
        return;
      EXPECT_GE(library.cublasLtGetVersion(), 120000u);
      EXPECT_STREQ(library.cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED),
                   "CUBLAS_STATUS_NOT_SUPPORTED");
      cublasLtMatrixLayout_t layout = nullptr;
      EXPECT_EQ(library.cublasLtMatrixLayoutCreate(&layout, CUDA_R_16F, 4, 5, 4), kOk);
      auto lay = library.cublasLtMatrixLayoutSetAttribute;
      EXPECT_EQ(set(lay, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(3)), kOk);
      EXPECT_EQ(set(lay, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t(20)), kOk);
      EXPECT_EQ(set(lay, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int64_t(3)), kInvalid);
      EXPECT_EQ(set(lay, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int32_t(20)),
                kInvalid);
      EXPECT_EQ(library.cublasLtMatrixLayoutDestroy(layout), kOk);

      cublasLtMatmulDesc_t description = nullptr;
      EXPECT_EQ(library.cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                kOk);
      auto describe = library.cublasLtMatmulDescSetAttribute;
      const void *address = std::bit_cast<const void *>(uintptr_t(64));
      EXPECT_EQ(set(describe, description, CUBLASLT_MATMUL_DESC_TRANSA, int32_t(1)), kOk);
      EXPECT_EQ(set(describe, description, CUBLASLT_MATMUL_DESC_TRANSB, int32_t(1)), kOk);
      EXPECT_EQ(
          set(describe, description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_BIAS),
          kOk);
      EXPECT_EQ(set(describe, description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, address), kOk);
      EXPECT_EQ(set(describe, description, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, int64_t(0)),
                kOk);
      EXPECT_EQ(
          set(describe, description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(CUDA_R_16F)),
          kOk);
      EXPECT_EQ(set(describe, description, CUBLASLT_MATMUL_DESC_TRANSA, int64_t(1)), kInvalid);
      EXPECT_EQ(set(describe, description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, int32_t(64)),
                kInvalid);
      EXPECT_EQ(
          set(describe, cublasLtMatmulDesc_t(nullptr), CUBLASLT_MATMUL_DESC_TRANSA, int32_t(1)),
          kInvalid);
      EXPECT_EQ(library.cublasLtMatmulDescDestroy(description), kOk);

      cublasLtMatmulPreference_t preference = nullptr;
      EXPECT_EQ(library.cublasLtMatmulPreferenceCreate(&preference), kOk);
      auto prefer = library.cublasLtMatmulPreferenceSetAttribute;
      EXPECT_EQ(set(prefer, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(1)),
                kOk);
      EXPECT_EQ(set(prefer, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(2)),
                kOk);
      for (auto side :
           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
        EXPECT_EQ(set(prefer, preference, side, uint32_t(64)), kOk);
        EXPECT_EQ(set(prefer, preference, side, uint64_t(64)), kInvalid);
      }
      EXPECT_EQ(set(prefer, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint32_t(1)),
                kInvalid);
      EXPECT_EQ(library.cublasLtMatmulPreferenceDestroy(preference), kOk);
    });
}
