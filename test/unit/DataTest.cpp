//===- DataTest.cpp - data sets: grammar, checks, batches, order ---------------------===//

#include "FakeTrainer.h"
#include "runtime/data/Batcher.h"
#include "runtime/data/Npy.h"
#include "runtime/data/Shuffle.h"
#include <csignal>
#include <numeric>

using namespace mpc;
using namespace mpc::testing;

namespace {

template <typename T>
void writeNpy(const std::string &path, ElementType type, std::vector<int64_t> shape,
              const std::vector<T> &values) {
  NpyWriter writer(path, {{"", type, std::move(shape)}});
  writer.append(0, values.data(), values.size());
  writer.commit();
}

std::vector<float> ramp(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

} // namespace

TEST(Names, AreQuotedForMessages) {
  EXPECT_EQ(quote("caf\u00e9 'n' \\ \n\x1b"), "'caf\u00e9 \\'n\\' \\\\ \\n\\x1b'");
  EXPECT_EQ(quote("a\u009b31m"), "'a\\xc2\\x9b31m'"); // what a terminal obeys, in UTF-8
  // Overlong, a surrogate, beyond U+10FFFF, cut off, a lone continuation.
  for (const char *bad : {"\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"})
    EXPECT_FALSE(isUtf8(bad)) << quote(bad);
  for (const char *good : {"", "abc", "\u00e9", "\u20ac", "\U0001f600"})
    EXPECT_TRUE(isUtf8(good)) << good;
  EXPECT_EQ(quote("a\xff\u00e9"), "'a\\xff\u00e9'");
}

// A mapped file that shrinks is told; any other SIGBUS ends the process as usual.
TEST(MappedFiles, EndTheProcessWhereTheyShrink) {
  TemporaryFolder folder;
  writeBytes(folder / "x", std::string(1 << 16, 'x'));
  MappedFile file(folder / "x");
  EXPECT_EXIT(
      {
        exitWhereMappedFilesShrink();
        std::filesystem::resize_file(folder / "x", 0);
        volatile unsigned char gone = file.data()[1 << 15];
        (void)gone;
      },
      ::testing::ExitedWithCode(1), "became shorter");
  EXPECT_EXIT(
      {
        exitWhereMappedFilesShrink();
        raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS), "^$");
}

TEST(DatasetSpec, EscapesAndSeparators) {
  DatasetSpec spec = parseDataset(
      R"(npy:a\=b=dir\,x/f=1.npy,labels=t.npz:k\;1;scale=0.5;mean=1,2;std=3;flip;crop=4)");
  ASSERT_EQ(spec.files.size(), 2u);
  EXPECT_EQ(spec.files[0].first, "a=b");
  EXPECT_EQ(spec.files[0].second, "dir,x/f=1.npy");
  EXPECT_EQ(spec.files[1].second, "t.npz:k;1");
  EXPECT_EQ(spec.preprocessing.scale, 0.5);
  EXPECT_EQ(spec.preprocessing.mean, (std::vector<double>{1, 2}));
  EXPECT_TRUE(spec.preprocessing.flip);
  EXPECT_EQ(spec.preprocessing.crop, 4);
  EXPECT_EQ(parseDataset("idx:a,b").files[1].second, "b");
  EXPECT_EQ(parseInputs({"x=a;scale=2", "y=b"}).files.size(), 2u);
}

TEST(DatasetSpec, SaysWhatIsWrong) {
  for (const char *text :
       {"", "x.npy", "csv:x", "npy:", "npy:x", "npy:x=", "npy:x=a,x=b", "idx:a", "idx:a,b,c",
        "cifar10:", "npy:x=a;blur", "npy:x=a;scale=", "npy:x=a;scale=1e999", "npy:x=a;std=0",
        "npy:x=a;crop=1.5", "npy:x=a;flip=1"})
    EXPECT_THROW(parseDataset(text), UsageError) << text;
}

TEST(Shuffle, IsAPermutationThatDependsOnSeedAndEpochOnly) {
  std::vector<int64_t> a(1000), b(1000), sorted(1000);
  epochOrder(5, 0, true, a);
  epochOrder(5, 0, true, b);
  EXPECT_EQ(a, b);
  epochOrder(5, 1, true, b);
  EXPECT_NE(a, b);
  epochOrder(6, 0, true, b);
  EXPECT_NE(a, b);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_NE(a, sorted);
  std::sort(a.begin(), a.end());
  EXPECT_EQ(a, sorted);
  epochOrder(5, 3, false, b);
  EXPECT_EQ(b, sorted);
}

// Frozen: a seed means the same order in every version and on every machine.
TEST(Shuffle, OrderIsFrozen) {
  std::vector<int64_t> order(8);
  epochOrder(0, 0, true, order);
  EXPECT_EQ(order, (std::vector<int64_t>{3, 5, 0, 2, 4, 7, 6, 1}));
}

TEST(Shuffle, BelowIsUniform) {
  Generator generator(1);
  std::vector<int> hits(6);
  for (int i = 0; i < 60000; ++i)
    ++hits[generator.below(6)];
  for (int count : hits)
    EXPECT_NEAR(count, 10000, 400);
}

class Datasets : public ::testing::Test {
protected:
  Dataset load(const std::string &text, bool training = true) {
    std::string replaced;
    for (char c : text)
      replaced += c == '@' ? folder.path + "/" : std::string(1, c);
    return Dataset::load(parseDataset(replaced), program, inputsOf(program, {"gradients"}),
                         training);
  }
  std::string refused(const std::string &text) {
    return messageOf([&] { load(text); });
  }
  FakeOptions options{.batch = 4, .features = 3, .classes = 3};
  Program program = fakeProgram(options);
  TemporaryFolder folder;
};

TEST_F(Datasets, LabelsMustBeClasses) {
  writeNpy(folder / "x.npy", ElementType::f32, {4, 3}, ramp(12));
  auto labels = [&](std::vector<int64_t> values) {
    int64_t count = static_cast<int64_t>(values.size());
    writeNpy(folder / "t.npy", ElementType::i64, {count}, values);
    return refused("npy:x=@x.npy,labels=@t.npy");
  };
  EXPECT_EQ(labels({0, 1, 2, -100}), "");
  std::string message = labels({0, 1000, 2, 1});
  EXPECT_CONTAINS(message, "sample 1 has label 1000");
  EXPECT_CONTAINS(message, "3 classes");
  EXPECT_CONTAINS(labels({0, 1, 3, 1}), "sample 2 has label 3");
  EXPECT_CONTAINS(labels({0, 1, -1, 1}), "sample 2 has label -1");
  EXPECT_CONTAINS(labels({0, 1, 2}), "has 3 samples");
  writeNpy(folder / "t.npy", ElementType::f32, {4}, ramp(4));
  EXPECT_CONTAINS(refused("npy:x=@x.npy,labels=@t.npy"), "holds float32; labels must be integer");
  writeNpy(folder / "t.npy", ElementType::i64, {4, 3}, std::vector<int64_t>(12));
  EXPECT_CONTAINS(refused("npy:x=@x.npy,labels=@t.npy"), "not one-hot");
  writeNpy(folder / "t.npy", ElementType::u8, {4}, std::vector<uint8_t>{0, 1, 2, 1});
  EXPECT_EQ(refused("npy:x=@x.npy,labels=@t.npy"), "");
}

TEST_F(Datasets, NamesInputsAndShapes) {
  writeNpy(folder / "x.npy", ElementType::f32, {4, 2}, ramp(8));
  writeNpy(folder / "t.npy", ElementType::i64, {4}, std::vector<int64_t>(4));
  EXPECT_CONTAINS(refused("npy:x=@x.npy,labels=@t.npy"),
                  "has shape [4, 2]; 'x' (float32 [samples, 3]) wants samples first, then [3]");
  EXPECT_CONTAINS(refused("npy:labels=@t.npy"), "no data for 'x'");
  writeNpy(folder / "x.npy", ElementType::f32, {4, 3}, ramp(12));
  EXPECT_CONTAINS(refused("npy:x=@x.npy"), "no data for 'labels'");
  EXPECT_CONTAINS(refused("npy:x=@x.npy,y=@x.npy,labels=@t.npy"), "no input 'y'");
  writeNpy(folder / "x.npy", ElementType::f32, {0, 3}, ramp(0));
  writeNpy(folder / "t.npy", ElementType::i64, {0}, std::vector<int64_t>(0));
  EXPECT_CONTAINS(refused("npy:x=@x.npy,labels=@t.npy"), "no samples");
}

TEST_F(Datasets, IndicesStayInsideTheirTable) {
  program.tensors[0].type = ElementType::i64;
  program.index_limit["x"] = 10;
  writeNpy(folder / "t.npy", ElementType::i64, {2}, std::vector<int64_t>(2));
  writeNpy(folder / "x.npy", ElementType::i64, {2, 3}, std::vector<int64_t>{0, 9, -10, 1, 10, 0});
  EXPECT_CONTAINS(refused("npy:x=@x.npy,labels=@t.npy"), "sample 1 has index 10 for 'x'");
}

TEST_F(Datasets, BatchesAreGatheredAndPadded) {
  writeNpy(folder / "x.npy", ElementType::f32, {6, 3}, ramp(18));
  writeNpy(folder / "t.npy", ElementType::i64, {6}, std::vector<int64_t>{0, 1, 2, 0, 1, 2});
  Dataset data = load("npy:x=@x.npy,labels=@t.npy");
  FakeDevice device(program, options);
  Batcher batcher(program, data, device);
  int64_t inOrder[] = {1, 2, 3, 4}, shuffled[] = {5, 0};
  batcher.fill(inOrder, 4, 0, 0);
  EXPECT_EQ(device.f(Role::input)[0], 3);
  EXPECT_EQ(device.f(Role::input)[11], 14);
  EXPECT_EQ(*device.i(Role::samples), 4);
  batcher.fill(shuffled, 2, 0, 0);
  std::vector<float> expected = {15, 16, 17, 0, 1, 2, 15, 16, 17, 15, 16, 17};
  EXPECT_EQ(std::vector<float>(device.f(Role::input), device.f(Role::input) + 12), expected);
  EXPECT_EQ(device.i(Role::labels)[1], 0);
  EXPECT_EQ(device.i(Role::labels)[3], 2);
  EXPECT_EQ(*device.i(Role::samples), 2);
}

// Files have samples first; the program may have bound another axis.
TEST_F(Datasets, MovesSamplesToTheirAxis) {
  program.tensors[0].shape = {3, 4}; // [features, batch]
  program.batch_axis["x"] = 1;
  writeNpy(folder / "x.npy", ElementType::f32, {4, 3}, ramp(12));
  writeNpy(folder / "t.npy", ElementType::i64, {4}, std::vector<int64_t>(4));
  Dataset data = load("npy:x=@x.npy,labels=@t.npy");
  FakeDevice device(program, options);
  int64_t order[] = {0, 1, 2, 3};
  Batcher(program, data, device).fill(order, 4, 0, 0);
  std::vector<float> expected = {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11};
  EXPECT_EQ(std::vector<float>(device.f(Role::input), device.f(Role::input) + 12), expected);
}

class Images : public Datasets {
protected:
  Images() {
    program.tensors[0].shape = {4, 1, 2, 2};
    std::string header = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2};
    writeBytes(folder / "i", header + std::string("\0\x33\x66\xff\1\2\3\4\5\6\7\x08", 12));
    writeBytes(folder / "l", std::string("\0\0\x08\1\0\0\0\3\0\1\2", 11));
  }
  std::vector<float> first(const Dataset &data, int64_t sample, uint64_t seed = 0) {
    FakeOptions wide = options;
    wide.features = 4;
    FakeDevice device(program, wide);
    Batcher(program, data, device).fill(&sample, 1, seed, 0);
    return std::vector<float>(device.f(Role::input), device.f(Role::input) + 4);
  }
};

