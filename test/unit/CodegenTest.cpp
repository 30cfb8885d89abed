//===- CodegenTest.cpp - kernels against a plain evaluator ----------------------------------===//
//
// Each test is a kernel as `fuse` would make it, compiled for this machine, run over its
// range in one piece and in three, and compared with TensorReference.h.
//
//===----------------------------------------------------------------------------------===//

#include "KernelRunner.h"

using namespace mpc::test;

// A map over [6, 40]: broadcast of a row, of a column and of a scalar, a half operand and a half
// result.
TEST(Codegen, MapWithBroadcasts) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<6x40xf16>, %b: tensor<40xf32>, %c: tensor<6xf32>, %s: tensor<f32>) -> (tensor<6x40xf16>, tensor<6x40xf32>)
        attributes {mpc.kernel = #mpc.kernel<map, domain = [6, 40], split = 1, aliases = [-1, -1]>} {
      %0 = arith.extf %x : tensor<6x40xf16> to tensor<6x40xf32>
      %1 = mpc.broadcast %b {dimensions = array<i64: 1>} : tensor<40xf32> -> tensor<6x40xf32>
      %2 = mpc.broadcast %c {dimensions = array<i64: 0>} : tensor<6xf32> -> tensor<6x40xf32>
      %3 = mpc.broadcast %s {dimensions = array<i64>} : tensor<f32> -> tensor<6x40xf32>
      %4 = arith.mulf %0, %1 : tensor<6x40xf32>
      %5 = arith.addf %4, %2 : tensor<6x40xf32>
      %6 = arith.maximumf %5, %3 : tensor<6x40xf32>
      %7 = arith.truncf %6 : tensor<6x40xf32> to tensor<6x40xf16>
      return %7, %5 : tensor<6x40xf16>, tensor<6x40xf32>
    })");
}

// Index maps on top of each other: reshape, transpose, slice with a negative step.
TEST(Codegen, MapWithViews) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<4x6x10xf32>) -> tensor<5x3x8xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [5, 3, 8], split = 2, aliases = [-1]>} {
      %0 = mpc.transpose %x {permutation = array<i64: 2, 0, 1>} : tensor<4x6x10xf32> -> tensor<10x4x6xf32>
      %1 = mpc.slice %0 {starts = array<i64: 9, 0, 0>, steps = array<i64: -2, 1, 1>} : tensor<10x4x6xf32> -> tensor<5x4x6xf32>
      %2 = mpc.reshape %1 : tensor<5x4x6xf32> -> tensor<5x3x8xf32>
      %3 = math.absf %2 : tensor<5x3x8xf32>
      return %3 : tensor<5x3x8xf32>
    })");
}

TEST(Codegen, ReshapeThatRegroups) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<6x35xf32>, %y: tensor<14x15xf32>, %b: tensor<7xf32>) -> tensor<10x3x7xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [10, 3, 7], split = 2, aliases = [-1]>} {
      %0 = mpc.reshape %x : tensor<6x35xf32> -> tensor<10x3x7xf32>
      %t = mpc.transpose %y {permutation = array<i64: 1, 0>} : tensor<14x15xf32> -> tensor<15x14xf32>
      %1 = mpc.reshape %t : tensor<15x14xf32> -> tensor<10x3x7xf32>
      %2 = arith.subf %0, %1 : tensor<10x3x7xf32>
      %3 = mpc.broadcast %b {dimensions = array<i64: 2>} : tensor<7xf32> -> tensor<10x3x7xf32>
      %4 = arith.addf %2, %3 : tensor<10x3x7xf32>
      return %4 : tensor<10x3x7xf32>
    })");
}

// Padding on both axes, cropping, and values between neighbours (the gradient of a strided slice).
TEST(Codegen, Pad) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<5x9xf32>) -> tensor<10x27xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [10, 27], split = 1, aliases = [-1]>} {
      %v = arith.constant 7.5 : f32
      %0 = mpc.pad %x, %v {low = array<i64: 2, -1>, high = array<i64: -1, 4>, interior = array<i64: 1, 2>} : tensor<5x9xf32>, f32 -> tensor<10x28xf32>
      %1 = mpc.slice %0 {starts = array<i64: 0, 1>, steps = array<i64: 1, 1>} : tensor<10x28xf32> -> tensor<10x27xf32>
      %2 = arith.addf %1, %1 : tensor<10x27xf32>
      return %2 : tensor<10x27xf32>
    })");
}

