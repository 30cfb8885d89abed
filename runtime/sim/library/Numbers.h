//===- Numbers.h - the numbers that simulated libraries compute with ------------------===//
//
// In memory they have one of three types; a library widens them to float, computes, and rounds
// once.
//
//===----------------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_SIM_LIBRARY_NUMBERS_H
#define MPC_RUNTIME_SIM_LIBRARY_NUMBERS_H

#include <bit>
#include <cmath>
#include <cstdint>

namespace mpc::sim {

enum class Number : uint8_t { f32, f16, bf16 };

inline int64_t bytesOf(Number type) { return type == Number::f32 ? 4 : 2; }

/// Moves the exponent by a multiplication: the compiler's own conversion is a call where the CPU
/// has no instruction for it.
inline float widenHalf(uint16_t bits) {
  uint32_t magnitude = (bits & 0x7FFFU) << 13, sign = (bits & 0x8000U) << 16;
  float value = std::bit_cast<float>(magnitude) * 0x1p112F;
  if ((bits & 0x7C00) == 0x7C00) // infinite, or no number
    value = std::bit_cast<float>(magnitude | 0x7F800000);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}
inline float widenBrain(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

inline float loadNumber(Number type, const void *from, int64_t index) {
  if (type == Number::f32)
    return static_cast<const float *>(from)[index];
  uint16_t bits = static_cast<const uint16_t *>(from)[index];
  return type == Number::f16 ? widenHalf(bits) : widenBrain(bits);
}

/// To the nearest number of the type, ties to even.
inline float roundTo(Number type, float value) {
  if (type == Number::f16)
    return static_cast<_Float16>(value);
  if (type == Number::f32 || std::isnan(value))
    return value;
  auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000);
}

inline void storeNumber(Number type, void *to, int64_t index, float value) {
  if (type == Number::f32)
    static_cast<float *>(to)[index] = value;
  else if (type == Number::f16)
    static_cast<uint16_t *>(to)[index] = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  else if (std::isnan(value))
    static_cast<uint16_t *>(to)[index] = 0x7FFF;
  else
    static_cast<uint16_t *>(to)[index] = std::bit_cast<uint32_t>(roundTo(type, value)) >> 16;
}

/// Without the bits behind the first `bits` ones of the fraction: of 23; TF32 has 10.
inline float cutTo(int bits, float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & (~uint32_t(0) << (23 - bits)));
}

} // namespace mpc::sim

#endif // MPC_RUNTIME_SIM_LIBRARY_NUMBERS_H
