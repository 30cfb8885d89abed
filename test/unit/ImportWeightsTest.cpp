//===- ImportWeightsTest.cpp - the bytes behind #mpc.weights --------------===//

#include "compiler/import/Import.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include <cstring>
#include <gtest/gtest.h>

using namespace mlir;
using namespace mpc;

namespace {

std::string data(const char *name) { return std::string(MPC_TEST_DATA) + "/import/" + name; }

/// The weights attribute of the argument of that name of @graph.
WeightsAttr weightsOf(ModuleOp module, StringRef name) {
  func::FuncOp graph = *module.getOps<func::FuncOp>().begin();
  for (unsigned i = 0; i < graph.getNumArguments(); ++i)
    if (graph.getArgAttrOfType<StringAttr>(i, MpcDialect::kNameAttr).getValue() == name)
      return graph.getArgAttrOfType<WeightsAttr>(i, MpcDialect::kWeightsAttr);
  return {};
}

template <typename T> std::vector<T> values(WeightStore &store, WeightsAttr weights) {
  llvm::ArrayRef<char> bytes = llvm::cantFail(store.bytes(weights));
  std::vector<T> result(bytes.size() / sizeof(T));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

OwningOpRef<ModuleOp> import(const char *name, std::optional<int64_t> batch, WeightStore &store,
                             MLIRContext &context) {
  ImportOptions options;
  options.batch = batch;
  return importOnnx(data(name), options, store, context);
}

} // namespace

// raw_data is read where it lies in the model file; the file has no particular alignment.
TEST(ImportWeights, RawDataOfTheModelFile) {
  MLIRContext context;
  WeightStore store;
  auto module = import("linear.onnx", 2, store, context);
  ASSERT_TRUE(module);
  EXPECT_EQ(values<float>(store, weightsOf(*module, "w")),
            (std::vector<float>{1 / 8.f, 2 / 8.f, 3 / 8.f, 4 / 8.f, 5 / 8.f, 6 / 8.f}));
  EXPECT_EQ(values<float>(store, weightsOf(*module, "b")), (std::vector<float>{1 / 8.f, 2 / 8.f}));
}

// Typed fields: floats as they are, fp16 as bits inside int32_data (0.5 and -1.25).
TEST(ImportWeights, TypedFieldsOfALegacyFile) {
  MLIRContext context;
  WeightStore store;
  auto module = import("legacy.onnx", std::nullopt, store, context);
  ASSERT_TRUE(module);
  EXPECT_EQ(values<float>(store, weightsOf(*module, "w")), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values<uint16_t>(store, weightsOf(*module, "half")),
            (std::vector<uint16_t>{0x3800, 0xbd00}));
}

TEST(ImportWeights, ExternalDataFromAnOffset) {
  MLIRContext context;
  WeightStore store;
  auto module = import("external.onnx", 2, store, context);
  ASSERT_TRUE(module);
  EXPECT_EQ(values<float>(store, weightsOf(*module, "w")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST(ImportWeights, OwnBufferIsAlignedAndStays) {
  WeightStore store;
  EXPECT_EQ(store.append({'a', 'b'}), 0);
  llvm::ArrayRef<char> first = llvm::cantFail(store.bytes("", 0, 2));
  EXPECT_EQ(store.append({'c'}), 64);
  for (int i = 0; i < 1000; ++i)
    store.append({'x', 'y', 'z'});
  EXPECT_EQ(first.data(), llvm::cantFail(store.bytes("", 0, 2)).data());
  EXPECT_EQ(llvm::cantFail(store.bytes("", 64, 1))[0], 'c');
}

TEST(ImportWeights, RangesOutsideAreErrors) {
  WeightStore store;
  store.append({'a', 'b'});
  for (auto [offset, size] : {std::pair<int64_t, int64_t>{0, 3},
                              {1, 2},
                              {-1, 1},
                              {0, -1},
                              {5, 1},
                              {INT64_MAX, 1},
                              {1, INT64_MAX}}) {
    auto bytes = store.bytes("", offset, size);
    EXPECT_FALSE(bool(bytes)) << offset << " " << size;
    llvm::consumeError(bytes.takeError());
  }
  auto missing = store.bytes(data("no such file"), 0, 1);
  EXPECT_NE(llvm::toString(missing.takeError()).find("No such file"), std::string::npos);
}