TEST(Codegen, PadOfOuterDimensionOnly) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<3x4x16xf16>) -> tensor<3x7x16xf16>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [3, 7, 16], split = 2, aliases = [-1]>} {
      %v = arith.constant 0.0 : f16
      %0 = mpc.pad %x, %v {low = array<i64: 0, 1, 0>, high = array<i64: 0, 2, 0>, interior = array<i64: 0, 0, 0>} : tensor<3x4x16xf16>, f16 -> tensor<3x7x16xf16>
      return %0 : tensor<3x7x16xf16>
    })");
}

TEST(Codegen, Concat) {
  expectMatchesReference(R"(
    func.func private @k(%a: tensor<4x5xf32>, %b: tensor<4x1xf32>, %c: tensor<4x7xf32>) -> tensor<8x13xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [8, 13], split = 1, aliases = [-1]>} {
      %0 = mpc.concat %a, %b, %c {axis = 1 : i64} : (tensor<4x5xf32>, tensor<4x1xf32>, tensor<4x7xf32>) -> tensor<4x13xf32>
      %1 = arith.negf %0 : tensor<4x13xf32>
      %2 = mpc.concat %0, %1 {axis = 0 : i64} : (tensor<4x13xf32>, tensor<4x13xf32>) -> tensor<8x13xf32>
      return %2 : tensor<8x13xf32>
    })");
}

// Gather along an inner axis and along the first; an index outside reads the nearest element.
TEST(Codegen, Gather) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<3x9x8xf32>, %i: tensor<2x2xi64>, %t: tensor<11x8xbf16>, %j: tensor<3x2x2xi32>) -> tensor<3x2x2x8xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [3, 2, 2, 8], split = 3, aliases = [-1]>} {
      %0 = mpc.gather %x, %i {axis = 1 : i64} : tensor<3x9x8xf32>, tensor<2x2xi64> -> tensor<3x2x2x8xf32>
      %1 = mpc.gather %t, %j {axis = 0 : i64} : tensor<11x8xbf16>, tensor<3x2x2xi32> -> tensor<3x2x2x8xbf16>
      %2 = arith.extf %1 : tensor<3x2x2x8xbf16> to tensor<3x2x2x8xf32>
      %3 = arith.addf %0, %2 : tensor<3x2x2x8xf32>
      return %3 : tensor<3x2x2x8xf32>
    })",
                         14);
}

// i1 in memory, comparison of a class index with a running index (the one-hot row of a loss).
TEST(Codegen, BooleansAndIota) {
  expectMatchesReference(R"(
    func.func private @k(%m: tensor<8x12xi1>, %l: tensor<8xi64>) -> (tensor<8x12xf32>, tensor<8x12xi1>)
        attributes {mpc.kernel = #mpc.kernel<map, domain = [8, 12], split = 1, aliases = [-1, -1]>} {
      %0 = mpc.iota {axis = 1 : i64} : tensor<8x12xi64>
      %1 = mpc.broadcast %l {dimensions = array<i64: 0>} : tensor<8xi64> -> tensor<8x12xi64>
      %2 = arith.cmpi eq, %0, %1 : tensor<8x12xi64>
      %one = arith.constant dense<1.0> : tensor<8x12xf32>
      %half = arith.constant dense<0.5> : tensor<8x12xf32>
      %3 = arith.select %2, %one, %half : tensor<8x12xi1>, tensor<8x12xf32>
      %4 = arith.andi %2, %m : tensor<8x12xi1>
      return %3, %4 : tensor<8x12xf32>, tensor<8x12xi1>
    })",
                         12);
}

// A scalar kernel and in-place results: the new value is only stored after everything is read.
TEST(Codegen, ScalarsInPlace) {
  expectMatchesReference(R"(
    func.func private @k(%scale: tensor<f32>, %ok: tensor<i1>) -> (tensor<f32>, tensor<f32>)
        attributes {mpc.kernel = #mpc.kernel<map, domain = [], split = 0, aliases = [0, -1]>} {
      %two = arith.constant dense<2.0> : tensor<f32>
      %0 = arith.mulf %scale, %two : tensor<f32>
      %1 = arith.select %ok, %0, %scale : tensor<i1>, tensor<f32>
      %2 = arith.addf %1, %scale : tensor<f32>
      return %1, %2 : tensor<f32>, tensor<f32>
    })");
}

