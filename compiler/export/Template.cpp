//===- Template.cpp - the model to export, with holes for the weights -----===//
//
// The runtime knows nothing of protobuf, so the file it will write is made here: the original
// model, read by the importer's own first stages (so names agree), turned into inference
// mode, with zeros where the trained tensors go. Their offsets are found in the serialized
// bytes.
//
//===----------------------------------------------------------------------===//

#include "compiler/export/Export.h"
#include "compiler/import/Model.h"
#include "compiler/import/WireFormat.h"
#include <onnx/checker.h>

using namespace mpc;
using namespace mpc::import;
using llvm::StringRef;
using llvm::Twine;

namespace {

constexpr uint64_t kProtobufLimit = (uint64_t(1) << 31) - 1;

llvm::Error error(const Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 "the model to export cannot be prepared: " + text);
}

StringRef typeName(int32_t onnxType) {
  switch (onnxType) {
  case onnx::TensorProto::DOUBLE:
    return "f64";
  case onnx::TensorProto::FLOAT16:
    return "f16";
  case onnx::TensorProto::BFLOAT16:
    return "bf16";
  default:
    return "f32";
  }
}

void removeAttribute(onnx::NodeProto &node, StringRef name) {
  auto &attributes = *node.mutable_attribute();
  for (int i = attributes.size(); i-- > 0;)
    if (attributes[i].name() == name)
      attributes.DeleteSubrange(i, 1);
}

bool isTrue(const onnx::NodeProto &node, StringRef name) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return attribute.i() != 0 || !attribute.ref_attr_name().empty();
  return false;
}

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

/// BatchNormalization and Dropout in inference mode, in a graph, its subgraphs, and functions.
class InferenceMode {
public:
  explicit InferenceMode(int64_t opset) : opset(opset) {}
  llvm::Error rewrite(Nodes &nodes) {
    Nodes result;
    for (onnx::NodeProto &node : nodes) {
      for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
        if (attribute.has_g())
          if (llvm::Error problem = rewrite(*attribute.mutable_g()->mutable_node()))
            return problem;
        for (onnx::GraphProto &graph : *attribute.mutable_graphs())
          if (llvm::Error problem = rewrite(*graph.mutable_node()))
            return problem;
      }
      Nodes added;
      if (node.domain().empty() && node.op_type() == "BatchNormalization")
        if (llvm::Error problem = batchNormalization(node, added))
          return problem;
      if (node.domain().empty() && node.op_type() == "Dropout")
        dropout(node);
      result.Add()->Swap(&node);
      for (onnx::NodeProto &extra : added)
        result.Add()->Swap(&extra);
    }
    nodes.Swap(&result);
    return llvm::Error::success();
  }

private:
  /// Y, running_mean, running_var = BatchNormalization(X, s, b, mean, var)  →  Y = …; running_mean
  /// = Identity(mean); …
  llvm::Error batchNormalization(onnx::NodeProto &node, Nodes &added) {
    if (opset >= 14)
      removeAttribute(node, "training_mode");
    else if (opset < 7 && !isTrue(node, "is_test")) {
      removeAttribute(node, "is_test");
      onnx::AttributeProto &attribute = *node.add_attribute();
      attribute.set_name("is_test");
      attribute.set_type(onnx::AttributeProto::INT);
      attribute.set_i(1);
    }
    for (int i = 1; i < node.output_size(); ++i) {
      if (node.output(i).empty())
        continue;
      // Before opset 14 outputs 3 and 4 repeat the statistics of the batch, which inference has
      // not: the running ones stand in.
      int input = (i - 1) % 2 + 3;
      if (input >= node.input_size())
        return error("node '" + node.name() + "' (BatchNormalization): output " + Twine(i) +
                     " has no statistic that corresponds to it");
      onnx::NodeProto &identity = *added.Add();
      identity.set_op_type("Identity");
      identity.set_name(node.output(i) + "_running");
      identity.add_input(node.input(input));
      identity.add_output(node.output(i));
    }
    while (node.output_size() > 1)
      node.mutable_output()->RemoveLast();
    return llvm::Error::success();
  }

  void dropout(onnx::NodeProto &node) {
    if (opset >= 12) {
      while (node.input_size() > 2)
        node.mutable_input()->RemoveLast();
    } else if (opset < 7) {
      removeAttribute(node, "is_test");
      onnx::AttributeProto &attribute = *node.add_attribute();
      attribute.set_name("is_test");
      attribute.set_type(onnx::AttributeProto::INT);
      attribute.set_i(1);
    }
  }

  int64_t opset;
};

