//===- ProgramWriter.cpp - the planned module as the runtime's data -------------------------===//
//
// The runtime knows nothing of MLIR: what `plan` decided is written down as JSON
// (docs/program.md), and all bytes that the program starts with as one block.
//
//===--------------------------------------------------------------------------------------===//

#include "ProgramWriter.h"
#include "compiler/codegen/Kernel.h"
#include "compiler/codegen/gpu/Group.h"
#include "compiler/codegen/gpu/LibraryCode.h"
#include "compiler/driver/Link.h"
#include "compiler/driver/Reports.h"
#include "compiler/driver/Version.h"
#include "compiler/export/Export.h"
#include "compiler/ops/Build.h"
#include "compiler/ops/Unsigned.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "passes/OperationFacts.h"
#include "runtime/core/Program.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mpc;
namespace json = llvm::json;

namespace {

std::string typeName(Type type, bool isUnsigned = false) {
  if (type.isBF16())
    return "bf16";
  if (isUnsigned)
    return "u" + std::to_string(type.getIntOrFloatBitWidth());
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

json::Array shapeArray(ArrayRef<int64_t> shape) { return json::Array(shape); }

json::Array bufferArray(BufferAttr buffer) {
  return json::Array({stringifyRegionKind(buffer.getRegion()), buffer.getOffset()});
}

class ProgramWriter {
public:
  ProgramWriter(ModuleOp module, const CompileOptions &options, WeightStore &weights,
                ArrayRef<DeviceImage> images, llvm::raw_ostream &data)
      : module(module), options(options), weights(weights), images(images), data(data),
        isGpu(options.target == "cuda"), kernels(kernelIndex(module)) {
    if (isGpu)
      groups.emplace(module);
  }

  llvm::Expected<std::string> write(const ExportTemplate *exported);

private:
  /// Appends to the block, 64-byte aligned; returns [offset, bytes].
  json::Array append(ArrayRef<char> bytes);
  llvm::Expected<int64_t> tensor(StringRef name, StringRef role, Type type, BufferAttr buffer,
                                 WeightsAttr initial);
  llvm::Error functionTensors(func::FuncOp function, json::Array &arguments, json::Array &results);
  void constant(arith::ConstantOp op);
  llvm::Error commands(func::FuncOp function, json::Array &out);
  void launchCommands(LaunchOp launch, json::Array &out);
  json::Array launchBuffers(LaunchOp launch);
  void groupCommand(const gpu::Group &group, json::Array &out);
  void gpuFields(json::Object &command, ArrayRef<gpu::Function> functions, json::Array buffers);
  json::Array imageList();
  json::Value operand(Value value);
  BufferAttr bufferOf(Value value);
  template <typename AttentionLike> json::Object attentionCommand(AttentionLike op);
  json::Object libraryCommand(Operation *op);
  json::Object exportObject(const ExportTemplate &exported);

  ModuleOp module;
  const CompileOptions &options;
  WeightStore &weights;
  ArrayRef<DeviceImage> images;
  llvm::raw_ostream &data;
  bool isGpu;
  KernelIndex kernels;
  std::optional<gpu::GroupIndex> groups; ///< of a GPU
  uint64_t written = 0;
  json::Array tensors;
  std::map<std::pair<std::string, std::string>, int64_t> tensorIds; // (role, name) → index
};

json::Array ProgramWriter::append(ArrayRef<char> bytes) {
  uint64_t offset = llvm::alignTo(written, 64);
  data.write_zeros(offset - written);
  data.write(bytes.data(), bytes.size());
  written = offset + bytes.size();
  return json::Array({offset, bytes.size()});
}

llvm::Expected<int64_t> ProgramWriter::tensor(StringRef name, StringRef role, Type type,
                                              BufferAttr buffer, WeightsAttr initial) {
  auto key = std::make_pair(role.str(), name.str());
  if (auto it = tensorIds.find(key); it != tensorIds.end())
    return it->second;
  auto shaped = cast<RankedTensorType>(type);
  auto names = module->getAttrOfType<ArrayAttr>(kUnsignedAttr);
  bool isUnsigned = names && llvm::is_contained({"input", "output", "constant"}, role) &&
                    llvm::is_contained(names, StringAttr::get(module.getContext(), name));
  json::Object object{{"name", json::fixUTF8(name)},
                      {"role", role},
                      {"type", typeName(shaped.getElementType(), isUnsigned)},
                      {"shape", shapeArray(shaped.getShape())},
                      {"buffer", bufferArray(buffer)}};
  if (initial && (!options.externalWeights || role == "constant")) {
    llvm::Expected<ArrayRef<char>> bytes = weights.bytes(initial);
    if (!bytes)
      return bytes.takeError();
    object["initial"] = append(*bytes);
    object["initial_type"] = typeName(initial.getType(), isUnsigned);
  }
  int64_t id = tensors.size();
  tensors.push_back(std::move(object));
  return tensorIds[key] = id;
}

BufferAttr ProgramWriter::bufferOf(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return function.getArgAttrOfType<BufferAttr>(argument.getArgNumber(), MpcDialect::kBufferAttr);
  }
  if (auto view = value.getDefiningOp<ReshapeOp>())
    return bufferOf(view.getInput());
  auto buffers = value.getDefiningOp()->getAttrOfType<ArrayAttr>(MpcDialect::kBuffersAttr);
  return buffers ? cast<BufferAttr>(buffers[cast<OpResult>(value).getResultNumber()])
                 : BufferAttr();
}

llvm::Error ProgramWriter::functionTensors(func::FuncOp function, json::Array &arguments,
                                           json::Array &results) {
  auto text = [](Attribute attr) { return attr ? cast<StringAttr>(attr).getValue() : StringRef(); };
  for (unsigned i = 0, n = function.getNumArguments(); i < n; ++i) {
    auto id = tensor(text(function.getArgAttr(i, MpcDialect::kNameAttr)),
                     text(function.getArgAttr(i, MpcDialect::kRoleAttr)),
                     function.getArgument(i).getType(), bufferOf(function.getArgument(i)),
                     function.getArgAttrOfType<WeightsAttr>(i, MpcDialect::kWeightsAttr));
    if (!id)
      return id.takeError();
    arguments.push_back(*id);
  }
  Operation *terminator = function.getBody().front().getTerminator();
  for (unsigned i = 0, n = function.getNumResults(); i < n; ++i) {
    auto id = tensor(text(function.getResultAttr(i, MpcDialect::kNameAttr)),
                     text(function.getResultAttr(i, MpcDialect::kRoleAttr)),
                     function.getResultTypes()[i], bufferOf(terminator->getOperand(i)), {});
    if (!id)
      return id.takeError();
    results.push_back(*id);
  }
  return llvm::Error::success();
}

/// A constant that a command reads is a tensor of role constant, with a name of its own.
void ProgramWriter::constant(arith::ConstantOp op) {
  BufferAttr buffer = bufferOf(op.getResult());
  if (!buffer)
    return;
  std::string name = "constant@" + std::to_string(buffer.getOffset());
  if (!tensorIds.emplace(std::make_pair(std::string("constant"), name), int64_t(tensors.size()))
           .second)
    return;
  auto elements = cast<DenseElementsAttr>(op.getValue());
  auto type = cast<RankedTensorType>(elements.getType());
  SmallVector<char> bytes;
  if (type.getElementType().isInteger(1)) { // one byte per element in memory
    for (bool value : elements.getValues<bool>())
      bytes.push_back(value);
  } else if (elements.isSplat()) {
    for (int64_t i = 0, n = type.getNumElements(); i < n; ++i)
      llvm::append_range(bytes, elements.getRawData());
  } else {
    llvm::append_range(bytes, elements.getRawData());
  }
  tensors.push_back(json::Object{{"name", name},
                                 {"role", "constant"},
                                 {"type", typeName(type.getElementType())},
                                 {"shape", shapeArray(type.getShape())},
                                 {"buffer", bufferArray(buffer)},
                                 {"initial", append(bytes)},
                                 {"initial_type", typeName(type.getElementType())}});
}

json::Value ProgramWriter::operand(Value value) {
  if (!value)
    return nullptr;
  auto type = cast<RankedTensorType>(value.getType());
  Value root = stripReshapes(value);
  bool isWeight = false;
  if (auto argument = dyn_cast<BlockArgument>(root)) {
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    auto role =
        function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), MpcDialect::kRoleAttr);
    isWeight = role && llvm::is_contained({"parameter", "half_copy", "constant"}, role.getValue());
  }
  json::Object object{{"buffer", bufferArray(bufferOf(value))},
                      {"type", typeName(type.getElementType())},
                      {"shape", shapeArray(type.getShape())}};
  if (isWeight)
    object["is_weight"] = true;
  return object;
}

