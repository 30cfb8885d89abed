//===- TrainTest.cpp - the training loop ---------------------------------------------===//

#include "TrainTestSupport.h"
#include <csignal>

using namespace mpc;
using namespace mpc::testing;

namespace {
class Train : public TrainerTestOnBoth {};
INSTANTIATE_TEST_SUITE_P(On, Train, ::testing::Bool(), deviceName);
} // namespace

TEST_P(Train, WrongUsageIsExitCode2) {
  writeData(8);
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"learn"}), 2);
  EXPECT_EQ(run({"train", "--data", data, "--steps", "1"}), 2);
  EXPECT_CONTAINS(err, "--lr is required");
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1"}), 2);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "--epochs", "1"}), 2);
  EXPECT_EQ(run({"train", "--data", "csv:x", "--lr", "0.1", "--steps", "1"}), 2);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "x", "--steps", "1"}), 2);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "nan", "--steps", "1"}), 2);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "0"}), 2);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "--schedule", "step"}), 2);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "--beta1", "0.5"}), 2);
  EXPECT_CONTAINS(err, "optimizer is sgd");
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "--loss-scale-init", "8"}),
            2);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "--resume"}), 2);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "--no-decay", "("}), 2);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "--no-decay", "^V$"}), 2);
  EXPECT_CONTAINS(err, "'^V$' matches no parameter");
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "one", "two"}), 2);
  EXPECT_CONTAINS(err, "not expected: one two");
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_EQ(run({"--version"}), 0);
  EXPECT_EQ(run({"train", "--help"}), 0);
  EXPECT_CONTAINS(out, "--growth-interval");
  EXPECT_CONTAINS(out, "2000");
}

TEST_P(Train, BadDataIsExitCode1) {
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1"}), 1);
  EXPECT_CONTAINS(err, "x.npy");
  writeData(8);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "--out", "@x.npy"}), 1);
}

TEST_P(Train, EpochsAndStepsAndTheirMetrics) {
  writeData(10); // batches of 4, 4, 2
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--epochs", "2", "--metrics", "@m.jsonl"}),
            0);
  auto steps = metrics("m.jsonl", "step");
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(steps[0]["step"], 1);
  EXPECT_EQ(steps[2]["epoch"], 1);
  EXPECT_EQ(steps[3]["epoch"], 2);
  EXPECT_EQ(steps[5]["lr"], 0.1);
  EXPECT_EQ(steps[5]["skipped"], false);
  for (const char *key : {"loss", "grad_norm", "loss_scale", "step_ms", "samples_per_s"})
    EXPECT_TRUE(steps[0][key].is_number()) << key;
  auto end = metrics("m.jsonl", "end");
  ASSERT_EQ(end.size(), 1u);
  EXPECT_GT(end[0]["peak_memory_bytes"], 0);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "7", "--metrics", "@m.jsonl"}),
            0);
  EXPECT_EQ(metrics("m.jsonl", "step").size(), 7u);
}

// Each sample moves only its own weight: after one epoch W = t/2 and after two 3t/4, whatever the
// order, if every sample is seen once per epoch.
TEST_P(Train, AnEpochSeesEverySampleOnceInAnOrderOfItsOwn) {
  useProgram({.batch = 1, .features = 8});
  prepare = [](FakeDevice &device) {
    std::fill(device.f(Role::parameter), device.f(Role::parameter) + 8, 0.0f);
  };
  std::vector<float> x(64), t(8);
  for (size_t i = 0; i < 8; ++i) {
    x[9 * i] = 1;
    t[i] = static_cast<float>(i + 1);
  }
  writeFloats("x.npy", {8, 8}, x);
  writeFloats("t.npy", {8}, t);
  auto losses = [&](const std::string &seed) {
    EXPECT_EQ(run({"train", "--data", data, "--lr", "0.25", "--epochs", "2", "--seed", seed,
                   "--metrics", "@m.jsonl"}),
              0);
    for (size_t i = 0; i < 8; ++i)
      EXPECT_EQ(weights[i], t[i] * 0.75f);
    std::vector<double> result;
    for (const auto &line : metrics("m.jsonl", "step"))
      result.push_back(line["loss"]);
    return result;
  };
  std::vector<double> first = losses("5");
  EXPECT_EQ(first, losses("5"));
  EXPECT_NE(first, losses("6"));
  // The losses of the second epoch are a quarter of the first's, in another order.
  std::vector<double> second(first.begin() + 8, first.end());
  for (double &loss : second)
    loss *= 4;
  first.resize(8);
  EXPECT_NE(first, second);
}

