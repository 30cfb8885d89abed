//===- NpyTest.cpp - NumPy files read, written, and refused -----------------------------------===//

#include "runtime/data/Npy.h"
#include "FakeTrainer.h"
#include <zlib.h>

using namespace mpc;
using namespace mpc::testing;

namespace {

/// A version 1 file with the given dictionary and raw bytes.
std::string npy(const std::string &dictionary, const std::string &data) {
  std::string text = dictionary + "\n";
  std::string result = "\x93NUMPY";
  result += '\1';
  result += '\0';
  result += static_cast<char>(text.size() & 255);
  result += static_cast<char>(text.size() >> 8);
  return result + text + data;
}

template <typename T> std::string raw(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char *>(values.begin()), values.size() * sizeof(T));
}

std::string dictionary(const std::string &type, const std::string &shape, bool fortran = false) {
  return "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }";
}

Array parse(const std::string &bytes) {
  auto owner = std::make_shared<std::string>(bytes);
  return parseNpy(reinterpret_cast<const unsigned char *>(owner->data()), owner->size(), owner,
                  "'x.npy'");
}

std::vector<double> values(const Array &array) {
  std::vector<double> result;
  for (int64_t i = 0; i < array.elements(); ++i)
    result.push_back(elementAsDouble(array, i));
  return result;
}

using Doubles = std::vector<double>;

} // namespace

TEST(Npy, ReadsEveryNumberType) {
  EXPECT_EQ(values(parse(npy(dictionary("|b1", "(2,)"), raw<char>({0, 1})))), (Doubles{0, 1}));
  EXPECT_EQ(values(parse(npy(dictionary("|i1", "(2,)"), raw<int8_t>({-5, 7})))), (Doubles{-5, 7}));
  EXPECT_EQ(values(parse(npy(dictionary("<u2", "(1,)"), raw<uint16_t>({65535})))),
            (Doubles{65535}));
  EXPECT_EQ(values(parse(npy(dictionary("<i8", "(1,)"), raw<int64_t>({-1ll << 40})))),
            (Doubles{-0x1p40}));
  EXPECT_EQ(values(parse(npy(dictionary("<f2", "(3,)"), raw<uint16_t>({0x3c00, 0x0001, 0xfbff})))),
            (Doubles{1, 0x1p-24, -65504}));
  EXPECT_EQ(values(parse(npy(dictionary("<f8", "()"), raw<double>({0.1})))), (Doubles{0.1}));
  EXPECT_EQ(values(parse(npy(dictionary("<V2", "(1,)"), raw<uint16_t>({0x3f80})))), (Doubles{1}));
}

TEST(Npy, UndoesForeignEndianness) {
  Array array = parse(npy(dictionary(">f4", "(2,)"), std::string("\x3f\x80\0\0\xc0\0\0\0", 8)));
  EXPECT_EQ(values(array), (Doubles{1, -2}));
}

// Memory order is not the dimensions' order: a file in Fortran order read as C order has the
// right shape and mixed-up values.
TEST(Npy, UndoesFortranOrder) {
  // [[1, 2, 3], [4, 5, 6]]
  Array array = parse(npy(dictionary("<f4", "(2, 3)", true), raw<float>({1, 4, 2, 5, 3, 6})));
  EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(values(array), (Doubles{1, 2, 3, 4, 5, 6}));
  // A[i][j][k] = 100 i + 10 j + k, first axis fastest, big-endian.
  std::string data;
  for (int16_t k = 0; k < 2; ++k)
    for (int16_t j = 0; j < 3; ++j)
      for (int16_t i = 0; i < 2; ++i) {
        int16_t value = static_cast<int16_t>(100 * i + 10 * j + k);
        data += static_cast<char>(value >> 8);
        data += static_cast<char>(value);
      }
  EXPECT_EQ(values(parse(npy(dictionary(">i2", "(2, 3, 2)", true), data))),
            (Doubles{0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121}));
}

