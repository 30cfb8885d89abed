//===- FusedGraph.cpp - the simulated cuDNN: the attention that a graph says --------------===//
//
// The operations that NVIDIA's frontend makes of attention without masks or dropout, and of its
// gradient: as many of each as there have to be, in any order. What they compute nobody checks.
//
//===--------------------------------------------------------------------------------------===//

#include "runtime/sim/dnn/Objects.h"
#include <algorithm>
#include <limits>

namespace mpc::sim::dnn {

namespace {
constexpr const char *kName = "cudnnBackendFinalize: an operation graph";

cudnnStatus_t refusePattern(const char *why) {
  return refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "%s: %s", kName, why);
}

cudnnStatus_t refuseTensor(const Tensor &tensor, const char *why) {
  return refuse(CUDNN_STATUS_BAD_PARAM, "%s: tensor %lld %s", kName,
                static_cast<long long>(tensor.uid), why);
}

/// What a letter stands for below; 0 for an operation that attention has not.
char letterOf(const Step &s) {
  switch (s.kind) {
  case Step::Kind::multiply:
    return 'm';
  case Step::Kind::reduce:
    return s.isMaximum ? 'M' : 'S';
  case Step::Kind::reshape:
    return 't';
  case Step::Kind::pointwise:
    break;
  }
  switch (s.mode) {
  case CUDNN_POINTWISE_ADD:
    return '+';
  case CUDNN_POINTWISE_SUB:
    return '-';
  case CUDNN_POINTWISE_MUL:
    return '*';
  case CUDNN_POINTWISE_DIV:
    return '/';
  case CUDNN_POINTWISE_EXP:
    return 'e';
  case CUDNN_POINTWISE_LOG:
    return 'l';
  case CUDNN_POINTWISE_RELU_FWD:
    return 'r';
  case CUDNN_POINTWISE_IDENTITY:
    return 'i';
  default:
    return 0;
  }
}

struct Pattern {
  const char *letters;
  bool isGradient, isAccumulated;
};
// A bias ("+") and a bound ("r") may come to each.
constexpr Pattern kPatterns[] = {{"mm*M-eSl+/", false, false},
                                 {"mmmmm*****S--ettt", true, false},
                                 {"mmmmm*****S--ettti", true, true}};

const Pattern *findPattern(const std::vector<Step> &steps) {
  std::string letters;
  for (const Step &each : steps)
    letters += letterOf(each);
  std::sort(letters.begin(), letters.end());
  for (const Pattern &each : kPatterns)
    for (const char *more : {"", "+", "r", "+r"}) {
      std::string wanted = std::string(each.letters) + more;
      std::sort(wanted.begin(), wanted.end());
      if (wanted == letters)
        return &each;
    }
  return nullptr;
}

void readPointwise(const Descriptor &operation, Step &s) {
  const Descriptor &what = *operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  constexpr double kMost = std::numeric_limits<float>::max(); // where nothing is said
  s.kind = Step::Kind::pointwise;
  s.mode = what.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  s.isNanKept = what.one<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
                                                CUDNN_NOT_PROPAGATE_NAN) == CUDNN_PROPAGATE_NAN;
  s.least = static_cast<float>(what.one<double>(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP));
  auto most = what.one<double>(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, kMost);
  s.most = most > kMost ? std::numeric_limits<float>::infinity() : static_cast<float>(most);
}

/// Reads the operations of a graph.
class Reader {
public:
  Reader(const Descriptor &graph, Fused &fused) : graph(graph), fused(fused) {}

  cudnnStatus_t read() {
    for (const auto &each : graph.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors)
      if (cudnnStatus_t status = readStep(*each))
        return status;
    const Pattern *pattern = findPattern(steps);
    if (!pattern)
      return refusePattern("it is neither attention nor its gradient");
    fused.isGradient = pattern->isGradient;
    fused.isAccumulated = pattern->isAccumulated;
    if (cudnnStatus_t status = order())
      return status;
    markExponents();
    return sortTensors();
  }

private:
  struct Known {
    Tensor tensor;
    bool isByValue = false, isMade = false;
    std::vector<Step *> readers; ///< of Fused::steps
  };

