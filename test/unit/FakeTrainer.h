//===- FakeTrainer.h - a program and a device without a compiler ------------------------------===//
//
// What the training loop is tested on: y = W · x with a running mean of x, mean squared error
// against the labels, SGD or Adam, dynamic loss scaling, all in a few lines of plain C++ that
// behave as a compiled program does (docs/architecture.md, "Functions"). The gradient depends
// on random_state, as with dropout, so that a run that loses its counters shows it.
// The device can behave as one that runs beside the host: then the results of a step can be had
// only at the mark behind it, and whoever reads without a mark sees the newest ones.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_TEST_UNIT_FAKETRAINER_H
#define MPC_TEST_UNIT_FAKETRAINER_H

#include "runtime/core/Device.h"
#include "runtime/core/Error.h"
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

namespace mpc::testing {

/// A folder that is gone after the test.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string pattern = ::testing::TempDir() + "mpc-test-XXXXXX";
    path = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string operator/(const std::string &name) const { return path + "/" + name; }
  std::string path;
};

inline void writeBytes(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

inline std::string readBytes(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// The message of the exception that `action` throws, "" if none.
template <typename Action> std::string messageOf(Action action) {
  try {
    action();
  } catch (const std::exception &error) {
    return error.what();
  }
  return "";
}

#define EXPECT_CONTAINS(text, part)                                                                \
  EXPECT_NE((text).find(part), std::string::npos) << "no '" << (part) << "' in: " << (text)

struct FakeOptions {
  int64_t batch = 4, features = 3;
  std::string optimizer = "sgd", scaleMode = "none", precision = "fp32";
  int64_t classes = 0; ///< labels are integers below it (they are used as numbers all the same)
  bool random = false; ///< gradients depend on random_state
};

inline void addTensor(Program &program, Role role, const std::string &name, ElementType type,
                      std::vector<int64_t> shape) {
  TensorInfo tensor;
  tensor.name = name;
  tensor.role = role;
  tensor.type = type;
  tensor.shape = std::move(shape);
  tensor.buffer = {Region::arena, 0};
  tensor.initial_type = type;
  program.tensors.push_back(std::move(tensor));
}

inline Program fakeProgram(const FakeOptions &options) {
  Program program;
  program.model_name = "fake";
  program.precision = options.precision;
  program.loss = "mse";
  program.optimizer = options.optimizer;
  program.target = "cpu";
  program.loss_scale_mode = options.scaleMode;
  program.batch = options.batch;
  program.classes = options.classes;
  program.batch_axis = {{"x", 0}, {"labels", 0}, {"y", 0}};
  int64_t b = options.batch, d = options.features;
  const ElementType f32 = ElementType::f32, i64 = ElementType::i64;
  addTensor(program, Role::input, "x", f32, {b, d});
  addTensor(program, Role::labels, "labels", options.classes ? i64 : f32, {b});
  addTensor(program, Role::samples, "samples", i64, {});
  addTensor(program, Role::random_state, "random_state", i64, {2});
  addTensor(program, Role::hyper, "hyper", f32, {8});
  addTensor(program, Role::schedule, "schedule", f32, {4096, 4});
  addTensor(program, Role::weight_decay, "W", f32, {});
  addTensor(program, Role::parameter, "W", f32, {d});
  program.tensors.back().initial.bytes = 4 * static_cast<uint64_t>(d); // weights are there
  addTensor(program, Role::statistic, "running_mean", f32, {d});
  addTensor(program, Role::working_statistic, "running_mean", f32, {d});
  addTensor(program, Role::optimizer_state, "exp_avg/W", f32, {d});
  addTensor(program, Role::optimizer_state, "exp_avg_sq/W", f32, {d});
  addTensor(program, Role::loss_scale, "loss_scale", f32, {});
  addTensor(program, Role::growth_tracker, "growth_tracker", ElementType::i32, {});
  addTensor(program, Role::applied_steps, "applied_steps", i64, {});
  addTensor(program, Role::accumulated_count, "accumulated_count", f32, {});
  addTensor(program, Role::gradient, "W", f32, {d});
  addTensor(program, Role::accumulator, "W", f32, {d});
  addTensor(program, Role::loss, "loss", f32, {});
  addTensor(program, Role::count, "count", f32, {});
  addTensor(program, Role::correct, "correct", f32, {});
  addTensor(program, Role::ok, "ok", ElementType::i1, {});
  addTensor(program, Role::grad_norm, "grad_norm", f32, {});
  addTensor(program, Role::gradient_square_sums, "sums", ElementType::f64, {1});
  addTensor(program, Role::output, "y", f32, {b});
  auto index = [&](Role role) { return static_cast<uint32_t>(program.find(role)); };
  for (const char *entry : {"gradients", "eval_step"})
    program.entries[entry].arguments = {index(Role::input), index(Role::labels)};
  program.entries["predict"].arguments = {index(Role::input)};
  program.entries["predict"].results = {index(Role::output)};
  for (const char *entry : {"apply", "accumulate", "apply_accumulated"})
    program.entries[entry];
  return program;
}

class FakeDevice : public Device {
public:
  FakeDevice(const Program &program, const FakeOptions &options)
      : program(program), options(options) {
    for (const TensorInfo &tensor : program.tensors)
      memory.emplace_back(tensor.bytes());
  }

  void read(const TensorInfo &tensor, void *to) override {
    memcpy(to, of(tensor).data(), tensor.bytes());
  }
  void write(const TensorInfo &tensor, const void *from) override {
    memcpy(of(tensor).data(), from, tensor.bytes());
  }
  uint64_t mark() override {
    if (!asynchronous)
      return 0;
    // A GPU has memory for each: the loop looks one step behind, at the micro-batches of two.
    EXPECT_LE(marked.size(), 3u) << "marks that nobody releases";
    marked[++lastMark] = memory;
    return lastMark;
  }
  void readMarked(uint64_t mark, const TensorInfo &tensor, void *to) override {
    if (!asynchronous)
      return read(tensor, to);
    EXPECT_TRUE(isStatistic(tensor.role)) << "a mark does not keep " << tensor.name;
    if (auto found = marked.find(mark); found != marked.end())
      memcpy(to, found->second[indexOf(tensor)].data(), tensor.bytes());
    else
      ADD_FAILURE() << "mark " << mark << " was never made, or is released";
  }
  void release(uint64_t mark) override {
    EXPECT_EQ(marked.erase(mark), asynchronous ? 1u : 0u) << "mark " << mark;
  }
  bool isAsynchronous() const override { return asynchronous; }
  void clear(Region) override {
    for (uint32_t i : program.all(Role::accumulator))
      std::fill(memory[i].begin(), memory[i].end(), 0);
  }
  void weightsChanged() override { ++refreshes; }
  uint64_t memoryBytes() const override { return 0; }
  std::string describe() const override { return "fake"; }
  std::vector<std::string> describeCommands(const std::string &) const override { return {}; }

  void run(const std::string &entry) override {
    if (onRun)
      onRun(entry);
    if (entry == "gradients")
      gradients();
    else if (entry == "eval_step" || entry == "predict")
      inference();
    else if (entry == "accumulate")
      accumulate();
    else
      apply(entry == "apply_accumulated");
  }

  float *f(Role role, const std::string &name = "") {
    return reinterpret_cast<float *>(memory[static_cast<size_t>(program.find(role, name))].data());
  }
  int64_t *i(Role role) {
    return reinterpret_cast<int64_t *>(memory[static_cast<size_t>(program.find(role))].data());
  }
  std::vector<float> weights() {
    float *w = f(Role::parameter);
    return std::vector<float>(w, w + options.features);
  }

  bool asynchronous = false; ///< see the top of this file
  int refreshes = 0;
  std::function<void(const std::string &)> onRun; ///< called before each entry point
  bool overflow = false;                          ///< the next gradients are not finite

private:
  size_t indexOf(const TensorInfo &tensor) const {
    return static_cast<size_t>(&tensor - program.tensors.data());
  }
  std::vector<unsigned char> &of(const TensorInfo &tensor) { return memory[indexOf(tensor)]; }
  float label(int64_t b) {
    return options.classes ? static_cast<float>(i(Role::labels)[b]) : f(Role::labels)[b];
  }
  float output(int64_t b) {
    float y = 0;
    for (int64_t d = 0; d < options.features; ++d)
      y += f(Role::input)[b * options.features + d] * f(Role::parameter)[d];
    return y;
  }

  // loss = Σ (y - t)² / n;  g = scale · 2/n Σ (y - t) x
  void gradients() {
    int64_t n = *i(Role::samples), D = options.features;
    float scale = *f(Role::loss_scale), loss = 0;
    std::fill(f(Role::gradient), f(Role::gradient) + D, 0.0f);
    float noise = 1;
    if (options.random)
      noise = 1 + 0.25f * static_cast<float>(
                              (i(Role::random_state)[1] * 7 + i(Role::random_state)[0]) % 5);
    for (int64_t b = 0; b < n; ++b) {
      float error = output(b) - label(b);
      loss += error * error / static_cast<float>(n);
      for (int64_t d = 0; d < D; ++d)
        f(Role::gradient)[d] +=
            scale * noise * 2 / static_cast<float>(n) * error * f(Role::input)[b * D + d];
    }
    for (int64_t d = 0; d < D; ++d)
      f(Role::working_statistic)[d] =
          0.9f * f(Role::working_statistic)[d] + 0.1f * f(Role::input)[d];
    if (overflow)
      f(Role::gradient)[0] = INFINITY;
    *f(Role::loss) = loss;
    *f(Role::count) = static_cast<float>(n);
  }

  void inference() {
    int64_t n = *i(Role::samples);
    float loss = 0, hits = 0;
    for (int64_t b = 0; b < options.batch; ++b) {
      f(Role::output)[b] = output(b);
      if (b >= n)
        continue;
      loss += (output(b) - label(b)) * (output(b) - label(b)) / static_cast<float>(n);
      hits += std::round(output(b)) == label(b);
    }
    *f(Role::loss) = loss;
    *f(Role::count) = static_cast<float>(n);
    *f(Role::correct) = options.classes ? hits : -1;
  }

  void accumulate() {
    for (int64_t d = 0; d < options.features; ++d)
      f(Role::accumulator)[d] += *f(Role::count) * f(Role::gradient)[d];
    *f(Role::accumulated_count) += *f(Role::count);
  }

  void apply(bool accumulated) {
    int64_t D = options.features, k = *i(Role::applied_steps);
    const float *g = accumulated ? f(Role::accumulator) : f(Role::gradient);
    float *scale = f(Role::loss_scale), *hyper = f(Role::hyper);
    int32_t *tracker = reinterpret_cast<int32_t *>(f(Role::growth_tracker));
    float divisor = *scale * (accumulated ? *f(Role::accumulated_count) : 1);
    double sum = 0;
    for (int64_t d = 0; d < D; ++d)
      sum += static_cast<double>(g[d]) * g[d];
    *reinterpret_cast<double *>(f(Role::gradient_square_sums)) = sum;
    bool ok = std::isfinite(sum) && std::isfinite(*f(Role::loss));
    *reinterpret_cast<unsigned char *>(f(Role::ok)) = ok;
    *f(Role::grad_norm) = static_cast<float>(std::sqrt(sum)) / divisor;
    float *working = f(Role::working_statistic), *committed = f(Role::statistic);
    if (ok) {
      update(g, divisor, f(Role::schedule) + k % 4096 * 4, hyper);
      std::copy(working, working + D, committed);
      *i(Role::applied_steps) = k + 1;
      if (++*tracker == static_cast<int32_t>(hyper[4])) {
        *scale *= hyper[5];
        *tracker = 0;
      }
    } else {
      std::copy(committed, committed + D, working);
      *scale = std::max(*scale * hyper[6], 1.0f);
      *tracker = 0;
    }
  }

  void update(const float *g, float divisor, const float *row, const float *hyper) {
    float *w = f(Role::parameter), *m = f(Role::optimizer_state, "exp_avg/W"),
          *v = f(Role::optimizer_state, "exp_avg_sq/W");
    float decay = *f(Role::weight_decay);
    for (int64_t d = 0; d < options.features; ++d) {
      float gradient = g[d] / divisor + decay * w[d];
      if (options.optimizer == "sgd") {
        m[d] = hyper[0] * m[d] + gradient;
        w[d] -= row[0] * m[d];
      } else {
        m[d] = hyper[0] * m[d] + (1 - hyper[0]) * gradient;
        v[d] = hyper[1] * v[d] + hyper[7] * gradient * gradient;
        w[d] -= row[1] * m[d] / (std::sqrt(v[d]) / row[2] + hyper[2]);
      }
    }
  }

  const Program &program;
  FakeOptions options;
  using Memory = std::vector<std::vector<unsigned char>>; ///< of each tensor
  Memory memory;
  std::map<uint64_t, Memory> marked; ///< as it was at each mark that is not released
  uint64_t lastMark = 0;
};

} // namespace mpc::testing

#endif // MPC_TEST_UNIT_FAKETRAINER_H
