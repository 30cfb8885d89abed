//===- LibrarySearchTest.cpp - where NVIDIA's libraries are looked for ---------------------===//

#include "runtime/cuda/Libraries.h"
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <link.h>

namespace fs = std::filesystem;
using mpc::cuda::Library;

namespace {
/// Folders with libraries (the C library and its mathematics under other names), and an environment
/// that leads to them.
struct LibrarySearch : testing::Test {
  fs::path root;
  std::string path;

  void SetUp() override {
    char pattern[] = "/tmp/mpc-libraries-XXXXXX";
    root = mkdtemp(pattern);
    path = getenv("PATH");
    unsetenv("MPC_CUDA_LIBS");
    unsetenv("CUDA_HOME");
    setenv("PATH", root.c_str(), 1); // no python3
  }
  void TearDown() override {
    setenv("PATH", path.c_str(), 1);
    unsetenv("MPC_CUDA_LIBS");
    unsetenv("CUDA_HOME");
    fs::remove_all(root);
  }

  std::string folder(const std::string &name) {
    fs::create_directories(root / name);
    return root / name;
  }
  std::string add(const std::string &name, const char *library = "libc.so.6") {
    link_map *loaded = nullptr;
    EXPECT_EQ(dlinfo(dlopen(library, RTLD_NOW), RTLD_DI_LINKMAP, static_cast<void *>(&loaded)), 0);
    fs::create_directories((root / name).parent_path());
    fs::create_symlink(loaded->l_name, root / name);
    return root / name;
  }
  void addPython(const std::string &body) {
    std::ofstream(root / "python3") << "#!/bin/sh\n" << body << "\n";
    fs::permissions(root / "python3", fs::perms::owner_all);
  }
  static Library open(
      const std::string &only = "",
      const std::function<std::string(void *)> &check = [](void *) { return std::string(); }) {
    return mpc::cuda::openLibrary({"libmpctest.so.2", "libmpctest.so.1"}, only, check);
  }
};
} // namespace

TEST_F(LibrarySearch, NothingIsThere) {
  Library library = open();
  EXPECT_EQ(library.handle, nullptr);
  EXPECT_EQ(library.problems, "");
}

TEST_F(LibrarySearch, PlacesInOrder) {
  std::string packages = add("site/nvidia/mpctest/lib/libmpctest.so.1");
  fs::create_directories(root / "site/nvidia/another");
  addPython("echo; echo relative; echo " + std::string(root / "none") + "; echo " +
            std::string(root / "site"));
  EXPECT_EQ(open().file, packages);
  std::string home = add("cuda/lib64/libmpctest.so.1");
  setenv("CUDA_HOME", (root / "cuda").c_str(), 1);
  EXPECT_EQ(open().file, home);
  std::string own = add("own/libmpctest.so.1");
  setenv("MPC_CUDA_LIBS", (std::string(root / "none") + ":" + std::string(root / "own")).c_str(),
         1);
  EXPECT_EQ(open().file, own);
  own = add("own/libmpctest.so.2");
  EXPECT_EQ(open().file, own);
  EXPECT_NE(open().handle, nullptr);
  EXPECT_EQ(open(folder("empty")).handle, nullptr);
  EXPECT_EQ(open(root / "site/nvidia/mpctest/lib").file, packages);
}

// The loader's places, under a name that every system has.
TEST_F(LibrarySearch, TheLoader) {
  Library library =
      mpc::cuda::openLibrary({"libnone.so.1", "libc.so.6"}, "", [](void *) { return ""; });
  EXPECT_EQ(library.file, "libc.so.6");
}

TEST_F(LibrarySearch, WhatDoesNotServe) {
  std::string second = add("own/libmpctest.so.2"), first = add("own/libmpctest.so.1");
  setenv("MPC_CUDA_LIBS", (root / "own").c_str(), 1);
  int asked = 0;
  Library library = open("", [&](void *) { return ++asked == 1 ? "it is too old" : ""; });
  EXPECT_EQ(library.file, first);
  library = open("", [](void *) { return "it is too old"; });
  EXPECT_EQ(library.handle, nullptr);
  EXPECT_EQ(library.problems, second + ": it is too old"); // `first` is the same file
  std::ofstream(folder("text") + "/libmpctest.so.2") << "no library";
  setenv("MPC_CUDA_LIBS", (std::string(root / "text") + ":" + std::string(root / "own")).c_str(),
         1);
  library = open("", [](void *) { return "it is too old"; });
  EXPECT_NE(library.problems.find("text/libmpctest.so.2"), std::string::npos) << library.problems;
  EXPECT_EQ(open().file, second);
}

TEST_F(LibrarySearch, EveryProblemIsTold) {
  std::string newer = add("own/libmpctest.so.2", "libm.so.6"), older = add("own/libmpctest.so.1"),
              packages = add("site/nvidia/mpctest/lib/libmpctest.so.1");
  setenv("MPC_CUDA_LIBS", (root / "own").c_str(), 1);
  addPython("echo " + std::string(root / "site"));
  int asked = 0;
  Library library = open("", [&](void *) { return "no. " + std::to_string(++asked); });
  EXPECT_EQ(library.problems, newer + ": no. 1; " + older + ": no. 2; " + packages + ": no. 3");
}

TEST_F(LibrarySearch, PythonThatFails) {
  for (const char *body : {"exit 1", "echo /dev/null; exit 3", "printf '/\\001\\377/\\n\\n/'"}) {
    addPython(body);
    EXPECT_EQ(open().handle, nullptr);
  }
}

// A python3 that does not end is ended, whether or not it has closed its output.
TEST_F(LibrarySearch, PythonThatHangs) {
  std::string packages = add("site/nvidia/mpctest/lib/libmpctest.so.1");
  std::string answer = "echo " + std::string(root / "site") + "; exec /bin/sleep 100";
  for (const char *output : {" >&-", ""}) {
    addPython(answer + output);
    auto began = std::chrono::steady_clock::now();
    EXPECT_EQ(open().file, *output ? packages : "");
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(50));
  }
}
