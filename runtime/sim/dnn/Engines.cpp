//===- Engines.cpp - what executes a graph in the simulated cuDNN -------------------------===//
//
// Each is like some of the real library's. What built-in engines take is what its heuristics, which
// can be asked without a GPU, offer engines for. Engines whose notes say that they compute
// otherwise than asked really do, and come first; two make no plan for some graphs, so that callers
// have to go on to the next.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/dnn/Engines.h"
#include <algorithm>
#include <limits>

namespace mpc::sim::dnn {

namespace {
//===- Properties of a convolution --------------------------------------------------------===//

cudnnDataType_t operandType(const Problem &p) { return p.operands().front()->dataType; }
bool isHalf(const Problem &p) { return operandType(p) != CUDNN_DATA_FLOAT; }

/// Extents of 1 have no order. `from`: dimensions, the innermost first.
bool isOrdered(const Tensor &t, const std::vector<size_t> &from) {
  int64_t least = 1;
  bool isFirst = true;
  for (size_t d : from) {
    if (t.extents[d] == 1)
      continue;
    if (isFirst ? t.strides[d] != 1 : t.strides[d] < least)
      return false;
    isFirst = false;
    least = t.strides[d] * t.extents[d];
  }
  return true;
}

/// [N, spatial..., C], of a filter [K, spatial..., C].
bool isChannelsLast(const Tensor &t) {
  std::vector<size_t> order{1};
  for (size_t d = t.extents.size() - 1; d >= 2; --d)
    order.push_back(d);
  order.push_back(0);
  return isOrdered(t, order);
}
bool isChannelsFirst(const Tensor &t) {
  std::vector<size_t> order;
  for (size_t d = t.extents.size(); d-- > 0;)
    order.push_back(d);
  return isOrdered(t, order);
}

template <typename Check> bool areAllTensors(const Problem &p, Check check) {
  return check(p.x) && check(p.w) && check(p.y) && check(p.result);
}
bool areChannelsLast(const Problem &p) { return areAllTensors(p, isChannelsLast); }

/// What all engines need: one type of operands, that the device knows, and tensors of fewer than
/// 2^31 elements.
bool isUsual(const Problem &p, int capability) {
  std::vector<const Tensor *> operands = p.operands();
  return operands[1]->dataType == operands[0]->dataType &&
         (capability >= 80 || operands[0]->dataType != CUDNN_DATA_BFLOAT16) &&
         areAllTensors(
             p, [](const Tensor &t) { return t.span() <= std::numeric_limits<int32_t>::max(); });
}

/// What engines that are part of the library take: convolutions, alone or with a bias (and relu),
/// of one type throughout; channels first or last, in any mixture.
bool isBuiltIn(const Problem &p, int capability) {
  bool isPattern = p.bias ? p.bias->dataType == p.result.dataType : !p.hasRelu && !p.hasIdentity;
  return isUsual(p, capability) && isPattern && p.result.dataType == operandType(p) &&
         areAllTensors(p, [](const Tensor &t) { return isChannelsLast(t) || isChannelsFirst(t); });
}

/// What engines take that are compiled for a graph: any of the patterns, channels last, also in the
/// filter, and in one group.
bool isCompilable(const Problem &p, int capability) {
  return isUsual(p, capability) && capability >= 75 && areChannelsLast(p) && p.groups == 1 &&
         (p.result.dataType == operandType(p) || p.hasIdentity || p.hasRelu || p.bias);
}

/// 16 bytes at a time.
bool isAligned(const Problem &p) {
  bool isAligned = p.result.alignment % 16 == 0;
  for (const Tensor *each : p.operands())
    isAligned &= each->alignment % 16 == 0;
  return isAligned;
}
bool areChannelsWide(const Problem &p, int64_t factor) {
  return p.w.extents[1] % factor == 0 && p.w.extents[0] / p.groups % factor == 0;
}

bool areAll(const std::vector<int64_t> &list, int64_t value) {
  return std::all_of(list.begin(), list.end(), [&](int64_t each) { return each == value; });
}

//===- Properties of attention ------------------------------------------------------------===//

/// Halves of one type, also the weights but for the gradient's; channels in multiples of 8, no more
/// than 256. Gradients but for sm_90 no more than 128, and no bias that is the same for all keys;
/// no gradient of a single key.
bool isAttention(const Problem &p, int capability) {
  const Fused &f = *p.fused;
  const cudnnDataType_t half = f.steps.front().x.dataType;
  const int64_t keys = f.scores.extents[3];
  const bool isNarrow = f.isGradient && capability / 10 != 9;
  bool fits = capability >= 80 && half != CUDNN_DATA_FLOAT && !(f.isGradient && keys == 1);
  for (const Step &s : f.steps) {
    if (s.kind == Step::Kind::multiply)
      for (const Tensor *each : {&s.x, &*s.b})
        fits &= each->dataType == half || (each->isVirtual && f.isGradient);
    else if (s.mode == CUDNN_POINTWISE_ADD && !s.b->isVirtual)
      fits &= !isNarrow || s.b->extents[3] == keys;
  }
  for (int64_t channels : f.channels)
    fits &= channels % 8 == 0 && channels <= (isNarrow ? 128 : 256);
  return fits;
}

cudnnDataType_t weightType(const Problem &p) { return p.fused->steps.front().x.dataType; }
int64_t storedScores(const Problem &p) { return p.fused->isGradient ? 1 : 0; }

//===- Engines ----------------------------------------------------------------------------===//

Arithmetic exact(const Problem &) { return {}; }
int64_t noParts(const Problem &) { return 0; }

const Engine kEngines[] = {
    {.name = "generic",
     .timed = "cudnn-generic",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP},
     .isOffered = isBuiltIn,
     .arithmetic = exact,
     .parts = noParts,
     .tile = 32},
    {.name = "tensor cores",
     .timed = "cudnn-tensor-cores",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     .isOffered =
         [](const Problem &p, int capability) {
           return isHalf(p) && isBuiltIn(p, capability) && capability >= 70 && isAligned(p) &&
                  areChannelsWide(p, 8);
         },
     .arithmetic = exact,
     .parts = [](const Problem &p) -> int64_t {
       return p.kind == Kind::backwardFilter ? 8 : areChannelsLast(p) ? 0 : 1;
     },
     .isSymmetric = true},
    {.name = "tensor cores, compiled when the plan is made",
     .timed = "cudnn-compiled",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     .behaviorNotes = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION,
                       CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API},
     .isOffered =
         [](const Problem &p, int capability) {
           return isHalf(p) && isCompilable(p, capability) && isAligned(p);
         },
     .arithmetic = exact,
     .parts = noParts,
     .channels = 2},
    {.name = "TF32",
     .timed = "cudnn-tf32",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     .isOffered =
         [](const Problem &p, int capability) {
           return !isHalf(p) && capability >= 80 &&
                  (isBuiltIn(p, capability) || isCompilable(p, capability));
         },
     .arithmetic = [](const Problem &) { return Arithmetic{.operandBits = 10}; },
     .parts = noParts},
    {.name = "operands as bfloat16",
     .timed = "cudnn-bfloat16",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS},
     .isOffered = [](const Problem &p,
                     int capability) { return !isHalf(p) && isBuiltIn(p, capability); },
     .arithmetic = [](const Problem &) { return Arithmetic{.operandBits = 7}; },
     .parts = noParts},
    {.name = "sums in half precision",
     .timed = "cudnn-half-sums",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                        CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION},
     .isOffered =
         [](const Problem &p, int capability) {
           return isHalf(p) && (isBuiltIn(p, capability) || isCompilable(p, capability));
         },
     .arithmetic =
         [](const Problem &p) {
           return Arithmetic{.partDepth = 16, .part = numberOf(*p.operands().front())};
         },
     .parts = noParts},
    {.name = "sums in the result, in any order",
     .timed = "cudnn-unordered",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
     .isOffered =
         [](const Problem &p, int capability) {
           return p.kind != Kind::forward && isBuiltIn(p, capability);
         },
     .arithmetic =
         [](const Problem &p) {
           return Arithmetic{.partDepth = 16, .part = numberOf(p.result), .isUnordered = true};
         },
     .parts = noParts},
    {.name = "Winograd",
     .timed = "cudnn-winograd",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4},
     .isOffered =
         [](const Problem &p, int capability) {
           std::vector<int64_t> filter(p.w.extents.begin() + 2, p.w.extents.end());
           return !isHalf(p) && isBuiltIn(p, capability) && p.kind != Kind::backwardFilter &&
                  areAll(filter, 3) && areAll(p.strides, 1) && areAll(p.dilations, 1);
         },
     // About what its transforms lose.
     .arithmetic = [](const Problem &) { return Arithmetic{.operandBits = 14}; },
     .parts = noParts},
    {.name = "what a later version adds",
     .timed = "cudnn-later",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_TYPE_COUNT}, // that callers do not know
     .isOffered = [](const Problem &p,
                     int capability) { return !isHalf(p) && isBuiltIn(p, capability); },
     .arithmetic = [](const Problem &) { return Arithmetic{.operandBits = 12}; },
     .parts = noParts},
    {.name = "attention",
     .timed = "cudnn-attention",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     .behaviorNotes = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION,
                       CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API},
     .isOffered = isAttention,
     .arithmetic = exact,
     .parts = storedScores,
     .tile = 32,
     .isFused = true},
    {.name = "attention in full tiles",
     .timed = "cudnn-attention-tiles",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     .behaviorNotes = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
     .isOffered = isAttention,
     .arithmetic = [](const Problem &) { return Arithmetic{.partDepth = 64}; },
     .parts = storedScores,
     .channels = 64,
     .isFused = true},
    {.name = "attention with sums in half precision",
     .timed = "cudnn-attention-half-sums",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                        CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION},
     .isOffered = isAttention,
     .arithmetic =
         [](const Problem &p) {
           return Arithmetic{.partDepth = 16, .part = *numberOf(weightType(p))};
         },
     .parts = noParts,
     .isFused = true},
    {.name = "attention's gradient in any order",
     .timed = "cudnn-attention-unordered",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
     .isOffered = [](const Problem &p,
                     int capability) { return p.fused->isGradient && isAttention(p, capability); },
     .arithmetic =
         [](const Problem &p) {
           return Arithmetic{
               .partDepth = 16, .part = *numberOf(weightType(p)), .isUnordered = true};
         },
     .parts = noParts,
     .isFused = true},
    {.name = "what a later version adds to attention",
     .timed = "cudnn-attention-later",
     .numericalNotes = {CUDNN_NUMERICAL_NOTE_TYPE_COUNT}, // that callers do not know
     .isOffered = isAttention,
     .arithmetic = [](const Problem &) { return Arithmetic{.operandBits = 3}; },
     .parts = noParts,
     .isFused = true}};
