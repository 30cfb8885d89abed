//===- Zip.cpp - the archive around .npz members -------------------------------------===//
//
// Every offset and size of a file that is read is checked against the file's length before
// it is used, and a member's claimed size against what its compressed bytes can hold, so that
// a damaged archive neither crashes nor allocates more than it could contain.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/Zip.h"
#include "runtime/core/Error.h"
#include <algorithm>
#include <cstring>
#include <zlib.h>

using namespace mpc;

namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr uint64_t kMark32 = 0xffffffffu;
constexpr size_t kLocalSize = 30, kDirectorySize = 46, kEndSize = 22;

/// Little-endian integer of `bytes` bytes.
uint64_t number(const unsigned char *from, int bytes) {
  uint64_t value = 0;
  for (int i = bytes; i-- > 0;)
    value = value << 8 | from[i];
  return value;
}

void put(std::string &to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    to += static_cast<char>(value >> (8 * i));
}

uint32_t crcOf(uint32_t crc, const void *bytes, uint64_t size) {
  const Bytef *from = static_cast<const Bytef *>(bytes);
  while (size > 0) {
    uInt part = static_cast<uInt>(std::min<uint64_t>(size, 1u << 30));
    crc = static_cast<uint32_t>(crc32(crc, from, part));
    from += part;
    size -= part;
  }
  return crc;
}

bool isAscii(const std::string &text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; });
}

/// Fields that the local and the directory header share, from "version needed" to "extra length".
/// Sizes of 2^32 and more go to the ZIP64 extra field.
std::string commonFields(const std::string &name, uint32_t crc, uint64_t size, size_t extra) {
  std::string fields;
  put(fields, extra ? 45 : 20, 2);
  put(fields, isAscii(name) ? 0 : 0x800, 2); // names are UTF-8
  put(fields, 0, 2);                         // stored
  put(fields, 0, 2);                         // time
  put(fields, 0x21, 2);                      // 1 January 1980: the same bytes at any time
  put(fields, crc, 4);
  uint64_t shown = std::min(size, kMark32);
  put(fields, shown, 4);
  put(fields, shown, 4);
  put(fields, name.size(), 2);
  put(fields, extra, 2);
  return fields;
}

std::string localHeader(const std::string &name, uint32_t crc, uint64_t size) {
  std::string extra;
  if (size >= kMark32) {
    put(extra, 1, 2);
    put(extra, 16, 2);
    put(extra, size, 8);
    put(extra, size, 8);
  }
  std::string header;
  put(header, kLocalHeader, 4);
  return header + commonFields(name, crc, size, extra.size()) + name + extra;
}

std::string directoryHeader(const std::string &name, uint32_t crc, uint64_t size, uint64_t offset) {
  std::string extra;
  if (size >= kMark32) {
    put(extra, size, 8);
    put(extra, size, 8);
  }
  if (offset >= kMark32)
    put(extra, offset, 8);
  if (!extra.empty()) {
    std::string head;
    put(head, 1, 2);
    put(head, extra.size(), 2);
    extra = head + extra;
  }
  std::string header;
  put(header, kDirectoryHeader, 4);
  put(header, 45, 2); // made by: MS-DOS, no file attributes
  header += commonFields(name, crc, size, extra.size());
  put(header, 0, 2); // comment
  put(header, 0, 2); // disk
  put(header, 0, 2); // internal attributes
  put(header, 0, 4); // external attributes
  put(header, std::min(offset, kMark32), 4);
  return header + name + extra;
}

