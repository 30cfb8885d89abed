//===- AttentionReference.h - attention by its definition, and generated, for tests ---------===//
//
// Every case, and its gradients, against the definition in doubles; for sm_80 (halves on tensor
// cores), sm_75 and sm_70 (f16 on tensor cores, the rest in f32 registers). The gradients get what
// the forward pass has computed.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_TEST_UNIT_ATTENTIONREFERENCE_H
#define MPC_TEST_UNIT_ATTENTIONREFERENCE_H

#include "KernelRunner.h"
#include "compiler/codegen/gpu/Attention.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include <iomanip>
#include <sstream>

namespace mpc::test::attention {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kEpsilonF32 = 0x1p-23;

struct Dropout {
  double ratio;
  uint64_t operatorId = 5, seed = 9;
  Tensor stream() const { return {{2}, {double(operatorId), double(seed)}}; }
};

struct Case {
  int64_t batch, heads, queries, keys, depth, width;
  std::optional<std::vector<int64_t>> biasDimensions = std::nullopt;
  float scale = 0.25f;
  std::optional<Dropout> dropout = std::nullopt;
  bool isSafe = false;

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
                l = tensor({batch, heads, queries}, "f32"),
                s = tensor({2, batch, heads, queries}, "f32"), forward = o + ", " + l + ", " + s,
                gradient = q + ", " + k + ", " + v;
    std::string extraTypes = biasDimensions ? ", " + tensor(biasShape(), "f32") : "",
                extraArguments = biasDimensions ? ", %b: " + tensor(biasShape(), "f32") : "",
                extraOperands = biasDimensions ? " bias %b" : "";
    if (dropout) {
      extraTypes += ", tensor<2xi64>, tensor<2xi64>";
      extraArguments += ", %state: tensor<2xi64>, %stream: tensor<2xi64>";
      extraOperands += " dropout %state, %stream";
    }
    std::string number = std::to_string(scale);
    std::string attributes = " {scale = " + number + " : f32, bias_dimensions = array<i64";
    if (biasDimensions && !biasDimensions->empty())
      attributes += ": " + llvm::join(llvm::map_range(*biasDimensions,
                                                      [](int64_t d) { return std::to_string(d); }),
                                      ", ");
    attributes += ">";
    if (dropout) {
      std::ostringstream ratio;
      ratio << std::scientific << std::setprecision(17) << dropout->ratio;
      attributes += ", ratio = " + ratio.str() + " : f64";
    }
    if (isSafe)
      attributes += ", safe";
    attributes += "} : (";
    return "func.func @forward(%q: " + q + ", %k: " + k + ", %v: " + v + extraArguments + ") -> (" +
           forward + ") {\n  %o, %l, %s = mpc.attention %q, %k, %v" + extraOperands + attributes +
           q + ", " + k + ", " + v + extraTypes + ") -> (" + forward +
           ")\n  return %o, %l, %s : " + forward + "\n}\nfunc.func @gradient(%d: " + o +
           ", %q: " + q + ", %k: " + k + ", %v: " + v + ", %o: " + o + ", %l: " + l + ", %s: " + s +
           extraArguments + ") -> (" + gradient +
           ") {\n  %dq, %dk, %dv = mpc.attention_grad %d, %q, %k, %v, %o, %l, %s" + extraOperands +
           attributes + o + ", " + q + ", " + k + ", " + v + ", " + forward + extraTypes +
           ") -> (" + gradient + ")\n  return %dq, %dk, %dv : " + gradient + "\n}\n";
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
  const Tensor *bias, *state;
  bool byLibrary = false; ///< gradients are of bounded scores
  Bounded o, l, statistics, dq, dk, dv;

  Definition(const Case &c, double epsilon, const Tensor &q, const Tensor &k, const Tensor &v,
             const Tensor *bias, const Tensor *state = nullptr)
      : c(c), epsilon(epsilon), rounding(epsilon > kEpsilonF32 ? epsilon / 2 : 0), q(q), k(k), v(v),
        bias(bias), state(state), o(c.batch * c.queries * c.heads * c.width),
        l(c.batch * c.heads * c.queries), statistics(2 * c.batch * c.heads * c.queries),
        dq(q.size()), dk(k.size()), dv(v.size()) {}

  struct Weights {
    std::vector<double> score, error; ///< of the exponent, absolute
    std::vector<double> weight;
    double largest = -kInfinity, logOfSum = 0, log = 0;
    double logError = 0;   ///< of logOfSum
    double boundedLog = 0; ///< as a library has it
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

