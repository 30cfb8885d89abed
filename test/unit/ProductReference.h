//===- ProductReference.h - library commands by their definition, for tests ---------------===//
//
// Every multiplication of a matmul or convolution, one by one, in doubles, from the indices
// that the operations' descriptions name: nothing is a matrix or a patch here.
//
//===--------------------------------------------------------------------------------------===//

#ifndef MPC_TEST_UNIT_PRODUCTREFERENCE_H
#define MPC_TEST_UNIT_PRODUCTREFERENCE_H

#include "TensorReference.h"
#include "llvm/ADT/TypeSwitch.h"
#include <array>

namespace mpc::test {

/// What a library command computes, not rounded; and per element what the error of a sum in f32
/// grows with: √(terms · Σ product²).
struct ProductValues {
  Tensor result, spread;
};

class ProductReference {
public:
  static ProductValues run(mlir::Operation *op, const std::vector<Tensor> &arguments) {
    auto shape = mlir::cast<mlir::RankedTensorType>(op->getResult(0).getType()).getShape().vec();
    ProductReference reference{op, arguments, {{shape, {}}, {shape, {}}}, {}};
    size_t elements = reference.values.result.size();
    reference.values.result.data.assign(elements, 0);
    reference.values.spread.data.assign(elements, 0);
    reference.terms.assign(elements, 0);
    llvm::TypeSwitch<mlir::Operation *>(op)
        .Case([&](MatmulOp matmul) { reference.multiply(matmul); })
        .Case([&](ConvOp conv) {
          reference.convolve(conv, 0, 1, 2);
          int64_t channel = conv.getChannelsLast() ? int64_t(shape.size()) - 1 : 1;
          reference.finish(channel, conv.getRelu());
        })
        .Case([&](ConvBackwardDataOp conv) { reference.convolve(conv, 2, 1, 0); })
        .Case([&](ConvBackwardWeightsOp conv) { reference.convolve(conv, 0, 2, 1); });
    for (size_t i = 0; i < elements; ++i)
      reference.values.spread.data[i] =
          std::sqrt(reference.values.spread.data[i] * double(reference.terms[i]));
    return reference.values;
  }

  mlir::Operation *op;
  const std::vector<Tensor> &arguments;
  ProductValues values;
  std::vector<int64_t> terms;

private:
  void add(size_t to, double product) {
    values.result.data[to] += product;
    values.spread.data[to] += product * product;
    ++terms[to];
  }

  /// A bias along dimension `axis`, then relu.
  void finish(size_t axis, bool relu) {
    const std::vector<int64_t> &shape = values.result.shape;
    int64_t behind = 1;
    for (size_t d = axis + 1; d < shape.size(); ++d)
      behind *= shape[d];
    for (size_t i = 0; i < values.result.data.size(); ++i) {
      double &x = values.result.data[i];
      if (arguments.size() > 2)
        x += arguments[2].data[i / behind % shape[axis]];
      x = relu ? std::max(x, 0.0) : x;
    }
  }

  void multiply(MatmulOp matmul) {
    const std::vector<int64_t> &shape = values.result.shape, &lhs = arguments[0].shape;
    size_t rank = shape.size();
    int64_t m = shape[rank - 2], n = shape[rank - 1];
    int64_t k = matmul.getTransposeLhs() ? lhs[rank - 2] : lhs[rank - 1];
    int64_t batch = 1;
    for (size_t d = 0; d + 2 < rank; ++d)
      batch *= shape[d];
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          for (int64_t p = 0; p < k; ++p) {
            int64_t left = b * m * k + (matmul.getTransposeLhs() ? p * m + i : i * k + p);
            int64_t right = b * k * n + (matmul.getTransposeRhs() ? j * k + p : p * n + j);
            add(b * m * n + i * n + j, arguments[0].data[left] * arguments[1].data[right]);
          }
    finish(rank - 1, matmul.getRelu());
  }

  /// output[n, g·F + f, o] ← image[n, g·C + c, o·stride - pad + t·dilation], filter[g·F + f, c, t].
  /// Of the three, argument 0, 1 or the result (2) each.
  template <typename Op> void convolve(Op conv, int imageAt, int filterAt, int outputAt) {
    auto shapeOf = [&](int at) {
      return at == 2 ? values.result.shape : arguments[size_t(at)].shape;
    };
    std::vector<int64_t> image = shapeOf(imageAt), filter = shapeOf(filterAt),
                         output = shapeOf(outputAt);
    size_t spatial = filter.size() - 2, missing = 3 - spatial;
    bool last = conv.getChannelsLast();
    using Triple = std::array<int64_t, 3>;
    Triple in{1, 1, 1}, out = in, kernel = in, stride = in, dilation = in, pad{0, 0, 0};
    for (size_t d = 0; d < spatial; ++d) {
      in[missing + d] = image[last ? 1 + d : 2 + d];
      out[missing + d] = output[last ? 1 + d : 2 + d];
      kernel[missing + d] = filter[2 + d];
      stride[missing + d] = conv.getStrides()[d];
      dilation[missing + d] = conv.getDilations()[d];
      pad[missing + d] = conv.getPads()[d];
    }
    int64_t groups = conv.getGroups(), channels = filter[1], features = filter[0] / groups;
    auto activation = [last](int64_t n, int64_t channel, int64_t all, const Triple &at,
                             const Triple &size) {
      int64_t pixel = (at[0] * size[1] + at[1]) * size[2] + at[2];
      int64_t pixels = size[0] * size[1] * size[2];
      return last ? (n * pixels + pixel) * all + channel : (n * all + channel) * pixels + pixel;
    };
    auto accumulate = [&](int64_t x, int64_t w, int64_t y) {
      if (outputAt == 2)
        add(y, arguments[0].data[x] * arguments[1].data[w]);
      else if (imageAt == 2)
        add(x, arguments[0].data[y] * arguments[1].data[w]);
      else
        add(w, arguments[0].data[x] * arguments[1].data[y]);
    };
    Triple o, t;
    for (int64_t n = 0; n < image[0]; ++n)
      for (int64_t m = 0; m < groups * features; ++m)
        for (int64_t c = 0; c < channels; ++c)
          for (o[0] = 0; o[0] < out[0]; ++o[0])
            for (o[1] = 0; o[1] < out[1]; ++o[1])
              for (o[2] = 0; o[2] < out[2]; ++o[2])
                for (t[0] = 0; t[0] < kernel[0]; ++t[0])
                  for (t[1] = 0; t[1] < kernel[1]; ++t[1])
                    for (t[2] = 0; t[2] < kernel[2]; ++t[2]) {
                      Triple i;
                      bool inside = true;
                      for (size_t d = 0; d < 3; ++d) {
                        i[d] = o[d] * stride[d] - pad[d] + t[d] * dilation[d];
                        inside &= i[d] >= 0 && i[d] < in[d];
                      }
                      if (!inside)
                        continue;
                      int64_t tap = (t[0] * kernel[1] + t[1]) * kernel[2] + t[2];
                      int64_t taps = kernel[0] * kernel[1] * kernel[2];
                      accumulate(
                          activation(n, m / features * channels + c, groups * channels, i, in),
                          (m * channels + c) * taps + tap,
                          activation(n, m, groups * features, o, out));
                    }
  }
};

} // namespace mpc::test

#endif // MPC_TEST_UNIT_PRODUCTREFERENCE_H