std::string endRecords(uint64_t count, uint64_t offset, uint64_t size) {
  std::string records;
  if (count >= 0xffff || offset >= kMark32 || size >= kMark32) {
    put(records, kEnd64, 4);
    put(records, 44, 8);
    put(records, 45, 2);
    put(records, 45, 2);
    put(records, 0, 4);
    put(records, 0, 4);
    put(records, count, 8);
    put(records, count, 8);
    put(records, size, 8);
    put(records, offset, 8);
    put(records, kEnd64Locator, 4);
    put(records, 0, 4);
    put(records, offset + size, 8);
    put(records, 1, 4);
  }
  put(records, kEnd, 4);
  put(records, 0, 2);
  put(records, 0, 2);
  put(records, std::min<uint64_t>(count, 0xffff), 2);
  put(records, std::min<uint64_t>(count, 0xffff), 2);
  put(records, std::min(size, kMark32), 4);
  put(records, std::min(offset, kMark32), 4);
  put(records, 0, 2);
  return records;
}

/// The ZIP64 extra field holds, in this order, those values whose 32-bit fields are all ones.
void readExtra64(const unsigned char *extra, size_t length, ZipMember &member) {
  while (length >= 4) {
    uint64_t kind = number(extra, 2), size = number(extra + 2, 2);
    extra += 4;
    length -= 4;
    if (size > length)
      return;
    if (kind == 1) {
      const unsigned char *at = extra, *end = extra + size;
      for (uint64_t *field : {&member.size, &member.compressed, &member.header})
        if (*field == kMark32 && end - at >= 8) {
          *field = number(at, 8);
          at += 8;
        }
    }
    extra += size;
    length -= size;
  }
}

} // namespace

ZipReader::ZipReader(const std::string &path)
    : path(path), file(std::make_shared<MappedFile>(path)) {
  readDirectory();
}

void ZipReader::damaged(const std::string &why) const {
  throw Error(quote(path) + " is not a whole .npz file: " + why);
}

void ZipReader::readDirectory() {
  const unsigned char *bytes = file->data();
  uint64_t size = file->size();
  if (size < kEndSize)
    damaged("it has " + std::to_string(size) + " bytes");
  // The end record is followed by a comment of at most 2^16 - 1 bytes.
  uint64_t at = size - kEndSize, lowest = at > 0xffff ? at - 0xffff : 0;
  while (number(bytes + at, 4) != kEnd) {
    if (at == lowest)
      damaged("no directory at its end (cut off?)");
    --at;
  }
  uint64_t count = number(bytes + at + 10, 2), length = number(bytes + at + 12, 4),
           offset = number(bytes + at + 16, 4);
  if (at >= 20 && number(bytes + at - 20, 4) == kEnd64Locator) {
    uint64_t record = number(bytes + at - 12, 8);
    if (size < 56 || record > size - 56 || number(bytes + record, 4) != kEnd64)
      damaged("its 64-bit end record is missing");
    count = number(bytes + record + 32, 8);
    length = number(bytes + record + 40, 8);
    offset = number(bytes + record + 48, 8);
  }
  if (offset > size || length > size - offset)
    damaged("its directory wants bytes " + std::to_string(offset) + " to " +
            std::to_string(offset + length) + ", the file has " + std::to_string(size));
  uint64_t end = offset + length;
  for (uint64_t i = 0; i < count; ++i) {
    if (end - offset < kDirectorySize || number(bytes + offset, 4) != kDirectoryHeader)
      damaged("entry " + std::to_string(i) + " of its directory is damaged");
    const unsigned char *entry = bytes + offset;
    uint64_t name = number(entry + 28, 2), extra = number(entry + 30, 2),
             comment = number(entry + 32, 2);
    if (end - offset - kDirectorySize < name + extra + comment)
      damaged("entry " + std::to_string(i) + " of its directory is cut off");
    ZipMember member;
    member.method = static_cast<uint16_t>(number(entry + 10, 2));
    member.crc = static_cast<uint32_t>(number(entry + 16, 4));
    member.compressed = number(entry + 20, 4);
    member.size = number(entry + 24, 4);
    member.header = number(entry + 42, 4);
    member.name.assign(reinterpret_cast<const char *>(entry + kDirectorySize), name);
    readExtra64(entry + kDirectorySize + name, extra, member);
    if (number(entry + 8, 2) & 1)
      damaged("member " + quote(member.name) + " is encrypted");
    directory.push_back(std::move(member));
    offset += kDirectorySize + name + extra + comment;
  }
}

