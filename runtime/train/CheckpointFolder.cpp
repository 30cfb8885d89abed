//===- CheckpointFolder.cpp - the checkpoints of a run -------------------------------===//
//
// A disk can lose or damage what was written long ago, so a folder's newest file is only
// believed after its hash; the one before it takes its place.
//
//===----------------------------------------------------------------------------===//

#include "runtime/core/Error.h"
#include "runtime/train/Checkpoint.h"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace mpc;

static constexpr char kLockName[] = ".mpc-lock";

std::string CheckpointFolder::stepPath(int64_t step) const {
  char name[64];
  snprintf(name, sizeof name, "/step-%08lld.safetensors", static_cast<long long>(step));
  return path + name;
}

std::vector<int64_t> CheckpointFolder::steps() const {
  std::vector<int64_t> found;
  DIR *folder = opendir(path.c_str());
  if (!folder && errno == ENOENT)
    return found;
  if (!folder)
    throw Error("cannot read the folder " + systemMessage(path, errno));
  while (const dirent *entry = readdir(folder)) {
    constexpr std::string_view kPrefix = "step-";
    std::string_view name = entry->d_name;
    if (!name.starts_with(kPrefix))
      continue;
    int64_t step = -1;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    if (step >= 0 && stepPath(step) == path + "/" + entry->d_name)
      found.push_back(step);
  }
  closedir(folder);
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::unique_ptr<CheckpointFile> CheckpointFolder::newest() {
  std::vector<std::string> problems;
  for (int64_t step : steps()) {
    try {
      auto file = std::make_unique<CheckpointFile>(stepPath(step));
      for (const std::string &problem : problems)
        warn(problem + "; using " + quote(stepPath(step)));
      return file;
    } catch (const Error &error) {
      problems.push_back(error.what());
      passedOver.insert(step);
    }
  }
  if (problems.empty())
    throw Error("there is no checkpoint (step-*.safetensors) in " + quote(path) +
                (hasCheckpoints() ? ", only the best.safetensors of a run that ended before its "
                                    "first: without --resume, --overwrite begins anew"
                                  : ""));
  std::string all;
  for (const std::string &problem : problems)
    all += "\n  " + problem;
  throw Error("no checkpoint in " + quote(path) + " is whole:" + all);
}

bool CheckpointFolder::isOwn(const std::string &name) {
  return name.ends_with(".safetensors") || name == kLockName || name == kTemporaryCheckpoint;
}

bool CheckpointFolder::hasCheckpoints() const {
  struct stat facts;
  return !steps().empty() || stat(bestPath().c_str(), &facts) == 0;
}

/// A file of the folder, open for a lock; -1 where there is no folder yet, or none to write into.
static int openLockFile(const std::string &name) {
  int file = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  // Another user's run that was killed may have left its own.
  if (file < 0 && (errno == EACCES || errno == EROFS))
    file = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno != ENOENT && errno != ENOTDIR && errno != EACCES && errno != EROFS)
    throw Error("cannot write " + systemMessage(name, errno));
  return file;
}

/// Whether the open file is the one of that name. Whoever had the lock has removed its file.
static bool hasName(int file, const std::string &name) {
  struct stat own, named;
  return fstat(file, &own) == 0 && stat(name.c_str(), &named) == 0 && own.st_dev == named.st_dev &&
         own.st_ino == named.st_ino;
}

// The lock is on a file: NFS has none on folders. It ends with the process, so that a file which a
// killed run left keeps nobody out.
void CheckpointFolder::lock() {
  constexpr int kTries = 100; // a file system may number its files anew at every look
  std::string name = path + "/" + kLockName;
  for (int tries = 0; !held; ++tries) {
    int file = openLockFile(name);
    if (file < 0)
      return;
    // A file system without locks keeps nobody out.
    bool isTaken = flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!isTaken && (hasName(file, name) || tries == kTries)) {
      held.reset(new int(file), [name](const int *descriptor) {
        unlink(name.c_str());
        close(*descriptor);
        delete descriptor;
      });
      return;
    }
    close(file);
    if (isTaken)
      throw Error(quote(path) +
                  ": another trainer writes its checkpoints there; wait for its end, or "
                  "choose another --out");
  }
}

void CheckpointFolder::removeLeftover() const {
  unlink((path + "/" + kTemporaryCheckpoint).c_str());
}

static void removeFile(const std::string &path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT)
    throw Error("cannot remove the old checkpoint " + systemMessage(path, errno));
}

std::vector<std::string> CheckpointFolder::files() const {
  std::vector<std::string> paths;
  for (int64_t step : steps())
    paths.push_back(stepPath(step));
  paths.push_back(bestPath());
  return paths;
}

void CheckpointFolder::removeAll() const {
  for (const std::string &file : files())
    removeFile(file);
}

void CheckpointFolder::prune(int64_t count, int64_t written) {
  passedOver.erase(written);
  for (int64_t step : steps()) {
    if (step > written)
      continue;
    bool stays = count > 0 && !passedOver.count(step);
    count -= stays;
    if (!stays)
      removeFile(stepPath(step));
  }
}

std::unique_ptr<CheckpointFile> mpc::openCheckpoint(const std::string &path) {
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0)
    throw Error("cannot read the checkpoint " + systemMessage(path, errno));
  if (S_ISDIR(facts.st_mode))
    return CheckpointFolder(path).newest();
  try {
    return std::make_unique<CheckpointFile>(path);
  } catch (const DamagedCheckpoint &error) {
    throw Error(error.what() + std::string("; given the folder of a run, its newest checkpoint "
                                           "that is whole is taken"));
  }
}
