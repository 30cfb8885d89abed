//===- CudaTuningTest.cpp - timed choices on the simulated libraries ------------------------===//
//
// A product or a convolution whose generated kernel is one that does nothing. MPC_SIM_TIMES says
// how long each way takes by the simulated clock, so that a time tells which one runs.
//
//===----------------------------------------------------------------------------------------===//

#include "CudaTestSupport.h"
#include "runtime/cuda/Blas.h"
#include "runtime/cuda/Dnn.h"
#include "runtime/cuda/Tuning.h"
#include <algorithm>
#include <fstream>
#include <thread>

using namespace mpc;
using namespace mpc::test;
using cuda::CommandLibrary;
using cuda::Gpu;
using cuda::Tuning;

namespace {
/// Of f32, [8, 1024] · [1024, 8]: deep, so that cuBLASLt offers to split it.
Command product() {
  Command command;
  command.kind = CommandKind::matmul;
  command.node = "fc";
  command.lhs.shape = {8, 1024};
  command.rhs.shape = {1024, 8};
  command.result.shape = {8, 8};
  command.result.buffer.region = Region::arena;
  return command;
}

Command convolution(int64_t features = 8) {
  Command command;
  command.kind = CommandKind::conv;
  command.node = "conv" + std::to_string(features);
  command.lhs.shape = {1, 4, 4, 8};
  command.rhs.shape = {features, 8, 3, 3};
  command.result.shape = {1, 4, 4, features};
  command.channels_last = true;
  command.strides = command.dilations = {1, 1};
  command.pads = {1, 1, 1, 1};
  command.result.buffer.region = Region::arena;
  return command;
}

/// A program of these commands, the library for them, and what tunes it.
struct Tuned {
  Tuned(const Gpu &gpu, const std::vector<Command> &commands)
      : gpu(gpu), stream(gpu.stream()), module(gpu.load(readImage().data())),
        kernel(gpu.function(module, "nothing")), tuning(gpu, stream) {
    gpu.load(kernel);
    program.entries["predict"].commands = commands;
    for (const Command &command : program.entries["predict"].commands) {
      all.push_back(&command);
      for (const Operand *operand : {&command.lhs, &command.rhs, &command.result}) {
        int64_t bytes = 4;
        for (int64_t extent : operand->shape)
          bytes *= extent;
        memory.push_back(gpu.allocate(static_cast<uint64_t>(bytes), "a test"));
        gpu.clear(stream, memory.back(), static_cast<size_t>(bytes));
      }
    }
    if (commands[0].kind == CommandKind::matmul)
      library = cuda::Blas::open(gpu, stream, program, MPC_TEST_SIM_FOLDER);
    else
      library = cuda::Dnn::open(gpu, stream, program, MPC_TEST_SIM_FOLDER);
  }

  void issue(const Command &command) {
    ++issued;
    auto first = static_cast<size_t>(&command - all[0]) * 3;
    if (!library->run(command, {memory[first], memory[first + 1], memory[first + 2]}))
      gpu.launch(stream, kernel, 1, 32, nullptr);
  }
  /// As before an entry point is recorded.
  void prepare() {
    tuning.prepare(*library, all);
    tuning.time([&](const Command &command) { issue(command); });
    workspace = gpu.allocate(library->workspaceBytes() + 1, "a test");
    library->use(workspace);
  }
  void tune() {
    tuning.enable();
    prepare();
  }
  /// With what an earlier run has found.
  void prepareWith(const TunedChoices &choices, bool isOn = false) {
    tuning.use(choices);
    isOn ? tune() : prepare();
  }
  /// In microseconds, of a command as it runs now.
  double time(size_t index = 0) {
    return 1e3 * cuda::leastTime(gpu, stream, [&] { issue(*all[index]); });
  }
  TunedChoices choices() const {
    TunedChoices found;
    tuning.addTo(found);
    return found;
  }
  /// The only one that there is.
  std::string choice() const {
    TunedChoices found = choices();
    EXPECT_EQ(found.size(), 1U);
    return found.empty() ? "" : found.begin()->second.begin()->second;
  }

