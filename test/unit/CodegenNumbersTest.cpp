//===- CodegenNumbersTest.cpp - conversions, functions, the table of kernels -------------===//

#include "KernelRunner.h"

using namespace mpc::test;

// Every f16 number to f32 and back; rounding of f32 to both halves, at ties, limits and random
// bits; with the CPU's instructions and without.
TEST(Codegen, HalfConversions) {
  for (const char *cpu : {"native", "x86-64"}) {
    SCOPED_TRACE(cpu);
    constexpr int n = 1 << 16;
    std::string text = R"(
      func.func private @k(%h: tensor<65536xf16>, %x: tensor<65536xf32>) -> (tensor<65536xf32>, tensor<65536xf16>, tensor<65536xf16>, tensor<65536xbf16>)
          attributes {mpc.kernel = #mpc.kernel<map, domain = [65536], split = 0, aliases = [-1, -1, -1, -1]>} {
        %0 = arith.extf %h : tensor<65536xf16> to tensor<65536xf32>
        %1 = arith.truncf %0 : tensor<65536xf32> to tensor<65536xf16>
        %2 = arith.truncf %x : tensor<65536xf32> to tensor<65536xf16>
        %3 = arith.truncf %x : tensor<65536xf32> to tensor<65536xbf16>
        return %0, %1, %2, %3 : tensor<65536xf32>, tensor<65536xf16>, tensor<65536xf16>, tensor<65536xbf16>
      })";
    KernelRunner runner(text, cpu);
    ASSERT_TRUE(runner.ok());
    auto *context = &runner.context;
    mlir::Type f16 = mlir::Float16Type::get(context), bf16 = mlir::BFloat16Type::get(context),
               f32 = mlir::Float32Type::get(context);
    Storage h(n * 2), x(n * 4), wide(n * 4), back(n * 2), f(n * 2), bf(n * 2);
    std::mt19937 generator(1);
    for (int i = 0; i < n; ++i) {
      h.as<uint16_t>()[i] = i;
      // Random bits; half of them near the range of f16, some exactly between two halves.
      uint32_t bits = generator();
      if (i % 2)
        bits = (bits & 0x807fffff) | ((100 + (bits >> 24) % 46) << 23);
      if (i % 8 == 1)
        bits = (bits & 0xffffe000) | 0x1000;
      if (i % 8 == 3)
        bits = (bits & 0xffff0000) | 0x8000;
      x.as<uint32_t>()[i] = bits;
    }
    const float edges[] = {65504,    65519.99f,       65520,    65536,    -65520,    0x1p-24f,
                           0x1p-25f, 0x1.000002p-25f, 0x1p-14f, INFINITY, -INFINITY, NAN,
                           0.0f,     -0.0f,           3.4e38f};
    for (size_t i = 0; i < std::size(edges); ++i)
      x.as<float>()[i] = edges[i];
    runner.run(runner.kernel(),
               {h.data(), x.data(), wide.data(), back.data(), f.data(), bf.data()});
    int wrong = 0;
    for (int i = 0; i < n && wrong < 5; ++i) {
      double value = fromBits(i, f16), got = wide.as<float>()[i];
      wrong += !(std::isnan(value) ? std::isnan(got)
                                   : value == got && std::signbit(value) == std::signbit(got));
      wrong += std::isnan(value) ? !std::isnan(fromBits(back.as<uint16_t>()[i], f16))
                                 : back.as<uint16_t>()[i] != i;
      double number = fromBits(x.as<uint32_t>()[i], f32);
      for (auto [type, bits] :
           {std::pair(f16, f.as<uint16_t>()[i]), std::pair(bf16, bf.as<uint16_t>()[i])}) {
        bool ok =
            std::isnan(number) ? std::isnan(fromBits(bits, type)) : bitsOf(number, type) == bits;
        // AVX512-BF16 takes and gives zero for subnormal numbers.
        ok |= type == bf16 && std::abs(number) < 0x1p-126 && fromBits(bits, type) == 0;
        EXPECT_TRUE(ok) << number << " becomes " << fromBits(bits, type);
        wrong += !ok;
      }
    }
    EXPECT_EQ(wrong, 0);
  }
}

