//===- GpuAttentionTest.cpp - generated attention on the simulator --------------------------===//

#include "AttentionReference.h"

using namespace mpc::test;
using namespace mpc::test::attention;

// One row and column, odd numbers of everything, exactly a tile, one more than a tile.
TEST(GpuAttention, EveryShape) {
  expectRight({1, 1, 1, 1, 1, 1});
  expectRight({2, 3, 5, 7, 3, 5});
  expectRight({1, 2, 64, 64, 16, 16});
  expectRight({2, 1, 65, 130, 40, 24});
  expectRight({1, 1, 1, 200, 64, 64});
  expectRight({1, 2, 100, 33, 64, 32});
}
// Columns that fill a block's sums, or are shared by several blocks; fixed rows that stay in
// registers, and that do not; sides that are very different.
TEST(GpuAttention, WideHeads) {
  expectRight({1, 1, 20, 70, 80, 72});
  expectRight({1, 1, 70, 40, 128, 128});
  expectRight({1, 1, 66, 35, 256, 256});
  expectRight({1, 1, 17, 20, 137, 9});
  expectRight({1, 2, 17, 20, 8, 250});
}
// The bias repeats along any dimensions of the scores.
TEST(GpuAttention, EveryBias) {
  for (int subset = 0; subset < 16; ++subset) {
    Case c{2, 2, 17, 35, 8, 16, std::vector<int64_t>()};
    for (int64_t d = 0; d < 4; ++d)
      if (subset >> d & 1)
        c.biasDimensions->push_back(d);
    expectRight(c, subset % 2 ? "f16" : "f32");
  }
}
// A causal mask and a mask of keys: -∞ in the first tiles, in the last, and beside the largest
// finite number.
TEST(GpuAttention, Masks) {
  auto causal = [](Tensor &, Tensor &bias) {
    for (int64_t m = 0; m < 70; ++m)
      for (int64_t n = 0; n < 140; ++n)
        bias.data[m * 140 + n] = n <= m ? 0 : n == 139 ? -0x1.fffffep127 : -kInfinity;
  };
  expectRight({1, 2, 70, 140, 16, 16, std::vector<int64_t>{2, 3}}, causal);
  auto late = [](Tensor &, Tensor &bias) {
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t n = 0; n < 140; ++n)
        bias.data[b * 140 + n] = n >= (b ? 139 : 100) ? 0 : -kInfinity;
  };
  expectRight({2, 1, 9, 140, 16, 16, std::vector<int64_t>{0, 3}}, late);
}
// Low numbers in the place of -∞: a row that a mask leaves nothing of has equal weights, and so
// have its gradients; with masks that are added up, where the fewest are.
TEST(GpuAttention, LowMasks) {
  Case c{2, 2, 9, 70, 16, 16, std::vector<int64_t>{0, 3}};
  for (double low : {-1e9, -0x1.fffffep127}) {
    auto change = [&](Tensor &, Tensor &bias) {
      for (int64_t n = 0; n < 70; ++n) { // of batch 0 all
        bias.data[n] = low;
        bias.data[70 + n] = n < 40 ? 0 : low;
      }
    };
    expectRight(c, change);
    expectRight(c, change, /*byLibrary=*/true);
  }
  auto twice = [&](Tensor &, Tensor &bias) {
    for (int64_t n = 0; n < 70; ++n)
      bias.data[n] = n % 3 ? -2e9 : -1e9;
  };
  expectRight(c, twice);
}
// Scores whose size leaves f32 no room for the logarithm of their sum.
TEST(GpuAttention, LargeBiases) {
  for (double size : {1e5, 1e6, 1e9})
    expectRight({2, 2, 9, 70, 16, 16, std::vector<int64_t>{0, 3}},
                [&](Tensor &query, Tensor &bias) {
                  query.data.assign(query.data.size(), 0);
                  for (int64_t n = 0; n < 140; ++n)
                    bias.data[n] = size;
                });
}
// What makes a row NaN, and leaves the others as they are.
TEST(GpuAttention, NotNumbers) {
  for (double value : {-kInfinity, kInfinity, double(NAN)}) {
    auto change = [&](Tensor &, Tensor &bias) {
      for (int64_t n = 0; n < 70; ++n) // of batch 0, row 2: all, or the last one
        if (value == -kInfinity || n == 69)
          bias.data[2 * 70 + n] = value;
    };
    Case c{2, 1, 5, 70, 16, 16, std::vector<int64_t>{0, 2, 3}};
    expectRight(c, change);
    if (value == -kInfinity) // a library gives such a row equal weights
      expectRight(c, change, /*byLibrary=*/true);
  }
  auto query = [](Tensor &query, Tensor &) { query.data[3] = NAN; };
  expectRight({2, 1, 5, 70, 16, 16}, query);
}
// Where attention is safe, rows of -∞ and their gradients are zero; of NaN and +∞ the rows are, and
// their gradients are not. Heads of 200 columns, whose sums two blocks share; dropout.
TEST(GpuAttention, Safe) {
  for (double value : {-kInfinity, kInfinity, double(NAN)}) {
    auto change = [&](Tensor &, Tensor &bias) {
      for (int64_t n = 0; n < 70; ++n) { // of batch 0, row 2: all, or the last one
        if (value == -kInfinity || n == 69)
          bias.data[2 * 70 + n] = value;
        if (n != 40) // of batch 1, row 4: all but one
          bias.data[9 * 70 + n] = -kInfinity;
      }
    };
    Case c{2, 1, 5, 70, 16, 16, std::vector<int64_t>{0, 2, 3}};
    c.isSafe = true;
    expectRight(c, change);
    c.dropout = {0.25};
    expectRight(c, "f16", change);
    c.width = 200;
    expectRight(c, "f16", change);
    expectRight(c, "f32", change);
  }
}
// Scores that are far apart: every tile has a larger one than those before.
TEST(GpuAttention, LargeScores) {
  Case c{1, 1, 33, 150, 16, 16, std::vector<int64_t>{3}};
  expectRight(c, [](Tensor &, Tensor &bias) {
    for (int64_t n = 0; n < 150; ++n)
      bias.data[n] = double(n) - 500;
  });
  c.scale = -8;
  expectRight(c, "f32");
}