  const Gpu &gpu;
  cuda::Stream stream;
  cuda::Module module;
  CUfunction kernel;
  Program program;
  std::vector<const Command *> all;
  std::vector<cuda::DeviceMemory> memory;
  cuda::DeviceMemory workspace;
  std::unique_ptr<CommandLibrary> library;
  Tuning tuning;
  int issued = 0;
};

std::string onTuned(const std::vector<Command> &commands, const std::function<void(Tuned &)> &body,
                    SimSettings settings, const char *times) {
  settings.emplace_back("MPC_SIM_TIMES", times);
  return onRuntimeGpu(
      [&](const Gpu &gpu) {
        Tuned tuned(gpu, commands);
        ASSERT_NE(tuned.library, nullptr);
        body(tuned);
      },
      settings);
}

/// The heuristic's order is split, plain, halves; before them comes what is not exact.
constexpr const char *kProductTimes =
    "cublasLt-tf32:1,cublasLt-split:50,cublasLt-plain:40,cublasLt-halves:30,nothing:60";
constexpr const char *kOtherTimes =
    "cublasLt-tf32:1,cublasLt-split:50,cublasLt-plain:20,cublasLt-halves:30,nothing:10";
/// generic, then the same engine with a knob turned.
constexpr const char *kConvolutionTimes =
    "cudnn-tf32:1,cudnn-bfloat16:1,cudnn-later:1,cudnn-winograd:1,cudnn-unordered:1,"
    "cudnn-generic:50,cudnn-generic-32:40,nothing:60";

/// By another run of the same command, without timing anything.
void expectFoundAgain(const Tuned &t, const char *text, float time) {
  Tuned again(t.gpu, {*t.all[0]});
  again.prepareWith(t.choices());
  EXPECT_EQ(again.issued, 0);
  EXPECT_EQ(again.library->executes(*again.all[0]), t.library->executes(*t.all[0]));
  EXPECT_EQ(again.tuning.text(), text);
  EXPECT_FLOAT_EQ(again.time(), time);
}

/// What tuning one product finds.
TunedChoices tunedProduct(const char *times, const SimSettings &settings = {}) {
  // The test's process is another one: the choices come back through its memory.
  char pattern[] = "/tmp/mpc-tuned-XXXXXX";
  std::string folder = mkdtemp(pattern), file = folder + "/choice";
  onTuned(
      {product()},
      [&](Tuned &t) {
        t.tune();
        for (const auto &[where, ways] : t.choices())
          std::ofstream(file) << where.gpu << '\n'
                              << where.driver << ' ' << where.version << '\n'
                              << ways.begin()->first << '\n'
                              << ways.begin()->second << '\n';
      },
      settings, times);
  std::ifstream in(file);
  TunedFor where;
  std::string key, way;
  std::getline(in, where.gpu);
  in >> where.driver >> where.version;
  in.ignore();
  std::getline(in, key);
  std::getline(in, way);
  where.library = "cuBLASLt";
  std::filesystem::remove_all(folder);
  return {{where, {{key, way}}}};
}
} // namespace

TEST(CudaTuning, TimesByTheSimulatedClock) {
  onTuned(
      {product()},
      [](Tuned &t) {
        EXPECT_FLOAT_EQ(t.time(), 60); // nothing is prepared: the kernel
        EXPECT_EQ(t.issued, 2 + 2);    // 100 microseconds take two
        t.prepare();
        EXPECT_FLOAT_EQ(t.time(), 50); // the heuristic's first exact one
        EXPECT_TRUE(t.choices().empty());
        EXPECT_EQ(t.tuning.text(), "");
      },
      {}, kProductTimes);
}

