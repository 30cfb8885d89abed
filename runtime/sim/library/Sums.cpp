//===- Sums.cpp - sums of products, as simulated libraries take them ------------------===//

#include "runtime/sim/library/Sums.h"
#include <algorithm>
#include <cstring>

namespace mpc::sim {

namespace {
template <typename Vector>
[[gnu::always_inline]] inline void sumPart(const float *panel, const float *const *rows,
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
  sumPart<Vector4>(panel, rows, depth, sums);
}
[[gnu::target("avx2,fma")]] void sumWide(const float *panel, const float *const *rows,
                                         int64_t depth, float (*sums)[kPanel]) {
  sumPart<Vector8>(panel, rows, depth, sums);
}
} // namespace

void sumTile(const Parts &parts, const float *panel, const float *const *rows, int64_t depth,
             float (*sums)[kPanel]) {
  static const bool isWide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  int64_t count = (depth + parts.depth - 1) / parts.depth;
  std::memset(sums, 0, sizeof(float) * kTile * kPanel);
  for (int64_t n = 0; n < count; ++n) {
    int64_t begin = (parts.first + n) % count * parts.depth;
    const float *part[kTile];
    for (int64_t j = 0; j < kTile; ++j)
      part[j] = rows[j] + begin;
    float here[kTile][kPanel];
    (isWide ? sumWide : sumPlain)(panel + begin * kPanel, part,
                                  std::min(parts.depth, depth - begin), here);
    for (int64_t j = 0; j < kTile; ++j)
      for (int64_t i = 0; i < kPanel; ++i)
        sums[j][i] = roundTo(parts.type, sums[j][i] + roundTo(parts.type, here[j][i]));
  }
}

} // namespace mpc::sim
