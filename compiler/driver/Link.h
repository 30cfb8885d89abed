//===- Link.h - an object file becomes a trainer --------------------------------------------===//

#ifndef MPC_DRIVER_LINK_H
#define MPC_DRIVER_LINK_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace mpc {

/// Where the runtime library and oneDNN lie: beside the compiler's own executable (../lib).
llvm::Expected<std::string> runtimeFolder();

/// Where a trainer looks for oneDNN: where it lay when the trainer was linked, or beside itself.
enum class LibrarySearch { here, bundle };

/// Links `object` with the runtime into the executable `output`. Runs the C++ compiler driver mpc
/// was built with, or the one on PATH; nothing goes through a shell. An error tells the linker's
/// first message, which goes through the file `messages`. Programs for a GPU need no oneDNN.
llvm::Error linkTrainer(llvm::StringRef object, llvm::StringRef output, llvm::StringRef messages,
                        LibrarySearch search, bool needsOneDnn);

/// Makes a bundle: `trainer`, linked with LibrarySearch::bundle, as FOLDER/lib/NAME.trainer, every
/// shared library it needs but glibc's (and NVIDIA's) beside it, and FOLDER/NAME to start it
/// (runtime/launcher/Launcher.cpp says why that is a program of its own).
llvm::Error bundleTrainer(llvm::StringRef trainer, llvm::StringRef folder, bool needsOneDnn);

} // namespace mpc

#endif // MPC_DRIVER_LINK_H
