//===- LibraryTestSupport.h - library commands against loops in double -------------===//

#ifndef MPC_TEST_UNIT_LIBRARYTESTSUPPORT_H
#define MPC_TEST_UNIT_LIBRARYTESTSUPPORT_H

#include "runtime/core/ProgramCheck.h"
#include "runtime/cpu/ConvertElements.h"
#include "runtime/cpu/ConvolutionShape.h"
#include "runtime/cpu/Library.h"
#include "runtime/cpu/Widen.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

namespace mpc::test {

/// The ways that differ for a type.
inline std::vector<cpu::Path> pathsOf(ElementType type) {
  if (type == ElementType::f64)
    return {cpu::Path::automatic};
  if (type == ElementType::f32)
    return {cpu::Path::automatic, cpu::Path::native, cpu::Path::plain};
  return {cpu::Path::automatic, cpu::Path::native, cpu::Path::widened, cpu::Path::plain};
}

/// One command with memory of its own; the operands' values also as doubles, after rounding to
/// their type.
class CommandRun {
public:
  explicit CommandRun(Command command, int threads = 2) : c(std::move(command)) {
    for (Operand *o : {&c.lhs, &c.rhs, &c.bias, &c.result})
      place(*o);
    checkCommand(c, "test command");
    block = cpu::Memory(size + 4096, "a test");
    std::array<std::byte *, kRegionCount> regions;
    regions.fill(block.data());
    library = std::make_unique<cpu::Library>(threads, regions);
    fill(c.lhs, lhs);
    fill(c.rhs, rhs);
    if (c.bias.present)
      fill(c.bias, bias);
    // What a command does not write must show.
    std::memset(library->at(c.result.buffer), 0xff,
                elements(c.result) * elementSize(c.result.type));
  }

  std::string run(cpu::Path path) {
    if (!made || path != made_for) {
      library->path = path;
      made = cpu::makeLibraryCommand(*library, c);
      scratch = cpu::Memory(made->scratchBytes(), "a test");
      made->bind(scratch.data());
      made_for = path;
    }
    made->run();
    return made->describe();
  }

  void fill(const Operand &o, std::vector<double> &values) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    values.resize(size_t(elements(o)));
    for (double &v : values)
      v = uniform(random);
    convertElements(ElementType::f64, values.data(), o.type, library->at(o.buffer), elements(o));
    convertElements(o.type, library->at(o.buffer), ElementType::f64, values.data(), elements(o));
  }

  static int64_t elements(const Operand &o) {
    int64_t count = 1;
    for (int64_t dim : o.shape)
      count *= dim;
    return count;
  }

  /// Compares with `sums` and `magnitudes` (Σ|products|): an f32 (f64) sum, then one rounding to
  /// the result type.
  void expect(const std::vector<double> &sums, const std::vector<double> &magnitudes,
              const std::string &what) {
    std::vector<double> got(sums.size());
    convertElements(c.result.type, library->at(c.result.buffer), ElementType::f64, got.data(),
                    int64_t(got.size()));
    double sum_error = c.lhs.type == ElementType::f64 ? 1e-15 : 1e-6;
    double rounding = c.result.type == ElementType::f16    ? 0x1.01p-11
                      : c.result.type == ElementType::bf16 ? 0x1.01p-8
                                                           : 0;
    int wrong = 0;
    for (size_t i = 0; i < got.size() && wrong < 3; ++i) {
      double limit =
          sum_error * (magnitudes[i] + 1) + rounding * (std::fabs(sums[i]) + 1e-6) + 1e-30;
      if (!(std::fabs(got[i] - sums[i]) <= limit)) {
        ++wrong;
        ADD_FAILURE() << what << ": element " << i << " is " << got[i] << " instead of " << sums[i];
      }
    }
  }

  void expectMatmul(const std::string &what);
  void expectConvolution(const std::string &what);

  Command c;
  std::vector<double> lhs, rhs, bias;
  std::unique_ptr<cpu::Library> library;

private:
  void place(Operand &o) {
    if (o.shape.empty())
      return;
    o.present = true;
    o.buffer = {Region::arena, size};
    size += (size_t(elements(o)) * elementSize(o.type) + 63) / 64 * 64 + 64;
  }

  size_t size = 0;
  cpu::Memory block, scratch;
  std::unique_ptr<cpu::LibraryCommand> made;
  cpu::Path made_for{};
  std::mt19937 random{7};
};

