//===- Eval.cpp - loss and accuracy over a data set ----------------------------------===//
//
// Batches are weighted by the loss elements that count, in double: the mean over all samples,
// whatever the batch size.
//
//===----------------------------------------------------------------------------===//

#include "runtime/train/Eval.h"
#include "runtime/core/Error.h"
#include "runtime/data/Shuffle.h"
#include "runtime/train/Progress.h"
#include <algorithm>
#include <deque>

using namespace mpc;

void mpc::requireWholeBatches(const Program &program, int64_t samples, const std::string &remedy) {
  if (program.tail_refused_why.empty() || samples % program.batch == 0)
    return;
  throw Error(std::to_string(samples) + " samples are no multiple of the batch, " +
              std::to_string(program.batch) + ", and this program cannot run a smaller batch: " +
              program.tail_refused_why + ". " + remedy);
}

static const std::string kEntry = "eval_step";

Evaluator::Evaluator(const Program &program, Device &device, const Dataset &dataset)
    : program(program), device(device), dataset(dataset), batcher(program, dataset, device),
      loss(program, device, Role::loss), count(program, device, Role::count),
      correct(program, device, Role::correct), order(static_cast<size_t>(dataset.samples())) {
  requireWholeBatches(program, dataset.samples(),
                      "Leave out samples, or compile with another --batch");
  epochOrder(0, 0, false, order);
  device.prepare({kEntry, {kEntry}});
}

std::optional<Evaluation> Evaluator::run(const std::function<bool()> &isStopped) {
  struct Batch {
    uint64_t mark;
    int64_t samples;
  };
  std::deque<Batch> batches; // whose results are not known yet
  double losses = 0, counts = 0, hits = 0;
  bool classes = program.classes > 0 && correct.present();
  auto take = [&] {
    auto [mark, samples] = batches.front();
    batches.pop_front();
    double weight = count.real(static_cast<double>(samples), mark);
    if (weight != 0) // a batch without a label that counts has no mean
      losses += weight * loss.real(0, mark);
    counts += weight;
    double hit = correct.real(-1, mark);
    classes = classes && hit >= 0;
    hits += hit;
    device.release(mark);
  };
  size_t running = device.isAsynchronous() ? 1 : 0;
  int64_t total = dataset.samples();
  bool stopped = false;
  for (int64_t first = 0; first < total && !stopped; first += program.batch) {
    int64_t n = std::min(program.batch, total - first);
    batcher.fill(order.data() + first, n, 0, 0);
    device.run(kEntry);
    batches.push_back({device.mark(), n});
    while (batches.size() > running)
      take();
    stopped = isStopped();
  }
  while (!batches.empty())
    take();
  if (stopped)
    return std::nullopt;
  Evaluation result;
  result.count = counts;
  result.loss = counts != 0 ? losses / counts : std::nan("");
  if (classes)
    result.accuracy = hits / counts;
  return result;
}

std::string mpc::evaluationText(const Evaluation &evaluation) {
  std::string text = "loss " + numberText(evaluation.loss);
  if (evaluation.count == 0)
    text += ": no label counts, all are the ignored one";
  if (evaluation.hasAccuracy())
    text += ", accuracy " + numberText(evaluation.accuracy);
  return text;
}
