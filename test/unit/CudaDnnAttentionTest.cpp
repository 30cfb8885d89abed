//===- CudaDnnAttentionTest.cpp - the runtime's attention on the simulated cuDNN ------------===//
//
// Against the definition in doubles, of operands and results as they are rounded.
//
//===----------------------------------------------------------------------------------------===//

#include "CudaTestSupport.h"
#include "runtime/cuda/Dnn.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

using namespace mpc;
using namespace mpc::test;
using mpc::cuda::Dnn;
using mpc::cuda::Gpu;

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeastScore = -100000; // beside a bias

struct Wanted {
  int64_t batch = 2, queries = 5, keys = 7, heads = 3, depth = 16, width = 8;
  ElementType type = ElementType::f16, biasType = ElementType::f32;
  std::vector<int64_t> biasDimensions; ///< empty: no bias
  double scale = 0.25, dropoutRatio = 0;
  bool isSafe = false;
};

double rounded(ElementType type, double value) {
  auto number = static_cast<float>(value);
  if (type == ElementType::f16)
    return static_cast<double>(static_cast<_Float16>(number));
  if (type == ElementType::f32 || !std::isfinite(number))
    return number;
  auto bits = std::bit_cast<uint32_t>(number);
  return std::bit_cast<float>((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000);
}

/// An operand or result: numbers that its type has.
struct Values {
  std::vector<int64_t> shape;
  ElementType type = ElementType::f32;
  std::vector<double> values;

  Values() = default;
  Values(std::vector<int64_t> extents, ElementType type) : shape(std::move(extents)), type(type) {
    int64_t count = 1;
    for (int64_t extent : shape)
      count *= extent;
    values.resize(static_cast<size_t>(count));
  }
  void fill(std::mt19937 &random, double most = 1) {
    for (double &value : values)
      value = rounded(type, most * static_cast<int32_t>(random()) * 0x1p-31);
  }
  double &at(int64_t a, int64_t b, int64_t c, int64_t d) {
    return values[((a * shape[1] + b) * shape[2] + c) * shape[3] + d];
  }
  double &at(int64_t a, int64_t b, int64_t c) { return values[(a * shape[1] + b) * shape[2] + c]; }
  Operand operand() const {
    Operand made;
    made.shape = shape;
    made.type = type;
    made.present = true;
    made.buffer.region = Region::arena;
    return made;
  }
  std::vector<uint8_t> bytes() const {
    size_t size = elementSize(type);
    std::vector<uint8_t> all(values.size() * size);
    for (size_t i = 0; i < values.size(); ++i) {
      auto number = static_cast<float>(values[i]);
      uint32_t bits = std::bit_cast<uint32_t>(number) >> (type == ElementType::bf16 ? 16 : 0);
      if (type == ElementType::f16)
        bits = std::bit_cast<uint16_t>(static_cast<_Float16>(number));
      std::memcpy(all.data() + i * size, &bits, size);
    }
    return all;
  }
  void read(const std::vector<uint8_t> &all) {
    size_t size = elementSize(type);
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, all.data() + i * size, size);
      values[i] = type == ElementType::f16
                      ? static_cast<double>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)))
                      : std::bit_cast<float>(type == ElementType::bf16 ? bits << 16 : bits);
    }
  }
};

/// Attention by the definition, with its gradients.
struct Defined {
  explicit Defined(const Wanted &w)
      : w(w), query({w.batch, w.queries, w.heads, w.depth}, w.type),
        key({w.batch, w.keys, w.heads, w.depth}, w.type),
        value({w.batch, w.keys, w.heads, w.width}, w.type),
        output({w.batch, w.queries, w.heads, w.width}, w.type),
        outputGradient({w.batch, w.queries, w.heads, w.width}, w.type),
        logSum({w.batch, w.heads, w.queries}, ElementType::f32),
        statistics({2, w.batch, w.heads, w.queries}, ElementType::f32), queryGradient(query),
        keyGradient(key), valueGradient(value) {
    std::mt19937 random(7);
    for (Values *each : {&query, &key, &value, &outputGradient})
      each->fill(random, each == &outputGradient ? 0.5 : 1.5);
    if (w.biasDimensions.empty())
      return;
    const int64_t scores[] = {w.batch, w.heads, w.queries, w.keys};
    std::vector<int64_t> shape;
    for (int64_t dimension : w.biasDimensions)
      shape.push_back(scores[dimension]);
    bias = Values(shape, w.biasType);
    bias.fill(random);
  }

