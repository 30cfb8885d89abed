//===- CpuDevice.cpp - a program's memory and execution on the CPU -----------------===//
//
// Everything that can be done before the first step is done in the constructor: regions,
// initial values, library primitives, scratch, and each entry point as a flat list of calls
// with their addresses. A run walks the list.
//
//===----------------------------------------------------------------------------===//

#include "runtime/core/Device.h"
#include "runtime/core/Error.h"
#include "runtime/cpu/CheckCpu.h"
#include "runtime/cpu/ConvertElements.h"
#include "runtime/cpu/Library.h"
#include "runtime/cpu/Memory.h"
#include "runtime/cpu/Profile.h"
#include "runtime/cpu/Threads.h"
#include "runtime/data/File.h"
#include <cstring>

using namespace mpc;
using namespace mpc::cpu;

namespace {

struct Step {
  MpcKernel kernel = nullptr; // null: a library command
  int64_t extent = 0, grain = 1;
  std::vector<void *> buffers;
  std::unique_ptr<LibraryCommand> library;
};

class CpuDevice : public Device {
public:
  CpuDevice(const Program &program, int threads)
      : program(program), threads(threads > 0 ? threads : usableCpus()) {
    checkCpu(program);
    allocate();
    initialize();
    compile();
    CpuDevice::weightsChanged(); // half copies of the initial parameters
    profile = Profile::fromEnvironment(program);
  }
  ~CpuDevice() override {
    if (profile)
      profile->write(
          [this](const std::string &entry, size_t index) { return describe(entry, index); });
  }

  void read(const TensorInfo &tensor, void *to) override {
    if (size_t bytes = tensor.bytes(); bytes != 0) // without elements, `to` may be null
      std::memcpy(to, at(tensor.buffer), bytes);
  }
  void write(const TensorInfo &tensor, const void *from) override {
    if (size_t bytes = tensor.bytes(); bytes != 0)
      std::memcpy(at(tensor.buffer), from, bytes);
    if (tensor.role == Role::parameter || tensor.role == Role::half_copy)
      ++library->weights_version;
  }

  void clear(Region region) override {
    size_t index = static_cast<size_t>(region);
    if (region == Region::accumulators && !accumulators_used) {
      // Reserved at start, but no memory was behind it until now.
      requireFreeMemory(program.region_bytes[index], "accumulating gradients");
      accumulators_used = true;
    }
    useThreads();
    regions[index].clear(threads);
  }

  using Device::run;
  void run(const std::string &name) override {
    auto it = steps.find(name);
    if (it == steps.end())
      throw Error("the compiled program has no entry point '" + name + "'");
    useThreads();
    if (profile)
      runProfiled(it->second, profile->of(name));
    else
      for (Step &step : it->second)
        run(step);
    if (name == "apply" || name == "apply_accumulated" || name == "refresh")
      ++library->weights_version;
  }

  void weightsChanged() override {
    ++library->weights_version;
    if (steps.count("refresh"))
      run("refresh");
  }

  uint64_t memoryBytes() const override {
    uint64_t bytes = scratch.bytes() + library->copyBytes();
    for (size_t i = 0; i < kRegionCount; ++i)
      if (i != static_cast<size_t>(Region::accumulators) || accumulators_used)
        bytes += regions[i].bytes();
    return bytes;
  }

  std::string describe() const override {
    return "CPU, " + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") +
           cpuDescription();
  }

  std::vector<std::string> describeCommands(const std::string &entry) const override {
    std::vector<std::string> lines;
    auto it = steps.find(entry);
    if (it == steps.end())
      return lines;
    const std::vector<Command> &commands = program.entries.at(entry).commands;
    for (size_t i = 0; i < commands.size(); ++i)
      if (it->second[i].library)
        lines.push_back(std::string(kindName(commands[i])) + " " + commands[i].node + " " +
                        elementTypeName(commands[i].lhs.type) + ": " +
                        it->second[i].library->describe());
    return lines;
  }

private:
  static const char *kindName(const Command &command) {
    constexpr const char *names[] = {"kernel", "matmul", "conv", "conv_backward_data",
                                     "conv_backward_weights"};
    return names[static_cast<size_t>(command.kind)];
  }

  /// A line of the profile: what a command is, and how it is executed.
  std::string describe(const std::string &entry, size_t index) const {
    const Command &command = program.entries.at(entry).commands[index];
    if (command.kind == CommandKind::kernel)
      return "kernel " + command.name;
    auto shape = [](const Operand &operand) {
      std::string text;
      for (int64_t dim : operand.shape)
        text += (text.empty() ? "" : "x") + std::to_string(dim);
      return text;
    };
    return std::string(kindName(command)) + " " + elementTypeName(command.lhs.type) + " " +
           shape(command.lhs) + (command.transpose_lhs ? "ᵀ · " : " · ") + shape(command.rhs) +
           (command.transpose_rhs ? "ᵀ: " : ": ") + steps.at(entry)[index].library->describe();
  }

