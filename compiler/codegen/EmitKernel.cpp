//===- EmitKernel.cpp - map, row and scatter kernels --------------------------------===//

#include "compiler/codegen/Emitter.h"
#include "compiler/codegen/RowPhases.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace mpc {

LogicalResult emitKernel(func::FuncOp kernel) {
  KernelAttr attr = getKernelAttr(kernel);
  if (elementsOf(attr.getDomain().asArrayRef()) == 0)
    return Emitter(kernel, kernel.getName()).finish();
  if (getScatterRoot(kernel))
    return emitScatterKernel(kernel);
  switch (attr.getKind()) {
  case KernelKind::map:
    return emitMapKernel(kernel);
  case KernelKind::row:
    return emitRowKernel(kernel);
  case KernelKind::column:
    return emitColumnKernel(kernel);
  }
  return failure();
}

//===----------------------------------------------------------------------------===//
// map
//===----------------------------------------------------------------------------===//

LogicalResult emitMapKernel(func::FuncOp kernel) {
  NestLoops loops = mapLoops(kernel);
  Emitter e(kernel, kernel.getName());
  // All elements are computed before the first is stored: a result may overwrite an argument.
  auto element = [&](const Affine &at) {
    SmallVector<Value> values;
    for (Value result : kernelResults(kernel))
      values.push_back(e.emit(result, at));
    for (auto [i, value] : llvm::enumerate(values))
      e.store(e.results[i], value, at);
  };
  e.rangeLoop(loops.rows, loops.inner, [&](const Affine &row) {
    e.loop(loops.inner / loops.together, loops.together, {}, [&](const Affine &k, ValueRange) {
      for (int64_t i = 0; i < loops.together; ++i)
        element(row * loops.inner + k * loops.together + i);
      return SmallVector<Value>();
    });
  });
  return e.finish();
}

//===----------------------------------------------------------------------------===//
// row
//===----------------------------------------------------------------------------===//

namespace {

/// One loop over the row per phase: a phase's reductions are known behind its loop, and what a
/// later phase reads again is kept, in a result or in an array of the frame.
class RowKernel {
public:
  explicit RowKernel(func::FuncOp kernel)
      : kernel(kernel), loops(rowLoops(kernel)), columns(loops.innerOuter * loops.inner),
        phases(kernel, loops.rows, columns), e(kernel, kernel.getName()) {}
  LogicalResult emit();

private:
  using Body = llvm::function_ref<SmallVector<Value>(ValueRange)>;
  /// for j: for k, at element row · columns + j · inner + k
  SmallVector<Value> overRow(ValueRange inits, Body body);
  Value known(Value tensor, const Affine &at);
  void reducePhase();
  void lastPhase();
  void storeResults(ArrayRef<unsigned> which, const Affine &at);
  const Affine &place(const RowPhases::Kept &keep) const {
    return keep.result >= 0 ? element : column;
  }

  func::FuncOp kernel;
  NestLoops loops;
  int64_t columns;
  RowPhases phases;
  Emitter e;
  Affine row;
  Affine element, column; ///< of the loop being built
  unsigned phase = 0;
  DenseMap<Value, Value> reduced; ///< the row's reductions so far
};

SmallVector<Value> RowKernel::overRow(ValueRange inits, Body body) {
  int64_t together = phases.random[phase] ? loops.together : 1;
  return e.loop(loops.innerOuter, loops.inner, inits, [&](const Affine &j, ValueRange outer) {
    return e.loop(loops.inner / together, together, outer,
                  [&](const Affine &k, ValueRange carried) {
                    SmallVector<Value> next(carried);
                    for (int64_t i = 0; i < together; ++i) {
                      column = j * loops.inner + k * together + i;
                      element = row * columns + column;
                      next = body(next);
                    }
                    return next;
                  });
  });
}

/// A reduction of this row, or what an earlier phase has kept at this element; else null.
Value RowKernel::known(Value tensor, const Affine &at) {
  if (auto reduce = tensor.getDefiningOp<ReduceOp>()) {
    if (Value value = at == row ? reduced.lookup(tensor) : Value())
      return value;
    e.fail(reduce, "is read for another row, or before it is known");
    return e.identity(reduce.getKind(), getElementTypeOrSelf(reduce.getType()));
  }
  auto keep = phases.kept.find(tensor);
  if (keep != phases.kept.end() && keep->second.phase < phase && at == element)
    return e.loadHere(keep->second.array, getElementTypeOrSelf(tensor.getType()),
                      place(keep->second));
  return {};
}

void RowKernel::reducePhase() {
  MutableArrayRef<ReduceOp> reductions = phases.reductions[phase];
  SmallVector<Value> inits;
  for (ReduceOp reduce : reductions)
    inits.push_back(e.startCarried(reduce));
  SmallVector<Value> sums = overRow(inits, [&](ValueRange carried) {
    SmallVector<Value> next, operands;
    for (ReduceOp reduce : reductions)
      operands.push_back(e.operandOf(reduce, element));
    for (auto &[value, keep] : phases.kept)
      if (keep.phase == phase)
        e.store(keep.array, e.emit(value, element), place(keep));
    for (auto [i, reduce] : llvm::enumerate(reductions))
      next.push_back(e.carryOn(reduce, carried[i], operands[i]));
    return next;
  });
  for (auto [i, reduce] : llvm::enumerate(reductions))
    reduced[reduce.getResult()] =
        e.convert(e.endCarried(reduce, sums[i]), getElementTypeOrSelf(reduce.getType()), e.depth());
}

void RowKernel::storeResults(ArrayRef<unsigned> which, const Affine &at) {
  SmallVector<Value> values;
  for (unsigned i : which)
    values.push_back(e.emit(kernelResults(kernel)[i], at));
  for (auto [i, value] : llvm::zip(which, values))
    e.store(e.results[i], value, at);
}

/// What has the domain's shape and is not there yet, then what has one element per row.
void RowKernel::lastPhase() {
  SmallVector<unsigned> wide, narrow;
  for (auto [i, result] : llvm::enumerate(kernelResults(kernel))) {
    auto keep = phases.kept.find(result);
    if (columns != 1 && elementsOf(tensorShape(result)) == loops.rows)
      narrow.push_back(i);
    else if (keep == phases.kept.end() || keep->second.result != static_cast<int64_t>(i))
      wide.push_back(i);
  }
  if (!wide.empty())
    overRow({}, [&](ValueRange) {
      storeResults(wide, element);
      return SmallVector<Value>();
    });
  element = Affine(-1); // no kept value beyond this
  storeResults(narrow, row);
}

LogicalResult RowKernel::emit() {
  for (auto &[value, keep] : phases.kept)
    keep.array = keep.result >= 0 ? e.results[keep.result]
                                  : e.array(getElementTypeOrSelf(value.getType()), columns);
  e.resolve = [this](Value tensor, const Affine &at) { return known(tensor, at); };
  e.rangeLoop(loops.rows, columns, [&](const Affine &at) {
    row = at;
    for (; phase + 1 < phases.reductions.size(); ++phase)
      reducePhase();
    lastPhase();
  });
  e.resolve = nullptr;
  return e.finish();
}

} // namespace