  double biasAt(const int64_t (&at)[4]) const {
    int64_t index = 0;
    for (size_t i = 0; i < w.biasDimensions.size(); ++i)
      index = index * bias.shape[i] + at[w.biasDimensions[i]];
    return bias.values[index];
  }

  double score(int64_t b, int64_t h, int64_t m, int64_t n) {
    double sum = 0;
    for (int64_t d = 0; d < w.depth; ++d)
      sum += query.at(b, m, h, d) * key.at(b, n, h, d);
    sum *= static_cast<float>(w.scale);
    if (w.biasDimensions.empty())
      return sum;
    sum += biasAt({b, h, m, n});
    return sum < kLeastScore ? kLeastScore : sum;
  }

  template <typename Body> void forRows(Body body) {
    for (int64_t b = 0; b < w.batch; ++b)
      for (int64_t h = 0; h < w.heads; ++h)
        for (int64_t m = 0; m < w.queries; ++m)
          body(b, h, m);
  }

  /// Sets what forward makes.
  void forward() {
    forRows([&](int64_t b, int64_t h, int64_t m) {
      std::vector<double> s(w.keys);
      double most = -kInfinity, sum = 0;
      for (int64_t n = 0; n < w.keys; ++n) {
        s[n] = score(b, h, m, n);
        most = std::max(most, s[n]);
      }
      for (double each : s)
        sum += std::exp(each - most);
      double log = most + std::log(sum);
      logSum.at(b, h, m) = rounded(ElementType::f32, log);
      for (int64_t e = 0; e < w.width; ++e) {
        double total = 0;
        for (int64_t n = 0; n < w.keys; ++n)
          total += std::exp(s[n] - log) * value.at(b, n, h, e);
        output.at(b, m, h, e) = rounded(w.type, total);
      }
    });
  }

  /// Sets the gradients, of the output and log Σ exp as they are.
  void backward() {
    for (Values *each : {&queryGradient, &keyGradient, &valueGradient})
      std::fill(each->values.begin(), each->values.end(), 0);
    forRows([&](int64_t b, int64_t h, int64_t m) {
      double products = 0;
      for (int64_t e = 0; e < w.width; ++e)
        products += outputGradient.at(b, m, h, e) * output.at(b, m, h, e);
      for (int64_t n = 0; n < w.keys; ++n) {
        double p = std::exp(score(b, h, m, n) - logSum.at(b, h, m)), ds = -products;
        for (int64_t e = 0; e < w.width; ++e) {
          ds += outputGradient.at(b, m, h, e) * value.at(b, n, h, e);
          valueGradient.at(b, n, h, e) += p * outputGradient.at(b, m, h, e);
        }
        ds *= p * static_cast<float>(w.scale);
        for (int64_t d = 0; d < w.depth; ++d) {
          queryGradient.at(b, m, h, d) += ds * key.at(b, n, h, d);
          keyGradient.at(b, n, h, d) += ds * query.at(b, m, h, d);
        }
      }
    });
  }

  const Wanted w;
  Values query, key, value, bias, output, outputGradient, logSum, statistics, queryGradient,
      keyGradient, valueGradient;
};

