//===- ProductRunner.h - generated products on the simulator, for tests -------------------===//

#ifndef MPC_TEST_UNIT_PRODUCTRUNNER_H
#define MPC_TEST_UNIT_PRODUCTRUNNER_H

#include "KernelRunner.h"
#include "ProductReference.h"

namespace mpc::test {

/// The result of a library command by its generated functions; empty where they fail (reported).
inline Tensor runProduct(SimulatorBackend &backend, mlir::Operation *command,
                         const std::vector<Tensor> &arguments) {
  std::vector<Storage> storage;
  for (auto [argument, type] : llvm::zip(arguments, command->getOperandTypes()))
    storage.push_back(pack(argument, mlir::getElementTypeOrSelf(type)));
  auto type = mlir::cast<mlir::RankedTensorType>(command->getResult(0).getType());
  storage.emplace_back(type.getNumElements() * bytesPer(type.getElementType()));
  Storage result = storage.back();
  if (int64_t scratch = gpu::productScratchBytes(command))
    storage.emplace_back(scratch);
  llvm::SmallVector<gpu::Function> functions;
  llvm::copy_if(gpu::productFunctions(command), std::back_inserter(functions),
                [](const gpu::Function &function) { return !function.afterLibrary; });
  std::string problem = backend.launch(functions, storage);
  EXPECT_EQ(problem, "");
  return problem.empty() ? unpack(result, type) : Tensor{};
}

/// What is wrong with a generated product, on random arguments: empty, or the first element that
/// differs from the definition by more than a sum in f32 may, and then four units in the last place
/// of the result's type.
inline std::string checkProduct(SimulatorBackend &backend, mlir::Operation *command) {
  std::mt19937 generator(13);
  std::vector<Tensor> arguments;
  for (mlir::Type type : command->getOperandTypes())
    arguments.push_back(randomTensor(type, generator));
  ProductValues expected = ProductReference::run(command, arguments);
  Tensor got = runProduct(backend, command, arguments);
  if (got.data.size() != expected.result.data.size())
    return "it did not run";
  mlir::Type type = mlir::getElementTypeOrSelf(command->getResult(0).getType());
  double ofSum = type.isF64() ? 0x1p-52 : 0x1p-23;
  for (size_t i = 0; i < got.data.size(); ++i) {
    double want = expected.result.data[i];
    double tolerance =
        4 * epsilonOf(type) * std::max(std::abs(want), 0x1p-14) + ofSum * expected.spread.data[i];
    if (!(std::abs(got.data[i] - want) <= tolerance))
      return "element " + std::to_string(i) + " is " + std::to_string(got.data[i]) + ", not " +
             std::to_string(want);
  }
  return "";
}

} // namespace mpc::test

#endif // MPC_TEST_UNIT_PRODUCTRUNNER_H
