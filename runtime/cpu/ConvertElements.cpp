//===- ConvertElements.cpp - initial values of one type as another ----------------===//
//
// For the start of a program, on any device: one element at a time, with no library.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/ConvertElements.h"
#include "runtime/core/Error.h"
#include "runtime/cpu/Kernels.h"
#include <cmath>
#include <cstring>

using namespace mpc;
using namespace mpc::cpu;

static bool isFloat(ElementType type) {
  return type == ElementType::f64 || type == ElementType::f32 || type == ElementType::bf16 ||
         type == ElementType::f16;
}

template <typename T> static T readAs(const void *from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T> static void writeAs(void *to, T value) {
  std::memcpy(to, &value, sizeof value);
}

static double readFloat(ElementType type, const void *from) {
  float value;
  switch (type) {
  case ElementType::f64:
    return readAs<double>(from);
  case ElementType::bf16:
  case ElementType::f16:
    (type == ElementType::f16 ? kKernelsBase.f16_to_f32 : kKernelsBase.bf16_to_f32)(from, &value,
                                                                                    1);
    return double(value);
  default:
    return double(readAs<float>(from));
  }
}

// The float that rounds to half as the double does: where it is inexact, its last bit is set (round
// to odd).
static float roundToOdd(double value) {
  float rounded = float(value);
  if (double(rounded) == value || !std::isfinite(value))
    return rounded;
  if (std::fabs(double(rounded)) > std::fabs(value))
    rounded = std::nextafter(rounded, 0.0f);
  uint32_t bits = readAs<uint32_t>(&rounded) | 1;
  return readAs<float>(&bits);
}

static void writeFloat(ElementType type, void *to, double value) {
  if (type == ElementType::f64)
    return writeAs(to, value);
  if (type == ElementType::f32)
    return writeAs(to, float(value));
  float odd = roundToOdd(value);
  (type == ElementType::f16 ? kKernelsBase.f32_to_f16 : kKernelsBase.f32_to_bf16)(&odd, to, 1);
}

static int64_t readInteger(ElementType type, const void *from) {
  switch (type) {
  case ElementType::i64:
    return readAs<int64_t>(from);
  case ElementType::i32:
    return readAs<int32_t>(from);
  case ElementType::i16:
    return readAs<int16_t>(from);
  case ElementType::i8:
    return readAs<int8_t>(from);
  case ElementType::u64:
    return int64_t(readAs<uint64_t>(from));
  case ElementType::u32:
    return readAs<uint32_t>(from);
  case ElementType::u16:
    return readAs<uint16_t>(from);
  default:
    return readAs<uint8_t>(from);
  }
}

static void writeInteger(ElementType type, void *to, int64_t value) {
  switch (type) {
  case ElementType::i64:
  case ElementType::u64:
    return writeAs(to, value);
  case ElementType::i32:
  case ElementType::u32:
    return writeAs(to, int32_t(value));
  case ElementType::i16:
  case ElementType::u16:
    return writeAs(to, int16_t(value));
  case ElementType::i1:
    return writeAs(to, uint8_t(value != 0));
  default:
    return writeAs(to, uint8_t(value));
  }
}

void mpc::convertElements(ElementType from_type, const void *from, ElementType to_type, void *to,
                          int64_t count) {
  size_t from_size = elementSize(from_type), to_size = elementSize(to_type);
  if (count == 0) // then the pointers may be null
    return;
  if (from_type == to_type) {
    std::memcpy(to, from, size_t(count) * to_size);
    return;
  }
  if (isFloat(from_type) != isFloat(to_type))
    throw Error(std::string("an initial value of type ") + elementTypeName(from_type) +
                " for a tensor of type " + elementTypeName(to_type) + ": compile the model again");
  const char *source = static_cast<const char *>(from);
  char *target = static_cast<char *>(to);
  for (int64_t i = 0; i < count; ++i, source += from_size, target += to_size) {
    if (isFloat(from_type))
      writeFloat(to_type, target, readFloat(from_type, source));
    else
      writeInteger(to_type, target, readInteger(from_type, source));
  }
}
