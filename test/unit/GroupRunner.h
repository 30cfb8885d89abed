//===- GroupRunner.h - groups of launches against their members alone, for tests ----------===//

#ifndef MPC_TEST_UNIT_GROUPRUNNER_H
#define MPC_TEST_UNIT_GROUPRUNNER_H

#include "KernelRunner.h"
#include "compiler/codegen/gpu/Uniform.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"
#include <map>

namespace mpc::test {

/// Runs every group of a planned module on random arguments, as a group and each launch for itself
/// (compiled from the module without its groups), and compares the bits of all results. Sums are
/// added in another order: what follows from one may be apart as far as its rounding goes.
class GroupRunner {
public:
  explicit GroupRunner(const std::string &text, const std::string &cpu = "native")
      : together(text, cpu), alone(text, cpu, withoutGroups) {
    if (!together.ok() || !alone.ok()) {
      problems.push_back("the module cannot be compiled");
      return;
    }
    gpu::GroupIndex index(*together.module);
    for (auto function : together.module->getOps<mlir::func::FuncOp>())
      function.walk([&](LaunchOp launch) {
        if (const gpu::Group *group = index.find(launch)) {
          ++groups;
          check(*group);
        }
      });
  }

  using Buffers = std::vector<Storage>;

  int groups = 0;
  std::vector<std::string> problems;
  /// What groups have computed: by a member's number of elements, the results of its kernel.
  /// Members of one size have equal arguments, in every group of every runner.
  std::map<int64_t, Buffers> results;

private:
  mlir::func::FuncOp kernelOf(LaunchOp launch) {
    return alone.module->lookupSymbol<mlir::func::FuncOp>(launch.getKernel());
  }

  /// Arguments that all members share are one.
  Buffers buffersOf(const gpu::Group &group, LaunchOp launch, const Buffers *first) {
    mlir::func::FuncOp kernel = kernelOf(launch);
    Buffers buffers;
    for (auto [i, type] : llvm::enumerate(kernel.getArgumentTypes())) {
      int64_t elements = mlir::cast<mlir::RankedTensorType>(type).getNumElements();
      std::mt19937 generator(static_cast<unsigned>(elements * 16 + i));
      buffers.push_back(
          first && llvm::is_contained(group.shared, i)
              ? (*first)[i]
              : pack(randomTensor(type, generator, 5), mlir::getElementTypeOrSelf(type)));
    }
    for (auto [i, type] : llvm::enumerate(kernel.getResultTypes())) {
      int64_t alias = getKernelAttr(kernel).getAliases()[i];
      auto tensor = mlir::cast<mlir::RankedTensorType>(type);
      buffers.push_back(alias >= 0
                            ? buffers[alias]
                            : Storage(tensor.getNumElements() * bytesPer(tensor.getElementType())));
    }
    if (group.layout.isChunked)
      buffers.push_back(Storage(gpu::memberScratchBytes(kernel)));
    return buffers;
  }

  static Buffers copyOf(const Buffers &buffers) {
    Buffers copies;
    for (const Storage &buffer : buffers) {
      copies.push_back(Storage(buffer.bytes));
      std::memcpy(copies.back().data(), buffer.data(), buffer.bytes);
    }
    return copies;
  }

  void check(const gpu::Group &group) {
    std::vector<Buffers> all, copies;
    for (LaunchOp launch : group.launches)
      all.push_back(buffersOf(group, launch, all.empty() ? nullptr : &all.front()));
    for (const Buffers &buffers : all)
      copies.push_back(copyOf(buffers));
    std::string name = mlir::func::FuncOp(group.kernel).getName().str();
    if (std::string problem = together.backend->run(group, all); !problem.empty()) {
      problems.push_back(problem);
      return;
    }
    for (auto [launch, buffers, copy] : llvm::zip_equal(group.launches, all, copies)) {
      mlir::func::FuncOp kernel = kernelOf(launch);
      unsigned arguments = kernel.getNumArguments();
      std::vector<void *> pointers;
      for (auto [i, alias] : llvm::enumerate(getKernelAttr(kernel).getAliases().asArrayRef()))
        if (alias >= 0)
          copy[arguments + i] = copy[alias];
      for (unsigned i = 0; i < arguments + kernel.getNumResults(); ++i)
        pointers.push_back(copy[i].data());
      if (std::string problem = alone.backend->run(kernel, pointers, 1); !problem.empty())
        problems.push_back(problem);
      for (auto [i, result] : llvm::enumerate(kernelResults(kernel)))
        compare(name + " of " + kernel.getName().str(),
                mlir::cast<mlir::RankedTensorType>(result.getType()), copy[arguments + i],
                buffers[arguments + i], isOfSum(result));
      results[elementsOf(getKernelAttr(kernel).getDomain().asArrayRef())].assign(
          buffers.begin() + arguments, buffers.begin() + arguments + kernel.getNumResults());
    }
  }

  /// True if the value follows from a sum or product of floats, whose order matters.
  static bool isOfSum(mlir::Value value) {
    llvm::SmallSetVector<mlir::Value, 16> found;
    found.insert(value);
    for (size_t i = 0; i < found.size(); ++i) {
      mlir::Operation *op = found[i].getDefiningOp();
      auto reduce = llvm::dyn_cast_or_null<ReduceOp>(op);
      if (reduce && mlir::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(reduce.getType())) &&
          llvm::is_contained({ReductionKind::sum, ReductionKind::product}, reduce.getKind()))
        return true;
      if (op)
        found.insert_range(op->getOperands());
    }
    return false;
  }

  void compare(const std::string &what, mlir::RankedTensorType type, const Storage &want,
               const Storage &got, bool isSum) {
    Tensor expected = unpack(want, type), found = unpack(got, type);
    for (int64_t i = 0; i < expected.size(); ++i) {
      double a = expected.data[i], b = found.data[i];
      bool isSame = bitsOf(a, type.getElementType()) == bitsOf(b, type.getElementType());
      double least = 64 * epsilonOf(type.getElementType());
      if (isSame || (isSum && std::abs(a - b) <= least * std::max(std::abs(a), 1.0)))
        continue;
      problems.push_back(what + ": element " + std::to_string(i) + " is " + std::to_string(b) +
                         ", alone " + std::to_string(a));
      return;
    }
  }

  RunnerOn<SimulatorBackend> together, alone;
};

} // namespace mpc::test

#endif // MPC_TEST_UNIT_GROUPRUNNER_H
