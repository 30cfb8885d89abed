//===- File.cpp - files read whole, files written whole ----------------------------===//
//
// A file that is half written is worse than none: it looks like a result. OutputFile writes
// under another name in the same folder (a rename is atomic only within a file system),
// syncs the data, renames, and syncs the folder, so that after a crash or a power cut either
// the old file or the whole new one is there.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/File.h"
#include "runtime/core/Error.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace mpc;

/// Bytes of the character at `at` (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF);
/// 0: none.
static size_t characterBytes(const std::string &text, size_t at) {
  auto byte = [&](size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  unsigned first = byte(0), second = byte(1);
  if (first < 0x80)
    return 1;
  unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  bool valid = length != 0 && second >= low && second <= high;
  for (size_t i = 2; i < length; ++i)
    valid = valid && (byte(i) & 0xc0) == 0x80;
  return valid ? length : 0;
}

bool mpc::isUtf8(const std::string &text) {
  for (size_t at = 0, length; at < text.size(); at += length)
    if (length = characterBytes(text, at); length == 0)
      return false;
  return true;
}

/// Control characters of Unicode's: terminals obey U+0080 to U+009F, too.
static bool isControl(std::string_view character) {
  auto byte = [&](size_t at) { return static_cast<unsigned char>(character[at]); };
  return character.size() == 2 ? byte(0) == 0xc2 && byte(1) < 0xa0
                               : character.size() == 1 && (byte(0) < 0x20 || byte(0) == 0x7f);
}

static std::string escapeText(std::byte value) {
  char escape[8];
  snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(value));
  return escape;
}

/// What may be in a message, with `mark` escaped as well.
static std::string escapedText(const std::string &text, char mark) {
  std::string result;
  for (size_t at = 0, length; at < text.size(); at += std::max<size_t>(length, 1)) {
    length = characterBytes(text, at);
    std::string character = text.substr(at, std::max<size_t>(length, 1));
    if (character == "\n")
      result += "\\n";
    else if (length == 0 || isControl(character))
      for (char byte : character)
        result += escapeText(static_cast<std::byte>(byte));
    else if (character[0] == mark || character[0] == '\\')
      result += "\\" + character;
    else
      result += character;
  }
  return result;
}

std::string mpc::quote(const std::string &text) { return "'" + escapedText(text, '\'') + "'"; }

std::string mpc::printable(const std::string &text) {
  constexpr size_t kMost = 100;
  size_t end = std::min(text.size(), kMost);
  for (int i = 0; i < 3 && end < text.size() && (text[end] & 0xc0) == 0x80; ++i)
    --end; // to the beginning of a character
  return escapedText(text.substr(0, end), '\\') + (end < text.size() ? "…" : "");
}

std::string mpc::systemMessage(const std::string &path, int error) {
  return quote(path) + ": " + strerror(error);
}

MappedFile::MappedFile(const std::string &path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0)
    throw Error("cannot read " + systemMessage(path, errno));
  struct stat facts;
  if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    close(descriptor);
    throw Error("cannot read " + quote(path) + ": not a regular file");
  }
  length = static_cast<size_t>(facts.st_size);
  if (length > 0) {
    void *mapped = mmap(nullptr, length, PROT_READ, MAP_PRIVATE, descriptor, 0);
    int error = errno;
    close(descriptor);
    if (mapped == MAP_FAILED)
      throw Error("cannot map " + systemMessage(path, error));
    bytes = static_cast<const unsigned char *>(mapped);
  } else {
    close(descriptor);
  }
}

MappedFile::~MappedFile() {
  if (bytes)
    munmap(const_cast<unsigned char *>(bytes), length);
}

