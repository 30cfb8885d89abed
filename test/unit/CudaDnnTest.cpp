//===- CudaDnnTest.cpp - the runtime's convolutions on the simulated cuDNN ------------------===//
//
// A filter of one tap, so that the products are few: result[p, f] = Σ_c image[p, c] · filter[f, c].
//
//===----------------------------------------------------------------------------------------===//

#include "CudaTestSupport.h"
#include "runtime/cuda/Dnn.h"
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

namespace fs = std::filesystem;
using namespace mpc;
using namespace mpc::test;
using mpc::cuda::Dnn;
using mpc::cuda::Gpu;

namespace {
constexpr int64_t kPixels = 6, kChannels = 8, kFeatures = 8;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A program of one convolution with a bias and relu, its operands, and the library.
struct Convolution {
  Convolution(const Gpu &gpu, const std::string &folder) : gpu(gpu), stream(gpu.stream()) {
    Command command;
    command.kind = CommandKind::conv;
    command.node = "conv1";
    command.lhs.shape = {1, 1, kPixels, kChannels};
    command.rhs.shape = {kFeatures, kChannels, 1, 1};
    command.result.shape = {1, 1, kPixels, kFeatures};
    command.bias.shape = {kFeatures};
    command.bias.present = command.relu = command.channels_last = true;
    command.strides = command.dilations = {1, 1};
    command.pads = {0, 0, 0, 0};
    program.entries["predict"].commands.push_back(command);
    dnn = Dnn::open(gpu, stream, program, folder);
    std::mt19937 random(5);
    for (auto *values : {&image, &filter, &bias})
      for (float &value : *values)
        value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31F;
  }

  const Command &command() const { return program.entries.at("predict").commands[0]; }
  void prepare() { dnn->prepare({&command()}); }
  /// False where the library leaves it to the generated kernel.
  bool run() {
    std::vector<cuda::DeviceMemory> memory;
    std::vector<CUdeviceptr> addresses;
    for (const std::vector<float> *values : {&image, &filter, &bias, &result}) {
      memory.push_back(gpu.allocate(values->size() * sizeof(float), "a test"));
      gpu.upload(stream, memory.back(), values->data(), values->size() * sizeof(float));
      addresses.push_back(memory.back());
    }
    auto workspace = gpu.allocate(dnn->workspaceBytes() + 1, "a test");
    dnn->use(workspace);
    bool isDone = dnn->run(command(), addresses);
    gpu.download(stream, result.data(), addresses[3], result.size() * sizeof(float));
    gpu.synchronize(stream);
    return isDone;
  }
  void expectResult() const {
    for (int64_t p = 0; p < kPixels; ++p)
      for (int64_t f = 0; f < kFeatures; ++f) {
        double sum = bias[f];
        for (int64_t c = 0; c < kChannels; ++c)
          sum += double(image[p * kChannels + c]) * filter[f * kChannels + c];
        EXPECT_NEAR(result[p * kFeatures + f], std::max(sum, 0.0), 1e-6) << p << ", " << f;
      }
  }

  const Gpu &gpu;
  cuda::Stream stream;
  Program program;
  std::unique_ptr<Dnn> dnn;
  std::vector<float> image = std::vector<float>(kPixels * kChannels),
                     filter = std::vector<float>(kFeatures * kChannels),
                     bias = std::vector<float>(kFeatures),
                     result = std::vector<float>(kPixels * kFeatures);
};

/// With the simulator's library, or, if `folder` is empty, the first one that serves; returns what
/// was written to stderr.
std::string onConvolution(const std::function<void(Convolution &)> &body,
                          const SimSettings &settings = {},
                          const std::string &folder = MPC_TEST_SIM_FOLDER) {
  return onRuntimeGpu(
      [&](const Gpu &gpu) {
        Convolution c(gpu, folder);
        ASSERT_NE(c.dnn, nullptr);
        body(c);
      },
      settings);
}
void expectComputes(Convolution &c) {
  c.prepare();
  EXPECT_TRUE(c.run());
  c.expectResult();
}

/// A folder with copies of the simulator's libraries.
struct Libraries {
  explicit Libraries(const std::vector<std::string> &names) {
    char pattern[] = "/tmp/mpc-cudnn-XXXXXX";
    folder = mkdtemp(pattern);
    for (const std::string &name : names)
      fs::copy_file(fs::canonical(fs::path(MPC_TEST_SIM_FOLDER) / name), folder / name);
  }
  ~Libraries() { fs::remove_all(folder); }
  fs::path folder;
};
constexpr const char *kLibrary = "libcudnn.so.9", *kGraphPart = "libcudnn_graph.so.9";
} // namespace

// The first engines that are offered compute otherwise, one of them with a note of a later version.
TEST(CudaDnn, AnExactEngine) {
  onConvolution([](Convolution &c) {
    EXPECT_FALSE(c.dnn->executes(c.command()));
    c.prepare();
    EXPECT_TRUE(c.dnn->executes(c.command()));
    EXPECT_TRUE(c.run());
    c.expectResult();
  });
}

