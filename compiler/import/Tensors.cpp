//===- Tensors.cpp - the bytes of a TensorProto ---------------------------===//
//
// An ONNX tensor has its elements as raw bytes, or in a typed field that is wider than they
// are (fp16 bits inside int32_data). Here both become row-major little-endian bytes.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/Support/Endian.h"
#include <cmath>
#include <cstring>

using namespace mpc;
using namespace mpc::import;
using llvm::ArrayRef;
using llvm::StringRef;
using llvm::Twine;
using onnx::TensorProto;

StringRef mpc::import::elementTypeName(int32_t onnxType) {
  if (!TensorProto::DataType_IsValid(onnxType))
    return "an unknown element type";
  return onnx::TensorProto_DataType_Name(static_cast<TensorProto::DataType>(onnxType));
}

int64_t mpc::import::elementBytes(int32_t onnxType) {
  switch (onnxType) {
  case TensorProto::BOOL:
  case TensorProto::INT8:
  case TensorProto::UINT8:
    return 1;
  case TensorProto::INT16:
  case TensorProto::UINT16:
  case TensorProto::FLOAT16:
  case TensorProto::BFLOAT16:
    return 2;
  case TensorProto::INT32:
  case TensorProto::UINT32:
  case TensorProto::FLOAT:
    return 4;
  case TensorProto::INT64:
  case TensorProto::UINT64:
  case TensorProto::DOUBLE:
    return 8;
  default:
    return 0;
  }
}

bool mpc::import::isFloatType(int32_t onnxType) {
  return onnxType == TensorProto::FLOAT || onnxType == TensorProto::DOUBLE ||
         onnxType == TensorProto::FLOAT16 || onnxType == TensorProto::BFLOAT16;
}

namespace {

llvm::Error error(const TensorProto &tensor, const Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 "tensor '" + tensor.name() + "': " + text);
}

/// The low bytes of each entry of a typed field.
template <typename Field> void narrow(const Field &field, int64_t width, std::vector<char> &out) {
  out.reserve(field.size() * width);
  for (auto value : field) {
    char bytes[8] = {};
    static_assert(sizeof value <= sizeof bytes);
    std::memcpy(bytes, &value, sizeof value);
    out.insert(out.end(), bytes, bytes + width);
  }
}

llvm::Expected<int64_t> checkedBytes(const TensorProto &tensor) {
  int64_t width = elementBytes(tensor.data_type());
  if (width == 0)
    return error(tensor, "has elements of type " + elementTypeName(tensor.data_type()) +
                             ", which is not supported");
  int64_t count = elementCount(tensor.dims());
  if (count < 0)
    return error(tensor, "has dimensions that are negative, or whose product is absurd");
  return count * width;
}

} // namespace

llvm::Expected<std::vector<char>> mpc::import::tensorBytes(const TensorProto &tensor) {
  auto size = checkedBytes(tensor);
  if (!size)
    return size.takeError();
  int64_t width = elementBytes(tensor.data_type());
  std::vector<char> out;
  if (tensor.has_raw_data() && !tensor.raw_data().empty())
    out.assign(tensor.raw_data().begin(), tensor.raw_data().end());
  else if (tensor.float_data_size())
    narrow(tensor.float_data(), width, out);
  else if (tensor.double_data_size())
    narrow(tensor.double_data(), width, out);
  else if (tensor.int64_data_size())
    narrow(tensor.int64_data(), width, out);
  else if (tensor.uint64_data_size())
    narrow(tensor.uint64_data(), width, out);
  else
    narrow(tensor.int32_data(), width, out);
  if (int64_t(out.size()) != *size)
    return error(tensor, "has " + Twine(int64_t(out.size()) / width) +
                             " elements of data, but its dimensions make " + Twine(*size / width));
  return out;
}

