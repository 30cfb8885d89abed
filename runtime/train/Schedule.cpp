//===- Schedule.cpp - learning rates and bias corrections -----------------------------------===//

#include "runtime/train/Schedule.h"
#include "runtime/data/Array.h"
#include <algorithm>
#include <numbers>

using namespace mpc;

double mpc::learningRate(const Hyperparameters &hyper, int64_t k, int64_t total) {
  double lr = hyper.lr;
  double part =
      total > 0 ? static_cast<double>(std::min(k, total)) / static_cast<double>(total) : 1;
  if (hyper.schedule == "step") {
    int64_t decays = k / hyper.step_size;
    lr = hyper.lr * std::pow(hyper.gamma, static_cast<double>(decays));
  } else if (hyper.schedule == "linear") {
    lr = hyper.lr + (hyper.final_lr - hyper.lr) * part;
  } else if (hyper.schedule == "cosine") {
    lr = hyper.final_lr + (hyper.lr - hyper.final_lr) * (1 + std::cos(std::numbers::pi * part)) / 2;
  }
  if (k < hyper.warmup)
    lr *= static_cast<double>(k + 1) / static_cast<double>(hyper.warmup);
  return lr;
}

ScheduleTable::ScheduleTable(const Program &program, Device &device, const Hyperparameters &hyper,
                             int64_t applied, int64_t total)
    : device(device), hyper(hyper), adam(program.optimizer.starts_with("adam")), total(total) {
  int index = program.find(Role::schedule);
  if (index < 0)
    return;
  tensor = &program.tensors[static_cast<size_t>(index)];
  rows.resize(kRows * 4);
  bytes.resize(tensor->bytes());
  first = applied - kRows; // no row is valid yet
  refill(applied);
}

void ScheduleTable::computeRow(int64_t k) {
  double lr = learningRate(hyper, k, total);
  double *row = rows.data() + (k % kRows) * 4;
  double exponent = static_cast<double>(k + 1);
  row[0] = lr;
  row[1] = adam ? lr / (1 - std::pow(hyper.beta1, exponent)) : lr;
  row[2] = adam ? std::sqrt(1 - std::pow(hyper.beta2, exponent)) : 1;
  row[3] = 0;
}

void ScheduleTable::refill(int64_t applied) {
  if (!tensor)
    return;
  // Rows of steps before `applied` have been used: they become those of 4096 steps later.
  for (int64_t k = std::max(first + kRows, applied); k < applied + kRows; ++k)
    computeRow(k);
  first = applied;
  convertReals(ElementType::f64, rows.data(), tensor->type, bytes.data(), rows.size());
  device.write(*tensor, bytes.data());
}
