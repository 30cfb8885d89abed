//===- TensorCores.cpp - what tensor cores of a simulated GPU compute -------------------===//
//
// Who has which element is written here as the PTX ISA has it ("Matrix fragments for mma…"), not
// as the compiler does. Products of halves are exact in f32, sums are not: they are taken in the
// order of the depth.
//
//===------------------------------------------------------------------------------------===//

#include "runtime/sim/TensorCores.h"
#include "runtime/sim/Image.h"
#include <cstring>

using namespace mpc;

namespace {
constexpr uint32_t kWarp = 32;

/// The number that 16 bits are.
float ofHalf(uint32_t bits, bool isBf16) {
  auto bitsOf = [](float value) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    return word;
  };
  uint32_t word = bits << 16;
  if (!isBf16) {
    uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023, sign = bits >> 15 << 31;
    if (exponent == 31)
      word = sign | 255u << 23 | mantissa << 13;
    else if (exponent == 0)
      word = sign | bitsOf(static_cast<float>(mantissa) * 0x1p-24f);
    else
      word = sign | (exponent + 112) << 23 | mantissa << 13;
  }
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

/// Element number i of the halves in these words.
float half(const uint32_t *words, uint32_t i, bool isBf16 = false) {
  return ofHalf(words[i / 2] >> i % 2 * 16 & 0xffff, isBf16);
}

/// sums += a · b; a is transposed.
template <uint32_t rows, uint32_t columns, uint32_t depth>
void addProduct(const float (&a)[depth][rows], const float (&b)[depth][columns],
                float (&sums)[rows][columns]) {
  for (uint32_t k = 0; k < depth; ++k)
    for (uint32_t row = 0; row < rows; ++row)
      for (uint32_t column = 0; column < columns; ++column)
        sums[row][column] += a[k][row] * b[k][column];
}

/// m16n8k16 and m16n8k8. Lane l, with g = l / 4 and t = 2 · (l mod 4), has of
///   a     rows g, g + 8;  columns t and the next;  for k16 of both rows those + 8, too
///   b     column g;  rows t and the next;  for k16 those + 8, too
///   c, d  row g, columns t and the next;  the same of row g + 8
template <uint32_t depth> void multiplyMatrices(const sim::WarpWords &words, bool isBf16) {
  constexpr uint32_t kB = depth / 4, kC = kB + depth / 8; // where they begin
  float a[depth][16], b[depth][8], sums[16][8];
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    uint32_t g = lane / 4, t = lane % 4 * 2;
    for (uint32_t i = 0; i < depth / 2; ++i)
      a[t + i % 2 + i / 4 * 8][g + i / 2 % 2 * 8] = half(words[lane], i, isBf16);
    for (uint32_t i = 0; i < depth / 4; ++i)
      b[t + i % 2 + i / 2 * 8][g] = half(words[lane] + kB, i, isBf16);
    for (uint32_t i = 0; i < 4; ++i)
      std::memcpy(&sums[g + i / 2 * 8][t + i % 2], &words[lane][kC + i], sizeof(float));
  }
  addProduct(a, b, sums);
  for (uint32_t lane = 0; lane < kWarp; ++lane)
    for (uint32_t i = 0; i < 4; ++i)
      std::memcpy(&words[lane][i], &sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2],
                  sizeof(float));
}

/// m8n8k4. Product number q is of the lanes 4 · q … 4 · q + 3 and 4 · q + 16 … 4 · q + 19; the
/// latter have what is 4 further. Of a lane, with t = l mod 4, element i is of
///   a     row t, column i;  or row i, column t
///   b     row i, column t;  or row t, column i
///   c, d  row (t & 1) + (i & 2), column (i & 4) + (t & 2) + (i & 1); 4 rows further, of the latter
void multiplyQuads(const sim::WarpWords &words, bool columnA, bool rowB) {
  constexpr uint32_t kB = 2, kC = 4, kSums = 8;
  for (uint32_t q = 0; q < 4; ++q) {
    float a[4][8], b[4][8], sums[8][8];
    auto ofSums = [&](auto &&function) {
      for (uint32_t further : {0, 4})
        for (uint32_t t = 0; t < 4; ++t)
          for (uint32_t i = 0; i < kSums; ++i)
            function(words[4 * q + t + 4 * further],
                     sums[(t & 1) + (i & 2) + further][(i & 4) + (t & 2) + (i & 1)], i);
    };
    for (uint32_t further : {0, 4})
      for (uint32_t t = 0; t < 4; ++t)
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t *lane = words[4 * q + t + 4 * further];
          a[columnA ? t : i][(columnA ? i : t) + further] = half(lane, i);
          b[rowB ? t : i][(rowB ? i : t) + further] = half(lane + kB, i);
        }
    ofSums([](uint32_t *lane, float &sum, uint32_t i) {
      std::memcpy(&sum, &lane[kC + i], sizeof sum);
    });
    addProduct(a, b, sums);
    ofSums([](uint32_t *lane, float &sum, uint32_t i) { std::memcpy(&lane[i], &sum, sizeof sum); });
  }
}
} // namespace

void sim::multiply(uint32_t kind, const WarpWords &words) {
  if (kind >= MPC_SIM_M8N8K4)
    multiplyQuads(words, kind & MPC_SIM_COLUMN_A, kind & MPC_SIM_ROW_B);
  else if (kind == MPC_SIM_M16N8K8)
    multiplyMatrices<8>(words, /*isBf16=*/false);
  else
    multiplyMatrices<16>(words, kind == MPC_SIM_M16N8K16_BF16);
}

/// Matrix i: lane l gets elements 2 · (l mod 4) and the next of row l / 4; transposed, of column
/// l / 4.
void sim::loadMatrices(bool transposed, const std::array<const void *, 32> &rows,
                       const WarpWords &words) {
  for (uint32_t matrix = 0; matrix < 4; ++matrix) {
    uint16_t element[8][8];
    for (uint32_t row = 0; row < 8; ++row)
      std::memcpy(element[row], rows[matrix * 8 + row], sizeof element[row]);
    for (uint32_t lane = 0; lane < kWarp; ++lane) {
      uint32_t line = lane / 4, first = lane % 4 * 2;
      uint32_t low = transposed ? element[first][line] : element[line][first];
      uint32_t high = transposed ? element[first + 1][line] : element[line][first + 1];
      words[lane][matrix] = low | high << 16;
    }
  }
}
