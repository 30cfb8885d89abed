//===- CodegenPoolTest.cpp - windows against a plain evaluator -------------------------------===//
//
// Pools and their gradients, as in CodegenTest.cpp.
//
//===----------------------------------------------------------------------------------===//

#include "KernelRunner.h"

using namespace mpc::test;

namespace {
struct Pool {
  const char *input, *output, *attributes;
  const char *index = "i8"; ///< of a max_pool
  int64_t cells = 3;        ///< in a test of its gradient, the winner is one of so many
};
// Plain 2×2; overlapping with pads; channels last; dilated; ceil_mode with an uneven last window;
// 1-D; large windows, which are loops; one window over everything; the largest window whose cells
// are numbered by bytes, and one beyond.
const Pool kPools[] = {
    {"2x3x8x8", "2x3x4x4",
     "kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, "
     "dilations = array<i64: 1, 1>"},
    {"2x3x7x9", "2x3x4x5",
     "kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, "
     "dilations = array<i64: 1, 1>"},
    {"2x8x12x32", "2x4x6x32",
     "kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, "
     "dilations = array<i64: 1, 1>, channels_last"},
    {"2x7x9x16", "2x4x5x16",
     "kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, "
     "dilations = array<i64: 1, 1>, channels_last"},
    {"1x2x9x8", "1x2x5x4",
     "kernel = array<i64: 3, 2>, strides = array<i64: 1, 2>, pads = array<i64: 0, 1, 0, 1>, "
     "dilations = array<i64: 2, 2>"},
    {"2x2x6x6", "2x2x3x3",
     "kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, "
     "dilations = array<i64: 1, 1>"},
    {"3x4x11", "3x4x11",
     "kernel = array<i64: 3>, strides = array<i64: 1>, pads = array<i64: 1, 1>, dilations = "
     "array<i64: 1>"},
    {"2x9x9x5", "2x3x3x5",
     "kernel = array<i64: 5, 5>, strides = array<i64: 3, 3>, pads = array<i64: 2, 2, 1, 1>, "
     "dilations = array<i64: 1, 1>, channels_last",
     "i8", 25},
    {"2x5x7x16", "2x1x1x16",
     "kernel = array<i64: 5, 7>, strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, "
     "dilations = array<i64: 1, 1>, channels_last",
     "i8", 35},
    {"2x3x5x7", "2x3x2x3",
     "kernel = array<i64: 4, 5>, strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, "
     "dilations = array<i64: 1, 1>",
     "i8", 20},
    {"2x2x510", "2x2x2",
     "kernel = array<i64: 255>, strides = array<i64: 255>, pads = array<i64: 0, 0>, dilations = "
     "array<i64: 1>",
     "i8", 255},
    {"2x2x512", "2x2x2",
     "kernel = array<i64: 256>, strides = array<i64: 256>, pads = array<i64: 0, 0>, dilations = "
     "array<i64: 1>",
     "i32", 256},
};
bool hasChannelsLast(const Pool &pool) {
  return llvm::StringRef(pool.attributes).contains("channels_last");
}
std::string kernelOf(const Pool &pool, std::string text) {
  auto fill = [&](const std::string &key, std::string value) {
    for (size_t at; (at = text.find(key)) != std::string::npos;)
      text.replace(at, key.size(), value);
  };
  auto list = [](std::string shape) {
    for (char &c : shape)
      c = c == 'x' ? ',' : c;
    return shape;
  };
  fill("IN_DOMAIN", list(pool.input));
  fill("OUT_DOMAIN", list(pool.output));
  // What is left of the input when its spatial dimensions are summed, and which these are.
  llvm::SmallVector<llvm::StringRef> input;
  llvm::StringRef(pool.input).split(input, 'x');
  size_t first = hasChannelsLast(pool) ? 1 : 2, spatial = input.size() - 2;
  fill("CHANNELS", input.back().str());
  fill("ROWS", (input[0] + "x" + input[1]).str());
  fill("SPATIAL", spatial == 1 ? std::to_string(first)
                               : std::to_string(first) + ", " + std::to_string(first + 1));
  fill("IN", pool.input);
  fill("OUT", pool.output);
  fill("ATTRS", pool.attributes);
  fill("PLACE", pool.index);
  return text;
}
} // namespace

