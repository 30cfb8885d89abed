//===- EmitWindow.cpp - elements of pooling and of its gradients -------------------===//
//
// Per spatial dimension, output o and window cell w meet the input at
//
//   i = o · stride + w · dilation - pad
//
// Forward goes over the cells of a window, backward over the windows that cover an input.
// A cell outside moves to the nearest inside and counts as nothing: the test then depends
// on outer loops only (channels last), and the innermost loop has no branch.
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/Emitter.h"

using namespace mlir;

namespace mpc {

Value Emitter::both(Value a, Value b, unsigned depth) {
  if (!a || !b)
    return a ? a : b;
  return arith::AndIOp::create(at(depth), loc, a, b);
}

/// The product of `extents` in row-major order: one by one where it is small, else as loops in the
/// scope `depth`.
SmallVector<Value> Emitter::overGrid(
    ArrayRef<int64_t> extents, unsigned depth, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(ArrayRef<Affine>, ValueRange, unsigned)> body) {
  int64_t cells = elementsOf(extents);
  SmallVector<Value> values(inits);
  if (cells <= kUnrolledCells) {
    for (int64_t cell = 0; cell < cells; ++cell)
      values = body(split(Affine(cell), extents), values, depth);
    return values;
  }
  SmallVector<Affine> indices;
  std::function<SmallVector<Value>(size_t, ValueRange, unsigned)> nest =
      [&](size_t d, ValueRange carried, unsigned depth) -> SmallVector<Value> {
    if (d == extents.size())
      return body(indices, carried, depth);
    // The loop belongs to the scope `depth`, which need not be the innermost one being built.
    SmallVector<Scope> inner(scopes.begin() + depth + 1, scopes.end());
    scopes.truncate(depth + 1);
    Operation *child = scopes.back().child;
    Value low = constant(0), high = constant(extents[d]);
    SmallVector<Value> result =
        loop(low, high, 1, 0, extents[d] - 1, 0, carried, [&](const Affine &i, ValueRange next) {
          indices.push_back(i);
          SmallVector<Value> out = nest(d + 1, next, depth + 1);
          indices.pop_back();
          return out;
        });
    scopes.back().child = child;
    scopes.append(inner.begin(), inner.end());
    return result;
  };
  return nest(0, values, depth);
}

SmallVector<Value> Emitter::forwardCells(const PoolWindow &window, ArrayRef<Affine> indices,
                                         ArrayRef<int64_t> input, ValueRange inits, CellBody body) {
  unsigned depth = 0;
  for (const Affine &i : indices)
    depth = std::max(depth, this->depth(i));
  return overGrid(window.kernel, depth, inits,
                  [&](ArrayRef<Affine> place, ValueRange carried, unsigned depth) {
                    Cell cell{SmallVector<Affine>(indices), join(place, window.kernel), {}};
                    for (size_t d = 0; d < window.rank(); ++d) {
                      unsigned dim = window.first + d;
                      Affine i = indices[dim] * window.strides[d] + place[d] * window.dilations[d] +
                                 Affine(-window.pads[d]);
                      cell.valid = both(cell.valid, inside(i, input[dim]), depth);
                      cell.index[dim] = clamped(i, input[dim]);
                    }
                    return body(cell, carried, depth);
                  });
}

/// Without dilation, the windows that cover input i are o = ⌊(i + pad) / stride⌋ - j, at their cell
/// w = (i + pad) mod stride + j · stride, for j = 0, 1, … as long as w is in the window. With
/// dilation every cell is tried: o = (i + pad - w · dilation) / stride if that is whole.
SmallVector<Value> Emitter::backwardCells(const PoolWindow &window, ArrayRef<Affine> indices,
                                          ArrayRef<int64_t> output, ValueRange inits,
                                          CellBody body) {
  bool dilated = llvm::any_of(window.dilations, [](int64_t d) { return d != 1; });
  SmallVector<int64_t> extents;
  for (size_t d = 0; d < window.rank(); ++d)
    extents.push_back(dilated ? window.kernel[d] : window.covering(d));
  unsigned depth = 0;
  for (const Affine &i : indices)
    depth = std::max(depth, this->depth(i));
  return overGrid(extents, depth, inits,
                  [&](ArrayRef<Affine> which, ValueRange carried, unsigned depth) {
                    Cell cell{SmallVector<Affine>(indices), {}, {}};
                    SmallVector<Affine> place(which);
                    for (size_t d = 0; d < window.rank(); ++d) {
                      unsigned dim = window.first + d;
                      Affine padded = indices[dim] + Affine(window.pads[d]), o;
                      if (dilated) {
                        auto [quotient, rest] =
                            divide(padded - which[d] * window.dilations[d], window.strides[d]);
                        cell.valid = both(cell.valid, inside(rest, 1), depth);
                        o = quotient;
                      } else {
                        auto [quotient, rest] = divide(padded, window.strides[d]);
                        o = quotient - which[d];
                        place[d] = rest + which[d] * window.strides[d];
                        cell.valid = both(cell.valid, inside(place[d], window.kernel[d]), depth);
                      }
                      cell.valid = both(cell.valid, inside(o, output[dim]), depth);
                      cell.index[dim] = clamped(o, output[dim]);
                    }
                    cell.place = join(place, window.kernel);
                    return body(cell, carried, depth);
                  });
}

static Value select(OpBuilder &b, Location loc, Value condition, Value yes, Value no) {
  return condition ? arith::SelectOp::create(b, loc, condition, yes, no).getResult() : yes;
}

Value Emitter::emitMaxPool(MaxPoolOp op, Value result, const Affine &at) {
  PoolWindow window(op);
  ArrayRef<int64_t> input = tensorShape(op.getInput());
  SmallVector<Affine> indices = split(at, tensorShape(op.getResult()));
  Type type = getElementTypeOrSelf(op.getInput().getType());
  Type computed = isa<FloatType>(type) ? accumulatorType(type, type) : type;
  Value lowest = identity(ReductionKind::max, computed);
  auto element = [&](const Cell &cell, unsigned depth) {
    return convert(emit(op.getInput(), join(cell.index, input)), computed, depth);
  };

  if (op.getIndex().use_empty()) {
    SmallVector<Value> best = forwardCells(
        window, indices, input, lowest, [&](const Cell &cell, ValueRange carried, unsigned depth) {
          Value x = element(cell, depth);
          x = select(this->at(depth), loc, cell.valid, x, lowest);
          return SmallVector<Value>{
              carried[0] == lowest
                  ? x
                  : accumulate(this->at(depth), ReductionKind::max, carried[0], x, false)};
        });
    return convert(best[0], type, depth(at));
  }

  // The first cell wins, then a larger one, or a NaN: it is larger than nothing and stays.
  Type i32 = builder.getI32Type();
  Value none = arith::ConstantOp::create(this->at(0), loc, builder.getI32IntegerAttr(-1));
  SmallVector<Value> best = forwardCells(
      window, indices, input, {lowest, none},
      [&](const Cell &cell, ValueRange carried, unsigned depth) {
        Value x = element(cell, depth), place = index(cell.place);
        OpBuilder &b = this->at(depth);
        place = arith::TruncIOp::create(b, loc, i32, place);
        Value first =
            arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, carried[1],
                                  arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0)));
        Value wins;
        if (isa<FloatType>(computed)) {
          Value larger = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, x, carried[0]);
          Value isNaN = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, x, x);
          wins = arith::OrIOp::create(b, loc, larger, isNaN);
        } else {
          wins = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, x, carried[0]);
        }
        wins = both(arith::OrIOp::create(b, loc, wins, first), cell.valid, depth);
        return SmallVector<Value>{select(b, loc, wins, x, carried[0]),
                                  select(b, loc, wins, place, carried[1])};
      });
  Value value = convert(best[0], type, depth(at));
  unsigned id = interned.try_emplace(at, interned.size()).first->second;
  elements[{op.getResult(), id}] = value;
  elements[{op.getIndex(), id}] = best[1];
  return result == op.getResult() ? value : best[1];
}

