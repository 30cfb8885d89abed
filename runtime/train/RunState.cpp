//===- RunState.cpp - a run's numbers as JSON ----------------------------------------===//
//
// Numbers are written so that they come back bit for bit; an infinity (no clipping, no
// validation yet) is null.
//
//===----------------------------------------------------------------------------===//

#include "runtime/data/Json.h"
#include "runtime/train/Checkpoint.h"

using namespace mpc;
using nlohmann::json;

static json finiteOrNull(double value) { return std::isfinite(value) ? json(value) : json(); }

/// Infinity is written as null; a missing field is an error.
static double orInfinity(const JsonValue &object, const char *key) {
  if (!object.value.contains(key))
    object.fail(std::string("'") + key + "' is missing");
  return object.has(key) ? object[key].real() : HUGE_VAL;
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

static Hyperparameters hyperparametersFromJson(const JsonValue &j) {
  Hyperparameters h;
  h.lr = j["lr"].real();
  h.momentum = j["momentum"].real();
  h.beta1 = j["beta1"].real();
  h.beta2 = j["beta2"].real();
  h.eps = j["eps"].real();
  h.weight_decay = j["weight-decay"].real();
  h.no_decay = j["no-decay"].string();
  h.clip_norm = orInfinity(j, "clip-norm");
  h.schedule = j["schedule"].string();
  h.step_size = j["step-size"].integer();
  h.gamma = j["gamma"].real();
  h.final_lr = j["final-lr"].real();
  h.warmup = j["warmup"].integer();
  h.loss_scale_init = j["loss-scale-init"].real();
  h.growth_interval = j["growth-interval"].integer();
  h.growth_factor = j["growth-factor"].real();
  h.backoff_factor = j["backoff-factor"].real();
  h.accumulate = j["accumulate"].integer();
  h.seed = j["seed"].natural();
  h.shuffle = !j["no-shuffle"].boolean();
  h.drop_tail = j["drop-tail"].boolean();
  return h;
}

/// What no run writes. A file may have been made by hand, and its hash with it.
static void checkState(const RunState &s) {
  auto require = [](bool holds, const char *name) {
    if (!holds)
      throw JsonError(std::string("its state has a value of ") + quote(name) + " that no run has");
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

static TunedChoices tunedFromJson(const JsonValue &list) {
  TunedChoices choices;
  for (const JsonValue &each : list.list()) {
    TunedWays &ways = choices[{each["gpu"].string(), each["driver"].integer(),
                               each["library"].string(), each["version"].integer()}];
    for (const auto &[key, way] : each["ways"].members())
      ways[key] = way.string();
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

RunState mpc::stateFromJson(const JsonValue &j) {
  RunState s;
  s.precision = j["precision"].string();
  s.optimizer = j["optimizer"].string();
  s.loss_scale_mode = j["loss_scale_mode"].string();
  s.batch = j["batch"].integer();
  s.samples = j["samples"].integer();
  s.hyper = hyperparametersFromJson(j["hyperparameters"]);
  s.steps = j["steps"].integer();
  s.epochs = j["epochs"].integer();
  s.step = j["step"].integer();
  s.epoch = j["epoch"].integer();
  s.position = j["position"].integer();
  s.micro_batches = j["micro_batches"].integer();
  s.applied_steps = j["applied_steps"].integer();
  s.growth_tracker = j["growth_tracker"].integer();
  s.loss_scale = j["loss_scale"].real();
  s.overflows = j["overflows"].integer();
  s.epoch_loss = j["epoch_loss"].real();
  s.epoch_count = j["epoch_count"].real();
  s.best_loss = orInfinity(j, "best_loss");
  s.validation_due = j.number("validation_due", 0); // not in files of earlier versions
  if (j.has("tuned"))
    s.tuned = tunedFromJson(j["tuned"]);
  checkState(s);
  return s;
}
