//===- Stepper.cpp - one optimizer step ----------------------------------------------===//
//
//   K = 1:  inputs → gradients → apply
//   else:   clear; K times (inputs → gradients → accumulate); apply_accumulated
//
//===----------------------------------------------------------------------------===//

#include "runtime/train/Stepper.h"
#include "runtime/core/Error.h"
#include "runtime/data/Array.h"
#include <algorithm>

using namespace mpc;

// Names of entry points, made once.
static const std::string kGradients = "gradients", kApply = "apply", kAccumulate = "accumulate",
                         kApplyAccumulated = "apply_accumulated";

Stepper::Stepper(const Program &program, Device &device, const Dataset &dataset,
                 const Hyperparameters &hyper)
    : program(program), device(device), hyper(hyper), batcher(program, dataset, device),
      loss(program, device, Role::loss), count(program, device, Role::count),
      ok(program, device, Role::ok), norm(program, device, Role::grad_norm),
      scale(program, device, Role::loss_scale), tracker(program, device, Role::growth_tracker),
      applied(program, device, Role::applied_steps),
      accumulatedCount(program, device, Role::accumulated_count) {
  int index = program.find(Role::random_state);
  if (index >= 0)
    random = &program.tensors[static_cast<size_t>(index)];
  requireEntry(program, kGradients, "train");
  requireEntry(program, hyper.accumulate > 1 ? kApplyAccumulated : kApply, "train");
}

void Stepper::prepare(const RunState &state) {
  writeHyperparameters(program, device, hyper);
  scale.setReal(state.loss_scale);
  tracker.setInteger(state.growth_tracker);
  applied.setInteger(state.applied_steps);
  accumulatedCount.setReal(0);
  resetWorkingStatistics(program, device);
  scaleNow = scale.real(1);
}

void Stepper::microBatch(RunState &state, const std::vector<int64_t> &order, int64_t end,
                         Result &result) {
  int64_t n = std::min(program.batch, end - state.position);
  batcher.fill(order.data() + state.position, n, hyper.seed, static_cast<uint64_t>(state.epoch));
  if (random) {
    int64_t values[2] = {static_cast<int64_t>(hyper.seed), state.micro_batches};
    device.write(*random, values);
  }
  device.run(kGradients);
  ++state.micro_batches;
  state.position += n;
  result.samples += n;
}

Stepper::Result Stepper::run(RunState &state, const std::vector<int64_t> &order, int64_t end) {
  Result result{};
  result.scale = scaleNow;
  if (hyper.accumulate == 1) {
    microBatch(state, order, end, result);
    device.run(kApply);
    result.count = count.real(static_cast<double>(result.samples));
    result.loss = result.count != 0 ? loss.real() : std::nan("");
  } else {
    device.clear(Region::accumulators);
    accumulatedCount.setReal(0);
    double sum = 0;
    for (int64_t k = 0; k < hyper.accumulate && state.position < end; ++k) {
      int64_t before = result.samples;
      microBatch(state, order, end, result);
      device.run(kAccumulate);
      double weight = count.real(static_cast<double>(result.samples - before));
      if (weight != 0) // no label counts: no mean, no weight
        sum += weight * loss.real();
      result.count += weight;
    }
    device.run(kApplyAccumulated);
    result.loss = result.count != 0 ? sum / result.count : std::nan("");
  }
  result.applied = ok.integer(1) != 0;
  ++state.step;
  state.applied_steps += result.applied;
  scaleNow = scale.real(1);
  return result;
}

void Stepper::readBack(RunState &state) const {
  state.loss_scale = scale.real(1);
  state.growth_tracker = tracker.integer(0);
  state.applied_steps = applied.integer(state.applied_steps);
}

std::vector<double> Stepper::squareSums() const {
  int index = program.find(Role::gradient_square_sums);
  if (index < 0)
    return {};
  const TensorInfo &tensor = program.tensors[static_cast<size_t>(index)];
  std::vector<unsigned char> bytes(tensor.bytes());
  device.read(tensor, bytes.data());
  std::vector<double> sums(static_cast<size_t>(tensor.elements()));
  convertReals(tensor.type, bytes.data(), ElementType::f64, sums.data(), sums.size());
  return sums;
}

std::string Stepper::firstOverflow() const {
  std::vector<double> sums = squareSums();
  std::vector<uint32_t> parameters = program.all(Role::parameter);
  for (size_t i = 0; i < std::min(sums.size(), parameters.size()); ++i)
    if (!std::isfinite(sums[i]))
      return "the gradient of " + quote(program.tensors[parameters[i]].name);
  if (!std::isfinite(loss.real()))
    return "the loss";
  return program.all(Role::statistic).empty() ? "the gradients' norm"
                                              : "a running statistic of a BatchNormalization";
}
