//===- SimulatorBackend.h - GPU kernels on the simulator, for tests -----------------------===//

#ifndef MPC_TEST_UNIT_SIMULATORBACKEND_H
#define MPC_TEST_UNIT_SIMULATORBACKEND_H

#include "CpuBackend.h"
#include "compiler/codegen/gpu/Group.h"
#include "compiler/codegen/gpu/LibraryCode.h"
#include "compiler/codegen/gpu/Product.h"
#include "compiler/target/cuda/CudaTarget.h"
#include "runtime/sim/Executor.h"
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace mpc::test {

class SimulatorBackend {
public:
  SimulatorBackend() = default;
  SimulatorBackend(const SimulatorBackend &) = delete;
  ~SimulatorBackend() {
    if (image)
      dlclose(image);
    if (file >= 0)
      close(file);
  }

  /// For sm_NN; "native" stands for sm_80, other names for sm_70, which does not round to bf16.
  std::string compile(mlir::ModuleOp module, const std::string &cpu) {
    unsigned architecture = cpu == "native" ? 80 : 70;
    llvm::StringRef number(cpu);
    if (number.consume_front("sm_") && number.getAsInteger(10, architecture))
      return cpu + " is no architecture";
    auto bytes = compileForSimulator(module, architecture);
    if (!bytes)
      return llvm::toString(bytes.takeError());
    file = memfd_create("kernels", 0);
    if (file < 0 || write(file, bytes->data(), bytes->size()) != ssize_t(bytes->size()))
      return "the image cannot be written";
    std::string path = "/proc/self/fd/" + std::to_string(file);
    image = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!image)
      return dlerror();
    table = static_cast<const MpcSimKernel *>(dlsym(image, "mpc_sim_kernels"));
    return table ? "" : "the image has no kernels";
  }

  /// `buffers`: arguments and results, as in a launch. What is not theirs must not be touched.
  std::string run(mlir::func::FuncOp kernel, std::vector<void *> buffers, int /*pieces*/) {
    Storage scratch(gpu::scratchBytes(kernel));
    buffers.push_back(scratch.data());
    std::vector<std::pair<void *, size_t>> parameters;
    for (const KernelBuffer &buffer : distinctBuffers(kernel, scratch.bytes))
      parameters.push_back({buffers[buffer.position], buffer.bytes});
    return launch(gpu::functions(kernel), parameters);
  }

  std::string launch(llvm::ArrayRef<gpu::Function> functions, llvm::ArrayRef<Storage> buffers) {
    std::vector<std::pair<void *, size_t>> parameters;
    for (const Storage &buffer : buffers)
      parameters.push_back({buffer.data(), buffer.bytes});
    return launch(functions, parameters);
  }

  /// All members of a group at once; `buffers`: of each, arguments, results and scratch, as in a
  /// launch, whose distinct ones are `sizes` long.
  std::string run(const gpu::Group &group, llvm::ArrayRef<std::vector<Storage>> buffers) {
    sim::MemoryMap memory;
    std::vector<std::pair<void *, size_t>> shared;
    std::vector<char> table;
    auto append = [&](const auto &value) {
      auto *first = reinterpret_cast<const char *>(&value);
      table.insert(table.end(), first, first + sizeof value);
    };
    for (unsigned position : group.shared)
      shared.push_back({buffers[0][position].data(), buffers[0][position].bytes});
    for (auto [own, words] : llvm::zip_equal(buffers, group.words)) {
      for (unsigned position : group.own) {
        append(own[position].data());
        memory.add(own[position].data(), own[position].bytes);
      }
      for (int64_t word : words)
        append(static_cast<uint32_t>(word));
    }
    return launch(group.functions, std::move(shared), std::move(memory), &table);
  }

  /// One function after the other, on these parameters: pointers to so many bytes.
  std::string launch(llvm::ArrayRef<gpu::Function> functions,
                     std::vector<std::pair<void *, size_t>> buffers, sim::MemoryMap memory = {},
                     std::vector<char> *table = nullptr) {
    std::vector<void *> parameters;
    for (auto &[pointer, bytes] : buffers) {
      memory.add(pointer, bytes);
      parameters.push_back(&pointer);
    }
    if (table)
      parameters.push_back(table->data());
    for (const gpu::Function &function : functions) {
      const MpcSimKernel *entry = find(function.name);
      if (!entry || entry->parameters != parameters.size() ||
          (table && sim::parameterBytes(*entry, parameters.size() - 1) != table->size()))
        return "the image has no such kernel " + function.name;
      if (entry->shared_bytes > uint64_t(function.sharedBytes))
        return function.name + " uses more shared memory than its launch says";
      sim::Extent grid{uint32_t(function.grid), 1, 1}, block{uint32_t(function.block), 1, 1};
      if (std::string problem = sim::run(*entry, grid, block, parameters.data(), memory);
          !problem.empty())
        return problem;
    }
    return "";
  }

  const MpcSimKernel *find(const std::string &name) const {
    for (const MpcSimKernel *entry = table; entry->name; ++entry)
      if (name == entry->name)
        return entry;
    return nullptr;
  }

private:
  int file = -1; ///< open while the image is loaded: the loader knows images by their names
  void *image = nullptr;
  const MpcSimKernel *table = nullptr;
};

} // namespace mpc::test

#endif // MPC_TEST_UNIT_SIMULATORBACKEND_H