ZipBytes ZipReader::read(const ZipMember &member) const {
  const unsigned char *bytes = file->data();
  uint64_t size = file->size();
  std::string what = "member " + quote(member.name);
  if (size < kLocalSize || member.header > size - kLocalSize ||
      number(bytes + member.header, 4) != kLocalHeader)
    damaged(what + " has no header at byte " + std::to_string(member.header));
  uint64_t data = member.header + kLocalSize + number(bytes + member.header + 26, 2) +
                  number(bytes + member.header + 28, 2);
  if (data > size || member.compressed > size - data)
    damaged(what + " wants " + std::to_string(member.compressed) + " bytes, found " +
            std::to_string(data > size ? 0 : size - data));
  ZipBytes result;
  result.size = member.size;
  if (member.method == 0) {
    if (member.size != member.compressed)
      damaged(what + " has two different sizes");
    result.data = bytes + data;
    result.owner = file;
  } else if (member.method == 8) {
    // Deflate cannot shrink by more than 1032 : 1.
    if (member.size / 1032 > member.compressed + 1)
      damaged(what + " claims " + std::to_string(member.size) + " bytes, more than its " +
              std::to_string(member.compressed) + " compressed bytes can hold");
    auto storage = std::make_shared<std::vector<unsigned char>>(member.size);
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
      throw Error("out of memory while reading " + quote(path));
    uint64_t in = 0, out = 0;
    int state = Z_OK;
    while (state == Z_OK) {
      uInt take = static_cast<uInt>(std::min<uint64_t>(member.compressed - in, 1u << 30));
      uInt give = static_cast<uInt>(std::min<uint64_t>(member.size - out, 1u << 30));
      stream.next_in = const_cast<Bytef *>(bytes + data + in);
      stream.avail_in = take;
      stream.next_out = storage->data() + out;
      stream.avail_out = give;
      state = inflate(&stream, Z_NO_FLUSH);
      in += take - stream.avail_in;
      out += give - stream.avail_out;
    }
    inflateEnd(&stream);
    if (state != Z_STREAM_END || out != member.size)
      damaged(what + " wants " + std::to_string(member.size) + " bytes, found " +
              std::to_string(out) + " before its compressed data end or break");
    result.data = storage->data();
    result.owner = storage;
  } else {
    damaged(what + " is compressed by method " + std::to_string(member.method) +
            "; only stored and deflated members can be read");
  }
  if (crcOf(0, result.data, result.size) != member.crc)
    damaged(what + " does not have its checksum");
  return result;
}

size_t ZipWriter::add(const std::string &name, uint64_t size) {
  if (name.size() > 0xffff)
    throw Error("cannot write " + quote(path) + ": a name of " + std::to_string(name.size()) +
                " bytes does not fit an .npz file");
  Member member{name, size, end, 0};
  member.data = end + localHeader(name, 0, size).size();
  end = member.data + size;
  members.push_back(std::move(member));
  return members.size() - 1;
}

void ZipWriter::append(size_t index, const void *bytes, size_t size) {
  Member &member = members[index];
  file.patch(member.data + member.filled, bytes, size);
  member.crc = crcOf(member.crc, bytes, size);
  member.filled += size;
}

void ZipWriter::commit() {
  std::string tail;
  for (const Member &member : members) {
    if (member.filled != member.size)
      throw Error("cannot write " + quote(path) + ": member " + quote(member.name) +
                  " is incomplete");
    std::string header = localHeader(member.name, member.crc, member.size);
    file.patch(member.header, header.data(), header.size());
    tail += directoryHeader(member.name, member.crc, member.size, member.header);
  }
  tail += endRecords(members.size(), end, tail.size());
  file.patch(end, tail.data(), tail.size());
  file.commit();
}
