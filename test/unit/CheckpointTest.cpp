//===- CheckpointTest.cpp - a run split, resumed, damaged ----------------------------===//

#include "TrainTestSupport.h"
#include "runtime/data/Json.h"
#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <sys/resource.h>
#include <thread>

using namespace mpc;
using namespace mpc::testing;

namespace {

class Checkpoints : public TrainerTestOnBoth {
protected:
  Checkpoints() {
    useProgram({.batch = 8,
                .optimizer = "adam",
                .scaleMode = "dynamic",
                .precision = "fp16",
                .random = true});
    writeData(50); // 6.25 batches
  }
  /// A run over `arguments` more; some steps overflow, by the run's own count of micro-batches.
  int train(std::vector<std::string> arguments) {
    prepare = [](FakeDevice &device) {
      device.onRun = [&device](const std::string &entry) {
        if (entry == "gradients")
          device.overflow = device.i(Role::random_state)[1] % 11 == 4;
      };
    };
    std::vector<std::string> all = {"train", "--data", data};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run(all);
  }
  std::vector<std::string> runOptions(const std::string &out) {
    return {
        "--lr",   "0.01",  "--epochs", "4",         "--growth-interval",  "5",      "--schedule",
        "cosine", "--out", "@" + out,  "--metrics", "@" + out + ".jsonl", "--seed", "3"};
  }
  std::string last(const std::string &out) {
    return readBytes(
        CheckpointFolder(folder / out).stepPath(CheckpointFolder(folder / out).steps().at(0)));
  }
};

INSTANTIATE_TEST_SUITE_P(On, Checkpoints, ::testing::Bool(), deviceName);

} // namespace

// One uninterrupted run, and one that stops in the middle of the second epoch: the last
// checkpoint (weights, moments, statistics, scale, counters) is the same file, and so are the
// losses.
TEST_P(Checkpoints, AResumedRunIsTheSameBitForBit) {
  ASSERT_EQ(train(runOptions("a")), 0) << err;
  std::vector<std::string> first = runOptions("b");
  first.insert(first.end(), {"--stop-after", "9"});
  ASSERT_EQ(train(first), 0);
  EXPECT_EQ(CheckpointFolder(folder / "b").steps().at(0), 9);
  ASSERT_EQ(train({"--out", "@b", "--resume", "--stop-after", "1", "--metrics", "@b.jsonl"}), 0);
  ASSERT_EQ(train({"--out", "@b", "--resume", "--metrics", "@b.jsonl"}), 0) << err;
  EXPECT_EQ(last("a"), last("b"));
  auto lossesOf = [&](const std::string &name) {
    std::vector<nlohmann::json> losses;
    for (auto &line : metrics(name, "step"))
      losses.push_back({line["loss"], line["lr"], line["loss_scale"], line["skipped"]});
    return losses;
  };
  EXPECT_EQ(lossesOf("a.jsonl").size(), 28u);
  EXPECT_EQ(lossesOf("a.jsonl"), lossesOf("b.jsonl"));
  CheckpointFile file(CheckpointFolder(folder / "a").stepPath(28));
  EXPECT_LT(file.state().applied_steps, 28);
  EXPECT_NE(file.state().loss_scale, 65536);
}

TEST_P(Checkpoints, AccumulationResumesToo) {
  auto with = [&](const std::string &out) {
    std::vector<std::string> options = runOptions(out);
    options.insert(options.end(), {"--accumulate", "3"});
    return options;
  };
  ASSERT_EQ(train(with("a")), 0) << err;
  std::vector<std::string> first = with("b");
  first.insert(first.end(), {"--stop-after", "4"});
  ASSERT_EQ(train(first), 0);
  ASSERT_EQ(train({"--out", "@b", "--resume"}), 0);
  EXPECT_EQ(last("a"), last("b"));
}

