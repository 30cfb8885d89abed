//===- Libraries.cpp - NVIDIA's libraries, found and opened at run time -----------------===//

#include "runtime/cuda/Libraries.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <link.h>
#include <poll.h>
#include <set>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
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

using Time = std::chrono::steady_clock::time_point;

static int millisecondsUntil(Time end) {
  auto left = end - std::chrono::steady_clock::now();
  return std::max<int>(0, std::chrono::duration_cast<std::chrono::milliseconds>(left).count());
}

/// Everything up to the end of a pipe; false where that does not come in time.
static bool readAll(int pipe, Time end, std::string &text) {
  char piece[4096];
  for (;;) {
    pollfd readable{pipe, POLLIN, 0};
    int ready = poll(&readable, 1, millisecondsUntil(end));
    if (ready < 0 && errno == EINTR)
      continue;
    ssize_t bytes = ready > 0 ? read(pipe, piece, sizeof piece) : -1;
    if (bytes <= 0)
      return bytes == 0;
    text.append(piece, bytes);
  }
}

/// Waits for a child's end, which comes at the latest at `end`: a program may close its output and
/// go on.
static void await(pid_t child, Time end) {
  pid_t ended;
  while ((ended = waitpid(child, nullptr, WNOHANG)) == 0 && millisecondsUntil(end) > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (ended != 0)
    return;
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
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
    if (!readAll(ends[0], end, text))
      text.clear();
    await(child, end);
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
  // The loader may find again what a folder led to.
  std::set<std::pair<void *, std::string>> told;
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
    if (!why.empty() && told.emplace(handle, why).second)
      library.problems += (library.problems.empty() ? "" : "; ") + file + ": " + why;
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

std::string cuda::openPart(void *library, const std::string &name) {
  constexpr int kHow = RTLD_NOW | RTLD_LOCAL;
  link_map *loaded = nullptr;
  fs::path beside;
  std::error_code none; // the current folder is gone
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void *>(&loaded)) == 0)
    beside = fs::absolute(loaded->l_name, none).parent_path() / name;
  if (void *first = dlopen(name.c_str(), kHow | RTLD_NOLOAD)) // what the library would get
    return first == dlopen(beside.c_str(), kHow | RTLD_NOLOAD)
               ? ""
               : "another one's part " + name + " is in use";
  if (!beside.empty() && dlopen(beside.c_str(), kHow))
    return "";
  if (dlopen(name.c_str(), kHow))
    return "";
  const char *why = dlerror();
  return "its part " + name + " does not open: " + (why ? why : "");
}

/// Says once that generated kernels do what the library would.
static void noteAbsence(const LibraryUse &use, const std::string &problems) {
  static std::set<std::string> told;
  if (!told.insert(use.library).second)
    return;
  // What was tried first can keep the next one from serving: openPart().
  std::string install = std::string("python3 -m pip install ") + use.packages,
              text = problems.empty()
                         ? "was not found: install it (" + install +
                               "), or name its folder in MPC_CUDA_LIBS"
                         : "cannot be used (" + problems +
                               "): name the folder of one that serves in MPC_CUDA_LIBS, which is "
                               "tried first (" +
                               install + " brings one)";
  std::fprintf(stderr, "note: %s run as generated kernels, since NVIDIA's %s %s\n", use.work,
               use.library, text.c_str());
}

void *cuda::openFor(const Program &program, const LibraryUse &use, const std::string &folder,
                    const std::function<std::string(void *)> &check) {
  auto hasWork = [&](const auto &entry) {
    return std::any_of(entry.second.commands.begin(), entry.second.commands.end(), use.isFor);
  };
  const char *isWanted = std::getenv(use.variable);
  if ((isWanted && std::strcmp(isWanted, "0") == 0) ||
      std::none_of(program.entries.begin(), program.entries.end(), hasWork))
    return nullptr;
  Library library = openLibrary(use.names, folder, check);
  if (!library.handle && folder.empty())
    noteAbsence(use, library.problems);
  return library.handle;
}

std::string cuda::libraryVersionText(size_t version) {
  size_t unit = version < 90000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100);
}
