//===- Npy.cpp - NumPy's array files -------------------------------------------------===//
//
// A header is text (a Python dictionary), followed by raw elements. All that the text says is
// checked against the file's length before anything is allocated. Fortran order and foreign
// endianness are undone here, so that nobody behind this file knows of them.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/Npy.h"
#include "runtime/core/Error.h"
#include <algorithm>
#include <cstring>
#include <sys/stat.h>

using namespace mpc;

namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicSize = 6;
/// Bytes of a damaged header that a message shows.
constexpr size_t kShown = 80;

struct Header {
  FileType type = FileType::f32;
  bool swapped = false; ///< big-endian
  bool fortran = false;
  std::vector<int64_t> shape;
};

/// Reads the dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
public:
  HeaderParser(std::string text, const std::string &source)
      : text(std::move(text)), source(source) {}

  Header parse() {
    expect('{');
    while (!accept('}')) {
      std::string key = string();
      expect(':');
      if (key == "descr")
        type(string());
      else if (key == "fortran_order")
        header.fortran = boolean();
      else if (key == "shape")
        shape();
      else
        fail("unknown header key " + quote(key.substr(0, kShown)));
      seen.push_back(key);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skipSpace(); // which aligns the elements
    if (at < text.size())
      fail("damaged .npy header: " + quote(text.substr(at, kShown)) +
           " behind the dictionary, where only spaces and a newline may be");
    for (const char *key : {"descr", "fortran_order", "shape"})
      if (std::count(seen.begin(), seen.end(), key) != 1)
        fail(std::string("the header must have one '") + key + "'");
    return header;
  }

private:
  [[noreturn]] void fail(const std::string &why) { throw Error(source + ": " + why); }
  void skipSpace() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t'))
      ++at;
  }
  bool accept(char c) {
    skipSpace();
    if (at >= text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }
  void expect(char c) {
    if (!accept(c))
      fail("damaged .npy header: '" + std::string(1, c) + "' expected at byte " +
           std::to_string(at) + " of " + quote(text.substr(0, kShown)));
  }
  std::string string() {
    skipSpace();
    if (at < text.size() && text[at] == '[')
      fail("a structured array (several fields per element) holds no tensor");
    char mark = at < text.size() ? text[at] : 0;
    if (mark != '\'' && mark != '"')
      fail("damaged .npy header: a string expected in " + quote(text.substr(0, kShown)));
    size_t end = text.find(mark, at + 1);
    if (end == std::string::npos)
      fail("damaged .npy header: a string does not end");
    std::string result = text.substr(at + 1, end - at - 1);
    at = end + 1;
    return result;
  }
  bool boolean() {
    skipSpace();
    for (bool value : {false, true}) {
      const char *word = value ? "True" : "False";
      if (text.compare(at, strlen(word), word) == 0) {
        at += strlen(word);
        return value;
      }
    }
    fail("damaged .npy header: fortran_order is neither True nor False");
  }
  void shape() {
    expect('(');
    while (!accept(')')) {
      skipSpace();
      int64_t extent = 0;
      size_t start = at;
      for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
        if (__builtin_mul_overflow(extent, int64_t(10), &extent) ||
            __builtin_add_overflow(extent, int64_t(text[at] - '0'), &extent))
          fail("an extent of the shape does not fit 63 bits");
      if (at == start)
        fail("damaged .npy header: a number expected in the shape");
      if (at < text.size() && text[at] == 'L') // written by Python 2
        ++at;
      header.shape.push_back(extent);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }
  void type(const std::string &name) {
    struct Known {
      const char *name;
      FileType type;
    };
    // NumPy has no bfloat16; ml_dtypes writes it as two raw bytes.
    static constexpr Known kKnown[] = {
        {"b1", FileType::b1},   {"i1", FileType::i8},        {"u1", FileType::u8},
        {"i2", FileType::i16},  {"u2", FileType::u16},       {"i4", FileType::i32},
        {"u4", FileType::u32},  {"i8", FileType::i64},       {"u8", FileType::u64},
        {"f2", FileType::f16},  {"f4", FileType::f32},       {"f8", FileType::f64},
        {"V2", FileType::bf16}, {"bfloat16", FileType::bf16}};
    bool ordered = !name.empty() && strchr("<>|=", name[0]);
    std::string kind = ordered ? name.substr(1) : name;
    for (const Known &known : kKnown)
      if (kind == known.name) {
        header.type = known.type;
        header.swapped = name[0] == '>';
        return;
      }
    fail("elements of type " + quote(name.substr(0, kShown)) +
         " cannot be read: bool, int8 to int64, uint8 to uint64, float16, float32 and float64 can");
  }

  std::string text;
  const std::string &source;
  size_t at = 0;
  Header header;
  std::vector<std::string> seen;
};

void swapBytes(unsigned char *bytes, size_t count, size_t size) {
  for (size_t i = 0; i < count; ++i)
    std::reverse(bytes + i * size, bytes + (i + 1) * size);
}

/// First axis fastest → last axis fastest.
std::vector<unsigned char> fromFortran(const unsigned char *from, const std::vector<int64_t> &shape,
                                       size_t size) {
  size_t count = static_cast<size_t>(elementCount(shape));
  std::vector<unsigned char> to(count * size);
  std::vector<size_t> strides(shape.size());
  size_t stride = size;
  for (size_t d = 0; d < shape.size(); ++d) {
    strides[d] = stride;
    stride *= static_cast<size_t>(shape[d]);
  }
  std::vector<int64_t> position(shape.size());
  size_t offset = 0;
  for (size_t i = 0; i < count; ++i) {
    memcpy(to.data() + i * size, from + offset, size);
    for (size_t d = shape.size(); d-- > 0;) {
      offset += strides[d];
      if (++position[d] < shape[d])
        break;
      offset -= strides[d] * static_cast<size_t>(shape[d]);
      position[d] = 0;
    }
  }
  return to;
}

Array readMember(const std::string &path, const std::string &key, bool anyKey) {
  ZipReader archive(path);
  std::string names;
  const ZipMember *found = nullptr;
  for (const ZipMember &member : archive.members()) {
    std::string name = member.name;
    if (name.size() > 4 && name.ends_with(".npy"))
      name.resize(name.size() - 4);
    names += (names.empty() ? "" : ", ") + quote(name);
    if (anyKey ? archive.members().size() == 1 : name == key || member.name == key)
      found = &member;
  }
  if (!found && anyKey)
    throw Error(quote(path) + " holds several arrays: say which, as FILE.npz:KEY with one of " +
                names);
  if (!found)
    throw Error(quote(path) + " has no array " + quote(key) + "; it has " +
                (names.empty() ? "none" : names));
  ZipBytes bytes = archive.read(*found);
  return parseNpy(bytes.data, bytes.size, bytes.owner,
                  anyKey ? quote(path) : quote(path + ":" + key));
}

} // namespace

