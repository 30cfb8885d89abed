//===- GpuAttentionTest.cpp - generated attention on the simulator --------------------------===//
//
// Every case, and its gradients, against the definition in doubles; for sm_80 (halves on tensor
// cores) and sm_70 (everything in f32 registers). The gradients get the output and log Σ exp that
// the forward pass has computed.
//
//===--------------------------------------------------------------------------------------===//

#include "KernelRunner.h"
#include "compiler/codegen/gpu/Attention.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

using namespace mpc::test;

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilonF32 = 0x1p-23;

struct Case {
  int64_t batch, heads, queries, keys, depth, width;
  std::optional<std::vector<int64_t>> biasDimensions = std::nullopt;
  float scale = 0.25f;

  std::vector<int64_t> biasShape() const {
    const int64_t scores[] = {batch, heads, queries, keys};
    std::vector<int64_t> shape;
    for (int64_t d : *biasDimensions)
      shape.push_back(scores[d]);
    return shape;
  }
  /// @forward and @gradient, of an operation each.
  std::string text(const std::string &type) const {
    auto tensor = [](std::vector<int64_t> shape, const std::string &element) {
      std::string text = "tensor<";
      for (int64_t size : shape)
        text += std::to_string(size) + "x";
      return text + element + ">";
    };
    std::string q = tensor({batch, queries, heads, depth}, type),
                k = tensor({batch, keys, heads, depth}, type),
                v = tensor({batch, keys, heads, width}, type),
                o = tensor({batch, queries, heads, width}, type),
                l = tensor({batch, heads, queries}, "f32");
    std::string bias = biasDimensions ? ", " + tensor(biasShape(), "f32") : "",
                biasArgument = biasDimensions ? ", %b: " + tensor(biasShape(), "f32") : "",
                biasOperand = biasDimensions ? " bias %b" : "";
    std::string number = std::to_string(scale);
    std::string attributes = " {scale = " + number + " : f32, bias_dimensions = array<i64";
    if (biasDimensions && !biasDimensions->empty())
      attributes += ": " + llvm::join(llvm::map_range(*biasDimensions,
                                                      [](int64_t d) { return std::to_string(d); }),
                                      ", ");
    attributes += ">} : (";
    return "func.func @forward(%q: " + q + ", %k: " + k + ", %v: " + v + biasArgument + ") -> (" +
           o + ", " + l + ") {\n  %o, %l = mpc.attention %q, %k, %v" + biasOperand + attributes +
           q + ", " + k + ", " + v + bias + ") -> (" + o + ", " + l + ")\n  return %o, %l : " + o +
           ", " + l + "\n}\nfunc.func @gradient(%d: " + o + ", %q: " + q + ", %k: " + k +
           ", %v: " + v + ", %o: " + o + ", %l: " + l + biasArgument + ") -> (" + q + ", " + k +
           ", " + v + ") {\n  %dq, %dk, %dv = mpc.attention_grad %d, %q, %k, %v, %o, %l" +
           biasOperand + attributes + o + ", " + q + ", " + k + ", " + v + ", " + o + ", " + l +
           bias + ") -> (" + q + ", " + k + ", " + v + ")\n  return %dq, %dk, %dv : " + q + ", " +
           k + ", " + v + "\n}\n";
  }
};

/// Numbers, and how far from each f32 sums and roundings to `type` may be.
struct Bounded {
  std::vector<double> value, tolerance;
  explicit Bounded(int64_t size) : value(size), tolerance(size) {}
};

/// A sum of products weight · x, where a weight is off by `error` and rounded with `rounding`.
struct Sum {
  double value = 0, errors = 0, roundings = 0, squares = 0;
  int64_t terms = 0;
  void add(double weight, double error, double rounding, double x) {
    value += weight * x;
    errors += std::abs(error * x);
    roundings += std::pow(std::max(std::abs(weight), 0x1p-14) * rounding * x, 2);
    squares += weight * x * weight * x;
    ++terms;
  }
  void storeIn(Bounded &to, int64_t at, double epsilon) const {
    to.value[at] = value;
    to.tolerance[at] = errors + 4 * std::sqrt(roundings) +
                       kEpsilonF32 * std::sqrt(squares * double(terms)) +
                       4 * epsilon * std::max(std::abs(value), 0x1p-14);
  }
};