TEST(Npy, NamesWhatIsWrongWithAFile) {
  std::string good = npy(dictionary("<f4", "(2, 3)"), raw<float>({1, 2, 3, 4, 5, 6}));
  auto refused = [](const std::string &bytes) { return messageOf([&] { parse(bytes); }); };
  std::string shorter = refused(good.substr(0, good.size() - 9));
  EXPECT_CONTAINS(shorter, "'x.npy' is cut off");
  EXPECT_CONTAINS(shorter, "wants 24 bytes after the header, 15 found");
  EXPECT_CONTAINS(refused(good + "abc"), "24 bytes after the header, 27 found");
  EXPECT_CONTAINS(refused(good.substr(0, 40)), "cut off in its header");
  EXPECT_CONTAINS(refused(raw<float>({1, 2, 3, 4})), "does not start with \\x93NUMPY");
  EXPECT_CONTAINS(refused(""), "is not an .npy file");
  EXPECT_CONTAINS(refused(npy(dictionary("<c8", "(1,)"), "12345678")), "'<c8' cannot be read");
  EXPECT_CONTAINS(refused(npy(dictionary("|O", "(1,)"), "")), "'|O' cannot be read");
  EXPECT_CONTAINS(refused(npy("{'descr': [('a', '<f4')], }", "")), "structured");
  EXPECT_CONTAINS(refused(npy(dictionary("<f4", "(4294967296, 4294967296)"), "")),
                  "more than 2^63");
  EXPECT_CONTAINS(refused(npy(dictionary("<f4", "(99999999999999999999,)"), "")), "63 bits");
  EXPECT_CONTAINS(refused(npy("{'descr': '<f4', 'shape': (1,)", "1234")), "expected");
  EXPECT_CONTAINS(refused(npy("{'descr': '<f4', 'shape': (1,)}", "1234")), "'fortran_order'");
  std::string described = dictionary("<f4", "(1,)");
  for (const char *padding : {"", "\n", "   \n"})
    EXPECT_EQ(refused(npy(described + padding, "1234")), "") << padding;
  for (const std::string &behind : {std::string(1, '\0'), std::string(" x\n"), described})
    EXPECT_CONTAINS(refused(npy(described + behind, "1234")), "behind the dictionary") << behind;
  std::string future = good;
  future[6] = 9;
  EXPECT_CONTAINS(refused(future), "version 9");
}

TEST(Npy, ConvertsOnlyWhatLosesNothing) {
  Array wide = parse(npy(dictionary("<f8", "(2, 2)"), raw<double>({1, 0.5, 0.25, 0.1})));
  std::string message = messageOf([&] { converted(wide, ElementType::f32); });
  EXPECT_CONTAINS(message, "element [1, 1] is 0.1 (float64)");
  Array exact = parse(npy(dictionary("<f8", "(3,)"), raw<double>({1, 0.5, NAN})));
  EXPECT_EQ(converted(exact, ElementType::f32).type, FileType::f32);
  Array large = parse(npy(dictionary("<i4", "(1,)"), raw<int32_t>({16777217})));
  EXPECT_NE(messageOf([&] { converted(large, ElementType::f32); }), "");
  EXPECT_EQ(elementAsInteger(converted(large, ElementType::i64), 0), 16777217);
  Array unsignedLarge = parse(npy(dictionary("<u8", "(1,)"), raw<uint64_t>({1ull << 63})));
  EXPECT_NE(messageOf([&] { converted(unsignedLarge, ElementType::i64); }), "");
  EXPECT_NE(messageOf([&] { converted(exact, ElementType::i64); }), "");
  Array bytes = parse(npy(dictionary("|u1", "(2,)"), raw<uint8_t>({0, 255})));
  EXPECT_EQ(elementAsDouble(converted(bytes, ElementType::f16), 1), 255);
  EXPECT_NE(messageOf([&] { converted(bytes, ElementType::i8); }), "");
  EXPECT_NE(messageOf([&] { converted(bytes, ElementType::i1); }), "");
}

TEST(Npy, RoundsHalvesOnceToNearestEven) {
  EXPECT_EQ(doubleToHalf(65519.99), 0x7bff);
  EXPECT_EQ(doubleToHalf(65520), 0x7c00);
  EXPECT_EQ(doubleToHalf(0x1p-25), 0);
  EXPECT_EQ(doubleToHalf(3e-8), 1);
  EXPECT_EQ(doubleToHalf(1e-4), 0x068e);
  EXPECT_EQ(halfToDouble(doubleToHalf(1 + 0x1p-11 + 0x1p-30)), 1.0009765625);
  EXPECT_EQ(bfloatToDouble(doubleToBfloat(65504)), 65536);
  EXPECT_EQ(bfloatToDouble(doubleToBfloat(0.1)), 0.10009765625);
  EXPECT_EQ(doubleToBfloat(3.4e38), 0x7f80);
  for (uint32_t bits = 0; bits < 0x7c00; ++bits)
    ASSERT_EQ(doubleToHalf(halfToDouble(static_cast<uint16_t>(bits))), bits);
  for (uint32_t bits = 0; bits <= 0x7f80; ++bits)
    ASSERT_EQ(doubleToBfloat(bfloatToDouble(static_cast<uint16_t>(bits))), bits);
}

