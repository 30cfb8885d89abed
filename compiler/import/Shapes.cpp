//===- Shapes.cpp - ONNX shape inference ----------------------------------===//
//
// Not strict: a node whose shape cannot be inferred is left without one, since the
// conversion computes static shapes itself and reports what it cannot do.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include <onnx/shape_inference/implementation.h>

using namespace mpc;
using namespace mpc::import;
using llvm::Twine;

bool mpc::import::inferShapes(OnnxModel &model, Problems &problems) {
  onnx::shape_inference::DataValueMap values;
  try {
    onnx::shape_inference::InferShapes(model.proto, onnx::OpSchemaRegistry::Instance(),
                                       onnx::ShapeInferenceOptions(false, 0, true), &values);
  } catch (const std::exception &problem) {
    return problems.add("its shapes contradict one another: " + Twine(problem.what()));
  }
  return true;
}
