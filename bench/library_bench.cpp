//===- library_bench.cpp - each way to execute a library command, timed ------------===//
//
// Prints a table row per command and way: GFLOP/s (a multiplication and an addition each),
// microseconds, and the implementation. docs/cpu-library.md keeps the results.
//
//   library-bench [matmul|batched|small|conv|channels|all] [f64|f32|bf16|f16|all] [threads]
//   [filter] library-bench --rates library-bench --product fp32|bf16|fp16 SIZE [SECONDS]
//
// --rates prints one JSON line: FLOP/s by precision, of the fastest of three square products, and
// bytes/s by the size of what is read and written again and again. --product prints one with the
// least milliseconds of a square product in the way that a program would take, and the process's
// peak memory.
//
//===----------------------------------------------------------------------------===//

#include "runtime/cpu/Library.h"
#include "runtime/cpu/Threads.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

using namespace mpc;
using namespace mpc::cpu;

namespace {

int gThreads = 2;
std::string gFilter;

int64_t elements(const Operand &o) {
  int64_t count = 1;
  for (int64_t dim : o.shape)
    count *= dim;
  return count;
}

// One thread is measured in time of the CPU, which holds on a busy machine too.
double seconds() {
  timespec now;
  clock_gettime(gThreads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

/// Least seconds of the runs that fit `limit`; a weight is new at each of them if `refresh`.
double measure(Library &library, LibraryCommand &command, bool refresh, double limit = 0.4) {
  double best = 1e30, start = seconds();
  for (int i = 0; i < 3 || seconds() - start < limit; ++i) {
    if (refresh)
      ++library.weights_version;
    double begin = seconds();
    command.run();
    if (i)
      best = std::min(best, seconds() - begin);
  }
  return best;
}

void row(Command c, const std::string &name, bool refresh = false) {
  if (!gFilter.empty() && name.find(gFilter) == std::string::npos)
    return;
  size_t size = 0;
  for (Operand *o : {&c.lhs, &c.rhs, &c.bias, &c.result}) {
    if (o->shape.empty())
      continue;
    o->present = true;
    o->buffer = {Region::arena, size};
    size += alignedBytes(size_t(elements(*o)) * elementSize(o->type));
  }
  Memory memory(size + 64, "a measurement");
  std::memset(memory.data(), 0x3a, size); // small positive numbers in every type
  std::array<std::byte *, kRegionCount> regions;
  regions.fill(memory.data());
  omp_set_num_threads(gThreads);
  {
    Library library(gThreads, regions);
    auto chosen = makeLibraryCommand(library, c);
    std::printf("%-34s %-5s chosen: %s\n", name.c_str(), elementTypeName(c.lhs.type),
                chosen->describe().c_str());
  }
  const std::pair<Path, const char *> paths[] = {
      {Path::native, "native"}, {Path::widened, "widened"}, {Path::plain, "plain"}};
  for (auto [path, label] : paths) {
    Library library(gThreads, regions);
    library.path = path;
    auto command = makeLibraryCommand(library, c);
    std::string how = command->describe();
    bool is_plain = how.find("plain") == 0,
         is_wide = how.find("widened to f32") != std::string::npos;
    if ((path == Path::native && (is_plain || is_wide)) ||
        (path == Path::widened && (is_plain || !is_wide)))
      continue; // there is no such way
    Memory scratch(command->scratchBytes(), "a measurement");
    command->bind(scratch.data());
    double time = measure(library, *command, refresh);
    std::printf("%-34s %-5s %-8s %9.1f GFLOP/s %10.1f us  %s\n", name.c_str(),
                elementTypeName(c.lhs.type), label, 2e-9 * multiplications(c) / time, time * 1e6,
                how.c_str());
    std::fflush(stdout);
  }
}

void matmul(ElementType type, int64_t m, int64_t n, int64_t k, bool tl, bool tr, bool weight,
            bool wide_result, bool refresh = false, int64_t batch = 0) {
  Command c;
  c.kind = CommandKind::matmul;
  c.lhs.shape = tl ? std::vector{k, m} : std::vector{m, k};
  c.rhs.shape = tr ? std::vector{n, k} : std::vector{k, n};
  c.result.shape = {m, n};
  if (batch)
    for (Operand *o : {&c.lhs, &c.rhs, &c.result})
      o->shape.insert(o->shape.begin(), batch);
  c.lhs.type = c.rhs.type = c.result.type = type;
  if (wide_result && isHalf(type))
    c.result.type = ElementType::f32;
  c.transpose_lhs = tl;
  c.transpose_rhs = tr;
  c.rhs.is_weight = weight;
  char name[96];
  if (batch)
    std::snprintf(name, sizeof name, "%ld of ", batch);
  size_t at = batch ? std::strlen(name) : 0;
  std::snprintf(name + at, sizeof name - at, "%ldx%ldx%ld %s%s%s%s", m, n, k, tl ? "T" : "N",
                tr ? "T" : "N", weight ? " weight" : "", refresh ? " new" : "");
  row(c, name, refresh);
}

void conv(ElementType type, CommandKind kind, const char *label, int64_t n, int64_t channels,
          int64_t features, int64_t extent, int64_t kernel, int64_t stride, int64_t groups,
          bool channels_last) {
  Command c;
  c.kind = kind;
  int64_t pad = kernel / 2, out = (extent + 2 * pad - kernel) / stride + 1;
  c.strides = {stride, stride};
  c.pads = {pad, pad, pad, pad};
  c.dilations = {1, 1};
  c.groups = groups;
  c.channels_last = channels_last;
  Operand input, filter, output;
  input.shape = channels_last ? std::vector{n, extent, extent, channels}
                              : std::vector{n, channels, extent, extent};
  output.shape =
      channels_last ? std::vector{n, out, out, features} : std::vector{n, features, out, out};
  filter.shape = {features, channels / groups, kernel, kernel};
  input.type = output.type = filter.type = type;
  c.lhs = kind == CommandKind::conv_backward_data ? output : input;
  c.rhs = kind == CommandKind::conv_backward_weights ? output : filter;
  c.rhs.is_weight = kind != CommandKind::conv_backward_weights;
  c.result = kind == CommandKind::conv                 ? output
             : kind == CommandKind::conv_backward_data ? input
                                                       : filter;
  if (kind == CommandKind::conv_backward_weights && isHalf(type))
    c.result.type = ElementType::f32;
  const char *kinds[] = {"", "", "forward", "data", "weights"};
  row(c, std::string(label) + (channels_last ? " nhwc " : " nchw ") + kinds[int(kind)]);
}

void convolutions(ElementType type, bool channels_last) {
  struct Layer {
    const char *name;
    int64_t channels, features, extent, kernel, stride, groups;
  };
  // ResNet-18 and -50, MobileNet-V2, a small CNN; batch 16.
  const Layer layers[] = {
      {"7x7 3-64 224/2", 3, 64, 224, 7, 2, 1},   {"3x3 64-64 56", 64, 64, 56, 3, 1, 1},
      {"3x3 64-128 56/2", 64, 128, 56, 3, 2, 1}, {"3x3 128-128 28", 128, 128, 28, 3, 1, 1},
      {"1x1 64-128 56/2", 64, 128, 56, 1, 2, 1}, {"3x3 256-256 14", 256, 256, 14, 3, 1, 1},
      {"3x3 512-512 7", 512, 512, 7, 3, 1, 1},   {"1x1 64-256 56", 64, 256, 56, 1, 1, 1},
      {"1x1 256-64 56", 256, 64, 56, 1, 1, 1},   {"1x1 1024-256 14", 1024, 256, 14, 1, 1, 1},
      {"dw3x3 96 56", 96, 96, 56, 3, 1, 96},     {"dw3x3 144 56/2", 144, 144, 56, 3, 2, 144},
      {"3x3 1-32 28", 1, 32, 28, 3, 1, 1},       {"3x3 32-64 14", 32, 64, 14, 3, 1, 1}};
  for (const Layer &l : layers)
    for (CommandKind kind :
         {CommandKind::conv, CommandKind::conv_backward_data, CommandKind::conv_backward_weights})
      conv(type, kind, l.name, 16, l.channels, l.features, l.extent, l.kernel, l.stride, l.groups,
           channels_last);
}

void run(const std::string &what, ElementType type) {
  bool all = what == "all";
  if (all || what == "matmul") {
    for (int64_t size : {512, 1024, 2048, 4096})
      if (size < 4096 || type != ElementType::f64)
        matmul(type, size, size, size, false, false, false, false);
    matmul(type, 2048, 2048, 2048, false, true, true, false); // forward
    matmul(type, 2048, 2048, 2048, true, false, false, true); // weight gradient
    matmul(type, 64, 128, 3136, false, true, true, false, true);
    matmul(type, 64, 3136, 128, false, false, true, false, true);
    matmul(type, 128, 3136, 64, true, false, false, true);
    matmul(type, 512, 384, 384, false, true, true, false);
    matmul(type, 512, 1536, 384, false, true, true, false);
  }
  if (all || what == "batched")
    for (auto [t, h] : {std::array<int64_t, 2>{64, 32},
                        {128, 64},
                        {197, 64},
                        {512, 64}}) { // attention: tokens, head size
      matmul(type, t, t, h, false, true, false, false, false, 48);
      matmul(type, t, h, t, false, false, false, false, false, 48);
      matmul(type, t, h, t, true, false, false, false, false, 48);
    }
  if (all || what == "small")
    for (auto [m, n, k] : {std::array<int64_t, 3>{32, 1, 10},
                           {32, 10, 1},
                           {64, 10, 128},
                           {64, 32, 64},
                           {64, 64, 64},
                           {128, 64, 64},
                           {128, 128, 64},
                           {128, 128, 128},
                           {256, 128, 128},
                           {256, 256, 128}})
      matmul(type, m, n, k, false, true, true, false);
  if (all || what == "conv")
    convolutions(type, true);
  if (all || what == "channels")
    convolutions(type, false);
}

const std::pair<ElementType, const char *> kPrecisions[] = {
    {ElementType::f32, "fp32"}, {ElementType::bf16, "bf16"}, {ElementType::f16, "fp16"}};

/// Least seconds of a square product in the way that a program would take, and that way.
std::pair<double, std::string> timeProduct(ElementType type, int64_t size, double limit) {
  Command c;
  c.kind = CommandKind::matmul;
  size_t bytes = alignedBytes(size_t(size) * size * elementSize(type)), offset = 0;
  for (Operand *o : {&c.lhs, &c.rhs, &c.result}) {
    *o = {{Region::arena, offset}, type, {size, size}, true, false};
    offset += bytes;
  }
  Memory memory(offset + 64, "a measurement");
  std::memset(memory.data(), 0x3a, offset);
  std::array<std::byte *, kRegionCount> regions;
  regions.fill(memory.data());
  Library library(gThreads, regions);
  auto command = makeLibraryCommand(library, c);
  Memory scratch(command->scratchBytes(), "a measurement");
  command->bind(scratch.data());
  return {measure(library, *command, false, limit), command->describe()};
}

/// One product for bench/products.py.
int printProduct(const std::string &precision, int64_t size, double limit) {
  omp_set_num_threads(gThreads);
  for (auto [type, label] : kPrecisions)
    if (precision == label && size > 0 && size <= 1 << 15) {
      auto [time, way] = timeProduct(type, size, limit);
      std::printf("{\"system\": \"mpc\", \"config\": \"%s\", \"ms\": %.6g, \"peak_bytes\": %ld}\n",
                  way.c_str(), 1e3 * time, long(peakMemoryBytes()));
      return 0;
    }
  std::fprintf(stderr, "error: --product wants fp32, bf16 or fp16, and a size of at most 32768\n");
  return 2;
}

/// Bytes per second of y += x, two numbers read and one written, over arrays of `bytes` together:
/// what fits a cache comes from there. Each thread stays with its part, many times over, so that
/// starting the threads costs nothing.
double copyRate(int64_t bytes) {
  const int64_t count = bytes / 2 / int64_t(sizeof(float));
  Memory x(size_t(bytes / 2), "a measurement"), y(size_t(bytes / 2), "a measurement");
  const auto *__restrict from = reinterpret_cast<const float *>(x.data());
  auto *__restrict to = reinterpret_cast<float *>(y.data());
  x.clear(gThreads); // untouched pages are all the same one
  y.clear(gThreads);
  const int64_t rounds = std::max<int64_t>(1, (int64_t(1) << 26) / bytes);
  double best = 1e30, start = seconds();
  for (int i = 0; i < 10 || seconds() - start < 0.3; ++i) {
    double begin = seconds();
#pragma omp parallel num_threads(gThreads)
    {
      int64_t first = count * omp_get_thread_num() / gThreads,
              last = count * (omp_get_thread_num() + 1) / gThreads;
      for (int64_t round = 0; round < rounds; ++round) {
        for (int64_t k = first; k < last; ++k)
          to[k] += from[k];
        asm volatile("" ::: "memory"); // each round counts
      }
    }
    best = std::min(best, seconds() - begin);
  }
  return 1.5 * double(bytes) * double(rounds) / best;
}

/// The machine's rates, for the limit that bench/run.py prints.
void printRates() {
  omp_set_num_threads(gThreads);
  std::printf("{\"threads\": %d, \"flops\": {", gThreads);
  for (auto [type, label] : kPrecisions) {
    double best = 0;
    for (int64_t size : {512, 1024, 2048}) {
      double cube = double(size) * double(size) * double(size);
      best = std::max(best, 2 * cube / timeProduct(type, size, 0.4).first);
    }
    std::printf("%s\"%s\": %.6g", type == ElementType::f32 ? "" : ", ", label, best);
  }
  std::printf("}, \"bandwidth\": [");
  for (int64_t kib = 128; kib <= 256 << 10; kib *= 2)
    std::printf("%s[%ld, %.6g]", kib == 128 ? "" : ", ", long(kib << 10), copyRate(kib << 10));
  std::printf("]}\n");
}

/// Argument i as a number; without it, `otherwise`.
double number(int argc, char **argv, int i, double otherwise) {
  return argc > i ? std::strtod(argv[i], nullptr) : otherwise;
}

} // namespace

int main(int argc, char **argv) {
  std::string what = argc > 1 ? argv[1] : "all", type = argc > 2 ? argv[2] : "all";
  gThreads = usableCpus();
  if (what == "--rates") {
    printRates();
    return 0;
  }
  if (what == "--product")
    return printProduct(type, int64_t(number(argc, argv, 3, 0)), number(argc, argv, 4, 1));
  if (int threads = int(number(argc, argv, 3, 0)); threads > 0)
    gThreads = threads;
  gFilter = argc > 4 ? argv[4] : "";
  for (ElementType t : {ElementType::f32, ElementType::bf16, ElementType::f16, ElementType::f64})
    if (type == "all" || type == elementTypeName(t))
      run(what, t);
  return 0;
}
