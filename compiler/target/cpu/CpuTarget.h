//===- CpuTarget.h - kernels as native code, and the program's object file ---------------===//

#ifndef MPC_TARGET_CPU_CPUTARGET_H
#define MPC_TARGET_CPU_CPUTARGET_H

#include "compiler/codegen/Passes.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>
#include <vector>

namespace llvm {
class TargetMachine;
}

namespace mpc {

struct CpuTargetOptions {
  std::string cpu = "native"; ///< native, or a name that LLVM knows ("x86-64-v3", "znver4")
  int optLevel = 3;
  unsigned threads = 2; ///< that compile at the same time
};

/// A CPU to generate code for.
struct CpuDescription {
  std::string cpu;      ///< LLVM's name; for native the name of the CPU at hand
  std::string features; ///< LLVM's feature list, only for native
  HalfSupport half;
  /// What the CPU at run time must have, by the names of GCC's __builtin_cpu_supports: "avx2",
  /// "avx512bf16".
  std::vector<std::string> required;
};

/// Fails for a name that LLVM does not know for this architecture.
llvm::Expected<CpuDescription> describeCpu(llvm::StringRef cpu);

/// All kernels of a planned module (their functions with #mpc.kernel) as optimized LLVM IR in
/// `context`; the functions that runtime/core/Program.h calls MpcKernel are external, under the
/// names of kernelFunctions(). Errors of code generation are reported as MLIR diagnostics too.
llvm::Expected<std::unique_ptr<llvm::Module>>
compileKernels(mlir::ModuleOp planned, const CpuTargetOptions &options, llvm::LLVMContext &context);

/// The same as text: LLVM IR, or assembly.
llvm::Error printKernels(mlir::ModuleOp planned, const CpuTargetOptions &options, bool assembly,
                         llvm::raw_ostream &to);

/// What the object file holds beside the kernels.
struct ProgramData {
  std::string json;     ///< docs/program.md
  std::string dataPath; ///< the file that becomes MpcProgram::data; empty: no data
  uint64_t dataSize = 0;
  std::string deviceFactory = "mpc_make_cpu_device"; ///< MpcProgram::make_device
};

/// Writes the object file that defines `mpc_program`; kernel i of its table is entry i of
/// kernelIndex(planned).
llvm::Error emitProgramObject(mlir::ModuleOp planned, const ProgramData &data,
                              const CpuTargetOptions &options, llvm::StringRef path);

} // namespace mpc

#endif // MPC_TARGET_CPU_CPUTARGET_H
