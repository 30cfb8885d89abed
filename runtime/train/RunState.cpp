//===- RunState.cpp - a run's numbers as JSON ----------------------------------------===//
//
// Numbers are written so that they come back bit for bit; an infinity (no clipping, no
// validation yet) is null.
//
//===----------------------------------------------------------------------------===//

#include "runtime/core/Error.h"
#include "runtime/train/Checkpoint.h"

using namespace mpc;
using nlohmann::json;

static json finiteOrNull(double value) { return std::isfinite(value) ? json(value) : json(); }

static double orInfinity(const json &value) {
  return value.is_null() ? HUGE_VAL : value.get<double>();
}

json mpc::toJson(const Hyperparameters &h) {
  return {{"lr", h.lr},
          {"momentum", h.momentum},
          {"beta1", h.beta1},
          {"beta2", h.beta2},
          {"eps", h.eps},
          {"weight-decay", h.weight_decay},
          {"no-decay", h.no_decay},
          {"clip-norm", finiteOrNull(h.clip_norm)},
          {"schedule", h.schedule},
          {"step-size", h.step_size},
          {"gamma", h.gamma},
          {"final-lr", h.final_lr},
          {"warmup", h.warmup},
          {"loss-scale-init", h.loss_scale_init},
          {"growth-interval", h.growth_interval},
          {"growth-factor", h.growth_factor},
          {"backoff-factor", h.backoff_factor},
          {"accumulate", h.accumulate},
          {"seed", h.seed},
          {"no-shuffle", !h.shuffle},
          {"drop-tail", h.drop_tail}};
}

static Hyperparameters hyperparametersFromJson(const json &j) {
  Hyperparameters h;
  h.lr = j.at("lr").get<double>();
  h.momentum = j.at("momentum").get<double>();
  h.beta1 = j.at("beta1").get<double>();
  h.beta2 = j.at("beta2").get<double>();
  h.eps = j.at("eps").get<double>();
  h.weight_decay = j.at("weight-decay").get<double>();
  h.no_decay = j.at("no-decay").get<std::string>();
  h.clip_norm = orInfinity(j.at("clip-norm"));
  h.schedule = j.at("schedule").get<std::string>();
  h.step_size = j.at("step-size").get<int64_t>();
  h.gamma = j.at("gamma").get<double>();
  h.final_lr = j.at("final-lr").get<double>();
  h.warmup = j.at("warmup").get<int64_t>();
  h.loss_scale_init = j.at("loss-scale-init").get<double>();
  h.growth_interval = j.at("growth-interval").get<int64_t>();
  h.growth_factor = j.at("growth-factor").get<double>();
  h.backoff_factor = j.at("backoff-factor").get<double>();
  h.accumulate = j.at("accumulate").get<int64_t>();
  h.seed = j.at("seed").get<uint64_t>();
  h.shuffle = !j.at("no-shuffle").get<bool>();
  h.drop_tail = j.at("drop-tail").get<bool>();
  return h;
}

/// What no run writes. A file may have been made by hand, and its hash with it.
static void checkState(const RunState &s) {
  auto require = [](bool holds, const char *name) {
    if (!holds)
      throw Error(std::string("its state has a value of ") + quote(name) + " that no run has");
  };
  const Hyperparameters &h = s.hyper;
  bool known = h.schedule == "constant" || h.schedule == "step" || h.schedule == "linear" ||
               h.schedule == "cosine";
  require(known, "schedule");
  require(h.schedule != "step" || h.step_size > 0, "step-size");
  require(h.warmup >= 0, "warmup");
  require(h.accumulate >= 1 && h.accumulate <= kMostMicroBatches, "accumulate");
  require(h.growth_interval >= 1 && h.growth_interval <= INT32_MAX, "growth-interval");
  require(s.steps >= 0 && s.epochs >= 0 && (s.steps == 0) != (s.epochs == 0), "steps");
  require(s.batch > 0, "batch");
  require(s.samples > 0, "samples");
  require(s.step >= 0, "step");
  require(s.epoch >= 0, "epoch");
  require(s.position >= 0 && s.position <= s.samples, "position");
  require(s.validation_due >= 0, "validation_due");
  require(s.micro_batches >= 0, "micro_batches");
  require(s.applied_steps >= 0 && s.applied_steps <= s.step, "applied_steps");
  require(s.growth_tracker >= 0 && s.growth_tracker <= INT32_MAX, "growth_tracker");
  require(s.loss_scale > 0 && s.loss_scale <= 0x1p127, "loss_scale");
  for (const auto &[where, ways] : s.tuned)
    require(where.driver >= 0 && where.version >= 0, "tuned");
}

