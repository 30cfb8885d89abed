//===- Driver.cpp - from options to files ----------------------------------------------------===//
//
// One ladder: import, the pass pipeline, text of the stage asked for, or object code and a
// linked trainer. Files: PendingFile.h.
//
//===--------------------------------------------------------------------------------------===//

#include "Driver.h"
#include "compiler/driver/CrashGuard.h"
#include "compiler/driver/Link.h"
#include "compiler/driver/Messages.h"
#include "compiler/driver/Options.h"
#include "compiler/driver/PendingFile.h"
#include "compiler/driver/Pipeline.h"
#include "compiler/driver/ProgramWriter.h"
#include "compiler/driver/Registration.h"
#include "compiler/driver/Reports.h"
#include "compiler/export/Export.h"
#include "compiler/import/Import.h"
#include "compiler/ops/OnnxConversion.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cuda/CudaTarget.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/TargetSelect.h"
#include <chrono>
#include <thread>

using namespace mlir;
using namespace mpc;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

namespace {

int fail(const Twine &message) {
  llvm::errs() << "mpc: error: " << message << "\n";
  return 1;
}

/// Of a step that may have run a tool. A terminal sends its signals to the tools, too: where that
/// is why one has failed, the signal ends this program, without a message, as soon as a thread
/// takes it.
int fail(llvm::Error error) {
  constexpr std::chrono::milliseconds kUnderWay(100);
  std::this_thread::sleep_for(kUnderWay);
  return fail(llvm::toString(std::move(error)));
}

/// Prints diagnostics as "MODEL: error: MESSAGE", with the node where a pass gave only a location.
class DiagnosticPrinter : public ScopedDiagnosticHandler {
public:
  DiagnosticPrinter(MLIRContext *context, StringRef model)
      : ScopedDiagnosticHandler(context), model(model) {
    setHandler([this](Diagnostic &diagnostic) { return print(diagnostic); });
  }

private:
  LogicalResult print(Diagnostic &diagnostic) {
    static const char *const kinds[] = {"note", "warning", "error", "remark"};
    std::string text = messageText(diagnostic);
    llvm::errs() << "mpc: " << kinds[unsigned(diagnostic.getSeverity())] << ": " << model << ": ";
    auto name = dyn_cast<NameLoc>(diagnostic.getLocation());
    std::string node = name ? printable(name.getName()) : "";
    if (!node.empty() && text.find(node) == std::string::npos)
      llvm::errs() << "node '" << node << "': ";
    llvm::errs() << text << "\n";
    for (Diagnostic &note : diagnostic.getNotes())
      llvm::errs() << "mpc: note: " << messageText(note) << "\n";
    return success();
  }
  StringRef model;
};

int writeText(const CompileOptions &options,
              llvm::function_ref<llvm::Error(llvm::raw_ostream &)> write) {
  if (options.output.empty() || options.output == "-") {
    llvm::Error error = write(llvm::outs());
    llvm::outs().flush();
    return error ? fail(std::move(error)) : 0;
  }
  PendingFile file(options.output);
  if (!file.error.empty())
    return fail(file.error);
  if (llvm::Error error = write(*file.stream))
    return fail(std::move(error));
  std::string problem = file.keep(0666);
  return problem.empty() ? 0 : fail(problem);
}

/// Names of the trained tensors, for the exported model.
llvm::StringMap<Type> trainedTensors(ModuleOp module) {
  llvm::StringMap<Type> names;
  for (auto function : module.getOps<func::FuncOp>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto role = function.getArgAttrOfType<StringAttr>(i, MpcDialect::kRoleAttr);
      if (role && (role.getValue() == "parameter" || role.getValue() == "statistic"))
        names[function.getArgAttrOfType<StringAttr>(i, MpcDialect::kNameAttr).getValue()] =
            function.getArgument(i).getType();
    }
  return names;
}

class Compilation {
public:
  explicit Compilation(CompileOptions &options) : options(options) {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    context.printOpOnDiagnostic(false); // a message names the model's node
  }

  int run() {
    // `mpc net` would write the program over the file it reads.
    std::string program = options.output.empty() && options.stage == Stage::executable
                              ? path::stem(options.model).str()
                              : options.output;
    if (options.bundle.empty() && fs::equivalent(options.model, program))
      return fail("the output " + program +
                  " would replace the model: choose another name with -o");
    DiagnosticPrinter printer(&context, options.model);
    ImportOptions import;
    import.batch = options.batch;
    import.dims = options.dims;
    import.trainRegex = options.trainRegex;
    import.freezeRegex = options.freezeRegex;
    import.keepFp32 = options.keepFp32;
    import.allowHalf = options.allowHalf;
    import.lossInput = options.lossInput;
    import.supported = isSupportedOperator;
    module = importOnnx(options.model, import, weights, context);
    if (!module)
      return 1;
    if (options.stage == Stage::onnx)
      return writeModule();
    PassManager manager(&context);
    manager.enableVerifier(true);
    buildPipeline(manager, options);
    if (failed(manager.run(*module)))
      return 1;
    printReports(*module, options, llvm::outs());
    if (options.stage <= Stage::plan)
      return writeModule();
    printNotes();
    return generateCode();
  }

private:
  int writeModule() {
    return writeText(options, [&](llvm::raw_ostream &out) {
      OpPrintingFlags flags;
      flags.enableDebugInfo(true, false);
      module->print(out, flags);
      return llvm::Error::success();
    });
  }

  /// What was decided about the model, a line each.
  void printNotes() {
    if (auto notes = (*module)->getAttrOfType<ArrayAttr>("mpc.notes"))
      for (Attribute note : notes)
        llvm::errs() << "mpc: note: " << cast<StringAttr>(note).getValue() << "\n";
  }

