//===- CrashGuard.h - a crash is a message and an exit code ----------------------------------===//

#ifndef MPC_DRIVER_CRASHGUARD_H
#define MPC_DRIVER_CRASHGUARD_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include <optional>

namespace mpc {

/// Runs `work` and returns what it returns. Where it crashes, says on the standard error that this
/// is a fault of `program` (or that memory is exhausted), removes files that are half written, and
/// returns nullopt. A failure that cannot be returned from ends the process with exit code 1.
std::optional<int> runGuarded(llvm::StringRef program, llvm::StringRef model,
                              llvm::function_ref<int()> work);

} // namespace mpc

#endif // MPC_DRIVER_CRASHGUARD_H
