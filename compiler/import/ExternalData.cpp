//===- ExternalData.cpp - weights in files beside the model ---------------===//
//
// A model file names the files that hold its weights, so the names are somebody else's
// input. Only regular files inside the model's folder are opened: the location is resolved,
// must still lie in the folder, and is then opened one component at a time without
// following links, so that nothing can be exchanged in between.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "llvm/ADT/SmallVector.h"
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

using namespace mpc;
using namespace mpc::import;
using llvm::ArrayRef;
using llvm::SmallVector;
using llvm::StringRef;
using llvm::Twine;

namespace {

/// Data of tensors outside the graph's initializers (attributes, subgraphs) are read into the
/// model.
constexpr int64_t kInlineLimit = int64_t(1) << 30;

struct Location {
  std::string path;
  std::optional<uint64_t> offset, length;
};

class ExternalFiles {
public:
  ExternalFiles(OnnxModel &model, WeightStore &weights) : model(model), weights(weights) {}
  /// Where a tensor's data lie. An error says what is wrong with its external_data.
  llvm::Expected<DataRange> resolve(const onnx::TensorProto &tensor);

private:
  llvm::Expected<Location> read(const onnx::TensorProto &tensor);
  llvm::Expected<std::string> open(const onnx::TensorProto &tensor, StringRef location);
  static llvm::Error error(const onnx::TensorProto &tensor, const Twine &text) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   "external data of tensor '" + tensor.name() + "': " + text);
  }
  OnnxModel &model;
  WeightStore &weights;
};

std::string realPath(const std::string &path) {
  std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path.c_str(), nullptr), std::free);
  return resolved ? resolved.get() : "";
}

} // namespace

llvm::Expected<Location> ExternalFiles::read(const onnx::TensorProto &tensor) {
  Location location;
  bool hasLocation = false;
  for (const onnx::StringStringEntryProto &entry : tensor.external_data()) {
    auto number = [&](std::optional<uint64_t> &value) -> llvm::Error {
      uint64_t parsed;
      if (StringRef(entry.value()).getAsInteger(10, parsed) || parsed > uint64_t(INT64_MAX))
        return error(tensor, entry.key() + " '" + entry.value() + "' is no number of bytes");
      value = parsed;
      return llvm::Error::success();
    };
    if (entry.key() == "location") {
      location.path = entry.value();
      hasLocation = true;
    } else if (entry.key() == "offset") {
      if (llvm::Error problem = number(location.offset))
        return problem;
    } else if (entry.key() == "length") {
      if (llvm::Error problem = number(location.length))
        return problem;
    }
  }
  if (!hasLocation)
    return error(tensor, "names no file (its key `location` is missing)");
  return location;
}

llvm::Expected<std::string> ExternalFiles::open(const onnx::TensorProto &tensor,
                                                StringRef location) {
  std::string shown = "'" + location.str() + "'";
  if (location.empty() || location.contains('\0') || location.size() > PATH_MAX)
    return error(tensor, "its location is no file name");
  if (location.starts_with("/") || location.starts_with("\\") ||
      (location.size() > 1 && location[1] == ':'))
    return error(tensor, "the location " + shown +
                             " is absolute; only files in the model's folder are read");
  SmallVector<StringRef> parts;
  location.split(parts, '/', -1, false);
  if (llvm::is_contained(parts, ".."))
    return error(tensor, "the location " + shown +
                             " has '..' in it; only files in the model's folder are read");

  std::string name = model.folder + "/" + location.str();
  if (weights.mapped(name))
    return name;
  std::string folder = realPath(model.folder);
  std::string file = realPath(name);
  if (folder.empty() || file.empty())
    return error(tensor,
                 "cannot open " + shown + " in the model's folder: " + std::strerror(errno));
  if (file == folder)
    return error(tensor, shown + " is not a regular file");
  std::string prefix = folder == "/" ? folder : folder + "/";
  if (!StringRef(file).starts_with(prefix))
    return error(tensor,
                 shown +
                     " is a link that leads out of the model's folder; only files in it are read");

  int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  parts.clear();
  StringRef(file).drop_front(prefix.size()).split(parts, '/', -1, false);
  for (size_t i = 0; i < parts.size() && descriptor >= 0; ++i) {
    int kind = i + 1 < parts.size() ? O_DIRECTORY : O_NONBLOCK;
    int next = openat(descriptor, parts[i].str().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind);
    int problem = errno;
    close(descriptor);
    errno = problem;
    descriptor = next;
  }
  if (descriptor < 0)
    return error(tensor, "cannot open " + shown + ": " + std::strerror(errno));
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor);
    return error(tensor, shown + " is not a regular file");
  }
  auto mapped = weights.map(name, descriptor, status.st_size);
  close(descriptor);
  if (!mapped)
    return error(tensor, llvm::toString(mapped.takeError()));
  return name;
}

