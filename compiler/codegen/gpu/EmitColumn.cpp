//===- EmitColumn.cpp - reductions over the leading dimensions, on a GPU ----------------===//
//
// As on the CPU: NAME$partial reduces chunks of rows, whose number depends on the shapes only,
// into the scratch; NAME$combine adds the chunks in order and computes what follows from the
// sums.
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/GpuEmitter.h"

using namespace mlir;

namespace mpc::gpu {

namespace {
constexpr int64_t kWarps = kBlockThreads / kWarp;

struct ColumnKernel {
  explicit ColumnKernel(func::FuncOp kernel) : kernel(kernel) {}

  func::FuncOp kernel;
  ColumnGrid grid = columnGrid(kernel);
  SmallVector<Function, 2> function = functions(kernel);

  size_t count() const { return grid.reductions.size(); }
  ReduceOp reduction(size_t i) const { return cast<ReduceOp>(grid.reductions[i]); }
  Type accumulator(size_t i) const { return Emitter::accumulatorOf(reduction(i)); }
  SmallVector<Value> identities(Emitter &e) const {
    SmallVector<Value> values;
    for (size_t i = 0; i < count(); ++i)
      values.push_back(e.identity(reduction(i).getKind(), accumulator(i)));
    return values;
  }
  Value add(Emitter &e, size_t i, Value sum, Value x) const {
    return e.accumulate(e.here(), reduction(i).getKind(), sum, x, /*reassociate=*/false);
  }
  /// Element of the scratch that holds reduction i's partial result.
  Affine partial(size_t i, const Affine &chunk, const Affine &column) const {
    return chunk * grid.columns + column + Affine(grid.offsets[i] / storedBytes(accumulator(i)));
  }
  void storeResults(GpuEmitter &e, const Affine &column, ArrayRef<Value> sums, Value isOwner);

