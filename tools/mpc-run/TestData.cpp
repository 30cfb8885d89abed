//===- TestData.cpp - ONNX backend-test folders ----------------------------------------------===//

#include "TestData.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <onnx/onnx_pb.h>
#include <set>

using namespace mpc;
namespace fs = std::filesystem;

namespace {

std::string contents(const fs::path &path) {
  MappedFile file(path.string()); // no folder, no pipe, no endless device
  return {reinterpret_cast<const char *>(file.data()), file.size()};
}

std::optional<FileType> fileType(int type) {
  using onnx::TensorProto;
  switch (type) {
  case TensorProto::FLOAT:
    return FileType::f32;
  case TensorProto::DOUBLE:
    return FileType::f64;
  case TensorProto::FLOAT16:
    return FileType::f16;
  case TensorProto::BFLOAT16:
    return FileType::bf16;
  case TensorProto::INT64:
    return FileType::i64;
  case TensorProto::INT32:
    return FileType::i32;
  case TensorProto::INT16:
    return FileType::i16;
  case TensorProto::INT8:
    return FileType::i8;
  case TensorProto::UINT64:
    return FileType::u64;
  case TensorProto::UINT32:
    return FileType::u32;
  case TensorProto::UINT16:
    return FileType::u16;
  case TensorProto::UINT8:
    return FileType::u8;
  case TensorProto::BOOL:
    return FileType::b1;
  default:
    return std::nullopt;
  }
}

/// Typed fields hold one 32- or 64-bit number per element, whatever its type.
template <typename Field> std::vector<unsigned char> narrowed(const Field &field, size_t width) {
  if (width > sizeof(field.Get(0)))
    return {}; // a field of another type: the caller tells that its size is wrong
  std::vector<unsigned char> bytes(field.size() * width);
  for (int i = 0; i < field.size(); ++i) {
    auto value = field.Get(i);
    std::memcpy(bytes.data() + i * width, &value, width);
  }
  return bytes;
}

std::optional<Array> arrayOf(const onnx::TensorProto &tensor, const std::string &source) {
  std::optional<FileType> type = fileType(tensor.data_type());
  if (!type)
    return std::nullopt;
  std::vector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  (void)checkedElements(shape, source);
  size_t width = fileTypeSize(*type), wanted = size_t(elementCount(shape)) * width;
  std::vector<unsigned char> bytes;
  if (tensor.has_raw_data())
    bytes.assign(tensor.raw_data().begin(), tensor.raw_data().end());
  else if (tensor.float_data_size())
    bytes = narrowed(tensor.float_data(), width);
  else if (tensor.double_data_size())
    bytes = narrowed(tensor.double_data(), width);
  else if (tensor.int64_data_size())
    bytes = narrowed(tensor.int64_data(), width);
  else if (tensor.uint64_data_size())
    bytes = narrowed(tensor.uint64_data(), width);
  else
    bytes = narrowed(tensor.int32_data(), width);
  if (bytes.size() != wanted)
    throw Error(source + ": the tensor has " + std::to_string(bytes.size()) +
                " bytes of data, its shape needs " + std::to_string(wanted));
  return Array::make(*type, shape, std::move(bytes), source);
}

/// PREFIX_0.pb, PREFIX_1.pb, …
std::vector<TestValue> readValues(const fs::path &folder, const std::string &prefix,
                                  const std::vector<int> &types) {
  std::vector<TestValue> values;
  for (int i = 0;; ++i) {
    fs::path path = folder / (prefix + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(path))
      return values;
    onnx::TensorProto tensor;
    TestValue value;
    int type = size_t(i) < types.size() ? types[i] : 0;
    if (type != 0 && !tensor.ParseFromString(contents(path)))
      throw Error(path.string() + " is not a tensor in ONNX's form");
    if (type != 0) {
      // Older test data hold bfloat16 values as the 16-bit integers of their bits.
      if (type == onnx::TensorProto::BFLOAT16 && tensor.data_type() == onnx::TensorProto::UINT16)
        tensor.set_data_type(type);
      value.name = tensor.name();
      value.array = arrayOf(tensor, path.string());
    }
    values.push_back(std::move(value));
  }
}

} // namespace

std::vector<TestSet> mpc::readTestSets(const std::string &folder, const GraphNames &graph) {
  std::error_code code;
  std::vector<TestSet> sets;
  for (const auto &entry : fs::directory_iterator(folder, code))
    if (entry.path().filename().string().rfind("test_data_set_", 0) == 0)
      sets.push_back({entry.path().string(), {}, {}});
  if (code)
    throw Error("cannot read the folder " + folder + ": " + code.message());
  if (sets.empty())
    throw Error(folder + " holds no test_data_set_* folder");
  std::sort(sets.begin(), sets.end(),
            [](const TestSet &a, const TestSet &b) { return a.folder < b.folder; });
  for (TestSet &set : sets) {
    set.inputs = readValues(set.folder, "input", graph.inputTypes);
    set.outputs = readValues(set.folder, "output", graph.outputTypes);
  }
  return sets;
}

GraphNames mpc::readGraphNames(const std::string &model) {
  onnx::ModelProto proto;
  if (!proto.ParseFromString(contents(model)))
    throw Error(model + " is not an ONNX file");
  std::set<std::string> initializers;
  for (const auto &tensor : proto.graph().initializer())
    initializers.insert(tensor.name());
  GraphNames names;
  auto elementType = [](const onnx::ValueInfoProto &value) {
    return value.type().has_tensor_type() ? value.type().tensor_type().elem_type() : 0;
  };
  for (const auto &input : proto.graph().input())
    if (!initializers.count(input.name())) {
      names.inputs.push_back(input.name());
      names.inputTypes.push_back(elementType(input));
    }
  for (const auto &output : proto.graph().output()) {
    names.outputs.push_back(output.name());
    names.outputTypes.push_back(elementType(output));
  }
  for (const auto &node : proto.graph().node())
    for (const auto &attribute : node.attribute())
      if (attribute.name() == "training_mode" && attribute.i() == 1)
        names.trainingNode = node.op_type();
  return names;
}
