//===- Product.cpp - a matrix product as the simulated cuBLASLt computes it ---------------===//
//
// Operands are widened to float: A in panels, B with the depth side by side (library/Sums.h).
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/blas/Product.h"
#include "runtime/sim/library/Sums.h"
#include <algorithm>
#include <vector>

namespace mpc::sim::blas {

namespace {
Number numberOf(cudaDataType_t type) {
  return type == CUDA_R_32F ? Number::f32 : type == CUDA_R_16F ? Number::f16 : Number::bf16;
}

const void *offset(const void *base, cudaDataType_t type, int64_t elements) {
  return static_cast<const std::byte *>(base) + elements * elementBytes(type);
}

/// A matrix of one batch, widened: element (outer, k) is at [outer / width][k][outer % width].
/// Width 1: at [outer][k].
std::vector<float> widen(const Layout &layout, const void *base, bool isOuterRows, int64_t outers,
                         int64_t depth, int64_t width, bool isTensorFloat) {
  std::vector<float> to((outers + width - 1) / width * width * depth);
  auto take = [&](int64_t outer, int64_t k) {
    int64_t index = isOuterRows ? outer + k * layout.leading : k + outer * layout.leading;
    float value = loadNumber(numberOf(layout.type), base, index);
    to[outer / width * width * depth + k * width + outer % width] =
        isTensorFloat ? cutTo(10, value) : value;
  };
  // Along the memory.
  int64_t slow = isOuterRows ? depth : outers, fast = isOuterRows ? outers : depth;
  for (int64_t s = 0; s < slow; ++s)
    for (int64_t f = 0; f < fast; ++f)
      isOuterRows ? take(f, s) : take(s, f);
  return to;
}

/// What a part of a sum is rounded to before it meets the others.
Number partType(const Algorithm &algorithm, cudaDataType_t resultType) {
  if (algorithm.isHalfSum)
    return Number::f16;
  bool isRounded = algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE ||
                   algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  return isRounded ? numberOf(resultType) : Number::f32;
}
} // namespace

int64_t elementBytes(cudaDataType_t type) {
  switch (type) {
  case CUDA_R_32F:
    return 4;
  case CUDA_R_16F:
  case CUDA_R_16BF:
    return 2;
  case CUDA_R_64F:
    break;
  }
  return 0;
}

void multiply(const Problem &p, const Algorithm &algorithm, const Operands &operands) {
  const Parts parts{(p.k + algorithm.splits - 1) / algorithm.splits, partType(algorithm, p.d.type)};
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    const std::vector<float> a = widen(p.a, offset(operands.a, p.a.type, batch * p.a.stride),
                                       !p.isTransposedA, p.m, p.k, kPanel, algorithm.isTensorFloat);
    const std::vector<float> b = widen(p.b, offset(operands.b, p.b.type, batch * p.b.stride),
                                       p.isTransposedB, p.n, p.k, 1, algorithm.isTensorFloat);
    auto finish = [&](int64_t i, int64_t j, float sum) {
      float value = operands.alpha * sum;
      if (operands.beta != 0)
        value += operands.beta * loadNumber(numberOf(p.c.type), operands.c,
                                            batch * p.c.stride + j * p.c.leading + i);
      if (p.hasBias())
        value += loadNumber(numberOf(p.biasType), operands.bias, batch * p.biasStride + i);
      // As the hardware's maximum, a NaN becomes 0: programs may not rely on another answer.
      if (p.epilogue & CUBLASLT_EPILOGUE_RELU)
        value = value > 0 ? value : 0;
      storeNumber(numberOf(p.d.type), operands.d, batch * p.d.stride + j * p.d.leading + i, value);
    };
    for (int64_t j = 0; j < p.n; j += kTile) {
      const float *rows[kTile];
      for (int64_t t = 0; t < kTile; ++t)
        rows[t] = b.data() + std::min(j + t, p.n - 1) * p.k;
      for (int64_t i = 0; i < p.m; i += kPanel) {
        float sums[kTile][kPanel];
        sumTile(parts, a.data() + i * p.k, rows, p.k, sums);
        for (int64_t t = 0; t < std::min(kTile, p.n - j); ++t)
          for (int64_t s = 0; s < std::min(kPanel, p.m - i); ++s)
            finish(i + s, j + t, sums[t][s]);
      }
    }
  }
}

} // namespace mpc::sim::blas
