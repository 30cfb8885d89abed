//===- GpuProductTest.cpp - generated matrix products and convolutions on the simulator -----===//
//
// Every case against its definition in doubles; for sm_80 (halves on tensor cores), sm_75 and sm_70
// (f16 on tensor cores, each with another instruction; everything else in f32 registers).
//
//===--------------------------------------------------------------------------------------===//

#include "ProductRunner.h"
#include "llvm/Support/FileSystem.h"

using namespace mpc::test;

namespace {
std::string listOf(const std::vector<int64_t> &values) {
  std::string text;
  for (int64_t value : values)
    text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}
std::string tensorOf(const std::vector<int64_t> &shape, const std::string &type) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + type + ">";
}

/// A module under construction: a function for every command.
struct Commands {
  std::string text;
  int count = 0;

  void add(const std::string &op, const std::vector<std::string> &types, const std::string &result,
           const std::string &attributes) {
    static const char *const names[] = {"%a", "%b", "%c"};
    std::string arguments, list;
    for (size_t i = 0; i < types.size(); ++i) {
      arguments += (i ? ", " : "") + std::string(names[i]) + ": " + types[i];
      list += (i ? ", " : "") + types[i];
    }
    text += "func.func @f" + std::to_string(count++) + "(" + arguments + ") -> " + result +
            " {\n  %r = mpc." + op + " %a, %b" + (types.size() > 2 ? " bias %c" : "") + " {" +
            attributes + "} : (" + list + ") -> " + result + "\n  return %r : " + result + "\n}\n";
  }

  /// All of them, as they are for every kind of GPUs.
  void expectRight() const {
    for (const char *gpu : {"native", "sm_75", "sm_70"}) {
      if (gpu == std::string("sm_75") && text.find("xf16") == text.npos)
        continue; // as sm_70
      KernelRunner runner(text, gpu);
      ASSERT_TRUE(runner.ok()) << text;
      int found = 0;
      for (auto function : runner.module->getOps<mlir::func::FuncOp>())
        for (mlir::Operation &op : function.front().without_terminator()) {
          ++found;
          std::string what;
          llvm::raw_string_ostream(what) << op << "\n" << gpu;
          EXPECT_EQ(checkProduct(*runner.backend, &op), "") << what;
        }
      EXPECT_EQ(found, count);
    }
  }
};

struct Matmul {
  int64_t batch, m, n, k;
  const char *type, *result;
  bool transposeLhs, transposeRhs, bias, relu;

  void addTo(Commands &commands) const {
    auto shape = [&](int64_t rows, int64_t columns, bool transposed) {
      std::vector<int64_t> dims{rows, columns};
      if (transposed)
        std::swap(dims[0], dims[1]);
      if (batch)
        dims.insert(dims.begin(), batch);
      return dims;
    };
    std::vector<std::string> types{tensorOf(shape(m, k, transposeLhs), type),
                                   tensorOf(shape(k, n, transposeRhs), type)};
    if (bias)
      types.push_back(tensorOf({n}, type));
    std::string attributes;
    for (auto [isSet, name] : {std::pair(transposeLhs, "transpose_lhs"),
                               std::pair(transposeRhs, "transpose_rhs"), std::pair(relu, "relu")})
      if (isSet)
        attributes += (attributes.empty() ? "" : ", ") + std::string(name);
    commands.add("matmul", types, tensorOf(shape(m, n, false), result), attributes);
  }
};

struct Conv {
  int64_t images, groups, channels, features; ///< all channels, all features
  std::vector<int64_t> image, kernel, stride, pads, dilation;

