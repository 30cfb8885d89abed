//===- WireFormat.cpp - protobuf's bytes without protobuf -----------------===//
//
// Field numbers are those of onnx.proto: ModelProto.graph 7, GraphProto.initializer 5,
// TensorProto.raw_data 9. A message field that occurs twice is merged by protobuf:
// initializers then follow one another, which is what walking in order gives.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/WireFormat.h"

using namespace mpc::import;
using llvm::ArrayRef;

namespace {

constexpr uint32_t kGraph = 7, kInitializer = 5, kRawData = 9, kDelimited = 2;

/// Reads a varint at `position`; false at the end of the message or beyond 10 bytes.
bool readVarint(ArrayRef<char> file, uint64_t &position, uint64_t end, uint64_t &value) {
  value = 0;
  for (unsigned shift = 0; shift < 70 && position < end; shift += 7) {
    uint64_t byte = static_cast<unsigned char>(file[position++]);
    value |= shift < 64 ? (byte & 0x7f) << shift : 0;
    if (!(byte & 0x80))
      return true;
  }
  return false;
}

void appendVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(char(value | 0x80));
  out.push_back(char(value));
}

void appendDelimited(std::string &out, uint32_t number, const std::string &payload) {
  appendVarint(out, uint64_t(number) << 3 | kDelimited);
  appendVarint(out, payload.size());
  out += payload;
}

void appendField(std::string &out, ArrayRef<char> file, const WireField &field) {
  out.append(file.data() + field.start, field.end - field.start);
}

} // namespace

WireStatus mpc::import::walkMessage(ArrayRef<char> file, uint64_t begin, uint64_t end,
                                    llvm::function_ref<WireStatus(const WireField &)> visit) {
  for (uint64_t position = begin; position < end;) {
    WireField field{};
    field.start = position;
    uint64_t tag, length = 0;
    if (!readVarint(file, position, end, tag))
      return end - field.start < 10 ? WireStatus::truncated : WireStatus::malformed;
    field.number = tag >> 3;
    field.type = tag & 7;
    if (field.number == 0 || (tag >> 3) > 0x1fffffff)
      return WireStatus::malformed;
    switch (field.type) {
    case 0:
      field.begin = position;
      if (!readVarint(file, position, end, length))
        return end - field.begin < 10 ? WireStatus::truncated : WireStatus::malformed;
      field.end = position;
      break;
    case 1:
    case 5:
      length = field.type == 1 ? 8 : 4;
      field.begin = position;
      if (length > end - position)
        return WireStatus::truncated;
      field.end = position += length;
      break;
    case kDelimited:
      if (!readVarint(file, position, end, length))
        return end - position < 10 ? WireStatus::truncated : WireStatus::malformed;
      field.begin = position;
      if (length > end - position)
        return WireStatus::truncated;
      field.end = position += length;
      break;
    default:
      return WireStatus::malformed;
    }
    if (WireStatus status = visit(field); status != WireStatus::whole)
      return status;
  }
  return WireStatus::whole;
}

WireStatus mpc::import::scanInitializers(ArrayRef<char> file,
                                         std::vector<WireInitializer> &initializers,
                                         std::string *skeleton, uint64_t threshold) {
  auto scanTensor = [&](const WireField &tensor, std::string *out) {
    WireInitializer found;
    WireStatus status = walkMessage(file, tensor.begin, tensor.end, [&](const WireField &field) {
      if (field.number == kRawData && field.type == kDelimited)
        found = {true, false, field.begin, field.end - field.begin};
      return WireStatus::whole;
    });
    if (status != WireStatus::whole)
      return WireStatus::malformed;
    found.removed = out && found.hasRaw && found.bytes >= threshold;
    initializers.push_back(found);
    if (!out)
      return WireStatus::whole;
    if (!found.removed) {
      appendField(*out, file, tensor);
      return WireStatus::whole;
    }
    std::string inner;
    walkMessage(file, tensor.begin, tensor.end, [&](const WireField &field) {
      if (field.number != kRawData || field.type != kDelimited)
        appendField(inner, file, field);
      return WireStatus::whole;
    });
    appendDelimited(*out, kInitializer, inner);
    return WireStatus::whole;
  };
  return walkMessage(file, 0, file.size(), [&](const WireField &outer) {
    if (outer.number != kGraph || outer.type != kDelimited) {
      if (skeleton)
        appendField(*skeleton, file, outer);
      return WireStatus::whole;
    }
    std::string graph;
    WireStatus status = walkMessage(file, outer.begin, outer.end, [&](const WireField &field) {
      if (field.number == kInitializer && field.type == kDelimited)
        return scanTensor(field, skeleton ? &graph : nullptr);
      if (skeleton)
        appendField(graph, file, field);
      return WireStatus::whole;
    });
    if (status != WireStatus::whole)
      return WireStatus::malformed; // the outer length says that the message is whole
    if (skeleton)
      appendDelimited(*skeleton, kGraph, graph);
    return WireStatus::whole;
  });
}