  int generateCode() {
    CudaTargetOptions cuda;
    cuda.architectures = options.architectures;
    cuda.simulate = options.simulate;
    bool isText = options.stage < Stage::object;
    if (isText && isGpu())
      return writeText(options, [&](llvm::raw_ostream &out) {
        return printDeviceCode(*module, cuda, options.stage == Stage::ptx, out);
      });
    CpuTargetOptions target;
    target.cpu = options.cpu;
    if (isText)
      return writeText(options, [&](llvm::raw_ostream &out) {
        return printKernels(*module, target, options.stage == Stage::assembly, out);
      });
    std::vector<DeviceImage> images;
    if (isGpu()) {
      auto compiled = compileDeviceImages(*module, cuda);
      if (!compiled)
        return fail(compiled.takeError());
      images = std::move(*compiled);
    }
    TemporaryFolder temporary;
    if (temporary.error)
      return fail("cannot make a temporary folder: " + temporary.error.message());
    ProgramData data;
    data.dataPath = temporary.file("data");
    if (int code = writeData(data, images))
      return code;
    if (isGpu()) { // its kernels are data
      data.deviceFactory = "mpc_make_cuda_device";
      for (auto kernel : llvm::make_early_inc_range(module->getOps<func::FuncOp>()))
        kernel.erase();
    }
    std::string output = options.output.empty() ? path::stem(options.model).str() : options.output;
    if (options.stage == Stage::object) {
      PendingFile file(options.output.empty() ? output + ".o" : output);
      if (!file.error.empty())
        return fail(file.error);
      if (file.name.empty())
        return fail("cannot write " + file.finalName + ": an object file needs a regular file");
      file.stream.reset(); // written by its name
      if (llvm::Error error = emitProgramObject(*module, data, target, file.name))
        return fail(std::move(error));
      std::string problem = file.keep(0666);
      return problem.empty() ? 0 : fail(problem);
    }
    return link(temporary, target, data, output);
  }

  bool isGpu() const { return options.target == "cuda"; }

  int writeData(ProgramData &data, ArrayRef<DeviceImage> images) {
    StringRef file = data.dataPath;
    llvm::StringMap<Type> trained = trainedTensors(*module);
    llvm::Expected<ExportTemplate> exported =
        buildExportTemplate(options.model, trained, weights, *module);
    if (!exported)
      return fail(exported.takeError());
    std::error_code code;
    llvm::raw_fd_ostream stream(file, code);
    if (code)
      return fail("cannot write the temporary file " + file + ": " + code.message());
    llvm::Expected<std::string> text =
        writeProgram(*module, options, weights, &*exported, images, stream);
    if (!text)
      return fail(text.takeError());
    stream.flush();
    if (stream.has_error()) {
      code = stream.error();
      stream.clear_error();
      return fail("cannot write the temporary file " + file + ": " + code.message());
    }
    data.json = std::move(*text);
    data.dataSize = stream.tell();
    return 0;
  }

  int link(TemporaryFolder &temporary, const CpuTargetOptions &target, const ProgramData &data,
           StringRef output) {
    std::string object = temporary.file("program.o");
    if (llvm::Error error = emitProgramObject(*module, data, target, object))
      return fail(std::move(error));
    bool bundled = !options.bundle.empty();
    std::string folder = temporary.folder("linked"), messages = temporary.file("link.txt");
    std::string linked = temporary.file("linked/" + path::filename(output));
    if (std::error_code code = fs::create_directory(folder))
      return fail("cannot make the temporary folder " + folder + ": " + code.message());
    if (!bundled) {
      PendingFile file(output);
      if (!file.error.empty())
        return fail(file.error);
      // Linked elsewhere and copied: the linker maps its output, which crashes it where the disk is
      // full.
      if (llvm::Error error = linkTrainer(object, linked, messages, LibrarySearch::here, !isGpu()))
        return fail(std::move(error));
      auto program =
          llvm::MemoryBuffer::getFile(linked, /*IsText=*/false, /*RequiresNullTerminator=*/false);
      if (!program)
        return fail("cannot read the temporary file " + linked + ": " +
                    program.getError().message());
      *file.stream << (*program)->getBuffer();
      std::string problem = file.keep(0777);
      return problem.empty() ? 0 : fail(problem);
    }
    if (llvm::Error error = linkTrainer(object, linked, messages, LibrarySearch::bundle, !isGpu()))
      return fail(std::move(error));
    if (llvm::Error error = bundleTrainer(linked, options.bundle, !isGpu()))
      return fail(std::move(error));
    return 0;
  }

  CompileOptions &options;
  MLIRContext context;
  WeightStore weights;
  OwningOpRef<ModuleOp> module;
};

} // namespace

/// A full disk or a closed standard output; LLVM's stream would end the process with a stack dump.
static int checkStandardOutput(int code) {
  llvm::outs().flush();
  std::error_code problem = llvm::outs().error();
  llvm::outs().clear_error();
  return problem ? fail("cannot write to the standard output: " + problem.message()) : code;
}

int mpc::driverMain(int argc, char **argv) {
  CompileOptions options;
  if (std::optional<int> code = parseOptions(argc, argv, options))
    return *code;
  if (options.listOps) {
    printOperatorTable(llvm::outs());
    return checkStandardOutput(0);
  }
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::InitializeNativeTargetAsmParser();
  std::optional<int> code =
      runGuarded("mpc", options.model, [&] { return Compilation(options).run(); });
  return checkStandardOutput(code.value_or(1));
}