  /// The convolution and its two gradients.
  void addTo(Commands &commands, bool last, const std::string &type, bool bias, bool relu) const {
    std::vector<int64_t> output;
    size_t rank = kernel.size();
    for (size_t d = 0; d < rank; ++d)
      output.push_back((image[d] + pads[d] + pads[rank + d] - dilation[d] * (kernel[d] - 1) - 1) /
                           stride[d] +
                       1);
    auto activation = [&](int64_t count, const std::vector<int64_t> &spatial) {
      std::vector<int64_t> shape{images};
      if (!last)
        shape.push_back(count);
      shape.insert(shape.end(), spatial.begin(), spatial.end());
      if (last)
        shape.push_back(count);
      return tensorOf(shape, type);
    };
    std::vector<int64_t> weights{features, channels / groups};
    weights.insert(weights.end(), kernel.begin(), kernel.end());
    std::string attributes =
        "strides = array<i64: " + listOf(stride) + ">, pads = array<i64: " + listOf(pads) +
        ">, dilations = array<i64: " + listOf(dilation) + ">, groups = " + std::to_string(groups) +
        " : i64" + (last ? ", channels_last" : "");
    std::string in = activation(channels, image), out = activation(features, output),
                filter = tensorOf(weights, type);
    std::vector<std::string> operands{in, filter};
    if (bias)
      operands.push_back(tensorOf({features}, type));
    commands.add("conv", operands, out, attributes + (relu ? ", relu" : ""));
    commands.add("conv_backward_data", {out, filter}, in, attributes);
    commands.add("conv_backward_weights", {in, out},
                 tensorOf(weights, type == "f64" ? type : "f32"), attributes);
  }
  void expectRight() const {
    for (bool last : {true, false}) {
      Commands commands;
      for (const char *type : {"f16", "bf16", "f32"})
        addTo(commands, last, type, /*bias=*/type[0] == 'b' || last, /*relu=*/type[1] == '3');
      commands.expectRight();
    }
  }
};
} // namespace

// Extents that no tile divides, of one, of exactly a tile; with every transpose, so that pieces of
// 16, 8, 4 and 2 bytes lie along the depth and across it.
TEST(GpuProduct, MatmulsOfEveryShape) {
  struct Shape {
    int64_t m, n, k;
  };
  for (const char *type : {"f16", "bf16", "f32"}) {
    Commands commands;
    for (Shape shape : {Shape{1, 1, 1}, Shape{5, 3, 7}, Shape{33, 18, 40}, Shape{64, 64, 32},
                        Shape{65, 130, 20}, Shape{40, 10, 100}})
      for (int transposes = 0; transposes < 4; ++transposes)
        Matmul{0,
               shape.m,
               shape.n,
               shape.k,
               type,
               transposes == 2 ? "f32" : type,
               transposes % 2 == 1,
               transposes >= 2,
               transposes != 1,
               transposes == 3}
            .addTo(commands);
    commands.expectRight();
  }
}

// The largest tiles; a batch; sums over nothing.
TEST(GpuProduct, LargeBatchedAndEmptyMatmuls) {
  Commands commands;
  Matmul{0, 2048, 1920, 24, "f16", "f16", false, true, true, false}.addTo(commands);
  Matmul{0, 1100, 2050, 16, "f32", "f32", true, false, false, false}.addTo(commands);
  for (const char *type : {"f16", "f32"}) {
    Matmul{6, 20, 36, 16, type, type, false, true, false, false}.addTo(commands);
    Matmul{3, 70, 9, 33, type, "f32", true, false, true, true}.addTo(commands);
    Matmul{0, 5, 6, 0, type, type, false, false, true, false}.addTo(commands);
    Matmul{2, 5, 6, 0, type, type, false, false, false, false}.addTo(commands);
  }
  commands.expectRight();
}

// Few tiles and a long sum: parts of it are added up by a second function, in order, which adds the
// bias and rounds.
TEST(GpuProduct, SplitDepth) {
  Commands commands;
  for (const char *type : {"f16", "bf16", "f32"}) {
    Matmul{0, 10, 12, 3000, type, "f32", true, false, false, false}.addTo(commands);
    Matmul{2, 33, 31, 1025, type, type, false, true, true, true}.addTo(commands);
  }
  commands.expectRight();
  KernelRunner runner(commands.text);
  for (mlir::Operation *op : mpc::gpu::distinctLibraryCommands(*runner.module)) {
    EXPECT_GT(mpc::gpu::productGrid(op).splits, 1);
    EXPECT_EQ(mpc::gpu::productFunctions(op).size(), 2u);
    EXPECT_EQ(mpc::gpu::productScratchBytes(op) % mpc::gpu::productGrid(op).splits, 0);
  }
}

TEST(GpuProduct, DoublesInRegisters) {
  Commands commands;
  Matmul{0, 33, 70, 50, "f64", "f64", false, false, true, true}.addTo(commands);
  Matmul{0, 8, 8, 2000, "f64", "f64", true, true, false, false}.addTo(commands);
  Conv{2, 2, 4, 6, {5, 6}, {3, 3}, {2, 1}, {1, 1, 1, 1}, {1, 1}}.addTo(commands, true, "f64", true,
                                                                       false);
  commands.expectRight();
}