/// The definition. Operands as they are stored: q [B, M, H, D], …, l [B, H, M].
struct Definition {
  const Case &c;
  double epsilon, rounding;
  const Tensor &q, &k, &v;
  const Tensor *bias;
  Bounded o, l, dq, dk, dv;

  Definition(const Case &c, double epsilon, const Tensor &q, const Tensor &k, const Tensor &v,
             const Tensor *bias)
      : c(c), epsilon(epsilon), rounding(epsilon > kEpsilonF32 ? epsilon / 2 : 0), q(q), k(k), v(v),
        bias(bias), o(c.batch * c.queries * c.heads * c.width), l(c.batch * c.heads * c.queries),
        dq(q.size()), dk(k.size()), dv(v.size()) {}

  struct Weights {
    std::vector<double> score, error; ///< of the exponent, absolute
    std::vector<double> weight;
    double log = 0, logError = 0;
  };
  static int64_t at(int64_t rows, int64_t heads, int64_t columns, int64_t b, int64_t row, int64_t h,
                    int64_t column) {
    return ((b * rows + row) * heads + h) * columns + column;
  }
  double q_(int64_t b, int64_t h, int64_t m, int64_t d) const {
    return q.data[at(c.queries, c.heads, c.depth, b, m, h, d)];
  }
  double k_(int64_t b, int64_t h, int64_t n, int64_t d) const {
    return k.data[at(c.keys, c.heads, c.depth, b, n, h, d)];
  }
  double v_(int64_t b, int64_t h, int64_t n, int64_t e) const {
    return v.data[at(c.keys, c.heads, c.width, b, n, h, e)];
  }
  int64_t outputAt(int64_t b, int64_t h, int64_t m, int64_t e) const {
    return at(c.queries, c.heads, c.width, b, m, h, e);
  }
  double biasAt(int64_t b, int64_t h, int64_t m, int64_t n) const {
    if (!bias)
      return 0;
    const int64_t index[] = {b, h, m, n}, sizes[] = {c.batch, c.heads, c.queries, c.keys};
    int64_t linear = 0;
    for (int64_t d : *c.biasDimensions)
      linear = linear * sizes[d] + index[d];
    return bias->data[linear];
  }

  Weights weightsOf(int64_t b, int64_t h, int64_t m) const {
    Weights w;
    double largest = -kInfinity;
    for (int64_t n = 0; n < c.keys; ++n) {
      double sum = 0, squares = 0;
      for (int64_t d = 0; d < c.depth; ++d) {
        double product = q_(b, h, m, d) * k_(b, h, n, d);
        sum += product;
        squares += product * product;
      }
      double score = sum * double(c.scale) + biasAt(b, h, m, n);
      if (bias && std::isfinite(score))
        score = std::max(score, double(mpc::gpu::kLeastScore));
      w.score.push_back(score);
      w.error.push_back(kEpsilonF32 *
                        (std::abs(double(c.scale)) * std::sqrt(double(c.depth) * squares) +
                         (std::isfinite(score) ? std::abs(score) : 0) + 4));
      largest = std::isnan(largest) || std::isnan(score) ? NAN : std::max(largest, score);
    }
    double sum = 0;
    for (double score : w.score)
      sum += std::exp(score - largest);
    w.log = largest + std::log(sum);
    w.logError = 4 * kEpsilonF32 * std::max(1.0, std::abs(w.log));
    for (size_t n = 0; n < w.score.size(); ++n) {
      w.weight.push_back(std::exp(w.score[n] - largest) / sum);
      w.logError += w.weight[n] * w.error[n];
      if (w.weight[n] > 0) // the exponent is rounded, too
        w.error[n] += 2 * kEpsilonF32 * (w.log - w.score[n]);
    }
    return w;
  }

