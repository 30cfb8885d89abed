//===- KernelRunner.h - compile a kernel from text and run it, for tests -----------------===//
//
// The same tests run kernels on this CPU (codegen-tests), and GPU kernels on the simulator
// (gpu-tests, which are compiled with MPC_TEST_ON_SIMULATOR).
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_TEST_UNIT_KERNELRUNNER_H
#define MPC_TEST_UNIT_KERNELRUNNER_H

#include "CpuBackend.h"
#ifdef MPC_TEST_ON_SIMULATOR
#include "SimulatorBackend.h"
#endif
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>
#include <random>

#include "TensorReference.h"

namespace mpc::test {

inline uint64_t bitsOf(double value, mlir::Type type) {
  if (auto floating = mlir::dyn_cast<mlir::FloatType>(type)) {
    llvm::APFloat number(value);
    bool lost;
    number.convert(floating.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &lost);
    return number.bitcastToAPInt().getZExtValue();
  }
  return static_cast<uint64_t>(static_cast<int64_t>(value));
}
inline double fromBits(uint64_t bits, mlir::Type type) {
  if (auto floating = mlir::dyn_cast<mlir::FloatType>(type)) {
    llvm::APFloat number(floating.getFloatSemantics(), llvm::APInt(floating.getWidth(), bits));
    bool lost;
    number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
    return number.convertToDouble();
  }
  unsigned width = type.getIntOrFloatBitWidth();
  return width == 1 ? double(bits & 1) : double(llvm::SignExtend64(bits, width));
}
inline unsigned bytesPer(mlir::Type element) { return (element.getIntOrFloatBitWidth() + 7) / 8; }

inline Storage pack(const Tensor &tensor, mlir::Type element) {
  unsigned size = bytesPer(element);
  Storage storage(tensor.data.size() * size);
  for (size_t i = 0; i < tensor.data.size(); ++i) {
    uint64_t bits = bitsOf(tensor.data[i], element);
    std::memcpy(storage.as<char>() + i * size, &bits, size);
  }
  return storage;
}
inline Tensor unpack(const Storage &storage, mlir::RankedTensorType type) {
  Tensor tensor{type.getShape().vec(), {}};
  unsigned size = bytesPer(type.getElementType());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, storage.as<char>() + i * size, size);
    tensor.data.push_back(fromBits(bits, type.getElementType()));
  }
  return tensor;
}

/// Each launch of a planned module for itself: what `plan` marks them with goes.
inline void withoutGroups(mlir::ModuleOp module) {
  module.walk([](LaunchOp launch) {
    launch->removeAttr("mpc.group");
    launch->removeAttr("mpc.placed");
  });
}

template <typename Backend> class RunnerOn {
public:
  /// `change` prepares the module.
  explicit RunnerOn(const std::string &text, const std::string &cpu = "native",
                    void (*change)(mlir::ModuleOp) = nullptr) {
    context.loadDialect<MpcDialect, mlir::arith::ArithDialect, mlir::math::MathDialect,
                        mlir::func::FuncDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      return;
    if (change)
      change(*module);
    backend = std::make_unique<Backend>();
    if (std::string problem = backend->compile(*module, cpu); !problem.empty()) {
      ADD_FAILURE() << problem;
      backend.reset();
    }
  }
  bool ok() const { return backend != nullptr; }
  mlir::func::FuncOp kernel(llvm::StringRef name = "") {
    for (auto function : module->getOps<mlir::func::FuncOp>())
      if (getKernelAttr(function) && (name.empty() || function.getName() == name))
        return function;
    return {};
  }

  /// Runs all functions of a kernel: on the CPU each over its whole range in `pieces` parts, the
  /// last part first.
  void run(mlir::func::FuncOp kernel, std::vector<void *> buffers, int pieces = 3) {
    std::string problem = backend->run(kernel, std::move(buffers), pieces);
    EXPECT_EQ(problem, "");
  }

  std::vector<Tensor> run(mlir::func::FuncOp kernel, const std::vector<Tensor> &arguments,
                          int pieces = 3) {
    std::vector<Storage> storage;
    std::vector<void *> buffers;
    for (auto [i, type] : llvm::enumerate(kernel.getArgumentTypes()))
      storage.push_back(pack(arguments[i], mlir::getElementTypeOrSelf(type)));
    auto aliases = getKernelAttr(kernel).getAliases().asArrayRef();
    for (auto [i, type] : llvm::enumerate(kernel.getResultTypes())) {
      auto tensor = mlir::cast<mlir::RankedTensorType>(type);
      storage.push_back(aliases[i] >= 0
                            ? storage[aliases[i]]
                            : Storage(tensor.getNumElements() * bytesPer(tensor.getElementType())));
    }
    for (const Storage &s : storage)
      buffers.push_back(s.data());
    run(kernel, buffers, pieces);
    std::vector<Tensor> results;
    for (auto [i, type] : llvm::enumerate(kernel.getResultTypes()))
      results.push_back(
          unpack(storage[arguments.size() + i], mlir::cast<mlir::RankedTensorType>(type)));
    return results;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<Backend> backend;
};

#ifdef MPC_TEST_ON_SIMULATOR
using KernelRunner = RunnerOn<SimulatorBackend>;
#else
using KernelRunner = RunnerOn<CpuBackend>;
#endif

/// Values for an argument: floats around zero, integers in [0, limit).
inline Tensor randomTensor(mlir::Type type, std::mt19937 &generator, int64_t limit = 3) {
  auto tensor = mlir::cast<mlir::RankedTensorType>(type);
  Tensor values{tensor.getShape().vec(), {}};
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < values.size(); ++i) {
    double x = mlir::isa<mlir::FloatType>(tensor.getElementType()) ? normal(generator)
               : tensor.getElementType().isInteger(1)              ? double(generator() & 1)
                                                                   : double(generator() % limit);
    values.data.push_back(roundTo(x, tensor.getElementType()));
  }
  return values;
}

