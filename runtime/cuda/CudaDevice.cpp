//===- CudaDevice.cpp - a program's memory and execution on a GPU ----------------------===//
//
// The driver, the kernels, memory and initial values are made in the constructor. An entry point is
// recorded as a graph, once per copy of the inputs (Inputs.h), by prepare() or at its first run,
// and is one call of the driver from then on; before, libraries plan their part of it, which may be
// timed (Tuning.h), and execute it once.
// The host waits for the GPU only where it reads.
//
//===----------------------------------------------------------------------------===//

#include "runtime/core/Device.h"
#include "runtime/core/Error.h"
#include "runtime/cpu/ConvertElements.h"
#include "runtime/cpu/Memory.h"
#include "runtime/cuda/Blas.h"
#include "runtime/cuda/Dnn.h"
#include "runtime/cuda/Images.h"
#include "runtime/cuda/Inputs.h"
#include "runtime/cuda/Statistics.h"
#include "runtime/cuda/Tuning.h"
#include "runtime/data/File.h"
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>

using namespace mpc;
using namespace mpc::cuda;

namespace {

/// Where --device points.
struct Choice {
  int ordinal = 0;
  bool simulate = false;
  std::string folder; ///< of the driver; empty: the loader's
};

class CudaDevice : public Device {
public:
  CudaDevice(const Program &program, const Choice &choice)
      : program(program), choice(choice), gpu(choice.folder, choice.ordinal), image(chosenImage()),
        stream(gpu.stream()), tuning(gpu, stream) {
    addLibrary(Blas::open(gpu, stream, program, choice.folder));
    addLibrary(Dnn::open(gpu, stream, program, choice.folder));
    module = gpu.load(program.raw->data + image.data.offset);
    findFunctions();
    allocate();
    initialize();
    CudaDevice::weightsChanged(); // half copies of the initial parameters
    gpu.synchronize(stream);
  }

  ~CudaDevice() override {
    try { // what is queued uses memory that ends here
      gpu.synchronize(stream);
      inputs->synchronize();
    } catch (const std::exception &) { // the GPU has failed, and somebody has said so
    }
  }

  void read(const TensorInfo &tensor, void *to) override {
    if (tensor.buffer.region == Region::inputs)
      return inputs->read(tensor.buffer.offset, to, tensor.bytes());
    if (isStatistic(tensor.role))
      return statistics->read(stream, tensor, to);
    gpu.download(stream, to, at(tensor.buffer), tensor.bytes());
    gpu.synchronize(stream);
  }

  void write(const TensorInfo &tensor, const void *from) override {
    if (tensor.buffer.region == Region::inputs)
      return inputs->write(tensor.buffer.offset, from, tensor.bytes());
    if (isStatistic(tensor.role))
      return statistics->write(stream, tensor, from);
    gpu.upload(stream, at(tensor.buffer), from, tensor.bytes());
    gpu.synchronize(stream); // the caller may free it
  }

  uint64_t mark() override { return statistics->mark(stream); }
  void readMarked(uint64_t mark, const TensorInfo &tensor, void *to) override {
    statistics->read(mark, tensor, to);
  }
  void release(uint64_t mark) override { statistics->release(mark); }
  bool isAsynchronous() const override { return true; }

  void clear(Region region) override {
    gpu.clear(stream, memoryOf(region), program.region_bytes[static_cast<size_t>(region)]);
    statistics->changed();
  }

  void run(const std::string &name) override { runTogether(name, {name}); }
  void run(const EntryList &list) override { runTogether(list.name, list.entries); }

  void prepare(const EntryList &list) override {
    int current = inputs->publish(stream); // what libraries read
    for (int copy : {current, 1 - current})
      graphOf(list.name, list.entries, copy);
    gpu.synchronize(stream); // what fails shows now
  }

  void useTuned(const TunedChoices &choices) override { tuning.use(choices); }
  void tune() override { tuning.enable(); }
  void addTuned(TunedChoices &to) const override { tuning.addTo(to); }
  std::string describeTuning() const override { return tuning.text(); }

