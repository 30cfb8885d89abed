//===- Shapes.cpp - ONNX shape inference ----------------------------------===//
//
// Not strict: a node whose shape cannot be inferred is left without one, since the
// conversion computes static shapes itself and reports what it cannot do.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include <new>
#include <onnx/shape_inference/implementation.h>

using namespace mpc;
using namespace mpc::import;
using llvm::Twine;

namespace {

/// Takes the statistics of LayerNormalization nodes away and gives them back: ONNX writes their
/// shapes at `axis` without a look at whether there is such an axis.
class HiddenStatistics {
public:
  explicit HiddenStatistics(onnx::GraphProto &graph) { hide(graph); }
  ~HiddenStatistics() {
    for (auto &[node, outputs] : hidden)
      *node->mutable_output() = outputs;
  }

private:
  void hide(onnx::GraphProto &graph) {
    for (onnx::NodeProto &node : *graph.mutable_node()) {
      if (node.op_type() == "LayerNormalization" && node.output_size() > 1) {
        hidden.push_back({&node, node.output()});
        node.mutable_output()->DeleteSubrange(1, node.output_size() - 1);
      }
      for (onnx::AttributeProto &attribute : *node.mutable_attribute())
        if (attribute.has_g())
          hide(*attribute.mutable_g());
    }
  }
  std::vector<std::pair<onnx::NodeProto *, google::protobuf::RepeatedPtrField<std::string>>> hidden;
};

} // namespace

bool mpc::import::inferShapes(OnnxModel &model, Problems &problems) {
  HiddenStatistics statistics(*model.proto.mutable_graph());
  onnx::shape_inference::DataValueMap values;
  try {
    onnx::shape_inference::InferShapes(model.proto, onnx::OpSchemaRegistry::Instance(),
                                       onnx::ShapeInferenceOptions(false, 0, true), &values);
  } catch (const std::bad_alloc &) {
    return problems.add("has sizes for which shape inference needs more memory than there is");
  } catch (const std::exception &problem) {
    return problems.add("its shapes contradict one another: " + Twine(problem.what()));
  }
  return true;
}
