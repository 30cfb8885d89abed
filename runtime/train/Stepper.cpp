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
static const std::string kGradients = "gradients", kApply = "apply",
                         kApplyAccumulated = "apply_accumulated";
static const Device::EntryList kStep{"step", {kGradients, kApply}},
    kMicroStep{"micro-step", {kGradients, "accumulate"}};

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
  if (hyper.accumulate > 1) {
    device.clear(Region::accumulators); // too little memory for them shows before anything begins
    device.prepare(kMicroStep);
    device.prepare({kApplyAccumulated, {kApplyAccumulated}});
  } else {
    device.prepare(kStep);
  }
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

int64_t Stepper::microBatch(RunState &state, const std::vector<int64_t> &order, int64_t end,
                            const Device::EntryList &entries) {
  int64_t n = std::min(program.batch, end - state.position);
  batcher.fill(order.data() + state.position, n, hyper.seed, static_cast<uint64_t>(state.epoch));
  if (random) {
    int64_t values[2] = {static_cast<int64_t>(hyper.seed), state.micro_batches};
    device.write(*random, values);
  }
  device.run(entries);
  ++state.micro_batches;
  state.position += n;
  return n;
}

/// Adds the first of the step's micro-batches to its sums.
void Stepper::addMicroBatch(Step &step) {
  auto [mark, samples] = step.microBatches.front();
  step.microBatches.erase(step.microBatches.begin());
  double weight = count.real(static_cast<double>(samples), mark);
  if (weight != 0) // no label counts: no mean, no weight
    step.lossSum += weight * loss.real(0, mark);
  step.count += weight;
  device.release(mark);
}

void Stepper::launch(RunState &state, const std::vector<int64_t> &order, int64_t end) {
  Step step;
  step.epoch = state.epoch;
  if (hyper.accumulate == 1) {
    step.samples = microBatch(state, order, end, kStep);
  } else {
    // One is looked at while the next one runs.
    size_t running = device.isAsynchronous() ? 1 : 0;
    device.clear(Region::accumulators);
    accumulatedCount.setReal(0);
    for (int64_t k = 0; k < hyper.accumulate && state.position < end; ++k) {
      int64_t samples = microBatch(state, order, end, kMicroStep);
      step.samples += samples;
      step.microBatches.push_back({device.mark(), samples});
      while (step.microBatches.size() > running)
        addMicroBatch(step);
    }
    device.run(kApplyAccumulated);
  }
  step.mark = device.mark();
  step.step = ++state.step;
  steps.push_back(std::move(step));
}

Stepper::Result Stepper::take(RunState &state) {
  Step step = std::move(steps.front());
  steps.erase(steps.begin());
  Result result{step.step, step.epoch, std::nan(""), 0, step.samples, scaleNow, 0, false};
  if (hyper.accumulate == 1) {
    result.count = count.real(static_cast<double>(step.samples), step.mark);
    if (result.count != 0)
      result.loss = loss.real(0, step.mark);
  } else {
    while (!step.microBatches.empty())
      addMicroBatch(step);
    result.count = step.count;
    if (result.count != 0)
      result.loss = step.lossSum / step.count;
  }
  result.gradNorm = norm.real(std::nan(""), step.mark);
  result.applied = ok.integer(1, step.mark) != 0;
  state.applied_steps += result.applied;
  scaleNow = scale.real(1, step.mark);
  if (!result.applied)
    overflow = findOverflow(step.mark);
  device.release(step.mark);
  return result;
}

void Stepper::readBack(RunState &state) const {
  state.loss_scale = scale.real(1);
  state.growth_tracker = tracker.integer(0);
  state.applied_steps = applied.integer(state.applied_steps);
}

std::string Stepper::findOverflow(uint64_t mark) const {
  if (int index = program.find(Role::gradient_square_sums); index >= 0) {
    const TensorInfo &tensor = program.tensors[static_cast<size_t>(index)];
    std::vector<unsigned char> bytes(tensor.bytes());
    device.readMarked(mark, tensor, bytes.data());
    std::vector<double> sums(static_cast<size_t>(tensor.elements()));
    convertReals(tensor.type, bytes.data(), ElementType::f64, sums.data(), sums.size());
    std::vector<uint32_t> parameters = program.all(Role::parameter);
    for (size_t i = 0; i < std::min(sums.size(), parameters.size()); ++i)
      if (!std::isfinite(sums[i]))
        return "the gradient of " + quote(program.tensors[parameters[i]].name);
  }
  if (!std::isfinite(loss.real(0, mark)))
    return "the loss";
  return program.all(Role::statistic).empty() ? "the gradients' norm"
                                              : "a running statistic of a BatchNormalization";
}
