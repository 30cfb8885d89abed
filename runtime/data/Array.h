//===- Array.h - arrays as files hold them -----------------------------------------===//
//
// What a data file holds: an element type (files know more types than programs do), a shape
// and bytes in C order of this machine's endianness. Conversions to a program's type are
// exact or refused: a value that would change is named.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_DATA_ARRAY_H
#define MPC_RUNTIME_DATA_ARRAY_H

#include "runtime/core/Program.h"
#include "runtime/core/ProgramCheck.h"
#include <memory>
#include <string>
#include <vector>

namespace mpc {

/// Element types of files.
enum class FileType : uint8_t { b1, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64 };
size_t fileTypeSize(FileType type);
const char *fileTypeName(FileType type); ///< "float32", as NumPy calls it
bool isFloat(FileType type);
bool isFloat(ElementType type);
FileType fileTypeOf(ElementType type);

/// Product of the extents; throws Error if it does not fit 63 bits.
int64_t elementCount(const std::vector<int64_t> &shape);

/// Immutable; copies share the bytes. `bytes` may be unaligned (a member of an archive).
struct Array {
  FileType type = FileType::f32;
  std::vector<int64_t> shape;
  const unsigned char *bytes = nullptr;
  std::shared_ptr<const void> owner; ///< keeps `bytes` alive: a mapped file or a vector
  std::string source;                ///< file (and member), quoted, for messages

  int64_t elements() const;
  size_t byteSize() const { return static_cast<size_t>(elements()) * fileTypeSize(type); }
  /// A new array over `storage`.
  static Array make(FileType type, std::vector<int64_t> shape, std::vector<unsigned char> storage,
                    std::string source);
};

/// Element `index` in decimal, for messages ("0.1", "-3", "true").
std::string elementText(const Array &array, int64_t index);
/// Element `index` as a double / as an integer (integer types only; a u64 above 2^63 saturates).
double elementAsDouble(const Array &array, int64_t index);
int64_t elementAsInteger(const Array &array, int64_t index);

/// The array in a program's element type. Shares the bytes where the type is the same. Throws
/// Error naming the first element that the type cannot hold, or floats where integers are wanted.
Array converted(const Array &array, ElementType type);

/// Converts rounded values: f64/f32/f16/bf16 from f64/f32 memory (results, checkpoints, export).
void convertReals(ElementType from, const void *source, ElementType to, void *destination,
                  size_t count);
double halfToDouble(uint16_t bits);
double bfloatToDouble(uint16_t bits);
uint16_t doubleToHalf(double value); ///< one rounding, to nearest even
uint16_t doubleToBfloat(double value);

} // namespace mpc

#endif // MPC_RUNTIME_DATA_ARRAY_H
