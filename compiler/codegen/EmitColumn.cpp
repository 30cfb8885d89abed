//===- EmitColumn.cpp - reductions over the leading dimensions -----------------------===//
//
// NAME.partial reduces chunks of rows, whose number depends on the shapes only, into the
// scratch buffer; NAME.combine goes over the chunks in order and computes what follows from
// the sums. So the order of additions, and every bit of a sum, is the same on any number of
// threads.
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/Emitter.h"

using namespace mlir;

namespace mpc {

namespace {
// Rows that are added up before the sums in memory are touched: a quarter of their traffic.
constexpr int64_t kRowsAtOnce = 4;
// ... where the operands of the reductions are cheap enough to be written four times.
constexpr double kUnrollCost = 40;

struct ColumnKernel {
  func::FuncOp kernel;
  ColumnLoops loops;

  ReduceOp reduction(size_t i) const { return cast<ReduceOp>(loops.reductions[i]); }
  size_t count() const { return loops.reductions.size(); }
  SmallVector<Value> identities(Emitter &e) const {
    SmallVector<Value> values;
    for (size_t i = 0; i < count(); ++i)
      values.push_back(e.identity(reduction(i).getKind(), Emitter::accumulatorOf(reduction(i))));
    return values;
  }
  /// Arrays in the frame that hold a block of columns per reduction.
  SmallVector<Value> arrays(Emitter &e) const {
    SmallVector<Value> values;
    for (size_t i = 0; i < count(); ++i)
      values.push_back(e.array(Emitter::accumulatorOf(reduction(i)), loops.blockColumns));
    return values;
  }
  /// Element of the scratch that holds reduction i's partial result for a chunk and a column.
  Affine partial(size_t i, const Affine &chunk, const Affine &column) const {
    int64_t bytes = storedBytes(Emitter::accumulatorOf(reduction(i)));
    return chunk * (loops.chunkBytes[i] / bytes) + column + Affine(loops.offsets[i] / bytes);
  }
  LogicalResult check();
  LogicalResult emitPartial();
  LogicalResult emitPartialScalar();
  LogicalResult emitCombine();
};
} // namespace

static Value lesser(Emitter &e, Value a, Value b) {
  return arith::MinSIOp::create(e.here(), e.loc, a, b);
}

/// No reduction may need another one's result: there is one pass over the rows.
LogicalResult ColumnKernel::check() {
  for (Operation *op : loops.reductions) {
    AccessWalk walk;
    walk.visit(cast<ReduceOp>(op).getInput(),
               walk.addBase(0, loops.rows * loops.columns * loops.inner, 1));
    for (auto &[value, at] : walk.reached)
      if (value.getDefiningOp<ReduceOp>())
        return op->emitError("code generation of kernel '")
               << kernel.getName()
               << "': a column reduction may not depend on another one of the same kernel";
  }
  return success();
}

//   for position (chunk, block):  sum[k] = 0;  for rows r of the chunk, by 4:  for k:  sum[k] +=
//   (x(r, k) + x(r+1, k)) + (x(r+2, k) + x(r+3, k))
LogicalResult ColumnKernel::emitPartial() {
  Emitter e(kernel, (kernel.getName() + ".partial").str());
  int64_t columns = loops.columns;
  SmallVector<Value> sums = arrays(e), identity = identities(e);
  e.rangeLoop(loops.chunks * loops.blocks, 0, [&](const Affine &position) {
    auto [chunk, block] = e.divide(position, loops.blocks);
    Affine firstRow = chunk * loops.rowsPerChunk, firstColumn = block * loops.blockColumns;
    Value rowLow = e.index(firstRow),
          rowHigh =
              lesser(e, e.index(firstRow + Affine(loops.rowsPerChunk)), e.constant(loops.rows));
    Value low = e.index(firstColumn),
          high = lesser(e, e.index(firstColumn + Affine(loops.blockColumns)), e.constant(columns));
    auto overColumns = [&](llvm::function_ref<void(const Affine &)> body) {
      e.loop(low, high, 1, 0, columns - 1, 1, {}, [&](const Affine &k, ValueRange) {
        body(k);
        return SmallVector<Value>();
      });
    };
    auto addRows = [&](Value from, Value to, int64_t together) {
      e.loop(from, to, together, 0, loops.rows - together, columns, {},
             [&](const Affine &r, ValueRange) {
               overColumns([&](const Affine &k) {
                 SmallVector<Value> totals;
                 for (size_t i = 0; i < count(); ++i) {
                   SmallVector<Value> terms;
                   for (int64_t u = 0; u < together; ++u)
                     terms.push_back(e.operandOf(reduction(i), (r + Affine(u)) * columns + k));
                   for (; terms.size() > 1; terms.resize(terms.size() / 2)) // pairs
                     for (size_t u = 0; u < terms.size() / 2; ++u)
                       terms[u] = e.accumulate(e.here(), reduction(i).getKind(), terms[2 * u],
                                               terms[2 * u + 1], false);
                   Value old = e.loadHere(sums[i], terms[0].getType(), k - firstColumn);
                   totals.push_back(
                       e.accumulate(e.here(), reduction(i).getKind(), old, terms[0], false));
                 }
                 for (size_t i = 0; i < count(); ++i)
                   e.store(sums[i], totals[i], k - firstColumn);
               });
               return SmallVector<Value>();
             });
    };

    overColumns([&](const Affine &k) {
      for (size_t i = 0; i < count(); ++i)
        e.store(sums[i], identity[i], k - firstColumn);
    });
    if (loops.cost <= kUnrollCost && loops.rows >= kRowsAtOnce) {
      Value four = e.constant(kRowsAtOnce);
      OpBuilder &b = e.here();
      Value whole = arith::SubIOp::create(b, e.loc, rowHigh, rowLow);
      whole = arith::SubIOp::create(b, e.loc, whole, arith::RemUIOp::create(b, e.loc, whole, four));
      Value middle = arith::AddIOp::create(b, e.loc, rowLow, whole);
      addRows(rowLow, middle, kRowsAtOnce);
      addRows(middle, rowHigh, 1);
    } else {
      addRows(rowLow, rowHigh, 1);
    }
    overColumns([&](const Affine &k) {
      for (size_t i = 0; i < count(); ++i)
        e.store(e.scratch, e.loadHere(sums[i], identity[i].getType(), k - firstColumn),
                partial(i, chunk, k));
    });
  });
  return e.finish();
}

//   for position (rows, piece):  sum = 0;  for r: for k in the piece:  sum += x(r, k)
LogicalResult ColumnKernel::emitPartialScalar() {
  Emitter e(kernel, (kernel.getName() + ".partial").str());
  int64_t inner = loops.inner;
  e.rangeLoop(loops.chunks, 0, [&](const Affine &chunk) {
    auto [group, piece] = e.divide(chunk, loops.pieces);
    Affine firstRow = group * loops.rowsPerChunk, first = piece * loops.piece;
    Value rowLow = e.index(firstRow),
          rowHigh =
              lesser(e, e.index(firstRow + Affine(loops.rowsPerChunk)), e.constant(loops.rows));
    Value low = e.index(first),
          high = lesser(e, e.index(first + Affine(loops.piece)), e.constant(inner));
    SmallVector<Value> starts;
    for (size_t i = 0; i < count(); ++i)
      starts.push_back(e.startCarried(reduction(i)));
    SmallVector<Value> sums =
        e.loop(rowLow, rowHigh, 1, 0, loops.rows - 1, inner, starts,
               [&](const Affine &r, ValueRange outer) {
                 return e.loop(low, high, 1, 0, inner - 1, 1, outer,
                               [&](const Affine &k, ValueRange carried) {
                                 SmallVector<Value> next;
                                 for (size_t i = 0; i < count(); ++i) {
                                   Value x = e.operandOf(reduction(i), r * inner + k);
                                   next.push_back(e.carryOn(reduction(i), carried[i], x));
                                 }
                                 return next;
                               });
               });
    for (size_t i = 0; i < count(); ++i)
      e.store(e.scratch, e.endCarried(reduction(i), sums[i]), partial(i, chunk, Affine(0)));
  });
  return e.finish();
}

//   for blocks of columns:  sum[k] = partial(0, k);  for chunks c = 1, 2, …:  sum[k] += partial(c,
//   k);  then the results from sum
LogicalResult ColumnKernel::emitCombine() {
  Emitter e(kernel, (kernel.getName() + ".combine").str());
  int64_t columns = loops.columns;
  SmallVector<Value> sums = arrays(e);
  auto load = [&](size_t i, const Affine &chunk, const Affine &k) {
    return e.loadHere(e.scratch, Emitter::accumulatorOf(reduction(i)), partial(i, chunk, k));
  };
  auto block = [&](Value low, Value high, const Affine &first) {
    auto overColumns = [&](llvm::function_ref<void(const Affine &)> body) {
      if (columns == 1)
        return body(Affine(0));
      e.loop(low, high, 1, 0, columns - 1, 1, {}, [&](const Affine &k, ValueRange) {
        body(k);
        return SmallVector<Value>();
      });
    };
    overColumns([&](const Affine &k) {
      for (size_t i = 0; i < count(); ++i)
        e.store(sums[i], load(i, Affine(0), k), k - first);
    });
    if (loops.chunks > 1)
      e.loop(e.constant(1), e.constant(loops.chunks), 1, 1, loops.chunks - 1, 0, {},
             [&](const Affine &c, ValueRange) {
               overColumns([&](const Affine &k) {
                 for (size_t i = 0; i < count(); ++i) {
                   Value part = load(i, c, k), old = e.loadHere(sums[i], part.getType(), k - first);
                   e.store(sums[i],
                           e.accumulate(e.here(), reduction(i).getKind(), old, part, false),
                           k - first);
                 }
               });
               return SmallVector<Value>();
             });
    overColumns([&](const Affine &k) {
      DenseMap<Value, Value> known; // the sums of this column
      for (size_t i = 0; i < count(); ++i) {
        Type type = getElementTypeOrSelf(reduction(i).getType());
        Value sum = e.loadHere(sums[i], Emitter::accumulatorOf(reduction(i)), k - first);
        known[reduction(i).getResult()] = e.convert(sum, type, e.depth());
      }
      e.resolve = [&](Value tensor, const Affine &at) -> Value {
        auto reduce = tensor.getDefiningOp<ReduceOp>();
        if (!reduce)
          return {};
        if (!(at == k))
          e.fail(reduce, "is read for another column");
        return known.lookup(tensor);
      };
      SmallVector<Value> values;
      for (Value result : kernelResults(kernel))
        values.push_back(e.emit(result, k));
      for (auto [i, value] : llvm::enumerate(values))
        e.store(e.results[i], value, k);
      e.resolve = nullptr;
    });
  };
  if (columns == 1) {
    block({}, {}, Affine(0));
    return e.finish();
  }
  e.loop(e.begin, e.end, loops.blockColumns, 0, columns - 1, 0, {},
         [&](const Affine &first, ValueRange) {
           Value low = e.index(first),
                 high = lesser(e, e.index(first + Affine(loops.blockColumns)), e.end);
           block(low, high, first);
           return SmallVector<Value>();
         });
  return e.finish();
}

LogicalResult emitColumnKernel(func::FuncOp kernel) {
  ColumnKernel column{kernel, columnLoops(kernel)};
  if (failed(column.check()))
    return failure();
  LogicalResult partial =
      column.loops.columns == 1 ? column.emitPartialScalar() : column.emitPartial();
  return success(succeeded(partial) && succeeded(column.emitCombine()));
}

} // namespace mpc