// The polynomials against libm, in units of the last place, over all exponents, and exactly at the
// special values.
TEST(Codegen, ElementaryFunctions) {
  struct Function {
    const char *name;
    double (*exact)(double);
    double low, high; ///< of the random arguments
    double ulps;
  };
  const Function functions[] = {
      {"exp", std::exp, -110, 95, 2},     {"expm1", std::expm1, -30, 95, 3},
      {"log", std::log, 0, 1e30, 2},      {"log1p", std::log1p, -1, 1e3, 4},
      {"tanh", std::tanh, -12, 12, 3},    {"erf", std::erf, -6, 6, 3},
      {"sqrt", std::sqrt, 0, 1e10, 0.51},
  };
  for (const char *cpu : {"native", "x86-64"})
    for (const Function &function : functions) {
      SCOPED_TRACE(std::string(function.name) + " " + cpu);
      constexpr int n = 100000;
      std::string text = R"(
        func.func private @k(%x: tensor<100000xf32>) -> tensor<100000xf32>
            attributes {mpc.kernel = #mpc.kernel<map, domain = [100000], split = 0, aliases = [-1]>} {
          %0 = math.NAME %x : tensor<100000xf32>
          return %0 : tensor<100000xf32>
        })";
      text.replace(text.find("NAME"), 4, function.name);
      KernelRunner runner(text, cpu);
      ASSERT_TRUE(runner.ok());
      Storage x(n * 4), y(n * 4);
      std::mt19937 generator(3);
      std::uniform_real_distribution<double> plain(function.low, function.high), exponent(-45, 38);
      for (int i = 0; i < n; ++i) {
        double size = std::pow(10, exponent(generator));
        x.as<float>()[i] = i % 3 == 0 ? size : i % 3 == 1 ? -size : plain(generator);
      }
      const float special[] = {0.0f, -0.0f,     INFINITY,  -INFINITY,  NAN,      1,
                               -1,   88.72283f, 88.72284f, -87.33654f, -103.97f, -104.0f,
                               1000, -1000,     1e-45f,    3.4e38f,    -3.4e38f};
      std::copy(std::begin(special), std::end(special), x.as<float>());
      runner.run(runner.kernel(), {x.data(), y.data()});
      double worst = 0, where = 0;
      for (int i = 0; i < n; ++i) {
        float argument = x.as<float>()[i], got = y.as<float>()[i];
        double exact = function.exact(argument);
        float want = static_cast<float>(exact);
        if (std::isnan(want) || std::isinf(want) || want == 0 || std::isnan(got) ||
            std::isinf(got)) {
          bool same = std::isnan(want) ? std::isnan(got) : want == got;
          double ulp = std::abs(static_cast<double>(std::nextafter(3.4028234e38f, 0.0f)) -
                                3.4028234663852886e38);
          same |= std::abs(exact) > 3.40282e38 && std::abs(got) > 3.40282e38 &&
                  std::abs(exact) < 3.4028234663852886e38 + 4 * ulp; // the very edge
          same |= want == 0 && std::abs(got) < 2e-45;
          EXPECT_TRUE(same) << function.name << "(" << argument << ") = " << got << ", not "
                            << want;
          continue;
        }
        double ulp =
            std::max<double>(std::nextafter(std::abs(want), INFINITY) - std::abs(want), 0x1p-149);
        double error = std::abs(got - exact) / ulp;
        if (error > worst)
          worst = error, where = argument;
      }
      EXPECT_LE(worst, function.ulps) << function.name << " at " << where;
      std::printf("%s (%s): %.2f units at %g\n", function.name, cpu, worst, where);
    }
}

// A rounding that was placed stays, also where the value is widened again at once: in a map, and in
// a sum that may be taken in any order; with and without an instruction for the conversion.
TEST(Codegen, RoundingsStay) {
  const std::string map = R"(
      func.func private @k(%x: tensor<100xf32>) -> tensor<100xf32>
          attributes {mpc.kernel = #mpc.kernel<map, domain = [100], split = 0, aliases = [-1]>} {
        %0 = arith.truncf %x : tensor<100xf32> to tensor<100xHALF>
        %1 = arith.extf %0 : tensor<100xHALF> to tensor<100xf32>
        %2 = arith.subf %x, %1 : tensor<100xf32>
        %c = arith.constant dense<1.0e+4> : tensor<100xf32>
        %3 = arith.mulf %2, %c : tensor<100xf32>
        return %3 : tensor<100xf32>
      })";
  const std::string row = R"(
      func.func private @k(%x: tensor<3x100xf32>) -> (tensor<3xf32>, tensor<3x100xHALF>)
          attributes {mpc.kernel = #mpc.kernel<row, domain = [3, 100], split = 1, aliases = [-1, -1]>} {
        %0 = arith.truncf %x : tensor<3x100xf32> to tensor<3x100xHALF>
        %1 = arith.extf %0 : tensor<3x100xHALF> to tensor<3x100xf32>
        %2 = arith.subf %x, %1 : tensor<3x100xf32>
        %c = arith.constant dense<1.0e+4> : tensor<3x100xf32>
        %3 = arith.mulf %2, %c : tensor<3x100xf32>
        %4 = mpc.reduce sum %3 {axes = array<i64: 1>} : tensor<3x100xf32> -> tensor<3xf32>
        return %4, %0 : tensor<3xf32>, tensor<3x100xHALF>
      })";
  for (const char *half : {"f16", "bf16"})
    for (const char *cpu : {"native", "x86-64-v3", "x86-64"})
      for (std::string text : {map, row}) {
        double tolerance = text == map ? 2e-6 : 1e-3; // of a sum of 100, in some order
        for (size_t at; (at = text.find("HALF")) != std::string::npos;)
          text.replace(at, 4, half);
        expectMatchesReference(text, 3, tolerance, cpu);
      }
}

