//===- Grad.cpp - gradients of one batch ---------------------------------------------===//

#include "runtime/train/Grad.h"
#include "runtime/core/Error.h"
#include "runtime/data/Batcher.h"
#include "runtime/data/Npy.h"
#include "runtime/data/Shuffle.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/Eval.h"
#include <algorithm>
#include <cstring>

using namespace mpc;

namespace {

struct Gradient {
  std::string name;
  const TensorInfo *tensor;
  std::vector<unsigned char> bytes;

  template <typename T> bool divide(double scale) {
    bool finite = true;
    for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
      T value;
      memcpy(&value, bytes.data() + i, sizeof(T));
      finite = finite && std::isfinite(value);
      value = static_cast<T>(value / static_cast<T>(scale));
      memcpy(bytes.data() + i, &value, sizeof(T));
    }
    return finite;
  }
  /// Unscales; false where the scaled gradient is not finite everywhere.
  bool unscale(double scale) {
    return tensor->type == ElementType::f64 ? divide<double>(scale) : divide<float>(scale);
  }
};

/// Gradients of the parameters, in program order. Names that would collide with `loss` and
/// `loss_scale` get a suffix, as unmerged parameters do.
std::vector<Gradient> gradientsOf(const Program &program) {
  std::vector<Gradient> result;
  for (uint32_t index : program.all(Role::gradient)) {
    const TensorInfo &tensor = program.tensors[index];
    if (tensor.type != ElementType::f32 && tensor.type != ElementType::f64)
      throw Error("compiled program: the gradient of " + quote(tensor.name) + " is no f32 or f64");
    bool taken = tensor.name == "loss" || tensor.name == "loss_scale";
    result.push_back(
        {tensor.name + (taken ? "__2" : ""), &tensor, std::vector<unsigned char>(tensor.bytes())});
  }
  return result;
}

} // namespace

void mpc::grad(const Program &program, Device &device, const DatasetSpec &inputs, uint64_t seed,
               double scale, const std::string &output) {
  static const std::string kEntry = "gradients";
  requireEntry(program, kEntry, "grad");
  Dataset data = Dataset::load(inputs, program, inputsOf(program, {kEntry}), false);
  int64_t samples = data.samples();
  if (samples > program.batch)
    throw Error("grad runs one batch of at most " + std::to_string(program.batch) +
                " samples; the files have " + std::to_string(samples));
  requireWholeBatches(program, samples, "Give a whole batch");
  Batcher batcher(program, data, device);
  std::vector<int64_t> order(static_cast<size_t>(samples));
  epochOrder(0, 0, false, order);
  batcher.fill(order.data(), samples, seed, 0);
  if (int index = program.find(Role::random_state); index >= 0) {
    int64_t values[2] = {static_cast<int64_t>(seed), 0};
    device.write(program.tensors[static_cast<size_t>(index)], values);
  }

  Scalar lossScale(program, device, Role::loss_scale), loss(program, device, Role::loss),
      count(program, device, Role::count);
  std::vector<Gradient> gradients = gradientsOf(program);
  while (true) {
    lossScale.setReal(scale);
    resetWorkingStatistics(program, device); // the forward pass updates the copy
    device.run(kEntry);
    const Gradient *bad = nullptr;
    for (Gradient &gradient : gradients) {
      device.read(*gradient.tensor, gradient.bytes.data());
      if (!gradient.unscale(lossScale.real(1)) && !bad)
        bad = &gradient;
    }
    if (!bad)
      break;
    if (program.precision != "fp16") {
      warn("the gradient of " + quote(bad->name) + " is not finite");
      break;
    }
    if (scale <= 1)
      throw Error("grad: the gradient of " + quote(bad->name) +
                  " is not finite at loss scale 1: compile with --precision=bf16, or with "
                  "--keep-fp32 for its layer");
    scale = std::max(scale / 2, 1.0);
  }

  bool counts = count.real(1) != 0;
  if (!counts)
    warn("no label of the batch counts (all are the ignored one, " +
         std::to_string(program.ignore_index) + "): the loss is NaN, the gradients are 0");
  int lossIndex = program.find(Role::loss);
  ElementType real =
      lossIndex >= 0 ? program.tensors[static_cast<size_t>(lossIndex)].type : ElementType::f32;
  std::vector<NpyWriter::Item> items = {{"loss", real, {}}, {"loss_scale", real, {}}};
  for (const Gradient &gradient : gradients)
    items.push_back({gradient.name, gradient.tensor->type, gradient.tensor->shape});
  NpyWriter writer(output, items);
  unsigned char bytes[8];
  double values[2] = {counts ? loss.real() : std::nan(""), lossScale.real(1)};
  for (size_t i = 0; i < 2; ++i) {
    convertReals(ElementType::f64, &values[i], real, bytes, 1);
    writer.append(i, bytes, 1);
  }
  for (size_t i = 0; i < gradients.size(); ++i)
    writer.append(i + 2, gradients[i].bytes.data(),
                  static_cast<size_t>(gradients[i].tensor->elements()));
  writer.commit();
}
