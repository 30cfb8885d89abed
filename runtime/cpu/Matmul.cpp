//===- Matmul.cpp - matrix products: oneDNN or plain ------------------------------===//

#include "runtime/core/ProductShape.h"
#include "runtime/cpu/DnnlCommand.h"
#include "runtime/cpu/PackedCopy.h"
#include "runtime/cpu/Threads.h"
#include <cstring>

using namespace mpc;
using namespace mpc::cpu;
using dnnl::memory;

namespace {

/// With strides of lhs and rhs in elements, as (row, column) of the untransposed product.
struct MatmulShape : ProductShape {
  explicit MatmulShape(const Command &c) : ProductShape(c) {
    lhs_row = c.transpose_lhs ? 1 : k;
    lhs_column = c.transpose_lhs ? m : 1;
    rhs_row = c.transpose_rhs ? 1 : n;
    rhs_column = c.transpose_rhs ? k : 1;
  }
  int64_t lhs_row, lhs_column, rhs_row, rhs_column;
};

template <typename C> class PlainMatmul : public LibraryCommand {
public:
  PlainMatmul(Library &library, const Command &c) : library(library), c(c) {
    MatmulShape s(c);
    product.packed_batches = std::max<int64_t>(s.batch, 1);
    product.batch = s.batch;
    product.m = s.m;
    product.n = s.n;
    product.k = s.k;
    lhs.base = library.at(c.lhs.buffer);
    lhs.type = c.lhs.type;
    lhs.batch_stride = s.m * s.k;
    lhs.outer_stride = s.lhs_row;
    lhs.depth_stride = s.lhs_column;
    rhs.base = library.at(c.rhs.buffer);
    rhs.type = c.rhs.type;
    rhs.batch_stride = s.k * s.n;
    rhs.outer_stride = s.rhs_column;
    rhs.depth_stride = s.rhs_row;
    sink.base = library.at(c.result.buffer);
    sink.type = c.result.type;
    sink.batch_stride = s.m * s.n;
    sink.row_stride = s.n;
    sink.epilogue.relu = c.relu;
    product.lhs = &lhs;
    product.rhs = &rhs;
    product.sink = &sink;
    const TileKernels<C> &tile = tileKernels<C>();
    if (c.rhs.is_weight)
      rhs_copy = packedCopy<C>(library, c.rhs, c.transpose_rhs ? "rhs-t" : "rhs", s.batch, s.n, s.k,
                               tile.columns, std::make_shared<StridedSource<C>>(rhs));
    if (c.lhs.is_weight)
      lhs_copy = packedCopy<C>(library, c.lhs, c.transpose_lhs ? "lhs-t" : "lhs", s.batch, s.m, s.k,
                               tile.rows, std::make_shared<StridedSource<C>>(lhs));
    if (c.bias.present)
      bias.resize(size_t(s.n));
  }

  void run() override {
    if (lhs_copy)
      product.packed_lhs = static_cast<const C *>(lhs_copy->current(library.weights_version));
    if (rhs_copy)
      product.packed_rhs = static_cast<const C *>(rhs_copy->current(library.weights_version));
    if (c.bias.present) {
      loadFunction<C>(c.bias.type)(library.at(c.bias.buffer), bias.data(), product.n);
      sink.epilogue.column_bias = bias.data();
    }
    multiply(product, library.threads, scratch);
  }
  std::string describe() const override {
    return std::string("plain loops, ") + kernels().name +
           (isHalf(c.lhs.type) ? ", widened to f32 in cache" : "");
  }
  size_t scratchBytes() const override {
    // Sized as if nothing were packed: a bound for both.
    Product<C> unpacked = product;
    return alignedBytes(size_t(productScratch(unpacked, library.threads)) * sizeof(C));
  }
  void bind(std::byte *memory) override { scratch = reinterpret_cast<C *>(memory); }

private:
  Library &library;
  Command c;
  StridedSource<C> lhs, rhs;
  StridedSink<C> sink;
  Product<C> product;
  std::shared_ptr<WeightCopy> lhs_copy, rhs_copy;
  std::vector<C> bias;
  C *scratch = nullptr;
};

} // namespace

std::unique_ptr<LibraryCommand> mpc::cpu::makePlainMatmul(Library &library, const Command &c) {
  if (c.lhs.type == ElementType::f64)
    return std::make_unique<PlainMatmul<double>>(library, c);
  return std::make_unique<PlainMatmul<float>>(library, c);
}

std::unique_ptr<LibraryCommand> mpc::cpu::makeDnnlMatmul(Library &library, const Command &c,
                                                         bool widened) {
  MatmulShape s(c);
  if (s.batch == 0 || s.m == 0 || s.n == 0 || s.k == 0)
    return nullptr;
  // [b, m, k] · [b, k, n], or without b for a single product.
  auto describe = [&](memory::dims dims, memory::dims strides, ElementType type) {
    if (s.batch == 1) {
      dims.erase(dims.begin());
      strides.erase(strides.begin());
    }
    return memory::desc(dims, widened ? memory::data_type::f32 : dnnlType(type), strides);
  };
  memory::desc lhs =
      describe({s.batch, s.m, s.k}, {s.m * s.k, s.lhs_row, s.lhs_column}, c.lhs.type);
  memory::desc rhs =
      describe({s.batch, s.k, s.n}, {s.k * s.n, s.rhs_row, s.rhs_column}, c.rhs.type);
  memory::desc result = describe({s.batch, s.m, s.n}, {s.m * s.n, s.n, 1}, c.result.type);
  memory::desc bias;
  if (c.bias.present)
    bias = describe({1, 1, s.n}, {s.n, s.n, 1}, c.bias.type);
  // Weights stay as they are: in training a copy in the library's own layout is used once, and
  // making it (on one thread) takes longer than packing in cache.
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (c.relu) {
    dnnl::post_ops ops;
    ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.f, 0.f);
    attributes.set_post_ops(ops);
  }
  dnnl::matmul::primitive_desc pd(library.engine, lhs, rhs, bias, result, attributes, true);
  if (!pd || isReference(pd.impl_info_str()))
    return nullptr;
  auto command = std::make_unique<DnnlCommand>(library, dnnl::matmul(pd), pd.scratchpad_desc(),
                                               std::string(pd.impl_info_str()) +
                                                   (widened ? ", widened to f32" : ""));
  command->addInput({DNNL_ARG_SRC, c.lhs, lhs, pd.src_desc()});
  command->addInput({DNNL_ARG_WEIGHTS, c.rhs, rhs, pd.weights_desc()});
  if (c.bias.present)
    command->addInput({DNNL_ARG_BIAS, c.bias, bias, bias});
  command->setOutput({DNNL_ARG_DST, c.result, result, pd.dst_desc()});
  return command;
}
