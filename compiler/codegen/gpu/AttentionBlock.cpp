//===- AttentionBlock.cpp - a block's place among heads, rows and columns ---------------===//

#include "compiler/codegen/gpu/EmitAttention.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace mpc::gpu {

AttentionBlock::AttentionBlock(GpuEmitter &e, const Attention &attention, AttentionPass pass)
    : e(e), attention(attention), pass(pass), chunks(attentionChunks(attention, pass)),
      rows(attention.queries), columns(attention.keys) {
  if (pass == AttentionPass::keys)
    std::swap(rows, columns);
  int64_t tiles = llvm::divideCeil(rows, kAttentionRows);
  SmallVector<Affine> place =
      e.split(e.block, {attention.batch, attention.heads, tiles, chunks.count});
  batch = place[0];
  head = place[1];
  firstRow = place[2] * kAttentionRows;
  chunk = place[3];
}

Affine AttentionBlock::at(int64_t rows, int64_t columns, const Affine &row,
                          const Affine &column) const {
  return ((batch * rows + row) * attention.heads + head) * columns + column;
}

/// What the function only reads, once for every index.
Value AttentionBlock::load(Value pointer, const Affine &index, Type type) {
  Value &known = loaded[{pointer.getAsOpaquePointer(), index}];
  if (!known)
    known = e.load(pointer, type ? type : e.here().getF32Type(), index);
  return known;
}

Value AttentionBlock::perQuery(Value pointer, const Affine &query, int64_t plane) {
  Affine index = headIndex() * attention.queries + e.clamped(query, attention.queries) +
                 Affine(plane * allQueries());
  return load(pointer, index);
}

/// The first of those that are not always there.
static unsigned extraOperand(const Attention &attention) {
  return attention.kind == AttentionKind::forward ? 3 : 7;
}

RandomStream AttentionBlock::randomStream() {
  unsigned state = extraOperand(attention) + (attention.bias ? 1 : 0);
  auto element = [&](unsigned operand, int64_t at) {
    return load(e.arguments[operand], Affine(at), e.here().getI64Type());
  };
  return {element(state, 0), element(state, 1), element(state + 1, 0), element(state + 1, 1)};
}

Value AttentionBlock::score(Value sum, const Affine &row, const Affine &column) {
  Value scale = f32(attention.scale);
  if (!attention.bias)
    return multiply(sum, scale);
  bool byKeys = pass == AttentionPass::keys;
  Affine query = e.clamped(byKeys ? column : row, attention.queries),
         key = e.clamped(byKeys ? row : column, attention.keys);
  const std::array<int64_t, 4> &strides = attention.biasStrides;
  Affine index = batch * strides[0] + head * strides[1] + query * strides[2] + key * strides[3];
  Value bias = load(e.arguments[extraOperand(attention)], index);
  return fma(sum, scale, bias);
}

Value AttentionBlock::f32(float value) {
  return arith::ConstantOp::create(e.here(), e.loc, e.here().getF32FloatAttr(value));
}

Value AttentionBlock::multiply(Value a, Value b) {
  return arith::MulFOp::create(e.here(), e.loc, a, b);
}

Value AttentionBlock::add(Value a, Value b) { return arith::AddFOp::create(e.here(), e.loc, a, b); }

Value AttentionBlock::compare(arith::CmpFPredicate how, Value a, Value b) {
  return arith::CmpFOp::create(e.here(), e.loc, how, a, b);
}

Value AttentionBlock::subtract(Value a, Value b) {
  return arith::SubFOp::create(e.here(), e.loc, a, b);
}

Value AttentionBlock::fma(Value a, Value b, Value c) {
  return math::FmaOp::create(e.here(), e.loc, a, b, c);
}

//   exp(x - y) = 2^((x - y) · log₂ e): a GPU has an instruction for the power of two, with two
//   units in the last place; what would be subnormal is zero. x is the difference of two scores, so
//   that no score, however large, overflows.
Value AttentionBlock::exponential(Value x, Value y) {
  Value factor = f32(1.44269504088896341f);
  Value power = y ? fma(x, factor, multiply(y, f32(-1.44269504088896341f))) : multiply(x, factor);
  OpBuilder &b = e.here();
  return LLVM::CallIntrinsicOp::create(b, e.loc, b.getF32Type(),
                                       b.getStringAttr("llvm.nvvm.ex2.approx.ftz.f32"),
                                       ValueRange{power})
      .getResult(0);
}

void AttentionBlock::store(Value pointer, int64_t columns, const Affine &row, const Affine &column,
                           ValueRange values) {
  int64_t width = dividing(columns, static_cast<int64_t>(values.size()));
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); i += width) {
    Affine first = column + Affine(i);
    Value exists = e.both(e.inside(row, rows), e.inside(first, columns), e.depth());
    e.guarded(exists, [&] {
      SmallVector<Value> rounded;
      for (Value value : values.slice(i, width))
        rounded.push_back(e.convert(value, attention.element, e.depth()));
      storeTogether(e, pointer, at(rows, columns, row, first), rounded);
    });
  }
}

} // namespace mpc::gpu