  void forward() {
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads; ++h)
        for (int64_t m = 0; m < c.queries; ++m) {
          Weights w = weightsOf(b, h, m);
          int64_t row = (b * c.heads + h) * c.queries + m;
          l.value[row] = w.log;
          l.tolerance[row] = w.logError;
          for (int64_t e = 0; e < c.width; ++e) {
            Sum sum;
            for (int64_t n = 0; n < c.keys; ++n)
              sum.add(w.weight[n], 2 * w.weight[n] * w.error[n], rounding, v_(b, h, n, e));
            sum.storeIn(o, outputAt(b, h, m, e), epsilon);
          }
        }
  }

  /// `output` as the kernel gets it.
  void gradient(const Tensor &outputGradient, const Tensor &output) {
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads; ++h)
        gradient(b, h, outputGradient, output);
  }
  void gradient(int64_t b, int64_t h, const Tensor &outputGradient, const Tensor &output) {
    std::vector<Sum> ofKeys(c.keys * c.depth), ofValues(c.keys * c.width);
    for (int64_t m = 0; m < c.queries; ++m) {
      Weights w = weightsOf(b, h, m);
      std::vector<Sum> ofQuery(c.depth);
      Sum delta;
      for (int64_t e = 0; e < c.width; ++e)
        delta.add(outputGradient.data[outputAt(b, h, m, e)], 0, 0,
                  output.data[outputAt(b, h, m, e)]);
      for (int64_t n = 0; n < c.keys; ++n) {
        Sum product;
        double p = w.weight[n];
        double off = w.error[n] + w.logError;
        for (int64_t e = 0; e < c.width; ++e) {
          double gradient = outputGradient.data[outputAt(b, h, m, e)];
          product.add(gradient, 0, 0, v_(b, h, n, e));
          ofValues[n * c.width + e].add(p, 2 * p * off, rounding, gradient);
        }
        double scaled = p * double(c.scale), difference = product.value - delta.value;
        double error =
            std::abs(scaled) * (2 * off * std::abs(difference) +
                                kEpsilonF32 * std::sqrt(double(c.width)) *
                                    (std::sqrt(product.squares) + std::sqrt(delta.squares)));
        for (int64_t d = 0; d < c.depth; ++d) {
          ofQuery[d].add(scaled * difference, error, rounding, k_(b, h, n, d));
          ofKeys[n * c.depth + d].add(scaled * difference, error, rounding, q_(b, h, m, d));
        }
      }
      for (int64_t d = 0; d < c.depth; ++d)
        ofQuery[d].storeIn(dq, at(c.queries, c.heads, c.depth, b, m, h, d), epsilon);
    }
    for (int64_t n = 0; n < c.keys; ++n) {
      for (int64_t d = 0; d < c.depth; ++d)
        ofKeys[n * c.depth + d].storeIn(dk, at(c.keys, c.heads, c.depth, b, n, h, d), epsilon);
      for (int64_t e = 0; e < c.width; ++e)
        ofValues[n * c.width + e].storeIn(dv, at(c.keys, c.heads, c.width, b, n, h, e), epsilon);
    }
  }
};

/// The first element that is further away than it may be; empty: none.
std::string difference(const std::string &what, const Bounded &want, const Tensor &got) {
  if (got.data.size() != want.value.size())
    return what + " has another size";
  for (size_t i = 0; i < got.data.size(); ++i) {
    double x = want.value[i], y = got.data[i];
    bool isSame =
        std::isnan(x) ? !std::isfinite(y) : x == y || std::abs(x - y) <= want.tolerance[i];
    if (!isSame)
      return what + " element " + std::to_string(i) + " is " + std::to_string(y) + ", not " +
             std::to_string(x) + " ± " + std::to_string(want.tolerance[i]);
  }
  return "";
}

/// Runs a command on the simulator: its results.
std::vector<Tensor> launch(SimulatorBackend &backend, mlir::Operation *command,
                           const std::vector<Tensor> &arguments) {
  std::vector<Storage> storage;
  for (auto [argument, type] : llvm::zip_equal(arguments, command->getOperandTypes()))
    storage.push_back(pack(argument, mlir::getElementTypeOrSelf(type)));
  for (mlir::Type type : command->getResultTypes()) {
    auto tensor = mlir::cast<mlir::RankedTensorType>(type);
    storage.emplace_back(tensor.getNumElements() * bytesPer(tensor.getElementType()));
  }
  if (int64_t scratch = mpc::gpu::libraryScratchBytes(command))
    storage.emplace_back(scratch);
  std::string problem = backend.launch(mpc::gpu::libraryFunctions(command), storage);
  EXPECT_EQ(problem, "");
  std::vector<Tensor> results;
  for (auto [i, type] : llvm::enumerate(command->getResultTypes()))
    results.push_back(
        unpack(storage[arguments.size() + i], mlir::cast<mlir::RankedTensorType>(type)));
  return results;
}

mlir::Operation *commandOf(mlir::ModuleOp module, llvm::StringRef function) {
  return &module.lookupSymbol<mlir::func::FuncOp>(function).front().front();
}

using Change = std::function<void(Tensor &query, Tensor &bias)>;