// An optimizer's update in place, skipped by a scalar: weights and moment.
TEST(Codegen, UpdateInPlace) {
  expectMatchesReference(R"(
    func.func private @k(%w: tensor<33x17xf32>, %m: tensor<33x17xf32>, %g: tensor<33x17xf32>, %lr: tensor<f32>, %ok: tensor<i1>)
        -> (tensor<33x17xf32>, tensor<33x17xf32>, tensor<33x17xbf16>)
        attributes {mpc.kernel = #mpc.kernel<map, domain = [33, 17], split = 1, aliases = [0, 1, -1]>} {
      %mu = arith.constant dense<0.9> : tensor<33x17xf32>
      %0 = arith.mulf %m, %mu : tensor<33x17xf32>
      %1 = arith.addf %0, %g : tensor<33x17xf32>
      %2 = mpc.broadcast %lr {dimensions = array<i64>} : tensor<f32> -> tensor<33x17xf32>
      %3 = arith.mulf %2, %1 : tensor<33x17xf32>
      %4 = arith.subf %w, %3 : tensor<33x17xf32>
      %5 = mpc.broadcast %ok {dimensions = array<i64>} : tensor<i1> -> tensor<33x17xi1>
      %6 = arith.select %5, %4, %w : tensor<33x17xi1>, tensor<33x17xf32>
      %7 = arith.select %5, %1, %m : tensor<33x17xi1>, tensor<33x17xf32>
      %8 = arith.truncf %6 : tensor<33x17xf32> to tensor<33x17xbf16>
      return %6, %7, %8 : tensor<33x17xf32>, tensor<33x17xf32>, tensor<33x17xbf16>
    })");
}

//===----------------------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------------------===//

// max, then the sum of exponentials (kept for the last phase), then the quotient; half in and out.
TEST(Codegen, Softmax) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<7x50xf16>) -> (tensor<7x50xf16>, tensor<7xf32>)
        attributes {mpc.kernel = #mpc.kernel<row, domain = [7, 50], split = 1, aliases = [-1, -1]>} {
      %0 = arith.extf %x : tensor<7x50xf16> to tensor<7x50xf32>
      %1 = mpc.reduce max %0 {axes = array<i64: 1>} : tensor<7x50xf32> -> tensor<7xf32>
      %2 = mpc.broadcast %1 {dimensions = array<i64: 0>} : tensor<7xf32> -> tensor<7x50xf32>
      %3 = arith.subf %0, %2 : tensor<7x50xf32>
      %4 = math.exp %3 : tensor<7x50xf32>
      %5 = mpc.reduce sum %4 {axes = array<i64: 1>} : tensor<7x50xf32> -> tensor<7xf32>
      %6 = mpc.broadcast %5 {dimensions = array<i64: 0>} : tensor<7xf32> -> tensor<7x50xf32>
      %7 = arith.divf %4, %6 : tensor<7x50xf32>
      %8 = arith.truncf %7 : tensor<7x50xf32> to tensor<7x50xf16>
      %9 = math.log %5 : tensor<7xf32>
      %10 = arith.addf %9, %1 : tensor<7xf32>
      return %8, %10 : tensor<7x50xf16>, tensor<7xf32>
    })");
}

