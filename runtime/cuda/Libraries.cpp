//===- Libraries.cpp - NVIDIA's libraries, found and opened at run time -----------------===//

#include "runtime/cuda/Libraries.h"
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <set>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mpc;
using namespace mpc::cuda;
namespace fs = std::filesystem;

// A python3 that says nothing for so long is given up.
static constexpr std::chrono::seconds kPatience{5};

static std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find(separator, begin), text.size());
    if (end > begin)
      parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

/// What a program on PATH writes to its standard output, or nothing.
static std::string outputOf(const std::vector<const char *> &command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char *> arguments;
  for (const char *word : command)
    arguments.push_back(const_cast<char *>(word));
  arguments.push_back(nullptr);
  pid_t child = 0;
  int failed = posix_spawnp(&child, command[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  if (failed == 0) {
    auto end = std::chrono::steady_clock::now() + kPatience;
    char piece[4096];
    for (ssize_t bytes = 1; bytes > 0;) {
      auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd readable{ends[0], POLLIN, 0};
      bool isLate = left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) == 0;
      if (isLate) {
        kill(child, SIGKILL);
        text.clear();
        break;
      }
      bytes = read(ends[0], piece, sizeof piece);
      if (bytes > 0)
        text.append(piece, bytes);
    }
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  return text;
}

/// nvidia/*/lib in the folders where python3 finds packages.
static std::vector<std::string> packageFolders() {
  std::vector<std::string> folders;
  std::string paths = outputOf({"python3", "-c", "import sys; print('\\n'.join(sys.path))"});
  for (const std::string &path : split(paths, '\n')) {
    if (path[0] != '/')
      continue;
    std::error_code none; // a folder that is not there, or that nobody may read
    std::vector<std::string> here;
    fs::directory_iterator package(path + "/nvidia", none);
    for (; package != fs::directory_iterator(); package.increment(none))
      here.push_back(package->path().string() + "/lib");
    std::sort(here.begin(), here.end());
    folders.insert(folders.end(), here.begin(), here.end());
  }
  return folders;
}

Library cuda::openLibrary(const std::vector<std::string> &names, const std::string &folder,
                          const std::function<std::string(void *)> &check) {
  Library library;
  auto open = [&](const std::string &file, bool isThere) {
    void *handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string why;
    if (handle)
      why = check(handle);
    else if (const char *text = dlerror(); isThere && text)
      why = text;
    if (handle && why.empty()) {
      library.handle = handle;
      library.file = file;
      return true;
    }
    if (!why.empty() && library.problem.empty())
      library.problem = file + ": " + why;
    return false;
  };
  auto openIn = [&](const std::vector<std::string> &folders) {
    for (const std::string &each : folders)
      for (const std::string &name : names) {
        std::string file = each + "/" + name;
        if (access(file.c_str(), F_OK) == 0 && open(file, /*isThere=*/true))
          return true;
      }
    return false;
  };
  if (!folder.empty()) {
    openIn({folder});
    return library;
  }
  const char *own = std::getenv("MPC_CUDA_LIBS"), *home = std::getenv("CUDA_HOME");
  if (own && openIn(split(own, ':')))
    return library;
  if (home && *home && openIn({std::string(home) + "/lib64"}))
    return library;
  for (const std::string &name : names)
    if (open(name, /*isThere=*/false))
      return library;
  openIn(packageFolders());
  return library;
}

void cuda::noteAbsence(const std::string &work, const std::string &library,
                       const std::string &packages, const std::string &problem) {
  static std::set<std::string> told;
  if (told.insert(library).second)
    std::fprintf(stderr,
                 "note: %s run as generated kernels, since NVIDIA's %s %s: install it (python3 -m "
                 "pip install %s), or name its folder in MPC_CUDA_LIBS\n",
                 work.c_str(), library.c_str(),
                 problem.empty() ? "was not found" : ("cannot be used (" + problem + ")").c_str(),
                 packages.c_str());
}
