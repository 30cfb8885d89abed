//===- CpuTarget.cpp - kernels as native code ------------------------------------------------===//

#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/codegen/Kernel.h"
#include "compiler/target/cpu/Machine.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/SubtargetFeature.h"

using namespace mlir;

namespace mpc {

static void initializeTargets() {
  static const bool once = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    return true;
  }();
  (void)once;
}

static llvm::Expected<const llvm::Target *> hostTarget(llvm::Triple &triple) {
  initializeTargets();
  triple = llvm::Triple(llvm::sys::getDefaultTargetTriple());
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return llvm::createStringError("the LLVM library has no code generator for " + triple.str() +
                                   ": " + error);
  return target;
}

// What generated code may use, of that which __builtin_cpu_supports can tell.
static constexpr const char *kCheckedFeatures[] = {
    "sse4.1",   "sse4.2",   "popcnt",     "avx",        "avx2",       "fma",
    "f16c",     "bmi",      "bmi2",       "avx512f",    "avx512dq",   "avx512bw",
    "avx512vl", "avx512cd", "avx512vbmi", "avx512vnni", "avx512bf16", "avx512fp16"};

llvm::Expected<CpuDescription> describeCpu(llvm::StringRef cpu) {
  llvm::Triple triple;
  auto target = hostTarget(triple);
  if (!target)
    return target.takeError();
  CpuDescription description;
  if (cpu == "native") {
    description.cpu = llvm::sys::getHostCPUName().str();
    llvm::SubtargetFeatures features;
    for (auto &feature : llvm::sys::getHostCPUFeatures())
      features.AddFeature(feature.first(), feature.second);
    description.features = features.getString();
  } else {
    description.cpu = cpu.str();
  }
  std::unique_ptr<llvm::MCSubtargetInfo> known((*target)->createMCSubtargetInfo(triple, "", ""));
  if (!known || !known->isCPUStringValid(description.cpu))
    return llvm::createStringError(
        "--cpu=" + cpu + ": not a CPU that LLVM knows for " + triple.getArchName() +
        "; use native, or a name such as x86-64-v3 (`llc -mcpu=help` lists them)");
  std::unique_ptr<llvm::MCSubtargetInfo> chosen(
      (*target)->createMCSubtargetInfo(triple, description.cpu, description.features));
  auto has = [&](llvm::StringRef feature) { return chosen->checkFeatures(("+" + feature).str()); };
  if (triple.isX86()) {
    for (const char *feature : kCheckedFeatures)
      if (has(feature))
        description.required.push_back(feature);
    description.half = {has("f16c"), has("avx512bf16") || has("avxneconvert"),
                        has("avx512bf16") ? 16 : 8};
  }
  return description;
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> createMachine(const CpuDescription &cpu,
                                                                   int optLevel) {
  llvm::Triple triple;
  auto target = hostTarget(triple);
  if (!target)
    return target.takeError();
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard; // only what carries `contract`
  auto level = static_cast<llvm::CodeGenOptLevel>(std::clamp(optLevel, 0, 3));
  std::unique_ptr<llvm::TargetMachine> machine((*target)->createTargetMachine(
      triple, cpu.cpu, cpu.features, options, llvm::Reloc::PIC_, std::nullopt, level));
  if (!machine)
    return llvm::createStringError("LLVM cannot generate code for " + triple.str());
  return machine;
}

/// The kernel functions that entries [first, last) of the table are made from.
static OwningOpRef<ModuleOp> cloneKernels(ModuleOp planned, ArrayRef<func::FuncOp> kernels) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(planned.getLoc());
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  for (func::FuncOp kernel : kernels)
    builder.clone(*kernel);
  return module;
}

