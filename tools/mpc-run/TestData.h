//===- TestData.h - ONNX backend-test folders ------------------------------------------------===//

#ifndef MPC_TOOLS_MPC_RUN_TESTDATA_H
#define MPC_TOOLS_MPC_RUN_TESTDATA_H

#include "runtime/data/Array.h"
#include <optional>
#include <string>
#include <vector>

namespace mpc {

/// A value of a test data set. `array` is absent for what is no tensor (sequences, optionals,
/// strings).
struct TestValue {
  std::string name;
  std::optional<Array> array;
};

struct TestSet {
  std::string folder;
  std::vector<TestValue> inputs, outputs;
};

/// The graph's inputs and outputs, in the order of the file; initializers are no inputs.
struct GraphNames {
  std::vector<std::string> inputs, outputs;
  std::vector<int> inputTypes,
      outputTypes;          ///< onnx::TensorProto element types; 0 for what is no tensor
  std::string trainingNode; ///< operator of a node in training mode; empty: none
};
GraphNames readGraphNames(const std::string &model);

/// The test_data_set_* of a folder in the ONNX backend-test form (input_*.pb, output_*.pb), sorted.
/// Throws Error for a folder or file that cannot be read.
std::vector<TestSet> readTestSets(const std::string &folder, const GraphNames &graph);

} // namespace mpc

#endif // MPC_TOOLS_MPC_RUN_TESTDATA_H