TEST_P(Checkpoints, OptionsThatDifferAreRefusedByName) {
  std::vector<std::string> first = runOptions("a");
  first.insert(first.end(), {"--stop-after", "3"});
  ASSERT_EQ(train(first), 0);
  auto refused = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--out", "@a", "--resume"});
    EXPECT_EQ(train(more), 1);
    return err;
  };
  EXPECT_CONTAINS(refused({"--lr", "0.02"}), "--lr is 0.02 here and 0.01");
  EXPECT_CONTAINS(refused({"--seed", "4"}), "--seed");
  EXPECT_CONTAINS(refused({"--accumulate", "2"}), "--accumulate");
  EXPECT_CONTAINS(refused({"--clip-norm", "1"}), "--clip-norm is 1.0 here and none");
  EXPECT_CONTAINS(refused({"--schedule", "linear"}), "--schedule");
  EXPECT_CONTAINS(refused({"--epochs", "5"}), "--epochs 5 here and --epochs 4");
  EXPECT_CONTAINS(refused({"--no-shuffle"}), "--no-shuffle");
  program.batch = 7;
  EXPECT_CONTAINS(refused({}), "batch");
  program.batch = 8;
  writeData(49);
  EXPECT_CONTAINS(refused({}), "number of training samples");
  writeData(50);
  EXPECT_EQ(train({"--out", "@a", "--resume", "--lr", "0.01", "--epochs", "4"}), 0);
}

TEST_P(Checkpoints, AFolderWithCheckpointsIsNotOverwritten) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "20", "--checkpoint-every", "1", "--out", "@a"}), 0);
  EXPECT_EQ(filesIn("a"),
            (std::set<std::string>{"step-00000018.safetensors", "step-00000019.safetensors",
                                   "step-00000020.safetensors"}));
  EXPECT_EQ(train({"--lr", "0.1", "--steps", "2", "--out", "@a"}), 1);
  EXPECT_CONTAINS(err, "--overwrite");
  // Totals may grow where no schedule depends on them.
  ASSERT_EQ(train({"--steps", "22", "--out", "@a", "--resume"}), 0);
  EXPECT_EQ(filesIn("a").count("step-00000022.safetensors"), 1u);
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "2", "--out", "@a", "--overwrite"}), 0);
  EXPECT_EQ(filesIn("a"), (std::set<std::string>{"step-00000002.safetensors"}));
  EXPECT_EQ(train({"--steps", "2", "--out", "@none", "--resume"}), 1);
}

// The lock comes before any look at the folder: what a run that goes on there has half written is
// not judged. Its file goes with it; one that a killed run left is nobody's.
TEST_P(Checkpoints, AFolderIsLockedBeforeItIsLookedAt) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "2", "--checkpoint-every", "1", "--out", "@a"}), 0);
  std::string newest = folder / "a/step-00000002.safetensors";
  writeBytes(newest, readBytes(newest).substr(0, 100));
  {
    CheckpointFolder other(folder / "a");
    other.lock();
    EXPECT_EQ(filesIn("a").count(".mpc-lock"), 1u);
    for (std::string more : {"--resume", "--overwrite", "--no-shuffle"}) {
      EXPECT_EQ(train({"--lr", "0.1", "--steps", "3", "--out", "@a", more}), 1);
      EXPECT_CONTAINS(err, "another trainer");
      EXPECT_EQ(err.find("damaged"), std::string::npos) << err;
    }
  }
  EXPECT_EQ(filesIn("a").size(), 2u);
  writeBytes(folder / "a/.mpc-lock", "");
  ASSERT_EQ(train({"--steps", "2", "--out", "@a", "--resume"}), 0) << err;
  EXPECT_EQ(filesIn("a").size(), 2u);
  // Where nothing is trained no folder is made.
  EXPECT_EQ(train({"--steps", "2", "--out", "@none", "--resume"}), 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "none"));
}