/// The windows of all convolutions.
template <typename ConvLike> void convolutionFields(json::Object &object, ConvLike op) {
  object["strides"] = json::Array(op.getStrides());
  object["pads"] = json::Array(op.getPads());
  object["dilations"] = json::Array(op.getDilations());
  object["groups"] = int64_t(op.getGroups());
  object["channels_last"] = bool(op.getChannelsLast());
}

/// Attention has its operands and results as lists.
template <typename AttentionLike> json::Object ProgramWriter::attentionCommand(AttentionLike op) {
  json::Array operands, results;
  for (Value each : op->getOperands())
    operands.push_back(operand(each));
  for (Value each : op->getResults())
    results.push_back(operand(each));
  json::Object object{{"operands", std::move(operands)},
                      {"results", std::move(results)},
                      {"scale", op.getScale().convertToDouble()},
                      {"bias_dimensions", json::Array(op.getBiasDimensions())},
                      {"safe", bool(op.getSafe())}};
  if (auto ratio = op.getRatio())
    object["dropout_ratio"] = ratio->convertToDouble();
  return object;
}

json::Object ProgramWriter::libraryCommand(Operation *op) {
  json::Object object;
  llvm::TypeSwitch<Operation *>(op)
      .Case<AttentionOp, AttentionGradOp>(
          [&](auto attention) { object = attentionCommand(attention); })
      .Case([&](MatmulOp matmul) {
        object["lhs"] = operand(matmul.getLhs());
        object["rhs"] = operand(matmul.getRhs());
        object["bias"] = operand(matmul.getBias());
        object["transpose_lhs"] = bool(matmul.getTransposeLhs());
        object["transpose_rhs"] = bool(matmul.getTransposeRhs());
        object["relu"] = bool(matmul.getRelu());
      })
      .Case([&](ConvOp conv) {
        object["lhs"] = operand(conv.getInput());
        object["rhs"] = operand(conv.getFilter());
        object["bias"] = operand(conv.getBias());
        object["relu"] = bool(conv.getRelu());
        convolutionFields(object, conv);
      })
      .Case([&](ConvBackwardDataOp conv) {
        object["lhs"] = operand(conv.getOutputGradient());
        object["rhs"] = operand(conv.getFilter());
        convolutionFields(object, conv);
      })
      .Case([&](ConvBackwardWeightsOp conv) {
        object["lhs"] = operand(conv.getInput());
        object["rhs"] = operand(conv.getOutputGradient());
        convolutionFields(object, conv);
      });
  object["kind"] = op->getName().stripDialect();
  if (op->getNumResults() == 1)
    object["result"] = operand(op->getResult(0));
  return object;
}