TEST_F(Images, BecomeFloatsWithAChannelAxis) {
  EXPECT_EQ(first(load("idx:@i,@l"), 0), (std::vector<float>{0, 0.2f, 0.4f, 1}));
  program.tensors[0].shape = {4, 4}; // flat
  EXPECT_EQ(first(load("idx:@i,@l"), 0), (std::vector<float>{0, 0.2f, 0.4f, 1}));
  std::vector<float> normal = first(load("idx:@i,@l;mean=0.5;std=0.25"), 0);
  EXPECT_FLOAT_EQ(normal[0], -2);
  EXPECT_FLOAT_EQ(normal[3], 2);
  writeBytes(folder / "l", std::string("\0\0\x08\1\0\0\0\2\0\1", 10));
  EXPECT_CONTAINS(refused("idx:@i,@l"), "has 2 labels for the 3 images");
}

TEST_F(Images, AreMirroredAndShiftedInTrainingOnly) {
  std::set<std::vector<float>> flips, shifts;
  Dataset flipped = load("idx:@i,@l;scale=255;flip"), shifted = load("idx:@i,@l;scale=255;crop=1");
  for (uint64_t seed = 0; seed < 100; ++seed) {
    flips.insert(first(flipped, 1, seed));
    shifts.insert(first(shifted, 1, seed));
    EXPECT_EQ(first(flipped, 1, seed), first(flipped, 1, seed));
  }
  EXPECT_EQ(flips, (std::set<std::vector<float>>{{1, 2, 3, 4}, {2, 1, 4, 3}}));
  EXPECT_EQ(shifts.size(), 9u);
  EXPECT_TRUE(shifts.count({0, 0, 0, 1}));
  EXPECT_EQ(first(load("idx:@i,@l;scale=255;flip;crop=1", false), 1),
            (std::vector<float>{1, 2, 3, 4}));
}