// In place, and with the exponentials kept in the result's own buffer where it is another one.
TEST(Codegen, SoftmaxInPlace) {
  for (const char *alias : {"0", "-1"})
    expectMatchesReference(std::string(R"(
    func.func private @k(%x: tensor<3x4x21xf32>) -> tensor<3x4x21xf32>
        attributes {mpc.kernel = #mpc.kernel<row, domain = [3, 4, 21], split = 2, aliases = [)") +
                           alias + R"(]>} {
      %1 = mpc.reduce max %x {axes = array<i64: 2>} : tensor<3x4x21xf32> -> tensor<3x4xf32>
      %2 = mpc.broadcast %1 {dimensions = array<i64: 0, 1>} : tensor<3x4xf32> -> tensor<3x4x21xf32>
      %3 = arith.subf %x, %2 : tensor<3x4x21xf32>
      %4 = math.exp %3 : tensor<3x4x21xf32>
      %5 = mpc.reduce sum %4 {axes = array<i64: 2>} : tensor<3x4x21xf32> -> tensor<3x4xf32>
      %6 = mpc.broadcast %5 {dimensions = array<i64: 0, 1>} : tensor<3x4xf32> -> tensor<3x4x21xf32>
      %7 = arith.divf %4, %6 : tensor<3x4x21xf32>
      return %7 : tensor<3x4x21xf32>
    })");
}

// A result that is itself kept: exp in its own buffer, and the sum that follows.
TEST(Codegen, KeptInTheResult) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<5x19xf32>) -> (tensor<5x19xf32>, tensor<5x19xf32>)
        attributes {mpc.kernel = #mpc.kernel<row, domain = [5, 19], split = 1, aliases = [-1, 0]>} {
      %4 = math.exp %x : tensor<5x19xf32>
      %5 = mpc.reduce sum %4 {axes = array<i64: 1>} : tensor<5x19xf32> -> tensor<5xf32>
      %6 = mpc.broadcast %5 {dimensions = array<i64: 0>} : tensor<5xf32> -> tensor<5x19xf32>
      %7 = arith.divf %4, %6 : tensor<5x19xf32>
      return %4, %7 : tensor<5x19xf32>, tensor<5x19xf32>
    })");
}

// Mean, then the mean of squared differences, then scale and shift; statistics are results too. One
// row and many.
TEST(Codegen, LayerNorm) {
  for (const char *rows : {"1", "9"}) {
    std::string text = R"(
    func.func private @k(%x: tensor<ROWSx6x8xbf16>, %g: tensor<6x8xf32>, %b: tensor<6x8xf32>) -> (tensor<ROWSx6x8xbf16>, tensor<ROWSxf32>, tensor<ROWSxf32>)
        attributes {mpc.kernel = #mpc.kernel<row, domain = [ROWS, 6, 8], split = 1, aliases = [-1, -1, -1]>} {
      %n = arith.constant dense<48.0> : tensor<ROWSxf32>
      %eps = arith.constant dense<1.0e-5> : tensor<ROWSxf32>
      %0 = arith.extf %x : tensor<ROWSx6x8xbf16> to tensor<ROWSx6x8xf32>
      %1 = mpc.reduce sum %0 {axes = array<i64: 1, 2>} : tensor<ROWSx6x8xf32> -> tensor<ROWSxf32>
      %2 = arith.divf %1, %n : tensor<ROWSxf32>
      %3 = mpc.broadcast %2 {dimensions = array<i64: 0>} : tensor<ROWSxf32> -> tensor<ROWSx6x8xf32>
      %4 = arith.subf %0, %3 : tensor<ROWSx6x8xf32>
      %5 = arith.mulf %4, %4 : tensor<ROWSx6x8xf32>
      %6 = mpc.reduce sum %5 {axes = array<i64: 1, 2>} : tensor<ROWSx6x8xf32> -> tensor<ROWSxf32>
      %7 = arith.divf %6, %n : tensor<ROWSxf32>
      %8 = arith.addf %7, %eps : tensor<ROWSxf32>
      %9 = math.rsqrt %8 : tensor<ROWSxf32>
      %10 = mpc.broadcast %9 {dimensions = array<i64: 0>} : tensor<ROWSxf32> -> tensor<ROWSx6x8xf32>
      %11 = arith.mulf %4, %10 : tensor<ROWSx6x8xf32>
      %12 = mpc.broadcast %g {dimensions = array<i64: 1, 2>} : tensor<6x8xf32> -> tensor<ROWSx6x8xf32>
      %13 = mpc.broadcast %b {dimensions = array<i64: 1, 2>} : tensor<6x8xf32> -> tensor<ROWSx6x8xf32>
      %14 = arith.mulf %11, %12 : tensor<ROWSx6x8xf32>
      %15 = arith.addf %14, %13 : tensor<ROWSx6x8xf32>
      %16 = arith.truncf %15 : tensor<ROWSx6x8xf32> to tensor<ROWSx6x8xbf16>
      return %16, %2, %9 : tensor<ROWSx6x8xbf16>, tensor<ROWSxf32>, tensor<ROWSxf32>
    })";
    for (size_t at; (at = text.find("ROWS")) != std::string::npos;)
      text.replace(at, 4, rows);
    expectMatchesReference(text);
  }
}

