//===- GpuAttentionDropoutTest.cpp - generated attention with dropout of its weights --------===//
//
// The mask is that of mpc.dropout on [B, H, M, N]: of an element, the random number at its
// row-major index. Where the keys are no multiple of four, every element draws by itself.
//
//===--------------------------------------------------------------------------------------===//

#include "AttentionReference.h"

using namespace mpc::test;
using namespace mpc::test::attention;

namespace {
Case with(Case c, double ratio = 0.3) {
  c.dropout = Dropout{ratio};
  return c;
}

/// Kept elements of [B, H, M, N] as the kernels of both passes have them: with queries of zero all
/// weights are 1 / N, and of what multiplies them one element is 1.
struct Masks {
  std::vector<bool> forward, keys, queries;
};
Masks masksOf(const Case &c, const std::string &type, const std::string &gpu, const Tensor &state) {
  Masks masks;
  KernelRunner runner(c.text(type), gpu);
  if (!runner.ok()) {
    ADD_FAILURE();
    return masks;
  }
  auto zeros = [](mlir::Value like) {
    Tensor tensor{mlir::cast<mlir::RankedTensorType>(like.getType()).getShape().vec(), {}};
    tensor.data.assign(tensor.size(), 0);
    return tensor;
  };
  auto setOnes = [&](Tensor &tensor, int64_t rows, int64_t columns) {
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads; ++h)
        for (int64_t row = 0; row < rows; ++row)
          tensor.data[Definition::at(rows, c.heads, columns, b, row, h, row)] = 1;
  };
  mlir::Operation *forward = commandOf(*runner.module, "forward"),
                  *gradient = commandOf(*runner.module, "gradient");
  Tensor query = zeros(forward->getOperand(0)), key = zeros(forward->getOperand(1)),
         value = zeros(forward->getOperand(2));
  setOnes(key, c.keys, c.depth);
  setOnes(value, c.keys, c.width);
  std::vector<Tensor> made = launch(*runner.backend, forward, generated(forward),
                                    {query, key, value, state, c.dropout->stream()});
  // With an output of zeros no row has a δ: ds = scale / N · r · Σ do · v.
  Tensor output = zeros(forward->getResult(0)), outputGradient = output;
  outputGradient.data.assign(output.size(), 1);
  std::vector<Tensor> operands{
      outputGradient, query, key, value, output, made[1], made[2], state, c.dropout->stream()};
  Tensor ofQuery = launch(*runner.backend, gradient, generated(gradient), operands)[0];
  operands[0] = output;
  setOnes(operands[0], c.queries, c.width);
  Tensor ofValue = launch(*runner.backend, gradient, generated(gradient), operands)[2];
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t m = 0; m < c.queries; ++m)
        for (int64_t n = 0; n < c.keys; ++n) {
          auto isKept = [&](const Tensor &tensor, int64_t rows, int64_t columns, int64_t row,
                            int64_t column) {
            return tensor.data[Definition::at(rows, c.heads, columns, b, row, h, column)] != 0;
          };
          masks.forward.push_back(isKept(made[0], c.queries, c.width, m, n));
          masks.queries.push_back(isKept(ofQuery, c.queries, c.depth, m, n));
          masks.keys.push_back(isKept(ofValue, c.keys, c.width, n, m));
        }
  return masks;
}
} // namespace

// Every bit of the mask, in all passes.
TEST(GpuAttentionDropout, TheMaskOfDropout) {
  const Tensor state{{2}, {98765432109, 12}};
  for (const Case &shape :
       {Case{2, 3, 37, 36, 48, 40}, {1, 2, 20, 80, 80, 80}, {2, 2, 9, 35, 40, 40}})
    for (const char *type : {"f16", "f32"})
      for (const char *gpu : {"native", "sm_75", "sm_70"}) {
        Case c = with(shape);
        SCOPED_TRACE(gpu + std::string("\n") + c.text(type));
        std::vector<bool> want;
        for (int64_t i = 0; i < c.batch * c.heads * c.queries * c.keys; ++i)
          want.push_back(randomUniform(state, c.dropout->operatorId, c.dropout->seed, i) >=
                         static_cast<float>(c.dropout->ratio));
        Masks masks = masksOf(c, type, gpu, state);
        EXPECT_EQ(masks.forward, want);
        EXPECT_EQ(masks.keys, want);
        EXPECT_EQ(masks.queries, want);
      }
}

