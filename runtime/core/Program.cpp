//===- Program.cpp - read the compiled program's table ---------------------------===//
//
// The text comes from our own compiler, but the object file may be of another version,
// damaged, or linked by hand. Everything is checked here once, so that what walks the
// program afterwards can index without looking: every index inside its table, every offset
// inside its region, every shape of a library command consistent.
//
//===----------------------------------------------------------------------------===//

#include "runtime/core/Program.h"
#include "runtime/core/Error.h"
#include "runtime/core/ProgramCheck.h"
#include "runtime/data/Json.h"

using namespace mpc;
using nlohmann::json;

namespace {

struct TypeName {
  const char *name;
  size_t size;
};
// In the order of ElementType.
constexpr TypeName kTypes[] = {{"f64", 8}, {"f32", 4}, {"bf16", 2}, {"f16", 2}, {"i64", 8},
                               {"i32", 4}, {"i16", 2}, {"i8", 1},   {"u64", 8}, {"u32", 4},
                               {"u16", 2}, {"u8", 1},  {"i1", 1}};
// In the order of Region.
constexpr const char *kRegions[kRegionCount] = {"states",       "inputs",    "arena",  "gradients",
                                                "accumulators", "constants", "outputs"};
// In the order of Role.
constexpr const char *kRoles[] = {"input",
                                  "labels",
                                  "samples",
                                  "random_state",
                                  "hyper",
                                  "schedule",
                                  "weight_decay",
                                  "parameter",
                                  "statistic",
                                  "working_statistic",
                                  "optimizer_state",
                                  "half_copy",
                                  "loss_scale",
                                  "growth_tracker",
                                  "applied_steps",
                                  "accumulated_count",
                                  "constant",
                                  "gradient",
                                  "accumulator",
                                  "output",
                                  "loss",
                                  "count",
                                  "correct",
                                  "ok",
                                  "grad_norm",
                                  "gradient_square_sums"};
// In the order of ProgramImage::Kind.
constexpr const char *kImages[] = {"cubin", "ptx", "simulator"};
// In the order of CommandKind.
constexpr const char *kKinds[] = {
    "kernel",    "matmul",        "conv", "conv_backward_data", "conv_backward_weights",
    "attention", "attention_grad"};

template <size_t N> int indexOf(const char *const (&names)[N], const std::string &name) {
  for (size_t i = 0; i < N; ++i)
    if (name == names[i])
      return static_cast<int>(i);
  return -1;
}

class Loader {
public:
  explicit Loader(const MpcProgram &raw) : raw(raw) { p.raw = &raw; }

  Program load(const JsonValue &root) {
    root["abi"].integer(MPC_PROGRAM_ABI, MPC_PROGRAM_ABI);
    head(root);
    for (const JsonValue &item : optionalList(root, "images"))
      p.images.push_back(image(item));
    isGpu = p.target == "cuda";
    if (isGpu == p.images.empty())
      root.fail(isGpu ? "a program for GPUs without images of its kernels"
                      : "images of GPU kernels in a program for the CPU");
    for (size_t i = 0; i < kRegionCount; ++i)
      p.region_bytes[i] = root.has("regions") && root["regions"].has(kRegions[i])
                              ? root["regions"][kRegions[i]].integer(0, int64_t(1) << 50)
                              : 0;
    for (const JsonValue &item : optionalList(root, "tensors"))
      p.tensors.push_back(tensor(item));
    if (root.has("entries"))
      for (const auto &[name, item] : root["entries"].members())
        p.entries.emplace(name, entry(item));
    if (root.has("export"))
      exported(root["export"]);
    return std::move(p);
  }

private:
  static std::vector<JsonValue> optionalList(const JsonValue &v, const char *key) {
    return v.has(key) ? v[key].list() : std::vector<JsonValue>();
  }

