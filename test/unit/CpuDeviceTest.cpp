//===- CpuDeviceTest.cpp - memory and execution of a program on the CPU ------------===//

#include "runtime/core/Device.h"
#include "runtime/core/Error.h"
#include "runtime/cpu/CheckCpu.h"
#include <atomic>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace mpc;
using nlohmann::json;

namespace {

std::atomic<int> gCalls;

// to[i] = 2 · from[i], eight floats per position.
void doubled(int64_t begin, int64_t end, void *const *buffers) {
  ++gCalls;
  auto *from = static_cast<const float *>(buffers[0]);
  auto *to = static_cast<float *>(buffers[1]);
  for (int64_t i = begin * 8; i < end * 8; ++i)
    to[i] = 2 * from[i];
}

struct Data {
  float weight[64]; // [8, 8]
  uint16_t half[8]; // f16 initial values of an f32 tensor
  float statistic[8];
  int64_t constant[2];
} gData;

const MpcKernel kKernels[] = {doubled};

/// y = 2x; z = y · wᵀ; `apply` doubles the weight in place.
class CpuDevice : public testing::Test {
protected:
  CpuDevice() {
    for (int i = 0; i < 64; ++i)
      gData.weight[i] = float(i % 9 - 4);
    for (int i = 0; i < 8; ++i) {
      gData.half[i] = uint16_t(0x3c00 + i); // 1 + i·2^-10
      gData.statistic[i] = float(i);
    }
    gData.constant[0] = 5;
    gData.constant[1] = -6;
    table = json::parse(R"({"abi": 6, "precision": "fp32", "target": "cpu",
      "regions": {"states": 1024, "inputs": 1024, "arena": 1024, "accumulators": 4096, "constants": 64, "outputs": 512},
      "tensors": [{"name": "w", "role": "parameter", "type": "f32", "shape": [8, 8], "buffer": ["states", 0]},
                  {"name": "b", "role": "parameter", "type": "f32", "shape": [8], "buffer": ["states", 256], "initial_type": "f16"},
                  {"name": "s", "role": "statistic", "type": "f64", "shape": [8], "buffer": ["states", 320], "initial_type": "f32"},
                  {"name": "s", "role": "working_statistic", "type": "f64", "shape": [8], "buffer": ["states", 384]},
                  {"name": "c", "role": "constant", "type": "i64", "shape": [2], "buffer": ["constants", 0]},
                  {"name": "x", "role": "input", "type": "f32", "shape": [8, 8], "buffer": ["inputs", 0]},
                  {"name": "z", "role": "output", "type": "f32", "shape": [8, 8], "buffer": ["outputs", 0]},
                  {"name": "w", "role": "accumulator", "type": "f32", "shape": [8, 8], "buffer": ["accumulators", 0]}],
      "entries": {"predict": {"commands": [
          {"kind": "kernel", "function": 0, "extent": 8, "grain": 1, "buffers": [["inputs", 0], ["arena", 0]]},
          {"kind": "matmul", "node": "fc", "lhs": {"buffer": ["arena", 0], "type": "f32", "shape": [8, 8]},
           "rhs": {"buffer": ["states", 0], "type": "f32", "shape": [8, 8], "is_weight": true},
           "result": {"buffer": ["outputs", 0], "type": "f32", "shape": [8, 8]}, "transpose_rhs": true}]},
        "apply": {"commands": [{"kind": "kernel", "function": 0, "extent": 8, "grain": 8, "buffers": [["states", 0], ["states", 0]]}]},
        "empty": {"commands": [{"kind": "kernel", "function": 0, "extent": 0, "buffers": [["arena", 0], ["arena", 0]]}]}}})");
    auto initial = [&](int tensor, const void *start, size_t bytes) {
      table["tensors"][tensor]["initial"] = {
          static_cast<const char *>(start) - reinterpret_cast<const char *>(&gData), bytes};
    };
    initial(0, gData.weight, sizeof gData.weight);
    initial(1, gData.half, sizeof gData.half);
    initial(2, gData.statistic, sizeof gData.statistic);
    initial(4, gData.constant, sizeof gData.constant);
  }

  void make(int threads = 2) {
    text = table.dump();
    raw = {MPC_PROGRAM_ABI, 1,        text.data(),
           text.size(),     kKernels, reinterpret_cast<const unsigned char *>(&gData),
           sizeof gData};
    program = Program::load(raw);
    device = makeCpuDevice(program, threads);
  }
  template <typename T> std::vector<T> read(int tensor) {
    std::vector<T> values(program.tensors[tensor].bytes() / sizeof(T));
    device->read(program.tensors[tensor], values.data());
    return values;
  }
  // z[0, j] for x = [1, 0, 0 …]: twice the weight's column 0.
  void expectFirstRow(double factor) {
    std::vector<float> x(64);
    x[0] = 1;
    device->write(program.tensors[5], x.data());
    device->run("predict");
    std::vector<float> z = read<float>(6);
    for (int j = 0; j < 8; ++j)
      EXPECT_EQ(float(2 * factor * gData.weight[j * 8]), z[j]);
  }

