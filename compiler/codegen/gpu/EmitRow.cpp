//===- EmitRow.cpp - reductions over the rows of a tensor, on a GPU ---------------------===//
//
//   group of threads per row; per phase:
//     sum = identity;  for steps s:  for i:  sum += x[(s · group + lane) · together + i]
//     sum = combine over the group
//   last phase: the results
//
// Short rows are written out: a value that a later phase needs again is still in a register
// there (the emitter remembers what it computed for an index). Long rows are read again, from
// the second-level cache.
//
// Where the row ends inside a step, the threads behind its end take part in reductions with
// its last elements, and in nothing else: they read nothing that another thread overwrites.
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/RowPhases.h"
#include "compiler/codegen/gpu/GpuEmitter.h"

using namespace mlir;

namespace mpc::gpu {

namespace {
struct RowKernel {
  explicit RowKernel(func::FuncOp kernel) : kernel(kernel) {}

  func::FuncOp kernel;
  RowGrid grid = rowGrid(kernel);
  Function function = functions(kernel)[0];
  GpuEmitter e{kernel, function};
  Affine row, lane;
  DenseMap<Value, Value> reduced;

  /// A thread's elements in a step: which piece of the row they are, the first of them or of
  /// those read instead, and whether they exist (null: always).
  struct Piece {
    Affine index, first;
    Value exists;
  };
  int64_t pieces() const { return grid.columns / grid.together; }
  Piece piece(const Affine &step) {
    Affine index = step * grid.group + lane;
    return {index, e.clamped(index, pieces()) * grid.together, e.inside(index, pieces())};
  }
  /// Of a piece that exists, in its branch: this base stands for that index.
  std::optional<std::pair<Affine, Affine>> substitute;
  Value computedBefore(Value tensor, const Affine &at) const;
  SmallVector<Value>
  overRow(SmallVector<Value> carried,
          llvm::function_ref<SmallVector<Value>(const Piece &, ValueRange)> body) {
    if (!grid.unrolled)
      return e.loop(grid.steps, 0, carried, [&](const Affine &step, ValueRange values) {
        return body(piece(step), values);
      });
    for (int64_t step = 0; step < grid.steps; ++step)
      carried = body(piece(Affine(step)), carried);
    return carried;
  }
  void reduce(MutableArrayRef<ReduceOp> reductions);
  void store(ArrayRef<unsigned> results);
  /// What threads of the row have read so far may be overwritten.
  void order() {
    if (!worksInPlace(kernel) || grid.group == 1)
      return;
    grid.group == kWarp ? e.warpBarrier() : e.barrier();
  }
  void run();
};
} // namespace

void RowKernel::reduce(MutableArrayRef<ReduceOp> reductions) {
  SmallVector<Value> identities;
  for (ReduceOp reduce : reductions)
    identities.push_back(e.identity(reduce.getKind(), Emitter::accumulatorOf(reduce)));
  SmallVector<Value> sums = overRow(identities, [&](const Piece &piece, ValueRange carried) {
    SmallVector<Value> next(carried);
    for (int64_t i = 0; i < grid.together; ++i)
      for (auto [r, reduce] : llvm::enumerate(reductions)) {
        Value x = e.operandOf(reduce, row * grid.columns + piece.first + i);
        x = e.select(piece.exists, x, identities[r]);
        next[r] = e.accumulate(e.here(), reduce.getKind(), next[r], x, /*reassociate=*/false);
      }
    return next;
  });
  for (auto [r, reduce] : llvm::enumerate(reductions)) {
    Value sum = sums[r];
    if (grid.group == kWarp)
      sum = e.combineWarp(reduce.getKind(), sum);
    else if (grid.group != 1)
      sum = e.combineBlock(reduce.getKind(), sum, e.sharedArray(sum.getType(), grid.group / kWarp));
    reduced[reduce.getResult()] = e.convert(sum, getElementTypeOrSelf(reduce.getType()), e.depth());
  }
}

void RowKernel::store(ArrayRef<unsigned> results) {
  overRow({}, [&](const Piece &piece, ValueRange) {
    e.guarded(piece.exists, [&] {
      Affine own = e.known(piece.index, pieces(), e.depth());
      if (piece.exists)
        substitute = {own, e.clamped(piece.index, pieces())};
      Affine first = row * grid.columns + own * grid.together;
      SmallVector<SmallVector<Value>> values(results.size());
      for (auto [r, result] : llvm::enumerate(results))
        for (int64_t i = 0; i < grid.together; ++i)
          values[r].push_back(e.emit(kernelResults(kernel)[result], first + i));
      for (auto [r, result] : llvm::enumerate(results))
        for (int64_t i = 0; i < grid.together; ++i)
          e.store(e.results[result], values[r][i], first + i);
      substitute.reset();
    });
    return SmallVector<Value>();
  });
}

/// The value of an earlier phase, where a thread behind the end had the last elements.
Value RowKernel::computedBefore(Value tensor, const Affine &at) const {
  if (!substitute)
    return {};
  auto [own, before] = *substitute;
  for (auto [base, coefficient] : at.terms)
    if (base == own.terms.front().first)
      return e.emitted(tensor, at + (before - own) * coefficient);
  return {};
}

void RowKernel::run() {
  e.resolve = [&](Value tensor, const Affine &at) -> Value {
    auto reduce = tensor.getDefiningOp<ReduceOp>();
    if (!reduce)
      return computedBefore(tensor, at);
    if (Value value = at == row ? reduced.lookup(tensor) : Value())
      return value;
    e.fail(reduce, "is read for another row, or before it is known");
    return e.identity(reduce.getKind(), getElementTypeOrSelf(reduce.getType()));
  };
  RowPhases phases(kernel, grid.rows, grid.columns);
  for (SmallVector<ReduceOp> &reductions : MutableArrayRef(phases.reductions).drop_back())
    reduce(reductions);
  SmallVector<unsigned> wide, narrow;
  for (auto [i, result] : llvm::enumerate(kernelResults(kernel)))
    (grid.columns == 1 || elementsOf(tensorShape(result)) != grid.rows ? wide : narrow)
        .push_back(i);
  if (!wide.empty()) {
    order();
    store(wide);
  }
  // Every thread computes a row's results, one stores them.
  SmallVector<Value> values;
  for (unsigned i : narrow)
    values.push_back(e.emit(kernelResults(kernel)[i], row));
  if (!narrow.empty()) {
    order();
    e.guarded(e.inside(lane, 1), [&] {
      for (auto [i, value] : llvm::zip(narrow, values))
        e.store(e.results[i], value, row);
    });
  }
  e.resolve = nullptr;
}

LogicalResult emitRow(func::FuncOp kernel) {
  RowKernel k(kernel);
  if (k.grid.group == kBlockThreads) {
    k.row = k.e.block;
    k.lane = k.e.thread;
    k.run();
    return k.e.finish();
  }
  auto [place, lane] = k.e.divide(k.e.thread, k.grid.group);
  Affine row = k.e.block * k.grid.rowsPerBlock + place;
  k.lane = lane;
  k.e.guarded(k.e.inside(row, k.grid.rows), [&] {
    k.row = k.e.known(row, k.grid.rows, k.e.depth());
    k.run();
  });
  return k.e.finish();
}

} // namespace mpc::gpu
