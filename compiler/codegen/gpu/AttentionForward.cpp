//===- AttentionForward.cpp - attention, tile by tile of the keys -----------------------===//
//
//   block (b, h, 64 queries, columns of v); per row: μ = -∞, σ = 0, a = 0
//   for every tile of keys:
//     s = scale · q · kᵀ + bias;  -∞ behind the last key
//     μ' = max(μ, max s);  α = exp(μ - μ');  p = exp(s - μ')
//     σ = α · σ + Σ p;  p = 0 where dropout does not keep it;  a = α · a + p · v
//   o = c · a / σ;  l = μ + log σ
//
// As long as every score of a row was -∞, zero stands for μ', so that exp(-∞ - μ') is zero; a row
// that ends so has σ = 0, and o = 0 / 0. A score of NaN or +∞ makes σ NaN, whatever μ' is. Where
// attention is safe, o is 0 in both, and of a row that is empty μ and log σ are, too.
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/EmitAttention.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>

using namespace mlir;

namespace mpc::gpu {

namespace {
struct Forward {
  Forward(func::FuncOp frame, const Attention &attention, const Function &function, Mma mma)
      : e(frame, function, 0), block(e, attention, AttentionPass::forward) {
    int64_t queries = attention.queries, keys = attention.keys;
    AttentionMatrix q{e.arguments[0], queries, attention.depth},
        k{e.arguments[1], keys, attention.depth}, v{e.arguments[2], keys, attention.width};
    AttentionPair pairs[] = {{q, k, 0}, {{}, v, block.chunks.width}};
    tiles = createTiles(block, pairs, mma);
  }

  GpuEmitter e;
  AttentionBlock block;
  std::unique_ptr<AttentionTiles> tiles;