TEST(GpuProduct, PlainConvolution) {
  Conv{2, 1, 3, 5, {8, 9}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}.expectRight();
}
// Pieces of 16 bytes; products with more pixels than a tile has rows.
TEST(GpuProduct, ManyChannels) {
  Conv{2, 1, 32, 40, {7, 8}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}.expectRight();
}
TEST(GpuProduct, StridesAndAsymmetricPads) {
  Conv{2, 1, 8, 12, {9, 8}, {3, 2}, {2, 2}, {0, 1, 1, 2}, {1, 1}}.expectRight();
  Conv{1, 1, 4, 4, {7, 7}, {2, 1}, {3, 4}, {1, 0, 0, 0}, {1, 1}}
      .expectRight(); // pixels without a window
}
// A stride that divides the image: the image's gradient by phases. More taps than phases, fewer, in
// one dimension only, and with a copied filter.
TEST(GpuProduct, PhasesOfTheStride) {
  Conv{2, 1, 8, 12, {8, 10}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}.expectRight();
  Conv{2, 2, 4, 8, {9, 8}, {2, 5}, {3, 1}, {0, 2, 1, 2}, {1, 1}}.expectRight();
  Conv{1, 1, 4, 6, {6, 7, 4}, {3, 3, 4}, {2, 2, 4}, {1, 0, 0, 0, 1, 3}, {1, 1, 1}}.expectRight();
  Conv{2, 2, 16, 8, {24, 24}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}.expectRight();
  Conv{3, 1, 4, 6, {16}, {7}, {4}, {3, 2}, {1}}.expectRight();
}
TEST(GpuProduct, Dilations) {
  Conv{2, 1, 6, 8, {9, 10}, {3, 3}, {1, 2}, {2, 2, 2, 2}, {2, 3}}.expectRight();
}
TEST(GpuProduct, Groups) {
  Conv{2, 2, 16, 24, {6, 5}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}.expectRight();
  Conv{1, 6, 6, 30, {6, 6}, {3, 3}, {2, 1}, {1, 1, 1, 1}, {1, 1}}.expectRight();
}
// Every channel by itself: channels that are accesses of several widths, some features each, a
// stride with phases and one without, dilation, large filters, one and three dimensions.
TEST(GpuProduct, Depthwise) {
  Conv{2, 16, 16, 16, {9, 10}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}}.expectRight();
  Conv{2, 5, 5, 10, {6, 6}, {3, 3}, {2, 1}, {1, 1, 1, 1}, {1, 1}}.expectRight();
  Conv{2, 12, 12, 24, {8, 8}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}}.expectRight();
  Conv{1, 9, 9, 27, {8, 7}, {3, 2}, {2, 3}, {0, 1, 1, 0}, {2, 1}}.expectRight();
  Conv{1, 6, 6, 6, {9, 8}, {7, 7}, {1, 1}, {3, 3, 3, 3}, {1, 1}}.expectRight();
  Conv{2, 8, 8, 16, {6, 7}, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}}.expectRight();
  Conv{3, 8, 8, 8, {17}, {7}, {2}, {3, 3}, {1}}.expectRight();
  Conv{1, 8, 8, 8, {4, 5, 6}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1, 1, 1, 1}, {1, 1, 1}}.expectRight();
}
// Threads are along channels and pixels, not in tiles; the filter's gradient is split.
TEST(GpuProduct, DepthwiseGrids) {
  Conv conv{4, 40, 40, 40, {24, 24}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}};
  Commands commands;
  for (const char *type : {"f16", "f32", "f64"})
    conv.addTo(commands, true, type, type[1] == '1', type[1] == '3');
  commands.expectRight();
  KernelRunner runner(commands.text);
  auto products = mpc::gpu::distinctLibraryCommands(*runner.module);
  ASSERT_EQ(products.size(), 9u);
  for (auto [i, product] : llvm::enumerate(products)) {
    bool isGradient = i % 3 == 2;
    auto functions = mpc::gpu::productFunctions(product);
    EXPECT_EQ(functions.size(), isGradient ? 2u : 1u);
    EXPECT_LE(functions[0].sharedBytes, mpc::gpu::kSharedBytes);
    // A thread has 4 channels (of f64 2) of 4 pixels.
    int64_t pixels = 4 * 24 * 24, threads = pixels / 4 * (i < 6 ? 10 : 20);
    if (isGradient)
      EXPECT_GT(mpc::gpu::productGrid(product).splits, 1);
    else
      EXPECT_EQ(functions[0].grid, (threads + 255) / 256);
  }
}
TEST(GpuProduct, PointwiseConvolution) {
  Conv{2, 1, 16, 24, {4, 6}, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}}.expectRight();
  Conv{2, 3, 12, 6, {5, 5}, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}}.expectRight();
  Conv{2, 1, 8, 16, {7, 7}, {1, 1}, {2, 2}, {0, 0, 0, 0}, {1, 1}}.expectRight();
}
TEST(GpuProduct, OneAndThreeDimensions) {
  Conv{3, 1, 4, 6, {17}, {5}, {2}, {2, 1}, {1}}.expectRight();
  Conv{2, 1, 4, 3, {4, 5, 6}, {2, 3, 2}, {1, 2, 1}, {0, 1, 1, 1, 1, 0}, {1, 1, 2}}.expectRight();
}
// The gradient of a filter is a sum over the pixels of all images: it is split.
TEST(GpuProduct, FilterGradientOfManyPixels) {
  Conv conv{6, 1, 8, 16, {16, 16}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}};
  conv.expectRight();
  Commands commands;
  conv.addTo(commands, true, "f16", false, false);
  KernelRunner runner(commands.text);
  EXPECT_GT(mpc::gpu::productGrid(mpc::gpu::distinctLibraryCommands(*runner.module)[2]).splits, 1);
}

