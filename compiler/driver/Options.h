//===- Options.h - the command line of mpc ----------------------------------------===//

#ifndef MPC_DRIVER_OPTIONS_H
#define MPC_DRIVER_OPTIONS_H

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mpc {

/// Where compilation stops, in pipeline order.
enum class Stage {
  onnx,
  core,
  loss,
  precision,
  grad,
  train,
  plan,
  llvm,
  assembly,
  ptx,
  object,
  executable
};

struct CompileOptions {
  std::string model;  ///< path of the .onnx file
  std::string output; ///< empty: stdout for text, the model's name without .onnx for programs
  std::string loss = "cross-entropy", lossInput;
  std::optional<int64_t> classAxis;
  int64_t ignoreIndex = -100;
  std::string optimizer = "adamw", precision = "fp16";
  std::string lossScale; ///< empty: dynamic for fp16, none otherwise
  std::vector<std::string> keepFp32, allowHalf;
  std::string target = "cpu", cpu = "native"; ///< target: cpu or cuda
  std::vector<unsigned> architectures;        ///< of --target=cuda: NN of sm_NN, ascending
  std::optional<int64_t> batch;
  std::map<std::string, int64_t> dims;
  std::string trainRegex, freezeRegex;
  Stage stage = Stage::executable;
  std::vector<std::string> reports;
  std::string bundle;
  bool externalWeights = false, listOps = false;
  bool simulate = false; ///< of --target=cuda: the kernels for the simulator, too

  std::string resolvedLossScale() const {
    return !lossScale.empty() ? lossScale : precision == "fp16" ? "dynamic" : "none";
  }
};

/// --dim NAME=N into `dims`; the name may hold '=' itself, the last one counts. Returns what is
/// wrong, or nothing.
std::string parseDim(const std::string &text, std::map<std::string, int64_t> &dims);

/// --target into `options`; returns what is wrong with it or with its combination with other
/// options, or nothing.
std::string parseTarget(const std::string &text, CompileOptions &options);

/// Parses argv. Returns the exit code where the program is to end now (help, version, wrong usage:
/// 2), else nullopt.
std::optional<int> parseOptions(int argc, char **argv, CompileOptions &options);

} // namespace mpc

#endif // MPC_DRIVER_OPTIONS_H
