//===- AttentionForward.cpp - attention, tile by tile of the keys -----------------------===//
//
//   block (b, h, 64 queries, columns of v); per row: μ = -∞, σ = 0, a = 0
//   for every tile of keys:
//     s = scale · q · kᵀ + bias;  -∞ behind the last key
//     μ' = max(μ, max s);  α = exp(μ - μ');  p = exp(s - μ')
//     σ = α · σ + Σ p;  a = α · a + p · v
//   o = a / σ;  l = μ + log σ
//
// As long as every score of a row was -∞, zero stands for μ', so that exp(-∞ - μ') is zero; a row
// that ends so has σ = 0, and o = 0 / 0. A score of NaN or +∞ makes σ NaN, whatever μ' is.
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/EmitAttention.h"
#include "llvm/ADT/STLExtras.h"
#include <limits>

using namespace mlir;

namespace mpc::gpu {

static constexpr float kInfinity = std::numeric_limits<float>::infinity();

namespace {
struct Forward {
  Forward(func::FuncOp frame, const Attention &attention, const Function &function,
          bool tensorCores)
      : e(frame, function, 0), block(e, attention, AttentionPass::forward) {
    int64_t queries = attention.queries, keys = attention.keys;
    AttentionMatrix q{e.arguments[0], queries, attention.depth},
        k{e.arguments[1], keys, attention.depth}, v{e.arguments[2], keys, attention.width};
    AttentionPair pairs[] = {{q, k, 0}, {{}, v, block.chunks.width}};
    tiles = createTiles(block, pairs, tensorCores);
  }

  GpuEmitter e;
  AttentionBlock block;
  std::unique_ptr<AttentionTiles> tiles;

  SmallVector<Value> scores(const Affine &tile);
  SmallVector<Value> step(const Affine &tile, ValueRange carried);
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
    value = e.combineWarp(ReductionKind::max, value, tiles->rowLanes);
    Value isNone = arith::CmpFOp::create(e.here(), e.loc, arith::CmpFPredicate::OEQ, value,
                                         block.f32(-kInfinity));
    reference.push_back(e.select(isNone, block.f32(0), value));
    factors.push_back(block.exponential(block.subtract(largest[i], reference[i])));
    totals[i] = block.multiply(totals[i], factors[i]);
  }
  for (auto [place, weight] : llvm::zip_equal(tiles->places, weights)) {
    weight = block.exponential(block.subtract(weight, reference[place.row]));
    totals[place.row] = arith::AddFOp::create(e.here(), e.loc, totals[place.row], weight);
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

void Forward::finish(ValueRange largest, ValueRange total, ValueRange sums) {
  SmallVector<Value> inverse;
  for (size_t i = 0; i < rows(); ++i) {
    Value all = e.combineWarp(ReductionKind::sum, total[i], tiles->rowLanes), one = block.f32(1);
    inverse.push_back(arith::DivFOp::create(e.here(), e.loc, one, all));
    Value log = math::LogOp::create(e.here(), e.loc, all);
    log = arith::AddFOp::create(e.here(), e.loc, largest[i], log);
    // One lane of a row, of the first of the blocks that share it.
    Affine lane = e.divide(e.thread, tiles->rowLanes).second;
    Value stores = e.both(e.inside(lane, 1), e.inside(block.chunk, 1), e.depth());
    stores = e.both(stores, e.inside(row(i), block.rows), e.depth());
    e.guarded(stores, [&] { e.store(e.results[1], log, block.headIndex() * block.rows + row(i)); });
  }
  for (const AttentionTiles::Run &run : tiles->runs(1)) {
    SmallVector<Value> values;
    for (Value sum : sums.slice(run.first, run.count))
      values.push_back(block.multiply(sum, inverse[run.row]));
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

LogicalResult emitAttentionForward(func::FuncOp frame, const Attention &attention,
                                   const Function &function, bool tensorCores) {
  Forward forward(frame, attention, function, tensorCores);
  forward.run();
  return forward.e.finish();
}

} // namespace mpc::gpu