Array mpc::readNpy(const std::string &path) {
  struct stat facts;
  size_t colon = path.find(".npz:");
  if (colon != std::string::npos && stat(path.c_str(), &facts) != 0)
    return readMember(path.substr(0, colon + 4), path.substr(colon + 5), false);
  auto file = std::make_shared<MappedFile>(path);
  if (file->size() >= 4 && memcmp(file->data(), "PK\x03\x04", 4) == 0)
    return readMember(path, "", true);
  return parseNpy(file->data(), file->size(), file, quote(path));
}

Array mpc::parseNpy(const unsigned char *bytes, uint64_t size, std::shared_ptr<const void> owner,
                    const std::string &source) {
  if (size < kMagicSize + 4 || memcmp(bytes, kMagic, kMagicSize) != 0)
    throw Error(source + " is not an .npy file: it does not start with \\x93NUMPY (" +
                std::to_string(size) + " bytes found)");
  int version = bytes[kMagicSize];
  if (version < 1 || version > 3)
    throw Error(source + ": .npy version " + std::to_string(version) +
                " is unknown; versions 1 to 3 can be read");
  size_t lengthBytes = version == 1 ? 2 : 4, start = kMagicSize + 2 + lengthBytes;
  uint64_t length = 0;
  for (size_t i = 0; i < lengthBytes && start <= size; ++i)
    length |= static_cast<uint64_t>(bytes[kMagicSize + 2 + i]) << (8 * i);
  if (start > size || length > size - start)
    throw Error(source + " is cut off in its header: " + std::to_string(start + length) +
                " bytes wanted, " + std::to_string(size) + " found");
  Header header =
      HeaderParser(std::string(reinterpret_cast<const char *>(bytes + start), length), source)
          .parse();

  size_t element = fileTypeSize(header.type);
  int64_t count = 1, wanted = 0;
  bool huge = false;
  for (int64_t extent : header.shape)
    huge |= __builtin_mul_overflow(count, extent, &count);
  huge |= __builtin_mul_overflow(count, static_cast<int64_t>(element), &wanted);
  uint64_t found = size - start - length;
  if (huge)
    throw Error(source + ": shape " + shapeText(header.shape) +
                " wants more than 2^63 bytes after the header, " + std::to_string(found) +
                " found");
  if (static_cast<uint64_t>(wanted) != found)
    throw Error(source + " is " + (static_cast<uint64_t>(wanted) < found ? "too long" : "cut off") +
                ": shape " + shapeText(header.shape) + " of " + fileTypeName(header.type) +
                " wants " + std::to_string(wanted) + " bytes after the header, " +
                std::to_string(found) + " found");

  const unsigned char *data = bytes + start + length;
  size_t large = std::count_if(header.shape.begin(), header.shape.end(),
                               [](int64_t extent) { return extent > 1; });
  bool fortran = header.fortran && large > 1;
  if (!fortran && !(header.swapped && element > 1)) {
    Array array;
    array.type = header.type;
    array.shape = std::move(header.shape);
    array.bytes = data;
    array.owner = std::move(owner);
    array.source = source;
    return array;
  }
  std::vector<unsigned char> storage = fortran ? fromFortran(data, header.shape, element)
                                               : std::vector<unsigned char>(data, data + found);
  if (header.swapped)
    swapBytes(storage.data(), static_cast<size_t>(count), element);
  return Array::make(header.type, std::move(header.shape), std::move(storage), source);
}

