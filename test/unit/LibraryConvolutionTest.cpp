//===- LibraryConvolutionTest.cpp - convolutions and gradients in every type -------===//

#include "LibraryTestSupport.h"

using namespace mpc;
using namespace mpc::cpu;
using mpc::test::CommandRun;
using mpc::test::pathsOf;

namespace {

struct Case {
  std::vector<int64_t> in, kernel; // spatial
  int64_t n, channels, features, groups;
  std::vector<int64_t> strides, pads, dilations;
};

const Case kCases[] = {
    {{9, 8}, {3, 3}, 2, 16, 32, 1, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {{14, 14}, {3, 3}, 3, 32, 32, 1, {2, 2}, {1, 1, 1, 1}, {1, 1}},
    {{17, 15}, {7, 7}, 2, 3, 16, 1, {2, 2}, {3, 3, 3, 3}, {1, 1}},
    {{12, 12}, {5, 5}, 2, 1, 8, 1, {1, 1}, {2, 2, 2, 2}, {1, 1}},
    {{10, 11}, {1, 1}, 2, 24, 40, 1, {1, 1}, {0, 0, 0, 0}, {1, 1}},
    {{10, 11}, {1, 1}, 2, 24, 40, 1, {2, 2}, {0, 0, 0, 0}, {1, 1}},
    {{11, 13}, {3, 2}, 2, 6, 10, 1, {2, 3}, {0, 1, 2, 0}, {2, 3}}, // asymmetric, dilated
    {{13, 10}, {3, 3}, 2, 16, 16, 1, {1, 1}, {2, 2, 2, 2}, {2, 2}},
    {{9, 9}, {3, 3}, 2, 16, 32, 4, {1, 1}, {1, 1, 1, 1}, {1, 1}},   // groups
    {{12, 9}, {3, 3}, 2, 32, 32, 32, {2, 2}, {1, 1, 1, 1}, {1, 1}}, // depthwise
    {{6, 6}, {3, 3}, 2, 8, 16, 8, {1, 1}, {0, 2, 1, 0}, {1, 1}},    // depthwise with a multiplier
    {{20}, {5}, 2, 12, 20, 1, {2}, {2, 1}, {1}},                    // 1-D
    {{6, 7, 8}, {3, 2, 3}, 2, 4, 8, 1, {1, 2, 1}, {1, 0, 1, 1, 1, 0}, {1, 1, 2}}, // 3-D
    {{5, 5}, {2, 2}, 2, 8, 8, 1, {3, 3}, {0, 0, 0, 0}, {1, 1}}, // some inputs are never read
};

Command convolution(CommandKind kind, ElementType type, ElementType result, const Case &k,
                    bool channels_last, bool bias) {
  Command c;
  c.kind = kind;
  c.node = "conv";
  c.strides = k.strides;
  c.pads = k.pads;
  c.dilations = k.dilations;
  c.groups = k.groups;
  c.channels_last = channels_last;
  size_t spatial = k.in.size();
  std::vector<int64_t> out;
  for (size_t d = 0; d < spatial; ++d)
    out.push_back(
        (k.in[d] + k.pads[d] + k.pads[spatial + d] - k.dilations[d] * (k.kernel[d] - 1) - 1) /
            k.strides[d] +
        1);
  auto image = [&](const std::vector<int64_t> &extents, int64_t channels) {
    std::vector<int64_t> shape = {k.n};
    if (!channels_last)
      shape.push_back(channels);
    shape.insert(shape.end(), extents.begin(), extents.end());
    if (channels_last)
      shape.push_back(channels);
    return shape;
  };
  Operand input, filter, output;
  input.shape = image(k.in, k.channels);
  output.shape = image(out, k.features);
  filter.shape = {k.features, k.channels / k.groups};
  filter.shape.insert(filter.shape.end(), k.kernel.begin(), k.kernel.end());
  input.type = filter.type = output.type = type;
  filter.is_weight = true;
  c.lhs = kind == CommandKind::conv_backward_data ? output : input;
  c.rhs = kind == CommandKind::conv_backward_weights ? output : filter;
  c.result = kind == CommandKind::conv                 ? output
             : kind == CommandKind::conv_backward_data ? input
                                                       : filter;
  c.result.is_weight = false;
  c.result.type = result;
  if (bias) {
    c.bias.shape = {k.features};
    c.bias.type = type;
  }
  return c;
}

std::string describe(const Command &c, const std::string &how) {
  const char *names[] = {"", "", "conv", "conv_backward_data", "conv_backward_weights"};
  return std::string(names[int(c.kind)]) + " " + elementTypeName(c.lhs.type) + " → " +
         elementTypeName(c.result.type) + " " + shapeText(c.lhs.shape) + " " +
         shapeText(c.rhs.shape) + (c.channels_last ? " channels last" : "") + " by " + how;
}

void check(CommandKind kind) {
  for (ElementType type : {ElementType::f64, ElementType::f32, ElementType::bf16, ElementType::f16})
    for (bool wide_result : {false, true}) {
      if (wide_result && !isHalf(type))
        continue;
      ElementType result = wide_result ? ElementType::f32 : type;
      if (kind == CommandKind::conv_backward_weights && isHalf(type) && !wide_result)
        continue;
      for (const Case &k : kCases)
        for (bool channels_last : {false, true})
          for (Path path : pathsOf(type)) {
            bool bias = kind == CommandKind::conv && channels_last != (path == Path::plain);
            CommandRun run(convolution(kind, type, result, k, channels_last, bias));
            std::string how = run.run(path);
            run.expectConvolution(describe(run.c, how));
          }
    }
}

TEST(LibraryConvolution, Forward) { check(CommandKind::conv); }
TEST(LibraryConvolution, BackwardData) { check(CommandKind::conv_backward_data); }
TEST(LibraryConvolution, BackwardWeights) { check(CommandKind::conv_backward_weights); }

TEST(LibraryConvolution, NegativePadsAndRelu) {
  Case k = {{10, 10}, {3, 3}, 2, 16, 16, 1, {1, 1}, {-1, 1, 0, -2}, {1, 1}};
  for (ElementType type : {ElementType::f64, ElementType::f32, ElementType::bf16, ElementType::f16})
    for (CommandKind kind :
         {CommandKind::conv, CommandKind::conv_backward_data, CommandKind::conv_backward_weights}) {
      ElementType result =
          kind == CommandKind::conv_backward_weights && isHalf(type) ? ElementType::f32 : type;
      Command c = convolution(kind, type, result, k, true, kind == CommandKind::conv);
      c.relu = kind == CommandKind::conv;
      CommandRun run(c);
      std::string how = run.run(Path::automatic);
      run.expectConvolution(describe(run.c, how));
    }
}

// Forward and input gradient hold copies of the same weight in their own layouts.
TEST(LibraryConvolution, WeightCopiesFollowChanges) {
  for (ElementType type : {ElementType::f64, ElementType::f32, ElementType::bf16, ElementType::f16})
    for (CommandKind kind : {CommandKind::conv, CommandKind::conv_backward_data})
      for (Path path : pathsOf(type)) {
        CommandRun run(convolution(kind, type, type, kCases[1], true, false));
        std::string how = run.run(path);
        run.fill(run.c.rhs, run.rhs);
        ++run.library->weights_version;
        run.run(path);
        run.expectConvolution(describe(run.c, how) + " after a change");
      }
}

// A filter that is computed in the step may differ at every run, without any announcement.
TEST(LibraryConvolution, ComputedFilterIsReadAtEachRun) {
  for (ElementType type : {ElementType::f64, ElementType::f32, ElementType::bf16, ElementType::f16})
    for (Path path : pathsOf(type)) {
      Command c = convolution(CommandKind::conv, type, type, kCases[1], true, false);
      c.rhs.is_weight = false;
      CommandRun run(c);
      std::string how = run.run(path);
      run.fill(run.c.rhs, run.rhs);
      run.run(path);
      run.expectConvolution(describe(run.c, how) + " at the second run");
    }
}

} // namespace