// Many pixels: the filter is copied first, in the order of the depth. With a split depth as well.
TEST(GpuProduct, PackedFilter) {
  Conv plain{2, 1, 8, 12, {24, 24}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}};
  plain.expectRight();
  Conv{1, 2, 12, 8, {33, 32}, {2, 3}, {1, 2}, {1, 1, 0, 1}, {1, 1}}.expectRight();
  Conv deep{1, 1, 64, 40, {32, 32}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}};
  Commands commands;
  deep.addTo(commands, true, "f16", true, true);
  commands.expectRight();
  KernelRunner runner(commands.text);
  auto products = mpc::gpu::distinctLibraryCommands(*runner.module);
  ASSERT_EQ(products.size(), 3u);
  const size_t functions[] = {3, 2, 3};
  for (size_t i = 0; i < 3; ++i) {
    auto made = mpc::gpu::productFunctions(products[i]);
    ASSERT_EQ(made.size(), functions[i]);
    EXPECT_EQ(llvm::StringRef(made[0].name).ends_with("$filter"), i < 2);
  }
}

// Where a library leaves a filter's gradient in its own order, a function of its own stores it.
// One of a single tap or channel is in that order already.
TEST(GpuProduct, GradientInALibrarysOrder) {
  for (const char *type : {"f16", "f32"}) {
    Commands commands;
    Conv{2, 2, 12, 10, {6, 7}, {2, 3}, {1, 1}, {0, 0, 0, 0}, {1, 1}}.addTo(commands, true, type,
                                                                           false, false);
    KernelRunner runner(commands.text);
    ASSERT_TRUE(runner.ok());
    mlir::Operation *gradient = mpc::gpu::distinctLibraryCommands(*runner.module)[2];
    auto made = mpc::gpu::productFunctions(gradient);
    ASSERT_TRUE(made.back().afterLibrary);
    std::vector<Storage> storage;
    for (mlir::Type operand : gradient->getOperandTypes()) {
      auto tensor = mlir::cast<mlir::RankedTensorType>(operand);
      storage.emplace_back(tensor.getNumElements() * bytesPer(tensor.getElementType()));
    }
    auto result = mlir::cast<mlir::RankedTensorType>(gradient->getResult(0).getType());
    const int64_t features = 10, channels = 6, taps = 6;
    ASSERT_EQ(result.getNumElements(), features * channels * taps);
    storage.emplace_back(result.getNumElements() * 4);
    storage.emplace_back(mpc::gpu::productScratchBytes(gradient));
    auto *left = static_cast<float *>(storage.back().data());
    for (int64_t i = 0; i < result.getNumElements(); ++i)
      left[i] = i;
    EXPECT_EQ(runner.backend->launch(made.back(), storage), "");
    auto *stored = static_cast<const float *>(storage[2].data());
    for (int64_t f = 0; f < features; ++f)
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t t = 0; t < taps; ++t)
          ASSERT_EQ(stored[(f * channels + c) * taps + t], (f * taps + t) * channels + c);
  }
  Commands commands;
  Conv{2, 1, 8, 12, {6, 5}, {1, 1}, {2, 1}, {0, 0, 0, 0}, {1, 1}}.addTo(commands, true, "f16",
                                                                        false, false);
  Conv{2, 8, 8, 8, {6, 5}, {3, 3}, {1, 1}, {0, 0, 0, 0}, {1, 1}}.addTo(commands, true, "f16", false,
                                                                       false);
  KernelRunner runner(commands.text);
  for (mlir::Operation *op : mpc::gpu::distinctLibraryCommands(*runner.module))
    EXPECT_FALSE(mpc::gpu::productFunctions(op).back().afterLibrary);
}

