//===- ModelFile.cpp - open and parse an ONNX file ------------------------===//
//
// The file is mapped; protobuf parses a copy of it without the large weights, which stay
// where they are. Whatever is no ONNX file is told apart in plain words: a folder, an empty
// or truncated file, some other format.
//
//===----------------------------------------------------------------------===//

#include "compiler/import/Model.h"
#include "compiler/import/WireFormat.h"
#include "llvm/Support/Path.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace mpc;
using namespace mpc::import;
using llvm::ArrayRef;
using llvm::StringRef;
using llvm::Twine;

namespace {

/// protobuf's own limit: lengths are int32.
constexpr int64_t kProtobufLimit = (int64_t(1) << 31) - 1;

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0)
      close(value);
  }
};

/// What the first bytes look like, where they are some other well-known format.
StringRef otherFormat(ArrayRef<char> file) {
  StringRef text(file.data(), std::min<size_t>(file.size(), 16));
  if (text.starts_with("PK\x03\x04"))
    return "a zip archive (a PyTorch checkpoint is one): export the model to ONNX first";
  if (text.starts_with("version https://"))
    return "a Git LFS pointer: fetch the file itself";
  if (text.starts_with("\x89HDF"))
    return "an HDF5 file (a Keras model is one): export the model to ONNX first";
  if (text.ltrim().starts_with("{") || text.ltrim().starts_with("<"))
    return "a text file";
  return "";
}

} // namespace

bool Problems::add(const onnx::NodeProto &node, int64_t opset, const Twine &text) {
  std::string name = nodeName(node);
  std::string op = node.domain().empty() ? node.op_type() : node.domain() + "." + node.op_type();
  list.push_back(
      {name, ("node '" + name + "' (" + op + ", opset " + Twine(opset) + "): " + text).str()});
  return false;
}

int64_t OnnxModel::opset(StringRef domain) const {
  for (const onnx::OperatorSetIdProto &set : proto.opset_import())
    if (set.domain() == domain)
      return set.version();
  return -1;
}

bool mpc::import::readModelFile(StringRef path, WeightStore &weights, OnnxModel &model,
                                Problems &problems) {
  model.path = path.str();
  StringRef folder = llvm::sys::path::parent_path(path);
  model.folder = folder.empty() ? "." : folder.str();
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  Descriptor descriptor{open(model.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (descriptor.value < 0)
    return problems.add("cannot be opened: " + Twine(std::strerror(errno)));
  struct stat status;
  if (fstat(descriptor.value, &status) != 0)
    return problems.add("cannot be read: " + Twine(std::strerror(errno)));
  if (S_ISDIR(status.st_mode))
    return problems.add("is a folder, not an ONNX file");
  if (!S_ISREG(status.st_mode))
    return problems.add("is not a regular file");
  if (status.st_size == 0)
    return problems.add("is empty: an ONNX file has at least a graph");
  if (status.st_size > kProtobufLimit)
    return problems.add("has " + Twine(int64_t(status.st_size)) +
                        " bytes; protobuf, and so an ONNX file, ends at 2 GB: save the model with "
                        "its weights as external data");
  auto file = weights.map(path, descriptor.value, status.st_size);
  if (!file)
    return problems.add(llvm::toString(file.takeError()));

  std::string skeleton;
  std::vector<WireInitializer> initializers;
  WireStatus wire = scanInitializers(*file, initializers, &skeleton, kKeepInFile);
  if (StringRef other = otherFormat(*file); wire != WireStatus::whole && !other.empty())
    return problems.add("is not an ONNX file but " + other);
  if (wire == WireStatus::truncated)
    return problems.add(
        "is cut short, or not an ONNX file: its last field goes beyond the end of the file (" +
        Twine(file->size()) + " bytes)");
  // protobuf writes what it dislikes to stderr; the message below says it.
  google::protobuf::LogSilencer silence;
  google::protobuf::io::ArrayInputStream stream(skeleton.data(), int(skeleton.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetRecursionLimit(200);
  if (wire != WireStatus::whole || !model.proto.ParseFromCodedStream(&coded) ||
      !coded.ConsumedEntireMessage())
    return problems.add("is not an ONNX file, or damaged: its bytes are no protobuf ModelProto");
  if (!model.proto.has_graph() ||
      model.proto.graph().initializer_size() != int(initializers.size()))
    return problems.add("is not an ONNX file: it has no graph");

  for (int i = 0; i < int(initializers.size()); ++i) {
    const onnx::TensorProto &tensor = model.proto.graph().initializer(i);
    const WireInitializer &found = initializers[i];
    bool external = tensor.data_location() == onnx::TensorProto::EXTERNAL;
    if (found.hasRaw && !external && found.bytes != 0)
      model.data[tensor.name()] = {path.str(), int64_t(found.offset), int64_t(found.bytes)};
  }
  return true;
}

bool mpc::import::loadModel(StringRef path, WeightStore &weights, OnnxModel &model,
                            Problems &problems) {
  if (!readModelFile(path, weights, model, problems) ||
      !resolveExternalData(model, weights, problems) || !checkModel(model, problems))
    return false;
  readFolded(model);
  hoistSubgraphInitializers(model);
  separateMergedParameters(model, weights);
  restoreTransposedTies(model, weights);
  noteLostDropout(model);
  return true;
}