TEST(GpuAttentionDropout, EveryShape) {
  expectRight(with({1, 1, 1, 1, 1, 1}));
  expectRight(with({2, 3, 5, 7, 3, 5}));
  expectRight(with({2, 2, 5, 8, 16, 16}));
  expectRight(with({2, 1, 65, 132, 40, 24}));
  expectRight(with({1, 1, 2, 200, 64, 64}));
  expectRight(with({1, 2, 70, 33, 64, 32}));
  expectRight(with({1, 1, 66, 36, 256, 256}));
  expectRight(with({2, 2, 17, 36, 8, 16, std::vector<int64_t>{0, 3}}));
}
// Few kept and few dropped; a ratio that f32 rounds to 1 keeps nothing.
TEST(GpuAttentionDropout, EveryRatio) {
  for (double ratio : {1e-9, 0.1, 0.9})
    expectRight(with({1, 2, 33, 68, 16, 16}, ratio));
  KernelRunner runner(with({1, 1, 5, 8, 8, 8}, 1 - 1e-9).text("f32"), "native");
  ASSERT_TRUE(runner.ok());
  mlir::Operation *forward = commandOf(*runner.module, "forward");
  Tensor ones{{1, 5, 1, 8}, std::vector<double>(40, 1)},
      keys{{1, 8, 1, 8}, std::vector<double>(64, 1)};
  Tensor output = launch(*runner.backend, forward, generated(forward),
                         {ones, keys, keys, Tensor{{2}, {1, 2}}, Tensor{{2}, {3, 4}}})[0];
  EXPECT_EQ(output.data, std::vector<double>(40, 0));
}
// A row whose weights are NaN stays so.
TEST(GpuAttentionDropout, NotNumbers) {
  expectRight(with({2, 1, 5, 36, 16, 16}), [](Tensor &query, Tensor &) { query.data[3] = NAN; });
}

// Layers that differ in their random numbers alone share their kernels; a ratio has its own.
TEST(GpuAttentionDropout, Names) {
  mlir::MLIRContext context;
  using namespace mpc::gpu;
  Attention attention{AttentionKind::forward,           2,    2, 17, 36, 8, 16,
                      mlir::Float16Type::get(&context), 0.25f};
  std::set<std::string> names;
  for (std::optional<double> ratio :
       {std::optional<double>(), std::optional(0.1), std::optional(0.2)}) {
    attention.dropoutRatio = ratio;
    names.insert(attentionFunctions(attention)[0].name);
  }
  EXPECT_EQ(names.size(), 3u);
}

TEST(GpuAttentionDropout, NoSpills) {
  if (!llvm::sys::fs::can_execute(MPC_TEST_PTXAS))
    GTEST_SKIP() << "ptxas is not here: scripts/test.sh installs it";
  using Widths = std::vector<int64_t>;
  for (const auto &[type, widths] :
       {std::pair("f16", Widths{64, 96, 128, 256}), {"f32", Widths{64, 256}}})
    for (int64_t width : widths)
      for (int64_t keys : {500, 501})
        expectNoSpills(with({8, 8, 512, keys, width, width, std::vector<int64_t>{0, 1, 2, 3}}),
                       type);
  for (const char *type : {"f16", "f32"}) // of one width many are kept, of the other few
    for (auto [depth, width] : {std::pair(96, 32), {32, 96}, {64, 32}, {32, 64}})
      expectNoSpills(with({2, 2, 512, 512, depth, width, std::vector<int64_t>{0, 1, 2, 3}}), type);
  expectNoSpills(with({2, 2, 40, 40, 256, 256}), "f16"); // loops of few tiles are unrolled
}