// A group norm's rows, with a scale that changes every 20 elements: the row becomes two loops.
TEST(Codegen, RowWithScalePerChannel) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<4x3x20xf32>, %g: tensor<3xf32>) -> (tensor<4x3x20xf32>, tensor<4xf32>)
        attributes {mpc.kernel = #mpc.kernel<row, domain = [4, 3, 20], split = 1, aliases = [-1, -1]>} {
      %0 = mpc.broadcast %g {dimensions = array<i64: 1>} : tensor<3xf32> -> tensor<4x3x20xf32>
      %1 = arith.mulf %x, %0 : tensor<4x3x20xf32>
      %2 = mpc.reduce max %1 {axes = array<i64: 1, 2>} : tensor<4x3x20xf32> -> tensor<4xf32>
      %3 = mpc.broadcast %2 {dimensions = array<i64: 0>} : tensor<4xf32> -> tensor<4x3x20xf32>
      %4 = arith.subf %1, %3 : tensor<4x3x20xf32>
      return %4, %2 : tensor<4x3x20xf32>, tensor<4xf32>
    })");
}

// max and min keep NaN, also in the middle of a row; an empty maximum is -inf.
TEST(Codegen, MaxAndMinKeepNaN) {
  KernelRunner runner(R"(
    func.func private @k(%x: tensor<3x70xf32>) -> (tensor<3xf32>, tensor<3xf32>)
        attributes {mpc.kernel = #mpc.kernel<row, domain = [3, 70], split = 1, aliases = [-1, -1]>} {
      %1 = mpc.reduce max %x {axes = array<i64: 1>} : tensor<3x70xf32> -> tensor<3xf32>
      %2 = mpc.reduce min %x {axes = array<i64: 1>} : tensor<3x70xf32> -> tensor<3xf32>
      return %1, %2 : tensor<3xf32>, tensor<3xf32>
    })");
  ASSERT_TRUE(runner.ok());
  for (int place : {0, 1, 17, 64, 69}) {
    Tensor x{{3, 70}, std::vector<double>(210, -INFINITY)};
    x.data[70 + place] = NAN;
    x.data[140 + place] = 2;
    std::vector<Tensor> y = runner.run(runner.kernel(), {x});
    EXPECT_EQ(y[0].data[0], -INFINITY);
    EXPECT_TRUE(std::isnan(y[0].data[1]) && std::isnan(y[1].data[1])) << place;
    EXPECT_EQ(y[0].data[2], 2);
  }
}

// A causal mask of -inf: the maximum over the others, NaN included; a row without any is -inf.
TEST(Codegen, MaskedMax) {
  KernelRunner runner(R"(
    func.func private @k(%x: tensor<4x70xf16>, %m: tensor<4x70xi1>) -> (tensor<4xf32>, tensor<4xf32>)
        attributes {mpc.kernel = #mpc.kernel<row, domain = [4, 70], split = 1, aliases = [-1, -1]>} {
      %low = arith.constant dense<0xFF800000> : tensor<4x70xf32>
      %high = arith.constant dense<0x7F800000> : tensor<4x70xf32>
      %0 = arith.extf %x : tensor<4x70xf16> to tensor<4x70xf32>
      %1 = arith.select %m, %0, %low : tensor<4x70xi1>, tensor<4x70xf32>
      %2 = arith.select %m, %0, %high : tensor<4x70xi1>, tensor<4x70xf32>
      %3 = mpc.reduce max %1 {axes = array<i64: 1>} : tensor<4x70xf32> -> tensor<4xf32>
      %4 = mpc.reduce min %2 {axes = array<i64: 1>} : tensor<4x70xf32> -> tensor<4xf32>
      return %3, %4 : tensor<4xf32>, tensor<4xf32>
    })");
  ASSERT_TRUE(runner.ok());
  std::mt19937 generator(5);
  Tensor x = randomTensor(runner.kernel().getArgumentTypes()[0], generator),
         m = randomTensor(runner.kernel().getArgumentTypes()[1], generator);
  for (int i = 0; i < 70; ++i) {
    x.data[i] = -std::abs(x.data[i]); // negative maximum
    m.data[70 + i] = 0;               // nothing
    x.data[140 + i] = std::abs(x.data[140 + i]);
  }
  x.data[210 + 33] = NAN;
  m.data[210 + 33] = 1;
  std::vector<Tensor> expected = Reference().run(runner.kernel(), {x, m}),
                      y = runner.run(runner.kernel(), {x, m});
  for (size_t r = 0; r < 2; ++r)
    for (int i = 0; i < 4; ++i)
      EXPECT_TRUE(std::isnan(expected[r].data[i]) ? std::isnan(y[r].data[i])
                                                  : expected[r].data[i] == y[r].data[i])
          << r << " " << i << " " << y[r].data[i];
  EXPECT_EQ(y[0].data[1], -INFINITY);
  EXPECT_TRUE(std::isnan(y[0].data[3]) && std::isnan(y[1].data[3]));
}