TEST(Npy, WritesWhatItReads) {
  TemporaryFolder folder;
  float values[] = {1, 2, 3, 4};
  NpyWriter one(folder / "a.npy", {{"y", ElementType::f32, {2, 2}}});
  one.append(0, values, 1);
  one.append(0, values + 1, 3);
  one.commit();
  Array back = readNpy(folder / "a.npy");
  EXPECT_EQ(back.shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(::values(back), (Doubles{1, 2, 3, 4}));

  int64_t numbers[] = {7, 8};
  NpyWriter two(folder / "b.npz", {{"y", ElementType::f32, {4}}, {"a/b é", ElementType::i64, {2}}});
  two.append(0, values, 2);
  two.append(1, numbers, 2);
  two.append(0, values + 2, 2);
  two.commit();
  EXPECT_EQ(::values(readNpy(folder / "b.npz:y")), (Doubles{1, 2, 3, 4}));
  EXPECT_EQ(::values(readNpy(folder / "b.npz:a/b é")), (Doubles{7, 8}));
  EXPECT_CONTAINS(messageOf([&] { readNpy(folder / "b.npz:z"); }), "it has 'y', 'a/b é'");
  EXPECT_CONTAINS(messageOf([&] { readNpy(folder / "b.npz"); }), "several arrays");
  EXPECT_CONTAINS(messageOf([&] {
                    NpyWriter(folder / "c.npy",
                              {{"y", ElementType::f32, {}}, {"z", ElementType::f32, {}}});
                  }),
                  "2 arrays need an .npz file");
  // A writer that is not committed leaves nothing.
  {
    NpyWriter unfinished(folder / "d.npy", {{"y", ElementType::f32, {4}}});
  }
  std::set<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(folder.path))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"a.npy", "b.npz"}));
}

namespace {
/// An archive with one deflated member, as numpy.savez_compressed writes it.
std::string deflatedArchive(const std::string &name, const std::string &content) {
  std::string packed(content.size() + 100, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef *>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  auto number = [](uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i)
      text += static_cast<char>(value >> (8 * i));
    return text;
  };
  uint64_t crc =
      crc32(0, reinterpret_cast<const Bytef *>(content.data()), static_cast<uInt>(content.size()));
  std::string common = number(20, 2) + number(0, 2) + number(8, 2) + number(0, 4) + number(crc, 4) +
                       number(packed.size(), 4) + number(content.size(), 4) +
                       number(name.size(), 2) + number(0, 2);
  std::string local = "PK\3\4" + common + name + packed;
  std::string directory =
      "PK\1\2" + number(20, 2) + common + number(0, 2 + 2 + 2) + number(0, 4) + number(0, 4) + name;
  return local + directory + "PK\5\6" + number(0, 4) + number(1, 2) + number(1, 2) +
         number(directory.size(), 4) + number(local.size(), 4) + number(0, 2);
}
} // namespace

TEST(Npy, ReadsCompressedMembersAndNoticesDamage) {
  TemporaryFolder folder;
  std::string content = npy(dictionary("<f4", "(1000,)"), std::string(4000, '\0'));
  std::string archive = deflatedArchive("x.npy", content);
  writeBytes(folder / "a.npz", archive);
  EXPECT_EQ(readNpy(folder / "a.npz:x").elements(), 1000);
  EXPECT_EQ(readNpy(folder / "a.npz").elements(), 1000);
  // Any byte changed and any cut: an error or the same values, never a crash.
  for (size_t at = 0; at < archive.size(); ++at) {
    std::string damaged = archive;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    writeBytes(folder / "b.npz", damaged);
    messageOf([&] { EXPECT_EQ(readNpy(folder / "b.npz:x").elements(), 1000); });
    writeBytes(folder / "b.npz", archive.substr(0, at));
    EXPECT_NE(messageOf([&] { readNpy(folder / "b.npz:x"); }), "");
  }
}

TEST(Npy, RefusesWhatIsNoFile) {
  TemporaryFolder folder;
  EXPECT_CONTAINS(messageOf([&] { readNpy(folder / "none.npy"); }), "No such file");
  EXPECT_CONTAINS(messageOf([&] { readNpy(folder.path); }), "not a regular file");
  EXPECT_CONTAINS(messageOf([&] { NpyWriter(folder / "no/a.npy", {{"y", ElementType::f32, {}}}); }),
                  "No such file");
  // A full disk: the message says so.
  EXPECT_CONTAINS(messageOf([&] {
                    OutputFile file("/dev/full");
                    file.write("x", 1);
                    file.commit();
                  }),
                  "No space left");
}
