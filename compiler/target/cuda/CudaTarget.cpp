//===- CudaTarget.cpp - kernels as PTX and cubins ---------------------------------------===//

#include "compiler/target/cuda/CudaTarget.h"
#include "compiler/codegen/Kernel.h"
#include "compiler/codegen/gpu/ConvertKernelsToNVVM.h"
#include "compiler/codegen/gpu/Group.h"
#include "compiler/codegen/gpu/LibraryCode.h"
#include "compiler/target/cuda/Assembler.h"
#include "compiler/target/cuda/SimulatorImage.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

using namespace mlir;

namespace mpc {

// The PTX version that ptxas is given: of CUDA 12.1, the first with room for 32764 bytes of a
// kernel's parameters (the table of a group, Group.h). It knows no later architecture than this;
// those run, and assemble, code for earlier ones.
static constexpr const char *kPtxFeature = "+ptx81";
static constexpr unsigned kLastOfPtx = 90;

/// The architecture whose PTX is made for these, of one text.
static unsigned ptxArchitecture(llvm::ArrayRef<unsigned> architectures) {
  return std::min(*llvm::min_element(architectures), kLastOfPtx);
}

static llvm::Expected<std::unique_ptr<llvm::TargetMachine>> createMachine(unsigned architecture) {
  static const bool once = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  (void)once;
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return llvm::createStringError("the LLVM library has no code generator for NVIDIA GPUs: " +
                                   error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard; // only what carries `contract`
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, "sm_" + std::to_string(architecture), kPtxFeature, options, std::nullopt,
      std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

static void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
}

static void registerTranslations(MLIRContext *context) {
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
  context->appendDialectRegistry(registry);
  context->loadDialect<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                       LLVM::LLVMDialect, math::MathDialect, NVVM::NVVMDialect, scf::SCFDialect,
                       ub::UBDialect>();
}

/// A function that holds nothing but the command.
static void cloneAlone(OpBuilder &builder, Operation *command) {
  OpBuilder::InsertionGuard guard(builder);
  std::string name = gpu::libraryFunctions(command)[0].name + "$command";
  auto function = func::FuncOp::create(
      builder, command->getLoc(), name,
      builder.getFunctionType(command->getOperandTypes(), command->getResultTypes()));
  Block *body = function.addEntryBlock();
  builder.setInsertionPointToEnd(body);
  IRMapping operands;
  operands.map(command->getOperands(), body->getArguments());
  Operation *copy = builder.clone(*command, operands);
  func::ReturnOp::create(builder, command->getLoc(), copy->getResults());
}

/// All kernels and products as optimized LLVM IR, as it goes into the NVPTX code generator; or with
/// calls of NVIDIA's device library left as they are.
static llvm::Expected<std::unique_ptr<llvm::Module>>
lowerKernels(ModuleOp planned, llvm::TargetMachine &machine, unsigned architecture,
             llvm::LLVMContext &llvmContext, bool linkLibrary = true) {
  MLIRContext *context = planned.getContext();
  registerTranslations(context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(planned.getLoc());
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  gpu::GroupIndex groups(planned);
  for (func::FuncOp kernel : groups.kernels())
    builder.clone(*kernel);
  for (Operation *command : gpu::distinctLibraryCommands(planned))
    cloneAlone(builder, command);
  PassManager passes(context, ModuleOp::getOperationName(), PassManager::Nesting::Explicit);
  passes.addPass(gpu::createConvertKernelsToNVVM(architecture));
  if (failed(passes.run(*module)))
    return llvm::createStringError("code generation failed");
  std::unique_ptr<llvm::Module> device = translateModuleToLLVMIR(*module, llvmContext, "mpc");
  if (!device)
    return llvm::createStringError("translation to LLVM IR failed");
  device->setTargetTriple(machine.getTargetTriple());
  device->setDataLayout(machine.createDataLayout());
  if (linkLibrary)
    if (llvm::Error error = linkDeviceLibrary(*device))
      return error;
  optimize(*device, machine);
  return device;
}

static llvm::Expected<std::string> writePtx(llvm::Module &module, llvm::TargetMachine &machine) {
  SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return llvm::createStringError("LLVM cannot write PTX");
  passes.run(module);
  return text.str().str();
}

llvm::Expected<std::string> compileForSimulator(ModuleOp planned, unsigned architecture) {
  llvm::LLVMContext context;
  auto machine = createMachine(architecture);
  if (!machine)
    return machine.takeError();
  auto module = lowerKernels(planned, **machine, architecture, context, /*linkLibrary=*/false);
  if (!module)
    return module.takeError();
  return compileSimulatorImage(**module);
}

/// The architectures in ascending order, those together whose kernels are one text: they differ by
/// instructions for bf16 and, where something multiplies f16, by those of tensor cores.
static SmallVector<std::vector<unsigned>> textsOf(ModuleOp planned,
                                                  std::vector<unsigned> architectures) {
  Type f16 = Float16Type::get(planned.getContext());
  bool multipliesF16 = llvm::any_of(gpu::distinctLibraryCommands(planned), [&](Operation *command) {
    return getElementTypeOrSelf(command->getOperand(0).getType()) == f16;
  });
  auto kind = [&](unsigned architecture) {
    return std::pair(architecture >= kFirstBf16Architecture,
                     multipliesF16 ? gpu::mmaOf(architecture, f16) : gpu::Mma::none);
  };
  llvm::sort(architectures);
  SmallVector<std::vector<unsigned>> texts;
  for (unsigned architecture : architectures) {
    if (texts.empty() || kind(texts.back().back()) != kind(architecture))
      texts.emplace_back();
    texts.back().push_back(architecture);
  }
  return texts;
}

llvm::Expected<std::vector<DeviceImage>>
compileDeviceImages(ModuleOp planned, const CudaTargetOptions &options,
                    std::vector<KernelResources> *resources) {
  std::vector<DeviceImage> images;
  SmallVector<std::vector<unsigned>> texts = textsOf(planned, options.architectures);
  for (const std::vector<unsigned> &text : texts) {
    bool first = images.empty(), last = text == texts.back();
    unsigned base = ptxArchitecture(text);
    llvm::LLVMContext context;
    auto machine = createMachine(base);
    if (!machine)
      return machine.takeError();
    auto module = lowerKernels(planned, **machine, base, context);
    if (!module)
      return module.takeError();
    if (options.simulate && first) {
      auto simulator = compileForSimulator(planned, base);
      if (!simulator)
        return simulator.takeError();
      images.push_back({DeviceImage::simulator, base, std::move(*simulator)});
    }
    auto ptx = writePtx(**module, **machine);
    if (!ptx)
      return ptx.takeError();
    auto cubins = assemble(*ptx, text, options.threads, resources);
    if (!cubins)
      return cubins.takeError();
    for (auto [architecture, bytes] : llvm::zip(text, *cubins))
      images.push_back({DeviceImage::cubin, architecture, std::move(bytes)});
    if (first || last) // the driver reads it up to a NUL
      images.push_back({DeviceImage::ptx, base, std::move(*ptx) + '\0'});
  }
  return images;
}

llvm::Error printDeviceCode(ModuleOp planned, const CudaTargetOptions &options, bool ptx,
                            llvm::raw_ostream &to) {
  unsigned architecture = ptxArchitecture(options.architectures);
  llvm::LLVMContext context;
  auto machine = createMachine(architecture);
  if (!machine)
    return machine.takeError();
  auto module = lowerKernels(planned, **machine, architecture, context);
  if (!module)
    return module.takeError();
  if (!ptx) {
    (*module)->print(to, nullptr);
    return llvm::Error::success();
  }
  auto text = writePtx(**module, **machine);
  if (!text)
    return text.takeError();
  to << *text;
  return llvm::Error::success();
}

} // namespace mpc