//===----------------------------------------------------------------------------------===//
// Columns
//===----------------------------------------------------------------------------------===//

// A bias gradient and the statistics of batch normalization: three sums in one reading, more rows
// than one chunk has.
TEST(Codegen, ColumnSums) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<37x11x24xf16>, %y: tensor<37x11x24xf32>) -> (tensor<24xf32>, tensor<24xf32>, tensor<24xf32>)
        attributes {mpc.kernel = #mpc.kernel<column, domain = [37, 11, 24], split = 2, aliases = [-1, -1, -1]>} {
      %n = arith.constant dense<407.0> : tensor<24xf32>
      %0 = arith.extf %x : tensor<37x11x24xf16> to tensor<37x11x24xf32>
      %1 = arith.mulf %0, %y : tensor<37x11x24xf32>
      %2 = mpc.reduce sum %0 {axes = array<i64: 0, 1>} : tensor<37x11x24xf32> -> tensor<24xf32>
      %3 = mpc.reduce sum %1 {axes = array<i64: 0, 1>} : tensor<37x11x24xf32> -> tensor<24xf32>
      %4 = mpc.reduce max %y {axes = array<i64: 0, 1>} : tensor<37x11x24xf32> -> tensor<24xf32>
      %5 = arith.divf %2, %n : tensor<24xf32>
      %6 = arith.addf %5, %3 : tensor<24xf32>
      return %5, %6, %4 : tensor<24xf32>, tensor<24xf32>, tensor<24xf32>
    })",
                         3, 2e-5);
}

// Many columns, few rows: several blocks of columns; a result in place of an argument.
TEST(Codegen, WideColumns) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<67x2500xf32>, %old: tensor<2500xf32>) -> tensor<2500xf32>
        attributes {mpc.kernel = #mpc.kernel<column, domain = [67, 2500], split = 1, aliases = [1]>} {
      %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<67x2500xf32> -> tensor<2500xf32>
      %1 = arith.addf %0, %old : tensor<2500xf32>
      return %1 : tensor<2500xf32>
    })",
                         3, 2e-5);
}