  LogicalResult emitPartial();
  LogicalResult emitPartialScalar();
  LogicalResult emitCombine();
  LogicalResult emitCombineScalar();
};
} // namespace

//   block (chunk, stripe), warp w, lane l, columns k = (stripe · 32 + l) · together + i:
//     sum[i] = Σ x(r, k) over the chunk's rows r = w, w + 8, …;  then over the warps in order
LogicalResult ColumnKernel::emitPartial() {
  GpuEmitter e(kernel, function[0]);
  auto [chunk, stripe] = e.divide(e.block, grid.stripes);
  auto [warp, lane] = e.divide(e.thread, kWarp);
  Affine piece = stripe * kWarp + lane;
  int64_t pieces = grid.columns / grid.together;
  Affine first = e.clamped(piece, pieces) * grid.together;
  Value low = e.index(chunk * grid.rowsPerChunk + warp);
  Value high = e.lesser(e.index(chunk * grid.rowsPerChunk + Affine(grid.rowsPerChunk)),
                        e.constant(grid.rows));
  SmallVector<Value> identity = identities(e), starts;
  for (int64_t i = 0; i < grid.together; ++i)
    starts.append(identity);
  SmallVector<Value> sums = e.loop(
      low, high, kWarps, 0, grid.rows - 1, 0, starts, [&](const Affine &r, ValueRange carried) {
        SmallVector<Value> next(carried);
        for (int64_t i = 0; i < grid.together; ++i)
          for (size_t k = 0; k < count(); ++k) {
            Value &sum = next[i * count() + k];
            sum = add(e, k, sum, e.operandOf(reduction(k), r * grid.columns + first + i));
          }
        return next;
      });
  SmallVector<Value> shared;
  for (size_t k = 0; k < count(); ++k) {
    shared.push_back(e.sharedArray(accumulator(k), kBlockThreads * grid.together));
    for (int64_t i = 0; i < grid.together; ++i)
      e.store(shared[k], sums[i * count() + k], e.thread * grid.together + i);
  }
  e.barrier();
  e.guarded(e.inside(warp, 1), [&] {
    e.guarded(e.inside(piece, pieces), [&] {
      for (size_t k = 0; k < count(); ++k)
        for (int64_t i = 0; i < grid.together; ++i) {
          Value sum;
          for (int64_t w = 0; w < kWarps; ++w) {
            Affine at = (lane + Affine(w * kWarp)) * grid.together + i;
            Value x = e.loadHere(shared[k], accumulator(k), at);
            sum = sum ? add(e, k, sum, x) : x;
          }
          e.store(e.scratch, sum, partial(k, chunk, first + i));
        }
    });
  });
  return e.finish();
}

//   block c, thread t:  sum = Σ x(e) over the chunk's elements that are its turn;  then over the
//   block
LogicalResult ColumnKernel::emitPartialScalar() {
  GpuEmitter e(kernel, function[0]);
  SmallVector<Value> identity = identities(e);
  int64_t steps = grid.rowsPerChunk / (kBlockThreads * grid.together);
  int64_t pieces = grid.rows / grid.together;
  SmallVector<Value> sums = e.loop(steps, 0, identity, [&](const Affine &step, ValueRange carried) {
    Affine piece = e.block * (grid.rowsPerChunk / grid.together) + step * kBlockThreads + e.thread;
    Value exists = e.inside(piece, pieces);
    Affine first = e.clamped(piece, pieces) * grid.together;
    SmallVector<Value> next(carried);
    for (int64_t i = 0; i < grid.together; ++i)
      for (size_t k = 0; k < count(); ++k) {
        Value x = e.operandOf(reduction(k), first + i);
        next[k] = add(e, k, next[k], e.select(exists, x, identity[k]));
      }
    return next;
  });
  SmallVector<Value> totals;
  for (size_t k = 0; k < count(); ++k)
    totals.push_back(
        e.combineBlock(reduction(k).getKind(), sums[k], e.sharedArray(accumulator(k), kWarps)));
  e.guarded(e.inside(e.thread, 1), [&] {
    for (size_t k = 0; k < count(); ++k)
      e.store(e.scratch, totals[k], partial(k, e.block, Affine(0)));
  });
  return e.finish();
}

/// Every thread that comes here computes the column's results; the owner stores them (null: every
/// one).
void ColumnKernel::storeResults(GpuEmitter &e, const Affine &column, ArrayRef<Value> sums,
                                Value isOwner) {
  DenseMap<Value, Value> known;
  for (size_t k = 0; k < count(); ++k)
    known[reduction(k).getResult()] =
        e.convert(sums[k], getElementTypeOrSelf(reduction(k).getType()), e.depth());
  e.resolve = [&](Value tensor, const Affine &at) -> Value {
    auto reduce = tensor.getDefiningOp<ReduceOp>();
    if (reduce && !(at == column))
      e.fail(reduce, "is read for another column");
    return known.lookup(tensor);
  };
  SmallVector<Value> values;
  for (Value result : kernelResults(kernel))
    values.push_back(e.emit(result, column));
  // The others of the warp have read what the owner overwrites.
  if (isOwner && worksInPlace(kernel))
    e.warpBarrier();
  e.guarded(isOwner, [&] {
    for (auto [i, value] : llvm::enumerate(values))
      e.store(e.results[i], value, column);
  });
  e.resolve = nullptr;
}

//   thread per column:  sum = Σ partial(c, k) over the chunks in order
LogicalResult ColumnKernel::emitCombine() {
  GpuEmitter e(kernel, function[1]);
  Affine index = e.block * kBlockThreads + e.thread;
  e.guarded(e.inside(index, grid.columns), [&] {
    Affine column = e.known(index, grid.columns, e.depth());
    SmallVector<Value> sums =
        e.loop(grid.chunks, 0, identities(e), [&](const Affine &chunk, ValueRange carried) {
          SmallVector<Value> next;
          for (size_t k = 0; k < count(); ++k)
            next.push_back(add(e, k, carried[k],
                               e.loadHere(e.scratch, accumulator(k), partial(k, chunk, column))));
          return next;
        });
    storeResults(e, column, sums, {});
  });
  return e.finish();
}

//   one warp:  lane l adds up the chunks l, l + 32, …;  then over the lanes
LogicalResult ColumnKernel::emitCombineScalar() {
  GpuEmitter e(kernel, function[1]);
  SmallVector<Value> identity = identities(e);
  SmallVector<Value> sums =
      e.loop(llvm::divideCeil(grid.chunks, kWarp), 0, identity,
             [&](const Affine &step, ValueRange carried) {
               Affine chunk = step * kWarp + e.thread;
               Value exists = e.inside(chunk, grid.chunks);
               Affine known = e.clamped(chunk, grid.chunks);
               SmallVector<Value> next;
               for (size_t k = 0; k < count(); ++k) {
                 Value x = e.loadHere(e.scratch, accumulator(k), partial(k, known, Affine(0)));
                 next.push_back(add(e, k, carried[k], e.select(exists, x, identity[k])));
               }
               return next;
             });
  for (size_t k = 0; k < count(); ++k)
    sums[k] = e.combineWarp(reduction(k).getKind(), sums[k]);
  storeResults(e, Affine(0), sums, e.inside(e.thread, 1));
  return e.finish();
}

LogicalResult emitColumn(func::FuncOp kernel) {
  ColumnKernel column(kernel);
  bool isScalar = column.grid.columns == 1;
  if (failed(isScalar ? column.emitPartialScalar() : column.emitPartial()))
    return failure();
  return isScalar ? column.emitCombineScalar() : column.emitCombine();
}

} // namespace mpc::gpu