  void head(const JsonValue &root) {
    p.model_name = root.text("model_name");
    p.compiler_version = root.text("compiler_version");
    p.precision = root.text("precision");
    p.loss = root.text("loss");
    p.optimizer = root.text("optimizer");
    p.target = root.text("target");
    p.cpu = root.text("cpu");
    p.build_facts = root.text("build_facts");
    p.simulator_folder = root.text("simulator_folder");
    p.tail_refused_why = root.text("tail_refused_why");
    if (root.has("loss_scale_mode"))
      p.loss_scale_mode = root["loss_scale_mode"].value.is_number()
                              ? root["loss_scale_mode"].value.dump()
                              : root["loss_scale_mode"].string();
    p.batch = root.number("batch", 0);
    p.classes = root.number("classes", 0);
    p.ignore_index = root.number("ignore_index", -100);
    if (p.batch < 0 || p.classes < 0)
      root.fail("a negative batch or number of classes");
    if (root.has("batch_axis"))
      for (const auto &[name, item] : root["batch_axis"].members())
        p.batch_axis[name] = item.integer(0, 64);
    if (root.has("output_samples"))
      for (const auto &[name, item] : root["output_samples"].members()) {
        std::vector<int64_t> where = item.integers(OutputSamples::kSeveral);
        constexpr int64_t kMostAxes = 64, kMostBlocks = int64_t(1) << 31;
        if (where.size() != 2 || where[0] > kMostAxes || where[1] < 1 || where[1] > kMostBlocks)
          item.fail("an axis and a number of blocks expected");
        p.output_samples[name] = {where[0], where[1]};
      }
    if (root.has("index_limit"))
      for (const auto &[name, item] : root["index_limit"].members())
        p.index_limit[name] = item.integer(0);
    for (const JsonValue &note : optionalList(root, "notes"))
      p.notes.push_back(note.string());
    for (const JsonValue &reason : optionalList(root, "left_out"))
      p.left_out.push_back(reason.string());
  }

  /// `bytes` from the offset on have to lie inside the region. Only a GPU's kernels know elements
  /// of a table, which are aligned to less.
  Buffer buffer(const JsonValue &v, uint64_t bytes, bool isElement = false) const {
    std::vector<JsonValue> parts = v.list();
    if (parts.size() != 2)
      v.fail("[region, offset] expected");
    int region = indexOf(kRegions, parts[0].string());
    if (region < 0)
      v.fail("there is no region '" + parts[0].string() + "'");
    uint64_t offset = parts[1].integer(0), size = p.region_bytes[region];
    if (offset > size || bytes > size - offset)
      v.fail(std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
             " lie outside the region of " + std::to_string(size) + " bytes");
    if (offset % 64 && !isElement)
      v.fail("offset " + std::to_string(offset) + " is no multiple of 64");
    return {static_cast<Region>(region), offset};
  }

  static Range range(const JsonValue &v, uint64_t limit) {
    std::vector<JsonValue> parts = v.list();
    if (parts.size() != 2)
      v.fail("[offset, bytes] expected");
    Range r;
    r.offset = parts[0].integer(0);
    r.bytes = parts[1].integer(0);
    if (r.offset > limit || r.bytes > limit - r.offset)
      v.fail("lies outside the program's " + std::to_string(limit) + " bytes of data");
    return r;
  }

  static ElementType type(const JsonValue &v) {
    std::string name = v.string();
    for (size_t i = 0; i < std::size(kTypes); ++i)
      if (name == kTypes[i].name)
        return static_cast<ElementType>(i);
    v.fail("there is no element type '" + name + "'");
  }

  uint64_t bytes(const std::vector<int64_t> &shape, ElementType type, const JsonValue &v) const {
    return uint64_t(checkedElements(shape, "compiled program, " + v.path)) * elementSize(type);
  }

  ProgramImage image(const JsonValue &v) const {
    int kind = indexOf(kImages, v["kind"].string());
    if (kind < 0)
      v.fail("there is no kind of image '" + v["kind"].string() + "'");
    ProgramImage image{static_cast<ProgramImage::Kind>(kind),
                       static_cast<uint32_t>(v["architecture"].integer(0, 10000)),
                       range(v["data"], raw.data ? raw.data_size : 0)};
    if (image.data.bytes == 0)
      v.fail("an empty image");
    if (image.kind == ProgramImage::Kind::ptx &&
        raw.data[image.data.offset + image.data.bytes - 1] != 0)
      v.fail("PTX without a NUL at its end");
    return image;
  }

  TensorInfo tensor(const JsonValue &v) const {
    TensorInfo t;
    t.name = v.text("name");
    int role = indexOf(kRoles, v["role"].string());
    if (role < 0)
      v.fail("there is no role '" + v["role"].string() + "'");
    t.role = static_cast<Role>(role);
    t.type = type(v["type"]);
    t.shape = v.numbers("shape", 0);
    t.buffer = buffer(v["buffer"], bytes(t.shape, t.type, v));
    if (isStatistic(t.role) && t.buffer.region != Region::states &&
        t.buffer.region != Region::outputs)
      v.fail("this role belongs to the regions states and outputs");
    t.initial_type = v.has("initial_type") ? type(v["initial_type"]) : t.type;
    if (v.has("initial")) {
      t.initial = range(v["initial"], raw.data ? raw.data_size : 0);
      if (t.initial.bytes && t.initial.bytes != bytes(t.shape, t.initial_type, v))
        v.fail("initial value of " + std::to_string(t.initial.bytes) + " bytes for shape " +
               shapeText(t.shape) + " of " + elementTypeName(t.initial_type));
    }
    return t;
  }