llvm::Expected<DataRange> mpc::import::initializerData(OnnxModel &model, const TensorProto &tensor,
                                                       WeightStore &weights) {
  auto size = checkedBytes(tensor);
  if (!size)
    return size.takeError();
  auto known = model.data.find(tensor.name());
  if (known != model.data.end()) {
    if (known->second.bytes != *size)
      return error(tensor, "has " + Twine(known->second.bytes) +
                               " bytes of data, but its dimensions and type make " + Twine(*size));
    return known->second;
  }
  auto bytes = tensorBytes(tensor);
  if (!bytes)
    return bytes.takeError();
  DataRange range{"", weights.append(*bytes), *size};
  model.data[tensor.name()] = range;
  return range;
}

llvm::Expected<ArrayRef<char>>
mpc::import::initializerBytes(OnnxModel &model, const TensorProto &tensor, WeightStore &weights) {
  auto range = initializerData(model, tensor, weights);
  if (!range)
    return range.takeError();
  return weights.bytes(range->file, range->offset, range->bytes);
}

double mpc::import::floatAt(ArrayRef<char> bytes, int32_t onnxType, int64_t i) {
  const char *at = bytes.data() + i * elementBytes(onnxType);
  switch (onnxType) {
  case TensorProto::DOUBLE: {
    double value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  case TensorProto::FLOAT: {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  default: {
    llvm::APFloat value(onnxType == TensorProto::FLOAT16 ? llvm::APFloat::IEEEhalf()
                                                         : llvm::APFloat::BFloat(),
                        llvm::APInt(16, llvm::support::endian::read16le(at)));
    return value.convertToFloat();
  }
  }
}

std::optional<std::pair<double, double>> mpc::import::magnitudes(ArrayRef<char> bytes,
                                                                 int32_t onnxType) {
  double smallest = std::numeric_limits<double>::infinity(), largest = 0;
  for (int64_t i = 0, count = int64_t(bytes.size()) / elementBytes(onnxType); i < count; ++i)
    if (double x = std::abs(floatAt(bytes, onnxType, i)); x > 0 && std::isfinite(x)) {
      smallest = std::min(smallest, x);
      largest = std::max(largest, x);
    }
  return largest > 0 ? std::optional(std::pair(smallest, largest)) : std::nullopt;
}

std::vector<int64_t> mpc::import::repeatedAxes(const TensorProto &tensor, ArrayRef<char> bytes,
                                               int64_t batch) {
  std::vector<int64_t> axes;
  size_t block = bytes.size(); // bytes of one index of the axes in front
  for (int64_t axis = 0; batch > 1 && block > 0 && axis < tensor.dims_size(); ++axis) {
    size_t slice = block / size_t(std::max<int64_t>(tensor.dims(int(axis)), 1));
    auto isRepeated = [&] {
      for (size_t at = 0; at < bytes.size(); at += slice)
        if (at % block != 0 && std::memcmp(&bytes[at], &bytes[at - slice], slice) != 0)
          return false;
      return true;
    };
    if (tensor.dims(int(axis)) == batch && isRepeated())
      axes.push_back(axis);
    block = slice;
  }
  return axes;
}

bool mpc::import::isUnsignedType(int32_t onnxType) {
  return onnxType == TensorProto::UINT8 || onnxType == TensorProto::UINT16 ||
         onnxType == TensorProto::UINT32 || onnxType == TensorProto::UINT64;
}

std::vector<char> mpc::import::widenUnsigned(ArrayRef<char> bytes, int32_t onnxType) {
  if (!isUnsignedType(onnxType) || onnxType == TensorProto::UINT64)
    return {bytes.begin(), bytes.end()};
  // Little-endian: zeros behind each element.
  int64_t width = elementBytes(onnxType);
  std::vector<char> wide(bytes.size() * 2);
  for (int64_t i = 0, count = bytes.size() / width; i < count; ++i)
    std::memcpy(&wide[2 * i * width], &bytes[i * width], width);
  return wide;
}

bool mpc::import::isUniform(ArrayRef<char> bytes, int32_t onnxType) {
  int64_t width = elementBytes(onnxType);
  // Equal to itself shifted by one element.
  return int64_t(bytes.size()) <= width ||
         std::memcmp(bytes.data(), bytes.data() + width, bytes.size() - width) == 0;
}
