//===- CpuBackend.h - kernels as code of this CPU, for tests ------------------------------===//

#ifndef MPC_TEST_UNIT_CPUBACKEND_H
#define MPC_TEST_UNIT_CPUBACKEND_H

#include "compiler/codegen/Kernel.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cpu/Machine.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Target/TargetMachine.h"
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace mpc::test {

/// Storage of a tensor as a kernel sees it, 64-byte aligned.
class Storage {
public:
  Storage() = default;
  explicit Storage(size_t bytes, unsigned char fill = 0xcd)
      : bytes(bytes),
        memory(static_cast<char *>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), std::free) {
    std::memset(memory.get(), fill, (bytes + 127) / 64 * 64);
  }
  void *data() const { return memory.get(); }
  template <typename T> T *as() const { return reinterpret_cast<T *>(memory.get()); }
  size_t bytes = 0;

private:
  std::shared_ptr<char> memory;
};

class CpuBackend {
public:
  /// Empty, or what went wrong.
  std::string compile(mlir::ModuleOp module, const std::string &cpu) {
    CpuTargetOptions options;
    options.cpu = cpu;
    llvm::LLVMContext context;
    auto native = compileKernels(module, options, context);
    if (!native)
      return llvm::toString(native.takeError());
    auto machine = llvm::cantFail(createMachine(llvm::cantFail(describeCpu(cpu)), 3));
    llvm::SmallString<0> object;
    llvm::raw_svector_ostream stream(object);
    llvm::cantFail(writeNative(**native, *machine, false, stream));
    jit = llvm::cantFail(llvm::orc::LLJITBuilder().create());
    llvm::cantFail(jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object)));
    return "";
  }

  /// `buffers`: arguments and results, as in a launch.
  std::string run(mlir::func::FuncOp kernel, std::vector<void *> buffers, int pieces) {
    Storage scratch(scratchBytes(kernel));
    if (scratch.bytes)
      buffers.push_back(scratch.data());
    for (const KernelFunction &function : kernelFunctions(kernel)) {
      auto address = llvm::cantFail(jit->lookup(function.name))
                         .toPtr<void (*)(int64_t, int64_t, void *const *)>();
      for (int piece = pieces; piece-- > 0;)
        address(function.extent * piece / pieces, function.extent * (piece + 1) / pieces,
                buffers.data());
    }
    return "";
  }

  std::unique_ptr<llvm::orc::LLJIT> jit;
};

} // namespace mpc::test

#endif // MPC_TEST_UNIT_CPUBACKEND_H