TEST(Codegen, MaxPool) {
  for (const Pool &pool : kPools) {
    SCOPED_TRACE(pool.attributes);
    expectMatchesReference(kernelOf(pool, R"(
      func.func private @k(%x: tensor<INxf32>) -> (tensor<OUTxf32>, tensor<OUTxPLACE>)
          attributes {mpc.kernel = #mpc.kernel<map, domain = [OUT_DOMAIN], split = 1, aliases = [-1, -1]>} {
        %0, %1 = mpc.max_pool %x {ATTRS} : (tensor<INxf32>) -> (tensor<OUTxf32>, tensor<OUTxPLACE>)
        return %0, %1 : tensor<OUTxf32>, tensor<OUTxPLACE>
      })"));
    // Only the value, of a half, after a relu.
    expectMatchesReference(kernelOf(pool, R"(
      func.func private @k(%x: tensor<INxf16>) -> tensor<OUTxf16>
          attributes {mpc.kernel = #mpc.kernel<map, domain = [OUT_DOMAIN], split = 1, aliases = [-1]>} {
        %z = arith.constant dense<0.0> : tensor<INxf16>
        %r = arith.maximumf %x, %z : tensor<INxf16>
        %0, %1 = mpc.max_pool %r {ATTRS} : (tensor<INxf16>) -> (tensor<OUTxf16>, tensor<OUTxPLACE>)
        return %0 : tensor<OUTxf16>
      })"));
  }
}

TEST(Codegen, MaxPoolGrad) {
  for (const Pool &pool : kPools) {
    SCOPED_TRACE(pool.attributes);
    expectMatchesReference(kernelOf(pool, R"(
      func.func private @k(%g: tensor<OUTxf16>, %i: tensor<OUTxPLACE>) -> tensor<INxf32>
          attributes {mpc.kernel = #mpc.kernel<map, domain = [IN_DOMAIN], split = 1, aliases = [-1]>} {
        %0 = arith.extf %g : tensor<OUTxf16> to tensor<OUTxf32>
        %1 = mpc.max_pool_grad %0, %i {ATTRS} : (tensor<OUTxf32>, tensor<OUTxPLACE>) -> tensor<INxf32>
        return %1 : tensor<INxf32>
      })"),
                           pool.cells);
  }
}

// As in the gradient of a norm before a relu and a pool: the pool's gradient is not stored, the
// sums of columns (channels last) or rows ask for it.
TEST(Codegen, PoolGradientsInReductions) {
  const char *sums = R"(%z = arith.constant dense<0.0> : tensor<INxf32>
        GRADIENT
        %xf = arith.extf %x : tensor<INxf16> to tensor<INxf32>
        %m = arith.cmpf ogt, %xf, %z : tensor<INxf32>
        %d = arith.select %m, %p, %z : tensor<INxi1>, tensor<INxf32>
        %q = arith.mulf %d, %xf : tensor<INxf32>)";
  const char *column = R"(
      func.func private @k(%g: tensor<OUTxf16>, %i: tensor<OUTxPLACE>, %x: tensor<INxf16>) -> (tensor<CHANNELSxf32>, tensor<CHANNELSxf32>)
          attributes {mpc.kernel = #mpc.kernel<column, domain = [IN_DOMAIN], split = 3, aliases = [-1, -1]>} {
        SUMS
        %0 = mpc.reduce sum %d {axes = array<i64: 0, 1, 2>} : tensor<INxf32> -> tensor<CHANNELSxf32>
        %1 = mpc.reduce sum %q {axes = array<i64: 0, 1, 2>} : tensor<INxf32> -> tensor<CHANNELSxf32>
        return %0, %1 : tensor<CHANNELSxf32>, tensor<CHANNELSxf32>
      })";
  const char *row = R"(
      func.func private @k(%g: tensor<OUTxf16>, %i: tensor<OUTxPLACE>, %x: tensor<INxf16>) -> (tensor<ROWSxf32>, tensor<INxf16>)
          attributes {mpc.kernel = #mpc.kernel<row, domain = [IN_DOMAIN], split = 2, aliases = [-1, -1]>} {
        SUMS
        %0 = mpc.reduce sum %q {axes = array<i64: SPATIAL>} : tensor<INxf32> -> tensor<ROWSxf32>
        %b = mpc.broadcast %0 {dimensions = array<i64: 0, 1>} : tensor<ROWSxf32> -> tensor<INxf32>
        %s = arith.subf %d, %b : tensor<INxf32>
        %t = arith.truncf %s : tensor<INxf32> to tensor<INxf16>
        return %0, %t : tensor<ROWSxf32>, tensor<INxf16>
      })";
  const char *gradients[] = {
      R"(%h = mpc.max_pool_grad %g, %i {ATTRS} : (tensor<OUTxf16>, tensor<OUTxPLACE>) -> tensor<INxf16>
        %p = arith.extf %h : tensor<INxf16> to tensor<INxf32>)",
      R"(%h = arith.extf %g : tensor<OUTxf16> to tensor<OUTxf32>
        %p = mpc.average_pool_grad %h {ATTRS} : (tensor<OUTxf32>) -> tensor<INxf32>)"};
  auto put = [](std::string text, llvm::StringRef key, llvm::StringRef value) {
    return text.replace(text.find(key.str()), key.size(), value.str());
  };
  for (const Pool &pool : kPools)
    for (const char *gradient : gradients) {
      SCOPED_TRACE(pool.attributes);
      std::string text = put(hasChannelsLast(pool) ? column : row, "SUMS", sums);
      expectMatchesReference(kernelOf(pool, put(text, "GRADIENT", gradient)), pool.cells, 1e-5);
    }
}

TEST(Codegen, AveragePool) {
  for (const Pool &pool : kPools)
    for (const char *include : {"", ", count_include_pad"}) {
      SCOPED_TRACE(pool.attributes);
      Pool variant = pool;
      std::string attributes = std::string(pool.attributes) + include;
      variant.attributes = attributes.c_str();
      expectMatchesReference(kernelOf(variant, R"(
        func.func private @k(%x: tensor<INxf16>) -> tensor<OUTxf16>
            attributes {mpc.kernel = #mpc.kernel<map, domain = [OUT_DOMAIN], split = 1, aliases = [-1]>} {
          %0 = mpc.average_pool %x {ATTRS} : (tensor<INxf16>) -> tensor<OUTxf16>
          return %0 : tensor<OUTxf16>
        })"));
      expectMatchesReference(kernelOf(variant, R"(
        func.func private @k(%g: tensor<OUTxf32>) -> tensor<INxf32>
            attributes {mpc.kernel = #mpc.kernel<map, domain = [IN_DOMAIN], split = 1, aliases = [-1]>} {
          %0 = mpc.average_pool_grad %g {ATTRS} : (tensor<OUTxf32>) -> tensor<INxf32>
          return %0 : tensor<INxf32>
        })"));
    }
}