  /// All commands of the entry points are one graph.
  const Graph &graphOf(const std::string &key, const std::vector<std::string> &names, int copy) {
    auto known = graphs[copy].find(key);
    if (known == graphs[copy].end())
      known = graphs[copy].emplace(key, record(names, copy)).first;
    return known->second;
  }

  void runTogether(const std::string &key, const std::vector<std::string> &names) {
    const Graph &graph = graphOf(key, names, inputs->publish(stream));
    if (!graph)
      return; // without commands
    gpu.launch(stream, graph);
    inputs->used(stream);
    statistics->changed();
  }

  void weightsChanged() override {
    if (program.entries.count("refresh"))
      run("refresh");
  }

  uint64_t memoryBytes() const override { return allocated; }

  std::string describe() const override {
    std::string kernels =
        (image.kind == ProgramImage::Kind::ptx ? "PTX of sm_" : "kernels of sm_") +
        std::to_string(image.architecture);
    for (const auto &library : libraries)
      kernels += ", " + library->name();
    return (choice.simulate ? "simulator, " : "GPU " + std::to_string(gpu.ordinal()) + ", ") +
           gpu.name() + " (sm_" + std::to_string(gpu.architecture()) + ", " +
           cpu::bytesText(gpu.totalMemory()) + "), driver of CUDA " +
           versionText(gpu.driverVersion()) + ", " + kernels;
  }

  std::vector<std::string> describeCommands(const std::string &entry) const override {
    std::vector<std::string> lines;
    auto found = program.entries.find(entry);
    if (found == program.entries.end())
      return lines;
    for (const Command &command : found->second.commands)
      if (command.kind != CommandKind::kernel)
        lines.push_back(command.node + " " +
                        elementTypeName(isAttention(command.kind) ? command.operands[0].type
                                                                  : command.lhs.type) +
                        ": " + executor(command));
    return lines;
  }

private:
  /// The image for this GPU; the simulator runs its own in the place of the one that such a GPU
  /// would.
  const ProgramImage &chosenImage() const {
    const ProgramImage &real = chooseImage(program, gpu.architecture(), gpu.name());
    if (!choice.simulate)
      return real;
    for (const ProgramImage &candidate : program.images)
      if (candidate.kind == ProgramImage::Kind::simulator)
        return candidate;
    throw Error("--device sim: this program carries no code of its kernels for the simulator: "
                "compile the model with --simulate");
  }

  /// What executes a library command.
  std::string executor(const Command &command) const {
    for (const auto &library : libraries)
      if (library->executes(command))
        return library->name();
    return "generated kernel " + command.functions[0].symbol;
  }

  void allocate() {
    uint64_t total = 2 * program.region_bytes[static_cast<size_t>(Region::inputs)];
    for (size_t i = 0; i < kRegionCount; ++i)
      if (isPermanent(static_cast<Region>(i)))
        total += program.region_bytes[i];
    if (total > gpu.freeMemory())
      gpu.lacksMemory("training this model", total);
    inputs =
        std::make_unique<Inputs>(gpu, program.region_bytes[static_cast<size_t>(Region::inputs)]);
    allocated = inputs->bytes();
    for (size_t i = 0; i < kRegionCount; ++i)
      if (isPermanent(static_cast<Region>(i)))
        gpu.clear(stream, memoryOf(static_cast<Region>(i)), program.region_bytes[i]);
    statistics =
        std::make_unique<Statistics>(gpu, program, [this](const Buffer &b) { return at(b); });
  }

  void addLibrary(std::unique_ptr<CommandLibrary> library) {
    if (library)
      libraries.push_back(std::move(library));
  }

