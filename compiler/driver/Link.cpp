//===- Link.cpp - an object file becomes a trainer --------------------------------------------===//

#include "Link.h"
#include "compiler/driver/PendingFile.h"
#include "compiler/driver/Version.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Signals.h"
#include <optional>

using namespace llvm;
using mpc::PendingFile;
namespace path = llvm::sys::path;
namespace fs = llvm::sys::fs;

namespace {

Error problem(const Twine &text) { return createStringError(inconvertibleErrorCode(), text); }

/// The compiler driver, for its knowledge of where the C++ library and the start-up files lie.
Expected<std::string> compilerDriver() {
  if (fs::can_execute(MPC_CXX_COMPILER))
    return MPC_CXX_COMPILER;
  for (const char *name : {"c++", "g++", "clang++"})
    if (ErrorOr<std::string> found = sys::findProgramByName(name))
      return *found;
  return problem("linking needs a C++ compiler driver: install g++ (looked for " MPC_CXX_COMPILER
                 ", c++, g++ and clang++)");
}

/// Runs a program, its messages into a file; an error carries their first lines.
Error run(StringRef program, ArrayRef<StringRef> arguments, StringRef messages) {
  std::optional<StringRef> redirects[] = {StringRef(), messages, messages};
  std::string failure;
  int code = sys::ExecuteAndWait(program, arguments, std::nullopt, redirects, 0, 0, &failure);
  if (code == 0)
    return Error::success();
  if (ErrorOr<std::unique_ptr<MemoryBuffer>> text = MemoryBuffer::getFile(messages)) {
    StringRef said = (*text)->getBuffer();
    // The linker maps its output: a disk that is full ends it with a bus error and a stack dump.
    failure += said.contains("signal 7") || said.contains("Stack dump")
                   ? "the linker crashed; is the disk of the temporary folder full?"
                   : said.substr(0, 600);
  }
  return problem("linking the trainer failed (" + path::filename(program) + ", exit code " +
                 Twine(code) + "): " + failure);
}

} // namespace

Expected<std::string> mpc::runtimeFolder() {
  static int anchor;
  std::string self = fs::getMainExecutable("mpc", &anchor);
  SmallString<256> folder(path::parent_path(path::parent_path(self)));
  path::append(folder, "lib");
  if (!fs::exists(folder + "/libmpc_runtime.a"))
    return problem("the runtime library is missing: " + folder +
                   "/libmpc_runtime.a (build the target mpc_runtime)");
  return std::string(folder);
}

Error mpc::linkTrainer(StringRef object, StringRef output, StringRef messages, LibrarySearch search,
                       bool needsOneDnn) {
  Expected<std::string> folder = runtimeFolder();
  if (!folder)
    return folder.takeError();
  Expected<std::string> driver = compilerDriver();
  if (!driver)
    return driver.takeError();
  std::string runtime = *folder + "/libmpc_runtime.a", onednn = *folder + "/libdnnl.so.3";
  StringRef searched = search == LibrarySearch::bundle ? StringRef("$ORIGIN") : StringRef(*folder);
  // -Xlinker and not -Wl, since the folder's name may have a comma.
  SmallVector<StringRef> arguments = {
      *driver,          "-o",       output,   object,     runtime,  "-l:libz.a",
      "-fopenmp",       "-Xlinker", "-rpath", "-Xlinker", searched, "-Wl,--gc-sections",
      "-Wl,--as-needed"};
  if (needsOneDnn)
    arguments.push_back(onednn);
  if (StringRef sanitizers = MPC_SANITIZERS; !sanitizers.empty())
    arguments.push_back(sanitizers);
  if (fs::exists(MPC_LLD_FOLDER "/ld.lld"))
    arguments.append({"-B" MPC_LLD_FOLDER, "-fuse-ld=lld"});
  return run(*driver, arguments, messages);
}

namespace {

/// A link in the bundle's place may lead to the system's library, which stays as it is.
Error copyFile(const Twine &from, const Twine &to, unsigned mode = 0666) {
  PendingFile file(to.str(), PendingFile::Links::replace);
  if (!file.error.empty())
    return problem(file.error);
  file.stream.reset(); // written by its name
  if (std::error_code code = fs::copy_file(from, file.name))
    return problem("cannot copy " + from + " to " + to + ": " + code.message());
  std::string failure = file.keep(mode);
  return failure.empty() ? Error::success() : problem(failure);
}

/// The file of a library that comes with the compiler driver, which knows where it lies.
Expected<std::string> librarySource(StringRef driver, StringRef name) {
  SmallString<128> answer;
  int descriptor;
  if (std::error_code code = fs::createTemporaryFile("mpc-library", "txt", descriptor, answer))
    return problem("cannot make a temporary file: " + code.message());
  sys::RemoveFileOnSignal(answer);
  (void)sys::fs::closeFile(descriptor);
  std::string question = ("-print-file-name=" + name).str();
  Error error = run(driver, {driver, question}, answer);
  ErrorOr<std::unique_ptr<MemoryBuffer>> text = MemoryBuffer::getFile(answer);
  (void)fs::remove(answer);
  sys::DontRemoveFileOnSignal(answer);
  if (error)
    return error;
  StringRef found = text ? (*text)->getBuffer().trim() : "";
  SmallString<256> real;
  if (!path::is_absolute(found) || fs::real_path(found, real))
    return problem("the library " + name + " was not found by " + driver);
  return std::string(real);
}

} // namespace

Error mpc::bundleTrainer(StringRef trainer, StringRef folder, bool needsOneDnn) {
  Expected<std::string> runtime = runtimeFolder();
  if (!runtime)
    return runtime.takeError();
  std::string launcher = *runtime + "/mpc-launcher", lib = (folder + "/lib").str();
  if (!fs::exists(launcher))
    return problem("the launcher of bundles is missing: " + launcher +
                   " (build the target mpc_runtime)");
  Expected<std::string> driver = compilerDriver();
  if (!driver)
    return driver.takeError();
  if (std::error_code code =
          fs::create_directories(lib, /*IgnoreExisting=*/true, fs::perms::all_all))
    return problem("cannot create " + lib + ": " + code.message());
  if (needsOneDnn)
    if (Error error = copyFile(*runtime + "/libdnnl.so.3", lib + "/libdnnl.so.3"))
      return error;
  for (StringRef name : {"libgomp.so.1", "libstdc++.so.6", "libgcc_s.so.1"}) {
    Expected<std::string> source = librarySource(*driver, name);
    if (!source)
      return source.takeError();
    if (Error error = copyFile(*source, lib + "/" + name))
      return error;
  }
  StringRef name = path::filename(trainer);
  constexpr unsigned kExecutable = 0777;
  if (Error error = copyFile(trainer, lib + "/" + name + ".trainer", kExecutable))
    return error;
  return copyFile(launcher, folder + "/" + name,
                  kExecutable); // last: where it is, the rest is, too
}
