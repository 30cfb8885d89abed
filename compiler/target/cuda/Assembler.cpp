//===- Assembler.cpp - NVIDIA's tools: ptxas, and the device library -------------------===//
//
// ptxas takes seconds for a large model and eight architectures, and its result depends on
// nothing but the text, the architecture and its own version: cubins are kept by content.
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/target/cuda/Assembler.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Transforms/IPO/Internalize.h"
#include <atomic>
#include <optional>

using namespace llvm;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

namespace mpc {

static std::string fromEnvironment(const char *name, StringRef otherwise) {
  std::optional<std::string> value = sys::Process::GetEnv(name);
  return value && !value->empty() ? *value : otherwise.str();
}

Error linkDeviceLibrary(Module &module) {
  bool needed = llvm::any_of(module, [](const Function &function) {
    return function.isDeclaration() && function.getName().starts_with("__nv_");
  });
  if (!needed)
    return Error::success();
  std::string file = fromEnvironment("MPC_LIBDEVICE", MPC_LIBDEVICE_FILE);
  SMDiagnostic diagnostic;
  std::unique_ptr<Module> library = parseIRFile(file, diagnostic, module.getContext());
  if (!library)
    return createStringError("cannot read NVIDIA's device library " + file + ": " +
                             diagnostic.getMessage().str() +
                             "; run scripts/test.sh or set MPC_LIBDEVICE to libdevice.10.bc");
  library->setTargetTriple(module.getTargetTriple());
  library->setDataLayout(module.getDataLayout());
  bool failed = Linker::linkModules(module, std::move(library), Linker::LinkOnlyNeeded,
                                    [](Module &linked, const StringSet<> &names) {
                                      internalizeModule(linked, [&](const GlobalValue &value) {
                                        return !value.hasName() || !names.count(value.getName());
                                      });
                                    });
  if (failed)
    return createStringError("linking NVIDIA's device library " + file + " failed");
  // Subnormal numbers are kept, as on the CPU.
  module.addModuleFlag(Module::Override, "nvvm-reflect-ftz", 0u);
  return Error::success();
}

namespace {
/// Runs ptxas for one text.
class Assembler {
public:
  Assembler(StringRef ptx, std::string program) : ptx(ptx), program(std::move(program)) {}