/// Arguments, results, scratch.
json::Array ProgramWriter::launchBuffers(LaunchOp launch) {
  json::Array buffers;
  for (Value input : launch.getInputs())
    buffers.push_back(bufferArray(bufferOf(input)));
  for (Value result : launch.getResults())
    buffers.push_back(bufferArray(bufferOf(result)));
  if (auto scratch = launch->getAttrOfType<BufferAttr>("mpc.scratch"))
    buffers.push_back(bufferArray(scratch));
  return buffers;
}

/// One command for all of them.
void ProgramWriter::groupCommand(const gpu::Group &group, json::Array &out) {
  int64_t bytes = 0;
  json::Array members, shared;
  for (auto [launch, words] : llvm::zip_equal(group.launches, group.words)) {
    bytes += movedBytes(launch);
    json::Array all = launchBuffers(launch), own;
    if (members.empty())
      for (unsigned position : group.shared)
        shared.push_back(all[position]);
    for (unsigned position : group.own)
      own.push_back(all[position]);
    members.push_back(json::Object{{"buffers", std::move(own)}, {"words", json::Array(words)}});
  }
  std::string name = func::FuncOp(group.kernel).getName().str();
  json::Object command{{"kind", "kernel"}, {"node", name}, {"name", name}, {"bytes", bytes}};
  gpuFields(command, group.functions, std::move(shared));
  command["members"] = std::move(members);
  out.push_back(std::move(command));
}