// A lock whose file is removed at its end never has two owners.
TEST(CheckpointFolder, ALockHasOneOwner) {
  TemporaryFolder folder;
  std::atomic<int> inside = 0, times = 0, conflicts = 0;
  auto work = [&] {
    for (int i = 0; i < 2000; ++i) {
      CheckpointFolder mine(folder.path);
      if (messageOf([&] { mine.lock(); }).empty()) {
        conflicts += ++inside > 1;
        ++times;
        --inside;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back(work);
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(conflicts, 0);
  EXPECT_GT(times, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / ".mpc-lock"));
}

// A validation that a signal ended is of the weights of that moment: a resumed run makes up for it
// before it goes on, once, also where it is killed behind it; without --valid it lapses.
TEST_P(Checkpoints, AValidationIsMadeUpForOnce) {
  auto at = [&](const std::string &wanted, const std::function<void()> &action) {
    prepare = [=](FakeDevice &device) {
      device.onRun = [=](const std::string &entry) {
        if (entry == wanted)
          action();
      };
    };
  };
  auto due = [&](const std::string &out) {
    CheckpointFolder checkpoints(folder / out);
    return CheckpointFile(checkpoints.stepPath(checkpoints.steps().at(0))).state().validation_due;
  };
  auto resume = [&](std::string out, std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--data", data, "--resume", "--out", "@" + out, "--metrics",
                               "@" + out + ".jsonl"});
    return run(more);
  };
  at("eval_step", [] { raise(SIGTERM); });
  std::vector<std::string> first = runOptions("a");
  first.insert(first.begin(), {"train", "--data", data, "--valid", data});
  ASSERT_EQ(run(first), 143) << err;
  EXPECT_EQ(due("a"), 1);
  ASSERT_EQ(resume("a", {"--valid", data}), 143);
  EXPECT_EQ(due("a"), 1);
  std::filesystem::copy(folder / "a", folder / "b");
  std::filesystem::copy(folder / "a.jsonl", folder / "b.jsonl");
  // Killed behind the validation and before the checkpoint that says so: its line comes again.
  std::ofstream(folder / "a.jsonl", std::ios::app)
      << R"({"event":"eval","step":7,"epoch":1,"loss":0.5})" << "\n";

  at("gradients", [] { throw Error("killed"); });
  ASSERT_EQ(resume("a", {"--valid", data}), 1);
  EXPECT_CONTAINS(err, "killed");
  EXPECT_EQ(due("a"), 0);
  prepare = nullptr;
  ASSERT_EQ(resume("a", {"--valid", data, "--stop-after", "1"}), 0) << err;
  auto lines = metrics("a.jsonl", "eval");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["step"], 7);
  EXPECT_EQ(lines[0]["epoch"], 1);

  ASSERT_EQ(resume("b", {"--stop-after", "1"}), 0) << err;
  EXPECT_EQ(due("b"), 0);
  ASSERT_EQ(resume("b", {"--valid", data, "--stop-after", "1"}), 0) << err;
  EXPECT_EQ(metrics("b.jsonl", "eval").size(), 0u);
}

// What a run leaves that is killed between its first best.safetensors and its first step.
TEST_P(Checkpoints, BestAlone) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "2", "--out", "@a"}), 0);
  std::filesystem::rename(folder / "a/step-00000002.safetensors", folder / "a/best.safetensors");
  EXPECT_EQ(train({"--steps", "3", "--out", "@a", "--resume"}), 1);
  EXPECT_CONTAINS(err, "--overwrite begins anew");
  EXPECT_EQ(train({"--lr", "0.1", "--steps", "2", "--out", "@a"}), 1);
  EXPECT_EQ(train({"--lr", "0.1", "--steps", "2", "--out", "@a", "--overwrite"}), 0) << err;
}

