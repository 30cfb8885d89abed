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
/// w = (i + pad) mod stride + j · stride, for j = 0, 1, … as long as w is in the window. Where
/// there are no more windows than that, all are tried, from the last one on: w = i + pad - o ·
/// stride. With dilation every cell is tried: o = (i + pad - w · dilation) / stride if that is
/// whole.
SmallVector<Value> Emitter::backwardCells(const PoolWindow &window, ArrayRef<Affine> indices,
                                          ArrayRef<int64_t> output, ValueRange inits,
                                          CellBody body) {
  SmallVector<int64_t> extents;
  for (size_t d = 0; d < window.rank(); ++d)
    extents.push_back(window.covering(d, output[window.first + d]));
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
                      if (window.isDilated()) {
                        auto [quotient, rest] =
                            divide(padded - which[d] * window.dilations[d], window.strides[d]);
                        cell.valid = both(cell.valid, inside(rest, 1), depth);
                        o = quotient;
                      } else if (extents[d] == output[dim]) {
                        o = Affine(output[dim] - 1) - which[d];
                        place[d] = padded - o * window.strides[d];
                        cell.valid = both(cell.valid, inside(place[d], window.kernel[d]), depth);
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

  // The first cell wins, then a larger one, or a NaN: it is larger than nothing and stays. Its
  // place is kept as wide as the values are: one mask chooses both.
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
  Value winner = best[1];
  if (Type stored = getElementTypeOrSelf(op.getIndex().getType()); stored != i32)
    winner = arith::TruncIOp::create(this->at(depth(at)), loc, stored, winner);
  elements[{op.getResult(), id}] = value;
  elements[{op.getIndex(), id}] = winner;
  return result == op.getResult() ? value : winner;
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

/// How many cells of a window count: per dimension those w < kernel with 0 ≤ first + w · dilation <
/// size, where first is the place of cell 0. Before a limit lie clamp(⌈(limit - first) /
/// dilation⌉, 0, kernel) of them; the code does not grow with the kernel.
Value Emitter::divisor(const PoolWindow &window, ArrayRef<Affine> indices, ArrayRef<int64_t> input,
                       bool includePad, Type type) {
  unsigned deepest = 0;
  for (const Affine &i : indices)
    deepest = std::max(deepest, depth(i));
  double known = 1;
  Value count;
  for (size_t d = 0; d < window.rank(); ++d) {
    unsigned dim = window.first + d, rank = window.rank();
    int64_t before = includePad ? window.pads[d] : 0,
            after = includePad ? window.pads[rank + d] : 0, kernel = window.kernel[d],
            dilation = window.dilations[d], size = input[dim] + before + after;
    Affine first = indices[dim] * window.strides[d] + Affine(before - window.pads[d]);
    auto [low, high] = range(first);
    bool startsInside = low >= 0, endsInside = high + (kernel - 1) * dilation < size;
    if (startsInside && endsInside) {
      known *= static_cast<double>(kernel);
      continue;
    }
    auto cellsBefore = [&](int64_t limit) -> Value {
      // ⌈a / b⌉ = ⌊(a + b - 1) / b⌋
      Value value = index(Affine(limit + dilation - 1) - first), zero = constant(0),
            step = constant(dilation), most = constant(kernel);
      OpBuilder &b = at(depth(first));
      value = arith::MaxSIOp::create(b, loc, value, zero);
      if (dilation != 1)
        value = arith::DivUIOp::create(b, loc, value, step);
      return arith::MinSIOp::create(b, loc, value, most);
    };
    Value cells = endsInside ? constant(kernel) : cellsBefore(size), one = constant(1);
    if (!startsInside) {
      Value outside = cellsBefore(0);
      cells = arith::SubIOp::create(at(depth(first)), loc, cells, outside);
    }
    // A window wholly outside divides zero by one.
    OpBuilder &b = at(depth(first));
    cells = arith::MaxSIOp::create(b, loc, cells, one);
    Value factor = arith::SIToFPOp::create(b, loc, type, cells);
    count = count ? arith::MulFOp::create(at(deepest), loc, count, factor).getResult() : factor;
  }
  OpBuilder &b = at(deepest);
  Value factor = arith::ConstantOp::create(b, loc, b.getFloatAttr(type, known));
  return count ? arith::MulFOp::create(b, loc, count, factor).getResult() : factor;
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