std::string mpc::npyHeader(FileType type, const std::vector<int64_t> &shape) {
  // In the order of FileType.
  static constexpr const char *kNames[] = {"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4",
                                           "<i8", "<u8", "<f2", "<V2", "<f4", "<f8"};
  std::string text = std::string("{'descr': '") + kNames[static_cast<size_t>(type)] +
                     "', 'fortran_order': False, 'shape': (";
  for (int64_t extent : shape)
    text += std::to_string(extent) + (shape.size() == 1 ? "," : ", ");
  if (shape.size() > 1)
    text.resize(text.size() - 2);
  text += "), }";
  size_t head = kMagicSize + 4;
  bool large = head + text.size() + 1 > 0xffff - 64;
  head += large ? 2 : 0;
  text.append(63 - (head + text.size()) % 64, ' ');
  text += '\n';
  std::string result(kMagic, kMagicSize);
  result += large ? '\2' : '\1';
  result += '\0';
  for (int i = 0; i < (large ? 4 : 2); ++i)
    result += static_cast<char>(text.size() >> (8 * i));
  return result + text;
}

static FileType writtenType(ElementType type) {
  return type == ElementType::bf16 ? FileType::f32 : fileTypeOf(type);
}

NpyWriter::NpyWriter(const std::string &path, std::vector<Item> wanted) : items(std::move(wanted)) {
  if (path.ends_with(".npz")) {
    archive = std::make_unique<ZipWriter>(path);
    std::vector<std::string> headers;
    for (const Item &item : items) {
      headers.push_back(npyHeader(writtenType(item.type), item.shape));
      uint64_t bytes =
          static_cast<uint64_t>(elementCount(item.shape)) * fileTypeSize(writtenType(item.type));
      archive->add(item.name + ".npy", headers.back().size() + bytes);
    }
    for (size_t i = 0; i < headers.size(); ++i)
      archive->append(i, headers[i].data(), headers[i].size());
    return;
  }
  if (!path.ends_with(".npy"))
    throw Error("cannot write " + quote(path) + ": its name must end in .npy or .npz");
  if (items.size() != 1)
    throw Error("cannot write " + quote(path) + ": " + std::to_string(items.size()) +
                " arrays need an .npz file");
  file = std::make_unique<OutputFile>(path);
  std::string header = npyHeader(writtenType(items[0].type), items[0].shape);
  file->write(header.data(), header.size());
}

void NpyWriter::append(size_t item, const void *values, size_t count) {
  size_t size = count * elementSize(items[item].type);
  if (items[item].type == ElementType::bf16) {
    widened.resize(count);
    convertReals(ElementType::bf16, values, ElementType::f32, widened.data(), count);
    values = widened.data();
    size = count * sizeof(float);
  }
  if (archive)
    archive->append(item, values, size);
  else
    file->write(values, size);
}

void NpyWriter::commit() {
  if (archive)
    archive->commit();
  else
    file->commit();
}
