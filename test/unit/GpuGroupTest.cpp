//===- GpuGroupTest.cpp - launches that run as one, on the simulator ------------------------===//
//
// Members of every size beside each other: less than an access, not a multiple of one, less than a
// block, many blocks; random arithmetic; and what the program is told about them.
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

/// The results of all members; the same as each has alone.
std::map<int64_t, GroupRunner::Buffers> expectEqual(const std::string &text,
                                                    const char *cpu = "native") {
  GroupRunner runner(text, cpu);
  EXPECT_EQ(runner.groups, 1);
  for (const std::string &problem : runner.problems)
    ADD_FAILURE() << problem;
  return std::move(runner.results);
}

/// A member's bits do not depend on the others: what both groups have a member of is the same.
void expectSameMembers(const std::string &one, const std::string &other, size_t members) {
  auto first = expectEqual(one), second = expectEqual(other);
  size_t compared = 0;
  for (auto &[elements, results] : first)
    if (auto found = second.find(elements); found != second.end()) {
      ++compared;
      for (size_t r = 0; r < results.size(); ++r)
        EXPECT_EQ(std::memcmp(results[r].data(), found->second[r].data(), results[r].bytes), 0)
            << "result " << r << " of " << elements << " elements";
    }
  EXPECT_EQ(compared, members);
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

// Sums of two products, of which one is the same for all elements, negated, and read once more.
const char *const kProducts =
    R"((%x: tensor<SIZExf32>, %s: tensor<f32>) -> (tensor<SIZExf32>, tensor<SIZExf16>)
        attributes {mpc.kernel = #mpc.kernel<map, domain = [SIZE], split = 0, aliases = [-1, -1]>} {
      %0 = mpc.broadcast %s {dimensions = array<i64>} : tensor<f32> -> tensor<SIZExf32>
      %1 = arith.mulf %0, %0 : tensor<SIZExf32>
      %2 = arith.negf %1 : tensor<SIZExf32>
      %3 = arith.mulf %x, %0 : tensor<SIZExf32>
      %4 = arith.addf %2, %3 : tensor<SIZExf32>
      %5 = arith.subf %4, %3 : tensor<SIZExf32>
      %6 = arith.truncf %3 : tensor<SIZExf32> to tensor<SIZExf16>
      return %5, %6 : tensor<SIZExf32>, tensor<SIZExf16>
    })";

/// The body of a map with a few random operations on %x and %s, for every size the same.
std::string randomKernel(std::mt19937 &generator) {
  auto pick = [&](const auto &from) { return from[generator() % std::size(from)]; };
  const std::string wide = "tensor<SIZExf32>";
  std::string body = "%v1 = mpc.broadcast %s {dimensions = array<i64>} : tensor<f32> -> " + wide +
                     "\n%v2 = arith.constant dense<-0.3> : " + wide + "\n";
  std::vector<std::string> values = {"%x", "%v1", "%v2"};
  const char *const kinds[] = {"arith.mulf", "arith.mulf", "arith.mulf",     "arith.addf",
                               "arith.addf", "arith.subf", "arith.maximumf", "arith.negf"};
  for (int i = 0, count = 5 + generator() % 6; i < count; ++i) {
    std::string kind = pick(kinds), value = "%v" + std::to_string(values.size());
    body += value + " = " + kind + " " + pick(values);
    body += (kind == "arith.negf" ? "" : ", " + pick(values)) + " : " + wide + "\n";
    values.push_back(value);
  }
  return "(%x: " + wide + ", %s: tensor<f32>) -> (" + wide + ", " + wide + R"()
      attributes {mpc.kernel = #mpc.kernel<map, domain = [SIZE], split = 0, aliases = [-1, -1]>} {
      )" +
         body + "return " + values.back() + ", " + pick(values) + " : " + wide + ", " + wide +
         "\n}";
}

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

// In the wide accesses of a large group, the narrow ones of a small one, the elements behind the
// last access, and alone.
TEST(GpuGroup, MapsBesideOthers) {
  auto group = [](const std::vector<int> &sizes) {
    return groupOf(sizes, kProducts, "tensor<SIZExf32>, tensor<f32>",
                   "tensor<SIZExf32>, tensor<SIZExf16>");
  };
  expectSameMembers(group({37, 1001, 4}), group({1001, 1100003, 37}), 2);
}

// What is contracted to a fused operation is decided before the code has blocks and loops.
TEST(GpuGroup, RandomArithmetic) {
  std::mt19937 generator(3);
  for (int i = 0; i < 24; ++i) {
    std::string kernel = randomKernel(generator);
    SCOPED_TRACE(kernel);
    expectEqual(groupOf({37, 1001}, kernel, "tensor<SIZExf32>, tensor<f32>",
                        "tensor<SIZExf32>, tensor<SIZExf32>"));
  }
}

TEST(GpuGroup, ReductionsOfABlock) { expectEqual(norms({2, 33, 4096, 1000, 4095}, "row", "0")); }

TEST(GpuGroup, ReductionsOfManyBlocks) {
  expectEqual(norms({4097, 5, 100000, 40961, 2000003}, "column", "1"));
}

// Small ones with a block each, and beside a large one, where chunks are combined.
TEST(GpuGroup, ReductionsBesideOthers) {
  expectSameMembers(norms({5, 4095, 1000}, "row", "0"), norms({4095, 5, 100000}, "column", "1"), 2);
  expectSameMembers(norms({4097, 33}, "column", "1"), norms({2000003, 4097, 33}, "column", "1"), 2);
}

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