// To a scalar: many elements; a factor per row; few elements; and the square sums of gradients,
// which are f64.
TEST(Codegen, ScalarSums) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<150x300xf32>, %w: tensor<150xf32>) -> (tensor<f32>, tensor<f32>)
        attributes {mpc.kernel = #mpc.kernel<column, domain = [150, 300], split = 2, aliases = [-1, -1]>} {
      %0 = mpc.broadcast %w {dimensions = array<i64: 0>} : tensor<150xf32> -> tensor<150x300xf32>
      %1 = arith.mulf %x, %0 : tensor<150x300xf32>
      %2 = mpc.reduce sum %1 {axes = array<i64: 0, 1>} : tensor<150x300xf32> -> tensor<f32>
      %3 = mpc.reduce min %x {axes = array<i64: 0, 1>} : tensor<150x300xf32> -> tensor<f32>
      return %2, %3 : tensor<f32>, tensor<f32>
    })",
                         3, 1e-4);
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<2x70000xf32>, %w: tensor<2xf32>) -> tensor<f64>
        attributes {mpc.kernel = #mpc.kernel<column, domain = [2, 70000], split = 2, aliases = [-1]>} {
      %0 = mpc.broadcast %w {dimensions = array<i64: 0>} : tensor<2xf32> -> tensor<2x70000xf32>
      %1 = arith.mulf %x, %0 : tensor<2x70000xf32>
      %2 = arith.extf %1 : tensor<2x70000xf32> to tensor<2x70000xf64>
      %3 = arith.mulf %2, %2 : tensor<2x70000xf64>
      %4 = mpc.reduce sum %3 {axes = array<i64: 0, 1>} : tensor<2x70000xf64> -> tensor<f64>
      return %4 : tensor<f64>
    })",
                         3, 1e-6);
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<5xi1>, %y: tensor<5xf16>) -> (tensor<i64>, tensor<f64>)
        attributes {mpc.kernel = #mpc.kernel<column, domain = [5], split = 1, aliases = [-1, -1]>} {
      %0 = arith.extui %x : tensor<5xi1> to tensor<5xi64>
      %1 = mpc.reduce sum %0 {axes = array<i64: 0>} : tensor<5xi64> -> tensor<i64>
      %2 = mpc.reduce sum %y {axes = array<i64: 0>} : tensor<5xf16> -> tensor<f64>
      return %1, %2 : tensor<i64>, tensor<f64>
    })");
}

//===----------------------------------------------------------------------------------===//
// Scatter and random numbers
//===----------------------------------------------------------------------------------===//

TEST(Codegen, ScatterAdd) {
  // The gradient of an embedding: updates from an expression, repeated indices.
  expectMatchesReference(R"(
    func.func private @k(%i: tensor<4x9xi64>, %u: tensor<4x9x150xf16>) -> tensor<11x150xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [11, 150], split = 0, aliases = [-1]>} {
      %0 = arith.extf %u : tensor<4x9x150xf16> to tensor<4x9x150xf32>
      %1 = mpc.scatter_add %i, %0 {axis = 0 : i64} : (tensor<4x9xi64>, tensor<4x9x150xf32>) -> tensor<11x150xf32>
      return %1 : tensor<11x150xf32>
    })",
                         11);
  // With the sum so far, in place; along an inner axis; nothing behind the axis.
  expectMatchesReference(R"(
    func.func private @k(%i: tensor<9xi64>, %u: tensor<9x70xf32>, %s: tensor<5x70xf32>) -> tensor<5x70xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [5, 70], split = 0, aliases = [2]>} {
      %1 = mpc.scatter_add %i, %u init %s {axis = 0 : i64} : (tensor<9xi64>, tensor<9x70xf32>, tensor<5x70xf32>) -> tensor<5x70xf32>
      return %1 : tensor<5x70xf32>
    })",
                         5);
  expectMatchesReference(R"(
    func.func private @k(%i: tensor<6xi32>, %u: tensor<3x6x4xf32>, %s: tensor<3x5x4xf32>) -> tensor<3x5x4xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [3, 5, 4], split = 1, aliases = [-1]>} {
      %1 = mpc.scatter_add %i, %u init %s {axis = 1 : i64} : (tensor<6xi32>, tensor<3x6x4xf32>, tensor<3x5x4xf32>) -> tensor<3x5x4xf32>
      return %1 : tensor<3x5x4xf32>
    })",
                         5);
  expectMatchesReference(R"(
    func.func private @k(%i: tensor<20xi64>, %u: tensor<20xf32>) -> tensor<5xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [5], split = 0, aliases = [-1]>} {
      %1 = mpc.scatter_add %i, %u {axis = 0 : i64} : (tensor<20xi64>, tensor<20xf32>) -> tensor<5xf32>
      return %1 : tensor<5xf32>
    })",
                         5);
}

