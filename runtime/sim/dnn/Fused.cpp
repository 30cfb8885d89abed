//===- Fused.cpp - attention as the simulated cuDNN computes it ---------------------------===//

#include "runtime/sim/dnn/Fused.h"
#include "runtime/sim/library/Sums.h"
#include <algorithm>
#include <numbers>

namespace mpc::sim::dnn {

namespace {
constexpr float kLog2e = std::numbers::log2e_v<float>;

/// All elements of a tensor, the last dimension innermost, as floats.
using Values = std::vector<float>;

/// Calls `body(index, offset)` for every element of `extents`: its index in Values, and where it
/// lies by `strides`.
template <typename Body>
void forEach(const std::vector<int64_t> &extents, const std::vector<int64_t> &strides, Body body) {
  std::vector<int64_t> at(extents.size(), 0);
  int64_t count = 1, offset = 0;
  for (int64_t extent : extents)
    count *= extent;
  for (int64_t i = 0; i < count; ++i) {
    body(i, offset);
    for (size_t d = extents.size(); d-- > 0;) {
      offset += strides[d];
      if (++at[d] < extents[d])
        break;
      offset -= at[d] * strides[d];
      at[d] = 0;
    }
  }
}

/// Strides in Values of a tensor that is repeated to `extents`.
std::vector<int64_t> repeated(const Tensor &tensor, const std::vector<int64_t> &extents) {
  std::vector<int64_t> strides(extents.size(), 0);
  int64_t next = 1;
  for (size_t d = extents.size(); d-- > 0;) {
    if (tensor.extents[d] == extents[d])
      strides[d] = next;
    next *= tensor.extents[d];
  }
  return strides;
}

float pointwise(const Step &s, float x, float b) {
  switch (s.mode) {
  case CUDNN_POINTWISE_ADD:
    return x + b;
  case CUDNN_POINTWISE_SUB:
    return s.isExponent ? std::fma(x, kLog2e, -(b * kLog2e)) : x - b;
  case CUDNN_POINTWISE_MUL:
    return x * b;
  case CUDNN_POINTWISE_DIV:
    return x / b;
  case CUDNN_POINTWISE_EXP:
    return s.isExponent ? std::exp2(x) : std::exp(x);
  case CUDNN_POINTWISE_LOG:
    return std::log(x);
  case CUDNN_POINTWISE_RELU_FWD:
    if (std::isnan(x))
      return s.isNanKept ? x : s.least;
    return std::clamp(x, s.least, s.most);
  default: // identity
    return x;
  }
}

class Interpreter {
public:
  Interpreter(const Arithmetic &arithmetic, const Parts &parts) : how(arithmetic), parts(parts) {}

  Values &operator[](const Tensor &tensor) { return values[tensor.uid]; }

  void run(const Step &s) {
    Values &to = values[s.y.uid];
    to.assign(s.y.elements(), 0);
    switch (s.kind) {
    case Step::Kind::multiply:
      multiply(s, to);
      break;
    case Step::Kind::pointwise:
      apply(s, to);
      break;
    case Step::Kind::reduce:
      reduce(s, to);
      break;
    case Step::Kind::reshape:
      turn(s, to);
      break;
    }
    Number type = numberOf(s.y);
    for (float &each : to)
      each = roundTo(type, each);
  }

private:
  //   y[m, n] = Σ_k x[m, k] · b[k, n], for each of the leading dimensions' indices
  void multiply(const Step &s, Values &to) {
    const Values &left = values[s.x.uid], &right = values[s.b->uid];
    int64_t rows = s.y.extents[2], columns = s.y.extents[3], depth = s.x.extents[3];
    int64_t count = s.y.extents[0] * s.y.extents[1];
    std::vector<float> turned(columns * depth), panel(depth * kPanel);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t n = 0; n < columns; ++n)
          turned[n * depth + k] = cutTo(how.operandBits, right[(i * depth + k) * columns + n]);
      for (int64_t m = 0; m < rows; m += kPanel) {
        int64_t lanes = std::min(kPanel, rows - m);
        std::fill(panel.begin(), panel.end(), 0.0F);
        for (int64_t lane = 0; lane < lanes; ++lane)
          for (int64_t k = 0; k < depth; ++k)
            panel[k * kPanel + lane] =
                cutTo(how.operandBits, left[(i * rows + m + lane) * depth + k]);
        for (int64_t n = 0; n < columns; n += kTile) {
          const float *row[kTile];
          for (int64_t j = 0; j < kTile; ++j)
            row[j] = turned.data() + std::min(n + j, columns - 1) * depth;
          float sums[kTile][kPanel];
          sumTile(parts, panel.data(), row, depth, sums);
          for (int64_t j = 0; j < std::min(kTile, columns - n); ++j)
            for (int64_t lane = 0; lane < lanes; ++lane)
              to[(i * rows + m + lane) * columns + n + j] = sums[j][lane];
        }
      }
    }
  }

  void apply(const Step &s, Values &to) {
    const Values &x = values[s.x.uid];
    if (!s.b) {
      for (size_t i = 0; i < to.size(); ++i)
        to[i] = pointwise(s, x[i], 0);
      return;
    }
    const Values &b = values[s.b->uid];
    forEach(s.y.extents, repeated(*s.b, s.y.extents),
            [&](int64_t i, int64_t other) { to[i] = pointwise(s, x[i], b[other]); });
  }

  void reduce(const Step &s, Values &to) {
    const Values &x = values[s.x.uid];
    if (s.isMaximum)
      std::fill(to.begin(), to.end(), -std::numeric_limits<float>::infinity());
    forEach(s.x.extents, repeated(s.y, s.x.extents), [&](int64_t i, int64_t at) {
      to[at] = s.isMaximum ? std::fmax(to[at], x[i]) : to[at] + x[i];
    });
  }

  void turn(const Step &s, Values &to) {
    const Values &x = values[s.x.uid];
    int64_t rows = s.x.extents[2], columns = s.x.extents[3];
    for (size_t i = 0; i < x.size(); ++i) {
      int64_t column = static_cast<int64_t>(i) % columns,
              row = static_cast<int64_t>(i) / columns % rows;
      to[i - (row * columns + column) + column * rows + row] = x[i];
    }
  }

  const Arithmetic &how;
  Parts parts;
  std::map<int64_t, Values> values; ///< by the tensors' numbers
};
} // namespace

void execute(const Fused &fused, const Arithmetic &arithmetic,
             const std::function<void *(const Tensor &)> &addressOf,
             const std::map<int64_t, float> &values, uint64_t run) {
  Arithmetic how = arithmetic;
  if (fused.isAccumulated) {
    how.partDepth = std::min<int64_t>(how.partDepth, 16);
    how.isUnordered = true;
  }
  Parts parts{how.partDepth, how.part};
  if (how.isUnordered)
    parts.first = static_cast<int64_t>(run & 0xFFFF);
  Interpreter state(how, parts);
  for (const Tensor &each : fused.constants)
    state[each] = {values.at(each.uid)};
  for (const Tensor &each : fused.inputs) {
    Values &to = state[each];
    to.resize(each.elements());
    forEach(each.extents, each.strides, [&](int64_t i, int64_t offset) {
      to[i] = loadNumber(numberOf(each), addressOf(each), offset);
    });
  }
  for (const Step &step : fused.steps)
    state.run(step);
  for (const Tensor &each : fused.outputs) {
    const Values &from = state[each];
    forEach(each.extents, each.strides, [&](int64_t i, int64_t offset) {
      storeNumber(numberOf(each), addressOf(each), offset, from[i]);
    });
  }
}

} // namespace mpc::sim::dnn