  /// Plans what libraries execute of the commands, and allocates what they need for that.
  void prepareLibraries(const std::vector<const Command *> &commands, int copy) {
    for (const auto &library : libraries)
      tuning.prepare(*library, commands);
    tuning.time([&](const Command &command) { issue(command, copy); });
    uint64_t needed = 0;
    for (const auto &library : libraries)
      needed = std::max(needed, library->workspaceBytes());
    if (needed > workspaceBytes) {
      // Graphs that were recorded with a smaller one go on with that.
      workspaces.push_back(gpu.allocate(needed, "the workspace of NVIDIA's libraries"));
      workspaceBytes = needed;
      allocated += needed;
    }
    for (const auto &library : libraries)
      library->use(workspaces.empty() ? 0 : CUdeviceptr(workspaces.back()));
  }

  /// Executes what a library will once, so that it loads its kernels before they are recorded. What
  /// that writes the run that follows writes again.
  void warmUp(const std::vector<const Command *> &commands, int copy) {
    for (const Command *command : commands)
      if (isExecutedByLibrary(*command) && mayBeTried(*command) && warm.insert(command).second)
        runLibrary(*command, addressesOf(command->buffers, copy));
  }

  bool isExecutedByLibrary(const Command &command) const {
    return std::any_of(libraries.begin(), libraries.end(),
                       [&](const auto &library) { return library->executes(command); });
  }
  /// False where the command is left to the generated kernel.
  bool runLibrary(const Command &command, const std::vector<CUdeviceptr> &addresses) {
    return std::any_of(libraries.begin(), libraries.end(),
                       [&](const auto &library) { return library->run(command, addresses); });
  }

  /// Everything but the inputs, which exist twice, and the accumulators, which few runs need.
  static bool isPermanent(Region region) {
    return region != Region::inputs && region != Region::accumulators;
  }

  /// The region's memory, allocated at its first use.
  CUdeviceptr memoryOf(Region region) {
    size_t index = static_cast<size_t>(region);
    if (!regions[index]) {
      // One line more, so that buffers of no bytes at a region's end have an address of their own.
      uint64_t bytes = program.region_bytes[index] + 64;
      regions[index] = gpu.allocate(bytes, std::string("the region ") + regionName(region));
      allocated += bytes;
    }
    return regions[index];
  }

  CUdeviceptr at(const Buffer &buffer) { return memoryOf(buffer.region) + buffer.offset; }

  void initialize() {
    std::vector<std::byte> values;
    for (const TensorInfo &tensor : program.tensors) {
      if (!tensor.initial.bytes)
        continue;
      values.resize(tensor.bytes());
      convertElements(tensor.initial_type, program.raw->data + tensor.initial.offset, tensor.type,
                      values.data(), tensor.elements());
      write(tensor, values.data());
    }
    // A working copy starts as what it is a copy of.
    for (const TensorInfo &tensor : program.tensors)
      if (tensor.role == Role::working_statistic) {
        int from = program.find(Role::statistic, tensor.name);
        if (from >= 0 && program.tensors[from].bytes() == tensor.bytes())
          gpu.copy(stream, at(tensor.buffer), at(program.tensors[from].buffer), tensor.bytes());
      }
  }

  /// Of all the entry points, in order.
  std::vector<const Command *> commandsOf(const std::vector<std::string> &names) const {
    std::vector<const Command *> commands;
    for (const std::string &name : names) {
      auto entry = program.entries.find(name);
      if (entry == program.entries.end())
        throw Error("the compiled program has no entry point '" + name + "'");
      for (const Command &command : entry->second.commands)
        commands.push_back(&command);
    }
    return commands;
  }

  Graph record(const std::vector<std::string> &names, int copy) {
    std::vector<const Command *> commands = commandsOf(names);
    if (commands.empty())
      return {};
    for (const Command *command : commands) { // allocates what an accumulating run needs
      addressesOf(command->buffers, copy);
      for (const GroupMember &member : command->members)
        addressesOf(member.buffers, copy);
    }
    prepareLibraries(commands, copy);
    warmUp(commands, copy);
    return gpu.capture(stream, [&] {
      for (const Command *command : commands)
        issue(*command, copy);
    });
  }