// The known answer of Random123 for key 0 and counter 0, then dropout against the reference.
TEST(Codegen, Philox) {
  KernelRunner runner(R"(
    func.func private @k(%s: tensor<2xi64>) -> tensor<4xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [4], split = 0, aliases = [-1]>} {
      %0 = mpc.random_uniform %s {operator_id = 0 : i64, seed = 0 : i64} : tensor<2xi64> -> tensor<4xf32>
      return %0 : tensor<4xf32>
    })");
  ASSERT_TRUE(runner.ok());
  Tensor y = runner.run(runner.kernel(), {Tensor{{2}, {0, 0}}})[0];
  const uint32_t expected[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(y.data[i], double(expected[i] >> 8) * 0x1p-24);

  expectMatchesReference(R"(
    func.func private @k(%x: tensor<5x4x30xf32>, %s: tensor<2xi64>) -> tensor<5x30x4xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [5, 30, 4], split = 2, aliases = [-1]>} {
      %u = mpc.random_uniform %s {operator_id = 77 : i64, seed = 123 : i64} : tensor<2xi64> -> tensor<5x4x30xf32>
      %p = arith.constant dense<0.25> : tensor<5x4x30xf32>
      %z = arith.constant dense<0.0> : tensor<5x4x30xf32>
      %keep = arith.cmpf oge, %u, %p : tensor<5x4x30xf32>
      %y = arith.select %keep, %x, %z : tensor<5x4x30xi1>, tensor<5x4x30xf32>
      %t = mpc.transpose %y {permutation = array<i64: 0, 2, 1>} : tensor<5x4x30xf32> -> tensor<5x30x4xf32>
      return %t : tensor<5x30x4xf32>
    })",
                         1 << 30);
  // Whole fours per row.
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<6x64xf32>, %s: tensor<2xi64>) -> tensor<6x64xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [6, 64], split = 1, aliases = [-1]>} {
      %u = mpc.random_uniform %s {operator_id = 5 : i64, seed = 9 : i64} : tensor<2xi64> -> tensor<6x64xf32>
      %y = arith.mulf %x, %u : tensor<6x64xf32>
      return %y : tensor<6x64xf32>
    })",
                         1 << 30);
}

// Attention's dropout: the mask is drawn in the last phase of a row, four columns at a time; and
// drawn before a reduction.
TEST(Codegen, DropoutInARow) {
  for (const char *columns : {"48", "30"}) {
    std::string text = R"(
    func.func private @k(%x: tensor<7xNxf32>, %s: tensor<2xi64>) -> (tensor<7xNxf32>, tensor<7xf32>)
        attributes {mpc.kernel = #mpc.kernel<row, domain = [7, N], split = 1, aliases = [-1, -1]>} {
      %1 = mpc.reduce max %x {axes = array<i64: 1>} : tensor<7xNxf32> -> tensor<7xf32>
      %2 = mpc.broadcast %1 {dimensions = array<i64: 0>} : tensor<7xf32> -> tensor<7xNxf32>
      %3 = arith.subf %x, %2 : tensor<7xNxf32>
      %4 = math.exp %3 : tensor<7xNxf32>
      %5 = mpc.reduce sum %4 {axes = array<i64: 1>} : tensor<7xNxf32> -> tensor<7xf32>
      %6 = mpc.broadcast %5 {dimensions = array<i64: 0>} : tensor<7xf32> -> tensor<7xNxf32>
      %7 = arith.divf %4, %6 : tensor<7xNxf32>
      %u = mpc.random_uniform %s {operator_id = 3 : i64, seed = 4 : i64} : tensor<2xi64> -> tensor<7xNxf32>
      %p = arith.constant dense<0.5> : tensor<7xNxf32>
      %z = arith.constant dense<0.0> : tensor<7xNxf32>
      %keep = arith.cmpf oge, %u, %p : tensor<7xNxf32>
      %y = arith.select %keep, %7, %z : tensor<7xNxi1>, tensor<7xNxf32>
      %w = arith.mulf %u, %x : tensor<7xNxf32>
      %t = mpc.reduce sum %w {axes = array<i64: 1>} : tensor<7xNxf32> -> tensor<7xf32>
      return %y, %t : tensor<7xNxf32>, tensor<7xf32>
    })";
    for (size_t at; (at = text.find("7xN")) != std::string::npos;)
      text.replace(at, 3, std::string("7x") + columns);
    text.replace(text.find("[7, N]"), 6, std::string("[7, ") + columns + "]");
    expectMatchesReference(text, 1 << 30, 1e-5);
  }
}
