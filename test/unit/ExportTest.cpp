//===- ExportTest.cpp - predict, grad, export and info -------------------------------===//

#include "TrainTestSupport.h"

using namespace mpc;
using namespace mpc::testing;

namespace {

class Export : public TrainerTest {
protected:
  std::vector<double> array(const std::string &name) {
    Array read = readNpy(folder / name);
    std::vector<double> values;
    for (int64_t i = 0; i < read.elements(); ++i)
      values.push_back(elementAsDouble(read, i));
    return values;
  }
  using Doubles = std::vector<double>;
};

} // namespace

TEST_F(Export, PredictsAnyNumberOfSamples) {
  for (int64_t samples : {1, 4, 10}) {
    std::vector<float> x;
    Doubles sums;
    for (int64_t i = 0; i < samples; ++i) {
      x.insert(x.end(), {static_cast<float>(i), 1, 2});
      sums.push_back(static_cast<double>(i) + 3);
    }
    writeFloats("x.npy", {samples, 3}, x);
    ASSERT_EQ(run({"predict", "--input", "x=@x.npy", "-o", "@y.npy"}), 0) << err;
    EXPECT_EQ(array("y.npy"), sums);
    ASSERT_EQ(run({"predict", "--input", "x=@x.npy", "-o", "@y.npz"}), 0);
    EXPECT_EQ(array("y.npz:y"), sums);
  }
  EXPECT_EQ(run({"predict", "--input", "x=@x.npy", "-o", "@y.txt"}), 2);
  EXPECT_EQ(run({"predict", "--input", "x=@x.npy", "-o", "@none/y.npy"}), 1);
  EXPECT_EQ(run({"predict", "--input", "z=@x.npy", "-o", "@z.npy"}), 1);
  EXPECT_EQ(filesIn("").count("z.npy"), 0u);
}

TEST_F(Export, OutputsWithRowsPerSampleOrAnotherAxis) {
  auto &y = program.tensors[static_cast<size_t>(program.find(Role::output))];
  program.batch_axis.erase("y");
  writeData(8);
  y.shape = {8}; // two rows per sample (the fake fills only half)
  ASSERT_EQ(run({"predict", "--input", "x=@x.npy", "-o", "@y.npy"}), 0);
  EXPECT_EQ(readNpy(folder / "y.npy").shape, (std::vector<int64_t>{16}));
  y.shape = {1, 4};
  program.batch_axis["y"] = 1;
  ASSERT_EQ(run({"predict", "--input", "x=@x.npy", "-o", "@z.npy"}), 0);
  EXPECT_EQ(readNpy(folder / "z.npy").shape, (std::vector<int64_t>{1, 8}));
  y.shape = {5};
  program.batch_axis.erase("y");
  EXPECT_EQ(run({"predict", "--input", "x=@x.npy", "-o", "@w.npy"}), 1);
  EXPECT_CONTAINS(err, "belongs to no single sample");
  program.output_samples["y"] = {OutputSamples::kNone, 1}; // exact for a part of a batch, too
  EXPECT_EQ(run({"predict", "--input", "x=@x.npy", "-o", "@w.npy"}), 1);
  EXPECT_CONTAINS(err, "at most 4 samples");
}

TEST_F(Export, GradWritesUnscaledGradients) {
  useProgram({.scaleMode = "dynamic", .precision = "fp16"});
  writeFloats("x.npy", {4, 3}, {1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0});
  writeFloats("t.npy", {4}, {0, 0, 0, 0});
  // loss = mean (W0 - 0)² = 1, gradient 2 W0 = 2; finite from scale 1024 down
  prepare = [](FakeDevice &device) {
    device.onRun = [&device](const std::string &) {
      device.overflow = *device.f(Role::loss_scale) > 1024;
    };
  };
  ASSERT_EQ(run({"grad", "--input", "x=@x.npy", "--labels", "@t.npy", "-o", "@g.npz"}), 0) << err;
  EXPECT_EQ(array("g.npz:loss"), (Doubles{1}));
  EXPECT_EQ(array("g.npz:loss_scale"), (Doubles{1024}));
  EXPECT_EQ(array("g.npz:W"), (Doubles{2, 0, 0}));
  EXPECT_EQ(weights, (std::vector<float>{1, 1, 1}));
  prepare = [](FakeDevice &device) { device.overflow = true; };
  EXPECT_EQ(run({"grad", "--input", "x=@x.npy", "--labels", "@t.npy", "-o", "@h.npz"}), 1);
  EXPECT_CONTAINS(err, "'W' is not finite at loss scale 1");
  EXPECT_EQ(filesIn("").count("h.npz"), 0u);
}

TEST_F(Export, FillsTheHolesOfTheTemplate) {
  std::string bytes = "head....________tail";
  float initial[] = {1, 2, 3};
  bytes.append(reinterpret_cast<const char *>(initial), sizeof initial);
  MpcProgram raw{};
  raw.data = reinterpret_cast<const unsigned char *>(bytes.data());
  program.raw = &raw;
  auto parameter = static_cast<size_t>(program.find(Role::parameter));
  auto statistic = static_cast<size_t>(program.find(Role::statistic));
  program.tensors[parameter].shape = program.tensors[statistic].shape = {1};
  program.tensors[parameter].initial = {20, 4};
  program.tensors[statistic].initial = {24, 4};
  program.export_template = {0, 20};
  program.export_holes = {{8, 8, ElementType::f64, static_cast<uint32_t>(statistic)},
                          {4, 4, ElementType::f32, static_cast<uint32_t>(parameter)}};
  ASSERT_EQ(run({"export", "-o", "@m.onnx"}), 0) << err;
  std::string written = readBytes(folder / "m.onnx");
  ASSERT_EQ(written.size(), 20u);
  float w;
  double mean;
  memcpy(&w, written.data() + 4, 4);
  memcpy(&mean, written.data() + 8, 8);
  EXPECT_EQ(w, 1);
  EXPECT_EQ(mean, 2);
  EXPECT_EQ(written.substr(0, 4) + written.substr(16), "headtail");
  program.tensors[parameter].initial = {};
  EXPECT_EQ(run({"export", "-o", "@n.onnx"}), 1);
  EXPECT_CONTAINS(err, "carries no weights");
}

TEST_F(Export, InfoNamesInputsAndParameters) {
  program.notes = {"a note"};
  ASSERT_EQ(run({"info"}), 0);
  for (const char *part : {"[samples, 3]", "running_mean", "a note", "fp32", "batch       4"})
    EXPECT_CONTAINS(out, part);
}