// Architectures share a text where they have the same instructions: with a product of f16 sm_70,
// sm_75 and sm_80 begin one each, without it sm_70 and sm_80.
TEST(GpuProduct, TextsOfArchitectures) {
  if (!llvm::sys::fs::can_execute(MPC_TEST_PTXAS))
    GTEST_SKIP() << "ptxas is not here: scripts/test.sh installs it";
  llvm::SmallString<128> cache;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("mpc-cache", cache));
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  for (auto [type, texts] : {std::pair("f16", 3u), std::pair("f32", 2u)}) {
    Commands commands;
    Matmul{0, 40, 24, 32, type, type, false, false, false, false}.addTo(commands);
    KernelRunner runner(commands.text);
    ASSERT_TRUE(runner.ok());
    mpc::CudaTargetOptions options;
    options.architectures = {90, 75, 70, 80, 72};
    std::vector<mpc::KernelResources> resources; // of a text's first architecture
    auto images = mpc::compileDeviceImages(*runner.module, options, &resources);
    ASSERT_TRUE(static_cast<bool>(images)) << llvm::toString(images.takeError());
    EXPECT_EQ(resources.size(), texts) << type;
    std::vector<unsigned> cubins;
    for (const mpc::DeviceImage &image : *images)
      if (image.kind == mpc::DeviceImage::cubin)
        cubins.push_back(image.architecture);
    EXPECT_EQ(cubins, (std::vector<unsigned>{70, 72, 75, 80, 90}));
  }
  unsetenv("XDG_CACHE_HOME");
  llvm::sys::fs::remove_directories(cache);
}

// Names are made from the content, whatever node a command came from; nothing without elements is
// run.
TEST(GpuProduct, NamesAndEmptyResults) {
  KernelRunner runner(R"(
    func.func @f(%a: tensor<4x8xf16>, %b: tensor<8x6xf16>, %c: tensor<6x6xf16>, %e: tensor<0x8xf16>) -> (tensor<4x6xf16>, tensor<4x6xf16>, tensor<4x6xf32>, tensor<0x6xf16>) {
      %0 = mpc.matmul %a, %b {mpc.node = "one"} : (tensor<4x8xf16>, tensor<8x6xf16>) -> tensor<4x6xf16>
      %1 = mpc.matmul %0, %c {mpc.node = "two"} : (tensor<4x6xf16>, tensor<6x6xf16>) -> tensor<4x6xf16>
      %2 = mpc.matmul %a, %b : (tensor<4x8xf16>, tensor<8x6xf16>) -> tensor<4x6xf32>
      %3 = mpc.matmul %e, %b : (tensor<0x8xf16>, tensor<8x6xf16>) -> tensor<0x6xf16>
      %4 = mpc.matmul %a, %b {mpc.node = "three"} : (tensor<4x8xf16>, tensor<8x6xf16>) -> tensor<4x6xf16>
      return %4, %1, %2, %3 : tensor<4x6xf16>, tensor<4x6xf16>, tensor<4x6xf32>, tensor<0x6xf16>
    })");
  ASSERT_TRUE(runner.ok());
  std::vector<std::string> names;
  mlir::func::FuncOp function = *runner.module->getOps<mlir::func::FuncOp>().begin();
  for (mlir::Operation &op : function.front()) {
    if (!mpc::gpu::isProduct(&op))
      continue;
    auto functions = mpc::gpu::productFunctions(&op);
    names.push_back(functions.empty() ? "" : functions[0].name);
  }
  ASSERT_EQ(names.size(), 5u);
  EXPECT_EQ(names[0], names[4]);
  EXPECT_NE(names[0], names[1]);
  EXPECT_NE(names[0], names[2]);
  EXPECT_EQ(names[3], "");
  EXPECT_EQ(mpc::gpu::distinctLibraryCommands(*runner.module).size(), 3u);
  EXPECT_TRUE(llvm::StringRef(names[0]).starts_with("matmul_4x6x8_"));
}
