//===- Array.cpp - arrays as files hold them ---------------------------------------===//
//
// One generic conversion with a test per element. Data are converted once, when they are
// loaded, and only where a file's type is not the program's, so its speed does not matter
// much; that nothing is lost silently does.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/Array.h"
#include "runtime/core/Error.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

using namespace mpc;

namespace {

struct FileTypeFacts {
  const char *name;
  size_t size;
};
// In the order of FileType.
constexpr FileTypeFacts kFileTypes[] = {
    {"bool", 1},     {"int8", 1},    {"uint8", 1},  {"int16", 2},  {"uint16", 2},
    {"int32", 4},    {"uint32", 4},  {"int64", 8},  {"uint64", 8}, {"float16", 2},
    {"bfloat16", 2}, {"float32", 4}, {"float64", 8}};

template <typename T> T load(const unsigned char *bytes, int64_t index) {
  T value;
  memcpy(&value, bytes + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <typename T> void store(unsigned char *bytes, int64_t index, T value) {
  memcpy(bytes + static_cast<size_t>(index) * sizeof(T), &value, sizeof(T));
}

/// A value of any file type without loss: floats as double, integers as sign and magnitude.
struct Value {
  bool real = false;
  double number = 0;
  bool negative = false;
  uint64_t magnitude = 0;

  double asDouble() const {
    return real ? number
                : (negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude));
  }
};

Value integer(int64_t value) {
  Value result;
  result.negative = value < 0;
  result.magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  return result;
}

Value real(double value) {
  Value result;
  result.real = true;
  result.number = value;
  return result;
}

Value valueAt(FileType type, const unsigned char *bytes, int64_t i) {
  switch (type) {
  case FileType::b1:
    return integer(bytes[i] != 0);
  case FileType::i8:
    return integer(load<int8_t>(bytes, i));
  case FileType::u8:
    return integer(load<uint8_t>(bytes, i));
  case FileType::i16:
    return integer(load<int16_t>(bytes, i));
  case FileType::u16:
    return integer(load<uint16_t>(bytes, i));
  case FileType::i32:
    return integer(load<int32_t>(bytes, i));
  case FileType::u32:
    return integer(load<uint32_t>(bytes, i));
  case FileType::i64:
    return integer(load<int64_t>(bytes, i));
  case FileType::u64: {
    Value value;
    value.magnitude = load<uint64_t>(bytes, i);
    return value;
  }
  case FileType::f16:
    return real(halfToDouble(load<uint16_t>(bytes, i)));
  case FileType::bf16:
    return real(bfloatToDouble(load<uint16_t>(bytes, i)));
  case FileType::f32:
    return real(load<float>(bytes, i));
  case FileType::f64:
    return real(load<double>(bytes, i));
  }
  return {};
}

std::string text(double value) {
  char digits[64];
  auto end = std::to_chars(digits, digits + sizeof digits, value);
  return std::string(digits, end.ptr);
}

bool sameNumber(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Integer `value` into [low, high] of a signed type T, or false.
template <typename T> bool storeInteger(const Value &value, unsigned char *to, int64_t i) {
  if (value.real)
    return false;
  uint64_t limit = static_cast<uint64_t>(std::numeric_limits<T>::max()) +
                   (value.negative && std::numeric_limits<T>::is_signed ? 1 : 0);
  if (value.magnitude > limit || (value.negative && !std::numeric_limits<T>::is_signed))
    return false;
  store<T>(to, i, static_cast<T>(value.negative ? 0 - value.magnitude : value.magnitude));
  return true;
}

/// Writes the value if the type holds it exactly.
bool storeExactly(const Value &value, ElementType type, unsigned char *to, int64_t i) {
  // An integer's way through double is exact up to 2^53, which is checked by coming back.
  double number = value.asDouble();
  bool exactDouble =
      value.real || value.magnitude <= (uint64_t(1) << 53) ||
      (number < 0x1p64 && static_cast<uint64_t>(std::fabs(number)) == value.magnitude);
  switch (type) {
  case ElementType::f64:
    store<double>(to, i, number);
    return exactDouble;
  case ElementType::f32:
    store<float>(to, i, static_cast<float>(number));
    return exactDouble && sameNumber(load<float>(to, i), number);
  case ElementType::f16:
    store<uint16_t>(to, i, doubleToHalf(number));
    return exactDouble && sameNumber(halfToDouble(load<uint16_t>(to, i)), number);
  case ElementType::bf16:
    store<uint16_t>(to, i, doubleToBfloat(number));
    return exactDouble && sameNumber(bfloatToDouble(load<uint16_t>(to, i)), number);
  case ElementType::i64:
    return storeInteger<int64_t>(value, to, i);
  case ElementType::i32:
    return storeInteger<int32_t>(value, to, i);
  case ElementType::i16:
    return storeInteger<int16_t>(value, to, i);
  case ElementType::i8:
    return storeInteger<int8_t>(value, to, i);
  case ElementType::u64:
    return storeInteger<uint64_t>(value, to, i);
  case ElementType::u32:
    return storeInteger<uint32_t>(value, to, i);
  case ElementType::u16:
    return storeInteger<uint16_t>(value, to, i);
  case ElementType::u8:
    return storeInteger<uint8_t>(value, to, i);
  case ElementType::i1:
    to[i] = value.magnitude != 0;
    return !value.real && !value.negative && value.magnitude <= 1;
  }
  return false;
}

std::string positionText(const std::vector<int64_t> &shape, int64_t index) {
  std::vector<int64_t> position(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    position[d] = index % shape[d];
    index /= shape[d];
  }
  return shapeText(position);
}

double realAt(ElementType type, const unsigned char *bytes, int64_t i) {
  return valueAt(fileTypeOf(type), bytes, i).asDouble();
}

} // namespace

size_t mpc::fileTypeSize(FileType type) { return kFileTypes[static_cast<size_t>(type)].size; }
const char *mpc::fileTypeName(FileType type) { return kFileTypes[static_cast<size_t>(type)].name; }
bool mpc::isFloat(FileType type) { return type >= FileType::f16; }
bool mpc::isFloat(ElementType type) { return type <= ElementType::f16; }

FileType mpc::fileTypeOf(ElementType type) {
  // In the order of ElementType.
  constexpr FileType kTypes[] = {FileType::f64, FileType::f32, FileType::bf16, FileType::f16,
                                 FileType::i64, FileType::i32, FileType::i16,  FileType::i8,
                                 FileType::u64, FileType::u32, FileType::u16,  FileType::u8,
                                 FileType::b1};
  return kTypes[static_cast<size_t>(type)];
}

int64_t mpc::elementCount(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    if (__builtin_mul_overflow(count, extent, &count))
      throw Error("a shape of more than 2^63 elements: " + shapeText(shape));
  return count;
}

int64_t Array::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

Array Array::make(FileType type, std::vector<int64_t> shape, std::vector<unsigned char> storage,
                  std::string source) {
  auto owner = std::make_shared<std::vector<unsigned char>>(std::move(storage));
  Array result;
  result.type = type;
  result.shape = std::move(shape);
  result.bytes = owner->data();
  result.owner = owner;
  result.source = std::move(source);
  return result;
}

std::string mpc::elementText(const Array &array, int64_t index) {
  Value value = valueAt(array.type, array.bytes, index);
  if (array.type == FileType::b1)
    return value.magnitude ? "true" : "false";
  if (array.type == FileType::f32) {
    char digits[64];
    auto end = std::to_chars(digits, digits + sizeof digits, static_cast<float>(value.number));
    return std::string(digits, end.ptr);
  }
  if (value.real)
    return text(value.number);
  return (value.negative ? "-" : "") + std::to_string(value.magnitude);
}

double mpc::elementAsDouble(const Array &array, int64_t index) {
  return valueAt(array.type, array.bytes, index).asDouble();
}

int64_t mpc::elementAsInteger(const Array &array, int64_t index) {
  Value value = valueAt(array.type, array.bytes, index);
  if (value.negative)
    return static_cast<int64_t>(0 - value.magnitude);
  return value.magnitude > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value.magnitude);
}

Array mpc::converted(const Array &array, ElementType type) {
  if (array.type == fileTypeOf(type) && array.type != FileType::b1)
    return array;
  if (isFloat(array.type) && !isFloat(type))
    throw Error(array.source + " holds " + fileTypeName(array.type) + ", and " +
                fileTypeName(fileTypeOf(type)) + " is wanted: save it as integers");
  int64_t count = array.elements();
  std::vector<unsigned char> storage(static_cast<size_t>(count) * elementSize(type));
  for (int64_t i = 0; i < count; ++i)
    if (!storeExactly(valueAt(array.type, array.bytes, i), type, storage.data(), i))
      throw Error(array.source + ": element " + positionText(array.shape, i) + " is " +
                  elementText(array, i) + " (" + fileTypeName(array.type) + "), which " +
                  fileTypeName(fileTypeOf(type)) +
                  " cannot hold exactly: convert the file, for example with NumPy's astype");
  return Array::make(fileTypeOf(type), array.shape, std::move(storage), array.source);
}

void mpc::convertReals(ElementType from, const void *source, ElementType to, void *destination,
                       size_t count) {
  if (count == 0) // then the pointers may be null
    return;
  if (from == to) {
    memcpy(destination, source, count * elementSize(from));
    return;
  }
  const unsigned char *in = static_cast<const unsigned char *>(source);
  unsigned char *out = static_cast<unsigned char *>(destination);
  for (size_t n = 0; n < count; ++n) {
    int64_t i = static_cast<int64_t>(n);
    double value = realAt(from, in, i);
    switch (to) {
    case ElementType::f64:
      store<double>(out, i, value);
      break;
    case ElementType::f32:
      store<float>(out, i, static_cast<float>(value));
      break;
    case ElementType::f16:
      store<uint16_t>(out, i, doubleToHalf(value));
      break;
    case ElementType::bf16:
      store<uint16_t>(out, i, doubleToBfloat(value));
      break;
    default:
      throw Error(std::string("a floating-point type is wanted, not ") + elementTypeName(to));
    }
  }
}

double mpc::halfToDouble(uint16_t bits) {
  int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double magnitude = exponent == 31  ? (fraction ? std::numeric_limits<double>::quiet_NaN()
                                                 : std::numeric_limits<double>::infinity())
                     : exponent == 0 ? std::ldexp(fraction, -24)
                                     : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

double mpc::bfloatToDouble(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/// Rounds |value| to a multiple of its last place in a format with `precision` significant bits
/// and smallest exponent `minimum` (of the last place), to nearest even.
static double roundTo(double magnitude, int precision, int minimum) {
  int exponent;
  std::frexp(magnitude, &exponent); // magnitude = f·2^exponent, f in [1/2, 1)
  int last = std::max(exponent - precision, minimum);
  // nearbyint rounds half to even in the default rounding mode.
  return std::ldexp(std::nearbyint(std::ldexp(magnitude, -last)), last);
}

uint16_t mpc::doubleToHalf(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value))
    return sign | 0x7e00;
  double magnitude = std::fabs(value);
  if (std::isinf(magnitude))
    return sign | 0x7c00;
  double rounded = magnitude == 0 ? 0 : roundTo(magnitude, 11, -24);
  if (rounded > 65504)
    return sign | 0x7c00;
  if (rounded < 0x1p-14) // subnormal: a multiple of 2^-24
    return sign | static_cast<uint16_t>(rounded * 0x1p24);
  int exponent;
  double fraction = std::frexp(rounded, &exponent); // [1/2, 1)
  return sign | static_cast<uint16_t>(((exponent + 14) << 10) +
                                      (static_cast<int>(fraction * 2048) - 1024));
}

uint16_t mpc::doubleToBfloat(double value) {
  if (std::isnan(value))
    return 0x7fc0 | (std::signbit(value) ? 0x8000 : 0);
  double magnitude = std::fabs(value);
  double rounded =
      magnitude == 0 || std::isinf(magnitude) ? magnitude : roundTo(magnitude, 8, -133);
  float narrow = rounded > 0x1.fep127 ? std::numeric_limits<float>::infinity()
                                      : static_cast<float>(rounded); // exact
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  return static_cast<uint16_t>((bits >> 16) | (std::signbit(value) ? 0x8000 : 0));
}
