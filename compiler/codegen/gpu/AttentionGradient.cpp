//===- AttentionGradient.cpp - the gradients of attention, tile by tile -----------------===//
//
//   warp m:  δ[m] = Σ_e do[m, e] · o[m, e]
//
//   block (b, h, 64 keys, columns of q and v)       block (b, h, 64 queries, columns of k)
//   for every tile of queries:                      for every tile of keys:
//     s = scale · k · qᵀ + bias                       s = scale · q · kᵀ + bias
//     p = exp(s - μ - log σ)                          p = exp(s - μ - log σ)
//     dp = r · v · doᵀ                                dp = r · do · vᵀ
//     ds = scale · p · (dp - δ)                       ds = scale · p · (dp - δ)
//     p = 0 where dropout does not keep it            dq += ds · k
//     dv += p · do,  dk += ds · q
//   dv = c · dv
//
// p and ds are zero where there is no query or key: their rows are read as zeros, but μ, σ and δ
// are those of another row, which may be NaN.
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/EmitAttention.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace mpc::gpu {

namespace {
enum Operand { kOutputGradient, kQuery, kKey, kValue, kOutput, kLogSumExp, kStatistics };

struct Pass {
  Pass(func::FuncOp frame, const Attention &attention, const Function &function, AttentionPass pass,
       Mma mma)
      : e(frame, function, attentionScratchBytes(attention)), block(e, attention, pass),
        byKeys(pass == AttentionPass::keys) {
    int64_t queries = attention.queries, keys = attention.keys, depth = attention.depth,
            width = attention.width;
    AttentionMatrix q{e.arguments[kQuery], queries, depth}, k{e.arguments[kKey], keys, depth},
        v{e.arguments[kValue], keys, width}, o{e.arguments[kOutputGradient], queries, width};
    const AttentionChunks &chunks = block.chunks;
    AttentionPair pairs[] = {{q, k, chunks.depth}, {o, v, chunks.width}};
    if (byKeys)
      for (AttentionPair &pair : pairs)
        std::swap(pair.fixed, pair.moving);
    tiles = createTiles(block, pairs, mma);
  }

  GpuEmitter e;
  AttentionBlock block;
  bool byKeys;
  std::unique_ptr<AttentionTiles> tiles;

  Value weight(const AttentionTiles::Place &place, const Affine &column, Value sum);
  Value scoreGradient(const AttentionTiles::Place &place, const Affine &column, Value weight,
                      Value weightGradient);
  SmallVector<Value> step(const Affine &tile, ValueRange carried);
  void store(unsigned pair, Value result, int64_t columns, ValueRange sums);
  LogicalResult run();

  Affine row(size_t i) const { return block.firstRow + tiles->rows[i]; }
  Affine query(const AttentionTiles::Place &place, const Affine &column) const {
    return byKeys ? column : row(place.row);
  }
  Value orZero(const Affine &column, Value value) {
    Value exists = e.inside(column, block.columns);
    return exists ? e.select(exists, value, block.f32(0)) : value;
  }
  size_t depthSums() const { return kAttentionRows * block.chunks.depth / kAttentionThreads; }
  size_t widthSums() const { return kAttentionRows * block.chunks.width / kAttentionThreads; }
};
} // namespace

//   p = exp((s - μ) - log σ)
// After a library, μ is l, log σ is ∞ for 0, and scores are bounded as there.
Value Pass::weight(const AttentionTiles::Place &place, const Affine &column, Value sum) {
  Affine query = this->query(place, column);
  Value score = block.score(sum, row(place.row), column),
        largest = block.perQuery(e.arguments[kStatistics], query),
        log = block.perQuery(e.arguments[kStatistics], query, 1);
  Value byLibrary = block.compare(arith::CmpFPredicate::OEQ, log, block.f32(kInfinity));
  log = e.select(byLibrary, block.f32(0), log);
  if (block.attention.bias) {
    Value least = e.select(byLibrary, block.f32(kLeastScore), block.f32(-kInfinity));
    Value isLow = block.compare(arith::CmpFPredicate::OLT, score, least); // NaN stays
    score = e.select(isLow, least, score);
  }
  return orZero(column, block.exponential(block.subtract(score, largest), log));
}

Value Pass::scoreGradient(const AttentionTiles::Place &place, const Affine &column, Value weight,
                          Value weightGradient) {
  Value delta = block.perQuery(e.scratch, query(place, column));
  Value scaled = block.multiply(weight, block.f32(block.attention.scale));
  if (block.attention.dropoutRatio)
    weightGradient = block.multiply(weightGradient, block.f32(block.keptFactor()));
  return orZero(column, block.multiply(scaled, block.subtract(weightGradient, delta)));
}

/// Carried: the sums with pair 0, then with pair 1; what the tiles carry.
SmallVector<Value> Pass::step(const Affine &tile, ValueRange carried) {
  SmallVector<Value> next(carried.take_front(depthSums())),
      ofWidth(carried.slice(depthSums(), widthSums()));
  tiles->enter(tile, carried.drop_front(depthSums() + widthSums()));
  auto column = [&](const AttentionTiles::Place &place) {
    return tile * tiles->columns + place.column;
  };
  SmallVector<Value> weights, gradients;
  for (auto [place, sum] : llvm::zip_equal(tiles->places, tiles->scores(0)))
    weights.push_back(weight(place, column(place), sum));
  SmallVector<Value> sums = tiles->scores(1), kept = block.kept(*tiles, tile);
  for (auto [i, place] : llvm::enumerate(tiles->places)) {
    Value sum = block.orDropped(kept, i, sums[i]);
    gradients.push_back(scoreGradient(place, column(place), weights[i], sum));
    weights[i] = block.orDropped(kept, i, weights[i]);
  }
  if (byKeys)
    ofWidth = tiles->addUp(1, weights, ofWidth);
  next = tiles->addUp(0, gradients, next);
  next.append(ofWidth);
  next.append(tiles->leave());
  return next;
}

void Pass::store(unsigned pair, Value result, int64_t columns, ValueRange sums) {
  int64_t chunk = pair == 0 ? block.chunks.depth : block.chunks.width;
  bool isKept = pair == 1 && block.attention.dropoutRatio;
  for (const AttentionTiles::Run &run : tiles->runs(pair)) {
    SmallVector<Value> values(sums.slice(run.first, run.count));
    if (isKept)
      for (Value &value : values)
        value = block.multiply(value, block.f32(block.keptFactor()));
    block.store(result, columns, row(run.row), block.chunk * chunk + run.column, values);
  }
}

LogicalResult Pass::run() {
  enum { kQueryGradient, kKeyGradient, kValueGradient };
  e.preferRegisters();
  SmallVector<Value> sums(depthSums() + widthSums(), block.f32(0));
  if (block.columns) {
    sums.append(tiles->start());
    sums = e.loop(block.tiles(tiles->columns), 0, sums,
                  [&](const Affine &tile, ValueRange carried) { return step(tile, carried); });
    Emitter::keepLoop(sums.front());
  }
  ArrayRef<Value> all(sums);
  store(0, e.results[byKeys ? kKeyGradient : kQueryGradient], block.attention.depth,
        all.take_front(depthSums()));
  if (byKeys)
    store(1, e.results[kValueGradient], block.attention.width, all.slice(depthSums(), widthSums()));
  return e.finish();
}

static LogicalResult emitDelta(func::FuncOp frame, const Attention &attention,
                               const Function &function) {
  GpuEmitter e(frame, function, attentionScratchBytes(attention));
  auto [warp, lane] = e.divide(e.thread, kWarp);
  int64_t heads = attention.heads, queries = attention.queries, width = attention.width;
  int64_t rows = attention.batch * heads * queries;
  Affine row = e.block * (function.block / kWarp) + warp;
  e.guarded(e.inside(row, rows), [&] {
    Affine own = e.known(row, rows, e.depth());
    SmallVector<Affine> place = e.split(own, {attention.batch, heads, queries});
    Affine token = (place[0] * queries + place[2]) * heads + place[1];
    Type f32 = e.here().getF32Type();
    Value zero = e.identity(ReductionKind::sum, f32), sum = zero;
    for (int64_t first = 0; first < width; first += kWarp) {
      Affine column = lane + Affine(first);
      Affine at = token * width + e.clamped(column, width);
      auto element = [&](Operand operand) {
        return e.convert(e.loadHere(e.arguments[operand], attention.element, at), f32, e.depth());
      };
      Value gradient = element(kOutputGradient), output = element(kOutput);
      Value next = math::FmaOp::create(e.here(), e.loc, gradient, output, sum);
      sum = e.select(e.inside(column, width), next, sum);
    }
    sum = e.combineWarp(ReductionKind::sum, sum);
    e.guarded(e.inside(lane, 1), [&] { e.store(e.scratch, sum, own); });
  });
  return e.finish();
}

LogicalResult emitAttentionGradient(func::FuncOp frame, const Attention &attention,
                                    ArrayRef<Function> functions, Mma mma) {
  for (const Function &function : functions) {
    StringRef kind = StringRef(function.name).rsplit('$').second;
    LogicalResult done =
        kind == "delta" ? emitDelta(frame, attention, function)
                        : Pass(frame, attention, function,
                               kind == "keys" ? AttentionPass::keys : AttentionPass::queries, mma)
                              .run();
    if (failed(done))
      return failure();
  }
  return success();
}

} // namespace mpc::gpu
