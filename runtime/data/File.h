//===- File.h - files read whole, files written whole ------------------------------===//
//
// Everything that the trainer reads is either mapped or read at once, and everything that it
// writes appears under its name only when it is complete. Messages name the file and the
// reason; names are data and are quoted.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_DATA_FILE_H
#define MPC_RUNTIME_DATA_FILE_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mpc {

/// `text` in single quotes, with quotes, control characters and bytes that are no UTF-8 escaped:
/// for messages.
std::string quote(const std::string &text);
/// The same without the quotes, for texts that are short where nobody has tampered with them: of a
/// long one the beginning.
std::string printable(const std::string &text);

bool isUtf8(const std::string &text);

/// "FILE: <text of errno>", for messages.
std::string systemMessage(const std::string &path, int error);

/// A file's bytes, mapped read-only. Throws Error if it cannot be opened or is not a regular file.
class MappedFile {
public:
  explicit MappedFile(const std::string &path);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  const unsigned char *data() const { return bytes; }
  size_t size() const { return length; }

private:
  const unsigned char *bytes = nullptr;
  size_t length = 0;
};

/// For a program's main(): where a mapped file became shorter since it was opened (or its disk
/// fails), the process ends with a message and exit code 1. Any other SIGBUS ends it as usual.
void exitWhereMappedFilesShrink();

/// A file that is written beside its place, synced and renamed by commit(). Without commit()
/// nothing is left. A path that exists and is no regular file (a pipe, a terminal) is written
/// directly. Throws Error; a failed write leaves what was there before.
class OutputFile {
public:
  /// `temporary`: the name in the same folder to write under; empty: one of our own making.
  explicit OutputFile(const std::string &path, const std::string &temporary = "");
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  void write(const void *bytes, size_t size);
  /// Overwrites bytes that are already written (a hash in a header). Not for pipes.
  void patch(uint64_t offset, const void *bytes, size_t size);
  uint64_t position() const { return written; }
  void commit();

private:
  void flush();
  [[noreturn]] void fail(int error);

  std::string path;      ///< the name the user knows
  std::string target;    ///< with symbolic links followed
  std::string temporary; ///< empty: written directly
  int descriptor = -1;
  uint64_t written = 0;
  std::vector<unsigned char> pending;
};

/// Makes a folder and those above it. Throws Error.
void makeFolders(const std::string &path);
/// Makes renames and removals in a folder durable.
void syncFolder(const std::string &path);
/// The folder part of a path ("." if it has none).
std::string folderOf(const std::string &path);

} // namespace mpc

#endif // MPC_RUNTIME_DATA_FILE_H