// Micro-batches are weighted by their samples: 3, 3, 3, 1 are one batch of 10.
TEST_P(Train, AccumulationEqualsOneBigBatch) {
  useProgram({.batch = 10});
  writeData(10);
  ASSERT_EQ(run({"train", "--data", data, "--lr", "0.1", "--epochs", "1", "--no-shuffle"}), 0);
  std::vector<float> whole = weights;
  useProgram({.batch = 3});
  ASSERT_EQ(run({"train", "--data", data, "--lr", "0.1", "--epochs", "1", "--no-shuffle",
                 "--accumulate", "4", "--metrics", "@m.jsonl"}),
            0);
  EXPECT_EQ(metrics("m.jsonl", "step").size(), 1u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(weights[i], whole[i], 1e-6);
}

// 2 × 4 samples make a step, the 2 left over make one of their own.
TEST_P(Train, MicroBatchesLeftAtTheEndMakeAStep) {
  useProgram({.batch = 8});
  writeData(10);
  ASSERT_EQ(run({"train", "--data", data, "--lr", "0.1", "--epochs", "1", "--no-shuffle"}), 0);
  std::vector<float> whole = weights;
  useProgram({.batch = 2});
  ASSERT_EQ(run({"train", "--data", data, "--lr", "0.1", "--epochs", "1", "--no-shuffle",
                 "--accumulate", "4"}),
            0);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(weights[i], whole[i], 1e-6);
}

TEST_P(Train, ATailThatCannotRunIsRefusedOrLeftOut) {
  writeData(10);
  program.tail_refused_why = "node 'mix' mixes samples";
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--epochs", "1"}), 1);
  EXPECT_CONTAINS(err, "node 'mix' mixes samples");
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--epochs", "1", "--drop-tail",
                 "--metrics", "@m.jsonl"}),
            0);
  EXPECT_EQ(metrics("m.jsonl", "step").size(), 2u);
}

TEST_P(Train, SkippedStepsCountButDoNotAdvanceTheSchedule) {
  useProgram({.scaleMode = "dynamic", .precision = "fp16"});
  writeData(8);
  int calls = 0;
  prepare = [&](FakeDevice &device) {
    device.onRun = [&](const std::string &entry) {
      if (entry == "gradients")
        device.overflow = ++calls <= 3;
    };
  };
  ASSERT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "6", "--schedule", "step",
                 "--step-size", "1", "--gamma", "0.5", "--metrics", "@m.jsonl"}),
            0);
  auto steps = metrics("m.jsonl", "step");
  ASSERT_EQ(steps.size(), 6u);
  std::vector<double> scales, rates;
  for (const auto &line : steps) {
    scales.push_back(line["loss_scale"]);
    rates.push_back(line["lr"]);
  }
  EXPECT_EQ(scales, (std::vector<double>{65536, 32768, 16384, 8192, 8192, 8192}));
  EXPECT_EQ(rates, (std::vector<double>{0.1, 0.1, 0.1, 0.1, 0.05, 0.025}));
  EXPECT_EQ(steps[2]["skipped"], true);
  EXPECT_EQ(steps[3]["skipped"], false);
  EXPECT_EQ(metrics("m.jsonl", "end")[0]["applied_steps"], 3);
}

TEST_P(Train, GivesUpAfterEightOverflowsAtScaleOne) {
  useProgram({.scaleMode = "dynamic", .precision = "fp16"});
  writeData(8);
  prepare = [](FakeDevice &device) { device.overflow = true; };
  EXPECT_EQ(
      run({"train", "--data", data, "--lr", "0.1", "--steps", "100", "--metrics", "@m.jsonl"}), 1);
  EXPECT_CONTAINS(err, "the gradient of 'W'");
  EXPECT_EQ(metrics("m.jsonl", "step").size(), 24u); // 16 halvings, then 8 at scale 1
  EXPECT_TRUE(metrics("m.jsonl", "step")[0]["grad_norm"].is_null());
  useProgram({});
  EXPECT_EQ(
      run({"train", "--data", data, "--lr", "0.1", "--steps", "100", "--metrics", "@m.jsonl"}), 1);
  EXPECT_EQ(metrics("m.jsonl", "step").size(), 8u);
}

TEST_P(Train, ValidatesEachEpochAndKeepsTheBest) {
  writeData(8);
  ASSERT_EQ(run({"train", "--data", data, "--valid", data, "--lr", "0.1", "--epochs", "3", "--out",
                 "@run", "--metrics", "@m.jsonl"}),
            0);
  auto evaluations = metrics("m.jsonl", "eval");
  ASSERT_EQ(evaluations.size(), 3u);
  EXPECT_LT(evaluations[2]["loss"], evaluations[0]["loss"]);
  EXPECT_EQ(filesIn("run").count("best.safetensors"), 1u);
  CheckpointFile best(folder / "run/best.safetensors");
  EXPECT_EQ(best.state().best_loss, evaluations[2]["loss"].get<double>());
  // A run of steps that ends inside an epoch is validated at its end.
  ASSERT_EQ(run({"train", "--data", data, "--valid", data, "--lr", "0.1", "--steps", "3",
                 "--metrics", "@m.jsonl"}),
            0);
  EXPECT_EQ(metrics("m.jsonl", "eval").size(), 2u);
}

