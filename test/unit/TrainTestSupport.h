//===- TrainTestSupport.h - whole runs of the trainer's commands ---------------------===//

#ifndef MPC_TEST_UNIT_TRAINTESTSUPPORT_H
#define MPC_TEST_UNIT_TRAINTESTSUPPORT_H

#include "FakeTrainer.h"
#include "runtime/data/Npy.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/Trainer.h"

namespace mpc::testing {

/// Runs command lines against the fake device, which starts with W = 1.
class TrainerTest : public ::testing::Test {
protected:
  void useProgram(const FakeOptions &wanted) {
    options = wanted;
    program = fakeProgram(options);
  }

  /// `@` stands for the test's folder.
  int run(const std::vector<std::string> &arguments) {
    std::vector<std::string> words = {"trainer"};
    for (const std::string &argument : arguments) {
      words.emplace_back();
      for (char c : argument)
        words.back() += c == '@' ? folder.path + "/" : std::string(1, c);
    }
    std::vector<char *> pointers;
    for (std::string &word : words)
      pointers.push_back(word.data());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    int code = runTrainer(static_cast<int>(pointers.size()), pointers.data(), program,
                          [&](const Program &program, const std::string &, int) {
                            auto made = std::make_unique<FakeDevice>(program, options);
                            std::fill(made->f(Role::parameter),
                                      made->f(Role::parameter) + options.features, 1.0f);
                            made->asynchronous = asynchronous;
                            device = made.get();
                            if (prepare)
                              prepare(*made);
                            return std::unique_ptr<Device>(new Keeper{std::move(made), *this});
                          });
    out = ::testing::internal::GetCapturedStdout();
    err = ::testing::internal::GetCapturedStderr();
    return code;
  }

  void writeFloats(const std::string &name, std::vector<int64_t> shape,
                   const std::vector<float> &values) {
    NpyWriter writer(folder / name, {{"", ElementType::f32, std::move(shape)}});
    writer.append(0, values.data(), values.size());
    writer.commit();
  }

  /// x.npy and t.npy: `samples` pseudo-random samples.
  void writeData(int64_t samples) {
    std::vector<float> x, t;
    uint32_t state = 12345;
    auto next = [&] {
      state = state * 1664525 + 1013904223;
      return static_cast<float>(state >> 8) / (1 << 24) - 0.5f;
    };
    for (int64_t i = 0; i < samples * options.features; ++i)
      x.push_back(next());
    for (int64_t i = 0; i < samples; ++i)
      t.push_back(next());
    writeFloats("x.npy", {samples, options.features}, x);
    writeFloats("t.npy", {samples}, t);
  }

  std::set<std::string> filesIn(const std::string &name) {
    std::set<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(folder / name))
      names.insert(entry.path().filename());
    return names;
  }

  std::vector<nlohmann::json> metrics(const std::string &name, const std::string &event) {
    std::vector<nlohmann::json> lines;
    std::istringstream in(readBytes(folder / name));
    for (std::string line; std::getline(in, line);)
      if (auto parsed = nlohmann::json::parse(line); parsed["event"] == event)
        lines.push_back(parsed);
    return lines;
  }

  /// Hands the device's weights over when the command is done with it.
  struct Keeper : Device {
    std::unique_ptr<FakeDevice> inner;
    TrainerTest &test;
    Keeper(std::unique_ptr<FakeDevice> inner, TrainerTest &test)
        : inner(std::move(inner)), test(test) {}
    ~Keeper() override {
      test.weights = inner->weights();
      test.device = nullptr;
    }
    void read(const TensorInfo &tensor, void *to) override { inner->read(tensor, to); }
    void write(const TensorInfo &tensor, const void *from) override { inner->write(tensor, from); }
    uint64_t mark() override { return inner->mark(); }
    void readMarked(uint64_t mark, const TensorInfo &tensor, void *to) override {
      inner->readMarked(mark, tensor, to);
    }
    void release(uint64_t mark) override { inner->release(mark); }
    bool isAsynchronous() const override { return inner->isAsynchronous(); }
    void clear(Region region) override { inner->clear(region); }
    void run(const std::string &entry) override { inner->run(entry); }
    void weightsChanged() override { inner->weightsChanged(); }
    uint64_t memoryBytes() const override { return 0; }
    std::string describe() const override { return "fake"; }
    std::vector<std::string> describeCommands(const std::string &) const override { return {}; }
  };

  FakeOptions options;
  Program program = fakeProgram(options);
  TemporaryFolder folder;
  bool asynchronous = false;                 ///< whether devices run beside the host
  FakeDevice *device = nullptr;              ///< while a command runs
  std::function<void(FakeDevice &)> prepare; ///< called with each new device
  std::vector<float> weights;                ///< when the last command ended
  std::string out, err;
  const std::string data = "npy:x=@x.npy,labels=@t.npy";
};

/// The same, on a device that the host waits for and on one that runs beside it.
class TrainerTestOnBoth : public TrainerTest, public ::testing::WithParamInterface<bool> {
protected:
  TrainerTestOnBoth() { asynchronous = GetParam(); }
};

inline std::string deviceName(const ::testing::TestParamInfo<bool> &info) {
  return info.param ? "Asynchronous" : "Waiting";
}

} // namespace mpc::testing

#endif // MPC_TEST_UNIT_TRAINTESTSUPPORT_H