TEST(CudaDnn, ReluOfWhatIsNotFinite) {
  onConvolution([](Convolution &c) {
    c.prepare();
    c.bias[0] = kInfinity;
    c.bias[1] = -kInfinity;
    c.bias[2] = NAN;
    EXPECT_TRUE(c.run());
    for (int64_t p = 0; p < kPixels; ++p) {
      EXPECT_EQ(c.result[p * kFeatures], kInfinity);
      EXPECT_EQ(c.result[p * kFeatures + 1], 0);
      EXPECT_TRUE(std::isnan(c.result[p * kFeatures + 2]));
      EXPECT_TRUE(std::isfinite(c.result[p * kFeatures + 3]));
    }
  });
}

// Only what cuDNN says that it does not do is passed over in silence.
TEST(CudaDnn, PlansThatFail) {
  std::string said = onConvolution(
      [](Convolution &c) {
        c.prepare();
        c.prepare(); // it is not asked again
        EXPECT_FALSE(c.dnn->executes(c.command()));
      },
      {{"MPC_SIM_FAULT", "plan:1,plan:2"}});
  EXPECT_NE(said.find("note: cuDNN makes no plan for the convolution of 'conv1': "
                      "CUDNN_STATUS_INTERNAL_ERROR; "),
            std::string::npos)
      << said;
  onConvolution(
      [](Convolution &c) {
        expectError("'conv1': CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
                    [&] { c.prepare(); });
      },
      {{"MPC_SIM_FAULT", "plan-memory:1"}});
}

TEST(CudaDnn, WhatItDeclinesToRun) {
  std::string said = onConvolution(
      [](Convolution &c) {
        c.prepare();
        EXPECT_FALSE(c.run());
        c.prepare();
        EXPECT_FALSE(c.dnn->executes(c.command()));
        EXPECT_FALSE(c.run());
      },
      {{"MPC_SIM_FAULT", "dnn-unsupported:1"}});
  EXPECT_EQ(said, "");
}

// Of two libraries the first does not start. The second would call the first one's part, which is
// in the process by then: it has to come first. The loader knows the first one only.
TEST(CudaDnn, TheSecondLibrary) {
  Libraries first({kLibrary, kGraphPart}), second({kLibrary, kGraphPart});
  std::string folders = first.folder.string() + ":" + second.folder.string();
  SimSettings settings{
      {"MPC_CUDA_LIBS", folders.c_str()}, {"CUDA_HOME", ""}, {"PATH", first.folder.c_str()}};
  settings.emplace_back("MPC_SIM_FAULT", "dnn-start:1,dnn-start:2");
  std::string said =
      onRuntimeGpu([](const Gpu &gpu) { EXPECT_EQ(Convolution(gpu, "").dnn, nullptr); }, settings);
  EXPECT_NE(said.find("cannot be used (" + first.folder.string() +
                      "/libcudnn.so.9: it does not start: CUDNN_STATUS_NOT_INITIALIZED; " +
                      second.folder.string() +
                      "/libcudnn.so.9: another one's part libcudnn_graph.so.9 is in use): name the "
                      "folder of one that serves in MPC_CUDA_LIBS, which is tried first (python3 "),
            std::string::npos)
      << said;
  settings.back().second = "dnn-start:1"; // and then it does
  EXPECT_EQ(onConvolution(expectComputes, settings, ""), "");
}

// It is passed over, and the next one serves.
TEST(CudaDnn, ALibraryWithoutFunctions) {
  Libraries first({}), second({kLibrary, kGraphPart});
  fs::copy_file(fs::canonical(fs::path(MPC_TEST_SIM_FOLDER) / "libcublasLt.so.12"),
                first.folder / kLibrary);
  std::string folders = first.folder.string() + ":" + second.folder.string();
  EXPECT_EQ(onConvolution(expectComputes, {{"MPC_CUDA_LIBS", folders.c_str()}}, ""), "");
}

// The part beside the library, whatever the loader has.
TEST(CudaDnn, ARelativeFolder) {
  Libraries libraries({kLibrary, kGraphPart});
  std::string name = libraries.folder.filename();
  onRuntimeGpu(
      [&](const Gpu &gpu) {
        fs::current_path(libraries.folder.parent_path());
        Convolution c(gpu, "");
        ASSERT_NE(c.dnn, nullptr);
        constexpr int kIfLoaded = RTLD_NOW | RTLD_NOLOAD;
        void *part = dlopen(kGraphPart, kIfLoaded);
        EXPECT_NE(part, nullptr);
        EXPECT_EQ(part, dlopen((libraries.folder / kGraphPart).c_str(), kIfLoaded));
        expectComputes(c);
      },
      {{"MPC_CUDA_LIBS", name.c_str()}});
}

// It would end the process when it is called.
TEST(CudaDnn, WithoutItsGraphPart) {
  withoutLibraries({kLibrary, kGraphPart}, [] {
    Libraries alone({kLibrary});
    std::string folder = alone.folder;
    std::string said = onRuntimeGpu(
        [&](const Gpu &gpu) {
          EXPECT_EQ(Convolution(gpu, folder).dnn, nullptr);
          EXPECT_EQ(Convolution(gpu, "").dnn, nullptr);
        },
        {{"MPC_CUDA_LIBS", folder.c_str()}, {"CUDA_HOME", ""}, {"PATH", folder.c_str()}});
    EXPECT_NE(said.find(folder + "/libcudnn.so.9: its part libcudnn_graph.so.9 does not open: "),
              std::string::npos)
        << said;
  });
}
