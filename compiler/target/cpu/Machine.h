//===- Machine.h - the steps from kernels to native code, shared inside this folder -------===//

#ifndef MPC_TARGET_CPU_MACHINE_H
#define MPC_TARGET_CPU_MACHINE_H

#include "compiler/codegen/Kernel.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "llvm/Support/raw_ostream.h"

namespace mpc {

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> createMachine(const CpuDescription &cpu,
                                                                   int optLevel);

/// Makes the translation from the LLVM dialect known; once, before threads start.
void registerTranslations(mlir::MLIRContext *context);

/// Some kernels of a module as optimized LLVM IR. Several threads may do this for one module, each
/// with its own machine and context.
llvm::Expected<std::unique_ptr<llvm::Module>>
lowerKernels(mlir::ModuleOp planned, llvm::ArrayRef<mlir::func::FuncOp> kernels,
             const CpuDescription &cpu, int optLevel, llvm::TargetMachine &machine,
             llvm::LLVMContext &llvmContext);
void optimize(llvm::Module &module, llvm::TargetMachine &machine, int optLevel);
llvm::Error writeNative(llvm::Module &module, llvm::TargetMachine &machine, bool assembly,
                        llvm::raw_pwrite_stream &to);

} // namespace mpc

#endif // MPC_TARGET_CPU_MACHINE_H
