//===- Dimensions.cpp - static shapes for the inputs ----------------------===//
//
// Everything is sized at compile time, so every dimension of an input gets a number: the
// first dynamic one is the batch, and so is every other with its name; those without a name
// are the batch where they stand on its axis. The rest is bound by name.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "compiler/ops/Build.h"

using namespace mpc;
using namespace mpc::import;
using llvm::Twine;

namespace {

class DimensionBinder {
public:
  DimensionBinder(OnnxModel &model, const ImportOptions &options, BatchAxes &batch,
                  Problems &problems)
      : model(model), graph(*model.proto.mutable_graph()), options(options), batch(batch),
        problems(problems) {}
  bool run();

private:
  using Dim = onnx::TensorShapeProto::Dimension;
  static bool isDynamic(const Dim &dim) { return !dim.has_dim_value(); }
  bool checkTypes();
  bool findBatch();
  bool isBatch(const Dim &dim, int axis) const {
    return hasDynamicBatch && isDynamic(dim) &&
           (dim.dim_param().empty() ? axis == batchAxis : dim.dim_param() == batchSymbol);
  }
  std::optional<int64_t> named(const onnx::ValueInfoProto &input, int axis, const Dim &dim);
  void bindInput(onnx::ValueInfoProto &input);
  void clearInferred();

  OnnxModel &model;
  onnx::GraphProto &graph;
  const ImportOptions &options;
  BatchAxes &batch;
  Problems &problems;
  std::vector<onnx::ValueInfoProto *> inputs;
  bool hasDynamicBatch = false;
  std::string batchSymbol;
  int batchAxis = 0;
  std::set<std::string> used; ///< names of --dim that some dimension has
};

} // namespace

bool DimensionBinder::checkTypes() {
  for (const onnx::ValueInfoProto *input : trueInputs(graph)) {
    std::string name = "input '" + input->name() + "' ";
    if (!input->type().has_tensor_type())
      problems.addUnsupported(name + "is not a tensor; inputs must be tensors");
    else if (elementBytes(input->type().tensor_type().elem_type()) == 0)
      problems.addUnsupported(name + "has elements of type " +
                              elementTypeName(input->type().tensor_type().elem_type()) +
                              ", which is not supported");
    else
      inputs.push_back(const_cast<onnx::ValueInfoProto *>(input));
    for (const Dim &dim : input->type().tensor_type().shape().dim())
      if (dim.has_dim_value() && dim.dim_value() < 0)
        problems.add(name + "has a negative dimension (" + Twine(dim.dim_value()) + ")");
  }
  return problems.none();
}

/// The number --dim gives for a dimension.
std::optional<int64_t> DimensionBinder::named(const onnx::ValueInfoProto &input, int axis,
                                              const Dim &dim) {
  for (const std::string &name : {dim.dim_param(), input.name() + ":" + std::to_string(axis)})
    if (auto found = options.dims.find(name); !name.empty() && found != options.dims.end()) {
      used.insert(name);
      return found->second;
    }
  return std::nullopt;
}

bool DimensionBinder::findBatch() {
  for (onnx::ValueInfoProto *input : inputs) {
    const auto &dims = input->type().tensor_type().shape().dim();
    for (int axis = 0; axis < dims.size() && !hasDynamicBatch; ++axis) {
      if (!isDynamic(dims[axis]))
        continue;
      hasDynamicBatch = batch.dynamic = true;
      batchSymbol = dims[axis].dim_param();
      batchAxis = axis;
      std::optional<int64_t> value = named(*input, axis, dims[axis]);
      if (options.batch && value && *options.batch != *value)
        return problems.add("--batch=" + Twine(*options.batch) + " and --dim give axis " +
                            Twine(axis) + " of input '" + input->name() + "' different sizes");
      if (options.batch)
        value = options.batch;
      if (!value)
        return problems.add("input '" + input->name() + "': axis " + Twine(axis) + " is dynamic" +
                            (batchSymbol.empty() ? Twine("") : " ('" + Twine(batchSymbol) + "')") +
                            ": give its size with --batch=N");
      batch.batch = *value;
    }
  }
  if (hasDynamicBatch)
    return true;
  // Every dimension is fixed: the batch is the first of the first input that has one.
  for (onnx::ValueInfoProto *input : inputs) {
    const auto &dims = input->type().tensor_type().shape().dim();
    if (dims.empty())
      continue;
    batch.batch = dims[0].dim_value();
    if (options.batch && *options.batch != batch.batch)
      return problems.add("--batch=" + Twine(*options.batch) +
                          ", but the model's batch is fixed: axis 0 of input '" + input->name() +
                          "' is " + Twine(batch.batch) +
                          "; export it with a dynamic batch, or leave the option out");
    return true;
  }
  batch.batch = options.batch.value_or(1);
  return true;
}