  /// The cubin, and what ptxas says with --verbose.
  Expected<std::pair<std::string, std::string>> run(unsigned architecture) const;

private:
  Expected<std::pair<std::string, std::string>> compile(unsigned architecture) const;
  StringRef ptx;
  std::string program;
};

/// A folder that goes away with everything in it.
struct ScratchFolder {
  SmallString<128> name;
  std::error_code error = fs::createUniqueDirectory("mpc-ptx", name);
  ~ScratchFolder() {
    if (!error)
      (void)fs::remove_directories(name);
  }
  std::string file(StringRef leaf) const { return (name + "/" + leaf).str(); }
};
} // namespace

static Expected<std::string> contents(const Twine &file) {
  auto buffer = MemoryBuffer::getFile(file, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return createStringError("cannot read " + file + ": " + buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

static Error write(const Twine &file, StringRef text) {
  std::error_code code;
  raw_fd_ostream stream(file.str(), code);
  if (!code) {
    stream << text;
    stream.close();
    code = stream.error();
    stream.clear_error();
  }
  return code ? createStringError("cannot write " + file + ": " + code.message())
              : Error::success();
}

Expected<std::pair<std::string, std::string>> Assembler::compile(unsigned architecture) const {
  ScratchFolder folder;
  if (folder.error)
    return createStringError("cannot make a temporary folder: " + folder.error.message());
  std::string source = folder.file("kernels.ptx"), cubin = folder.file("kernels.cubin"),
              log = folder.file("log");
  if (Error error = write(source, ptx))
    return error;
  std::string arch = "-arch=sm_" + std::to_string(architecture);
  StringRef arguments[] = {program, arch, "-O3", "--verbose", "-o", cubin, source};
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log), StringRef(log)};
  std::string message;
  int code = sys::ExecuteAndWait(program, arguments, std::nullopt, redirects, 0, 0, &message);
  auto said = contents(log);
  std::string text = said ? *said : (consumeError(said.takeError()), std::string());
  if (code != 0)
    return createStringError("NVIDIA's assembler (" + program + " " + arch + ") failed" +
                             (message.empty() ? "" : ": " + message) +
                             (text.empty() ? "" : "\n" + text));
  auto bytes = contents(cubin);
  if (!bytes)
    return bytes.takeError();
  return std::make_pair(std::move(*bytes), std::move(text));
}

/// The folder of kept cubins; empty where there is none to be had.
static std::string cacheFolder() {
  SmallString<128> folder;
  if (std::optional<std::string> chosen = sys::Process::GetEnv("XDG_CACHE_HOME");
      chosen && !chosen->empty())
    folder = *chosen;
  else if (!path::cache_directory(folder))
    return "";
  path::append(folder, "mpc", "cubins");
  return fs::create_directories(folder) ? "" : folder.str().str();
}

Expected<std::pair<std::string, std::string>> Assembler::run(unsigned architecture) const {
  std::string folder = cacheFolder(), key;
  if (!folder.empty()) {
    uint64_t size = 0;
    (void)fs::file_size(program, size);
    std::string identity = formatv("{0}\n{1}\n{2}\n{3}", program, size, architecture, ptx);
    XXH128_hash_t hash = xxh3_128bits(arrayRefFromStringRef(identity));
    key = formatv("{0}/{1:x-16}{2:x-16}", folder, hash.high64, hash.low64);
    auto cubin = contents(key + ".cubin"), log = contents(key + ".log");
    if (cubin && log && !cubin->empty())
      return std::make_pair(std::move(*cubin), std::move(*log));
    consumeError(cubin.takeError());
    consumeError(log.takeError());
  }
  auto made = compile(architecture);
  if (!made || key.empty())
    return made;
  // Beside, then renamed: another mpc may read or write the same entry. A cache that cannot be
  // written is no error.
  std::string part = formatv("{0}.{1}-{2}", key, sys::Process::getProcessId(), architecture);
  auto keep = [&](StringRef suffix, StringRef text) {
    if (Error error = write(part + suffix, text))
      consumeError(std::move(error));
    else
      (void)fs::rename(part + suffix, key + suffix);
  };
  keep(".log", made->second);
  keep(".cubin", made->first);
  return made;
}

/// "Function properties for NAME / 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads /
/// Used 16 registers, 128 bytes smem".
static std::vector<KernelResources> parseResources(StringRef log) {
  std::vector<KernelResources> kernels;
  auto numberBefore = [](StringRef line, StringRef word) {
    unsigned number = 0;
    StringRef before = line.take_front(line.find(word)).rtrim();
    before.take_back(before.size() - (before.find_last_not_of("0123456789") + 1))
        .getAsInteger(10, number);
    return number;
  };
  SmallVector<StringRef> lines;
  log.split(lines, '\n');
  for (StringRef line : lines) {
    if (size_t at = line.find("Compiling entry function '"); at != StringRef::npos) {
      KernelResources kernel;
      kernel.name = line.drop_front(at).split('\'').second.split('\'').first.str();
      kernels.push_back(std::move(kernel));
    } else if (!kernels.empty() && line.contains("bytes spill stores")) {
      kernels.back().spillBytes =
          numberBefore(line, "bytes spill stores") + numberBefore(line, "bytes spill loads");
    } else if (!kernels.empty() && line.contains("registers")) {
      StringRef used = line.drop_front(line.find("Used"));
      kernels.back().registers = numberBefore(used, "registers");
      if (used.contains("bytes smem"))
        kernels.back().sharedBytes = numberBefore(used, "bytes smem");
    }
  }
  return kernels;
}

Expected<std::vector<std::string>> assemble(StringRef ptx, ArrayRef<unsigned> architectures,
                                            unsigned threads,
                                            std::vector<KernelResources> *resources) {
  std::string program = fromEnvironment("MPC_PTXAS", MPC_PTXAS_FILE);
  if (!fs::can_execute(program)) {
    ErrorOr<std::string> found = sys::findProgramByName("ptxas");
    if (!found)
      return createStringError("NVIDIA's assembler ptxas was not found (" + program +
                               "); run scripts/test.sh or set MPC_PTXAS to it");
    program = *found;
  }
  Assembler assembler(ptx, program);
  std::vector<std::string> cubins(architectures.size()), logs(architectures.size()),
      failures(architectures.size());
  DefaultThreadPool pool(hardware_concurrency(std::max(1u, threads)));
  for (size_t i = 0; i < architectures.size(); ++i)
    pool.async([&, i] {
      auto made = assembler.run(architectures[i]);
      if (made)
        std::tie(cubins[i], logs[i]) = std::move(*made);
      else
        failures[i] = toString(made.takeError());
    });
  pool.wait();
  for (const std::string &failure : failures)
    if (!failure.empty())
      return createStringError(failure);
  if (resources)
    for (KernelResources &kernel : parseResources(logs.front()))
      resources->push_back(std::move(kernel));
  return cubins;
}

} // namespace mpc