/// A program of an attention and its gradient, their operands, and the library.
struct Attention {
  Attention(const Gpu &gpu, const Wanted &wanted) : gpu(gpu), stream(gpu.stream()), is(wanted) {
    is.forward();
    is.backward();
    Command forward;
    forward.kind = CommandKind::attention;
    forward.node = "softmax1";
    forward.scale = wanted.scale;
    forward.bias_dimensions = wanted.biasDimensions;
    forward.dropout_ratio = wanted.dropoutRatio;
    forward.safe = wanted.isSafe;
    Command gradient = forward;
    gradient.kind = CommandKind::attention_grad;
    for (const Values *each : {&is.query, &is.key, &is.value})
      forward.operands.push_back(each->operand());
    for (const Values *each : {&is.outputGradient, &is.query, &is.key, &is.value, &is.output,
                               &is.logSum, &is.statistics})
      gradient.operands.push_back(each->operand());
    if (!wanted.biasDimensions.empty())
      for (Command *each : {&forward, &gradient})
        each->operands.push_back(is.bias.operand());
    for (const Values *each : {&is.output, &is.logSum, &is.statistics})
      forward.results.push_back(each->operand());
    for (const Values *each : {&is.queryGradient, &is.keyGradient, &is.valueGradient})
      gradient.results.push_back(each->operand());
    program.entries["gradients"].commands = {forward, gradient};
    dnn = Dnn::open(gpu, stream, program, MPC_TEST_SIM_FOLDER);
  }

  const Command &command(bool isGradient) const {
    return program.entries.at("gradients").commands[isGradient ? 1 : 0];
  }
  bool executes(bool isGradient) {
    dnn->prepare({&command(false), &command(true)});
    return dnn->executes(command(isGradient));
  }

  /// What the library makes of the operands; false where it leaves that to the generated kernel.
  bool run(bool isGradient, std::vector<Values> &results) {
    std::vector<const Values *> operands{&is.query, &is.key, &is.value};
    results = {is.output, is.logSum, is.statistics};
    if (isGradient) {
      operands = {&is.outputGradient, &is.query,  &is.key,       &is.value,
                  &is.output,         &is.logSum, &is.statistics};
      results = {is.queryGradient, is.keyGradient, is.valueGradient};
    }
    if (!is.w.biasDimensions.empty())
      operands.push_back(&is.bias);
    std::vector<cuda::DeviceMemory> memory;
    std::vector<CUdeviceptr> addresses;
    auto place = [&](const Values &values) {
      std::vector<uint8_t> bytes = values.bytes();
      memory.push_back(gpu.allocate(bytes.size(), "a test"));
      gpu.upload(stream, memory.back(), bytes.data(), bytes.size());
      addresses.push_back(memory.back());
    };
    for (const Values *each : operands)
      place(*each);
    for (Values &each : results) {
      std::fill(each.values.begin(), each.values.end(), 99);
      place(each);
    }
    auto workspace = gpu.allocate(dnn->workspaceBytes() + 1, "a test");
    dnn->use(workspace);
    bool isDone = dnn->run(command(isGradient), addresses);
    for (size_t i = 0; i < results.size(); ++i) {
      std::vector<uint8_t> bytes = results[i].bytes();
      gpu.download(stream, bytes.data(), addresses[operands.size() + i], bytes.size());
      gpu.synchronize(stream);
      results[i].read(bytes);
    }
    return isDone;
  }

  const Gpu &gpu;
  cuda::Stream stream;
  Defined is;
  Program program;
  std::unique_ptr<Dnn> dnn;
};

/// By default of a version that computes all gradients.
std::string onAttention(const Wanted &wanted, const std::function<void(Attention &)> &body,
                        SimSettings settings = {}) {
  settings.insert(settings.begin(), {"MPC_SIM_DNN_VERSION", "91900"});
  return onRuntimeGpu(
      [&](const Gpu &gpu) {
        Attention attention(gpu, wanted);
        ASSERT_NE(attention.dnn, nullptr);
        body(attention);
      },
      settings);
}