// The last epoch's validation is still that epoch's where a signal ends it.
TEST_P(Checkpoints, TheLastValidationKeepsItsEpoch) {
  auto steps = std::make_shared<int>(0); // 14 in two epochs
  prepare = [=](FakeDevice &device) {
    device.onRun = [=](const std::string &entry) {
      *steps += entry == "gradients";
      if (entry == "eval_step" && *steps == 14)
        raise(SIGTERM);
    };
  };
  std::vector<std::string> options = {"train", "--data",    data,       "--valid", data,
                                      "--lr",  "0.1",       "--epochs", "2",       "--out",
                                      "@a",    "--metrics", "@a.jsonl"};
  ASSERT_EQ(run(options), 143) << err;
  prepare = nullptr;
  ASSERT_EQ(run({"train", "--data", data, "--valid", data, "--epochs", "2", "--resume", "--out",
                 "@a", "--metrics", "@a.jsonl"}),
            0)
      << err;
  auto lines = metrics("a.jsonl", "eval");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["step"], 14);
  EXPECT_EQ(lines[1]["epoch"], 2);
}

// Opening the metrics empties the file.
TEST_P(Checkpoints, MetricsOverACheckpointAreRefused) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "2", "--out", "@a"}), 0);
  std::string name = "@a/step-00000002.safetensors", before = last("a");
  for (const std::string &from : {name, std::string("@a")}) {
    EXPECT_EQ(train({"--lr", "0.1", "--steps", "1", "--checkpoint", from, "--metrics", name}), 1);
    EXPECT_CONTAINS(err, "is a checkpoint");
  }
  for (const char *own : {"best.safetensors", "step-00000009.safetensors", ".mpc-lock"}) {
    std::string metrics = std::string("@a/") + own;
    EXPECT_EQ(train({"--steps", "3", "--out", "@a", "--resume", "--metrics", metrics}), 1) << own;
    EXPECT_CONTAINS(err, "is a name for the run's checkpoints");
  }
  EXPECT_EQ(train({"--steps", "3", "--out", "@a", "--resume", "--metrics", name}), 1);
  EXPECT_CONTAINS(err, "is a checkpoint");
  EXPECT_EQ(last("a"), before);
}

// Only a regular file has lines to keep: what never ends is not read. Nor is a line that cannot be
// one of ours.
TEST_P(Checkpoints, MetricsOfAResumedRun) {
  std::vector<std::string> first = runOptions("a");
  first.insert(first.end(), {"--stop-after", "4"});
  ASSERT_EQ(train(first), 0);
  EXPECT_EQ(train({"--out", "@a", "--resume", "--metrics", "/dev/full", "--stop-after", "1"}), 1);
  EXPECT_CONTAINS(err, "/dev/full");
  std::string step = R"({"event":"step","step":1,"more":")", lines = readBytes(folder / "a.jsonl");
  writeBytes(folder / "a.jsonl", step + std::string(100000, 'x') + "\"}\n\n" + lines + step);
  ASSERT_EQ(train({"--out", "@a", "--resume", "--metrics", "@a.jsonl", "--stop-after", "1"}), 0);
  // Step 5 is in the checkpoint, its line went into the full disk.
  std::vector<int64_t> found;
  for (const nlohmann::json &line : metrics("a.jsonl", "step"))
    found.push_back(line["step"]);
  EXPECT_EQ(found, (std::vector<int64_t>{1, 2, 3, 4, 6}));
}