/// An Identity that nothing reads stands for a statistic nobody asked for.
void dropUnusedIdentities(onnx::GraphProto &graph) {
  Uses uses(graph);
  Nodes kept;
  for (onnx::NodeProto &node : *graph.mutable_node()) {
    bool added =
        node.op_type() == "Identity" && StringRef(node.name()) == node.output(0) + "_running";
    if (!added || !uses.consumers(node.output(0)).empty() || uses.isOutput(node.output(0)))
      kept.Add()->Swap(&node);
  }
  graph.mutable_node()->Swap(&kept);
}

/// Whether the tensor's elements are in the protobuf and not in a mapped file.
bool hasData(const onnx::TensorProto &tensor) {
  return !tensor.raw_data().empty() || tensor.float_data_size() || tensor.int32_data_size() ||
         tensor.int64_data_size() || tensor.double_data_size() || tensor.uint64_data_size() ||
         tensor.string_data_size() || elementCount(tensor.dims()) == 0;
}

void clearData(onnx::TensorProto &tensor) {
  tensor.clear_float_data();
  tensor.clear_int32_data();
  tensor.clear_int64_data();
  tensor.clear_double_data();
  tensor.clear_uint64_data();
  tensor.clear_external_data();
  tensor.clear_data_location();
}

} // namespace

llvm::Expected<ExportTemplate> mpc::buildExportTemplate(StringRef path,
                                                        const llvm::StringMap<mlir::Type> &trained,
                                                        WeightStore &weights,
                                                        mlir::ModuleOp module) try {
  OnnxModel model;
  Problems problems;
  if (!loadModel(path, weights, model, problems))
    return error(problems.list.front().text);
  onnx::GraphProto &graph = *model.proto.mutable_graph();
  InferenceMode inference(model.opset(""));
  if (llvm::Error problem = inference.rewrite(*graph.mutable_node()))
    return problem;
  for (onnx::FunctionProto &function : *model.proto.mutable_functions())
    if (llvm::Error problem = inference.rewrite(*function.mutable_node()))
      return problem;
  dropUnusedIdentities(graph);

  uint64_t total = model.proto.ByteSizeLong();
  llvm::StringSet<> missing;
  for (const auto &entry : trained)
    missing.insert(entry.getKey());
  for (onnx::TensorProto &tensor : *graph.mutable_initializer()) {
    bool isTrained = missing.erase(tensor.name());
    if (!isTrained && hasData(tensor))
      continue;
    auto range = initializerData(model, tensor, weights);
    if (!range)
      return range.takeError();
    total += range->bytes;
    if (total > kProtobufLimit)
      return error("with its weights it has more than 2 GB, the most an ONNX file can hold");
    clearData(tensor);
    if (isTrained) {
      tensor.set_raw_data(std::string(range->bytes, '\0'));
      continue;
    }
    auto bytes = weights.bytes(range->file, range->offset, range->bytes);
    if (!bytes)
      return bytes.takeError();
    tensor.set_raw_data(bytes->data(), bytes->size());
  }
  if (!missing.empty())
    return error("'" + missing.begin()->getKey() + "' is no initializer of the model");
  onnx::checker::check_model(model.proto);

  ExportTemplate result;
  if (!model.proto.SerializeToString(&result.bytes))
    return error("protobuf cannot write it");
  std::vector<WireInitializer> places;
  if (scanInitializers(llvm::ArrayRef<char>(result.bytes.data(), result.bytes.size()), places,
                       nullptr, 0) != WireStatus::whole)
    return error("protobuf wrote it in a form that cannot be read");
  for (int i = 0; i < graph.initializer_size(); ++i) {
    const onnx::TensorProto &tensor = graph.initializer(i);
    if (trained.count(tensor.name()))
      result.holes.push_back({int64_t(places[i].offset), int64_t(places[i].bytes),
                              typeName(tensor.data_type()).str(), tensor.name()});
  }
  return result;
} catch (const std::exception &problem) { // the checker's, mostly
  return error(problem.what());
}
