//===- WeightStore.cpp - the bytes behind #mpc.weights --------------------===//
//
// A model's weights are never copied through attributes: the attribute names a range, and
// the store maps the file it is in. Data that a file holds in another form (typed protobuf
// fields) are converted once, into the store's own buffer.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/WeightStore.h"
#include "llvm/Support/FileSystem.h"
#include <algorithm>

using namespace mpc;
using llvm::ArrayRef;
using llvm::StringRef;

llvm::Expected<ArrayRef<char>> WeightStore::map(StringRef name, int descriptor, int64_t size) {
  if (auto known = mapped(name))
    return *known;
  auto buffer =
      llvm::MemoryBuffer::getOpenFile(descriptor, name, size, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return llvm::createStringError(buffer.getError(),
                                   "cannot read '" + name + "': " + buffer.getError().message());
  llvm::MemoryBuffer &kept = *(files[name] = std::move(*buffer));
  return ArrayRef<char>(kept.getBufferStart(), kept.getBufferSize());
}

std::optional<ArrayRef<char>> WeightStore::mapped(StringRef name) const {
  auto known = files.find(name);
  if (known == files.end())
    return std::nullopt;
  return ArrayRef<char>(known->second->getBufferStart(), known->second->getBufferSize());
}

llvm::Expected<ArrayRef<char>> WeightStore::bytes(WeightsAttr weights) {
  return bytes(weights.getFile(), weights.getOffset(), weights.getBytes());
}

llvm::Expected<ArrayRef<char>> WeightStore::bytes(StringRef file, int64_t offset, int64_t size) {
  auto outside = [&](int64_t available) {
    return llvm::createStringError(
        llvm::inconvertibleErrorCode(),
        "weights: bytes " + llvm::Twine(offset) + " to " + llvm::Twine(offset) + " + " +
            llvm::Twine(size) + " of " +
            (file.empty() ? "the importer's buffer" : "'" + file.str() + "'") +
            " are outside its " + llvm::Twine(available) + " bytes");
  };
  if (file.empty()) {
    auto piece = std::upper_bound(starts.begin(), starts.end(), offset);
    if (offset < 0 || size < 0 || piece == starts.begin())
      return outside(ownSize);
    size_t index = piece - starts.begin() - 1;
    ArrayRef<char> data = own[index];
    int64_t begin = offset - starts[index];
    if (begin > int64_t(data.size()) || size > int64_t(data.size()) - begin)
      return outside(ownSize);
    return data.slice(begin, size);
  }
  std::optional<ArrayRef<char>> data = mapped(file);
  if (!data) {
    // Not the importer's: text of the onnx dialect or a later stage that was read back.
    llvm::sys::fs::file_status status;
    if (std::error_code code = llvm::sys::fs::status(file, status))
      return llvm::createStringError(code, "cannot open '" + file + "': " + code.message());
    if (!llvm::sys::fs::is_regular_file(status))
      return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                     "'" + file + "' is not a regular file");
    auto buffer = llvm::MemoryBuffer::getFile(file, false, /*RequiresNullTerminator=*/false);
    if (!buffer)
      return llvm::createStringError(buffer.getError(),
                                     "cannot read '" + file + "': " + buffer.getError().message());
    files[file] = std::move(*buffer);
    data = mapped(file);
  }
  if (offset < 0 || size < 0 || offset > int64_t(data->size()) ||
      size > int64_t(data->size()) - offset)
    return outside(data->size());
  return data->slice(offset, size);
}

int64_t WeightStore::append(ArrayRef<char> data) {
  int64_t offset = llvm::alignTo(ownSize, 64);
  own.emplace_back(data.begin(), data.end());
  starts.push_back(offset);
  ownSize = offset + data.size();
  // An empty piece still takes its own offset, so that offsets stay distinct.
  if (data.empty())
    ownSize += 1;
  return offset;
}
