//===- CrashGuard.cpp - a crash is a message and an exit code --------------------------------===//
//
// Models come from anywhere, and parts of three large libraries read them. What none of the
// checks has foreseen ends as every other failure does: one line that says what to do, exit
// code 1, and no partial file.
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/driver/CrashGuard.h"
#include "compiler/driver/Messages.h"
#include "compiler/driver/PendingFile.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"
#include <exception>
#include <new>
#include <unistd.h>

using namespace mpc;

namespace {

std::string prefix; ///< "PROGRAM: error: MODEL: ", for handlers that get no argument of ours

constexpr const char kFault[] = "internal error (a fault of this program, not of yours); please "
                                "report it together with the model";

[[noreturn]] void end(const char *what) {
  llvm::errs() << prefix << what << "\n";
  llvm::sys::RunInterruptHandlers();
  removeTemporaryFolder();
  _exit(1);
}

constexpr const char kMemory[] = "out of memory: a smaller --batch needs less";

void onTerminate() {
  try {
    if (std::current_exception())
      std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc &) {
    end(kMemory);
  } catch (...) {
  }
  end(kFault);
}

} // namespace

std::optional<int> mpc::runGuarded(llvm::StringRef program, llvm::StringRef model,
                                   llvm::function_ref<int()> work) {
  prefix = (program + ": error: " + printable(model) + ": ").str();
  // Deep models make deep recursions.
  constexpr unsigned kStackBytes = 256 << 20;
  static const bool installed = [] {
    std::set_terminate(onTerminate);
    llvm::install_bad_alloc_error_handler([](void *, const char *, bool) { end(kMemory); });
    llvm::install_fatal_error_handler([](void *, const char *, bool) { end(kFault); });
    llvm::CrashRecoveryContext::Enable();
    return true;
  }();
  (void)installed;
  llvm::CrashRecoveryContext recovery;
  std::optional<int> code;
  if (recovery.RunSafelyOnThread([&] { code = work(); }, kStackBytes))
    return code;
  llvm::errs() << prefix << kFault << "\n";
  llvm::sys::RunInterruptHandlers();
  removeTemporaryFolder();
  return std::nullopt;
}