TEST_P(Checkpoints, DamagedFilesAreRecognized) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "3", "--checkpoint-every", "1", "--out", "@a"}), 0);
  std::string newest = folder / "a/step-00000003.safetensors", whole = readBytes(newest);
  uint64_t header = 0;
  memcpy(&header, whole.data(), sizeof header);
  auto checkFlip = [&](size_t at, int bit) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ bit);
    writeBytes(newest, damaged);
    std::string why = messageOf([&] { CheckpointFile file(newest); });
    EXPECT_NE(why, "") << at;
    EXPECT_EQ(why.find("json"), std::string::npos) << why;
    for (char c : why)
      EXPECT_TRUE(c >= ' ' && c < 0x7f) << at << ": " << why;
  };
  for (size_t at = 0; at < whole.size(); ++at) // every byte
    checkFlip(at, 1);
  for (size_t at = sizeof header; at < sizeof header + header; at += 3) // no UTF-8
    checkFlip(at, 0x80);
  std::string quoteGone = whole;
  quoteGone[10] = '\x1b'; // {"__meta…
  writeBytes(newest, quoteGone);
  EXPECT_EQ(messageOf([&] { openCheckpoint(newest); }),
            "the checkpoint '" + newest +
                "' is damaged: its header: no JSON at byte 10, the last of '{\"\\x1b'; given the "
                "folder of a run, its newest checkpoint that is whole is taken");
  writeBytes(newest, std::string("\x08\0\0\0\0\0\0\0{}      ", 16)); // safetensors may be so
  EXPECT_CONTAINS(messageOf([&] { openCheckpoint(newest); }), "from elsewhere?");
  for (size_t size = 0; size < whole.size(); size += 7) {
    writeBytes(newest, whole.substr(0, size));
    EXPECT_NE(messageOf([&] { CheckpointFile file(newest); }), "") << size;
  }
  writeBytes(newest, whole.substr(0, whole.size() / 2));
  writeBytes(folder / "a/.mpc-checkpoint.tmp", "left by a killed run");
  ASSERT_EQ(train({"--steps", "4", "--out", "@a", "--resume"}), 0);
  EXPECT_CONTAINS(err, "step-00000003.safetensors' is damaged");
  EXPECT_CONTAINS(err, "using '" + folder.path + "/a/step-00000002.safetensors'");
  EXPECT_EQ(filesIn("a").count(".mpc-checkpoint.tmp"), 0u);
  // With none left, each is named.
  for (const std::string &name : filesIn("a"))
    writeBytes(folder / ("a/" + name), "x");
  EXPECT_EQ(train({"--steps", "5", "--out", "@a", "--resume"}), 1);
  EXPECT_CONTAINS(err, "is whole");
}

// What --resume has passed over is none of the newest --keep: it never costs a whole checkpoint. It
// goes when the run is past it; until then it may be read again and is the newest.
TEST_P(Checkpoints, DamagedFilesDoNotCount) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "9", "--stop-after", "6", "--checkpoint-every", "2",
                   "--out", "@a"}),
            0);
  auto damage = [&](const std::string &name) {
    std::string bytes = readBytes(folder / name);
    bytes.back() ^= 1;
    writeBytes(folder / name, bytes);
  };
  auto stepsIn = [&](const std::string &out) { return CheckpointFolder(folder / out).steps(); };
  using Steps = std::vector<int64_t>;
  std::string sixth = readBytes(folder / "a/step-00000006.safetensors");
  damage("a/step-00000006.safetensors");
  std::filesystem::copy(folder / "a", folder / "b");
  auto goOn = [&](const std::string &out, std::vector<std::string> more) {
    more.insert(more.end(), {"--steps", "9", "--resume", "--out", "@" + out});
    ASSERT_EQ(train(more), 0) << err;
  };
  goOn("a", {"--keep", "1", "--stop-after", "1"});
  EXPECT_EQ(stepsIn("a"), (Steps{6, 5}));
  std::filesystem::copy(folder / "a", folder / "c");
  goOn("a", {"--keep", "1", "--stop-after", "1"}); // in the damaged one's place
  EXPECT_CONTAINS(err, "using '" + folder.path + "/a/step-00000005.safetensors'");
  EXPECT_EQ(stepsIn("a"), Steps{6});
  EXPECT_EQ(readBytes(folder / "a/step-00000006.safetensors"), sixth);
  goOn("a", {"--keep", "2", "--stop-after", "1"});
  EXPECT_EQ(stepsIn("a"), (Steps{7, 6}));

  writeBytes(folder / "c/step-00000006.safetensors", sixth);
  goOn("c", {"--keep", "1", "--stop-after", "1"});
  EXPECT_EQ(stepsIn("c"), Steps{7});

  damage("b/step-00000004.safetensors");
  goOn("b", {"--keep", "2", "--stop-after", "1"});
  EXPECT_EQ(stepsIn("b"), (Steps{6, 4, 3, 2}));
  goOn("b", {"--keep", "2", "--stop-after", "4", "--checkpoint-every", "5"});
  EXPECT_EQ(stepsIn("b"), (Steps{7, 5}));
}