// DIR/CLASS/IMAGE; planes in the order red, green, blue.
TEST_F(Images, ComeFromClassFolders) {
  // A PNG of 2 x 2 pixels (10, 20, 30), (40, 50, 60), (70, 80, 90), (100, 110, 120).
  const std::string hex =
      "89504e470d0a1a0a0000000d4948445200000002000000020802000000fdd49a73000000164944415478da63e012"
      "91d330b261700b884ac9ab00000f18030db9b9e8640000000049454e44ae426082";
  std::string png;
  for (size_t i = 0; i < hex.size(); i += 2)
    png += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  for (const char *name : {"b", "a"})
    std::filesystem::create_directories(folder / (std::string("set/") + name));
  writeBytes(folder / "set/a/1.PNG", png);
  writeBytes(folder / "set/b/1.png", png);
  writeBytes(folder / "set/b/notes.txt", "no image");
  program.tensors[0].shape = {4, 3, 2, 2};
  Dataset data = load("folder:@set;scale=255");
  EXPECT_EQ(data.samples(), 2);
  const Array &images = data.columns()[0].data, &labels = data.columns()[1].data;
  std::vector<int64_t> pixels;
  for (int64_t i = 0; i < 12; ++i)
    pixels.push_back(elementAsInteger(images, i));
  EXPECT_EQ(pixels, (std::vector<int64_t>{10, 40, 70, 100, 20, 50, 80, 110, 30, 60, 90, 120}));
  EXPECT_EQ(elementAsInteger(labels, 0), 0);
  EXPECT_EQ(elementAsInteger(labels, 1), 1);
  program.tensors[0].shape = {4, 3, 2, 3};
  EXPECT_CONTAINS(refused("folder:@set"), "has 2 x 2 pixels; this program wants 3 x 2");
  program.tensors[0].shape = {4, 3, 2, 2};
  writeBytes(folder / "set/b/1.png", png.substr(0, 50));
  EXPECT_CONTAINS(refused("folder:@set"), "set/b/1.png'");
}
