//===- ScheduleTest.cpp - learning rates and their table -----------------------------===//

#include "runtime/train/Schedule.h"
#include "FakeTrainer.h"

using namespace mpc;
using namespace mpc::testing;

namespace {

/// One sample x = 1, t = 0, W = 1 and loss W²: W ← W (1 − 2 lr) tells every learning rate.
std::vector<double> weights(const Hyperparameters &hyper, int64_t steps) {
  std::vector<double> result;
  double w = 1;
  for (int64_t k = 0; k < steps; ++k)
    result.push_back(w *= 1 - 2 * learningRate(hyper, k, steps));
  return result;
}

void expectNear(const std::vector<double> &got, const std::vector<double> &wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], wanted[i], 1e-15) << i;
}

Hyperparameters rate(double lr) {
  Hyperparameters hyper;
  hyper.lr = lr;
  return hyper;
}

} // namespace

TEST(Schedule, StepDecaysAtTheRightStep) {
  Hyperparameters hyper = rate(0.1);
  hyper.schedule = "step";
  hyper.step_size = 2;
  hyper.gamma = 0.5;
  expectNear(weights(hyper, 8), {0.8, 0.64, 0.576, 0.5184, 0.49248, 0.467856, 0.45615960000000005,
                                 0.4447556100000001});
}

TEST(Schedule, WarmupStartsAboveZero) {
  Hyperparameters hyper = rate(0.1);
  hyper.warmup = 4;
  expectNear(weights(hyper, 8),
             {0.95, 0.855, 0.72675, 0.5814, 0.46512, 0.37209600000000004, 0.2976768, 0.23814144});
}

TEST(Schedule, CosineRunsOverTheWholeRun) {
  Hyperparameters hyper = rate(0.1);
  hyper.schedule = "cosine";
  expectNear(weights(hyper, 8),
             {0.8, 0.6460896373990971, 0.5357952372732615, 0.46171171750147544, 0.41554054575132787,
              0.38988853940969315, 0.3784689684810751, 0.37558804500000004});
  EXPECT_EQ(learningRate(hyper, 100, 8), 0);
}

TEST(Schedule, LinearReachesTheFinalRate) {
  Hyperparameters hyper = rate(1);
  hyper.schedule = "linear";
  hyper.final_lr = 0.2;
  EXPECT_EQ(learningRate(hyper, 0, 8), 1);
  EXPECT_NEAR(learningRate(hyper, 4, 8), 0.6, 1e-15);
  EXPECT_NEAR(learningRate(hyper, 8, 8), 0.2, 1e-15);
}

// The ring: every applied step finds its own row, over several refills and after a resume.
TEST(Schedule, TableHoldsTheRowOfEveryStep) {
  FakeOptions options{.optimizer = "adam"};
  Program program = fakeProgram(options);
  for (int64_t start : {int64_t(0), int64_t(5000)}) {
    FakeDevice device(program, options);
    Hyperparameters hyper = rate(0.001);
    hyper.schedule = "cosine";
    ScheduleTable table(program, device, hyper, start, 20000);
    for (int64_t k = start; k < start + 10000; ++k) {
      const float *row = device.f(Role::schedule) + k % 4096 * 4;
      double lr = learningRate(hyper, k, 20000);
      ASSERT_EQ(row[0], static_cast<float>(lr)) << k;
      ASSERT_EQ(row[1], static_cast<float>(lr / (1 - std::pow(0.9, k + 1)))) << k;
      ASSERT_EQ(row[2], static_cast<float>(std::sqrt(1 - std::pow(0.999, k + 1)))) << k;
      table.advance(k + 1);
    }
  }
}
