//===- ProgramCheck.cpp - consistency of a program's library commands -----------===//
//
// The library code indexes memory from these shapes, so a wrong one must be refused before
// anything runs: a damaged object file gives a message, never a wild write.
//
//===----------------------------------------------------------------------------===//

#include "runtime/core/ProgramCheck.h"
#include "runtime/core/Error.h"

using namespace mpc;

std::string mpc::shapeText(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

int64_t mpc::checkedElements(const std::vector<int64_t> &shape, const std::string &where) {
  // Far below the limits of int64_t, so that sizes in bytes and sums of offsets cannot overflow.
  constexpr int64_t limit = int64_t(1) << 48;
  int64_t product = 1;
  bool zero = false;
  for (int64_t dim : shape) {
    if (dim < 0)
      throw Error(where + ": negative dimension in shape " + shapeText(shape));
    zero |= dim == 0;
    if (dim != 0 && (__builtin_mul_overflow(product, dim, &product) || product > limit))
      throw Error(where + ": shape " + shapeText(shape) + " has too many elements");
  }
  return zero ? 0 : product;
}

namespace {

class Checker {
public:
  Checker(const Command &command, const std::string &where) : c(command), where(where) {}

  void check() {
    if (c.kind == CommandKind::kernel)
      return;
    if (isAttention(c.kind))
      return attention();
    types();
    c.kind == CommandKind::matmul ? matmul() : convolution();
  }

private:
  [[noreturn]] void fail(const std::string &why) const {
    throw Error(where + (c.node.empty() ? "" : " (node '" + c.node + "')") + ": " + why);
  }
  void require(bool condition, const std::string &why) const {
    if (!condition)
      fail(why);
  }

  void types() const {
    require(c.lhs.present && c.rhs.present && c.result.present, "lhs, rhs or result is missing");
    ElementType type = c.lhs.type;
    bool half = type == ElementType::f16 || type == ElementType::bf16;
    require(half || type == ElementType::f32 || type == ElementType::f64,
            std::string("a library command on ") + elementTypeName(type));
    require(c.rhs.type == type, "lhs and rhs have different element types");
    require(c.result.type == type || (half && c.result.type == ElementType::f32),
            std::string("result type ") + elementTypeName(c.result.type) +
                " for operands of type " + elementTypeName(type));
    if (c.bias.present)
      require(c.bias.type == type || (half && c.bias.type == ElementType::f32),
              std::string("bias type ") + elementTypeName(c.bias.type) + " for operands of type " +
                  elementTypeName(type));
  }

  void matmul() const {
    size_t rank = c.lhs.shape.size();
    require(rank >= 2 && c.rhs.shape.size() == rank && c.result.shape.size() == rank,
            "operands of a matmul need the same rank, at least 2");
    std::string shapes =
        shapeText(c.lhs.shape) + " · " + shapeText(c.rhs.shape) + " → " + shapeText(c.result.shape);
    for (size_t i = 0; i + 2 < rank; ++i)
      require(c.lhs.shape[i] == c.rhs.shape[i] && c.lhs.shape[i] == c.result.shape[i],
              "leading dimensions differ: " + shapes);
    auto dim = [&](const Operand &o, bool transposed, int which) {
      return o.shape[rank - 2 + (transposed ? 1 - which : which)];
    };
    int64_t m = dim(c.lhs, c.transpose_lhs, 0), k = dim(c.lhs, c.transpose_lhs, 1);
    int64_t n = dim(c.rhs, c.transpose_rhs, 1);
    require(dim(c.rhs, c.transpose_rhs, 0) == k && c.result.shape[rank - 2] == m &&
                c.result.shape[rank - 1] == n,
            "shapes do not fit: " + shapes);
    if (c.bias.present)
      require(c.bias.shape == std::vector<int64_t>{n},
              "bias " + shapeText(c.bias.shape) + " for " + std::to_string(n) + " columns");
  }

  void convolution() const {
    const Operand &input = c.kind == CommandKind::conv_backward_data ? c.result : c.lhs;
    const Operand &filter = c.kind == CommandKind::conv_backward_weights ? c.result : c.rhs;
    const Operand &output = c.kind == CommandKind::conv                 ? c.result
                            : c.kind == CommandKind::conv_backward_data ? c.lhs
                                                                        : c.rhs;
    size_t rank = input.shape.size();
    require(rank >= 3 && rank <= 5 && filter.shape.size() == rank && output.shape.size() == rank,
            "a convolution needs 1 to 3 spatial dimensions");
    size_t spatial = rank - 2;
    require(c.strides.size() == spatial && c.dilations.size() == spatial &&
                c.pads.size() == 2 * spatial,
            "strides, dilations or pads of the wrong length");
    size_t channel = c.channels_last ? rank - 1 : 1, first = c.channels_last ? 1 : 2;
    int64_t in = input.shape[channel], out = output.shape[channel];
    require(c.groups >= 1 && in % c.groups == 0 && out % c.groups == 0,
            std::to_string(c.groups) + " groups for " + std::to_string(in) + " → " +
                std::to_string(out) + " channels");
    std::string shapes = "input " + shapeText(input.shape) + ", filter " + shapeText(filter.shape) +
                         ", output " + shapeText(output.shape);
    require(filter.shape[0] == out && filter.shape[1] == in / c.groups &&
                input.shape[0] == output.shape[0],
            "shapes do not fit: " + shapes);
    for (size_t d = 0; d < spatial; ++d) {
      int64_t stride = c.strides[d], dilation = c.dilations[d], kernel = filter.shape[2 + d];
      int64_t begin = c.pads[d], end = c.pads[spatial + d];
      constexpr int64_t limit = int64_t(1) << 30;
      require(stride >= 1 && dilation >= 1 && kernel >= 1 && stride < limit && dilation < limit &&
                  kernel < limit && begin > -limit && end > -limit && begin < limit && end < limit,
              "stride, dilation, kernel or pad out of range");
      int64_t span = input.shape[first + d] + begin + end - dilation * (kernel - 1) - 1;
      int64_t expected = span < 0 ? 0 : span / stride + 1;
      require(output.shape[first + d] == expected,
              "output extent " + std::to_string(output.shape[first + d]) + " instead of " +
                  std::to_string(expected) + ": " + shapes);
    }
    if (c.bias.present) {
      require(c.kind == CommandKind::conv, "a gradient of a convolution has no bias");
      require(c.bias.shape == std::vector<int64_t>{out},
              "bias " + shapeText(c.bias.shape) + " for " + std::to_string(out) + " channels");
    }
    if (c.kind == CommandKind::conv_backward_weights)
      require(c.result.type == ElementType::f32 || c.result.type == ElementType::f64,
              "a filter gradient has to be f32 or f64");
  }

  void attention() const {
    bool isGradient = c.kind == CommandKind::attention_grad;
    require(c.dropout_ratio >= 0 && c.dropout_ratio < 1,
            "dropout with a ratio of " + std::to_string(c.dropout_ratio));
    size_t query = isGradient ? 1 : 0, random = c.dropout_ratio > 0 ? 2 : 0;
    size_t least = (isGradient ? 7 : 3) + random;
    require(c.operands.size() >= least && c.operands.size() <= least + 1 && c.results.size() == 3,
            "operands or results are missing");
    for (const auto *list : {&c.operands, &c.results})
      for (const Operand &each : *list)
        require(each.present, "an operand or result is missing");
    const Operand &q = c.operands[query], &v = c.operands[query + 2];
    bool isKnown =
        q.type == ElementType::f32 || q.type == ElementType::f16 || q.type == ElementType::bf16;
    require(isKnown, std::string("attention of ") + elementTypeName(q.type));
    require(q.shape.size() == 4 && v.shape.size() == 4, "a query or value that has not rank 4");
    int64_t batch = q.shape[0], queries = q.shape[1], heads = q.shape[2], keys = v.shape[1];
    using Shape = std::vector<int64_t>;
    auto is = [&](const Operand &operand, const Shape &shape, ElementType type) {
      require(operand.shape == shape && operand.type == type,
              "shape " + shapeText(operand.shape) + " of " + elementTypeName(operand.type) +
                  " instead of " + shapeText(shape) + " of " + elementTypeName(type));
    };
    Shape ofKeys{batch, keys, heads, q.shape[3]}, output{batch, queries, heads, v.shape[3]},
        rows{batch, heads, queries}, statistics{2, batch, heads, queries},
        scores{batch, heads, queries, keys};
    is(c.operands[query + 1], ofKeys, q.type);
    is(v, {batch, keys, heads, v.shape[3]}, q.type);
    if (isGradient) {
      is(c.operands[0], output, q.type);
      is(c.operands[4], output, q.type);
      is(c.operands[5], rows, ElementType::f32);
      is(c.operands[6], statistics, ElementType::f32);
      is(c.results[0], q.shape, q.type);
      is(c.results[1], ofKeys, q.type);
      is(c.results[2], v.shape, q.type);
    } else {
      is(c.results[0], output, q.type);
      is(c.results[1], rows, ElementType::f32);
      is(c.results[2], statistics, ElementType::f32);
    }
    for (size_t i = c.operands.size() - random; i < c.operands.size(); ++i)
      is(c.operands[i], {2}, ElementType::i64);
    bool hasBias = c.operands.size() > least;
    require(hasBias || c.bias_dimensions.empty(), "dimensions of a bias that is missing");
    if (!hasBias)
      return;
    Shape bias;
    for (size_t i = 0; i < c.bias_dimensions.size(); ++i) {
      int64_t at = c.bias_dimensions[i];
      require(at < 4 && (i == 0 || at > c.bias_dimensions[i - 1]), "wrong dimensions of a bias");
      bias.push_back(scores[at]);
    }
    is(c.operands[least - random], bias, ElementType::f32);
  }

  const Command &c;
  const std::string &where;
};

} // namespace

void mpc::checkCommand(const Command &command, const std::string &where) {
  Checker(command, where).check();
}