// NaN and infinities pass through minimum, maximum and a selection as PyTorch's relu, clamp and
// max_pool pass them.
TEST(Codegen, NaNStays) {
  KernelRunner runner(R"(
    func.func private @k(%x: tensor<1x1x64xf32>) -> (tensor<1x1x64xf32>, tensor<1x1x64xf32>, tensor<1x1x64xf32>)
        attributes {mpc.kernel = #mpc.kernel<map, domain = [1, 1, 64], split = 0, aliases = [-1, -1, -1]>} {
      %z = arith.constant dense<0.0> : tensor<1x1x64xf32>
      %0 = arith.maximumf %x, %z : tensor<1x1x64xf32>
      %1 = arith.minimumf %x, %0 : tensor<1x1x64xf32>
      %2, %3 = mpc.max_pool %x {kernel = array<i64: 3>, strides = array<i64: 1>, pads = array<i64: 1, 1>, dilations = array<i64: 1>}
          : (tensor<1x1x64xf32>) -> (tensor<1x1x64xf32>, tensor<1x1x64xi8>)
      return %0, %1, %2 : tensor<1x1x64xf32>, tensor<1x1x64xf32>, tensor<1x1x64xf32>
    })");
  ASSERT_TRUE(runner.ok());
  Tensor x{{1, 1, 64}, std::vector<double>(64, -1)};
  x.data[3] = x.data[40] = NAN;
  x.data[10] = INFINITY;
  x.data[20] = -INFINITY;
  std::vector<Tensor> expected = Reference().run(runner.kernel(), {x}),
                      y = runner.run(runner.kernel(), {x});
  for (size_t r = 0; r < y.size(); ++r)
    for (int i = 0; i < 64; ++i)
      EXPECT_TRUE(std::isnan(expected[r].data[i]) ? std::isnan(y[r].data[i])
                                                  : expected[r].data[i] == y[r].data[i])
          << r << " " << i;
  EXPECT_TRUE(std::isnan(y[0].data[3]) && std::isnan(y[2].data[4]) && std::isnan(y[2].data[2]));
}

// fp64 goes through libm.
TEST(Codegen, Doubles) {
  expectMatchesReference(R"(
    func.func private @k(%x: tensor<40xf64>) -> (tensor<40xf64>, tensor<40xf64>, tensor<40xf64>, tensor<40xf64>)
        attributes {mpc.kernel = #mpc.kernel<map, domain = [40], split = 0, aliases = [-1, -1, -1, -1]>} {
      %0 = math.exp %x : tensor<40xf64>
      %1 = math.tanh %x : tensor<40xf64>
      %2 = math.erf %x : tensor<40xf64>
      %3 = math.absf %x : tensor<40xf64>
      %4 = math.log1p %3 : tensor<40xf64>
      %5 = math.expm1 %4 : tensor<40xf64>
      return %0, %1, %2, %5 : tensor<40xf64>, tensor<40xf64>, tensor<40xf64>, tensor<40xf64>
    })",
                         3, 1e-14);
}

TEST(Codegen, Powers) {
  for (const char *exponent : {"2.0", "3.0", "-1.0", "0.5", "-0.5", "1.0", "1.7"}) {
    std::string text = R"(
      func.func private @k(%x: tensor<40xf32>) -> tensor<40xf32>
          attributes {mpc.kernel = #mpc.kernel<map, domain = [40], split = 0, aliases = [-1]>} {
        %e = arith.constant dense<EXPONENT> : tensor<40xf32>
        %a = math.absf %x : tensor<40xf32>
        %0 = math.powf %a, %e : tensor<40xf32>
        return %0 : tensor<40xf32>
      })";
    text.replace(text.find("EXPONENT"), 8, exponent);
    expectMatchesReference(text);
  }
}

//===----------------------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------------------===//

// Equal bodies share their functions; a column kernel has two.
TEST(Codegen, KernelIndex) {
  std::string map =
      R"((%x: tensor<8xf32>) -> tensor<8xf32> attributes {mpc.kernel = #mpc.kernel<map, domain = [8], split = 0, aliases = [-1]>} {
      %0 = arith.negf %x {mpc.node = "NODE"} : tensor<8xf32>
      return %0 : tensor<8xf32>
    })";
  std::string column =
      R"((%x: tensor<8xf32>) -> tensor<f32> attributes {mpc.kernel = #mpc.kernel<column, domain = [8], split = 1, aliases = [-1]>} {
      %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<8xf32> -> tensor<f32>
      return %0 : tensor<f32>
    })";
  auto other = map;
  other.replace(other.find("NODE"), 4, "another");
  KernelRunner runner("func.func private @a" + map + "\nfunc.func private @s" + column +
                      "\nfunc.func private @b" + other);
  ASSERT_TRUE(runner.ok());
  mpc::KernelIndex table = mpc::kernelIndex(*runner.module);
  EXPECT_EQ(table.entries.size(), 3u);
  EXPECT_EQ(table.index["a"], table.index["b"]);
  EXPECT_EQ(table.index["s.partial"], 1u);
  EXPECT_EQ(table.index["s.combine"], 2u);
}

TEST(Codegen, UnknownCpu) {
  auto cpu = mpc::describeCpu("486turbo");
  ASSERT_FALSE(static_cast<bool>(cpu));
  EXPECT_NE(llvm::toString(cpu.takeError()).find("--cpu=486turbo"), std::string::npos);
}