void DimensionBinder::bindInput(onnx::ValueInfoProto &input) {
  auto &dims = *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim();
  bool hasAxis = false;
  std::vector<int64_t> shape;
  for (int axis = 0; axis < dims.size(); ++axis) {
    Dim &dim = dims[axis];
    bool batched =
        isBatch(dim, axis) || (!hasDynamicBatch && axis == 0 && dim.dim_value() == batch.batch);
    if (batched && !hasAxis) {
      batch.axes.push_back({input.name(), axis});
      hasAxis = true;
    }
    if (isDynamic(dim)) {
      std::optional<int64_t> value =
          isBatch(dim, axis) ? std::optional(batch.batch) : named(input, axis, dim);
      if (!value) {
        std::string key =
            dim.dim_param().empty() ? input.name() + ":" + std::to_string(axis) : dim.dim_param();
        problems.add("input '" + input.name() + "': axis " + Twine(axis) + " is dynamic" +
                     (dim.dim_param().empty() ? Twine("") : " ('" + Twine(dim.dim_param()) + "')") +
                     ": give its size with --dim " + key + "=N");
        value = 1;
      }
      dim.set_dim_value(*value);
    }
    shape.push_back(dim.dim_value());
  }
  int64_t count = elementCount(shape);
  if (count < 0 || count > kMostElements)
    problems.add("input '" + input.name() + "' has an absurd number of elements");
}

/// What the file says of other values' shapes is inferred again, but for operators that ONNX does
/// not know.
void DimensionBinder::clearInferred() {
  llvm::StringSet<> foreign;
  for (const onnx::NodeProto &node : graph.node())
    if (!node.domain().empty())
      for (const std::string &output : node.output())
        foreign.insert(output);
  llvm::StringMap<int64_t> symbols;
  if (!batchSymbol.empty())
    symbols[batchSymbol] = batch.batch;
  for (const auto &[name, value] : options.dims)
    symbols[name] = value;
  auto bind = [&](onnx::ValueInfoProto &info) {
    if (info.type().has_tensor_type() && info.type().tensor_type().has_shape())
      for (Dim &dim : *info.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
        if (dim.has_dim_param()) {
          auto found = symbols.find(dim.dim_param());
          dim.clear_value();
          if (found != symbols.end())
            dim.set_dim_value(found->second);
        }
  };
  google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> kept;
  for (onnx::ValueInfoProto &info : *graph.mutable_value_info())
    if (foreign.contains(info.name())) {
      bind(info);
      kept.Add()->Swap(&info);
    }
  graph.mutable_value_info()->Swap(&kept);
  for (onnx::ValueInfoProto &output : *graph.mutable_output())
    if (foreign.contains(output.name()))
      bind(output);
    else if (output.type().has_tensor_type())
      output.mutable_type()->mutable_tensor_type()->clear_shape();
}

bool DimensionBinder::run() {
  if (options.batch && *options.batch < 1)
    return problems.add("--batch=" + Twine(*options.batch) + ": a batch has at least one sample");
  for (const auto &[name, value] : options.dims)
    if (value < 1)
      problems.add("--dim " + name + "=" + Twine(value) + ": a dimension has at least one element");
  if (!problems.none() || !checkTypes() || !findBatch())
    return false;
  for (onnx::ValueInfoProto *input : inputs)
    bindInput(*input);
  for (const auto &[name, value] : options.dims)
    if (!used.count(name) && name != batchSymbol)
      problems.add("--dim " + name + ": no input of the model has a dimension of that name");
  if (!problems.none())
    return false;
  // Initializers that a legacy file lists as inputs are none from here on.
  google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> kept;
  for (onnx::ValueInfoProto *input : inputs)
    kept.Add()->Swap(input);
  graph.mutable_input()->Swap(&kept);
  model.proto.set_ir_version(std::max<int64_t>(model.proto.ir_version(), 8));
  clearInferred();
  return true;
}

bool mpc::import::bindDimensions(OnnxModel &model, const ImportOptions &options, BatchAxes &batch,
                                 Problems &problems) {
  return DimensionBinder(model, options, batch, problems).run();
}
