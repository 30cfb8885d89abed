//===- PendingFile.h - files that are whole or not there -------------------------------------===//

#ifndef MPC_DRIVER_PENDINGFILE_H
#define MPC_DRIVER_PENDINGFILE_H

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace mpc {

/// A file beside its final name; renamed by keep(), else removed, by a signal too. What exists and
/// is no regular file (a pipe, /dev/null) is written directly, since a rename would put a file in
/// its place.
class PendingFile {
public:
  /// What a final name that is a symbolic link stands for: the file behind it, or the link itself.
  enum class Links { follow, replace };

  explicit PendingFile(llvm::StringRef wanted, Links links = Links::follow);
  ~PendingFile();
  PendingFile(const PendingFile &) = delete;
  PendingFile &operator=(const PendingFile &) = delete;

  /// Empty, or what went wrong.
  std::string keep(unsigned mode);

  std::string finalName, error;
  llvm::SmallString<256> name; ///< of the new file; empty: the final one is written directly
  std::unique_ptr<llvm::raw_fd_ostream> stream;

private:
  std::error_code createBeside();
  int descriptor = -1;
};

/// A new folder for this run's files, removed with what is in it: by the destructor, and where a
/// signal or a crash ends the process.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  /// The path of a file in the folder that somebody will write.
  std::string file(const llvm::Twine &path) { return entry(path, false); }
  /// The path of a folder in it that somebody will make, before files in that.
  std::string folder(const llvm::Twine &path) { return entry(path, true); }

  std::error_code error;

  /// What a signal handler can remove: names that were known before.
  struct Contents {
    std::vector<std::string> files, folders;
  };

private:
  std::string entry(const llvm::Twine &path, bool isFolder);
  llvm::SmallString<128> name;
  std::deque<Contents> versions; ///< the last is current; a handler may still read one before
};

/// Removes the folder that is in use, if any. Safe in a signal handler.
void removeTemporaryFolder();

} // namespace mpc

#endif // MPC_DRIVER_PENDINGFILE_H
