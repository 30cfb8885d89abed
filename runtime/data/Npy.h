//===- Npy.h - NumPy's array files ---------------------------------------------------===//
//
// The format of numpy.lib.format, versions 1 to 3, alone (.npy) or in an archive (.npz).
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_DATA_NPY_H
#define MPC_RUNTIME_DATA_NPY_H

#include "runtime/data/Array.h"
#include "runtime/data/Zip.h"

namespace mpc {

/// Reads FILE.npy, FILE.npz:KEY, or FILE.npz if it has one member. A plain file in C order and
/// this machine's endianness is mapped, everything else becomes an array in memory. Throws
/// Error naming the file: not an .npy, cut off (bytes wanted and found), a type that holds no
/// numbers.
Array readNpy(const std::string &path);

/// As above from memory; `owner` keeps `bytes` alive, `source` is the quoted name for messages.
Array parseNpy(const unsigned char *bytes, uint64_t size, std::shared_ptr<const void> owner,
               const std::string &source);

/// Magic, version and header of a C-order array; its length is a multiple of 64.
std::string npyHeader(FileType type, const std::vector<int64_t> &shape);

/// One .npy or one .npz, filled in order per array. The kind follows the file's name.
class NpyWriter {
public:
  struct Item {
    std::string name;
    ElementType type; ///< bf16 is written as float32: NumPy has no such type
    std::vector<int64_t> shape;
  };
  /// Throws Error where several arrays are wanted in an .npy, or the name ends in neither.
  NpyWriter(const std::string &path, std::vector<Item> items);
  /// The next `count` elements of array `item`, in its type.
  void append(size_t item, const void *values, size_t count);
  void commit();

private:
  std::vector<Item> items;
  std::unique_ptr<OutputFile> file;
  std::unique_ptr<ZipWriter> archive;
  std::vector<float> widened;
};

} // namespace mpc

#endif // MPC_RUNTIME_DATA_NPY_H