  bool isKept(int64_t b, int64_t h, int64_t m, int64_t n) const {
    int64_t index = ((b * c.heads + h) * c.queries + m) * c.keys + n;
    return randomUniform(*state, c.dropout->operatorId, c.dropout->seed, index) >=
           static_cast<float>(c.dropout->ratio);
  }
  /// What dropout multiplies the weight by.
  double factor(int64_t b, int64_t h, int64_t m, int64_t n) const {
    return !c.dropout ? 1 : isKept(b, h, m, n) ? 1 / (1 - c.dropout->ratio) : 0;
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
      double added = biasAt(b, h, m, n), score = sum * double(c.scale) + added;
      // Beside a mask nothing is left of a sum, and what is left is exact.
      bool isExact = std::isfinite(added) && (sum == 0 || std::abs(added) > 0x1p29);
      if (isExact)
        score = static_cast<float>(score);
      if (byLibrary && bias && score < mpc::gpu::kLeastScore) {
        score = mpc::gpu::kLeastScore;
        isExact = true;
      }
      w.score.push_back(score);
      double size = std::isfinite(score) && !isExact ? std::abs(score) : 0;
      w.error.push_back(isExact ? 0
                                : kEpsilonF32 * (std::abs(double(c.scale)) *
                                                     std::sqrt(double(c.depth) * squares) +
                                                 size + 4));
      largest = std::isnan(largest) || std::isnan(score) ? NAN : std::max(largest, score);
    }
    double sum = 0;
    for (double score : w.score)
      sum += std::exp(score - largest);
    for (double score : w.score) // of numbers
      w.largest = std::fmax(w.largest, score);
    w.logOfSum = std::log(sum);
    w.log = w.boundedLog = largest + w.logOfSum;
    if (bias && largest < mpc::gpu::kLeastScore)
      w.boundedLog = mpc::gpu::kLeastScore + std::log(double(c.keys));
    w.logError = 4 * kEpsilonF32 * std::max(1.0, byLibrary ? std::abs(w.log) : std::log(sum));
    for (size_t n = 0; n < w.score.size(); ++n) {
      w.weight.push_back(std::exp(w.score[n] - largest) / sum);
      w.logError += w.weight[n] * w.error[n];
      if (w.weight[n] > 0) // the exponent is rounded, too
        w.error[n] += 2 * kEpsilonF32 * (w.log - w.score[n]);
    }
    if (c.isSafe && largest == -kInfinity) {
      w.weight.assign(c.keys, 0);
      w.largest = w.logOfSum = w.logError = 0;
    }
    return w;
  }

