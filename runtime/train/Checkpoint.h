//===- Checkpoint.h - a run on disk -----------------------------------------------------------===//
//
// One safetensors file: keys weight/NAME, statistic/NAME, optimizer/exp_avg/NAME…, so that no
// ONNX name collides with another; everything else that a run consists of as JSON in
// __metadata__; a hash over the whole file. See docs/trainer.md, "Checkpoints".
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_CHECKPOINT_H
#define MPC_RUNTIME_TRAIN_CHECKPOINT_H

#include "runtime/core/Device.h"
#include "runtime/core/Error.h"
#include "runtime/data/File.h"
#include "runtime/train/Hyperparameters.h"
#include <nlohmann/json.hpp>
#include <set>

namespace mpc {

class JsonValue;

/// All of a run but its tensors, between two optimizer steps.
struct RunState {
  // What the run is; a resumed run must agree.
  std::string precision, optimizer, loss_scale_mode;
  int64_t batch = 0, samples = 0;
  Hyperparameters hyper;
  int64_t steps = 0, epochs = 0; ///< the total asked for: one of them is 0

  // Where it is.
  int64_t step = 0;          ///< optimizer steps, skipped ones included
  int64_t epoch = 0;         ///< from 0
  int64_t position = 0;      ///< samples of this epoch that are done
  int64_t micro_batches = 0; ///< run so far, skipped steps' included
  int64_t applied_steps = 0;
  int64_t growth_tracker = 0;
  double loss_scale = 1;
  int64_t overflows = 0;                  ///< in a row that scaling cannot mend
  double epoch_loss = 0, epoch_count = 0; ///< Σ count·loss and Σ count of this epoch so far
  double best_loss = HUGE_VAL;            ///< of the validations so far
  int64_t validation_due = 0; ///< the epoch, from 1, whose validation a signal ended; 0: none

  TunedChoices tuned; ///< how the device is to compute (Device::useTuned())
};

/// The hyperparameters by option name ("lr", "clip-norm", …).
nlohmann::json toJson(const Hyperparameters &hyper);
nlohmann::json toJson(const RunState &state);
/// Throws JsonError where a field is missing, of another type, or has a value that no run writes.
RunState stateFromJson(const JsonValue &json);

/// Writes the device's parameters, statistics and optimizer states with `state` to `path`, under a
/// name of its own until complete. Throws Error (disk full): what was there before is kept.
void writeCheckpoint(const std::string &path, const Program &program, Device &device,
                     const RunState &state);

/// What a disk, or somebody, has done to a file: another one may serve.
struct DamagedCheckpoint : Error {
  using Error::Error;
};

/// A checkpoint that is whole.
class CheckpointFile {
public:
  struct Tensor {
    ElementType type;
    std::vector<int64_t> shape;
    const unsigned char *bytes;
    size_t size;
  };

  /// Maps and verifies: length, header, hash. Throws Error naming the file and what is wrong.
  explicit CheckpointFile(const std::string &path);
  const std::string &path() const { return name; }
  const RunState &state() const { return runState; }
  const Tensor *find(const std::string &key) const;
  /// The tensor's bytes in its program's type, converted between f32 and f64. Throws Error if the
  /// file lacks it or has another shape.
  std::vector<unsigned char> read(const TensorInfo &tensor) const;
  /// Throws Error where the file has a parameter that the program has not.
  void requireNoOther(const Program &program) const;

private:
  [[noreturn]] void damaged(const std::string &why) const;

  std::string name;
  MappedFile file;
  RunState runState;
  std::map<std::string, Tensor> tensors;
};

/// The key of a parameter, statistic or optimizer state.
std::string checkpointKey(const TensorInfo &tensor);

/// Parameters and statistics (and, where `optimizer`, optimizer states) from the file to the
/// device, half copies and working statistics included.
void loadCheckpoint(const CheckpointFile &file, const Program &program, Device &device,
                    bool optimizer);

/// The name under which a checkpoint is written, before it gets its own.
inline constexpr char kTemporaryCheckpoint[] = ".mpc-checkpoint.tmp";

/// The folder of a run: step-%08d.safetensors and best.safetensors.
class CheckpointFolder {
public:
  explicit CheckpointFolder(const std::string &path) : path(path) {}
  std::string stepPath(int64_t step) const;
  std::string bestPath() const { return path + "/best.safetensors"; }
  /// Steps that have a file, the newest first.
  std::vector<int64_t> steps() const;
  /// The newest whole one. Says on stderr which damaged ones were passed over. Throws Error if
  /// there is none.
  std::unique_ptr<CheckpointFile> newest();
  bool hasCheckpoints() const;
  /// A file of this name in the folder is the run's own, now or later.
  static bool isOwn(const std::string &name);
  /// The paths of all checkpoints; the best one's need not exist.
  std::vector<std::string> files() const;
  /// Keeps other trainers out, as long as this object lives. Throws Error where one is at work.
  /// Does nothing where there is no folder yet, or nobody may write into it.
  void lock();
  /// Removes a half-written file that a killed run left.
  void removeLeftover() const;
  void removeAll() const;
  /// Keeps the newest `count` of those up to the step that has just been written, less what
  /// newest() has passed over. It has passed over all later ones; they stay, for the disk may only
  /// have failed for the moment.
  void prune(int64_t count, int64_t written);

private:
  std::string path;
  std::shared_ptr<const int> held; ///< the lock file's descriptor, while locked
  std::set<int64_t> passedOver;    ///< steps whose file was not whole
};

/// A file, or the newest whole one of a folder.
std::unique_ptr<CheckpointFile> openCheckpoint(const std::string &path);

/// "warning: …" on stderr.
void warn(const std::string &message);

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_CHECKPOINT_H
