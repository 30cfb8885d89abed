//===- Idx.cpp - MNIST's files --------------------------------------------------------===//
//
//   0 0 type rank | extents, 4 bytes each, big-endian | elements, big-endian
//
// Little-endian files and files cut off in a download are common; both are recognized here,
// because a net that just does not learn tells nobody why.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/Idx.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <zlib.h>

using namespace mpc;

namespace {

/// A file read through zlib, which passes uncompressed ones on as they are.
class GzipFile {
public:
  explicit GzipFile(const std::string &path) : path(path) {
    {
      MappedFile check(path);
    } // a folder or a missing file: the usual message
    file = gzopen(path.c_str(), "rb");
    if (!file)
      throw Error("cannot read " + systemMessage(path, errno ? errno : ENOMEM));
    gzbuffer(file, 1 << 17);
  }
  ~GzipFile() { gzclose(file); }

  /// Up to `size` bytes, fewer only at the end.
  size_t read(unsigned char *to, size_t size) {
    size_t done = 0;
    while (done < size) {
      unsigned part = static_cast<unsigned>(std::min<size_t>(size - done, 1u << 30));
      int got = gzread(file, to + done, part);
      if (got < 0) {
        int code = 0;
        const char *why = gzerror(file, &code);
        throw Error(quote(path) + " cannot be decompressed (cut off or damaged): " +
                    (code == Z_ERRNO ? strerror(errno) : why));
      }
      if (got == 0)
        break;
      done += static_cast<size_t>(got);
    }
    // A compressed file that ends too early is only reported as an error of the last read.
    int code = 0;
    const char *why = gzerror(file, &code);
    if (code != Z_OK && code != Z_STREAM_END)
      throw Error(quote(path) + " cannot be decompressed (cut off or damaged): " + why);
    return done;
  }

private:
  std::string path;
  gzFile file;
};

bool elementType(int code, FileType &type) {
  switch (code) {
  case 0x08:
    type = FileType::u8;
    return true;
  case 0x09:
    type = FileType::i8;
    return true;
  case 0x0B:
    type = FileType::i16;
    return true;
  case 0x0C:
    type = FileType::i32;
    return true;
  case 0x0D:
    type = FileType::f32;
    return true;
  case 0x0E:
    type = FileType::f64;
    return true;
  default:
    return false;
  }
}

std::string hex(const unsigned char *bytes, size_t count) {
  std::string result = "0x";
  for (size_t i = 0; i < count; ++i)
    for (int digit : {bytes[i] >> 4, bytes[i] & 15})
      result += "0123456789abcdef"[digit];
  return result;
}

} // namespace

Array mpc::readIdx(const std::string &path) {
  GzipFile file(path);
  std::string source = quote(path);
  unsigned char magic[4];
  size_t got = file.read(magic, 4);
  if (got < 4)
    throw Error(source + " is no IDX file: at least 4 bytes wanted, " + std::to_string(got) +
                " found");
  FileType type = FileType::u8;
  if (magic[0] != 0 || magic[1] != 0 || !elementType(magic[2], type)) {
    bool reversed = magic[3] == 0 && magic[2] == 0 && elementType(magic[1], type);
    throw Error(source + " is no IDX file: bad magic number " + hex(magic, 4) +
                (reversed ? " (its bytes are in little-endian order; IDX files are big-endian)"
                          : " (0x00000803 for images of bytes, 0x00000801 for labels)"));
  }
  size_t rank = magic[3], headerSize = 4 + 4 * rank;
  std::vector<unsigned char> extents(4 * rank);
  got = file.read(extents.data(), extents.size());
  if (got < extents.size())
    throw Error(source + " is cut off in its header: " + std::to_string(headerSize) +
                " bytes wanted, " + std::to_string(4 + got) + " found");
  std::vector<int64_t> shape(rank);
  size_t element = fileTypeSize(type);
  int64_t wanted = static_cast<int64_t>(element);
  bool huge = false;
  for (size_t d = 0; d < rank; ++d) {
    for (size_t i = 0; i < 4; ++i)
      shape[d] = shape[d] << 8 | extents[4 * d + i];
    huge |= __builtin_mul_overflow(wanted, shape[d], &wanted);
  }

  // Grows with what is there, never with what the header claims.
  std::vector<unsigned char> bytes;
  uint64_t limit = huge ? UINT64_MAX : static_cast<uint64_t>(wanted);
  for (bool more = true; more && bytes.size() < limit;) {
    size_t block =
        std::min<uint64_t>(limit - bytes.size(), std::max<size_t>(1 << 20, bytes.size()));
    size_t before = bytes.size();
    bytes.resize(before + block);
    size_t part = file.read(bytes.data() + before, block);
    bytes.resize(before + part);
    more = part == block;
    if (huge && bytes.size() > (1u << 20))
      break; // nothing can be that large
  }
  if (huge || bytes.size() < limit)
    throw Error(source + " is cut off: shape " + shapeText(shape) + " of " + fileTypeName(type) +
                " (by its magic number " + hex(magic, 4) + ") wants " +
                (huge ? "more than 2^63" : std::to_string(wanted)) + " bytes after the header, " +
                std::to_string(bytes.size()) + " found");
  unsigned char extra;
  if (file.read(&extra, 1) == 1)
    throw Error(source + " is too long: shape " + shapeText(shape) + " of " + fileTypeName(type) +
                " wants " + std::to_string(wanted) + " bytes after the header, more are found");
  if (element > 1)
    for (size_t i = 0; i < bytes.size(); i += element)
      std::reverse(bytes.begin() + static_cast<ptrdiff_t>(i),
                   bytes.begin() + static_cast<ptrdiff_t>(i + element));
  return Array::make(type, std::move(shape), std::move(bytes), source);
}