Value Emitter::emitMaxPoolGrad(MaxPoolGradOp op, const Affine &at) {
  PoolWindow window(op);
  ArrayRef<int64_t> output = tensorShape(op.getOutputGradient());
  SmallVector<Affine> indices = split(at, tensorShape(op.getResult()));
  Type type = getElementTypeOrSelf(op.getOutputGradient().getType()),
       sumType = accumulatorType(type, type);
  Value zero = identity(ReductionKind::sum, sumType);
  SmallVector<Value> sum = backwardCells(
      window, indices, output, zero, [&](const Cell &cell, ValueRange carried, unsigned depth) {
        Affine element = join(cell.index, output);
        Value winner = emit(op.getIndex(), element), place = index(cell.place);
        Value gradient = convert(emit(op.getOutputGradient(), element), sumType, depth);
        OpBuilder &b = this->at(depth);
        place = arith::TruncIOp::create(b, loc, winner.getType(), place);
        Value won = both(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, winner, place),
                         cell.valid, depth);
        gradient = select(b, loc, won, gradient, zero);
        return SmallVector<Value>{
            carried[0] == zero ? gradient
                               : accumulate(b, ReductionKind::sum, carried[0], gradient, false)};
      });
  return convert(sum[0], getElementTypeOrSelf(op.getType()), depth(at));
}

