//===- main.cpp - mpc-run: compile in memory, run once ---------------------------------------===//
//
//   mpc-run MODEL.onnx --input NAME=FILE.npy … [-o OUT.npy|OUT.npz]
//   mpc-run --test-data DIR …           ONNX backend-test folders: compared, one line each
//
//===----------------------------------------------------------------------------------------===//

#include "TestData.h"
#include "compiler/driver/CrashGuard.h"
#include "compiler/driver/Version.h"
#include "runtime/core/Arguments.h"
#include "runtime/core/Error.h"
#include "runtime/data/DatasetSpec.h"
#include "runtime/data/Npy.h"
#include "tools/mpc-run/Inference.h"
#include "llvm/ADT/StringRef.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

using namespace mpc;

namespace {

/// A failure of the compiler that is about what it supports, not about the file.
struct Unsupported : Error {
  using Error::Error;
};

struct Options {
  CompileOptions compile;
  std::vector<std::string> inputs, folders, dims;
  std::string output;
  int threads = 0;
  double relative = 1e-3, absolute = 1e-5;
  bool verbose = false;
};

void writeInput(Inference &inference, const std::string &name, const Array &array) {
  const Program &program = inference.program();
  int index = program.find(Role::input, name);
  if (index < 0) // an input that the outputs do not depend on
    return;
  const TensorInfo &tensor = program.tensors[index];
  if (array.shape != tensor.shape)
    throw Error("input '" + name + "' has the shape " + shapeText(tensor.shape) + ", " +
                array.source + " has " + shapeText(array.shape));
  Array value = converted(array, tensor.type);
  std::vector<unsigned char> bytes(value.bytes, value.bytes + value.byteSize());
  inference.device().write(tensor, bytes.data());
}

Array readOutput(Inference &inference, const std::string &name) {
  const Program &program = inference.program();
  int index = program.find(Role::output, name);
  if (index < 0)
    throw Error("the program has no output '" + name + "'");
  const TensorInfo &tensor = program.tensors[index];
  std::vector<unsigned char> bytes(tensor.bytes());
  inference.device().read(tensor, bytes.data());
  return Array::make(fileTypeOf(tensor.type), tensor.shape, std::move(bytes), name);
}

std::unique_ptr<Inference> compiled(const Options &options, const std::string &model) {
  CompileOptions compile = options.compile;
  compile.model = model;
  compile.loss = "none";
  compile.stage = Stage::plan;
  CompileFailure failure;
  std::unique_ptr<Inference> inference;
  auto work = [&] {
    inference = Inference::compile(compile, options.threads, failure);
    return 0;
  };
  if (!runGuarded("mpc-run", model, work))
    throw Error("the compiler crashed");
  if (!inference) {
    if (failure.messages.empty())
      throw Error("cannot be compiled");
    failure.messages.pop_back(); // the last newline
    if (failure.unsupported)
      throw Unsupported(failure.messages);
    throw Error(failure.messages);
  }
  const Program &program = inference->program();
  if (int samples = program.find(Role::samples); samples >= 0)
    inference->device().write(program.tensors[samples], &program.batch);
  return inference;
}

/// Every --input is one of the model's, and none that the outputs depend on is missing.
void checkInputs(const GraphNames &graph, const Program &program, const DatasetSpec &spec) {
  std::set<std::string> given;
  for (const auto &[name, file] : spec.files) {
    given.insert(name);
    if (std::find(graph.inputs.begin(), graph.inputs.end(), name) != graph.inputs.end())
      continue;
    std::string known;
    for (const std::string &input : graph.inputs)
      known += (known.empty() ? "" : ", ") + input;
    throw Error("the model has no input '" + name + "'; it has " +
                (known.empty() ? "none" : known));
  }
  for (uint32_t index : program.all(Role::input))
    if (const TensorInfo &tensor = program.tensors[index]; !given.count(tensor.name))
      throw Error("no values for input '" + tensor.name + "' of shape " + shapeText(tensor.shape) +
                  ": give --input " + tensor.name + "=FILE.npy");
}

int runOnce(const Options &options) {
  DatasetSpec spec = parseInputs(options.inputs);
  if (spec.preprocessing.any())
    throw UsageError("--input: mpc-run takes the files' values as they are, without preprocessing");
  if (!options.output.empty() && !llvm::StringRef(options.output).ends_with(".npy") &&
      !llvm::StringRef(options.output).ends_with(".npz"))
    throw UsageError("-o: '" + options.output + "' must end in .npy or .npz");
  GraphNames graph = readGraphNames(options.compile.model);
  std::unique_ptr<Inference> inference = compiled(options, options.compile.model);
  checkInputs(graph, inference->program(), spec);
  for (const auto &[name, file] : spec.files)
    writeInput(*inference, name, readNpy(file));
  inference->device().run("predict");
  std::vector<NpyWriter::Item> items;
  std::vector<Array> outputs;
  for (const std::string &name : graph.outputs) {
    outputs.push_back(readOutput(*inference, name));
    const TensorInfo &tensor =
        inference->program().tensors[inference->program().find(Role::output, name)];
    items.push_back({name, tensor.type, tensor.shape});
  }
  if (options.output.empty()) {
    for (const Array &array : outputs) {
      std::printf("%s %s:", array.source.c_str(), shapeText(array.shape).c_str());
      for (int64_t i = 0; i < std::min<int64_t>(array.elements(), 16); ++i)
        std::printf(" %s", elementText(array, i).c_str());
      std::printf(array.elements() > 16 ? " …\n" : "\n");
    }
    return 0;
  }
  NpyWriter writer(options.output, items);
  for (size_t i = 0; i < outputs.size(); ++i)
    writer.append(i, outputs[i].bytes, outputs[i].elements());
  writer.commit();
  return 0;
}

/// Empty, or where the two differ by more than absolute + relative · |wanted|.
std::string difference(const Array &got, const Array &want, const Options &options) {
  bool isDouble = options.compile.precision == "fp64" && isFloat(want.type);
  if (got.type != (isDouble ? FileType::f64 : want.type))
    return std::string("holds ") + fileTypeName(got.type) + ", want " + fileTypeName(want.type);
  if (got.shape != want.shape)
    return "shape " + shapeText(got.shape) + ", want " + shapeText(want.shape);
  for (int64_t i = 0; i < want.elements(); ++i) {
    double a = elementAsDouble(got, i), b = elementAsDouble(want, i);
    bool same = std::isnan(b) ? std::isnan(a)
                              : a == b || std::abs(a - b) <=
                                              options.absolute + options.relative * std::abs(b);
    if (!same)
      return "element " + std::to_string(i) + " is " + elementText(got, i) + ", want " +
             elementText(want, i);
  }
  return "";
}

void testFolder(const Options &options, const std::string &folder) {
  GraphNames names = readGraphNames(folder + "/model.onnx");
  if (!names.trainingNode.empty())
    throw Unsupported("the " + names.trainingNode + " is in training mode, mpc-run runs inference");
  std::vector<TestSet> sets = readTestSets(folder, names);
  std::unique_ptr<Inference> inference = compiled(options, folder + "/model.onnx");
  for (const TestSet &set : sets) {
    for (size_t i = 0; i < set.inputs.size() && i < names.inputs.size(); ++i) {
      if (!set.inputs[i].array)
        throw Unsupported("input '" + names.inputs[i] + "' is no tensor of numbers");
      writeInput(*inference, names.inputs[i], *set.inputs[i].array);
    }
    if (set.outputs.empty())
      throw Error(set.folder + " holds no output_0.pb to compare with");
    inference->device().run("predict");
    for (size_t i = 0; i < set.outputs.size() && i < names.outputs.size(); ++i) {
      if (!set.outputs[i].array)
        throw Unsupported("output '" + names.outputs[i] + "' is no tensor of numbers");
      std::string problem =
          difference(readOutput(*inference, names.outputs[i]), *set.outputs[i].array, options);
      if (!problem.empty())
        throw Error("output '" + names.outputs[i] + "': " + problem);
    }
  }
}

int runTests(const Options &options) {
  int passed = 0, failed = 0, unsupported = 0;
  for (const std::string &folder : options.folders) {
    try {
      testFolder(options, folder);
      ++passed;
      if (options.verbose)
        std::printf("passed: %s\n", folder.c_str());
    } catch (const Unsupported &reason) {
      ++unsupported;
      if (options.verbose || options.folders.size() == 1)
        std::fprintf(stderr, "unsupported: %s: %s\n", folder.c_str(), reason.what());
    } catch (const std::exception &problem) {
      ++failed;
      std::fprintf(stderr, "failed: %s: %s\n", folder.c_str(), problem.what());
    }
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed, %d unsupported\n", passed, failed, unsupported);
  return failed || (options.folders.size() == 1 && unsupported) ? 1 : 0;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  options.compile.precision = "fp32";
  CLI::App app{"mpc-run compiles an ONNX model in memory and runs it once (inference)"};
  app.failure_message(usageMessage("mpc-run: "));
  app.name("mpc-run");
  app.set_version_flag("--version", MPC_VERSION_TEXT);
  app.option_defaults()->always_capture_default();
  app.add_option("MODEL", options.compile.model, "the model, an ONNX file");
  app.add_option("--input", options.inputs, "NAME=FILE.npy; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-o,--output", options.output,
                 "FILE.npy or FILE.npz; default: the first values are printed");
  app.add_option("--test-data", options.folders, "folders in the ONNX backend-test form")
      ->expected(1, 100000);
  app.add_option("--precision", options.compile.precision, "compute type")
      ->check(CLI::IsMember({"fp16", "bf16", "fp32", "fp64"}));
  int64_t batch = 0;
  auto *batchOption = app.add_option("--batch", batch, "value of the first dynamic dimension")
                          ->check(CLI::Range(int64_t(1), int64_t(1) << 31))
                          ->always_capture_default(false)
                          ->default_str("");
  app.add_option("--dim", options.dims, "NAME=N: value of a named dimension; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--threads", options.threads, "threads (0: all cores)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--rtol", options.relative, "relative tolerance of a comparison")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--atol", options.absolute, "absolute tolerance of a comparison")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("-v,--verbose", options.verbose, "a line for every folder");
  try {
    if (std::string empty = argumentWithoutValue(argc, argv); !empty.empty())
      throw CLI::ValidationError(empty, "a value is missing behind '='");
    app.parse(argc, argv);
    if (options.compile.model.empty() == options.folders.empty())
      throw CLI::ValidationError("give a model, or --test-data folders",
                                 CLI::ExitCodes::ValidationError);
    for (const std::string &text : options.dims)
      if (std::string problem = parseDim(text, options.compile.dims); !problem.empty())
        throw CLI::ValidationError(problem, CLI::ExitCodes::ValidationError);
  } catch (const CLI::ParseError &problem) {
    return app.exit(problem) == 0 ? 0 : 2;
  }
  if (batchOption->count())
    options.compile.batch = batch;
  try {
    return options.folders.empty() ? runOnce(options) : runTests(options);
  } catch (const UsageError &problem) {
    std::fprintf(stderr, "mpc-run: error: %s\nRun with --help for the options.\n", problem.what());
    return 2;
  } catch (const std::exception &problem) {
    std::fprintf(stderr, "mpc-run: error: %s\n", problem.what());
    return 1;
  }
}
