//===- CudaGpuTest.cpp - the runtime's GPU on the simulated driver --------------------------===//

#include "CudaTestSupport.h"
#include "runtime/cuda/Images.h"

using namespace mpc::test;
using mpc::cuda::Gpu;

namespace {
/// A kernel of two parameters, of 8 and 24 bytes.
struct Scatter {
  explicit Scatter(const Gpu &gpu)
      : module(gpu.load(readImage().data())), function(gpu.function(module, "scatter")) {}
  mpc::cuda::Module module;
  CUfunction function;
};
constexpr const char *kOther = "'scatter' takes other parameters";
} // namespace

TEST(CudaGpu, ParametersOfAKernel) {
  onRuntimeGpu([](const Gpu &gpu) {
    Scatter kernel(gpu);
    auto check = [&](const std::vector<size_t> &bytes) {
      gpu.checkParameters(kernel.function, "scatter", bytes);
    };
    check({8, 24});
    expectError(kOther, [&] { check({8, 16}); });
    expectError(kOther, [&] { check({16, 24}); });
    expectError(kOther, [&] { check({8}); });
    expectError(kOther, [&] { check({}); });
    expectError(kOther, [&] { check({8, 24, 8}); });
  });
}

// A cubin of the same major version, the newest that is not newer; else the newest PTX.
TEST(CudaGpu, ImageOfAProgram) {
  using Kind = mpc::ProgramImage::Kind;
  mpc::Program program;
  program.images = {{Kind::cubin, 70, {}}, {Kind::ptx, 70, {}},      {Kind::cubin, 75, {}},
                    {Kind::cubin, 80, {}}, {Kind::cubin, 86, {}},    {Kind::cubin, 90, {}},
                    {Kind::ptx, 80, {}},   {Kind::simulator, 70, {}}};
  auto expect = [&](uint32_t gpu, Kind kind, uint32_t architecture) {
    const mpc::ProgramImage &image = mpc::cuda::chooseImage(program, gpu, "a GPU");
    EXPECT_EQ(image.kind, kind) << gpu;
    EXPECT_EQ(image.architecture, architecture) << gpu;
  };
  expect(70, Kind::cubin, 70);
  expect(72, Kind::cubin, 70);
  expect(75, Kind::cubin, 75);
  expect(89, Kind::cubin, 86);
  expect(90, Kind::cubin, 90);
  expect(120, Kind::ptx, 80);
  program.images.erase(program.images.begin() + 3, program.images.begin() + 5);
  expect(86, Kind::ptx, 80);
  program.images.pop_back(); // the simulator's
  program.images.pop_back();
  expect(86, Kind::ptx, 70);
  expectError("needs sm_70 or later", [&] { mpc::cuda::chooseImage(program, 61, "a GPU"); });
}

// The driver cannot tell: it is believed that all is well.
TEST(CudaGpu, ParametersThatTheDriverDoesNotTell) {
  onRuntimeGpu(
      [](const Gpu &gpu) {
        Scatter kernel(gpu);
        gpu.checkParameters(kernel.function, "scatter", {8, 16}); // calls 1 to 3
        gpu.checkParameters(kernel.function, "scatter", {8, 24}); // 4 to 6, of which 5 fails
        expectError(kOther, [&] { gpu.checkParameters(kernel.function, "scatter", {8, 16}); });
      },
      {{"MPC_SIM_FAULT", "info:1,info:2,info:3,info:5"}});
}

// What fails is not the kernel but the GPU, by work that ran before.
TEST(CudaGpu, AnErrorThatComesLate) {
  onRuntimeGpu(
      [](const Gpu &gpu) {
        Scatter kernel(gpu);
        auto stream = gpu.stream();
        auto memory = gpu.allocate(256, "a test");
        gpu.launch(stream, gpu.function(kernel.module, "nothing"), 1, 32, nullptr);
        expectError("CUDA_ERROR_ILLEGAL_ADDRESS", [&] { gpu.synchronize(stream); });
        for (const std::vector<size_t> &bytes : {std::vector<size_t>{8, 24}, {8, 16}})
          expectError("nothing more can run on it",
                      [&] { gpu.checkParameters(kernel.function, "scatter", bytes); });
      },
      {{"MPC_SIM_FAULT", "sticky:1"}});
}

TEST(CudaGpu, KernelsAreLoadedBeforeTheyAreRecorded) {
  onRuntimeGpu([](const Gpu &gpu) {
    auto module = gpu.load(readImage().data());
    auto stream = gpu.stream();
    CUfunction function = gpu.function(module, "nothing");
    auto record = [&] {
      return gpu.capture(stream, [&] { gpu.launch(stream, function, 1, 32, nullptr); });
    };
    expectError("launching a kernel failed", record);
    gpu.load(function);
    auto graph = record();
    gpu.launch(stream, graph);
    gpu.synchronize(stream);
  });
}