// A hash says that a file is what somebody wrote, not that a run did: states that no run has are
// refused, by name, before they divide by zero or index anything.
TEST_P(Checkpoints, StatesThatNoRunHasAreRefused) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "3", "--out", "@a"}), 0);
  std::string newest = CheckpointFolder(folder / "a").stepPath(3);
  RunState good = CheckpointFile(newest).state();
  FakeDevice fake(program, options);
  auto refusal = [&](const std::function<void(RunState &)> &change) {
    RunState state = good;
    change(state);
    writeCheckpoint(newest, program, fake, state);
    EXPECT_EQ(train({"--out", "@a", "--resume", "--steps", "5"}), 1);
    return err;
  };
  EXPECT_CONTAINS(refusal([](RunState &s) { s.position = 51; }), "'position'");
  EXPECT_CONTAINS(refusal([](RunState &s) { s.position = -1; }), "'position'");
  EXPECT_CONTAINS(refusal([](RunState &s) { s.step = INT64_MIN; }), "'step'");
  EXPECT_CONTAINS(refusal([](RunState &s) { s.applied_steps = INT64_MAX; }), "'applied_steps'");
  EXPECT_CONTAINS(refusal([](RunState &s) { s.loss_scale = 0; }), "'loss_scale'");
  EXPECT_CONTAINS(refusal([](RunState &s) { s.growth_tracker = INT64_MAX; }), "'growth_tracker'");
  EXPECT_CONTAINS(refusal([](RunState &s) { s.hyper.accumulate = 0; }), "'accumulate'");
  EXPECT_CONTAINS(refusal([](RunState &s) { s.hyper.schedule = "step"; }), "'step-size'");
  EXPECT_CONTAINS(refusal([](RunState &s) { s.hyper.schedule = "wavy"; }), "'schedule'");
  EXPECT_CONTAINS(refusal([](RunState &s) { s.epochs = 3; }), "'steps'");
  // At the end of an epoch only a best.safetensors stands: there is nothing to go on with.
  EXPECT_CONTAINS(refusal([](RunState &s) { s.position = 50; }), "sample 50 of an epoch of 50");
}

// Nothing that a state has is taken for something where it is missing.
TEST_P(Checkpoints, StatesWithoutAFieldAreRefused) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "3", "--out", "@a"}), 0);
  RunState state = CheckpointFile(CheckpointFolder(folder / "a").stepPath(3)).state();
  const nlohmann::json whole = toJson(state), fields = whole.flatten();
  EXPECT_EQ(stateFromJson(JsonValue(whole, "state")).step, 3);
  const std::set<std::string> younger{"validation_due"}; // than files that are read
  for (const auto &[name, value] : fields.items()) {
    nlohmann::json without = whole;
    nlohmann::json::json_pointer field(name);
    without[field.parent_pointer()].erase(field.back());
    if (younger.count(field.back()))
      continue;
    EXPECT_THROW(stateFromJson(JsonValue(without, "state")), JsonError) << name;
  }
}

