//===- CpuConversionTest.cpp - half conversions, every code and every tie ----------===//

#include "runtime/cpu/ConvertElements.h"
#include "runtime/cpu/Kernels.h"
#include "runtime/cpu/Widen.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl.h>
#include <random>

using namespace mpc;
using namespace mpc::cpu;

namespace {

struct Format {
  ElementType type;
  int mantissa_bits, exponent_bits;
};
constexpr Format kF16 = {ElementType::f16, 10, 5}, kBf16 = {ElementType::bf16, 7, 8};

/// The value of a code by the definition of the format.
double valueOf(const Format &f, uint16_t code) {
  int exponent = (code >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  int mantissa = code & ((1 << f.mantissa_bits) - 1), bias = (1 << (f.exponent_bits - 1)) - 1;
  double sign = code & 0x8000 ? -1 : 1;
  if (exponent == (1 << f.exponent_bits) - 1)
    return mantissa ? std::nan("") : sign * INFINITY;
  if (exponent == 0)
    return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  return sign * std::ldexp((1 << f.mantissa_bits) + mantissa, exponent - bias - f.mantissa_bits);
}

/// The nearest code to a finite value, ties to the even code, by search over the non-negative
/// codes.
uint16_t nearest(const Format &f, double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::fabs(value);
  int infinity = ((1 << f.exponent_bits) - 1) << f.mantissa_bits;
  int low = 0, high = infinity; // valueOf(low) ≤ magnitude < valueOf(high)
  while (high - low > 1) {
    int middle = (low + high) / 2;
    (valueOf(f, uint16_t(middle)) <= magnitude ? low : high) = middle;
  }
  // Beyond the largest number, infinity counts as the next step.
  double below = valueOf(f, uint16_t(low));
  double above = high == infinity ? below + (below - valueOf(f, uint16_t(low - 1)))
                                  : valueOf(f, uint16_t(high));
  double to_low = magnitude - below, to_high = above - magnitude;
  int code = to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : high;
  return uint16_t(sign | code);
}

bool isNan(const Format &f, uint16_t code) { return std::isnan(valueOf(f, code)); }

/// The sets that this CPU can run and ONEDNN_MAX_CPU_ISA allows.
std::vector<const Kernels *> sets() {
  std::vector<const Kernels *> result = {&kKernelsBase};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
    result.push_back(&kKernelsAvx2);
  if (&kernels() == &kKernelsAvx512)
    result.push_back(&kKernelsAvx512);
  return result;
}

TEST(CpuConversion, EveryCodeWidensExactlyAndComesBack) {
  std::vector<uint16_t> codes(65536), back(65536);
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = uint16_t(i);
  std::vector<float> wide(65536);
  for (const Kernels *k : sets())
    for (const Format &f : {kF16, kBf16}) {
      bool f16 = f.type == ElementType::f16;
      (f16 ? k->f16_to_f32 : k->bf16_to_f32)(codes.data(), wide.data(), 65536);
      (f16 ? k->f32_to_f16 : k->f32_to_bf16)(wide.data(), back.data(), 65536);
      for (size_t i = 0; i < codes.size(); ++i) {
        double expected = valueOf(f, codes[i]);
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(wide[i]) && isNan(f, back[i])) << k->name << " code " << i;
        } else {
          EXPECT_EQ(expected, double(wide[i])) << k->name << " code " << i;
          EXPECT_EQ(codes[i], back[i]) << k->name; // the sign of zero too
        }
      }
    }
}

// Between every two neighboring codes: the middle, and the f32 numbers next to it.
TEST(CpuConversion, RoundsToNearestTiesToEven) {
  for (const Format &f : {kF16, kBf16}) {
    std::vector<float> values;
    for (int code = 0; code < ((1 << f.exponent_bits) - 1) << f.mantissa_bits; ++code) {
      double low = valueOf(f, uint16_t(code)), high = valueOf(f, uint16_t(code + 1));
      if (std::isinf(high))
        high = low + (low - valueOf(f, uint16_t(code - 1)));
      float middle = float((low + high) / 2);
      for (float v : {std::nextafterf(middle, 0), middle, std::nextafterf(middle, INFINITY)}) {
        values.push_back(v);
        values.push_back(-v);
      }
    }
    std::vector<uint16_t> codes(values.size());
    for (const Kernels *k : sets()) {
      (f.type == ElementType::f16 ? k->f32_to_f16 : k->f32_to_bf16)(values.data(), codes.data(),
                                                                    int64_t(values.size()));
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(nearest(f, double(values[i])), codes[i]) << k->name << " " << values[i];
    }
  }
}

// Both sides of the largest finite half, the tie below the smallest one, and signs: codes by hand.
TEST(CpuConversion, KnownCases) {
  struct Case {
    float value;
    uint16_t f16;
  };
  const Case cases[] = {{65519.99f, 0x7bff},  {65520.0f, 0x7c00}, {0x1p-25f, 0},
                        {1e-4f, 0x068e},      {0.1f, 0x2e66},     {1.0f / 3, 0x3555},
                        {-0.0f, 0x8000},      {INFINITY, 0x7c00}, {-INFINITY, 0xfc00},
                        {3.14159265f, 0x4248}};
  for (const Kernels *k : sets())
    for (const Case &c : cases) {
      uint16_t code;
      k->f32_to_f16(&c.value, &code, 1);
      EXPECT_EQ(c.f16, code) << k->name << " " << c.value;
    }
}

// Lengths that are no multiple of a vector, and nothing written behind the end.
TEST(CpuConversion, AnyLength) {
  for (const Kernels *k : sets())
    for (int64_t count = 0; count < 40; ++count) {
      std::vector<float> values(48, 1.5f), wide(48, -7.0f);
      std::vector<uint16_t> codes(48, 0x1234);
      k->f32_to_f16(values.data(), codes.data(), count);
      k->f16_to_f32(codes.data(), wide.data(), count);
      for (int64_t i = 0; i < 48; ++i) {
        EXPECT_EQ(i < count ? 0x3e00 : 0x1234, codes[i]);
        EXPECT_EQ(i < count ? 1.5f : -7.0f, wide[i]);
      }
    }
}

TEST(CpuConversion, DoubleToHalfRoundsOnce) {
  // In two steps this would round to f32's 1 + 2^-11 and from there, a tie, to 1.
  double value = 1 + 0x1p-11 + 0x1p-30, back;
  uint16_t code;
  convertElements(ElementType::f64, &value, ElementType::f16, &code, 1);
  convertElements(ElementType::f16, &code, ElementType::f64, &back, 1);
  EXPECT_EQ(1.0009765625, back);
}

TEST(CpuConversion, Integers) {
  int32_t small[] = {-5, 0, 7};
  int64_t wide[3];
  convertElements(ElementType::i32, small, ElementType::i64, wide, 3);
  EXPECT_EQ(-5, wide[0]);
  EXPECT_EQ(7, wide[2]);
  uint8_t flags[3];
  convertElements(ElementType::i64, wide, ElementType::i1, flags, 3);
  EXPECT_EQ(1, flags[0]);
  EXPECT_EQ(0, flags[1]);
}

} // namespace