void ProgramWriter::launchCommands(LaunchOp launch, json::Array &out) {
  if (isGpu && gpu::GroupIndex::isSilent(launch)) {
    if (const gpu::Group *group = groups->find(launch))
      groupCommand(*group, out);
    return;
  }
  auto kernel = module.lookupSymbol<func::FuncOp>(launch.getKernel());
  json::Array buffers = launchBuffers(launch);
  StringRef node = nodeOf(launch);
  json::Object command{{"kind", "kernel"},
                       {"node", json::fixUTF8(node.empty() ? launch.getKernel() : node)},
                       {"name", kernel.getName()},
                       {"bytes", movedBytes(launch)}};
  if (isGpu) {
    // Equal kernels share the functions of the first.
    func::FuncOp shared =
        kernels.entries[kernels.index.lookup(kernelFunctions(kernel)[0].name)].second;
    json::Array parameters;
    for (const KernelBuffer &buffer : distinctBuffers(kernel, gpu::scratchBytes(kernel)))
      parameters.push_back(buffers[buffer.position]);
    if (auto functions = gpu::functions(shared); !functions.empty()) {
      gpuFields(command, functions, std::move(parameters));
      out.push_back(std::move(command));
    }
    return;
  }
  for (const KernelFunction &function : kernelFunctions(kernel)) {
    command["name"] = function.name;
    command["function"] = kernels.index.lookup(function.name);
    command["extent"] = function.extent;
    command["grain"] = function.grain;
    command["buffers"] = json::Array(buffers);
    out.push_back(json::Object(command));
  }
}

/// What a GPU launches for a command.
void ProgramWriter::gpuFields(json::Object &command, ArrayRef<gpu::Function> functions,
                              json::Array buffers) {
  json::Array list;
  for (const gpu::Function &function : functions) {
    json::Object object{
        {"symbol", function.name}, {"grid", function.grid}, {"block", function.block}};
    if (function.afterLibrary)
      object["after_library"] = true;
    list.push_back(std::move(object));
  }
  command["functions"] = std::move(list);
  command["buffers"] = std::move(buffers);
}

json::Array ProgramWriter::imageList() {
  static const char *const kinds[] = {"cubin", "ptx", "simulator"}; // DeviceImage::Kind
  json::Array list;
  for (const DeviceImage &image : images)
    list.push_back(
        json::Object{{"kind", kinds[image.kind]},
                     {"architecture", image.architecture},
                     {"data", append(ArrayRef(image.bytes.data(), image.bytes.size()))}});
  return list;
}

llvm::Error ProgramWriter::commands(func::FuncOp function, json::Array &out) {
  for (Operation &op : function.getBody().front()) {
    if (auto launch = dyn_cast<LaunchOp>(op)) {
      launchCommands(launch, out);
    } else if (auto value = dyn_cast<arith::ConstantOp>(op)) {
      constant(value);
    } else if (isLibraryOp(&op)) {
      json::Object object = libraryCommand(&op);
      if (isGpu) {
        json::Array buffers;
        for (Value operand : op.getOperands())
          buffers.push_back(bufferArray(bufferOf(operand)));
        for (Value result : op.getResults())
          buffers.push_back(bufferArray(bufferOf(result)));
        if (auto scratch = op.getAttrOfType<BufferAttr>("mpc.scratch"))
          buffers.push_back(bufferArray(scratch));
        auto functions = gpu::libraryFunctions(&op);
        if (functions.empty())
          continue; // no elements
        gpuFields(object, functions, std::move(buffers));
      }
      if (StringRef node = nodeOf(&op); !node.empty())
        object["node"] = json::fixUTF8(node);
      object["bytes"] = movedBytes(&op);
      if (auto cost = dyn_cast<CostOpInterface>(op))
        object["flops"] = cost.flops();
      out.push_back(std::move(object));
    } else if (!isa<ReshapeOp, func::ReturnOp>(op)) {
      return llvm::createStringError("the planned program holds '%s', which is no command",
                                     op.getName().getStringRef().str().c_str());
    }
  }
  return llvm::Error::success();
}

json::Object ProgramWriter::exportObject(const ExportTemplate &exported) {
  json::Array holes;
  for (const TemplateHole &hole : exported.holes) {
    for (const char *role : {"parameter", "statistic"})
      if (auto it = tensorIds.find({role, hole.tensor}); it != tensorIds.end()) {
        holes.push_back(json::Object{{"offset", hole.offset},
                                     {"bytes", hole.bytes},
                                     {"type", hole.type},
                                     {"tensor", it->second}});
        break;
      }
  }
  return json::Object{
      {"template", append(ArrayRef<char>(exported.bytes.data(), exported.bytes.size()))},
      {"holes", std::move(holes)}};
}