  Operand operand(const JsonValue &v) const {
    Operand o;
    // An object without a buffer stands for an absent operand.
    if (!v.has("buffer"))
      return o;
    o.present = true;
    o.type = type(v["type"]);
    o.shape = v.numbers("shape", 0);
    o.buffer = buffer(v["buffer"], bytes(o.shape, o.type, v));
    o.is_weight = v.flag("is_weight");
    return o;
  }

  static GpuFunction gpuFunction(const JsonValue &v) {
    GpuFunction f;
    f.symbol = v["symbol"].string();
    f.grid = static_cast<uint32_t>(v["grid"].integer(1, INT32_MAX));
    f.block = static_cast<uint32_t>(v["block"].integer(1, 1024));
    f.after_library = v.flag("after_library");
    return f;
  }

  /// Members of a group have the same form, and room among a kernel's parameters.
  void groupMembers(const JsonValue &v, Command &c) const {
    constexpr size_t kMostBytes = 32764;
    for (const JsonValue &item : optionalList(v, "members")) {
      GroupMember member;
      for (const JsonValue &each : optionalList(item, "buffers"))
        member.buffers.push_back(buffer(each, 0, /*isElement=*/true));
      for (const JsonValue &word : optionalList(item, "words"))
        member.words.push_back(static_cast<uint32_t>(word.integer(0, INT32_MAX)));
      if (member.words.size() % 2 != 0 || member.bytes() == 0 ||
          (!c.members.empty() && (member.buffers.size() != c.members[0].buffers.size() ||
                                  member.words.size() != c.members[0].words.size())))
        item.fail("a member of another form than the first");
      c.members.push_back(std::move(member));
    }
    if (!c.members.empty() &&
        8 * c.buffers.size() + c.members.size() * c.members[0].bytes() > kMostBytes)
      v.fail("more members than a kernel's parameters hold");
  }

  /// The parameters of a library command begin with its operands.
  static void checkGpuBuffers(const JsonValue &v, const Command &c) {
    std::vector<Buffer> operands;
    for (const Operand *each : {&c.lhs, &c.rhs, &c.bias, &c.result})
      if (each->present)
        operands.push_back(each->buffer);
    for (const auto *list : {&c.operands, &c.results})
      for (const Operand &each : *list)
        operands.push_back(each.buffer);
    bool isEqual = c.buffers.size() >= operands.size();
    for (size_t i = 0; isEqual && i < operands.size(); ++i)
      isEqual =
          c.buffers[i].region == operands[i].region && c.buffers[i].offset == operands[i].offset;
    if (!isEqual)
      v.fail("the buffers are not those of its operands");
  }

  void cpuFunction(const JsonValue &v, Command &c) const {
    if (raw.kernel_count == 0 || !raw.kernels)
      v.fail("the program has no kernels");
    c.function = static_cast<uint32_t>(v["function"].integer(0, int64_t(raw.kernel_count) - 1));
    if (!raw.kernels[c.function])
      v.fail("kernel " + std::to_string(c.function) + " is missing");
    c.extent = v.has("extent") ? v["extent"].integer(0) : 0;
    c.grain = v.has("grain") ? v["grain"].integer(1) : 1;
  }

  void product(const JsonValue &v, Command &c) const {
    c.lhs = operand(v["lhs"]);
    c.rhs = operand(v["rhs"]);
    if (v.has("bias"))
      c.bias = operand(v["bias"]);
    c.result = operand(v["result"]);
    c.transpose_lhs = v.flag("transpose_lhs");
    c.transpose_rhs = v.flag("transpose_rhs");
    c.relu = v.flag("relu");
    c.channels_last = v.flag("channels_last");
    c.strides = v.numbers("strides", 1);
    c.pads = v.numbers("pads");
    c.dilations = v.numbers("dilations", 1);
    c.groups = v.number("groups", 1);
  }

  void attention(const JsonValue &v, Command &c) const {
    for (const JsonValue &item : v["operands"].list())
      c.operands.push_back(operand(item));
    for (const JsonValue &item : v["results"].list())
      c.results.push_back(operand(item));
    c.scale = v["scale"].real();
    c.dropout_ratio = v.has("dropout_ratio") ? v["dropout_ratio"].real() : 0;
    c.bias_dimensions = v.numbers("bias_dimensions", 0);
    c.safe = v.flag("safe");
  }