// How a device is to compute is part of a run; it passes through one that has nothing to tune.
TEST_P(Checkpoints, TunedChoicesStay) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "4", "--stop-after", "2", "--out", "@a"}), 0);
  CheckpointFolder checkpoints(folder / "a");
  EXPECT_EQ(readBytes(checkpoints.stepPath(2)).find("tuned"), std::string::npos);
  RunState state = CheckpointFile(checkpoints.stepPath(2)).state();
  state.tuned[{"a GPU", 12090, "cuBLASLt", 120900}] = {{"8 x 4ᵀ", "00ff"}, {"8 x 5", ""}};
  state.tuned[{"a GPU", 12090, "cuDNN", 91002}] = {{"image 3x3", "engine 5, knobs 2=32"}};
  FakeDevice fake(program, options);
  writeCheckpoint(checkpoints.stepPath(2), program, fake, state);
  ASSERT_EQ(train({"--out", "@a", "--resume"}), 0);
  EXPECT_EQ(CheckpointFile(checkpoints.stepPath(4)).state().tuned, state.tuned);
  ASSERT_EQ(run({"info", "--checkpoint", "@a"}), 0);
  EXPECT_CONTAINS(out, "tuned for a GPU with a driver of CUDA 12.9 and cuBLASLt 12.9.0: 2 choices");
  // What somebody has written there is no command to a terminal, and no page long.
  state.tuned = {{{"\x1b[2J\xc2\x9b" + std::string(5000, 'x'), 1, "a\nb", 1}, {}}};
  state.precision = "\x1b[31m";
  writeCheckpoint(checkpoints.stepPath(4), program, fake, state);
  ASSERT_EQ(run({"info", "--checkpoint", "@a/step-00000004.safetensors"}), 0);
  EXPECT_CONTAINS(out, "tuned for \\x1b[2J\\xc2\\x9bxx");
  EXPECT_CONTAINS(out, "xx… with a driver of CUDA 0.0 and a\\nb 0.0.1: 0 choices");
  EXPECT_CONTAINS(out, "\\x1b[31m, ");
  EXPECT_EQ(out.find('\x1b'), std::string::npos);
  EXPECT_LT(out.size(), 2000U);
  EXPECT_EQ(train({"--out", "@a", "--resume"}), 1);
  EXPECT_EQ(err.find('\x1b'), std::string::npos);
}

TEST_P(Checkpoints, NothingIsTunedOnTheCpu) {
  EXPECT_EQ(train({"--lr", "0.1", "--steps", "4", "--tune"}), 2);
  EXPECT_CONTAINS(err, "--tune is for GPUs: this program was compiled for the CPU");
}

// A full disk, here a limit on file sizes: a message, what was there stays, nothing is left over.
TEST_P(Checkpoints, AFullDiskKeepsThePreviousCheckpoint) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "1", "--out", "@a"}), 0);
  struct rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  struct rlimit small = old;
  small.rlim_cur = 100;
  signal(SIGXFSZ, SIG_IGN);
  RunState state;
  FakeDevice fake(program, options);
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message = messageOf(
      [&] { writeCheckpoint(CheckpointFolder(folder / "a").stepPath(2), program, fake, state); });
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_CONTAINS(message, "cannot write");
  EXPECT_CONTAINS(message, "File too large");
  EXPECT_EQ(filesIn("a"), (std::set<std::string>{"step-00000001.safetensors"}));
}

TEST_P(Checkpoints, WeightsLoadIntoAnotherRun) {
  ASSERT_EQ(train({"--lr", "0.1", "--steps", "5", "--out", "@a"}), 0);
  std::vector<float> trained = weights;
  ASSERT_EQ(train({"--lr", "0", "--steps", "1", "--checkpoint", "@a"}), 0) << err;
  EXPECT_EQ(weights, trained);
  ASSERT_EQ(run({"eval", "--data", data, "--checkpoint", "@a/step-00000005.safetensors"}), 0);
  EXPECT_EQ(weights, trained);
  // Of another model: named by tensor and shape.
  program.tensors[static_cast<size_t>(program.find(Role::parameter))].name = "V";
  EXPECT_EQ(run({"eval", "--data", data, "--checkpoint", "@a"}), 1);
  EXPECT_CONTAINS(err, "has no 'weight/V'");
  useProgram({.batch = 8, .features = 2});
  writeData(8);
  EXPECT_EQ(run({"eval", "--data", data, "--checkpoint", "@a"}), 1);
  EXPECT_CONTAINS(err, "shape [3]; this program wants [2]");
  writeBytes(folder / "other.safetensors", std::string("\x2\0\0\0\0\0\0\0{}", 10));
  EXPECT_EQ(run({"eval", "--data", data, "--checkpoint", "@other.safetensors"}), 1);
}
