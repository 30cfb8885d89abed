//===- PendingFile.cpp - files that are whole or not there -----------------------------------===//
//
// LLVM removes single files when a signal comes, not folders. Names in a temporary folder are
// therefore told to it before they are used, and a handler in front of LLVM's removes them, the
// folder last.
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/driver/PendingFile.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Signals.h"
#include <atomic>
#include <csignal>
#include <unistd.h>

using namespace mpc;
using llvm::StringRef;
using llvm::Twine;
namespace fs = llvm::sys::fs;

//===--------------------------------------------------------------------------------------===//
// Output files
//===--------------------------------------------------------------------------------------===//

PendingFile::PendingFile(StringRef wanted, Links links) : finalName(wanted.str()) {
  fs::file_status status;
  bool direct = false;
  std::error_code code;
  if (links == Links::follow && !fs::status(wanted, status)) {
    llvm::SmallString<256> real;
    direct = status.type() != fs::file_type::regular_file;
    if (!fs::real_path(wanted, real))
      finalName = std::string(real);
  }
  if (direct)
    code = fs::openFileForWrite(finalName, descriptor, fs::CD_OpenExisting);
  else
    code = createBeside();
  if (code) {
    name.clear();
    error = "cannot write " + finalName + ": " + code.message();
    return;
  }
  if (!direct)
    llvm::sys::RemoveFileOnSignal(name);
  stream = std::make_unique<llvm::raw_fd_ostream>(descriptor, true);
}

PendingFile::~PendingFile() {
  if (stream)
    stream->clear_error(); // has been told; else the stream ends the process
  stream.reset();
  if (!name.empty()) {
    (void)fs::remove(name);
    llvm::sys::DontRemoveFileOnSignal(name);
  }
}

std::string PendingFile::keep(unsigned mode) {
  if (stream) {
    stream->flush();
    if (std::error_code code = stream->error()) {
      stream->clear_error();
      return "cannot write " + finalName + ": " + code.message();
    }
    stream.reset();
  }
  if (name.empty())
    return "";
  std::error_code code = fs::setPermissions(name, fs::perms(mode & ~fs::getUmask()));
  if (!code)
    code = fs::rename(name, finalName);
  if (code)
    return "cannot write " + finalName + ": " + code.message();
  llvm::sys::DontRemoveFileOnSignal(name);
  name.clear();
  return "";
}

/// A new file named after the final one. (LLVM's unique names take a '%' of the user's folder for
/// a pattern.)
std::error_code PendingFile::createBeside() {
  std::error_code code = std::make_error_code(std::errc::file_exists);
  for (unsigned i = 0; code == std::errc::file_exists && i < 100; ++i) {
    name =
        llvm::formatv("{0}.{1}-{2}.part", finalName, llvm::sys::Process::getProcessId(), i).str();
    code = fs::openFileForWrite(name, descriptor, fs::CD_CreateNew);
  }
  return code;
}

//===--------------------------------------------------------------------------------------===//
// Temporary folders
//===--------------------------------------------------------------------------------------===//

namespace {

std::atomic<const TemporaryFolder::Contents *> current = nullptr;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction others[std::size(kSignals)]; ///< handlers that were there before

/// Removes, and lets the handler that was there before do the rest.
void onSignal(int signal) {
  removeTemporaryFolder();
  for (size_t i = 0; i < std::size(kSignals); ++i)
    if (kSignals[i] == signal)
      sigaction(signal, &others[i], nullptr);
  raise(signal);
}

} // namespace

void mpc::removeTemporaryFolder() {
  const TemporaryFolder::Contents *contents = current.exchange(nullptr);
  if (!contents)
    return;
  for (const std::string &file : contents->files)
    unlink(file.c_str());
  for (size_t i = contents->folders.size(); i > 0; --i)
    rmdir(contents->folders[i - 1].c_str());
}

TemporaryFolder::TemporaryFolder() {
  // The handler is there before the folder is, and knows its name.
  struct sigaction ours = {};
  ours.sa_handler = onSignal;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &others[i]);
    if (others[i].sa_handler != SIG_IGN) // nohup
      sigaction(kSignals[i], &ours, nullptr);
  }
  error = std::make_error_code(std::errc::file_exists);
  for (unsigned i = 0; error == std::errc::file_exists && i < 100; ++i) {
    llvm::sys::path::system_temp_directory(/*ErasedOnReboot=*/true, name);
    llvm::sys::path::append(name,
                            llvm::formatv("mpc-{0}-{1}", llvm::sys::Process::getProcessId(), i));
    versions.push_back({{}, {std::string(name)}});
    current = &versions.back();
    error = fs::create_directory(name, /*IgnoreExisting=*/false, fs::owner_all);
  }
}

TemporaryFolder::~TemporaryFolder() {
  if (!error)
    (void)fs::remove_directories(name);
  current = nullptr;
  for (size_t i = 0; i < std::size(kSignals); ++i)
    if (others[i].sa_handler != SIG_IGN)
      sigaction(kSignals[i], &others[i], nullptr);
}

std::string TemporaryFolder::entry(const Twine &path, bool isFolder) {
  llvm::SmallString<256> whole(name);
  llvm::sys::path::append(whole, path);
  Contents next = versions.back();
  (isFolder ? next.folders : next.files).push_back(std::string(whole));
  versions.push_back(std::move(next));
  current = &versions.back();
  return std::string(whole);
}
