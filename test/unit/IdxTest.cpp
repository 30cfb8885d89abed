//===- IdxTest.cpp - MNIST's and CIFAR's files, whole and damaged --------------------===//

#include "runtime/data/Idx.h"
#include "FakeTrainer.h"
#include "runtime/data/Cifar10.h"
#include <sys/resource.h>
#include <zlib.h>

using namespace mpc;
using namespace mpc::testing;

namespace {

std::string bigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string idx(unsigned char type, const std::vector<uint32_t> &shape, const std::string &data) {
  std::string result = {0, 0, static_cast<char>(type), static_cast<char>(shape.size())};
  for (uint32_t extent : shape)
    result += bigEndian(extent);
  return result + data;
}

class IdxFiles : public ::testing::Test {
protected:
  std::string refused(const std::string &bytes) {
    writeBytes(folder / "x-idx3-ubyte", bytes);
    std::string message = messageOf([&] { readIdx(folder / "x-idx3-ubyte"); });
    EXPECT_CONTAINS(message, "x-idx3-ubyte'");
    return message;
  }
  TemporaryFolder folder;
  std::string pixels = std::string("\0\1\2\3\4\5\6\7\x08\x09\x0a\xff", 12);
};

} // namespace

TEST_F(IdxFiles, ReadsImagesLabelsAndOtherTypes) {
  writeBytes(folder / "x", idx(8, {3, 2, 2}, pixels));
  Array images = readIdx(folder / "x");
  EXPECT_EQ(images.shape, (std::vector<int64_t>{3, 2, 2}));
  EXPECT_EQ(elementAsInteger(images, 11), 255);
  writeBytes(folder / "f", idx(0x0d, {1}, bigEndian(0x3f800000)));
  EXPECT_EQ(elementAsDouble(readIdx(folder / "f"), 0), 1);
  writeBytes(folder / "i", idx(0x0c, {2}, bigEndian(5) + bigEndian(0xffffffff)));
  EXPECT_EQ(elementAsInteger(readIdx(folder / "i"), 1), -1);
}

TEST_F(IdxFiles, ReadsGzipByContent) {
  gzFile file = gzopen((folder / "x").c_str(), "wb");
  std::string bytes = idx(8, {3, 2, 2}, pixels);
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  EXPECT_EQ(readIdx(folder / "x").elements(), 12);
  std::string packed = readBytes(folder / "x");
  for (size_t size = 2; size < packed.size(); ++size) // every cut
    refused(packed.substr(0, size));
}

TEST_F(IdxFiles, NamesFileAndBytes) {
  std::string good = idx(8, {3, 2, 2}, pixels);
  EXPECT_CONTAINS(refused(good.substr(0, good.size() - 9)),
                  "wants 12 bytes after the header, 3 found");
  EXPECT_CONTAINS(refused(good + "abc"), "too long");
  EXPECT_CONTAINS(refused(good.substr(0, 16)), "wants 12 bytes after the header, 0 found");
  EXPECT_CONTAINS(refused(good.substr(0, 9)), "cut off in its header: 16 bytes wanted, 9 found");
  EXPECT_CONTAINS(refused(""), "at least 4 bytes wanted, 0 found");
  EXPECT_CONTAINS(refused("\1\2\3\4" + good), "bad magic number 0x01020304");
  std::string little = good;
  std::reverse(little.begin(), little.begin() + 4);
  EXPECT_CONTAINS(refused(little), "little-endian");
}

// A header that claims 2^96 bytes must not make the reader allocate them.
TEST_F(IdxFiles, NeverAllocatesWhatAHeaderClaims) {
  std::string huge = refused(idx(8, {0xffffffff, 0xffffffff, 0xffffffff}, pixels));
  EXPECT_CONTAINS(huge, "more than 2^63 bytes after the header, 12 found");
  std::string large = refused(idx(8, {0xffffffff, 64, 64}, pixels));
  EXPECT_CONTAINS(large, "wants 17592186040320 bytes after the header, 12 found");
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 1000000); // KiB
}

TEST(Cifar10, ReadsFoldersAndNamesDamage) {
  TemporaryFolder folder;
  std::string record(3073, '\x10');
  record[0] = 7;
  writeBytes(folder / "data_batch_1.bin", record + record);
  writeBytes(folder / "data_batch_2.bin", record);
  writeBytes(folder / "test_batch.bin", record);
  LabeledImages training = readCifar10(folder.path, true);
  EXPECT_EQ(training.images.shape, (std::vector<int64_t>{3, 3, 32, 32}));
  EXPECT_EQ(elementAsInteger(training.labels, 2), 7);
  EXPECT_EQ(readCifar10(folder.path, false).labels.shape[0], 1);

  std::string file = folder / "data_batch_1.bin";
  writeBytes(file, record.substr(0, 3000));
  std::string message = messageOf([&] { readCifar10(file, true); });
  EXPECT_CONTAINS(message, "3073 bytes wanted, 3000 found");
  record[0] = static_cast<char>(200);
  writeBytes(file, record);
  EXPECT_CONTAINS(messageOf([&] { readCifar10(file, true); }), "sample 0 has label 200");
  std::filesystem::remove(file);
  EXPECT_CONTAINS(messageOf([&] { readCifar10(folder.path, true); }), "data_batch_1.bin");
}