  SmallVector<Value> scores(const Affine &tile);
  SmallVector<Value> step(const Affine &tile, ValueRange carried);
  Value logSumExp(Value largest, Value log);
  void finish(ValueRange largest, ValueRange total, ValueRange sums);
  void run();
  size_t rows() const { return tiles->rows.size(); }
  Affine row(size_t i) const { return block.firstRow + tiles->rows[i]; }
};
} // namespace

SmallVector<Value> Forward::scores(const Affine &tile) {
  SmallVector<Value> scores;
  for (auto [place, sum] : llvm::zip_equal(tiles->places, tiles->scores(0))) {
    Affine key = tile * tiles->columns + place.column;
    Value score = block.score(sum, row(place.row), key);
    if (Value exists = e.inside(key, block.columns))
      score = e.select(exists, score, block.f32(-kInfinity));
    scores.push_back(score);
  }
  return scores;
}

/// Carried: per row μ, then σ of this thread's columns; the sums; what the tiles carry.
SmallVector<Value> Forward::step(const Affine &tile, ValueRange carried) {
  ValueRange largest = carried.take_front(rows()), total = carried.slice(rows(), rows());
  SmallVector<AttentionTiles::Run> runs = tiles->runs(1);
  size_t count = runs.back().first + runs.back().count;
  SmallVector<Value> sums(carried.slice(2 * rows(), count));
  tiles->enter(tile, carried.drop_front(2 * rows() + count));

  SmallVector<Value> weights = scores(tile), next(largest), totals(total), reference, factors;
  for (auto [place, score] : llvm::zip_equal(tiles->places, weights))
    next[place.row] = arith::MaxNumFOp::create(e.here(), e.loc, next[place.row], score);
  for (auto [i, value] : llvm::enumerate(next)) {
    value = e.combineWarp(ReductionKind::max, value, tiles->rowLanes, tiles->laneDistance);
    Value isNone = block.compare(arith::CmpFPredicate::OEQ, value, block.f32(-kInfinity));
    reference.push_back(e.select(isNone, block.f32(0), value));
    factors.push_back(block.exponential(block.subtract(largest[i], reference[i])));
    totals[i] = block.multiply(totals[i], factors[i]);
  }
  SmallVector<Value> kept = block.kept(*tiles, tile);
  for (auto [i, place] : llvm::enumerate(tiles->places)) {
    Value weight = block.exponential(block.subtract(weights[i], reference[place.row]));
    totals[place.row] = block.add(totals[place.row], weight);
    weights[i] = block.orDropped(kept, i, weight);
  }
  for (const AttentionTiles::Run &run : runs)
    for (int64_t i = run.first; i < run.first + run.count; ++i)
      sums[i] = block.multiply(sums[i], factors[run.row]);
  tiles->open(1);
  sums = tiles->addUp(1, weights, sums);

  next.append(totals);
  next.append(sums);
  next.append(tiles->leave());
  return next;
}

/// l for a library, which bounds scores beside a bias: it is log N above the bound where all of
/// them are below.
Value Forward::logSumExp(Value largest, Value log) {
  Value l = block.add(largest, log);
  if (!block.attention.bias)
    return l;
  Value isBelow = block.compare(arith::CmpFPredicate::OLT, largest, block.f32(kLeastScore)),
        isNumber = block.compare(arith::CmpFPredicate::ORD, log, log); // no score is NaN
  Value isLow = arith::AndIOp::create(e.here(), e.loc, isBelow, isNumber);
  return e.select(isLow, block.f32(kLeastScore + std::log(double(block.columns))), l);
}

void Forward::finish(ValueRange largest, ValueRange total, ValueRange sums) {
  SmallVector<Value> inverse, isSome;
  bool isSafe = block.attention.isSafe;
  for (size_t i = 0; i < rows(); ++i) {
    Value all = e.combineWarp(ReductionKind::sum, total[i], tiles->rowLanes, tiles->laneDistance),
          factor = block.f32(block.keptFactor());
    inverse.push_back(arith::DivFOp::create(e.here(), e.loc, factor, all));
    Value log = math::LogOp::create(e.here(), e.loc, all), l = logSumExp(largest[i], log),
          shift = largest[i];
    if (isSafe) {
      Value zero = block.f32(0), isEmpty = block.compare(arith::CmpFPredicate::OEQ, all, zero);
      log = e.select(isEmpty, zero, log);
      shift = e.select(isEmpty, zero, shift);
      isSome.push_back(block.compare(arith::CmpFPredicate::OGT, all, zero));
    }
    // One lane of a row, of the first of the blocks that share it.
    Affine lane = e.divide(e.divide(e.thread, tiles->laneDistance).first, tiles->rowLanes).second;
    Value stores = e.both(e.inside(lane, 1), e.inside(block.chunk, 1), e.depth());
    stores = e.both(stores, e.inside(row(i), block.rows), e.depth());
    e.guarded(stores, [&] {
      Affine at = block.headIndex() * block.rows + row(i);
      e.store(e.results[1], l, at);
      e.store(e.results[2], shift, at);
      e.store(e.results[2], log, at + block.allQueries());
    });
  }
  for (const AttentionTiles::Run &run : tiles->runs(1)) {
    SmallVector<Value> values;
    for (Value sum : sums.slice(run.first, run.count)) {
      Value value = block.multiply(sum, inverse[run.row]);
      values.push_back(isSafe ? e.select(isSome[run.row], value, block.f32(0)) : value);
    }
    block.store(e.results[0], block.attention.width, row(run.row),
                block.chunk * block.chunks.width + run.column, values);
  }
}

void Forward::run() {
  e.preferRegisters();
  SmallVector<Value> carried(rows(), block.f32(-kInfinity));
  carried.append(rows(), block.f32(0));
  int64_t count = kAttentionRows * block.chunks.width / kAttentionThreads;
  carried.append(count, block.f32(0));
  carried.append(tiles->start());
  carried = e.loop(block.tiles(tiles->columns), 0, carried,
                   [&](const Affine &tile, ValueRange values) { return step(tile, values); });
  Emitter::keepLoop(carried.front());
  ArrayRef<Value> values(carried);
  finish(values.take_front(rows()), values.slice(rows(), rows()), values.slice(2 * rows(), count));
}

/// The statistics of what a library has executed.
static LogicalResult emitStatistics(func::FuncOp frame, const Attention &attention,
                                    const Function &function) {
  GpuEmitter e(frame, function, 0);
  int64_t rows = attention.batch * attention.heads * attention.queries;
  Affine row = e.block * function.block + e.thread;
  e.guarded(e.inside(row, rows), [&] {
    OpBuilder &b = e.here();
    Value infinity = arith::ConstantOp::create(b, e.loc, b.getF32FloatAttr(kInfinity));
    e.store(e.results[2], e.loadHere(e.results[1], b.getF32Type(), row), row);
    e.store(e.results[2], infinity, row + Affine(rows));
  });
  return e.finish();
}

LogicalResult emitAttentionForward(func::FuncOp frame, const Attention &attention,
                                   ArrayRef<Function> functions, Mma mma) {
  Forward forward(frame, attention, functions[0], mma);
  forward.run();
  return success(succeeded(forward.e.finish()) &&
                 succeeded(emitStatistics(frame, attention, functions[1])));
}

} // namespace mpc::gpu