LogicalResult emitRowKernel(func::FuncOp kernel) { return RowKernel(kernel).emit(); }

//===----------------------------------------------------------------------------===//
// scatter_add
//===----------------------------------------------------------------------------===//

LogicalResult emitScatterKernel(func::FuncOp kernel) {
  ScatterAddOp scatter = getScatterRoot(kernel);
  ScatterLoops loops = scatterLoops(scatter);
  bool inPlace = getKernelAttr(kernel).getAliases()[0] >= 0;
  Emitter e(kernel, kernel.getName());
  if (kernel.getNumResults() != 1)
    e.fail(scatter, "must be the kernel's only result");
  Type type = getElementTypeOrSelf(scatter.getType());
  Value result = e.results[0];

  // The elements [low, high) behind the axis: every one is initialized, then gets its updates in
  // the order of the indices.
  auto block = [&](const Affine &before, Value low, Value high) {
    auto behind = [&](llvm::function_ref<void(const Affine &)> body) {
      e.loop(low, high, 1, 0, loops.behind - 1, 1, {}, [&](const Affine &k, ValueRange) {
        body(k);
        return SmallVector<Value>();
      });
    };
    Affine first = before * loops.size;
    if (!inPlace)
      e.loop(loops.size, loops.behind, {}, [&](const Affine &v, ValueRange) {
        behind([&](const Affine &k) {
          Affine at = (first + v) * loops.behind + k;
          e.store(result,
                  scatter.getInit() ? e.emit(scatter.getInit(), at)
                                    : e.identity(ReductionKind::sum, type),
                  at);
        });
        return SmallVector<Value>();
      });
    e.loop(loops.count, loops.behind, {}, [&](const Affine &i, ValueRange) {
      Value position = e.emit(scatter.getIndices(), i), zero = e.constant(0),
            last = e.constant(loops.size - 1);
      OpBuilder &b = e.here();
      if (!position.getType().isInteger(64))
        position = arith::ExtSIOp::create(b, e.loc, b.getI64Type(), position);
      position =
          arith::MinSIOp::create(b, e.loc, arith::MaxSIOp::create(b, e.loc, position, zero), last);
      Affine v = e.addBase(0, loops.size - 1, e.depth(), 0, position);
      behind([&](const Affine &k) {
        Affine at = (first + v) * loops.behind + k;
        Value update =
            e.convert(e.emit(scatter.getUpdates(), (before * loops.count + i) * loops.behind + k),
                      type, e.depth());
        Value old = e.loadHere(result, type, at);
        e.store(result, e.accumulate(e.here(), ReductionKind::sum, old, update, false), at);
      });
      return SmallVector<Value>();
    });
  };

  if (loops.before == 1) {
    Value size = e.constant(loops.block), limit = e.constant(loops.behind);
    OpBuilder &b = e.here();
    Value low = arith::MulIOp::create(b, e.loc, e.begin, size);
    Value high =
        arith::MinSIOp::create(b, e.loc, arith::MulIOp::create(b, e.loc, e.end, size), limit);
    block(Affine(0), low, high);
  } else {
    e.rangeLoop(loops.before, loops.behind, [&](const Affine &before) {
      block(before, e.constant(0), e.constant(loops.behind));
    });
  }
  return e.finish();
}

} // namespace mpc