  void forward() {
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads; ++h)
        for (int64_t m = 0; m < c.queries; ++m) {
          Weights w = weightsOf(b, h, m);
          int64_t row = (b * c.heads + h) * c.queries + m;
          l.value[row] = w.boundedLog;
          l.tolerance[row] = kEpsilonF32 * std::abs(w.boundedLog);
          if (w.boundedLog == w.log)
            l.tolerance[row] += w.logError;
          int64_t rows = l.value.size();
          statistics.value[row] = w.largest;
          statistics.tolerance[row] = *std::max_element(w.error.begin(), w.error.end());
          statistics.value[rows + row] = w.logOfSum;
          statistics.tolerance[rows + row] = 2 * w.logError;
          for (int64_t e = 0; e < c.width; ++e) {
            Sum sum;
            for (int64_t n = 0; n < c.keys && !(c.isSafe && std::isnan(w.logOfSum)); ++n) {
              double weight = w.weight[n] * factor(b, h, m, n);
              sum.add(weight, 2 * weight * w.error[n], rounding, v_(b, h, n, e));
            }
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
        double p = w.weight[n], r = factor(b, h, m, n), kept = r > 0 ? r * p : 0;
        double off = w.error[n] + w.logError;
        for (int64_t e = 0; e < c.width; ++e) {
          double gradient = outputGradient.data[outputAt(b, h, m, e)];
          product.add(gradient, 0, 0, v_(b, h, n, e));
          ofValues[n * c.width + e].add(kept, kept > 0 ? 2 * kept * off : 0, rounding, gradient);
        }
        double scaled = p * double(c.scale), difference = r * product.value - delta.value;
        double error =
            std::abs(scaled) * (2 * off * std::abs(difference) +
                                kEpsilonF32 * std::sqrt(double(c.width)) *
                                    (r * std::sqrt(product.squares) + std::sqrt(delta.squares)));
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
inline std::string difference(const std::string &what, const Bounded &want, const Tensor &got) {
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

/// Runs functions of a command on the simulator: its results.
inline std::vector<Tensor> launch(SimulatorBackend &backend, mlir::Operation *command,
                                  llvm::ArrayRef<mpc::gpu::Function> functions,
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
  std::string problem = backend.launch(functions, storage);
  EXPECT_EQ(problem, "");
  std::vector<Tensor> results;
  for (auto [i, type] : llvm::enumerate(command->getResultTypes()))
    results.push_back(
        unpack(storage[arguments.size() + i], mlir::cast<mlir::RankedTensorType>(type)));
  return results;
}

/// The functions that run without a library.
inline llvm::SmallVector<mpc::gpu::Function, 3> generated(mlir::Operation *command) {
  auto functions = mpc::gpu::libraryFunctions(command);
  llvm::erase_if(functions, [](const mpc::gpu::Function &f) { return f.afterLibrary; });
  return functions;
}

inline mlir::Operation *commandOf(mlir::ModuleOp module, llvm::StringRef function) {
  return &module.lookupSymbol<mlir::func::FuncOp>(function).front().front();
}

using Change = std::function<void(Tensor &query, Tensor &bias)>;

/// Both passes on random arguments, for every kind of GPUs. The gradient may get what a library has
/// computed forward.
inline void expectRight(const Case &c, const std::string &type, const Change &change = {},
                        bool byLibrary = false) {
  for (const char *gpu : {"native", "sm_75", "sm_70"}) {
    if (gpu == std::string("sm_75") && type != "f16")
      continue; // as sm_70
    SCOPED_TRACE(gpu + std::string("\n") + c.text(type));
    KernelRunner runner(c.text(type), gpu);
    ASSERT_TRUE(runner.ok());
    mlir::Operation *forward = commandOf(*runner.module, "forward"),
                    *gradient = commandOf(*runner.module, "gradient");
    std::mt19937 generator(7);
    std::vector<Tensor> arguments;
    for (mlir::Type operand : forward->getOperandTypes())
      if (!mlir::getElementTypeOrSelf(operand).isInteger(64))
        arguments.push_back(randomTensor(operand, generator));
    const Tensor state{{2}, {12345678901, 3}};
    if (c.dropout) {
      arguments.push_back(state);
      arguments.push_back(c.dropout->stream());
    }
    Tensor none;
    if (change)
      change(arguments[0], c.biasDimensions ? arguments[3] : none);
    mlir::Type element = mlir::getElementTypeOrSelf(forward->getOperand(0).getType());
    Definition definition(c, epsilonOf(element), arguments[0], arguments[1], arguments[2],
                          c.biasDimensions ? &arguments[3] : nullptr, c.dropout ? &state : nullptr);
    definition.byLibrary = byLibrary;
    definition.forward();
    auto functions = byLibrary ? mpc::gpu::libraryFunctions(forward) : generated(forward);
    std::vector<Tensor> results = launch(*runner.backend, forward, functions, arguments);
    if (byLibrary) {
      results[0].data = definition.o.value;
      for (double &value : results[0].data)
        value = roundTo(value, element);
      int64_t rows = definition.l.value.size();
      for (int64_t row = 0; row < rows; ++row) {
        // What $statistics has made of the l that it found.
        ASSERT_EQ(results[2].data[row], results[1].data[row]);
        ASSERT_EQ(results[2].data[rows + row], kInfinity);
        results[2].data[row] = results[1].data[row] = static_cast<float>(definition.l.value[row]);
      }
    }
    EXPECT_EQ(difference("output", definition.o, results[0]), "");
    EXPECT_EQ(difference("log Σ exp", definition.l, results[1]), "");
    if (!byLibrary) {
      EXPECT_EQ(difference("statistics", definition.statistics, results[2]), "");
    }

    Tensor outputGradient = randomTensor(forward->getResult(0).getType(), generator);
    definition.gradient(outputGradient, results[0]);
    std::vector<Tensor> operands{outputGradient, arguments[0], arguments[1], arguments[2],
                                 results[0],     results[1],   results[2]};
    operands.insert(operands.end(), arguments.begin() + 3, arguments.end());
    std::vector<Tensor> gradients =
        launch(*runner.backend, gradient, generated(gradient), operands);
    EXPECT_EQ(difference("query's gradient", definition.dq, gradients[0]), "");
    EXPECT_EQ(difference("key's gradient", definition.dk, gradients[1]), "");
    EXPECT_EQ(difference("value's gradient", definition.dv, gradients[2]), "");
  }
}

inline void expectRight(const Case &c, const Change &change = {}, bool byLibrary = false) {
  for (const char *type : {"f16", "bf16", "f32"})
    expectRight(c, type, change, byLibrary);
}

/// ptxas has registers for everything, on every architecture.
inline void expectNoSpills(const Case &c, const std::string &type) {
  llvm::SmallString<128> cache;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("mpc-cache", cache));
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  KernelRunner runner(c.text(type), "native");
  ASSERT_TRUE(runner.ok());
  for (unsigned architecture : mpc::kDefaultArchitectures) {
    mpc::CudaTargetOptions options;
    options.architectures = {architecture};
    std::vector<mpc::KernelResources> resources;
    auto images = mpc::compileDeviceImages(*runner.module, options, &resources);
    ASSERT_TRUE(static_cast<bool>(images)) << llvm::toString(images.takeError());
    ASSERT_EQ(resources.size(), 5u);
    for (const mpc::KernelResources &kernel : resources)
      EXPECT_EQ(kernel.spillBytes, 0u) << kernel.name << " for sm_" << architecture;
  }
  llvm::sys::fs::remove_directories(cache);
}

} // namespace mpc::test::attention

#endif // MPC_TEST_UNIT_ATTENTIONREFERENCE_H
