//===- KernelRunner.h - compile a kernel from text and run it, for tests -----------------===//

#ifndef MPC_TEST_UNIT_KERNELRUNNER_H
#define MPC_TEST_UNIT_KERNELRUNNER_H

#include "compiler/codegen/Kernel.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cpu/Machine.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Target/TargetMachine.h"
#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include "TensorReference.h"

namespace mpc::test {

/// Storage of a tensor as a kernel sees it, 64-byte aligned.
class Storage {
public:
  Storage() = default;
  explicit Storage(size_t bytes, unsigned char fill = 0xcd)
      : bytes(bytes),
        memory(static_cast<char *>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), std::free) {
    std::memset(memory.get(), fill, (bytes + 127) / 64 * 64);
  }
  void *data() const { return memory.get(); }
  template <typename T> T *as() const { return reinterpret_cast<T *>(memory.get()); }
  size_t bytes = 0;

private:
  std::shared_ptr<char> memory;
};

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

class KernelRunner {
public:
  explicit KernelRunner(const std::string &text, const std::string &cpu = "native") {
    context.loadDialect<MpcDialect, mlir::arith::ArithDialect, mlir::math::MathDialect,
                        mlir::func::FuncDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      return;
    CpuTargetOptions options;
    options.cpu = cpu;
    llvm::LLVMContext llvmContext;
    auto native = compileKernels(*module, options, llvmContext);
    if (!native) {
      ADD_FAILURE() << llvm::toString(native.takeError());
      return;
    }
    auto machine = llvm::cantFail(createMachine(llvm::cantFail(describeCpu(cpu)), 3));
    llvm::SmallString<0> object;
    llvm::raw_svector_ostream stream(object);
    llvm::cantFail(writeNative(**native, *machine, false, stream));
    jit = llvm::cantFail(llvm::orc::LLJITBuilder().create());
    llvm::cantFail(jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object)));
  }
  bool ok() const { return jit != nullptr; }
  mlir::func::FuncOp kernel(llvm::StringRef name = "") {
    for (auto function : module->getOps<mlir::func::FuncOp>())
      if (getKernelAttr(function) && (name.empty() || function.getName() == name))
        return function;
    return {};
  }

  /// Runs all functions of a kernel, each over its whole range in `pieces` parts, the last part
  /// first.
  void run(mlir::func::FuncOp kernel, std::vector<void *> buffers, int pieces = 3) {
    Storage scratch(scratchBytes(kernel));
    if (scratch.bytes)
      buffers.push_back(scratch.data());
    for (const KernelFunction &function : kernelFunctions(kernel)) {
      auto address = llvm::cantFail(jit->lookup(function.name))
                         .toPtr<void (*)(int64_t, int64_t, void *const *)>();
      for (int piece = pieces; piece-- > 0;)
        address(function.extent * piece / pieces, function.extent * (piece + 1) / pieces,
                buffers.data());
    }
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
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

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
    double step = element.isF16() ? 0x1p-10 : element.isBF16() ? 0x1p-7 : tolerance;
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
}

} // namespace mpc::test

#endif // MPC_TEST_UNIT_KERNELRUNNER_H