/// Both passes on random arguments, for both kinds of GPUs.
void expectRight(const Case &c, const std::string &type, const Change &change = {}) {
  for (const char *gpu : {"native", "sm_70"}) {
    SCOPED_TRACE(gpu + std::string("\n") + c.text(type));
    KernelRunner runner(c.text(type), gpu);
    ASSERT_TRUE(runner.ok());
    mlir::Operation *forward = commandOf(*runner.module, "forward"),
                    *gradient = commandOf(*runner.module, "gradient");
    std::mt19937 generator(7);
    std::vector<Tensor> arguments;
    for (mlir::Type operand : forward->getOperandTypes())
      arguments.push_back(randomTensor(operand, generator));
    Tensor none;
    if (change)
      change(arguments[0], arguments.size() > 3 ? arguments[3] : none);
    mlir::Type element = mlir::getElementTypeOrSelf(forward->getOperand(0).getType());
    Definition definition(c, epsilonOf(element), arguments[0], arguments[1], arguments[2],
                          arguments.size() > 3 ? &arguments[3] : nullptr);
    definition.forward();
    std::vector<Tensor> results = launch(*runner.backend, forward, arguments);
    EXPECT_EQ(difference("output", definition.o, results[0]), "");
    EXPECT_EQ(difference("log Σ exp", definition.l, results[1]), "");

    Tensor outputGradient = randomTensor(forward->getResult(0).getType(), generator);
    definition.gradient(outputGradient, results[0]);
    std::vector<Tensor> operands{outputGradient, arguments[0], arguments[1],
                                 arguments[2],   results[0],   results[1]};
    operands.insert(operands.end(), arguments.begin() + 3, arguments.end());
    std::vector<Tensor> gradients = launch(*runner.backend, gradient, operands);
    EXPECT_EQ(difference("query's gradient", definition.dq, gradients[0]), "");
    EXPECT_EQ(difference("key's gradient", definition.dk, gradients[1]), "");
    EXPECT_EQ(difference("value's gradient", definition.dv, gradients[2]), "");
  }
}

void expectRight(const Case &c, const Change &change = {}) {
  for (const char *type : {"f16", "bf16", "f32"})
    expectRight(c, type, change);
}
} // namespace

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
// have its gradients.
TEST(GpuAttention, LowMasks) {
  for (double low : {-1e9, -0x1.fffffep127})
    expectRight({2, 2, 9, 70, 16, 16, std::vector<int64_t>{0, 3}}, [&](Tensor &, Tensor &bias) {
      for (int64_t n = 0; n < 70; ++n) { // of batch 0 all
        bias.data[n] = low;
        bias.data[70 + n] = n < 40 ? 0 : low;
      }
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
    expectRight({2, 1, 5, 70, 16, 16, std::vector<int64_t>{0, 2, 3}}, change);
  }
  auto query = [](Tensor &query, Tensor &) { query.data[3] = NAN; };
  expectRight({2, 1, 5, 70, 16, 16}, query);
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
  ASSERT_EQ(forward.size(), 1u);
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

// ptxas has registers for everything, on every architecture.
TEST(GpuAttention, NoSpills) {
  if (!llvm::sys::fs::can_execute(MPC_TEST_PTXAS))
    GTEST_SKIP() << "ptxas is not here: scripts/test.sh installs it";
  llvm::SmallString<128> cache;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("mpc-cache", cache));
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  for (const char *type : {"f16", "f32"})
    for (int64_t width : {64, 128, 254, 255, 256}) {
      Case c{8, 8, 512, 500, width, width, std::vector<int64_t>{0, 1, 2, 3}};
      KernelRunner runner(c.text(type), "native");
      ASSERT_TRUE(runner.ok());
      for (unsigned architecture : mpc::kDefaultArchitectures) {
        mpc::CudaTargetOptions options;
        options.architectures = {architecture};
        std::vector<mpc::KernelResources> resources;
        auto images = mpc::compileDeviceImages(*runner.module, options, &resources);
        ASSERT_TRUE(static_cast<bool>(images)) << llvm::toString(images.takeError());
        ASSERT_EQ(resources.size(), 4u);
        for (const mpc::KernelResources &kernel : resources)
          EXPECT_EQ(kernel.spillBytes, 0u) << kernel.name << " for sm_" << architecture;
      }
    }
  llvm::sys::fs::remove_directories(cache);
}