TEST(CudaTuning, TheFastestProduct) {
  onTuned(
      {product()},
      [](Tuned &t) {
        t.tune();
        EXPECT_TRUE(t.library->executes(*t.all[0]));
        EXPECT_FLOAT_EQ(t.time(), 30);
        EXPECT_EQ(t.choice().size(), 128U);
        std::string text = t.tuning.text();
        EXPECT_EQ(text.substr(0, 19), "tuned 1 product in ");
        EXPECT_NE(text.find(" s: 1 of them not by the first choice"), std::string::npos) << text;
        // It is asked and timed once.
        int issued = t.issued;
        t.prepare();
        EXPECT_EQ(t.issued, issued);
      },
      {}, kProductTimes);
}

TEST(CudaTuning, TheFastestConvolution) {
  onTuned(
      {convolution()},
      [](Tuned &t) {
        t.tune();
        EXPECT_FLOAT_EQ(t.time(), 40);
        EXPECT_EQ(t.choice(), "engine 0, knobs 2=32");
        expectFoundAgain(t, "1 convolution as tuned before", 40); // by engine and knobs
      },
      {}, kConvolutionTimes);
}

// An attention is none of the convolutions, though the same library executes them.
TEST(CudaTuning, WorkIsNamed) {
  Command attention;
  attention.kind = CommandKind::attention;
  EXPECT_STREQ(cuda::workName(attention), "attention operation");
  attention.kind = CommandKind::attention_grad;
  EXPECT_STREQ(cuda::workName(attention), "attention operation");
  EXPECT_STREQ(cuda::workName(convolution()), "convolution");
  EXPECT_STREQ(cuda::workName(product()), "product");
}

TEST(CudaTuning, TheFirstWayWinsATie) {
  onTuned(
      {product()},
      [](Tuned &t) {
        t.tune();
        EXPECT_TRUE(t.library->executes(*t.all[0]));
        EXPECT_NE(t.tuning.text().find(": 0 of them"), std::string::npos) << t.tuning.text();
        EXPECT_GT(t.library->workspaceBytes(), 0U); // the split one
      },
      {}, "nothing:100");
}

TEST(CudaTuning, TheGeneratedKernel) {
  onTuned(
      {product()},
      [](Tuned &t) {
        t.tune();
        EXPECT_FALSE(t.library->executes(*t.all[0]));
        EXPECT_EQ(t.library->workspaceBytes(), 0U);
        EXPECT_FLOAT_EQ(t.time(), 10);
        EXPECT_EQ(t.choice(), cuda::kGenerated);
        EXPECT_NE(t.tuning.text().find("1 by generated kernels"), std::string::npos);
        expectFoundAgain(t, "1 product as tuned before", 10);
      },
      {}, kOtherTimes);
}

// Whatever would be faster now.
TEST(CudaTuning, AChoiceIsUsedAgain) {
  TunedChoices choices = tunedProduct(kProductTimes);
  for (bool isOn : {false, true}) {
    std::string said = onTuned(
        {product()},
        [&](Tuned &t) {
          t.prepareWith(choices, isOn);
          EXPECT_EQ(t.issued, 0);
          EXPECT_FLOAT_EQ(t.time(), 30);
          EXPECT_EQ(t.choices(), choices);
          EXPECT_EQ(t.tuning.text(), "1 product as tuned before");
        },
        {}, kOtherTimes);
    EXPECT_EQ(said, "");
  }
}

