//===- Metrics.h - a line of JSON per step -------------------------------------------===//

#ifndef MPC_RUNTIME_TRAIN_METRICS_H
#define MPC_RUNTIME_TRAIN_METRICS_H

#include <cstdint>
#include <cstdio>
#include <string>

namespace mpc {

/// One JSON object, built field by field. Numbers are the shortest text that reads back as the
/// same double; what is not finite becomes null.
class JsonLine {
public:
  explicit JsonLine(const char *event);
  JsonLine &add(const char *key, double value);
  JsonLine &add(const char *key, int64_t value);
  JsonLine &add(const char *key, bool value);
  JsonLine &add(const char *key, const char *word);        ///< a word without special characters
  JsonLine &add(const char *key, const std::string &text); ///< any text
  const std::string &finish();

private:
  void key(const char *name);
  std::string text;
};

/// The file of --metrics. Buffered: lines reach the disk at evaluations, checkpoints, every
/// second, and at the end. Where that fails nothing more is written, and failure() says why: the
/// run can still save its weights.
class Metrics {
public:
  Metrics() = default;
  ~Metrics();
  Metrics(const Metrics &) = delete;
  Metrics &operator=(const Metrics &) = delete;

  /// Starts a file anew, or, when a run is resumed at step `resumedAt` > 0, keeps its lines up to
  /// that step; without that step's evaluation if the run `evaluates` first. Throws Error naming
  /// the file.
  void open(const std::string &path, int64_t resumedAt, bool evaluates = false);
  bool enabled() const { return file != nullptr; }
  void write(JsonLine &line);
  void flush();
  void close();
  /// Empty, or what went wrong, with the file's name.
  const std::string &failure() const { return problem; }

private:
  void check(bool isWritten);

  std::string path, problem;
  FILE *file = nullptr;
};

} // namespace mpc

#endif // MPC_RUNTIME_TRAIN_METRICS_H
