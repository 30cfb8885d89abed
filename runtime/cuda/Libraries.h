//===- Libraries.h - NVIDIA's libraries, found and opened at run time -------------------===//
//
// Beside the driver nothing of NVIDIA's has to be installed where a trainer runs: what a library
// does faster, generated kernels do as well. So a library that is missing is never an error.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_CUDA_LIBRARIES_H
#define MPC_RUNTIME_CUDA_LIBRARIES_H

#include "runtime/core/Program.h"
#include <functional>
#include <string>
#include <vector>

namespace mpc::cuda {

/// A library that was opened, or why there is none.
struct Library {
  void *handle = nullptr; ///< of dlopen; null: none was found that serves
  std::string file;
  /// Of those that were found and do not serve: "FILE: WHY; FILE: WHY". Empty if none was found.
  std::string problems;
};

/// Opens the first library of one of these names ("libcublasLt.so.13", the best first) that serves.
/// Places, in order: the folders of MPC_CUDA_LIBS (separated by ':'), CUDA_HOME/lib64, where the
/// loader looks, and nvidia/*/lib in the folders of python3's packages, where pip puts them; if
/// `folder` is not empty, there alone. `check` returns why a library does not serve, or "". What
/// was opened stays open until the process ends: these libraries are not made to be closed.
Library openLibrary(const std::vector<std::string> &names, const std::string &folder,
                    const std::function<std::string(void *handle)> &check);

/// Opens a part of a library that is open, where the library itself would: beside it, then where
/// the loader looks. Empty, or why that is not possible: the name can be that of another one's
/// part, which the process has already.
std::string openPart(void *library, const std::string &name);

/// What a library does for a program, and what is told where it is absent.
struct LibraryUse {
  const char *variable;           ///< of the environment: "0" asks for generated kernels
  std::vector<std::string> names; ///< of openLibrary()
  const char *library, *work, *packages;
  bool (*isFor)(const Command &command); ///< what it can be asked for
};

/// Opens the library with openLibrary(). Null where the program has nothing for it, where generated
/// kernels are asked for, and where none serves, which a line on stderr tells once, but in the
/// simulator (a `folder` that is not empty).
void *openFor(const Program &program, const LibraryUse &use, const std::string &folder,
              const std::function<std::string(void *handle)> &check);

/// "12.9" of 120900. Versions before cuBLAS 11 and cuDNN 9 counted 1000 · major, some of them.
std::string libraryVersionText(size_t version);

} // namespace mpc::cuda

#endif // MPC_RUNTIME_CUDA_LIBRARIES_H
