//===- State.cpp - the tensors that the host and a program share ------------------------------===//

#include "runtime/train/State.h"
#include "runtime/core/Error.h"
#include "runtime/core/RegexCheck.h"
#include "runtime/data/Array.h"
#include "runtime/data/File.h"
#include <cstdlib>
#include <cstring>

using namespace mpc;

Scalar::Scalar(const Program &program, Device &device, Role role) : device(&device) {
  int index = program.find(role);
  if (index >= 0)
    tensor = &program.tensors[static_cast<size_t>(index)];
  if (tensor && tensor->bytes() > 8)
    throw Error("compiled program: " + quote(tensor->name) + " should be a scalar");
}

void Scalar::read(uint64_t mark, void *to) const {
  if (mark)
    device->readMarked(mark, *tensor, to);
  else
    device->read(*tensor, to);
}

double Scalar::real(double absent, uint64_t mark) const {
  if (!tensor)
    return absent;
  unsigned char bytes[8];
  read(mark, bytes);
  if (tensor->type == ElementType::f32) {
    float value;
    memcpy(&value, bytes, sizeof value);
    return static_cast<double>(value);
  }
  double value;
  convertReals(tensor->type, bytes, ElementType::f64, &value, 1);
  return value;
}

int64_t Scalar::integer(int64_t absent, uint64_t mark) const {
  if (!tensor)
    return absent;
  unsigned char bytes[8];
  read(mark, bytes);
  int64_t wide;
  int32_t narrow;
  switch (tensor->bytes()) {
  case 8:
    memcpy(&wide, bytes, 8);
    return wide;
  case 4:
    memcpy(&narrow, bytes, 4);
    return narrow;
  default:
    return bytes[0];
  }
}

void Scalar::setReal(double value) {
  if (!tensor)
    return;
  unsigned char bytes[8];
  convertReals(ElementType::f64, &value, tensor->type, bytes, 1);
  device->write(*tensor, bytes);
}

void Scalar::setInteger(int64_t value) {
  if (!tensor)
    return;
  int32_t narrow = static_cast<int32_t>(value);
  unsigned char byte = static_cast<unsigned char>(value);
  switch (tensor->bytes()) {
  case 8:
    device->write(*tensor, &value);
    break;
  case 4:
    device->write(*tensor, &narrow);
    break;
  default:
    device->write(*tensor, &byte);
  }
}

static void writeReals(Device &device, const TensorInfo &tensor, std::vector<double> values) {
  values.resize(static_cast<size_t>(tensor.elements()));
  std::vector<unsigned char> bytes(tensor.bytes());
  convertReals(ElementType::f64, values.data(), tensor.type, bytes.data(), values.size());
  device.write(tensor, bytes.data());
}

void mpc::writeHyperparameters(const Program &program, Device &device,
                               const Hyperparameters &hyper) {
  bool adam = program.optimizer.starts_with("adam");
  bool dynamic = program.loss_scale_mode == "dynamic";
  int index = program.find(Role::hyper);
  if (index >= 0)
    writeReals(device, program.tensors[static_cast<size_t>(index)],
               {adam ? hyper.beta1 : hyper.momentum, hyper.beta2, hyper.eps, hyper.clip_norm,
                static_cast<double>(hyper.growth_interval), dynamic ? hyper.growth_factor : 1,
                dynamic ? hyper.backoff_factor : 1, 1 - hyper.beta2});
  // "^" would match every name: no expression means no exception.
  std::unique_ptr<Regex> exempt;
  if (!hyper.no_decay.empty())
    exempt = std::make_unique<Regex>("--no-decay", hyper.no_decay);
  for (uint32_t i : program.all(Role::weight_decay)) {
    const TensorInfo &tensor = program.tensors[i];
    bool none = exempt && exempt->matches(tensor.name);
    writeReals(device, tensor, {none ? 0 : hyper.weight_decay});
  }
}

void mpc::resetWorkingStatistics(const Program &program, Device &device) {
  std::vector<unsigned char> bytes;
  for (uint32_t i : program.all(Role::working_statistic)) {
    const TensorInfo &working = program.tensors[i];
    int committed = program.find(Role::statistic, working.name);
    if (committed < 0)
      throw Error("compiled program: the statistic " + quote(working.name) + " is missing");
    bytes.resize(working.bytes());
    device.read(program.tensors[static_cast<size_t>(committed)], bytes.data());
    device.write(working, bytes.data());
  }
}

double mpc::initialLossScale(const Program &program, const Hyperparameters &hyper) {
  if (program.loss_scale_mode == "dynamic")
    return hyper.loss_scale_init;
  if (program.loss_scale_mode.empty() || program.loss_scale_mode == "none")
    return 1;
  return strtod(program.loss_scale_mode.c_str(), nullptr);
}

Regex::Regex(const std::string &option, const std::string &pattern) {
  if (std::string why = regexProblem(pattern); !why.empty())
    throw UsageError(option + ": " + quote(pattern) + " is no regular expression: " + why);
  auto made = std::make_unique<regex_t>();
  if (regcomp(made.get(), pattern.c_str(), REG_EXTENDED | REG_NOSUB) != 0)
    throw Error("not enough memory for " + option + " " + quote(pattern));
  compiled = made.release();
}

Regex::~Regex() {
  regfree(static_cast<regex_t *>(compiled));
  delete static_cast<regex_t *>(compiled);
}

bool Regex::matches(const std::string &text) const {
  return regexec(static_cast<regex_t *>(compiled), text.c_str(), 0, nullptr, 0) == 0;
}

void mpc::requireEntry(const Program &program, const std::string &entry,
                       const std::string &command) {
  if (program.entries.count(entry))
    return;
  throw Error(command + ": this program was compiled without " + quote(entry) +
              (program.loss.empty() || program.loss == "none"
                   ? " (--loss=none: it has predict, export and info only); compile the model "
                     "with a loss"
                   : ""));
}
