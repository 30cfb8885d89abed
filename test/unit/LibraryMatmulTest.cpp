//===- LibraryMatmulTest.cpp - matrix products in every type and way ---------------===//

#include "LibraryTestSupport.h"

using namespace mpc;
using namespace mpc::cpu;
using mpc::test::CommandRun;
using mpc::test::pathsOf;

namespace {

struct Types {
  ElementType operands, result, bias;
};
const Types kTypes[] = {{ElementType::f64, ElementType::f64, ElementType::f64},
                        {ElementType::f32, ElementType::f32, ElementType::f32},
                        {ElementType::bf16, ElementType::bf16, ElementType::bf16},
                        {ElementType::bf16, ElementType::f32, ElementType::f32},
                        {ElementType::f16, ElementType::f16, ElementType::f16},
                        {ElementType::f16, ElementType::f32, ElementType::f32}};

Command matmul(const Types &t, std::vector<int64_t> batch, int64_t m, int64_t n, int64_t k,
               bool transpose_lhs, bool transpose_rhs, bool bias, bool weight) {
  Command c;
  c.kind = CommandKind::matmul;
  c.node = "product";
  auto shape = [&](int64_t rows, int64_t columns, bool transposed) {
    std::vector<int64_t> s = batch;
    s.push_back(transposed ? columns : rows);
    s.push_back(transposed ? rows : columns);
    return s;
  };
  c.lhs.shape = shape(m, k, transpose_lhs);
  c.rhs.shape = shape(k, n, transpose_rhs);
  c.result.shape = shape(m, n, false);
  c.lhs.type = c.rhs.type = t.operands;
  c.result.type = t.result;
  c.rhs.is_weight = weight;
  if (bias) {
    c.bias.shape = {n};
    c.bias.type = t.bias;
  }
  c.transpose_lhs = transpose_lhs;
  c.transpose_rhs = transpose_rhs;
  return c;
}

std::string describe(const Command &c, const std::string &how) {
  return std::string(elementTypeName(c.lhs.type)) + " → " + elementTypeName(c.result.type) + " " +
         shapeText(c.lhs.shape) + (c.transpose_lhs ? "ᵀ" : "") + "·" + shapeText(c.rhs.shape) +
         (c.transpose_rhs ? "ᵀ" : "") + " by " + how;
}

TEST(LibraryMatmul, AllTypesTransposesAndWays) {
  struct Size {
    std::vector<int64_t> batch;
    int64_t m, n, k;
  };
  // Sizes around the edges of tiles and blocks of depth, and what small models have.
  const Size sizes[] = {{{}, 1, 1, 1},       {{}, 32, 1, 10},    {{}, 64, 10, 128},
                        {{}, 13, 33, 257},   {{}, 150, 70, 300}, {{3}, 17, 5, 19},
                        {{2, 3}, 20, 24, 16}};
  for (const Types &types : kTypes)
    for (const Size &size : sizes)
      for (int flags = 0; flags < 16; ++flags)
        for (Path path : pathsOf(types.operands)) {
          CommandRun run(matmul(types, size.batch, size.m, size.n, size.k, flags & 1, flags & 2,
                                flags & 4, (flags & 8) && size.batch.empty()));
          std::string how = run.run(path);
          run.expectMatmul(describe(run.c, how));
        }
}

TEST(LibraryMatmul, ReluAfterBias) {
  for (const Types &types : kTypes)
    for (Path path : pathsOf(types.operands)) {
      Command c = matmul(types, {}, 50, 40, 60, false, true, true, true);
      c.relu = true;
      CommandRun run(c);
      std::string how = run.run(path);
      run.expectMatmul(describe(run.c, how));
    }
}

// Weights are copied into another layout or type: a change has to arrive, and only when it is
// announced.
TEST(LibraryMatmul, WeightCopiesFollowChanges) {
  for (const Types &types : kTypes)
    for (Path path : pathsOf(types.operands)) {
      CommandRun run(matmul(types, {}, 96, 64, 128, false, true, true, true));
      std::string how = run.run(path);
      run.expectMatmul(describe(run.c, how));
      run.fill(run.c.rhs, run.rhs);
      ++run.library->weights_version;
      run.run(path);
      run.expectMatmul(describe(run.c, how) + " after a change");
    }
}

TEST(LibraryMatmul, EmptyExtents) {
  for (const Types &types : kTypes) {
    CommandRun no_depth(matmul(types, {}, 4, 5, 0, false, false, true, false));
    no_depth.run(Path::automatic);
    no_depth.expectMatmul("no depth: the bias alone");
    CommandRun no_rows(matmul(types, {}, 0, 5, 3, false, false, false, true));
    no_rows.run(Path::automatic);
    CommandRun no_batch(matmul(types, {0}, 4, 5, 3, false, false, false, false));
    no_batch.run(Path::automatic);
  }
}

// The plain product adds in one order whatever the number of threads.
TEST(LibraryMatmul, PlainBitsDoNotDependOnThreads) {
  std::vector<std::byte> bits[3];
  for (int threads = 1; threads <= 3; ++threads) {
    CommandRun run(matmul(kTypes[1], {}, 200, 300, 700, false, false, true, false), threads);
    run.run(Path::plain);
    std::byte *result = run.library->at(run.c.result.buffer);
    bits[threads - 1].assign(result, result + 200 * 300 * 4);
  }
  EXPECT_EQ(bits[0], bits[1]);
  EXPECT_EQ(bits[0], bits[2]);
}

// NaN and infinities reach the result in every way.
TEST(LibraryMatmul, NotANumberStays) {
  for (const Types &types : kTypes)
    for (Path path : pathsOf(types.operands)) {
      CommandRun run(matmul(types, {}, 64, 64, 64, false, false, false, false));
      double nan = std::nan("");
      convertElements(ElementType::f64, &nan, types.operands, run.library->at(run.c.lhs.buffer), 1);
      run.run(path);
      double first;
      convertElements(types.result, run.library->at(run.c.result.buffer), ElementType::f64, &first,
                      1);
      EXPECT_TRUE(std::isnan(first));
    }
}

} // namespace
