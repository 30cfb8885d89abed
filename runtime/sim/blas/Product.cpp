//===- Product.cpp - a matrix product as the simulated cuBLASLt computes it ---------------===//
//
// Operands are widened to float: A in panels of 16 rows, whose elements of one depth lie side by
// side, B with the depth side by side. A tile of 16 × 4 sums stays in registers.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/blas/Product.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace mpc::sim::blas {

namespace {
constexpr int64_t kPanel = 16, kTile = 4;

/// Moves the exponent by a multiplication: the compiler's own conversion is a call where the CPU
/// has no instruction for it.
float widenHalf(uint16_t bits) {
  uint32_t magnitude = (bits & 0x7FFFU) << 13, sign = (bits & 0x8000U) << 16;
  float value = std::bit_cast<float>(magnitude) * 0x1p112F;
  if ((bits & 0x7C00) == 0x7C00) // infinite, or no number
    value = std::bit_cast<float>(magnitude | 0x7F800000);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}
float widenBrain(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

float load(cudaDataType_t type, const void *from, int64_t index) {
  if (type == CUDA_R_32F)
    return static_cast<const float *>(from)[index];
  uint16_t bits = static_cast<const uint16_t *>(from)[index];
  return type == CUDA_R_16F ? widenHalf(bits) : widenBrain(bits);
}

/// To the nearest number of the type, ties to even.
float round(cudaDataType_t type, float value) {
  if (type == CUDA_R_16F)
    return static_cast<_Float16>(value);
  if (type != CUDA_R_16BF || std::isnan(value))
    return value;
  auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000);
}

void store(cudaDataType_t type, void *to, int64_t index, float value) {
  if (type == CUDA_R_32F)
    static_cast<float *>(to)[index] = value;
  else if (type == CUDA_R_16F)
    static_cast<uint16_t *>(to)[index] = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  else if (std::isnan(value))
    static_cast<uint16_t *>(to)[index] = 0x7FFF;
  else
    static_cast<uint16_t *>(to)[index] = std::bit_cast<uint32_t>(round(type, value)) >> 16;
}

/// Cut to the 10 bits of TF32.
float cut(float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & ~uint32_t(0x1FFF));
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
    float value = load(layout.type, base, index);
    to[outer / width * width * depth + k * width + outer % width] =
        isTensorFloat ? cut(value) : value;
  };
  // Along the memory.
  int64_t slow = isOuterRows ? depth : outers, fast = isOuterRows ? outers : depth;
  for (int64_t s = 0; s < slow; ++s)
    for (int64_t f = 0; f < fast; ++f)
      isOuterRows ? take(f, s) : take(s, f);
  return to;
}

/// sums[j][i] = Σ_k panel[k][i] · rows[j][k] over a part of the depth.
template <typename Vector>
[[gnu::always_inline]] inline void sumTile(const float *panel, const float *const *rows,
                                           int64_t depth, float (*sums)[kPanel]) {
  constexpr int64_t kVectors = kPanel * sizeof(float) / sizeof(Vector);
  Vector sum[kTile][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector column[kVectors];
    std::memcpy(column, panel + k * kPanel, sizeof column);
    for (int64_t j = 0; j < kTile; ++j)
      for (int64_t v = 0; v < kVectors; ++v)
        sum[j][v] += column[v] * rows[j][k];
  }
  std::memcpy(sums, sum, sizeof sum);
}

using Vector4 = float __attribute__((vector_size(16)));
using Vector8 = float __attribute__((vector_size(32)));

void sumPlain(const float *panel, const float *const *rows, int64_t depth, float (*sums)[kPanel]) {
  sumTile<Vector4>(panel, rows, depth, sums);
}
[[gnu::target("avx2,fma")]] void sumWide(const float *panel, const float *const *rows,
                                         int64_t depth, float (*sums)[kPanel]) {
  sumTile<Vector8>(panel, rows, depth, sums);
}

/// What a part of a sum is rounded to before it meets the others.
cudaDataType_t partType(const Algorithm &algorithm, cudaDataType_t resultType) {
  if (algorithm.isHalfSum)
    return CUDA_R_16F;
  bool isRounded = algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE ||
                   algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  return isRounded ? resultType : CUDA_R_32F;
}

/// sums[j][i] for the whole depth.
void sumParts(const Problem &p, const Algorithm &algorithm, const float *panel,
              const float *const *rows, float (*sums)[kPanel]) {
  static const bool isWide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  cudaDataType_t type = partType(algorithm, p.d.type);
  int64_t step = (p.k + algorithm.splits - 1) / algorithm.splits;
  std::memset(sums, 0, sizeof(float) * kTile * kPanel);
  for (int64_t first = 0; first < p.k; first += step) {
    int64_t depth = std::min(step, p.k - first);
    const float *part[kTile];
    for (int64_t j = 0; j < kTile; ++j)
      part[j] = rows[j] + first;
    float here[kTile][kPanel];
    (isWide ? sumWide : sumPlain)(panel + first * kPanel, part, depth, here);
    for (int64_t j = 0; j < kTile; ++j)
      for (int64_t i = 0; i < kPanel; ++i)
        sums[j][i] = round(type, sums[j][i] + round(type, here[j][i]));
  }
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
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    const std::vector<float> a = widen(p.a, offset(operands.a, p.a.type, batch * p.a.stride),
                                       !p.isTransposedA, p.m, p.k, kPanel, algorithm.isTensorFloat);
    const std::vector<float> b = widen(p.b, offset(operands.b, p.b.type, batch * p.b.stride),
                                       p.isTransposedB, p.n, p.k, 1, algorithm.isTensorFloat);
    auto finish = [&](int64_t i, int64_t j, float sum) {
      float value = operands.alpha * sum;
      if (operands.beta != 0)
        value +=
            operands.beta * load(p.c.type, operands.c, batch * p.c.stride + j * p.c.leading + i);
      if (p.hasBias())
        value += load(p.biasType, operands.bias, batch * p.biasStride + i);
      // As the hardware's maximum, a NaN becomes 0: programs may not rely on another answer.
      if (p.epilogue & CUBLASLT_EPILOGUE_RELU)
        value = value > 0 ? value : 0;
      store(p.d.type, operands.d, batch * p.d.stride + j * p.d.leading + i, value);
    };
    for (int64_t j = 0; j < p.n; j += kTile) {
      const float *rows[kTile];
      for (int64_t t = 0; t < kTile; ++t)
        rows[t] = b.data() + std::min(j + t, p.n - 1) * p.k;
      for (int64_t i = 0; i < p.m; i += kPanel) {
        float sums[kTile][kPanel];
        sumParts(p, algorithm, a.data() + i * p.k, rows, sums);
        for (int64_t t = 0; t < std::min(kTile, p.n - j); ++t)
          for (int64_t s = 0; s < std::min(kPanel, p.m - i); ++s)
            finish(i + s, j + t, sums[t][s]);
      }
    }
  }
}

} // namespace mpc::sim::blas