  Command command(const JsonValue &v) const {
    Command c;
    int kind = indexOf(kKinds, v["kind"].string());
    if (kind < 0)
      v.fail("there is no command '" + v["kind"].string() + "'");
    c.kind = static_cast<CommandKind>(kind);
    c.node = v.text("node");
    c.name = v.text("name");
    c.bytes = static_cast<double>(v.number("bytes", 0));
    c.flops = static_cast<double>(v.number("flops", 0));
    for (const JsonValue &item : optionalList(v, "buffers"))
      c.buffers.push_back(buffer(item, 0, isGpu && c.kind == CommandKind::kernel));
    for (const JsonValue &item : optionalList(v, "functions"))
      c.functions.push_back(gpuFunction(item));
    groupMembers(v, c);
    if (!c.members.empty() && (!isGpu || c.kind != CommandKind::kernel))
      v.fail("only kernels of a GPU are grouped");
    if (isGpu && c.functions.empty())
      v.fail("a command without GPU functions");
    if (c.kind == CommandKind::kernel) {
      if (!isGpu)
        cpuFunction(v, c);
      return c;
    }
    if (isAttention(c.kind) && !isGpu)
      v.fail("only a GPU has fused attention");
    isAttention(c.kind) ? attention(v, c) : product(v, c);
    checkCommand(c, "compiled program, " + v.path);
    if (isGpu)
      checkGpuBuffers(v, c);
    return c;
  }

  std::vector<uint32_t> tensorList(const JsonValue &v, const char *key) const {
    std::vector<uint32_t> indices;
    for (const JsonValue &item : optionalList(v, key))
      indices.push_back(static_cast<uint32_t>(item.integer(0, int64_t(p.tensors.size()) - 1)));
    return indices;
  }

  Entry entry(const JsonValue &v) const {
    Entry e;
    e.arguments = tensorList(v, "arguments");
    e.results = tensorList(v, "results");
    for (const JsonValue &item : optionalList(v, "commands"))
      e.commands.push_back(command(item));
    return e;
  }

  void exported(const JsonValue &v) {
    if (v.has("template"))
      p.export_template = range(v["template"], raw.data ? raw.data_size : 0);
    for (const JsonValue &item : optionalList(v, "holes")) {
      ExportHole hole;
      hole.offset = item["offset"].integer(0);
      hole.bytes = item["bytes"].integer(0);
      hole.type = type(item["type"]);
      hole.tensor = static_cast<uint32_t>(item["tensor"].integer(0, int64_t(p.tensors.size()) - 1));
      if (hole.offset > p.export_template.bytes ||
          hole.bytes > p.export_template.bytes - hole.offset)
        item.fail("lies outside the exported model");
      p.export_holes.push_back(hole);
    }
  }

  const MpcProgram &raw;
  Program p;
  bool isGpu = false;
};

} // namespace

size_t mpc::elementSize(ElementType type) { return kTypes[static_cast<size_t>(type)].size; }
const char *mpc::elementTypeName(ElementType type) {
  return kTypes[static_cast<size_t>(type)].name;
}
const char *mpc::regionName(Region region) { return kRegions[static_cast<size_t>(region)]; }

bool mpc::isAttention(CommandKind kind) {
  return kind == CommandKind::attention || kind == CommandKind::attention_grad;
}

bool mpc::isStatistic(Role role) {
  switch (role) {
  case Role::loss_scale:
  case Role::growth_tracker:
  case Role::applied_steps:
  case Role::accumulated_count:
  case Role::loss:
  case Role::count:
  case Role::correct:
  case Role::ok:
  case Role::grad_norm:
  case Role::gradient_square_sums:
    return true;
  default:
    return false;
  }
}

int64_t TensorInfo::elements() const {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  return count;
}
size_t TensorInfo::bytes() const { return size_t(elements()) * elementSize(type); }

Program Program::load(const MpcProgram &raw) {
  if (raw.abi != MPC_PROGRAM_ABI)
    throw Error("the compiled program has interface version " + std::to_string(raw.abi) +
                ", this runtime has " + std::to_string(MPC_PROGRAM_ABI) +
                ": compile the model again with the mpc that belongs to this runtime");
  try {
    if (!raw.json)
      throw Error("the compiled program has no table: compile the model again");
    json parsed = parseJson({raw.json, raw.json_size}, "table");
    return Loader(raw).load(JsonValue(parsed, "table"));
  } catch (const JsonError &error) {
    throw Error(std::string("compiled program, ") + error.what() + " (compile the model again)");
  }
}

int Program::find(Role role, const std::string &name) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].role == role && (name.empty() || tensors[i].name == name))
      return static_cast<int>(i);
  return -1;
}

std::vector<uint32_t> Program::all(Role role) const {
  std::vector<uint32_t> indices;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].role == role)
      indices.push_back(static_cast<uint32_t>(i));
  return indices;
}