inline void CommandRun::expectMatmul(const std::string &what) {
  size_t rank = c.lhs.shape.size();
  int64_t m = c.result.shape[rank - 2], n = c.result.shape[rank - 1];
  int64_t k = c.lhs.shape[rank - (c.transpose_lhs ? 2 : 1)], batch = 1;
  for (size_t i = 0; i + 2 < rank; ++i)
    batch *= c.lhs.shape[i];
  std::vector<double> sums(size_t(batch * m * n)), magnitudes(sums.size());
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t p = 0; p < k; ++p) {
          double x = lhs[b * m * k + (c.transpose_lhs ? p * m + i : i * k + p)];
          double y = rhs[b * k * n + (c.transpose_rhs ? j * k + p : p * n + j)];
          sum += x * y;
          magnitude += std::fabs(x * y);
        }
        if (c.bias.present)
          sum += bias[j];
        if (c.relu)
          sum = std::max(sum, 0.0);
        sums[(b * m + i) * n + j] = sum;
        magnitudes[(b * m + i) * n + j] = magnitude;
      }
  expect(sums, magnitudes, what);
}

/// Calls body(input index, filter index, output index) for every product of a convolution.
template <typename Body> void forEachProduct(const cpu::ConvolutionShape &s, const Body &body) {
  int64_t C = s.groups * s.channels, M = s.groups * s.features;
  auto index = [&](int64_t n, int64_t ch, int64_t channels, const cpu::Triple &e, int64_t d,
                   int64_t h, int64_t w) {
    return s.channels_last ? ((((n * e[0]) + d) * e[1] + h) * e[2] + w) * channels + ch
                           : ((((n * channels) + ch) * e[0] + d) * e[1] + h) * e[2] + w;
  };
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t g = 0; g < s.groups; ++g)
      for (int64_t m = 0; m < s.features; ++m)
        for (int64_t od = 0; od < s.out[0]; ++od)
          for (int64_t oh = 0; oh < s.out[1]; ++oh)
            for (int64_t ow = 0; ow < s.out[2]; ++ow)
              for (int64_t ch = 0; ch < s.channels; ++ch)
                for (int64_t kd = 0; kd < s.kernel[0]; ++kd)
                  for (int64_t kh = 0; kh < s.kernel[1]; ++kh)
                    for (int64_t kw = 0; kw < s.kernel[2]; ++kw) {
                      int64_t id = od * s.stride[0] + kd * s.dilation[0] - s.pad_begin[0];
                      int64_t ih = oh * s.stride[1] + kh * s.dilation[1] - s.pad_begin[1];
                      int64_t iw = ow * s.stride[2] + kw * s.dilation[2] - s.pad_begin[2];
                      if (id < 0 || ih < 0 || iw < 0 || id >= s.in[0] || ih >= s.in[1] ||
                          iw >= s.in[2])
                        continue;
                      int64_t filter =
                          ((((g * s.features + m) * s.channels + ch) * s.kernel[0] + kd) *
                               s.kernel[1] +
                           kh) *
                              s.kernel[2] +
                          kw;
                      body(index(n, g * s.channels + ch, C, s.in, id, ih, iw), filter,
                           index(n, g * s.features + m, M, s.out, od, oh, ow));
                    }
}

inline void CommandRun::expectConvolution(const std::string &what) {
  cpu::ConvolutionShape s(c);
  std::vector<double> sums(size_t(elements(c.result))), magnitudes(sums.size());
  auto add = [&](int64_t to, double product) {
    sums[to] += product;
    magnitudes[to] += std::fabs(product);
  };
  forEachProduct(s, [&](int64_t input, int64_t filter, int64_t output) {
    if (c.kind == CommandKind::conv)
      add(output, lhs[input] * rhs[filter]);
    else if (c.kind == CommandKind::conv_backward_data)
      add(input, lhs[output] * rhs[filter]);
    else
      add(filter, lhs[input] * rhs[output]);
  });
  if (c.bias.present)
    for (size_t i = 0; i < sums.size(); ++i) {
      int64_t M = s.groups * s.features;
      sums[i] += bias[c.channels_last ? i % M : i / s.outPixels() % M];
    }
  if (c.relu)
    for (double &sum : sums)
      sum = std::max(sum, 0.0);
  expect(sums, magnitudes, what);
}

} // namespace mpc::test

#endif // MPC_TEST_UNIT_LIBRARYTESTSUPPORT_H
