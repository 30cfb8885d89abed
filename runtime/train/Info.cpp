//===- Info.cpp - what a trainer is --------------------------------------------------===//

#include "runtime/train/Info.h"
#include "runtime/cpu/Memory.h"
#include "runtime/data/Dataset.h"
#include "runtime/train/Progress.h"
#include <algorithm>

using namespace mpc;

namespace {

/// "[samples, 1, 28, 28]"
std::string shapeOf(const Program &program, const TensorInfo &tensor) {
  bool isOfSamples = tensor.role != Role::parameter && tensor.role != Role::statistic;
  int axis = isOfSamples ? batchAxis(program, tensor) : -1;
  if (auto known = program.output_samples.find(tensor.name);
      tensor.role == Role::output && known != program.output_samples.end())
    axis = known->second.blocks == 1 ? static_cast<int>(known->second.axis) : -1;
  std::string text;
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    text += (d ? ", " : "") +
            (static_cast<int>(d) == axis ? "samples" : std::to_string(tensor.shape[d]));
  return "[" + text + "]";
}

void listTensors(const Program &program, const char *title, Role role, std::string &text) {
  std::vector<uint32_t> tensors = program.all(role);
  if (tensors.empty())
    return;
  size_t width = 0;
  for (uint32_t index : tensors)
    width = std::max(width, program.tensors[index].name.size());
  text += title;
  text += '\n';
  for (uint32_t index : tensors) {
    const TensorInfo &tensor = program.tensors[index];
    std::string name = tensor.name;
    name.resize(std::max(width, name.size()), ' ');
    text += "  " + name + "  " + elementTypeName(tensor.type) + " " + shapeOf(program, tensor);
    auto limit = program.index_limit.find(tensor.name);
    if (role == Role::input && limit != program.index_limit.end())
      text += "  indices below " + std::to_string(limit->second);
    text += '\n';
  }
}

/// "sm_80, sm_90, PTX of sm_80"
std::string imagesText(const Program &program) {
  std::string text;
  for (const ProgramImage &image : program.images) {
    const char *kind = image.kind == ProgramImage::Kind::ptx         ? "PTX of "
                       : image.kind == ProgramImage::Kind::simulator ? "simulator of "
                                                                     : "";
    text +=
        (text.empty() ? "" : ", ") + std::string(kind) + "sm_" + std::to_string(image.architecture);
  }
  return text;
}

} // namespace

std::string mpc::infoText(const Program &program) {
  std::string text = "model       " + program.model_name + "\n";
  text += "precision   " + program.precision;
  if (program.loss_scale_mode != "none" && !program.loss_scale_mode.empty())
    text += ", loss scale " + program.loss_scale_mode;
  text += "\nloss        " + (program.loss.empty() ? "none" : program.loss);
  if (program.classes > 0)
    text += ", " + std::to_string(program.classes) + " classes, labels of " +
            std::to_string(program.ignore_index) + " are left out";
  if (program.entries.count("apply"))
    text += "\noptimizer   " + program.optimizer;
  text += "\ntarget      " + program.target + ", " +
          (program.images.empty() ? program.cpu : imagesText(program));
  text += "\nbatch       " + std::to_string(program.batch);
  if (!program.tail_refused_why.empty())
    text += " (no smaller last batch: " + program.tail_refused_why + ")";
  int64_t values = 0;
  std::vector<uint32_t> parameters = program.all(Role::parameter);
  for (uint32_t index : parameters)
    values += program.tensors[index].elements();
  text += "\nparameters  " + std::to_string(parameters.size()) + " with " + std::to_string(values) +
          " values\n";

  listTensors(program, "inputs", Role::input, text);
  listTensors(program, "labels", Role::labels, text);
  listTensors(program, "outputs", Role::output, text);
  listTensors(program, "parameters", Role::parameter, text);
  listTensors(program, "statistics", Role::statistic, text);

  uint64_t total = 0;
  text += "memory\n";
  for (size_t r = 0; r < kRegionCount; ++r) {
    Region region = static_cast<Region>(r);
    std::string name = regionName(region);
    bool optional = region == Region::accumulators;
    if (!optional)
      total += program.region_bytes[r];
    name.resize(12, ' ');
    text += "  " + name + "  " + cpu::bytesText(program.region_bytes[r]) +
            (optional ? " (only with --accumulate)" : "") + "\n";
  }
  text += "  together      " + cpu::bytesText(total) + " and the library's scratch\n";
  if (!program.left_out.empty())
    text += "floating-point initializers that are not trained\n";
  for (const std::string &reason : program.left_out)
    text += "  " + reason + "\n";
  if (!program.notes.empty())
    text += "notes\n";
  for (const std::string &note : program.notes)
    text += "  " + note + "\n";
  text += "built by mpc " + program.compiler_version;
  if (!program.build_facts.empty())
    text += " (" + program.build_facts + ")";
  return text + "\n";
}

std::string mpc::checkpointText(const CheckpointFile &file) {
  const RunState &state = file.state();
  std::string text = "checkpoint " + quote(file.path()) + "\n";
  text += "  step " + std::to_string(state.step) + ", of these applied " +
          std::to_string(state.applied_steps) + "; in epoch " + std::to_string(state.epoch + 1) +
          " after " + std::to_string(state.position) + " of " + std::to_string(state.samples) +
          " samples\n  " + printable(state.precision) + ", " + printable(state.optimizer) +
          ", batch " + std::to_string(state.batch);
  if (state.loss_scale_mode == "dynamic")
    text += ", loss scale " + numberText(state.loss_scale);
  if (std::isfinite(state.best_loss))
    text += ", best validation loss " + numberText(state.best_loss);
  for (const auto &[where, ways] : state.tuned)
    text += "\n  tuned for " + where.text() + ": " + std::to_string(ways.size()) +
            (ways.size() == 1 ? " choice" : " choices");
  return text + "\n";
}
