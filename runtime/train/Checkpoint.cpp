//===- Checkpoint.cpp - a run on disk ------------------------------------------------===//
//
//   8 bytes: length of the header | header: JSON, padded with spaces to 8 bytes | tensor data
//
// The hash (XXH3, 128 bits) covers all three with its own 32 digits as zeros. It is patched in
// when the data have been written once; the file gets its name only after that.
//
//===----------------------------------------------------------------------------===//

#include "runtime/train/Checkpoint.h"
#include "runtime/core/Error.h"
#include "runtime/data/Array.h"
#include "runtime/data/Json.h"
#include "runtime/train/State.h"
#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace mpc;
using nlohmann::json;

static constexpr char kFormat[] = "mpc-checkpoint", kVersion[] = "1";
static constexpr char kHashField[] = "\"hash\":\"";
static constexpr size_t kHashDigits = 32;
/// As the safetensors library; the JSON of a header takes many times its bytes.
static constexpr uint64_t kMostHeaderBytes = 100 << 20;

namespace {

struct DataType {
  const char *name;
  ElementType type;
};
constexpr DataType kDataTypes[] = {{"F64", ElementType::f64}, {"F32", ElementType::f32},
                                   {"F16", ElementType::f16}, {"BF16", ElementType::bf16},
                                   {"I64", ElementType::i64}, {"I32", ElementType::i32}};

class Hash {
public:
  Hash() : state(XXH3_createState()) {
    if (!state)
      throw std::bad_alloc();
    XXH3_128bits_reset(state);
  }
  ~Hash() { XXH3_freeState(state); }
  void add(const void *bytes, size_t size) { XXH3_128bits_update(state, bytes, size); }
  std::string digits() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    std::string result;
    for (unsigned char byte : canonical.digest)
      for (int digit : {byte >> 4, byte & 15})
        result += "0123456789abcdef"[digit];
    return result;
  }

private:
  XXH3_state_t *state;
};

/// What a checkpoint holds, in this order.
std::vector<uint32_t> storedTensors(const Program &program) {
  std::vector<uint32_t> result;
  for (Role role : {Role::parameter, Role::statistic, Role::optimizer_state})
    for (uint32_t index : program.all(role))
      result.push_back(index);
  return result;
}

const char *dataTypeName(ElementType type) {
  for (const DataType &known : kDataTypes)
    if (known.type == type)
      return known.name;
  throw Error(std::string("a checkpoint cannot hold elements of type ") + elementTypeName(type));
}