TEST_P(Train, EvalWeighsSamplesAndCountsClasses) {
  useProgram({.batch = 4, .classes = 3});
  std::vector<float> x;
  std::vector<int64_t> t = {0, 1, 2, 0, 2};
  for (float sum : {0.0f, 1.0f, 2.0f, 1.0f, 2.0f}) // y = x[0] + x[1] + x[2]
    x.insert(x.end(), {sum, 0, 0});
  writeFloats("x.npy", {5, 3}, x);
  NpyWriter writer(folder / "t.npy", {{"", ElementType::i64, {5}}});
  writer.append(0, t.data(), 5);
  writer.commit();
  ASSERT_EQ(run({"eval", "--data", data}), 0);
  EXPECT_EQ(out, "loss 0.2, accuracy 0.8 (5 samples, the program's own weights)\n");
}

TEST_P(Train, WeightDecayExceptWhereNot) {
  writeFloats("x.npy", {4, 3}, std::vector<float>(12, 0));
  writeFloats("t.npy", {4}, std::vector<float>(4, 0));
  ASSERT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "--weight-decay", "0.5"}),
            0);
  EXPECT_FLOAT_EQ(weights[0], 0.95f);
  ASSERT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1", "--weight-decay", "0.5",
                 "--no-decay", "^W$"}),
            0);
  EXPECT_EQ(weights[0], 1);
}

TEST_P(Train, ASignalEndsTheStepAndWritesACheckpoint) {
  writeData(8);
  for (auto [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    int calls = 0;
    prepare = [&, signal = signal](FakeDevice &device) {
      device.onRun = [&, signal](const std::string &entry) {
        if (entry == "gradients" && ++calls == 5)
          raise(signal);
      };
    };
    EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "100", "--out", "@run",
                   "--overwrite"}),
              code);
    EXPECT_EQ(filesIn("run").count("step-00000005.safetensors"), 1u);
  }
}

TEST_P(Train, ProgramsWithoutALossOnlyPredict) {
  program.entries.erase("gradients");
  program.entries.erase("eval_step");
  program.loss = "none";
  writeData(4);
  EXPECT_EQ(run({"train", "--data", data, "--lr", "0.1", "--steps", "1"}), 1);
  EXPECT_CONTAINS(err, "--loss=none");
  EXPECT_EQ(run({"eval", "--data", data}), 1);
  EXPECT_EQ(run({"predict", "--input", "x=@x.npy", "-o", "@y.npy"}), 0);
}

// Results that are looked at a step later are those of their own step: over steps that overflow,
// micro-batches, a smaller last batch and validation, a device that runs beside the host gives the
// same metrics and checkpoints as one that the host waits for.
TEST_F(TrainerTest, AnAsynchronousDeviceTrainsTheSame) {
  useProgram({.scaleMode = "dynamic", .precision = "fp16", .random = true});
  writeData(50);
  prepare = [](FakeDevice &device) {
    device.onRun = [&device](const std::string &entry) {
      if (entry == "gradients")
        device.overflow = device.i(Role::random_state)[1] % 11 == 4;
    };
  };
  for (std::string accumulate : {"1", "3"}) {
    std::vector<nlohmann::json> lines[2];
    std::string checkpoints[2];
    for (bool kind : {false, true}) {
      asynchronous = kind;
      ASSERT_EQ(run({"train", "--data", data, "--valid", data, "--lr", "0.01", "--epochs", "3",
                     "--growth-interval", "5", "--accumulate", accumulate, "--out", "@run",
                     "--overwrite", "--metrics", "@m.jsonl"}),
                0)
          << err;
      for (const char *event : {"step", "eval"})
        for (nlohmann::json &line : metrics("m.jsonl", event)) {
          line.erase("step_ms");
          line.erase("samples_per_s");
          lines[kind].push_back(line);
        }
      for (const std::string &name : filesIn("run"))
        checkpoints[kind] += readBytes(folder / ("run/" + name));
    }
    EXPECT_EQ(lines[0].size(), accumulate == "1" ? 39u + 3 : 15u + 3);
    EXPECT_EQ(lines[0], lines[1]);
    EXPECT_EQ(checkpoints[0], checkpoints[1]);
  }
}