  std::vector<CUdeviceptr> addressesOf(const std::vector<Buffer> &buffers, int copy) {
    std::vector<CUdeviceptr> addresses;
    for (const Buffer &buffer : buffers)
      addresses.push_back(buffer.region == Region::inputs ? inputs->at(copy, buffer.offset)
                                                          : at(buffer));
    return addresses;
  }

  /// The members' records, one behind the other.
  std::vector<std::byte> tableOf(const Command &command, int copy) {
    std::vector<std::byte> table;
    auto append = [&](const auto &values) {
      auto *first = reinterpret_cast<const std::byte *>(values.data());
      table.insert(table.end(), first, first + values.size() * sizeof values[0]);
    };
    for (const GroupMember &member : command.members) {
      append(addressesOf(member.buffers, copy));
      append(member.words);
    }
    return table;
  }

  void issue(const Command &command, int copy) {
    std::vector<CUdeviceptr> addresses = addressesOf(command.buffers, copy);
    bool isDone = runLibrary(command, addresses);
    std::vector<void *> parameters;
    for (CUdeviceptr &address : addresses)
      parameters.push_back(&address);
    std::vector<std::byte> table = tableOf(command, copy);
    if (!table.empty())
      parameters.push_back(table.data());
    for (const GpuFunction &f : command.functions)
      if (f.after_library == isDone)
        gpu.launch(stream, functions.at(f.symbol), f.grid, f.block, parameters.data());
  }

  /// Before anything is recorded: a driver may load a kernel as late as at its first launch, and
  /// may not while it records.
  void findFunctions() {
    for (const auto &[name, entry] : program.entries)
      for (const Command &command : entry.commands)
        for (const GpuFunction &f : command.functions) {
          if (!functions.count(f.symbol))
            gpu.load(functions[f.symbol] = gpu.function(module, f.symbol));
          std::vector<size_t> parameters(command.buffers.size(), sizeof(CUdeviceptr));
          if (!command.members.empty())
            parameters.push_back(command.members.size() * command.members[0].bytes());
          gpu.checkParameters(functions[f.symbol], f.symbol, parameters);
        }
  }

  const Program &program;
  Choice choice;
  Gpu gpu;
  const ProgramImage &image;
  Stream stream;
  std::vector<std::unique_ptr<CommandLibrary>> libraries; ///< generated kernels execute the rest
  Tuning tuning;
  Module module;
  std::map<std::string, CUfunction> functions;
  std::array<DeviceMemory, kRegionCount> regions;
  std::vector<DeviceMemory> workspaces; ///< of the libraries, whose work is all in one stream
  uint64_t workspaceBytes = 0;          ///< of the last one, the largest
  std::set<const Command *> warm;       ///< that a library has executed
  std::unique_ptr<Inputs> inputs;
  std::unique_ptr<Statistics> statistics;
  std::map<std::string, Graph> graphs[2]; ///< by copy of the inputs
  uint64_t allocated = 0;
};

Choice parseChoice(const Program &program, const std::string &device) {
  Choice choice;
  if (device == "sim") {
    if (program.simulator_folder.empty())
      throw Error("--device sim: this program carries no code of its kernels for the simulator: "
                  "compile the model with --simulate");
    choice.simulate = true;
    const char *folder = std::getenv("MPC_SIM_LIBS");
    choice.folder = folder && *folder ? folder : program.simulator_folder;
    return choice;
  }
  const char *end = device.data() + device.size();
  auto [stop, error] = std::from_chars(device.data(), end, choice.ordinal);
  if (!device.empty() && (error != std::errc() || stop != end || choice.ordinal < 0))
    throw Error("--device " + quote(device) +
                ": this program was compiled for NVIDIA GPUs (--target=cuda): a number from 0 on, "
                "or sim");
  return choice;
}

std::unique_ptr<Device> makeCudaDevice(const Program &program, const std::string &device, int) {
  return std::make_unique<CudaDevice>(program, parseChoice(program, device));
}

} // namespace

const MakeDevice mpc_make_cuda_device = makeCudaDevice;