std::string makeHeader(const Program &program, const std::vector<uint32_t> &stored,
                       const RunState &state) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", kFormat},
                            {"version", kVersion},
                            {"model", program.model_name},
                            {"hash", std::string(kHashDigits, '0')},
                            {"state", toJson(state).dump()}};
  uint64_t offset = 0;
  for (uint32_t index : stored) {
    const TensorInfo &tensor = program.tensors[index];
    header[checkpointKey(tensor)] = {{"dtype", dataTypeName(tensor.type)},
                                     {"shape", tensor.shape},
                                     {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

} // namespace

void mpc::warn(const std::string &message) { fprintf(stderr, "warning: %s\n", message.c_str()); }

std::string mpc::checkpointKey(const TensorInfo &tensor) {
  const char *kind = tensor.role == Role::parameter   ? "weight/"
                     : tensor.role == Role::statistic ? "statistic/"
                                                      : "optimizer/";
  return kind + tensor.name;
}

void mpc::writeCheckpoint(const std::string &path, const Program &program, Device &device,
                          const RunState &state) {
  std::vector<uint32_t> stored = storedTensors(program);
  std::string header = makeHeader(program, stored, state);
  uint64_t length = header.size(); // little-endian, as this machine is
  OutputFile file(path, kTemporaryCheckpoint);
  Hash hash;
  auto write = [&](const void *bytes, size_t size) {
    hash.add(bytes, size);
    file.write(bytes, size);
  };
  write(&length, sizeof length);
  write(header.data(), header.size());
  std::vector<unsigned char> bytes;
  for (uint32_t index : stored) {
    const TensorInfo &tensor = program.tensors[index];
    bytes.resize(tensor.bytes());
    device.read(tensor, bytes.data());
    write(bytes.data(), bytes.size());
  }
  size_t at = header.find(kHashField) + strlen(kHashField);
  std::string digits = hash.digits();
  file.patch(sizeof length + at, digits.data(), digits.size());
  file.commit();
}

CheckpointFile::CheckpointFile(const std::string &path) : name(path), file(path) {
  uint64_t length = 0;
  size_t size = file.size();
  if (size < sizeof length)
    damaged("it has " + std::to_string(size) + " bytes");
  memcpy(&length, file.data(), sizeof length);
  if (length > kMostHeaderBytes && file.data()[sizeof length] != '{')
    throw Error(quote(name) + " is no checkpoint (a safetensors file)");
  if (length > size - sizeof length)
    damaged("its header wants " + std::to_string(length) + " bytes, " +
            std::to_string(size - sizeof length) + " found");
  if (length > kMostHeaderBytes)
    damaged("its header has " + std::to_string(length) + " bytes");
  std::string header(reinterpret_cast<const char *>(file.data()) + sizeof length, length);
  const unsigned char *data = file.data() + sizeof length + length;
  size_t dataSize = size - sizeof length - length;
  try {
    json parsed = parseJson(header, "its header", sizeof length);
    const JsonValue root(parsed, "its header");
    if (!root.has("__metadata__") || root["__metadata__"].text("format") != kFormat)
      throw Error(quote(name) + " is not a checkpoint of a compiled trainer (a safetensors file "
                                "from elsewhere?)");
    const JsonValue metadata = root["__metadata__"];
    if (std::string version = metadata["version"].string(); version != kVersion)
      throw Error(quote(name) + " has checkpoint version '" + printable(version) +
                  "'; this trainer reads version " + kVersion);
    std::string stored = metadata["hash"].string();
    size_t at = header.find(kHashField);
    if (at == std::string::npos || stored.size() != kHashDigits)
      damaged("it has no hash");
    header.replace(at + strlen(kHashField), kHashDigits, std::string(kHashDigits, '0'));
    Hash hash;
    hash.add(&length, sizeof length);
    hash.add(header.data(), header.size());
    hash.add(data, dataSize);
    if (hash.digits() != stored)
      damaged("its content does not have the hash that was written with it (cut off, or bytes "
              "changed)");
    json state = parseJson(metadata["state"].string(), "its state");
    runState = stateFromJson(JsonValue(state, "its state"));
    for (const auto &[key, entry] : root.members()) {
      if (key == "__metadata__")
        continue;
      Tensor tensor{ElementType::f32, entry["shape"].integers(), nullptr, 0};
      std::string type = entry["dtype"].string();
      const DataType *known = std::find_if(std::begin(kDataTypes), std::end(kDataTypes),
                                           [&](const DataType &k) { return type == k.name; });
      if (known == std::end(kDataTypes))
        entry.fail("elements of type '" + printable(type) + "'");
      tensor.type = known->type;
      std::vector<JsonValue> offsets = entry["data_offsets"].list();
      if (offsets.size() != 2)
        entry.fail("2 data_offsets expected");
      uint64_t begin = offsets[0].natural(), end = offsets[1].natural();
      if (begin > end || end > dataSize)
        entry.fail("it lies outside the file");
      tensor.bytes = data + begin;
      tensor.size = end - begin;
      tensors.emplace(key, std::move(tensor));
    }
  } catch (const JsonError &error) {
    damaged(error.what());
  }
}

void CheckpointFile::damaged(const std::string &why) const {
  throw DamagedCheckpoint("the checkpoint " + quote(name) + " is damaged: " + why);
}

const CheckpointFile::Tensor *CheckpointFile::find(const std::string &key) const {
  auto found = tensors.find(key);
  return found == tensors.end() ? nullptr : &found->second;
}

std::vector<unsigned char> CheckpointFile::read(const TensorInfo &tensor) const {
  std::string key = checkpointKey(tensor);
  const Tensor *found = find(key);
  if (!found)
    throw Error("the checkpoint " + quote(name) + " has no " + quote(key) +
                ": it is of another model or was written by a program compiled with other options");
  size_t count = static_cast<size_t>(tensor.elements());
  if (found->shape != tensor.shape || found->size != count * elementSize(found->type))
    throw Error("the checkpoint " + quote(name) + " has " + quote(key) + " with shape " +
                shapeText(found->shape) + "; this program wants " + shapeText(tensor.shape));
  std::vector<unsigned char> bytes(tensor.bytes());
  convertReals(found->type, found->bytes, tensor.type, bytes.data(), count);
  return bytes;
}

void CheckpointFile::requireNoOther(const Program &program) const {
  for (const auto &[key, tensor] : tensors) {
    constexpr std::string_view kWeight = "weight/";
    std::string weight = key.substr(std::min(key.size(), kWeight.size()));
    if (key.starts_with(kWeight) && program.find(Role::parameter, weight) < 0)
      throw Error(quote(name) + " has the weights of " + quote(weight) +
                  ", which this program does not train (it may be frozen): compile the model that "
                  "`export` of the other program writes from it");
  }
}

void mpc::loadCheckpoint(const CheckpointFile &file, const Program &program, Device &device,
                         bool optimizer) {
  for (uint32_t index : storedTensors(program)) {
    const TensorInfo &tensor = program.tensors[index];
    if (tensor.role == Role::optimizer_state && !optimizer)
      continue;
    device.write(tensor, file.read(tensor).data());
  }
  file.requireNoOther(program);
  resetWorkingStatistics(program, device);
  device.weightsChanged();
}