void mpc::exitWhereMappedFilesShrink() {
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t *info, void *) {
    // Nothing but the following calls is allowed here.
    if (info->si_code != BUS_ADRERR) {
      signal(SIGBUS, SIG_DFL);
      raise(SIGBUS); // on return
      return;
    }
    static const char kText[] = "error: a file became shorter while it was read, or its disk "
                                "fails: run the command again once nothing else writes it\n";
    [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
    _exit(1);
  };
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

OutputFile::OutputFile(const std::string &path, const std::string &temporaryName)
    : path(path), target(path) {
  struct stat facts;
  if (stat(path.c_str(), &facts) == 0) {
    if (S_ISDIR(facts.st_mode))
      throw Error("cannot write " + quote(path) + ": it is a folder");
    if (!S_ISREG(facts.st_mode)) {
      descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
      if (descriptor < 0)
        throw Error("cannot write " + systemMessage(path, errno));
      return;
    }
    // The file behind a symbolic link is replaced, not the link.
    if (char *resolved = realpath(path.c_str(), nullptr)) {
      target = resolved;
      free(resolved);
    }
  }
  // A short name: the user's own may already be as long as the file system allows.
  temporary = folderOf(target) + "/" +
              (temporaryName.empty() ? ".mpc-" + std::to_string(getpid()) + ".tmp" : temporaryName);
  descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    int error = errno;
    temporary.clear();
    throw Error("cannot write " + systemMessage(path, error));
  }
}

OutputFile::~OutputFile() {
  if (descriptor >= 0)
    close(descriptor);
  if (!temporary.empty())
    unlink(temporary.c_str());
}

void OutputFile::fail(int error) { throw Error("cannot write " + systemMessage(path, error)); }

static bool writeAll(int descriptor, const unsigned char *bytes, size_t size) {
  while (size > 0) {
    ssize_t done = ::write(descriptor, bytes, size);
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      return false;
    bytes += done;
    size -= static_cast<size_t>(done);
  }
  return true;
}

void OutputFile::flush() {
  if (!writeAll(descriptor, pending.data(), pending.size()))
    fail(errno);
  pending.clear();
}

void OutputFile::write(const void *bytes, size_t size) {
  constexpr size_t kBlock = 1 << 16;
  const unsigned char *from = static_cast<const unsigned char *>(bytes);
  if (pending.size() + size > kBlock)
    flush();
  if (size > kBlock) {
    if (!writeAll(descriptor, from, size))
      fail(errno);
  } else {
    pending.insert(pending.end(), from, from + size);
  }
  written += size;
}

void OutputFile::patch(uint64_t offset, const void *bytes, size_t size) {
  flush();
  const char *from = static_cast<const char *>(bytes);
  while (size > 0) {
    ssize_t done = pwrite(descriptor, from, size, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      fail(errno);
    from += done;
    offset += static_cast<uint64_t>(done);
    size -= static_cast<size_t>(done);
  }
}

void OutputFile::commit() {
  flush();
  if (!temporary.empty() && fsync(descriptor) != 0)
    fail(errno);
  int closed = close(descriptor);
  descriptor = -1;
  if (closed != 0)
    fail(errno);
  if (temporary.empty())
    return;
  if (rename(temporary.c_str(), target.c_str()) != 0)
    fail(errno);
  temporary.clear();
  syncFolder(folderOf(target));
}

void mpc::makeFolders(const std::string &path) {
  bool isReadOnly = false; // a file system in which the folder may exist all the same
  for (size_t end = 1; end <= path.size(); ++end) {
    if (end < path.size() && path[end] != '/')
      continue;
    std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0777) == 0 || errno == EEXIST)
      continue;
    if (errno != EROFS)
      throw Error("cannot make the folder " + systemMessage(part, errno));
    isReadOnly = true;
  }
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0)
    throw Error("cannot make the folder " + systemMessage(path, isReadOnly ? EROFS : errno));
  if (!S_ISDIR(facts.st_mode))
    throw Error("cannot make the folder " + quote(path) + ": a file has that name");
}

void mpc::syncFolder(const std::string &path) {
  // Some file systems cannot sync a folder; there is nothing the user could do about that.
  int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return;
  (void)fsync(descriptor);
  close(descriptor);
}

std::string mpc::folderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos)
    return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}