TEST(CudaTuning, AChoiceIsForOneGpuDriverAndLibrary) {
  TunedChoices choices = tunedProduct(kProductTimes);
  const SimSettings others[] = {{{"MPC_SIM_NAME", "another GPU"}},
                                {{"MPC_SIM_DRIVER", "12080"}},
                                {{"MPC_SIM_BLAS_VERSION", "120901"}}};
  for (const SimSettings &settings : others) {
    std::string said = onTuned(
        {product()},
        [&](Tuned &t) {
          t.prepareWith(choices);
          EXPECT_FLOAT_EQ(t.time(), 50); // the first choice
          EXPECT_EQ(t.choices(), choices);
          EXPECT_EQ(t.tuning.text(), "");
        },
        settings, kProductTimes);
    EXPECT_NE(said.find("note: the products of this checkpoint were tuned on simulated GPU with a "
                        "driver of CUDA 12.9 and cuBLASLt 12.9.0; on "),
              std::string::npos)
        << said;
    EXPECT_NE(said.find("each is executed by the first choice of cuBLASLt (train --tune"),
              std::string::npos)
        << said;
    said = onTuned(
        {product()},
        [&](Tuned &t) {
          t.prepareWith(choices, /*isOn=*/true);
          EXPECT_FLOAT_EQ(t.time(), 10);
          EXPECT_EQ(t.choices().size(), 2U); // the other one is kept
        },
        settings, kOtherTimes);
    EXPECT_NE(said.find(" they are timed anew\n"), std::string::npos) << said;
  }
}

TEST(CudaTuning, AChoiceThatIsNoLongerOffered) {
  TunedChoices choices = tunedProduct(kProductTimes);
  choices.begin()->second.begin()->second[100] ^= 1;
  for (bool isOn : {false, true}) {
    std::string said = onTuned(
        {product()},
        [&](Tuned &t) {
          t.prepareWith(choices, isOn);
          EXPECT_FLOAT_EQ(t.time(), isOn ? 30 : 50);
        },
        {}, kProductTimes);
    EXPECT_NE(said.find("note: cuBLASLt 12.9 does not offer what was found fastest for the product "
                        "of 'fc': "),
              std::string::npos)
        << said;
  }
}

// It may still be read. An equal product that writes something else is timed for both.
TEST(CudaTuning, StatesAreNotWritten) {
  Command state = product();
  state.result.buffer.region = Region::states;
  onTuned(
      {state},
      [](Tuned &t) {
        t.tune();
        EXPECT_EQ(t.issued, 0);
        EXPECT_TRUE(t.choices().empty());
        EXPECT_FLOAT_EQ(t.time(), 50);
      },
      {}, kProductTimes);
  onTuned(
      {state, product()},
      [](Tuned &t) {
        t.tune();
        for (size_t i : {0, 1})
          EXPECT_FLOAT_EQ(t.time(i), 30);
        EXPECT_EQ(t.tuning.text().substr(0, 15), "tuned 1 product");
      },
      {}, kProductTimes);
}

// Another alignment is another product.
TEST(CudaTuning, EqualProducts) {
  Command other = product();
  other.lhs.buffer.offset = 64;
  for (bool isOther : {false, true})
    onTuned(
        {product(), isOther ? other : product()},
        [&](Tuned &t) {
          t.tune();
          EXPECT_EQ(t.choices().begin()->second.size(), isOther ? 2U : 1U);
          EXPECT_EQ(t.tuning.text().substr(0, 15), isOther ? "tuned 2 product" : "tuned 1 product");
          for (size_t i : {0, 1})
            EXPECT_FLOAT_EQ(t.time(i), 30);
        },
        {}, kProductTimes);
}

// What is declined is no choice; all else that fails ends the run.
TEST(CudaTuning, Failures) {
  std::string said = onTuned(
      {product()},
      [&](Tuned &t) {
        t.tune();
        EXPECT_FLOAT_EQ(t.time(), 30);
      },
      {{"MPC_SIM_FAULT", "blas-unsupported:1"}}, kProductTimes);
  EXPECT_EQ(said, "");
  onTuned(
      {product()},
      [&](Tuned &t) {
        expectError("the matrix product of 'fc' by cuBLASLt 12.9 failed: "
                    "CUBLAS_STATUS_EXECUTION_FAILED",
                    [&] { t.tune(); });
      },
      {{"MPC_SIM_FAULT", "blas:4"}}, kProductTimes);
  onTuned(
      {convolution()},
      [&](Tuned &t) {
        expectError("the convolution of 'conv8' by cuDNN 9.10 failed: "
                    "CUDNN_STATUS_EXECUTION_FAILED",
                    [&] { t.tune(); });
      },
      {{"MPC_SIM_FAULT", "dnn:3"}}, kConvolutionTimes);
  onTuned( // three operands before
      {product()},
      [&](Tuned &t) {
        expectError("not enough GPU memory: the workspace that --tune times NVIDIA's libraries "
                    "with needs ",
                    [&] { t.tune(); });
      },
      {{"MPC_SIM_FAULT", "alloc:4"}}, kProductTimes);
}