llvm::Expected<std::string> ProgramWriter::write(const ExportTemplate *exported) {
  json::Object entries;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function->hasAttr(MpcDialect::kKernelAttr))
      continue;
    json::Array arguments, results, list;
    if (llvm::Error error = functionTensors(function, arguments, results))
      return error;
    if (llvm::Error error = commands(function, list))
      return error;
    entries[function.getName()] = json::Object{{"arguments", std::move(arguments)},
                                               {"results", std::move(results)},
                                               {"commands", std::move(list)}};
  }
  auto text = [&](StringRef name) {
    auto attr = module->getAttrOfType<StringAttr>(name);
    return json::Value(json::fixUTF8(attr ? attr.getValue() : ""));
  };
  auto integer = [&](StringRef name, int64_t otherwise) {
    auto attr = module->getAttrOfType<IntegerAttr>(name);
    return json::Value(attr ? attr.getInt() : otherwise);
  };
  auto dictionary = [&](StringRef name) {
    json::Object object;
    if (auto attr = module->getAttrOfType<DictionaryAttr>(name))
      for (NamedAttribute entry : attr)
        object[json::fixUTF8(entry.getName())] = cast<IntegerAttr>(entry.getValue()).getInt();
    return object;
  };
  auto listsByName = [&](StringRef name) {
    json::Object object;
    if (auto attr = module->getAttrOfType<DictionaryAttr>(name))
      for (NamedAttribute entry : attr)
        object[json::fixUTF8(entry.getName())] =
            json::Array(cast<DenseI64ArrayAttr>(entry.getValue()).asArrayRef());
    return object;
  };
  auto strings = [&](StringRef name) {
    json::Array list;
    if (auto attr = module->getAttrOfType<ArrayAttr>(name))
      for (Attribute text : attr)
        list.push_back(json::fixUTF8(cast<StringAttr>(text).getValue()));
    return list;
  };
  llvm::Expected<CpuDescription> cpu = describeCpu(options.cpu);
  if (!cpu)
    return cpu.takeError();
  json::Object program{
      {"abi", MPC_PROGRAM_ABI},
      {"model_name", text("mpc.model")},
      {"compiler_version", MPC_COMPILER_VERSION},
      {"precision", options.precision},
      {"loss", options.loss},
      {"optimizer", options.optimizer},
      {"target", options.target},
      {"cpu", isGpu ? "" : cpu->cpu},
      {"build_facts", isGpu ? "" : "cpu-features: " + llvm::join(cpu->required, ",")},
      {"loss_scale_mode", options.resolvedLossScale()},
      {"batch", integer("mpc.batch", 1)},
      {"classes", integer("mpc.classes", 0)},
      {"ignore_index", integer("mpc.ignore_index", -100)},
      {"tail_refused_why", text("mpc.tail_refused")},
      {"batch_axis", dictionary("mpc.batch_axes")},
      {"output_samples", listsByName("mpc.output_samples")},
      {"index_limit", dictionary("mpc.index_limit")},
      {"notes", strings("mpc.notes")},
      {"left_out", strings("mpc.left_out")},
      {"regions", dictionary("mpc.region_bytes")},
      {"entries", std::move(entries)}};
  if (isGpu)
    program["images"] = imageList();
  if (options.simulate) {
    llvm::Expected<std::string> folder = runtimeFolder();
    if (!folder)
      return folder.takeError();
    program["simulator_folder"] = json::fixUTF8(*folder + "/sim");
  }
  if (exported)
    program["export"] = exportObject(*exported);
  program["tensors"] = std::move(tensors);
  std::string result;
  llvm::raw_string_ostream(result) << json::Value(std::move(program));
  return result;
}

} // namespace

llvm::Expected<std::string> mpc::writeProgram(ModuleOp planned, const CompileOptions &options,
                                              WeightStore &weights, const ExportTemplate *exported,
                                              ArrayRef<DeviceImage> images,
                                              llvm::raw_ostream &data) {
  return ProgramWriter(planned, options, weights, images, data).write(exported);
}