llvm::Expected<DataRange> ExternalFiles::resolve(const onnx::TensorProto &tensor) {
  auto location = read(tensor);
  if (!location)
    return location.takeError();
  int64_t width = elementBytes(tensor.data_type());
  if (width == 0)
    return error(tensor,
                 "elements of type " + elementTypeName(tensor.data_type()) + " are not supported");
  int64_t count = elementCount(tensor.dims());
  if (count < 0)
    return error(tensor, "its dimensions are negative, or their product is absurd");
  auto name = open(tensor, location->path);
  if (!name)
    return name.takeError();
  uint64_t size = weights.mapped(*name)->size(), wanted = count * width;
  uint64_t offset = location->offset.value_or(0);
  if (offset > size || location->length.value_or(wanted) > size - offset || wanted > size - offset)
    return error(tensor, "bytes " + Twine(offset) + " to " + Twine(offset) + " + " +
                             Twine(std::max(wanted, location->length.value_or(0))) +
                             " are asked of '" + location->path + "', which has " + Twine(size));
  if (location->length && *location->length != wanted)
    return error(tensor, "its length is " + Twine(*location->length) +
                             " bytes, but the tensor's dimensions and type make " + Twine(wanted));
  return DataRange{*name, int64_t(offset), int64_t(wanted)};
}

namespace {

/// Calls `handle` for every tensor in attributes and subgraphs' initializers.
template <typename Handle>
void visitTensors(onnx::GraphProto &graph, bool subgraph, Handle &handle);

template <typename Nodes, typename Handle> void visitNodes(Nodes &nodes, Handle &handle) {
  for (onnx::NodeProto &node : nodes)
    for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
      if (attribute.has_t())
        handle(*attribute.mutable_t());
      for (onnx::TensorProto &tensor : *attribute.mutable_tensors())
        handle(tensor);
      if (attribute.has_g())
        visitTensors(*attribute.mutable_g(), true, handle);
      for (onnx::GraphProto &graph : *attribute.mutable_graphs())
        visitTensors(graph, true, handle);
      if (attribute.has_sparse_tensor()) {
        handle(*attribute.mutable_sparse_tensor()->mutable_values());
        handle(*attribute.mutable_sparse_tensor()->mutable_indices());
      }
    }
}

template <typename Handle>
void visitTensors(onnx::GraphProto &graph, bool subgraph, Handle &handle) {
  if (subgraph)
    for (onnx::TensorProto &tensor : *graph.mutable_initializer())
      handle(tensor);
  for (onnx::SparseTensorProto &sparse : *graph.mutable_sparse_initializer()) {
    if (sparse.has_values())
      handle(*sparse.mutable_values());
    if (sparse.has_indices())
      handle(*sparse.mutable_indices());
  }
  visitNodes(*graph.mutable_node(), handle);
}

} // namespace

bool mpc::import::resolveExternalData(OnnxModel &model, WeightStore &weights, Problems &problems) {
  ExternalFiles files(model, weights);
  auto inlineData = [&](onnx::TensorProto &tensor) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL)
      return;
    auto range = files.resolve(tensor);
    if (!range) {
      problems.add(llvm::toString(range.takeError()));
      return;
    }
    if (range->bytes > kInlineLimit) {
      problems.add("tensor '" + tensor.name() + "' of an attribute or subgraph has " +
                   Twine(range->bytes) + " bytes; at most 1 GiB is read there");
      return;
    }
    ArrayRef<char> bytes = llvm::cantFail(weights.bytes(range->file, range->offset, range->bytes));
    tensor.set_raw_data(bytes.data(), bytes.size());
    tensor.clear_external_data();
    tensor.clear_data_location();
  };
  for (onnx::TensorProto &tensor : *model.proto.mutable_graph()->mutable_initializer()) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL)
      continue;
    auto range = files.resolve(tensor);
    if (!range) {
      problems.add(llvm::toString(range.takeError()));
      continue;
    }
    tensor.clear_external_data();
    tensor.clear_data_location();
    tensor.clear_raw_data();
    model.data[tensor.name()] = *range;
    if (range->bytes < kKeepInFile) {
      ArrayRef<char> bytes =
          llvm::cantFail(weights.bytes(range->file, range->offset, range->bytes));
      tensor.set_raw_data(bytes.data(), bytes.size());
    }
  }
  visitTensors(*model.proto.mutable_graph(), false, inlineData);
  for (onnx::FunctionProto &function : *model.proto.mutable_functions())
    visitNodes(*function.mutable_node(), inlineData);
  return problems.none();
}