Value Emitter::divisor(const PoolWindow &window, ArrayRef<Affine> indices, ArrayRef<int64_t> input,
                       bool includePad, Type type) {
  int64_t known = 1;
  Value count;
  for (size_t d = 0; d < window.rank(); ++d) {
    unsigned dim = window.first + d, rank = window.rank();
    int64_t before = includePad ? window.pads[d] : 0,
            after = includePad ? window.pads[rank + d] : 0;
    Value cells;
    int64_t certain = 0;
    for (int64_t w = 0; w < window.kernel[d]; ++w) {
      Affine i = indices[dim] * window.strides[d] +
                 Affine(w * window.dilations[d] - window.pads[d] + before);
      Value valid = inside(i, input[dim] + before + after);
      if (!valid) {
        ++certain;
        continue;
      }
      OpBuilder &b = at(depth(i));
      Value one = arith::ExtUIOp::create(b, loc, b.getI32Type(), valid);
      cells = cells ? arith::AddIOp::create(b, loc, cells, one).getResult() : one;
    }
    if (!cells) {
      known *= certain;
      continue;
    }
    OpBuilder &b = at(depth(indices[dim]));
    cells = arith::AddIOp::create(b, loc, cells,
                                  arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(certain)));
    unsigned deepest = 0;
    for (const Affine &i : indices)
      deepest = std::max(deepest, depth(i));
    count = count ? arith::MulIOp::create(at(deepest), loc, count, cells).getResult() : cells;
  }
  unsigned deepest = 0;
  for (const Affine &i : indices)
    deepest = std::max(deepest, depth(i));
  OpBuilder &b = at(deepest);
  Value factor =
      arith::ConstantOp::create(b, loc, b.getFloatAttr(type, static_cast<double>(known)));
  if (!count)
    return factor;
  // A window wholly outside divides zero by one.
  count = arith::MaxSIOp::create(b, loc, count,
                                 arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(1)));
  return arith::MulFOp::create(b, loc, arith::SIToFPOp::create(b, loc, type, count), factor);
}

Value Emitter::emitAveragePool(AveragePoolOp op, const Affine &at) {
  PoolWindow window(op);
  ArrayRef<int64_t> input = tensorShape(op.getInput());
  SmallVector<Affine> indices = split(at, tensorShape(op.getResult()));
  Type type = getElementTypeOrSelf(op.getInput().getType()),
       sumType = accumulatorType(type, getElementTypeOrSelf(op.getType()));
  Value zero = identity(ReductionKind::sum, sumType);
  SmallVector<Value> sum = forwardCells(
      window, indices, input, zero, [&](const Cell &cell, ValueRange carried, unsigned depth) {
        Value x = convert(emit(op.getInput(), join(cell.index, input)), sumType, depth);
        x = select(this->at(depth), loc, cell.valid, x, zero);
        return SmallVector<Value>{
            carried[0] == zero
                ? x
                : accumulate(this->at(depth), ReductionKind::sum, carried[0], x, false)};
      });
  Value count = divisor(window, indices, input, op.getCountIncludePad(), sumType);
  Value mean = arith::DivFOp::create(this->at(depth(at)), loc, sum[0], count);
  return convert(mean, getElementTypeOrSelf(op.getType()), depth(at));
}

Value Emitter::emitAveragePoolGrad(AveragePoolGradOp op, const Affine &at) {
  PoolWindow window(op);
  ArrayRef<int64_t> output = tensorShape(op.getOutputGradient()),
                    input = tensorShape(op.getResult());
  SmallVector<Affine> indices = split(at, input);
  Type type = getElementTypeOrSelf(op.getOutputGradient().getType()),
       sumType = accumulatorType(type, getElementTypeOrSelf(op.getType()));
  Value zero = identity(ReductionKind::sum, sumType);
  SmallVector<Value> sum = backwardCells(
      window, indices, output, zero, [&](const Cell &cell, ValueRange carried, unsigned depth) {
        Value gradient =
            convert(emit(op.getOutputGradient(), join(cell.index, output)), sumType, depth);
        Value count = divisor(window, cell.index, input, op.getCountIncludePad(), sumType);
        OpBuilder &b = this->at(depth);
        gradient = arith::DivFOp::create(b, loc, gradient, count);
        gradient = select(b, loc, cell.valid, gradient, zero);
        return SmallVector<Value>{
            carried[0] == zero ? gradient
                               : accumulate(b, ReductionKind::sum, carried[0], gradient, false)};
      });
  return convert(sum[0], getElementTypeOrSelf(op.getType()), depth(at));
}

} // namespace mpc
