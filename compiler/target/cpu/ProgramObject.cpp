//===- ProgramObject.cpp - the object file that defines mpc_program ------------------===//
//
// Kernels are compiled in as many parts as threads may run, each with an LLVM context of its
// own; a relocatable link makes one object of them. The data block (initial weights, the
// model to export) is never held in IR: the assembler includes it from a file.
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/target/cpu/Machine.h"
#include "runtime/core/Program.h"
#include "llvm/IR/Constants.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Target/TargetMachine.h"
#include <thread>

using namespace mlir;

namespace mpc {

// Too few to be worth a second part.
static constexpr size_t kKernelsPerPart = 16;

namespace {
struct ProgramObject {
  ModuleOp planned;
  const ProgramData &data;
  const CpuTargetOptions &options;
  KernelIndex table;
  CpuDescription cpu;
  bool oneModule = true; ///< the table of kernels stands in the module that defines them

  llvm::Error compilePart(ArrayRef<func::FuncOp> kernels, bool withProgram, StringRef path) const;
  void nameKernels(llvm::Module &module) const;
  void addProgram(llvm::Module &module) const;
  llvm::Constant *addData(llvm::Module &module) const;
};
} // namespace

static std::string symbolOf(size_t entry) { return llvm::formatv("mpc_kernel_{0}", entry).str(); }

/// Names that cannot meet those of the runtime or of a library.
void ProgramObject::nameKernels(llvm::Module &module) const {
  for (auto [i, entry] : llvm::enumerate(table.entries))
    if (llvm::Function *function = module.getFunction(entry.first);
        function && !function->isDeclaration()) {
      function->setName(symbolOf(i));
      if (oneModule)
        function->setLinkage(llvm::GlobalValue::InternalLinkage);
      else
        function->setVisibility(llvm::GlobalValue::HiddenVisibility);
    }
}

llvm::Constant *ProgramObject::addData(llvm::Module &module) const {
  llvm::LLVMContext &context = module.getContext();
  auto *pointer = llvm::PointerType::getUnqual(context);
  if (data.dataPath.empty())
    return llvm::ConstantPointerNull::get(pointer);
  std::string quoted;
  for (char c : data.dataPath) {
    if (c == '"' || c == '\\')
      quoted += '\\';
    quoted += c;
  }
  module.appendModuleInlineAsm(".section .rodata.mpc_data,\"a\",@progbits\n"
                               ".balign 4096\n"
                               ".local mpc_program_data\n"
                               ".type mpc_program_data,@object\n"
                               "mpc_program_data:\n"
                               ".incbin \"" +
                               quoted + "\"\n.size mpc_program_data, " +
                               std::to_string(data.dataSize) + "\n.text\n");
  auto *symbol =
      new llvm::GlobalVariable(module, llvm::Type::getInt8Ty(context), /*isConstant=*/true,
                               llvm::GlobalValue::ExternalLinkage, nullptr, "mpc_program_data");
  symbol->setVisibility(llvm::GlobalValue::HiddenVisibility);
  return symbol;
}

/// struct MpcProgram of runtime/core/Program.h.
void ProgramObject::addProgram(llvm::Module &module) const {
  llvm::LLVMContext &context = module.getContext();
  auto *pointer = llvm::PointerType::getUnqual(context);
  auto *i32 = llvm::Type::getInt32Ty(context), *i64 = llvm::Type::getInt64Ty(context);
  auto constant = [&](llvm::Constant *value, StringRef name) {
    auto *global = new llvm::GlobalVariable(module, value->getType(), /*isConstant=*/true,
                                            llvm::GlobalValue::PrivateLinkage, value, name);
    global->setAlignment(llvm::Align(16));
    return global;
  };
  SmallVector<llvm::Constant *> kernels;
  auto *type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {i64, i64, pointer}, false);
  for (size_t i = 0; i < table.entries.size(); ++i) {
    auto *function =
        cast<llvm::Function>(module.getOrInsertFunction(symbolOf(i), type).getCallee());
    if (!function->hasLocalLinkage())
      function->setVisibility(llvm::GlobalValue::HiddenVisibility);
    kernels.push_back(function);
  }
  llvm::Constant *list =
      llvm::ConstantArray::get(llvm::ArrayType::get(pointer, kernels.size()), kernels);
  llvm::Constant *json = llvm::ConstantDataArray::getString(context, data.json, /*AddNull=*/true);
  llvm::Constant *fields[] = {llvm::ConstantInt::get(i32, MPC_PROGRAM_ABI),
                              llvm::ConstantInt::get(i32, kernels.size()),
                              constant(json, "mpc_program_json"),
                              llvm::ConstantInt::get(i64, data.json.size()),
                              constant(list, "mpc_program_kernels"),
                              addData(module),
                              llvm::ConstantInt::get(i64, data.dataSize),
                              module.getOrInsertGlobal(data.deviceFactory, pointer)};
  llvm::Constant *program = llvm::ConstantStruct::getAnon(fields);
  new llvm::GlobalVariable(module, program->getType(), /*isConstant=*/true,
                           llvm::GlobalValue::ExternalLinkage, program, "mpc_program");
}

