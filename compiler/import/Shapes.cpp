//===- Shapes.cpp - ONNX shape inference ----------------------------------===//
//
// Not strict: a node whose shape cannot be inferred is left without one, since the
// conversion computes static shapes itself and reports what it cannot do.
//
// To follow shape arithmetic ONNX writes every element of a vector down, also of one that
// is no shape but data: of a vector of 10⁹ elements too, which no memory holds. So it is
// given schemas that do not look at long vectors.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include <memory>
#include <new>
#include <onnx/shape_inference/implementation.h>

using namespace mpc;
using namespace mpc::import;
using llvm::Twine;

namespace {

constexpr int64_t kLongestShape = 4096;

class ShapeSchemas : public onnx::ISchemaRegistry {
public:
  const onnx::OpSchema *GetSchema(const std::string &op, int version,
                                  const std::string &domain) const override {
    const onnx::OpSchema *schema =
        onnx::OpSchemaRegistry::Instance()->GetSchema(op, version, domain);
    if (!schema || !schema->has_data_propagation_function())
      return schema;
    std::unique_ptr<onnx::OpSchema> &copy = copies[schema];
    if (!copy) {
      copy = std::make_unique<onnx::OpSchema>(*schema);
      copy->PartialDataPropagationFunction(
          [follow = schema->GetDataPropagationFunction()](onnx::DataPropagationContext &context) {
            for (size_t i = 0; i < context.getNumInputs(); ++i)
              if (isLongVector(context.getInputType(i)))
                return;
            follow(context);
          });
    }
    return copy.get();
  }

private:
  static bool isLongVector(const onnx::TypeProto *type) {
    if (!type || !type->has_tensor_type() || type->tensor_type().shape().dim_size() != 1)
      return false;
    return type->tensor_type().shape().dim(0).dim_value() > kLongestShape;
  }
  mutable std::map<const onnx::OpSchema *, std::unique_ptr<onnx::OpSchema>> copies;
};

} // namespace

bool mpc::import::inferShapes(OnnxModel &model, Problems &problems) {
  ShapeSchemas schemas;
  onnx::shape_inference::DataValueMap values;
  try {
    onnx::shape_inference::InferShapes(model.proto, &schemas,
                                       onnx::ShapeInferenceOptions(false, 0, true), &values);
  } catch (const std::bad_alloc &) {
    return problems.add("has sizes for which shape inference needs more memory than there is");
  } catch (const std::exception &problem) {
    return problems.add("its shapes contradict one another: " + Twine(problem.what()));
  }
  return true;
}
