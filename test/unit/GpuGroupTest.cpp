//===- GpuGroupTest.cpp - launches that run as one, on the simulator ------------------------===//
//
// Members of every size beside each other: less than an access, not a multiple of one, less than a
// block, many blocks; and what the program is told about them.
//
//===----------------------------------------------------------------------------------------===//

#include "GroupRunner.h"

using namespace mpc::test;

namespace {
/// A kernel per size, and an entry that launches all of them as a group.
std::string groupOf(const std::vector<int> &sizes, const std::string &kernel,
                    const std::string &argumentTypes, const std::string &resultTypes) {
  auto sized = [](std::string text, int size) {
    for (size_t at; (at = text.find("SIZE")) != std::string::npos;)
      text.replace(at, 4, std::to_string(size));
    return text;
  };
  std::string text, launches, parameters = "%s: tensor<f32>";
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::string name = "k" + std::to_string(i), argument = "%x" + std::to_string(i);
    text += "func.func private @" + name + sized(kernel, sizes[i]) + "\n";
    parameters += ", " + argument + ": " + sized("tensor<SIZExf32>", sizes[i]);
    launches += "%r" + std::to_string(i) + ":2 = mpc.launch @" + name + "(" + argument +
                ", %s) {mpc.group = 0 : i64} : (" + sized(argumentTypes, sizes[i]) + ") -> (" +
                sized(resultTypes, sizes[i]) + ")\n";
  }
  return text + "func.func @entry(" + parameters + ") {\n" + launches + "return\n}\n";
}

void expectEqual(const std::string &text, const char *cpu = "native") {
  GroupRunner runner(text, cpu);
  EXPECT_EQ(runner.groups, 1);
  for (const std::string &problem : runner.problems)
    ADD_FAILURE() << problem;
}

// An update in place, with a half copy.
const char *const kUpdate =
    R"((%x: tensor<SIZExf32>, %s: tensor<f32>) -> (tensor<SIZExf32>, tensor<SIZExf16>)
        attributes {mpc.kernel = #mpc.kernel<map, domain = [SIZE], split = 0, aliases = [0, -1]>} {
      %0 = mpc.broadcast %s {dimensions = array<i64>} : tensor<f32> -> tensor<SIZExf32>
      %1 = math.sqrt %x : tensor<SIZExf32>
      %2 = arith.mulf %1, %0 : tensor<SIZExf32>
      %3 = arith.subf %x, %2 : tensor<SIZExf32>
      %4 = arith.truncf %3 : tensor<SIZExf32> to tensor<SIZExf16>
      return %3, %4 : tensor<SIZExf32>, tensor<SIZExf16>
    })";

// Two reductions of one reading, and what follows from them.
const char *const kNorm = R"((%x: tensor<SIZExf32>, %s: tensor<f32>) -> (tensor<f64>, tensor<f32>)
        attributes {mpc.kernel = #mpc.kernel<KIND, domain = [SIZE], split = SPLIT, aliases = [-1, -1]>} {
      %0 = arith.extf %x : tensor<SIZExf32> to tensor<SIZExf64>
      %1 = arith.mulf %0, %0 : tensor<SIZExf64>
      %2 = mpc.reduce sum %1 {axes = array<i64: 0>} : tensor<SIZExf64> -> tensor<f64>
      %3 = math.absf %x : tensor<SIZExf32>
      %4 = mpc.reduce max %3 {axes = array<i64: 0>} : tensor<SIZExf32> -> tensor<f32>
      %5 = arith.mulf %4, %s : tensor<f32>
      return %2, %5 : tensor<f64>, tensor<f32>
    })";

std::string norms(const std::vector<int> &sizes, const std::string &kind,
                  const std::string &split) {
  std::string kernel = kNorm;
  kernel.replace(kernel.find("KIND"), 4, kind);
  kernel.replace(kernel.find("SPLIT"), 5, split);
  return groupOf(sizes, kernel, "tensor<SIZExf32>, tensor<f32>", "tensor<f64>, tensor<f32>");
}
} // namespace

TEST(GpuGroup, MapsOfEverySize) {
  for (const char *cpu : {"native", "sm_70"})
    expectEqual(groupOf({5, 2, 1024, 1023, 4097, 8, 300000, 3}, kUpdate,
                        "tensor<SIZExf32>, tensor<f32>", "tensor<SIZExf32>, tensor<SIZExf16>"),
                cpu);
}

// So many elements that a thread has eight of them.
TEST(GpuGroup, WideMaps) {
  std::string text = groupOf({700001, 400000, 7, 16}, kUpdate, "tensor<SIZExf32>, tensor<f32>",
                             "tensor<SIZExf32>, tensor<SIZExf16>");
  expectEqual(text);
}

TEST(GpuGroup, ReductionsOfABlock) { expectEqual(norms({2, 33, 4096, 1000, 4095}, "row", "0")); }

TEST(GpuGroup, ReductionsOfManyBlocks) {
  expectEqual(norms({4097, 5, 100000, 40961, 2000003}, "column", "1"));
}

// A member's bits do not depend on the others: alone among small ones, or beside a large one.
TEST(GpuGroup, WhatTheProgramIsTold) {
  KernelRunner runner(norms({4097, 5, 2000003}, "column", "1"));
  ASSERT_TRUE(runner.ok());
  mpc::gpu::GroupIndex index(*runner.module);
  const mpc::gpu::Group *group = nullptr;
  runner.module->walk([&](mpc::LaunchOp launch) {
    if (const mpc::gpu::Group *found = index.find(launch))
      group = found;
  });
  ASSERT_TRUE(group);
  ASSERT_EQ(group->functions.size(), 2u);
  EXPECT_EQ(group->functions[0].name, "k0$group$partial");
  EXPECT_EQ(group->functions[1].name, "k0$group$combine");
  // Steps of 1024 elements: 4 of them are a chunk, 8 where it is as many as 256 chunks want.
  EXPECT_EQ(group->functions[0].grid, 2 + 1 + 245);
  EXPECT_EQ(group->functions[1].grid, 3);
  using Words = llvm::SmallVector<int64_t, 4>;
  EXPECT_EQ(group->words[0], (Words{0, 4097, 4, 0}));
  EXPECT_EQ(group->words[1], (Words{2, 5, 4, 0}));
  EXPECT_EQ(group->words[2], (Words{3, 2000003, 8, 0}));
  // The factor is everybody's.
  EXPECT_EQ(group->shared, (llvm::SmallVector<unsigned>{1}));
  EXPECT_EQ(group->own, (llvm::SmallVector<unsigned>{0, 2, 3, 4}));
}
