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

std::unique_ptr<CheckpointFile> CheckpointFolder::newest() const {
  std::vector<std::string> problems;
  for (int64_t step : steps()) {
    try {
      auto file = std::make_unique<CheckpointFile>(stepPath(step));
      for (const std::string &problem : problems)
        warn(problem + "; using " + quote(stepPath(step)));
      return file;
    } catch (const Error &error) {
      problems.push_back(error.what());
    }
  }
  if (problems.empty())
    throw Error("there is no checkpoint (step-*.safetensors) in " + quote(path));
  std::string all;
  for (const std::string &problem : problems)
    all += "\n  " + problem;
  throw Error("no checkpoint in " + quote(path) + " is whole:" + all);
}

bool CheckpointFolder::hasCheckpoints() const {
  struct stat facts;
  return !steps().empty() || stat(bestPath().c_str(), &facts) == 0;
}

void CheckpointFolder::lock() {
  int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    throw Error("cannot read the folder " + systemMessage(path, errno));
  held.reset(new int(folder), [](const int *descriptor) {
    close(*descriptor);
    delete descriptor;
  });
  // A file system without locks keeps nobody out.
  if (flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(quote(path) +
                ": another trainer writes its checkpoints there; wait for its end, or "
                "choose another --out");
}

void CheckpointFolder::removeLeftover() const { unlink((path + "/.mpc-checkpoint.tmp").c_str()); }

static void removeFile(const std::string &path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT)
    throw Error("cannot remove the old checkpoint " + systemMessage(path, errno));
}

void CheckpointFolder::removeAll() const {
  for (int64_t step : steps())
    removeFile(stepPath(step));
  removeFile(bestPath());
}

void CheckpointFolder::prune(int64_t count) const {
  std::vector<int64_t> all = steps();
  for (size_t i = static_cast<size_t>(count); i < all.size(); ++i)
    removeFile(stepPath(all[i]));
}

std::unique_ptr<CheckpointFile> mpc::openCheckpoint(const std::string &path) {
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0)
    throw Error("cannot read the checkpoint " + systemMessage(path, errno));
  if (S_ISDIR(facts.st_mode))
    return CheckpointFolder(path).newest();
  return std::make_unique<CheckpointFile>(path);
}