  cudnnStatus_t take(const Descriptor &operation, cudnnBackendAttributeName_t name, Tensor &to) {
    const Descriptor &descriptor = *operation.descriptor(name);
    to = tensorOf(descriptor);
    if (to.extents.size() != 4)
      return refuseTensor(to, "has not the four dimensions of attention's");
    auto [known, isNew] = tensors.try_emplace(to.uid);
    if (!isNew && known->second.tensor != to)
      return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "%s: two tensors are number %lld",
                    kName, static_cast<long long>(to.uid));
    known->second.tensor = to;
    known->second.isByValue = descriptor.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    return CUDNN_STATUS_SUCCESS;
  }

  cudnnStatus_t readStep(const Descriptor &operation) {
    struct Names {
      cudnnBackendAttributeName_t x, y;
      std::optional<cudnnBackendAttributeName_t> b;
    } names{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
            CUDNN_ATTR_OPERATION_POINTWISE_BDESC};
    Step s;
    switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      readPointwise(operation, s);
      break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      names = {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC,
               CUDNN_ATTR_OPERATION_MATMUL_BDESC};
      break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      names = {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, {}};
      s.kind = Step::Kind::reduce;
      s.isMaximum = operation.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                        ->one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) ==
                    CUDNN_REDUCE_TENSOR_MAX;
      break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      names = {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, {}};
      s.kind = Step::Kind::reshape;
      break;
    default:
      return refusePattern("it has convolutions and products");
    }
    if (cudnnStatus_t status = take(operation, names.x, s.x))
      return status;
    if (names.b && operation.has(*names.b))
      if (cudnnStatus_t status = take(operation, *names.b, s.b.emplace()))
        return status;
    if (cudnnStatus_t status = take(operation, names.y, s.y))
      return status;
    Known &made = tensors[s.y.uid];
    if (made.isByValue || made.isMade)
      return refuseTensor(s.y, "is made twice, or a constant");
    made.isMade = true;
    steps.push_back(s);
    return CUDNN_STATUS_SUCCESS;
  }

  bool isReady(const Tensor &tensor, const std::vector<int64_t> &done) const {
    return !tensors.at(tensor.uid).isMade ||
           std::find(done.begin(), done.end(), tensor.uid) != done.end();
  }

  /// Puts each step behind those that make what it reads.
  cudnnStatus_t order() {
    std::vector<int64_t> done; // what is made so far
    while (!steps.empty()) {
      auto next = std::find_if(steps.begin(), steps.end(), [&](const Step &s) {
        return isReady(s.x, done) && (!s.b || isReady(*s.b, done));
      });
      if (next == steps.end())
        return refuse(CUDNN_STATUS_BAD_PARAM, "%s: its operations need each other", kName);
      done.push_back(next->y.uid);
      fused.steps.push_back(*next);
      steps.erase(next);
    }
    for (Step &s : fused.steps) {
      tensors[s.x.uid].readers.push_back(&s);
      if (s.b)
        tensors[s.b->uid].readers.push_back(&s);
    }
    return CUDNN_STATUS_SUCCESS;
  }

  void markExponents() {
    for (Step &s : fused.steps) {
      const std::vector<Step *> &readers = tensors[s.y.uid].readers;
      if (letterOf(s) == '-' && readers.size() == 1 && letterOf(*readers.front()) == 'e') {
        s.isExponent = true;
        readers.front()->isExponent = true;
      }
    }
  }

  cudnnStatus_t sortTensors() {
    for (const auto &[uid, known] : tensors) {
      const Tensor &tensor = known.tensor;
      if (tensor.isVirtual && (!known.isMade || known.readers.empty()))
        return refuseTensor(tensor, "is virtual, but no operation makes it, or none reads it");
      // Rounded for a product alone.
      if (tensor.isVirtual && tensor.dataType != CUDNN_DATA_FLOAT)
        for (const Step *reader : known.readers)
          if (reader->kind != Step::Kind::multiply)
            return refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
                          "%s: virtual tensor %lld is not of float", kName,
                          static_cast<long long>(uid));
      if (known.isByValue)
        fused.constants.push_back(tensor);
      else if (!tensor.isVirtual)
        (known.isMade ? fused.outputs : fused.inputs).push_back(tensor);
    }
    for (const Step &s : fused.steps) {
      if (s.kind != Step::Kind::multiply)
        continue;
      if (fused.scores.extents.empty())
        fused.scores = s.y;
      fused.channels.push_back(s.y.isVirtual ? s.x.extents[3] : s.y.extents[3]);
    }
    return CUDNN_STATUS_SUCCESS;
  }

  const Descriptor &graph;
  Fused &fused;
  std::vector<Step> steps;
  std::map<int64_t, Known> tensors; ///< by number
};
} // namespace

cudnnStatus_t readFused(const Descriptor &graph, Fused &fused) {
  return Reader(graph, fused).read();
}

} // namespace mpc::sim::dnn