// Names are made from the content; what is refused; what has no elements.
TEST(GpuAttention, NamesAndLimits) {
  Case c{2, 2, 17, 35, 8, 16};
  KernelRunner runner(c.text("f16"), "native");
  ASSERT_TRUE(runner.ok());
  using namespace mpc::gpu;
  auto forward = libraryFunctions(commandOf(*runner.module, "forward"));
  ASSERT_EQ(forward.size(), 2u);
  EXPECT_EQ(forward[1].name, forward[0].name + "$statistics");
  EXPECT_TRUE(forward[1].afterLibrary && !forward[0].afterLibrary);
  EXPECT_TRUE(llvm::StringRef(forward[0].name).starts_with("attention_4x17x35x8x16_"));
  auto gradient = libraryFunctions(commandOf(*runner.module, "gradient"));
  ASSERT_EQ(gradient.size(), 3u);
  EXPECT_EQ(libraryScratchBytes(commandOf(*runner.module, "gradient")), 2 * 2 * 17 * 4);
  const std::pair<const char *, int64_t> expected[] = {
      {"$delta", 9}, {"$keys", 4}, {"$queries", 4}};
  for (auto [function, want] : llvm::zip_equal(gradient, expected)) {
    EXPECT_TRUE(llvm::StringRef(function.name).ends_with(want.first));
    EXPECT_EQ(function.grid, want.second);
    EXPECT_LE(function.sharedBytes, kSharedBytes);
  }
  mlir::Type f16 = mlir::Float16Type::get(&runner.context);
  Attention attention{AttentionKind::forward, 2, 2, 17, 35, 8, 16, f16, 0.25f};
  EXPECT_EQ(attentionFunctions(attention)[0].name, forward[0].name);
  attention.scale = 0.5f;
  EXPECT_NE(attentionFunctions(attention)[0].name, forward[0].name);
  attention.scale = 0.25f;
  attention.isSafe = true;
  EXPECT_NE(attentionFunctions(attention)[0].name, forward[0].name);
  EXPECT_TRUE(supportsAttention(attention));
  attention.width = 257;
  EXPECT_FALSE(supportsAttention(attention));
  attention.width = 256;
  attention.queries = 0;
  EXPECT_TRUE(supportsAttention(attention));
  EXPECT_TRUE(attentionFunctions(attention).empty());
  attention.kind = AttentionKind::gradient;
  EXPECT_EQ(attentionFunctions(attention).size(), 1u); // keys and values get zeros
  attention.element = mlir::Float64Type::get(&runner.context);
  EXPECT_FALSE(supportsAttention(attention));
}

// Shared memory suffices, and the grid is the same, for every number of columns.
TEST(GpuAttention, SharedMemory) {
  mlir::MLIRContext context;
  using namespace mpc::gpu;
  for (mlir::Type type :
       {mlir::Type(mlir::Float16Type::get(&context)), mlir::Type(mlir::Float32Type::get(&context))})
    for (AttentionKind kind : {AttentionKind::forward, AttentionKind::gradient})
      for (int64_t depth = 1; depth <= 256; ++depth)
        for (int64_t width = 1; width <= 256; ++width)
          for (const Function &function :
               attentionFunctions({kind, 1, 1, 8, 8, depth, width, type, 1.0f}))
            ASSERT_LE(function.sharedBytes, kSharedBytes) << depth << " " << width;
}

TEST(GpuAttention, NoSpills) {
  if (!llvm::sys::fs::can_execute(MPC_TEST_PTXAS))
    GTEST_SKIP() << "ptxas is not here: scripts/test.sh installs it";
  for (const char *type : {"f16", "f32"}) {
    Case c{8, 8, 512, 500, 64, 64, std::vector<int64_t>{0, 1, 2, 3}};
    for (int64_t width : {64, 128, 254, 255, 256}) {
      c.depth = c.width = width;
      expectNoSpills(c, type);
    }
    c.depth = c.width = 128;
    c.isSafe = true;
    expectNoSpills(c, type);
  }
}
