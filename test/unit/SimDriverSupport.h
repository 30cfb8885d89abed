//===- SimDriverSupport.h - a simulated GPU for a test ------------------------------------===//
//
// The library is opened by hand, as the runtime does it. It reads its settings once and stays in
// the process, so that every test has a process of its own for it.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_TEST_UNIT_SIMDRIVERSUPPORT_H
#define MPC_TEST_UNIT_SIMDRIVERSUPPORT_H

#include "runtime/cuda/Driver.h"
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

// The runtime's functions, and those that it can do without.
#define MPC_TEST_FUNCTIONS(X)                                                                      \
  MPC_CUDA_FUNCTIONS(X)                                                                            \
  X(cuCtxGetCurrent)                                                                               \
  X(cuCtxSynchronize)                                                                              \
  X(cuStreamQuery)                                                                                 \
  X(cuStreamIsCapturing)                                                                           \
  X(cuEventQuery)                                                                                  \
  X(cuFuncGetAttribute)                                                                            \
  X(cuFuncGetParamInfo)                                                                            \
  X(cuFuncLoad)

namespace mpc::test {

/// The library's functions.
struct SimDriver {
#define MPC_TEST_DECLARE(name) decltype(&::name) name = nullptr;
  MPC_TEST_FUNCTIONS(MPC_TEST_DECLARE)
#undef MPC_TEST_DECLARE

  SimDriver() {
    void *library = dlopen(MPC_TEST_SIM_DRIVER, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
#define MPC_TEST_TEXT(name) #name
#define MPC_TEST_RESOLVE(name)                                                                     \
  this->name = reinterpret_cast<decltype(this->name)>(dlsym(library, MPC_TEST_TEXT(name)));        \
  EXPECT_NE(this->name, nullptr) << MPC_TEST_TEXT(name);
    MPC_TEST_FUNCTIONS(MPC_TEST_RESOLVE)
#undef MPC_TEST_RESOLVE
#undef MPC_TEST_TEXT
  }
};

inline std::string readImage() {
  std::ifstream file(MPC_TEST_SIM_IMAGE, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The first device with its context, and short ways to make what tests need. Every call that has
/// no result to look at must succeed.
struct SimGpu : SimDriver {
  CUcontext context = nullptr;
  CUmodule module = nullptr;

  SimGpu() {
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuCtxSetCurrent(context));
  }

  static void ok(CUresult result) { EXPECT_EQ(result, CUDA_SUCCESS); }

  CUdeviceptr memory(size_t words) {
    CUdeviceptr memory = 0;
    ok(cuMemAlloc(&memory, words * sizeof(uint32_t)));
    return memory;
  }
  uint32_t *pinned(size_t words) {
    void *memory = nullptr;
    ok(cuMemHostAlloc(&memory, words * sizeof(uint32_t), 0));
    return static_cast<uint32_t *>(memory);
  }
  CUstream stream() {
    CUstream stream = nullptr;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
  }
  CUevent event(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent event = nullptr;
    ok(cuEventCreate(&event, flags));
    return event;
  }
  /// `to` waits for what is in `from` now.
  void order(CUstream from, CUstream to) {
    CUevent between = event();
    ok(cuEventRecord(between, from));
    ok(cuStreamWaitEvent(to, between, 0));
    ok(cuEventDestroy(between));
  }
  CUfunction function(const char *name, bool isLoaded = true) {
    if (!module)
      ok(cuModuleLoadDataEx(&module, readImage().data(), 0, nullptr, nullptr));
    CUfunction function = nullptr;
    ok(cuModuleGetFunction(&function, module, name));
    if (isLoaded)
      ok(cuFuncLoad(function));
    return function;
  }
  /// Blocks of 32 threads.
  CUresult launch(CUstream stream, CUfunction function, std::vector<CUdeviceptr> arguments,
                  unsigned blocks = 1, unsigned threads = 32) {
    std::vector<void *> parameters;
    for (CUdeviceptr &argument : arguments)
      parameters.push_back(&argument);
    return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters.data(),
                          nullptr);
  }
  CUresult set(CUstream stream, CUdeviceptr memory, unsigned char value, size_t words) {
    return cuMemsetD8Async(memory, value, words * sizeof(uint32_t), stream);
  }
  /// Copies that wait.
  void upload(CUstream stream, CUdeviceptr to, const std::vector<uint32_t> &from) {
    ok(cuMemcpyHtoDAsync(to, from.data(), from.size() * sizeof(uint32_t), stream));
    ok(cuStreamSynchronize(stream));
  }
  std::vector<uint32_t> download(CUstream stream, CUdeviceptr from, size_t words) {
    std::vector<uint32_t> to(words);
    ok(cuMemcpyDtoHAsync(to.data(), from, words * sizeof(uint32_t), stream));
    return to;
  }
};

using SimSettings = std::vector<std::pair<const char *, const char *>>;

/// Runs the body in a process of its own, which is not allowed to die. Returns what was written to
/// stderr.
inline std::string inProcess(const SimSettings &settings, const std::function<void()> &body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    for (const auto &[name, value] : settings)
      setenv(name, value, 1);
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  close(ends[1]);
  std::string text;
  char piece[4096];
  for (ssize_t bytes; (bytes = read(ends[0], piece, sizeof piece)) > 0;)
    text.append(piece, bytes);
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  return text;
}

/// Likewise, with a GPU.
inline std::string onGpu(const std::function<void(SimGpu &)> &body,
                         const SimSettings &settings = {}) {
  return inProcess(settings, [&] {
    SimGpu gpu;
    body(gpu);
  });
}

/// Runs the body where the loader finds none of these libraries: in a program of its own, with the
/// same test, for which a folder comes first where they are no libraries.
inline void withoutLibraries(const std::vector<const char *> &names,
                             const std::function<void()> &body) {
  constexpr const char *kIsThere = "MPC_TEST_WITHOUT_LIBRARIES", *kHasRun = "the body has run\n";
  if (std::getenv(kIsThere)) {
    body();
    std::fputs(kHasRun, stderr);
    return;
  }
  char pattern[] = "/tmp/mpc-without-XXXXXX";
  std::string folder = mkdtemp(pattern), path = folder;
  for (const char *name : names)
    std::ofstream(folder + "/" + name) << "no library";
  if (const char *old = std::getenv("LD_LIBRARY_PATH"))
    path += std::string(":") + old;
  const testing::TestInfo &test = *testing::UnitTest::GetInstance()->current_test_info();
  std::string filter = std::string("--gtest_filter=") + test.test_suite_name() + "." + test.name();
  auto run = [&] {
    execl("/proc/self/exe", "test", filter.c_str(), "--gtest_brief=1", nullptr);
    ADD_FAILURE() << "the test's program does not start";
  };
  EXPECT_EQ(inProcess({{"LD_LIBRARY_PATH", path.c_str()}, {kIsThere, "1"}}, run), kHasRun);
  std::filesystem::remove_all(folder);
}

inline void expectSaid(const std::string &text, const std::string &part) {
  EXPECT_NE(text.find("mpc-sim: "), std::string::npos) << text;
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

} // namespace mpc::test

#endif // MPC_TEST_UNIT_SIMDRIVERSUPPORT_H