static json tunedToJson(const TunedChoices &choices) {
  json list = json::array();
  for (const auto &[where, ways] : choices)
    list.push_back({{"gpu", where.gpu},
                    {"driver", where.driver},
                    {"library", where.library},
                    {"version", where.version},
                    {"ways", ways}});
  return list;
}

static TunedChoices tunedFromJson(const json &list) {
  TunedChoices choices;
  for (const json &each : list) {
    TunedFor where{each.at("gpu").get<std::string>(), each.at("driver").get<int64_t>(),
                   each.at("library").get<std::string>(), each.at("version").get<int64_t>()};
    choices[where] = each.at("ways").get<TunedWays>();
  }
  return choices;
}

json mpc::toJson(const RunState &s) {
  json j{{"precision", s.precision},
         {"optimizer", s.optimizer},
         {"loss_scale_mode", s.loss_scale_mode},
         {"batch", s.batch},
         {"samples", s.samples},
         {"hyperparameters", toJson(s.hyper)},
         {"steps", s.steps},
         {"epochs", s.epochs},
         {"step", s.step},
         {"epoch", s.epoch},
         {"position", s.position},
         {"micro_batches", s.micro_batches},
         {"applied_steps", s.applied_steps},
         {"growth_tracker", s.growth_tracker},
         {"loss_scale", s.loss_scale},
         {"overflows", s.overflows},
         {"epoch_loss", s.epoch_loss},
         {"epoch_count", s.epoch_count},
         {"best_loss", finiteOrNull(s.best_loss)},
         {"validation_due", s.validation_due}};
  if (!s.tuned.empty())
    j["tuned"] = tunedToJson(s.tuned);
  return j;
}

RunState mpc::stateFromJson(const json &j) {
  RunState s;
  s.precision = j.at("precision").get<std::string>();
  s.optimizer = j.at("optimizer").get<std::string>();
  s.loss_scale_mode = j.at("loss_scale_mode").get<std::string>();
  s.batch = j.at("batch").get<int64_t>();
  s.samples = j.at("samples").get<int64_t>();
  s.hyper = hyperparametersFromJson(j.at("hyperparameters"));
  s.steps = j.at("steps").get<int64_t>();
  s.epochs = j.at("epochs").get<int64_t>();
  s.step = j.at("step").get<int64_t>();
  s.epoch = j.at("epoch").get<int64_t>();
  s.position = j.at("position").get<int64_t>();
  s.micro_batches = j.at("micro_batches").get<int64_t>();
  s.applied_steps = j.at("applied_steps").get<int64_t>();
  s.growth_tracker = j.at("growth_tracker").get<int64_t>();
  s.loss_scale = j.at("loss_scale").get<double>();
  s.overflows = j.at("overflows").get<int64_t>();
  s.epoch_loss = j.at("epoch_loss").get<double>();
  s.epoch_count = j.at("epoch_count").get<double>();
  s.best_loss = orInfinity(j.at("best_loss"));
  s.validation_due = j.value("validation_due", int64_t(0)); // not in files of earlier versions
  if (j.contains("tuned"))
    s.tuned = tunedFromJson(j.at("tuned"));
  checkState(s);
  return s;
}