llvm::Expected<std::unique_ptr<llvm::Module>>
lowerKernels(ModuleOp planned, ArrayRef<func::FuncOp> kernels, const CpuDescription &cpu,
             int optLevel, llvm::TargetMachine &machine, llvm::LLVMContext &llvmContext) {
  MLIRContext *context = planned.getContext();
  OwningOpRef<ModuleOp> module = cloneKernels(planned, kernels);
  PassManager passes(context, ModuleOp::getOperationName(), PassManager::Nesting::Explicit);
  passes.enableVerifier(false); // what is written here is verified by the tests; LLVM verifies its
                                // own form in debug builds
  passes.addPass(createConvertKernelsToLLVM(cpu.half));
  if (failed(passes.run(*module)))
    return llvm::createStringError("code generation failed");
  std::unique_ptr<llvm::Module> native = translateModuleToLLVMIR(*module, llvmContext, "mpc");
  if (!native)
    return llvm::createStringError("translation to LLVM IR failed");
  native->setTargetTriple(machine.getTargetTriple());
  native->setDataLayout(machine.createDataLayout());
  for (llvm::Function &function : *native) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr(llvm::Attribute::NoUnwind);
    function.addFnAttr("target-cpu", cpu.cpu);
    if (!cpu.features.empty())
      function.addFnAttr("target-features", cpu.features);
    if (function.getName().ends_with(".body")) {
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
      function.addFnAttr(llvm::Attribute::NoInline); // its arguments' noalias would get lost
    }
  }
  optimize(*native, machine, optLevel);
  return native;
}

void optimize(llvm::Module &module, llvm::TargetMachine &machine, int optLevel) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = tuning.LoopInterleaving = optLevel >= 2;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  using Level = llvm::OptimizationLevel;
  Level level = optLevel <= 0   ? Level::O0
                : optLevel == 1 ? Level::O1
                : optLevel == 2 ? Level::O2
                                : Level::O3;
  llvm::ModulePassManager passes = optLevel <= 0 ? builder.buildO0DefaultPipeline(level)
                                                 : builder.buildPerModuleDefaultPipeline(level);
  passes.run(module, modules);
}

llvm::Error writeNative(llvm::Module &module, llvm::TargetMachine &machine, bool assembly,
                        llvm::raw_pwrite_stream &to) {
  llvm::legacy::PassManager passes;
  auto type = assembly ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
  if (machine.addPassesToEmitFile(passes, to, nullptr, type))
    return llvm::createStringError("LLVM cannot write this kind of file for " +
                                   machine.getTargetTriple().str());
  passes.run(module);
  return llvm::Error::success();
}

void registerTranslations(MLIRContext *context) {
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  context->appendDialectRegistry(registry);
  // Loading a dialect is nothing for threads: all that code generation makes.
  context->loadDialect<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                       LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect, ub::UBDialect>();
}

llvm::Expected<std::unique_ptr<llvm::Module>>
compileKernels(ModuleOp planned, const CpuTargetOptions &options, llvm::LLVMContext &context) {
  auto cpu = describeCpu(options.cpu);
  if (!cpu)
    return cpu.takeError();
  auto machine = createMachine(*cpu, options.optLevel);
  if (!machine)
    return machine.takeError();
  registerTranslations(planned.getContext());
  return lowerKernels(planned, distinctKernels(kernelIndex(planned)), *cpu, options.optLevel,
                      **machine, context);
}

llvm::Error printKernels(ModuleOp planned, const CpuTargetOptions &options, bool assembly,
                         llvm::raw_ostream &to) {
  llvm::LLVMContext context;
  auto module = compileKernels(planned, options, context);
  if (!module)
    return module.takeError();
  if (!assembly) {
    (*module)->print(to, nullptr);
    return llvm::Error::success();
  }
  auto cpu = describeCpu(options.cpu);
  if (!cpu)
    return cpu.takeError();
  auto machine = createMachine(*cpu, options.optLevel);
  if (!machine)
    return machine.takeError();
  SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  if (llvm::Error error = writeNative(**module, **machine, true, stream))
    return error;
  to << text;
  return llvm::Error::success();
}

} // namespace mpc