/// Two weights' or gradients' roundings, of the largest number.
void expectNear(const Values &found, const Values &wanted, const char *what) {
  double most = 0, error = 0;
  for (double value : wanted.values)
    most = std::max(most, std::abs(value));
  for (size_t i = 0; i < wanted.values.size(); ++i)
    error = std::max(error, std::isfinite(found.values[i])
                                ? std::abs(found.values[i] - wanted.values[i])
                                : kInfinity);
  double unit = wanted.type == ElementType::f32   ? 0x1p-20
                : wanted.type == ElementType::f16 ? 0x1p-11
                                                  : 0x1p-8;
  EXPECT_LE(error, 2 * unit * most) << what;
}

void expectForward(Attention &a) {
  std::vector<Values> found;
  ASSERT_TRUE(a.executes(false));
  ASSERT_TRUE(a.run(false, found));
  expectNear(found[0], a.is.output, "output");
  expectNear(found[1], a.is.logSum, "log Σ exp");
}

void expectGradients(Attention &a) {
  std::vector<Values> found;
  ASSERT_TRUE(a.executes(true));
  ASSERT_TRUE(a.run(true, found));
  expectNear(found[0], a.is.queryGradient, "query");
  expectNear(found[1], a.is.keyGradient, "key");
  expectNear(found[2], a.is.valueGradient, "value");
}

void expectExecutes(const Wanted &wanted, bool forward, bool gradient,
                    const SimSettings &settings = {}) {
  onAttention(
      wanted,
      [&](Attention &a) {
        EXPECT_EQ(a.executes(false), forward);
        EXPECT_EQ(a.executes(true), gradient);
      },
      settings);
}
} // namespace

// Shapes of full tiles and others; the first engines that are offered compute otherwise.
TEST(CudaDnnAttention, TheDefinition) {
  for (ElementType type : {ElementType::f16, ElementType::bf16})
    for (auto [queries, keys] : {std::pair<int64_t, int64_t>{5, 7}, {1, 70}, {128, 128}}) {
      Wanted wanted;
      wanted.type = type;
      wanted.queries = queries;
      wanted.keys = keys;
      onAttention(wanted, [](Attention &a) {
        expectForward(a);
        expectGradients(a);
      });
    }
}

TEST(CudaDnnAttention, BiasesOfAllForms) {
  for (const std::vector<int64_t> &dimensions :
       std::vector<std::vector<int64_t>>{{3}, {0, 3}, {2, 3}, {1, 2, 3}, {0, 1, 2, 3}, {0}, {2}})
    for (ElementType type : {ElementType::f32, ElementType::f16}) {
      Wanted wanted;
      wanted.biasDimensions = dimensions;
      wanted.biasType = type;
      onAttention(wanted,
                  [](Attention &a) {
                    expectForward(a);
                    expectGradients(a);
                  },
                  {{"MPC_SIM_CC", "9.0"}}); // that has all gradients
    }
}

// A row that a mask leaves nothing of has equal weights, and gradients; so have the ones beside it
// theirs. cuDNN's weights are exp2 of scores times log2 e.
TEST(CudaDnnAttention, MasksThatLeaveNothing) {
  for (double mask : {-1e9, -static_cast<double>(std::numeric_limits<float>::max())}) {
    Wanted wanted;
    wanted.biasDimensions = {0, 3};
    onAttention(wanted, [&](Attention &a) {
      for (int64_t n = 0; n < a.is.w.keys; ++n)
        a.is.bias.values[n] = rounded(ElementType::f32, mask);
      a.is.bias.values[a.is.w.keys + 2] = mask;
      a.is.forward();
      for (int64_t h = 0; h < a.is.w.heads; ++h)
        EXPECT_NEAR(a.is.logSum.at(0, h, 0), kLeastScore + std::log(7), 0.01);
      expectForward(a);
      a.is.backward();
      std::vector<Values> found;
      ASSERT_TRUE(a.executes(true) && a.run(true, found));
      for (size_t i = 0; i < found[2].values.size(); ++i) // log Σ exp has two digits here
        EXPECT_NEAR(found[2].values[i], a.is.valueGradient.values[i], 0.01);
    });
  }
}

