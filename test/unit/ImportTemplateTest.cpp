//===- ImportTemplateTest.cpp - the model to export, with holes -----------===//

#include "compiler/export/Export.h"
#include "compiler/import/Import.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

using namespace mlir;
using namespace mpc;

namespace {

struct Exported {
  ExportTemplate file;
  ::onnx::ModelProto model;
  std::vector<std::string> holes;
};

/// Imports a model and makes its template; every parameter and statistic is a hole, filled with the
/// bytes 1, 2, 3, …
Exported exportModel(const char *name) {
  std::string path = std::string(MPC_TEST_DATA) + "/import/" + name;
  MLIRContext context;
  WeightStore store;
  ImportOptions options;
  options.batch = 2;
  auto module = importOnnx(path, options, store, context);
  Exported result;
  if (!module)
    return result;
  llvm::StringMap<Type> trained;
  func::FuncOp graph = *module->getOps<func::FuncOp>().begin();
  for (unsigned i = 0; i < graph.getNumArguments(); ++i) {
    StringRef role = graph.getArgAttrOfType<StringAttr>(i, MpcDialect::kRoleAttr).getValue();
    if (role == "parameter" || role == "statistic")
      trained[graph.getArgAttrOfType<StringAttr>(i, MpcDialect::kNameAttr).getValue()] =
          graph.getArgument(i).getType();
  }
  result.file = llvm::cantFail(buildExportTemplate(path, trained, store, *module));
  EXPECT_EQ(result.file.holes.size(), trained.size());
  char next = 0;
  for (const TemplateHole &hole : result.file.holes) {
    result.holes.push_back(hole.tensor);
    for (int64_t i = 0; i < hole.bytes; ++i) {
      EXPECT_EQ(result.file.bytes[hole.offset + i], 0);
      result.file.bytes[hole.offset + i] = ++next;
    }
  }
  EXPECT_TRUE(result.model.ParseFromString(result.file.bytes));
  return result;
}

const ::onnx::TensorProto &initializer(const Exported &exported, const std::string &name) {
  for (const ::onnx::TensorProto &tensor : exported.model.graph().initializer())
    if (tensor.name() == name)
      return tensor;
  ADD_FAILURE() << "no initializer " << name;
  return ::onnx::TensorProto::default_instance();
}

} // namespace

// What is written into a hole is the tensor's data when the file is read again.
TEST(ExportTemplate, HolesAreTheTensorsData) {
  Exported exported = exportModel("linear.onnx");
  EXPECT_EQ(exported.holes, (std::vector<std::string>{"w", "b"}));
  EXPECT_EQ(exported.file.holes[0].type, "f32");
  EXPECT_EQ(exported.file.holes[0].bytes, 24);
  EXPECT_EQ(initializer(exported, "w").raw_data().substr(0, 3), "\1\2\3");
  EXPECT_EQ(initializer(exported, "b").raw_data()[0], 25);
  // Dimensions stay dynamic.
  EXPECT_EQ(exported.model.graph().input(0).type().tensor_type().shape().dim(0).dim_param(), "N");
}

// bn, drop in training mode  →  inference mode; the graph output that was the running mean gives
// the trained one.
TEST(ExportTemplate, InferenceMode) {
  Exported exported = exportModel("training-mode.onnx");
  EXPECT_EQ(exported.holes, (std::vector<std::string>{"g", "b", "rm", "rv"}));
  const auto &nodes = exported.model.graph().node();
  ASSERT_EQ(nodes.size(), 3);
  EXPECT_EQ(nodes[0].op_type(), "BatchNormalization");
  EXPECT_EQ(nodes[0].output_size(), 1);
  EXPECT_EQ(nodes[0].attribute_size(), 0);
  EXPECT_EQ(nodes[1].op_type(), "Identity");
  EXPECT_EQ(nodes[1].input(0), "rm");
  EXPECT_EQ(nodes[1].output(0), "rm_out");
  EXPECT_EQ(nodes[2].op_type(), "Dropout");
  EXPECT_EQ(nodes[2].input_size(), 2);
}

// A typed field becomes raw data; initializers of a legacy file stay inputs too; what is not
// trained keeps its form.
TEST(ExportTemplate, LegacyFile) {
  std::string path = std::string(MPC_TEST_DATA) + "/import/legacy.onnx";
  MLIRContext context;
  WeightStore store;
  auto module = importOnnx(path, {}, store, context);
  ASSERT_TRUE(module);
  llvm::StringMap<Type> trained;
  trained["half"] = Float16Type::get(&context);
  ExportTemplate file = llvm::cantFail(buildExportTemplate(path, trained, store, *module));
  ASSERT_EQ(file.holes.size(), 1u);
  EXPECT_EQ(file.holes[0].type, "f16");
  EXPECT_EQ(file.holes[0].bytes, 4);
  ::onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(file.bytes));
  EXPECT_EQ(model.graph().input_size(), 4);
  EXPECT_EQ(model.graph().initializer(0).float_data_size(), 4);
  EXPECT_EQ(model.graph().initializer(1).int32_data_size(), 0);
}

// Parameters that were merged are initializers of their own, under the names the importer gave.
TEST(ExportTemplate, MergedParametersAreSeparate) {
  Exported exported = exportModel("merged-identity.onnx");
  EXPECT_EQ(exported.holes,
            (std::vector<std::string>{"n1.weight", "n1.bias", "n2.weight", "n2.bias"}));
  EXPECT_EQ(exported.model.graph().node_size(), 2);
  EXPECT_EQ(exported.model.graph().node(1).input(1), "n2.weight");
}

// External data are inside the exported file; a branch's initializer is found.
TEST(ExportTemplate, EverythingIsInside) {
  Exported external = exportModel("external.onnx");
  EXPECT_EQ(initializer(external, "w").data_location(), ::onnx::TensorProto::DEFAULT);
  EXPECT_EQ(initializer(external, "w").raw_data().size(), 24u);
  Exported branches = exportModel("if-open.onnx");
  EXPECT_EQ(branches.holes, (std::vector<std::string>{"W", "tb", "tb__2"}));
}

TEST(ExportTemplate, UnknownTensor) {
  std::string path = std::string(MPC_TEST_DATA) + "/import/fixed.onnx";
  MLIRContext context;
  WeightStore store;
  auto module = importOnnx(path, {}, store, context);
  ASSERT_TRUE(module);
  llvm::StringMap<Type> trained;
  trained["nobody"] = Float32Type::get(&context);
  auto file = buildExportTemplate(path, trained, store, *module);
  ASSERT_FALSE(bool(file));
  EXPECT_EQ(llvm::toString(file.takeError()),
            "the model to export cannot be prepared: 'nobody' is no initializer of the model");
}