constexpr int64_t kGeneric = 0, kAttention = 9;
/// The heuristics' order.
constexpr int64_t kOrder[] = {3, 4, 5, 6, 7, 8, 2, 1, kGeneric, 11, 12, 13, 10, kAttention};
} // namespace

std::span<const Engine> engines() { return kEngines; }

std::vector<Offer> offered(const Problem &problem, int capability, cudnnBackendHeurMode_t mode) {
  bool isFallback = mode == CUDNN_HEUR_MODE_FALLBACK;
  std::vector<Offer> found;
  for (int64_t index : kOrder)
    if ((!isFallback || index == kGeneric || index == kAttention) &&
        kEngines[index].isFor(problem, capability))
      found.push_back({index, 0});
  // With its knob turned, an engine is another one for a caller that measures.
  for (int64_t index : kOrder)
    if (!isFallback && kEngines[index].tile && kEngines[index].isFor(problem, capability))
      found.push_back({index, kEngines[index].tile});
  return found;
}

int64_t tileOf(const Descriptor &configuration) {
  const Descriptor *knob = configuration.descriptor(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
  return knob ? knob->one<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE) : 0;
}

cudnnStatus_t checkPlan(const Engine &engine, const Problem &p) {
  if (p.fused && p.fused->scores.extents[3] % engine.channels != 0)
    return decline(CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
                   "cudnnBackendFinalize: the engine '%s' needs keys in multiples of %d",
                   engine.name, static_cast<int>(engine.channels));
  if (p.fused)
    return CUDNN_STATUS_SUCCESS;
  if (!areChannelsWide(p, engine.channels))
    return decline(CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
                   "cudnnBackendFinalize: the engine '%s' needs channels in multiples of %d",
                   engine.name, static_cast<int>(engine.channels));
  if (engine.isSymmetric && p.prePadding != p.postPadding)
    return decline(CUDNN_STATUS_NOT_SUPPORTED_PADDING,
                   "cudnnBackendFinalize: the engine '%s' needs the same padding on both sides",
                   engine.name);
  return CUDNN_STATUS_SUCCESS;
}

} // namespace mpc::sim::dnn