  void run(Step &step) {
    if (step.library)
      step.library->run();
    else
      parallelRanges(step.extent, step.grain, threads, [&step](int64_t begin, int64_t end) {
        step.kernel(begin, end, step.buffers.data());
      });
  }

  void runProfiled(std::vector<Step> &list, std::vector<Profile::Times> &times) {
    Lap lap;
    for (size_t i = 0; i < list.size(); ++i) {
      run(list[i]);
      times[i].add(lap());
    }
  }

  std::byte *at(const Buffer &buffer) const {
    return regions[static_cast<size_t>(buffer.region)].data() + buffer.offset;
  }

  // The number of threads is a property of the calling thread in OpenMP, and oneDNN asks for it.
  void useThreads() {
    if (omp_get_max_threads() != threads)
      omp_set_num_threads(threads);
  }

  void allocate() {
    uint64_t total = 0;
    for (size_t i = 0; i < kRegionCount; ++i)
      if (i != static_cast<size_t>(Region::accumulators))
        total += program.region_bytes[i];
    requireFreeMemory(total, "training this model");
    for (size_t i = 0; i < kRegionCount; ++i)
      // One line more, so that buffers of no bytes at a region's end have an address of their own.
      regions[i] = Memory(program.region_bytes[i] + 64,
                          std::string("the region ") + regionName(static_cast<Region>(i)));
  }

  void initialize() {
    for (const TensorInfo &tensor : program.tensors)
      if (tensor.initial.bytes)
        convertElements(tensor.initial_type, program.raw->data + tensor.initial.offset, tensor.type,
                        at(tensor.buffer), tensor.elements());
    // A working copy starts as what it is a copy of.
    for (const TensorInfo &tensor : program.tensors)
      if (tensor.role == Role::working_statistic) {
        int from = program.find(Role::statistic, tensor.name);
        if (from >= 0 && program.tensors[from].bytes() == tensor.bytes())
          std::memcpy(at(tensor.buffer), at(program.tensors[from].buffer), tensor.bytes());
      }
  }

  void compile() {
    useThreads();
    std::array<std::byte *, kRegionCount> starts;
    for (size_t i = 0; i < kRegionCount; ++i)
      starts[i] = regions[i].data();
    library = std::make_unique<Library>(threads, starts);
    size_t scratch_bytes = 0;
    for (const auto &[name, entry] : program.entries) {
      std::vector<Step> &list = steps[name];
      for (const Command &command : entry.commands) {
        list.push_back(step(command));
        if (list.back().library)
          scratch_bytes = std::max(scratch_bytes, list.back().library->scratchBytes());
      }
    }
    requireFreeMemory(scratch_bytes + library->copyBytes(), "the matrix library");
    scratch = Memory(scratch_bytes, "the matrix library's scratch");
    for (auto &[name, list] : steps)
      for (Step &step : list)
        if (step.library)
          step.library->bind(scratch.data());
  }

  Step step(const Command &command) {
    Step step;
    if (command.kind != CommandKind::kernel) {
      step.library = makeLibraryCommand(*library, command);
      return step;
    }
    step.kernel = program.raw->kernels[command.function];
    step.extent = command.extent;
    step.grain = std::max<int64_t>(command.grain, 1);
    for (const Buffer &buffer : command.buffers)
      step.buffers.push_back(at(buffer));
    return step;
  }

  const Program &program;
  int threads;
  std::array<Memory, kRegionCount> regions;
  bool accumulators_used = false;
  std::unique_ptr<Library> library;
  Memory scratch;
  std::map<std::string, std::vector<Step>> steps;
  std::unique_ptr<Profile> profile;
};

} // namespace

static std::unique_ptr<Device> makeNamedDevice(const Program &program, const std::string &device,
                                               int threads) {
  if (device == "sim")
    throw Error("--device sim runs GPU kernels on the simulator: this program was compiled for the "
                "CPU, which is device 0");
  if (!device.empty() && device != "cpu" && device != "0")
    throw Error("--device " + quote(device) +
                ": this program was compiled for the CPU "
                "(--target=cpu), which is device 0");
  return makeCpuDevice(program, threads);
}

const MakeDevice mpc_make_cpu_device = makeNamedDevice;

std::unique_ptr<Device> mpc::makeCpuDevice(const Program &program, int threads) {
  try {
    return std::make_unique<CpuDevice>(program, threads);
  } catch (const dnnl::error &e) {
    throw Error(std::string("the library oneDNN failed at start: ") + e.what());
  }
}
