//===- Inference.cpp - compile a model in memory and run it ----------------------------------===//
//
// The same pipeline as for a trainer, without a loss; the kernels are linked by LLVM's JIT
// instead of the linker, and the runtime reads the program's data from memory.
//
//===--------------------------------------------------------------------------------------===//

#include "Inference.h"
#include "compiler/codegen/Kernel.h"
#include "compiler/driver/Messages.h"
#include "compiler/driver/Pipeline.h"
#include "compiler/driver/ProgramWriter.h"
#include "compiler/driver/Registration.h"
#include "compiler/import/Import.h"
#include "compiler/ops/OnnxConversion.h"
#include "compiler/ops/Unsupported.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "runtime/core/Error.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/TargetSelect.h"

using namespace mlir;
using namespace mpc;

struct mpc::Inference::Impl {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::vector<MpcKernel> kernels;
  std::string json;
  llvm::SmallVector<char, 0> data;
  MpcProgram raw{};
  Program program;
  std::unique_ptr<Device> device;
};

namespace {

OwningOpRef<ModuleOp> planned(const CompileOptions &options, WeightStore &weights,
                              MLIRContext &context) {
  ImportOptions import;
  import.batch = options.batch;
  import.dims = options.dims;
  import.supported = isSupportedOperator;
  OwningOpRef<ModuleOp> module = importOnnx(options.model, import, weights, context);
  if (!module)
    return nullptr;
  PassManager manager(&context);
  buildPipeline(manager, options);
  if (failed(manager.run(*module)))
    return nullptr;
  return module;
}

llvm::Error loadKernels(ModuleOp module, const CompileOptions &options,
                        std::unique_ptr<llvm::orc::LLJIT> &jit, std::vector<MpcKernel> &kernels) {
  CpuTargetOptions target;
  target.cpu = options.cpu;
  auto context = std::make_unique<llvm::LLVMContext>();
  llvm::Expected<std::unique_ptr<llvm::Module>> code = compileKernels(module, target, *context);
  if (!code)
    return code.takeError();
  auto created = llvm::orc::LLJITBuilder().create();
  if (!created)
    return created.takeError();
  jit = std::move(*created);
  if (llvm::Error error =
          jit->addIRModule(llvm::orc::ThreadSafeModule(std::move(*code), std::move(context))))
    return error;
  for (auto &[name, function] : kernelIndex(module).entries) {
    auto address = jit->lookup(name);
    if (!address)
      return address.takeError();
    kernels.push_back(address->toPtr<MpcKernel>());
  }
  return llvm::Error::success();
}

} // namespace

std::unique_ptr<Inference> Inference::compile(const CompileOptions &options, int threads,
                                              CompileFailure &failure) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::InitializeNativeTargetAsmParser();
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    failure.messages += messageText(diagnostic) + "\n";
    failure.unsupported &= isUnsupported(diagnostic);
    return success();
  });
  WeightStore weights;
  OwningOpRef<ModuleOp> module = planned(options, weights, context);
  if (!module)
    return nullptr;
  auto impl = std::make_unique<Impl>();
  auto fail = [&](const std::string &message) {
    failure.messages += message + "\n";
    failure.unsupported = false;
    return nullptr;
  };
  if (llvm::Error error = loadKernels(*module, options, impl->jit, impl->kernels))
    return fail(llvm::toString(std::move(error)));
  llvm::raw_svector_ostream stream(impl->data);
  llvm::Expected<std::string> json = writeProgram(*module, options, weights, nullptr, {}, stream);
  if (!json)
    return fail(llvm::toString(json.takeError()));
  impl->json = std::move(*json);
  impl->raw = {MPC_PROGRAM_ABI,      uint32_t(impl->kernels.size()),
               impl->json.data(),    impl->json.size(),
               impl->kernels.data(), reinterpret_cast<const unsigned char *>(impl->data.data()),
               impl->data.size()};
  try {
    impl->program = Program::load(impl->raw);
    impl->device = makeCpuDevice(impl->program, threads);
  } catch (const std::runtime_error &problem) {
    return fail(problem.what());
  }
  return std::unique_ptr<Inference>(new Inference(std::move(impl)));
}

Inference::Inference(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Inference::~Inference() = default;
const Program &Inference::program() const { return impl->program; }
Device &Inference::device() { return *impl->device; }