llvm::Error ProgramObject::compilePart(ArrayRef<func::FuncOp> kernels, bool withProgram,
                                       StringRef path) const {
  llvm::LLVMContext context;
  auto machine = createMachine(cpu, options.optLevel);
  if (!machine)
    return machine.takeError();
  auto module = lowerKernels(planned, kernels, cpu, options.optLevel, **machine, context);
  if (!module)
    return module.takeError();
  nameKernels(**module);
  if (withProgram)
    addProgram(**module);
  std::error_code error;
  llvm::raw_fd_ostream file(path, error, llvm::sys::fs::OF_None);
  if (error)
    return llvm::createStringError("cannot write " + path + ": " + error.message());
  if (llvm::Error failure = writeNative(**module, **machine, /*assembly=*/false, file))
    return failure;
  file.close();
  if (file.has_error()) {
    error = file.error();
    file.clear_error();
    return llvm::createStringError("cannot write " + path + ": " + error.message());
  }
  return llvm::Error::success();
}

/// One object of several, by the system's linker.
static llvm::Error merge(StringRef linker, ArrayRef<std::string> parts, StringRef path) {
  SmallVector<StringRef> arguments{linker, "-r", "-o", path};
  arguments.append(parts.begin(), parts.end());
  std::string message;
  if (llvm::sys::ExecuteAndWait(linker, arguments, std::nullopt, {}, 0, 0, &message) != 0)
    return llvm::createStringError("the linker (" + linker + " -r) could not join the parts of " +
                                   path + (message.empty() ? "" : ": " + message));
  return llvm::Error::success();
}

llvm::Error emitProgramObject(ModuleOp planned, const ProgramData &data,
                              const CpuTargetOptions &options, StringRef path) {
  auto cpu = describeCpu(options.cpu);
  if (!cpu)
    return cpu.takeError();
  registerTranslations(planned.getContext());
  ProgramObject object{planned, data, options, kernelIndex(planned), *cpu};
  SmallVector<func::FuncOp> kernels = distinctKernels(object.table);

  llvm::ErrorOr<std::string> linker = llvm::sys::findProgramByName("ld");
  size_t parts = std::min<size_t>(options.threads, kernels.size() / kKernelsPerPart);
  if (parts < 2 || !linker || !planned.getContext()->isMultithreadingEnabled())
    return object.compilePart(kernels, /*withProgram=*/true, path);

  // Neighbors in the table are much alike: dealing them out makes the parts equal.
  object.oneModule = false;
  std::vector<SmallVector<func::FuncOp>> dealt(parts);
  for (auto [i, kernel] : llvm::enumerate(kernels))
    dealt[i % parts].push_back(kernel);
  std::vector<std::string> paths;
  for (size_t part = 0; part < parts; ++part)
    paths.push_back((path + ".part" + std::to_string(part)).str());
  std::vector<std::string> failures(parts);
  std::vector<std::thread> threads;
  for (size_t part = 0; part < parts; ++part)
    threads.emplace_back([&, part] {
      if (llvm::Error error = object.compilePart(dealt[part], part == 0, paths[part]))
        failures[part] = llvm::toString(std::move(error));
    });
  for (std::thread &thread : threads)
    thread.join();
  llvm::Error error = llvm::Error::success();
  for (const std::string &failure : failures)
    if (!failure.empty() && !error)
      error = llvm::createStringError(failure);
  if (!error)
    error = merge(*linker, paths, path);
  for (const std::string &part : paths)
    (void)llvm::sys::fs::remove(part);
  return error;
}

} // namespace mpc
