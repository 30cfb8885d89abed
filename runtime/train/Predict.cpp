//===- Predict.cpp - outputs of the model --------------------------------------------===//
//
// Any number of samples goes through the program batch by batch. Outputs whose first axis
// counts samples are written as they come; the others are put together in memory.
//
//===----------------------------------------------------------------------------===//

#include "runtime/train/Predict.h"
#include "runtime/core/Error.h"
#include "runtime/data/Batcher.h"
#include "runtime/data/Npy.h"
#include "runtime/data/Shuffle.h"
#include "runtime/train/Eval.h"
#include <algorithm>
#include <cstring>

using namespace mpc;

namespace {

/// One output over all samples: [outer, batch·rows, inner] per call.
struct OutputPlan {
  const TensorInfo *tensor = nullptr;
  bool perSample = true;
  int64_t outer = 1, rows = 1, inner = 1; ///< rows per sample
  std::vector<int64_t> shape;             ///< of the file's array
  std::vector<unsigned char> batch;       ///< as the program writes it
  std::vector<unsigned char> whole;       ///< where outer > 1
};

OutputPlan planOutput(const Program &program, const TensorInfo &tensor, int64_t samples) {
  OutputPlan plan;
  plan.tensor = &tensor;
  plan.shape = tensor.shape;
  plan.batch.resize(tensor.bytes());
  auto known = program.output_samples.find(tensor.name);
  OutputSamples where;
  if (known != program.output_samples.end()) {
    where = known->second;
  } else {
    where.axis = batchAxis(program, tensor);
    // Rows of all samples one after the other, as in [samples · positions, classes].
    if (where.axis < 0 && !tensor.shape.empty() && tensor.shape[0] > 0 &&
        tensor.shape[0] % program.batch == 0)
      where.axis = 0;
  }
  plan.perSample = where.axis >= 0;
  if (where.axis < 0) {
    // One call gives it; of a part of a batch only if it is the same whatever fills the batch up.
    bool exact = known != program.output_samples.end() && where.axis == OutputSamples::kNone;
    if (exact ? samples > program.batch : samples != program.batch)
      throw Error("output " + quote(tensor.name) + " belongs to no single sample (its shape is " +
                  shapeText(tensor.shape) + "): give " + (exact ? "at most " : "exactly ") +
                  std::to_string(program.batch) + " samples, not " + std::to_string(samples));
    plan.inner = tensor.elements();
    return plan;
  }
  size_t at = static_cast<size_t>(where.axis);
  if (at >= tensor.shape.size() || tensor.shape[at] % (program.batch * where.blocks) != 0)
    throw Error("output " + quote(tensor.name) +
                " does not hold the samples where the program says (compile the model again)");
  plan.outer = where.blocks;
  plan.rows = tensor.shape[at] / (program.batch * where.blocks);
  for (size_t d = 0; d < at; ++d)
    plan.outer *= tensor.shape[d];
  for (size_t d = at + 1; d < tensor.shape.size(); ++d)
    plan.inner *= tensor.shape[d];
  plan.shape[at] = where.blocks * plan.rows * samples;
  if (plan.outer > 1)
    plan.whole.resize(static_cast<size_t>(elementCount(plan.shape)) * elementSize(tensor.type));
  return plan;
}

/// The first `count` samples of a batch, which are samples `first` … of all.
void take(OutputPlan &plan, size_t item, int64_t first, int64_t count, int64_t samples,
          int64_t batch, NpyWriter &writer) {
  if (!plan.perSample || plan.outer == 1) {
    int64_t rows = plan.perSample ? count * plan.rows : 1;
    writer.append(item, plan.batch.data(), static_cast<size_t>(rows * plan.inner));
    return;
  }
  size_t row = static_cast<size_t>(plan.rows * plan.inner) * elementSize(plan.tensor->type);
  for (int64_t o = 0; o < plan.outer && row != 0; ++o)
    memcpy(plan.whole.data() + static_cast<size_t>(o * samples + first) * row,
           plan.batch.data() + static_cast<size_t>(o * batch) * row,
           static_cast<size_t>(count) * row);
}

} // namespace

void mpc::predict(const Program &program, Device &device, const DatasetSpec &inputs,
                  const std::string &output) {
  static const std::string kEntry = "predict";
  requireEntry(program, kEntry, "predict");
  Dataset data = Dataset::load(inputs, program, inputsOf(program, {kEntry}, false), false);
  int64_t samples = data.samples();
  requireWholeBatches(program, samples, "Give a multiple of the batch");

  std::vector<OutputPlan> plans;
  std::vector<NpyWriter::Item> items;
  for (uint32_t index : program.entries.at(kEntry).results) {
    const TensorInfo &tensor = program.tensors[index];
    if (tensor.role != Role::output)
      continue;
    plans.push_back(planOutput(program, tensor, samples));
    items.push_back({tensor.name, tensor.type, plans.back().shape});
  }
  NpyWriter writer(output, std::move(items));
  Batcher batcher(program, data, device);
  std::vector<int64_t> order(static_cast<size_t>(samples));
  epochOrder(0, 0, false, order);
  for (int64_t first = 0; first < samples; first += program.batch) {
    int64_t count = std::min(program.batch, samples - first);
    batcher.fill(order.data() + first, count, 0, 0);
    device.run(kEntry);
    for (size_t i = 0; i < plans.size(); ++i) {
      device.read(*plans[i].tensor, plans[i].batch.data());
      take(plans[i], i, first, count, samples, program.batch, writer);
    }
  }
  for (size_t i = 0; i < plans.size(); ++i)
    if (plans[i].outer > 1)
      writer.append(i, plans[i].whole.data(), static_cast<size_t>(elementCount(plans[i].shape)));
  writer.commit();
}