  json table;
  std::string text;
  MpcProgram raw;
  Program program;
  std::unique_ptr<Device> device;
};

TEST_F(CpuDevice, InitialValuesAreConverted) {
  make();
  EXPECT_EQ(gData.weight[5], read<float>(0)[5]);
  EXPECT_EQ(1 + 3 * 0x1p-10f, read<float>(1)[3]);
  EXPECT_EQ(7.0, read<double>(2)[7]);
  EXPECT_EQ(7.0, read<double>(3)[7]); // the working copy starts as the statistic
  EXPECT_EQ(-6, read<int64_t>(4)[1]);
  EXPECT_EQ(0.0f, read<float>(6)[0]);
}

TEST_F(CpuDevice, RunsKernelsAndProducts) {
  for (int threads = 1; threads <= 3; ++threads) {
    make(threads);
    expectFirstRow(1);
  }
}

TEST_F(CpuDevice, KernelsAreSplitByGrain) {
  make(2);
  gCalls = 0;
  device->run("apply"); // grain 8 of extent 8: one call
  EXPECT_EQ(1, gCalls);
  device->run("empty");
  EXPECT_EQ(1, gCalls);
}

// MPC_PROFILE names a file: every command that ran has a line with its name, runs are counted.
TEST_F(CpuDevice, WritesAProfile) {
  std::string path = testing::TempDir() + "mpc_profile.txt";
  table["entries"]["predict"]["commands"][0]["name"] = "doubled_0";
  setenv("MPC_PROFILE", path.c_str(), 1);
  make();
  unsetenv("MPC_PROFILE");
  expectFirstRow(1);
  device->run("predict");
  device.reset();
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(std::string::npos, text.find("predict: 2 commands, 2 runs")) << text;
  EXPECT_NE(std::string::npos, text.find("#0 kernel doubled_0")) << text;
  EXPECT_NE(std::string::npos, text.find("#1 matmul f32 8x8 · 8x8ᵀ")) << text;
  EXPECT_EQ(std::string::npos, text.find("apply")) << text;
}

// A packed or reordered weight follows the optimizer, and weights that are loaded.
TEST_F(CpuDevice, WeightsChange) {
  make();
  expectFirstRow(1);
  device->run("apply");
  expectFirstRow(2);
  device->write(program.tensors[0], gData.weight);
  device->weightsChanged();
  expectFirstRow(1);
}

// Half copies exist as soon as the device does: `refresh` runs at its start and after a load.
TEST_F(CpuDevice, RefreshRunsAtStartAndAfterALoad) {
  table["entries"]["refresh"] = table["entries"]["apply"];
  gCalls = 0;
  make();
  EXPECT_EQ(1, gCalls);
  EXPECT_EQ(2 * gData.weight[5], read<float>(0)[5]);
  device->weightsChanged();
  EXPECT_EQ(2, gCalls);
}

TEST_F(CpuDevice, AccumulatorsTakeMemoryOnlyWhenUsed) {
  make();
  uint64_t before = device->memoryBytes();
  device->clear(Region::accumulators);
  EXPECT_GE(device->memoryBytes(), before + 4096);
  EXPECT_EQ(0.0f, read<float>(7)[3]);
}

TEST_F(CpuDevice, ReportsHowProductsAreExecuted) {
  make();
  auto lines = device->describeCommands("predict");
  ASSERT_EQ(1u, lines.size());
  EXPECT_NE(std::string::npos, lines[0].find("matmul fc f32: plain loops"));
  EXPECT_TRUE(device->describeCommands("nothing").empty());
  EXPECT_NE(std::string::npos, device->describe().find("2 threads"));
}

TEST_F(CpuDevice, OutOfMemoryIsAMessageWithNumbers) {
  table["regions"]["arena"] = int64_t(1) << 46;
  try {
    make();
    FAIL() << "64 TiB";
  } catch (const Error &e) {
    EXPECT_NE(std::string::npos, std::string(e.what()).find("64.0 TiB")) << e.what();
  }
}

TEST_F(CpuDevice, MissingEntryIsAnError) {
  make();
  EXPECT_THROW(device->run("train"), Error);
}

TEST_F(CpuDevice, MissingInstructionsAreNamed) {
  table["cpu"] = "future";
  table["build_facts"] = "LLVM 22; cpu-features: +avx2,+xop,+unknown";
  try {
    make();
    FAIL() << "no x86 CPU that has AVX-512 has XOP";
  } catch (const Error &e) {
    EXPECT_NE(std::string::npos, std::string(e.what()).find("xop"));
    EXPECT_EQ(std::string::npos, std::string(e.what()).find("unknown"));
  }
}

} // namespace