TEST(CudaDnnAttention, WhatIsNotFinite) {
  Wanted wanted;
  wanted.biasDimensions = {0, 3};
  onAttention(wanted, [](Attention &a) {
    a.is.bias.values[3] = -kInfinity; // beside others: no weight
    a.is.query.at(1, 2, 0, 5) = NAN;
    a.is.forward();
    std::vector<Values> found;
    ASSERT_TRUE(a.executes(false) && a.run(false, found));
    for (int64_t m = 0; m < a.is.w.queries; ++m)
      for (int64_t h = 0; h < a.is.w.heads; ++h)
        for (int64_t e = 0; e < a.is.w.width; ++e) {
          EXPECT_NEAR(found[0].at(0, m, h, e), a.is.output.at(0, m, h, e), 2e-3);
          EXPECT_EQ(std::isnan(found[0].at(1, m, h, e)), m == 2 && h == 0);
        }
  });
}

// Though graphs that add in any order are offered, too.
TEST(CudaDnnAttention, TheSameBitsEveryTime) {
  Wanted wanted;
  wanted.queries = wanted.keys = 128;
  onAttention(wanted, [](Attention &a) {
    std::vector<Values> first, second;
    ASSERT_TRUE(a.executes(true) && a.run(true, first) && a.run(true, second));
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_EQ(first[i].values, second[i].values);
  });
}

TEST(CudaDnnAttention, WhatItIsNotAsked) {
  Wanted f32, depth, large, tail, keys, bias, dropout, safe;
  f32.type = ElementType::f32;
  expectExecutes(f32, false, false);
  depth.depth = 12;
  expectExecutes(depth, false, false);
  large.depth = 256;
  expectExecutes(large, true, false);
  // Tiles that are not full, where it is known to fail.
  tail.queries = tail.keys = 64;
  expectExecutes(tail, true, false);
  tail.keys = 128;
  expectExecutes(tail, true, false);
  keys.keys = 1;
  expectExecutes(keys, true, false);
  bias.biasDimensions = {0};
  expectExecutes(bias, true, false);
  dropout.dropoutRatio = 0.1;
  expectExecutes(dropout, false, false);
  safe.isSafe = true;
  expectExecutes(safe, false, false);
  // Versions, and GPUs whose gradients come in any order.
  expectExecutes({}, true, true, {{"MPC_SIM_CC", "12.0"}});
  expectExecutes({}, true, false, {{"MPC_SIM_CC", "10.0"}});
  expectExecutes({}, false, false, {{"MPC_SIM_CC", "7.5"}});
  expectExecutes({}, true, false, {{"MPC_SIM_DNN_VERSION", "91002"}});
  expectExecutes({}, false, false, {{"MPC_SIM_DNN_VERSION", "90501"}});
}

TEST(CudaDnnAttention, Failures) {
  auto expectDeclined = [](Attention &a) {
    std::vector<Values> found;
    ASSERT_TRUE(a.executes(false));
    EXPECT_FALSE(a.run(false, found));
    EXPECT_FALSE(a.dnn->executes(a.command(false)));
  };
  EXPECT_EQ(onAttention({}, expectDeclined, {{"MPC_SIM_FAULT", "dnn-unsupported:1"}}), "");
  onAttention({},
              [](Attention &a) {
                std::vector<Values> found;
                ASSERT_TRUE(a.executes(false));
                expectError("the attention operation of 'softmax1' by cuDNN 9.",
                            [&] { a.run(false, found); });
              },
              {{"MPC_SIM_FAULT", "dnn:1"}});
  onAttention({},
              [](Attention &a) {
                expectError("cuDNN makes no plan for the attention operation of 'softmax1': "
                            "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
                            [&] { a.executes(false); });
              },
              {{"MPC_SIM_FAULT", "plan-memory:1"}});
}
