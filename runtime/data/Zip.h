//===- Zip.h - the archive around .npz members --------------------------------------===//
//
// APPNOTE 6.3: stored and deflated members, 64-bit sizes.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_DATA_ZIP_H
#define MPC_RUNTIME_DATA_ZIP_H

#include "runtime/data/File.h"
#include <memory>
#include <string>
#include <vector>

namespace mpc {

struct ZipMember {
  std::string name;
  uint16_t method = 0; ///< 0 stored, 8 deflated
  uint32_t crc = 0;
  uint64_t compressed = 0, size = 0;
  uint64_t header = 0; ///< offset of its local header
};

/// Bytes with what keeps them alive.
struct ZipBytes {
  const unsigned char *data = nullptr;
  uint64_t size = 0;
  std::shared_ptr<const void> owner;
};

class ZipReader {
public:
  /// Reads the central directory. Throws Error naming the file where it is damaged.
  explicit ZipReader(const std::string &path);
  const std::vector<ZipMember> &members() const { return directory; }
  /// The member's bytes, checked against its CRC; a stored member is not copied.
  ZipBytes read(const ZipMember &member) const;

private:
  [[noreturn]] void damaged(const std::string &why) const;
  void readDirectory();

  std::string path;
  std::shared_ptr<MappedFile> file;
  std::vector<ZipMember> directory;
};

/// Writes stored members whose sizes are known before their bytes are: several can be filled
/// side by side, each in order.
class ZipWriter {
public:
  explicit ZipWriter(const std::string &path) : file(path), path(path) {}
  /// Declares a member; all before the first append().
  size_t add(const std::string &name, uint64_t size);
  void append(size_t member, const void *bytes, size_t size);
  /// Directory and rename; every member must be full.
  void commit();

private:
  struct Member {
    std::string name;
    uint64_t size, header, data, filled = 0;
    uint32_t crc = 0;
  };
  OutputFile file;
  std::string path;
  std::vector<Member> members;
  uint64_t end = 0;
};

} // namespace mpc

#endif // MPC_RUNTIME_DATA_ZIP_H