/// Distance from 1 to the type's next number.
inline double epsilonOf(mlir::Type element) {
  return element.isF64()    ? 0x1p-52
         : element.isF16()  ? 0x1p-10
         : element.isBF16() ? 0x1p-7
                            : 0x1p-23;
}

#ifdef MPC_TEST_ON_SIMULATOR
inline double largestFinite(const Tensor &tensor) {
  double largest = 1;
  for (double x : tensor.data)
    largest = std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
  return largest;
}

/// Elements of the kernel's longest sum.
inline double longestSum(mlir::func::FuncOp kernel) {
  double summed = 0;
  for (ReduceOp reduce : kernel.getOps<ReduceOp>())
    summed = std::max(summed, double(elementsOf(tensorShape(reduce.getInput()))) /
                                  elementsOf(tensorShape(reduce.getResult())));
  return summed;
}

/// How far apart the CPU and a GPU may be: 4 units in the last place, and √n · ε for a sum of n.
inline void expectMatchesCpu(const std::string &text, const std::vector<Tensor> &arguments,
                             const std::vector<Tensor> &results) {
  RunnerOn<CpuBackend> cpu(text);
  ASSERT_TRUE(cpu.ok());
  mlir::func::FuncOp kernel = cpu.kernel();
  std::vector<Tensor> expected = cpu.run(kernel, arguments);
  for (size_t r = 0; r < expected.size(); ++r) {
    mlir::Type element = mlir::getElementTypeOrSelf(kernel.getResultTypes()[r]);
    double epsilon = epsilonOf(element);
    double ofSum = std::sqrt(longestSum(kernel)) * (element.isF64() ? 0x1p-52 : 0x1p-23) *
                   largestFinite(expected[r]);
    for (size_t i = 0, shown = 0; i < expected[r].data.size() && shown < 5; ++i) {
      double want = expected[r].data[i], got = results[r].data[i];
      double scale = std::max(std::abs(want), 0x1p-14); // f16's least normal number
      bool same = want == got || (std::isnan(want) && std::isnan(got)) ||
                  std::abs(want - got) <= 4 * epsilon * scale + ofSum;
      EXPECT_TRUE(same) << "result " << r << " element " << i << ": " << want << " on the CPU, "
                        << got << " on the GPU" << (++shown, "");
    }
  }
}
#endif

/// Compiles the text's kernel, runs it on random arguments and compares every result with the
/// reference. `limit`: integers are below it.
inline void expectMatchesReference(const std::string &text, int64_t limit = 3,
                                   double tolerance = 2e-6, const std::string &cpu = "native") {
  KernelRunner runner(text, cpu);
  ASSERT_TRUE(runner.ok());
  mlir::func::FuncOp kernel = runner.kernel();
  std::mt19937 generator(7);
  std::vector<Tensor> arguments;
  for (mlir::Type type : kernel.getArgumentTypes())
    arguments.push_back(randomTensor(type, generator, limit));
  std::vector<Tensor> expected = Reference().run(kernel, arguments);
  std::vector<Tensor> first = runner.run(kernel, arguments, 1),
                      split = runner.run(kernel, arguments, 3);
  for (size_t r = 0; r < expected.size(); ++r) {
    mlir::Type element = mlir::getElementTypeOrSelf(kernel.getResultTypes()[r]);
    double step = element.isF16() || element.isBF16() ? epsilonOf(element) : tolerance;
    ASSERT_EQ(expected[r].data.size(), first[r].data.size());
    int shown = 0;
    for (size_t i = 0; i < expected[r].data.size() && shown < 5; ++i) {
      double want = expected[r].data[i], got = first[r].data[i];
      bool same = std::isnan(want)
                      ? std::isnan(got)
                      : want == got || std::abs(want - got) <= step * std::max(1.0, std::abs(want));
      EXPECT_TRUE(same) << "result " << r << " element " << i << ": expected " << want << ", got "
                        << got << (++shown, "");
      // The same bits however the range is divided.
      EXPECT_EQ(bitsOf(got, element), bitsOf(split[r].data[i], element))
          << "result " << r << " element " << i;
    }
  }
#ifdef MPC_TEST_ON_SIMULATOR
  expectMatchesCpu(text, arguments, first);
#endif
}

} // namespace mpc::test

#endif // MPC_TEST_UNIT_KERNELRUNNER_H
