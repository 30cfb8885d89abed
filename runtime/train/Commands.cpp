//===- Commands.cpp - the command line of a compiled trainer -------------------------===//

#include "runtime/core/Arguments.h"
#include "runtime/core/Error.h"
#include "runtime/train/CommandOptions.h"
#include "runtime/train/Eval.h"
#include "runtime/train/Export.h"
#include "runtime/train/Grad.h"
#include "runtime/train/Info.h"
#include "runtime/train/Predict.h"
#include "runtime/train/Trainer.h"
#include <csignal>

using namespace mpc;

namespace {

/// What every command takes.
struct Common {
  std::string checkpoint, device;
  int64_t threads = 0;

  void addTo(CLI::App &app) {
    addText(app, "--checkpoint", checkpoint,
            "weights to start from: a checkpoint, or a folder (its newest whole one)", "FILE")
        ->default_str("the weights in the program");
    addInteger(app, "--threads", threads, "CPU threads; 0: all cores", 0, 1024);
    addText(app, "--device", device, "device number, or sim for the simulator", "N|sim")
        ->default_str("0");
  }
};

/// NAME=FILE arguments, one per --input.
void addInputs(CLI::App &app, std::vector<std::string> &inputs) {
  app.add_option("--input", inputs, "values of an input; repeat it for each")
      ->type_name("NAME=FILE.npy")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

/// Escapes a file name for the grammar of data sets.
std::string escaped(const std::string &file) {
  std::string result;
  for (char c : file) {
    if (c == '\\' || c == ',' || c == ';')
      result += '\\';
    result += c;
  }
  return result;
}

void print(const std::string &text) {
  if (fputs(text.c_str(), stdout) < 0 || fflush(stdout) != 0)
    throw Error("cannot write to the standard output: " + std::string(strerror(errno)));
}

class Commands {
public:
  Commands(const Program &program, const DeviceFactory &makeDevice);
  int run(int argc, char **argv);

private:
  std::unique_ptr<Device> device() const;
  /// A device with the weights of --checkpoint or the program's own.
  std::unique_ptr<Device> loadedDevice(const char *command) const;
  int runTrain();
  int runEval();
  int runPredict();
  int runGrad();
  int runExport();
  int runInfo();

  const Program &program;
  const DeviceFactory &makeDevice;
  CLI::App app;
  CLI::App *train, *eval, *predict, *grad, *exporter, *info;
  Common common;
  std::unique_ptr<TrainCommand> trainCommand;
  std::string data, labels, output;
  std::vector<std::string> inputs;
  int64_t seed = 0;
  double lossScaleInit = Hyperparameters().loss_scale_init;
};

Commands::Commands(const Program &program, const DeviceFactory &makeDevice)
    : program(program), makeDevice(makeDevice),
      app("Trains " + program.model_name + " (" + program.precision + ", " + program.target +
          "), compiled by mpc " + program.compiler_version) {
  app.require_subcommand(1);
  app.failure_message(usageMessage(""));
  app.set_version_flag("--version",
                       "trainer of " + program.model_name + ", mpc " + program.compiler_version);
  train = app.add_subcommand("train", "train the model");
  eval = app.add_subcommand("eval", "mean loss over a data set, and accuracy for classes");
  predict = app.add_subcommand("predict", "outputs of the model in inference mode");
  grad = app.add_subcommand("grad", "loss and gradients of one batch; nothing is updated");
  exporter = app.add_subcommand("export", "the model with trained weights as ONNX");
  info = app.add_subcommand("info", "what this program is");
  for (CLI::App *command : {train, eval, predict, grad, exporter, info})
    common.addTo(*command);

  trainCommand = std::make_unique<TrainCommand>(*train, program);
  addText(*eval, "--data", data, "npy:…, idx:…, cifar10:… or folder:…, as for train", "DATASET")
      ->required();
  addInputs(*predict, inputs);
  addText(*predict, "-o,--output", output, "file to write, .npz for several outputs",
          "FILE.npy|FILE.npz")
      ->required();
  addInputs(*grad, inputs);
  addText(*grad, "--labels", labels, "labels of the batch", "FILE.npy")->default_str("");
  addText(*grad, "-o,--output", output, "file to write", "FILE.npz")->required();
  addInteger(*grad, "--seed", seed, "seed of dropout", 0, INT64_MAX);
  addReal(*grad, "--loss-scale-init", lossScaleInit, "first dynamic loss scale", 1, 0x1p127);
  addText(*exporter, "-o,--output", output, "file to write", "FILE.onnx")->required();
}

std::unique_ptr<Device> Commands::device() const {
  return makeDevice(program, common.device, static_cast<int>(common.threads));
}

std::unique_ptr<Device> Commands::loadedDevice(const char *command) const {
  requireWeights(program, !common.checkpoint.empty(), command);
  std::unique_ptr<CheckpointFile> file;
  if (!common.checkpoint.empty())
    file = openCheckpoint(common.checkpoint);
  std::unique_ptr<Device> result = device();
  if (file) {
    result->useTuned(file->state().tuned);
    loadCheckpoint(*file, program, *result, false);
  } else {
    result->weightsChanged();
  }
  return result;
}

int Commands::runTrain() {
  TrainOptions options = trainCommand->finish();
  options.checkpoint = common.checkpoint;
  requireWeights(program, options.resume || !common.checkpoint.empty(), "train");
  // A console that goes away (a pipe that is closed) ends no training.
  std::signal(SIGPIPE, SIG_IGN);
  return mpc::train(program, *device(), options);
}

int Commands::runEval() {
  requireEntry(program, "eval_step", "eval");
  DatasetSpec spec = parseDataset(data);
  std::unique_ptr<Device> loaded = loadedDevice("eval");
  Dataset set = Dataset::load(spec, program, inputsOf(program, {"eval_step"}), false);
  Evaluation evaluation = Evaluator(program, *loaded, set).run();
  const char *whose = common.checkpoint.empty() ? ", the program's own weights" : "";
  print(evaluationText(evaluation) + " (" + std::to_string(set.samples()) + " samples" + whose +
        ")\n");
  return 0;
}

int Commands::runPredict() {
  DatasetSpec spec = parseInputs(inputs);
  if (!output.ends_with(".npy") && !output.ends_with(".npz"))
    throw UsageError("-o: " + quote(output) + " must end in .npy or .npz");
  mpc::predict(program, *loadedDevice("predict"), spec, output);
  return 0;
}

int Commands::runGrad() {
  if (!labels.empty())
    inputs.push_back("labels=" + escaped(labels));
  DatasetSpec spec = parseInputs(inputs);
  if (!output.ends_with(".npz"))
    throw UsageError("-o: " + quote(output) + " must end in .npz: grad writes several arrays");
  if (grad->count("--loss-scale-init"))
    requireDynamicScale(program, "loss-scale-init");
  Hyperparameters hyper;
  hyper.loss_scale_init = lossScaleInit;
  double scale = initialLossScale(program, hyper);
  if (!common.checkpoint.empty() && program.loss_scale_mode == "dynamic" &&
      !grad->count("--loss-scale-init"))
    scale = openCheckpoint(common.checkpoint)->state().loss_scale;
  mpc::grad(program, *loadedDevice("grad"), spec, static_cast<uint64_t>(seed), scale, output);
  return 0;
}

int Commands::runExport() {
  requireWeights(program, !common.checkpoint.empty(), "export");
  std::unique_ptr<CheckpointFile> file;
  if (!common.checkpoint.empty())
    file = openCheckpoint(common.checkpoint);
  exportModel(program, file.get(), output);
  return 0;
}

int Commands::run(int argc, char **argv) {
  if (std::string empty = argumentWithoutValue(argc, argv); !empty.empty())
    throw UsageError(empty + ": a value is missing behind '='");
  auto isNamed = [&](const CLI::App *command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(isNamed).empty())
    throw UsageError("unknown command " + quote(argv[1]) +
                     "; there are train, eval, predict, grad, export and info");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (train->parsed())
    return runTrain();
  if (eval->parsed())
    return runEval();
  if (predict->parsed())
    return runPredict();
  if (grad->parsed())
    return runGrad();
  if (exporter->parsed())
    return runExport();
  return runInfo();
}

int Commands::runInfo() {
  std::string text = infoText(program);
  if (!common.checkpoint.empty())
    text += checkpointText(*openCheckpoint(common.checkpoint));
  print(text);
  return 0;
}

} // namespace

int mpc::runTrainer(int argc, char **argv, const Program &program,
                    const DeviceFactory &makeDevice) {
  try {
    return Commands(program, makeDevice).run(argc, argv);
  } catch (const UsageError &error) {
    fprintf(stderr, "error: %s\nRun with --help for the options.\n", error.what());
    return 2;
  } catch (const Error &error) {
    fprintf(stderr, "error: %s\n", error.what());
  } catch (const std::bad_alloc &) {
    fprintf(stderr, "error: out of memory\n");
  } catch (const std::exception &error) {
    fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