//===- Plans by several threads -----------------------------------------------------------===//

namespace {
std::vector<Command> convolutions() {
  std::vector<Command> commands;
  for (int64_t features = 1; features <= 6; ++features)
    commands.push_back(convolution(features));
  return commands;
}

/// More calls of a kind than plans are tried.
std::string faultsOf(const std::string &kind) {
  std::string faults;
  for (int call = 1; call <= 20; ++call)
    faults += (call == 1 ? "" : ",") + kind + ":" + std::to_string(call);
  return faults;
}
} // namespace

// Each with a handle of its own, of which it needs none where nothing is to be done.
TEST(CudaTuning, PlansAreMadeSideBySide) {
  char pattern[] = "/tmp/mpc-plans-XXXXXX";
  std::string folder = mkdtemp(pattern), trace = folder + "/trace";
  std::string said = onTuned(
      convolutions(),
      [&](Tuned &t) {
        t.prepare();
        for (size_t i = 0; i < t.all.size(); ++i) {
          EXPECT_TRUE(t.library->executes(*t.all[i]));
          EXPECT_FLOAT_EQ(t.time(i), 50);
        }
      },
      {{"MPC_SIM_TRACE", trace.c_str()}, {"MPC_SIM_PLAN_MILLISECONDS", "50"}}, kConvolutionTimes);
  EXPECT_EQ(said, "");
  std::ifstream in(trace);
  int begun = 0, most = 0, all = 0;
  for (std::string line; std::getline(in, line);) {
    all += line == "a plan begins";
    begun += line == "a plan begins" ? 1 : line == "a plan ends" ? -1 : 0;
    most = std::max(most, begun);
  }
  EXPECT_EQ(all, 6);
  EXPECT_EQ(begun, 0);
  auto threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  EXPECT_GE(most, std::min(threads, 2));
  EXPECT_LE(most, threads);
  std::filesystem::remove_all(folder);
}

// Of failures in several threads the first convolution's is told, and the run ends with all threads
// done.
TEST(CudaTuning, PlansThatFailSideBySide) {
  SimSettings settings{{"MPC_SIM_PLAN_MILLISECONDS", "10"}};
  std::string faults = faultsOf("plan-memory");
  settings.emplace_back("MPC_SIM_FAULT", faults.c_str());
  onTuned(
      convolutions(),
      [&](Tuned &t) {
        expectError("'conv1': CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
                    [&] { t.prepare(); });
      },
      settings, kConvolutionTimes);
  faults = faultsOf("plan");
  settings.back().second = faults.c_str();
  std::string said = onTuned(
      convolutions(),
      [&](Tuned &t) {
        t.prepare();
        for (const Command *command : t.all)
          EXPECT_FALSE(t.library->executes(*command));
      },
      settings, kConvolutionTimes);
  EXPECT_EQ(said.find("note: "), said.rfind("note: ")) << said;
  EXPECT_NE(said.find("the convolution of 'conv1': CUDNN_STATUS_INTERNAL_ERROR;"),
            std::string::npos)
      << said;
}

// Where a thread gets no handle the others do its work.
TEST(CudaTuning, HandlesThatCannotBeMade) {
  std::string said = onTuned(
      convolutions(),
      [&](Tuned &t) {
        t.prepare();
        for (const Command *command : t.all)
          EXPECT_TRUE(t.library->executes(*command));
      },
      {{"MPC_SIM_FAULT", "dnn-start:2,dnn-start:3,dnn-start:4,dnn-start:5,dnn-start:6"}},
      kConvolutionTimes);
  EXPECT_EQ(said, "");
}
