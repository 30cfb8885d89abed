//===- KernelCheck.cpp - every kernel of a planned module against the plain evaluator ---------===//
//
//   mpc MODEL.onnx --emit=plan -o plan.mlir && kernel-check plan.mlir [--cpu=NAME] [--time]
//
// gpu-kernel-check is the same with the kernels as GPU code, on the simulator, and with the
// generated products of all library commands, and groups of launches against their members alone.
// Runs each distinct kernel on random arguments. Prints
// those whose results differ; with --time also what each costs on one thread. Differences of a few
// elements are those of a cancellation that rounding decides; more than one in a thousand is a
// failure. A product may have none.
//
//===----------------------------------------------------------------------------------===//

#include "KernelRunner.h"
#ifdef MPC_TEST_ON_SIMULATOR
#include "GroupRunner.h"
#include "ProductRunner.h"
#endif
#include <chrono>

using namespace mpc::test;

namespace {
/// How far elements may be apart: relative, with a share of the largest for sums that cancel.
double toleranceOf(mlir::Type element) {
  return element.isF16() ? 2e-3 : element.isBF16() ? 1.6e-2 : element.isF64() ? 1e-9 : 3e-5;
}

struct Difference {
  int64_t count = 0, first = -1;
};

Difference compare(const Tensor &want, const Tensor &got, mlir::Type element) {
  double largest = 0;
  for (double x : want.data)
    if (std::isfinite(x))
      largest = std::max(largest, std::abs(x));
  double tolerance = toleranceOf(element);
  Difference difference;
  for (int64_t i = 0; i < want.size(); ++i) {
    double a = want.data[i], b = got.data[i];
    bool same = (std::isnan(a) && std::isnan(b)) || a == b ||
                std::abs(a - b) <= tolerance * (std::abs(a) + 0.05 * largest + 1e-6);
    if (!same && difference.count++ == 0)
      difference.first = i;
  }
  return difference;
}

#ifdef MPC_TEST_ON_SIMULATOR
double timeOf(KernelRunner &, mlir::func::FuncOp, const std::vector<void *> &) { return NAN; }

/// Prints what is wrong with the products, and how long the simulator takes; how many there are,
/// and how many are wrong.
std::pair<int, int> checkProducts(KernelRunner &runner, bool timed) {
  int bad = 0;
  llvm::SmallVector<mlir::Operation *> products;
  llvm::copy_if(mpc::gpu::distinctLibraryCommands(*runner.module), std::back_inserter(products),
                mpc::gpu::isProduct); // attention has tests of its own
  for (mlir::Operation *product : products) {
    std::string name = mpc::gpu::productFunctions(product)[0].name;
    if (std::string problem = checkProduct(*runner.backend, product); !problem.empty()) {
      ++bad;
      std::printf("%s: %s\n", name.c_str(), problem.c_str());
    }
    if (!timed)
      continue;
    std::vector<Tensor> arguments;
    std::mt19937 generator(1);
    for (mlir::Type type : product->getOperandTypes())
      arguments.push_back(randomTensor(type, generator));
    auto start = std::chrono::steady_clock::now();
    runProduct(*runner.backend, product, arguments);
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%-60s %8.1f ms on the simulator\n", name.c_str(), seconds.count() * 1e3);
  }
  return {int(products.size()), bad};
}

/// Likewise of the groups.
std::pair<int, int> checkGroups(const std::string &text, const std::string &cpu) {
  GroupRunner runner(text, cpu);
  for (const std::string &problem : runner.problems)
    std::printf("%s\n", problem.c_str());
  return {runner.groups, int(runner.problems.size())};
}
#else
std::pair<int, int> checkProducts(KernelRunner &, bool) { return {0, 0}; }
std::pair<int, int> checkGroups(const std::string &, const std::string &) { return {0, 0}; }

/// Best of five runs over the whole range on this thread, in seconds.
double timeOf(KernelRunner &runner, mlir::func::FuncOp kernel, std::vector<void *> buffers) {
  using Function = void (*)(int64_t, int64_t, void *const *);
  Storage scratch(mpc::scratchBytes(kernel));
  buffers.push_back(scratch.data());
  std::vector<std::pair<Function, int64_t>> functions;
  for (const mpc::KernelFunction &function : mpc::kernelFunctions(kernel))
    functions.push_back(
        {llvm::cantFail(runner.backend->jit->lookup(function.name)).toPtr<Function>(),
         function.extent});
  double best = INFINITY;
  for (int run = 0; run < 5; ++run) {
    auto start = std::chrono::steady_clock::now();
    for (auto &[function, extent] : functions)
      function(0, extent, buffers.data());
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}
#endif

bool check(KernelRunner &runner, mlir::func::FuncOp kernel, bool timed) {
  std::mt19937 generator(11);
  std::vector<Tensor> arguments;
  std::vector<Storage> storage;
  std::vector<void *> buffers;
  for (mlir::Type type : kernel.getArgumentTypes()) {
    arguments.push_back(randomTensor(type, generator, 5));
    storage.push_back(pack(arguments.back(), mlir::getElementTypeOrSelf(type)));
  }
  for (auto [i, type] : llvm::enumerate(kernel.getResultTypes())) {
    int64_t alias = mpc::getKernelAttr(kernel).getAliases()[i];
    auto tensor = mlir::cast<mlir::RankedTensorType>(type);
    storage.push_back(alias >= 0
                          ? storage[alias]
                          : Storage(tensor.getNumElements() * bytesPer(tensor.getElementType())));
  }
  for (const Storage &s : storage)
    buffers.push_back(s.data());
  runner.run(kernel, buffers);

  bool good = true;
  std::vector<Tensor> expected = Reference().run(kernel, arguments);
  for (auto [i, type] : llvm::enumerate(kernel.getResultTypes())) {
    Tensor got = unpack(storage[arguments.size() + i], mlir::cast<mlir::RankedTensorType>(type));
    Difference difference = compare(expected[i], got, mlir::getElementTypeOrSelf(type));
    if (!difference.count)
      continue;
    good &= difference.count * 1000 <= got.size();
    std::printf(
        "%s: %ld of %ld elements of result %zu differ, the first is element %ld: %g, not %g\n",
        kernel.getName().str().c_str(), long(difference.count), long(got.size()), size_t(i),
        long(difference.first), got.data[difference.first], expected[i].data[difference.first]);
  }
  if (timed) {
    int64_t elements = 1;
    for (int64_t d : mpc::getKernelAttr(kernel).getDomain().asArrayRef())
      elements *= d;
    double seconds = timeOf(runner, kernel, buffers);
    std::printf("%-40s %-6s %10ld elements %10.1f us %7.2f G elements/s\n",
                kernel.getName().str().c_str(),
                mpc::stringifyKernelKind(mpc::getKernelAttr(kernel).getKind()).str().c_str(),
                long(elements), seconds * 1e6, elements / seconds * 1e-9);
  }
  return good;
}
} // namespace

int main(int argc, char **argv) {
  std::string file, cpu = "native";
  bool timed = false;
  for (int i = 1; i < argc; ++i) {
    llvm::StringRef argument = argv[i];
    if (argument.consume_front("--cpu="))
      cpu = argument.str();
    else if (argument == "--time")
      timed = true;
    else
      file = argument.str();
  }
  auto text = llvm::MemoryBuffer::getFile(file);
  if (!text) {
    std::fprintf(stderr, "kernel-check: cannot read %s: %s\n", file.c_str(),
                 text.getError().message().c_str());
    return 2;
  }
  std::string source = (*text)->getBuffer().str();
  KernelRunner runner(source, cpu, withoutGroups);
  if (!runner.ok())
    return 1;
  int kernels = 0, bad = 0;
  mlir::func::FuncOp last;
  for (auto &[name, kernel] : mpc::kernelIndex(*runner.module).entries) {
    if (kernel == last)
      continue;
    last = kernel;
    ++kernels;
    bad += !check(runner, kernel, timed);
  }
  auto [products, badProducts] = checkProducts(runner, timed);
  auto [groups, badGroups] = checkGroups(source, cpu);
  bad += badProducts + badGroups;
  std::string others = groups ? std::to_string(groups) + " groups of launches, " : "";
  std::printf("%d kernels, %s%d wrong\n", kernels + products, others.c_str(), bad);
  return bad != 0;
}
