//===- AttentionDropout.cpp - which weights of a tile dropout keeps ---------------------===//
//
// The mask is mpc.dropout's on [B, H, M, N], and is never stored: a weight is kept where the random
// number of its row-major index is at least the ratio. Ten rounds of Philox make the numbers of
// four neighbors, and cost more than all else that four scores need, so that nobody makes the same
// ones twice where the keys are whole fours. Without tensor cores a thread's keys are. With them a
// lane's are not: a warp has 16×16 scores, made of 64 fours, of which every lane draws two. It
// tells the others by votes: bit l of vote w of draw t says whether word w of lane l's draw t is
// kept.
//
//                    rows are queries                      rows are keys
//   drawn by lane l  row ⌊l / 2⌋,                          column 8 · t + ⌊l / 4⌋,
//                    columns from 4 · (2 · t + l mod 2)    rows from 4 · (l mod 4)
//   score (r, c)     draw ⌊c / 8⌋, word c mod 4            draw ⌊c / 8⌋, word r mod 4
//                    lane 2 · r + ⌊c / 4⌋ mod 2            lane 4 · (c mod 8) + ⌊r / 4⌋
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/EmitAttention.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;

namespace mpc::gpu {

namespace {
constexpr int64_t kWords = 4;                                      ///< of a block of Philox
constexpr int64_t kUnit = 16, kDraws = 2, kDrawn = kUnit / kDraws; ///< columns of a draw

struct Mask {
  Mask(AttentionBlock &block, const AttentionTiles &tiles, const Affine &tile)
      : block(block), e(block.e), tiles(tiles), tile(tile),
        byKeys(block.pass == AttentionPass::keys), stream(block.randomStream()) {}

  AttentionBlock &block;
  GpuEmitter &e;
  const AttentionTiles &tiles;
  Affine tile;
  bool byKeys;
  RandomStream stream;

  Value isKept(Value word);
  Value byItself(const Affine &row, const Affine &column);
  SmallVector<Value> oneByOne();
  SmallVector<Value> vote(const Affine &firstColumn);
  Value byVotes(const AttentionTiles::Place &place, ArrayRef<Value> votes);
  /// Of a row of scores, the index in [B, H, M].
  Affine queryIndex(const Affine &query) const {
    return block.headIndex() * block.attention.queries + query;
  }
};
} // namespace

//   ⌊word / 2^8⌋ · 2^-24 ≥ ratio, in f32, where word ≥ ⌈ratio · 2^24⌉ · 2^8
Value Mask::isKept(Value word) {
  double least =
      std::ceil(static_cast<double>(static_cast<float>(*block.attention.dropoutRatio)) * 0x1p24) *
      0x1p8;
  OpBuilder &b = e.here();
  if (least > UINT32_MAX) // a ratio that is 1 in f32
    return arith::ConstantOp::create(b, e.loc, b.getBoolAttr(false));
  auto limit = static_cast<int32_t>(static_cast<uint32_t>(least));
  return arith::CmpIOp::create(b, e.loc, arith::CmpIPredicate::uge, word,
                               arith::ConstantOp::create(b, e.loc, b.getI32IntegerAttr(limit)));
}

/// Of the word, which is not zero otherwise.
static Value bitOf(GpuEmitter &e, Value word, int64_t bit) {
  OpBuilder &b = e.here();
  Value mask =
      arith::ConstantOp::create(b, e.loc, b.getI32IntegerAttr(int32_t(uint32_t(1) << bit)));
  return arith::CmpIOp::create(b, e.loc, arith::CmpIPredicate::ne,
                               arith::AndIOp::create(b, e.loc, word, mask),
                               arith::ConstantOp::create(b, e.loc, b.getI32IntegerAttr(0)));
}

/// As i32.
static Value narrow(GpuEmitter &e, const Affine &index) {
  Value value = e.index(index);
  OpBuilder &b = e.at(e.depth(index));
  return arith::TruncIOp::create(b, e.loc, b.getI32Type(), value);
}

Value Mask::byItself(const Affine &row, const Affine &column) {
  Affine query = block.firstRow + row, key = tile * tiles.columns + column;
  if (byKeys)
    std::swap(query, key);
  return isKept(e.randomWord(stream, queryIndex(query) * block.attention.keys + key));
}

//   In a loop: for more of Philox at once a thread has not the registers. Places lie as the bits of
//   their numbers say: a bit is a step along rows or columns.
SmallVector<Value> Mask::oneByOne() {
  auto count = static_cast<int64_t>(tiles.places.size());
  const AttentionTiles::Place &first = tiles.places[0];
  OpBuilder &outside = e.here();
  Value none = arith::ConstantOp::create(outside, e.loc, outside.getI32IntegerAttr(0));
  Value bits = e.loop(count, 0, none, [&](const Affine &number, ValueRange carried) {
    Affine row = tiles.rows[first.row], column = first.column;
    SmallVector<Affine> digits = e.split(number, SmallVector<int64_t>(llvm::Log2_64(count), 2));
    for (auto [d, digit] : llvm::enumerate(llvm::reverse(digits))) {
      const AttentionTiles::Place &step = tiles.places[size_t(1) << d];
      row = row + digit * (tiles.rows[step.row] - tiles.rows[first.row]).constant;
      column = column + digit * (step.column - first.column).constant;
    }
    Value kept = byItself(row, column), place = narrow(e, number);
    OpBuilder &b = e.here();
    kept = arith::ExtUIOp::create(b, e.loc, b.getI32Type(), kept);
    kept = arith::ShLIOp::create(b, e.loc, kept, place);
    return SmallVector<Value>{arith::OrIOp::create(b, e.loc, carried[0], kept)};
  })[0];
  Emitter::keepLoop(bits);
  SmallVector<Value> kept;
  for (int64_t i = 0; i < count; ++i)
    kept.push_back(bitOf(e, bits, i));
  return kept;
}

/// On the warp's scores of 16 columns: the votes of the first draw, then of the second.
SmallVector<Value> Mask::vote(const Affine &firstColumn) {
  auto [warp, lane] = e.divide(e.thread, kWarp);
  Affine firstRow = block.firstRow + warp * kUnit, column = tile * tiles.columns + firstColumn;
  auto [row, rest] = e.divide(lane, byKeys ? kWords : kDraws);
  SmallVector<Value> votes;
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    Affine query = byKeys ? column + Affine(draw * kDrawn) + row : firstRow + row;
    Affine four = e.divide(byKeys ? firstRow : column + Affine(draw * kDrawn), kWords).first + rest;
    Affine counter = queryIndex(query) * (block.attention.keys / kWords) + four;
    for (Value word : e.randomWords(stream, counter))
      votes.push_back(e.ballot(isKept(word)));
  }
  return votes;
}

Value Mask::byVotes(const AttentionTiles::Place &place, ArrayRef<Value> votes) {
  Affine row = e.divide(tiles.rows[place.row], kUnit).second,
         column = e.divide(place.column, kUnit).second;
  auto [draw, drawn] = e.divide(column, kDrawn);
  auto [four, word] = e.divide(byKeys ? row : drawn, kWords);
  Affine lane = byKeys ? drawn * kWords + four : row * kDraws + four;
  auto ofDraw = [&, &word = word](int64_t draw) {
    return e.oneOf(votes.slice(draw * kWords, kWords), word, e.depth());
  };
  Value vote =
      draw.isConstant() ? ofDraw(draw.constant) : e.select(e.inside(draw, 1), ofDraw(0), ofDraw(1));

  // What the lanes differ in is the same for several scores.
  int64_t fixed = lane.constant;
  Value by = narrow(e, lane - Affine(fixed));
  return bitOf(e, arith::ShRUIOp::create(e.here(), e.loc, vote, by), fixed);
}

SmallVector<Value> AttentionBlock::kept(const AttentionTiles &tiles, const Affine &tile) {
  SmallVector<Value> kept;
  if (!attention.dropoutRatio)
    return kept;
  Mask mask(*this, tiles, tile);
  if (attention.keys % kWords != 0)
    return mask.oneByOne();
  if (!tiles.areOfTensorCores) {
    for (const AttentionTiles::Place &place : tiles.places)
      kept.push_back(mask.byItself(tiles.rows[place.row], place.column));
    return kept;
  }
  std::map<int64_t, SmallVector<Value>> votes; // by the first column
  for (const AttentionTiles::Place &place : tiles.places) {
    int64_t first = e.divide(place.column, kUnit).first.constant * kUnit;
    SmallVector<Value> &ofUnit = votes[first];
    if (ofUnit.empty())
      ofUnit = mask.vote(Affine(first));
    kept.push_back(mask.byVotes(place, ofUnit));
  }
  return kept;
}

Value AttentionBlock::orDropped(ArrayRef<Value> kept, size_t place, Value weight) {
  return kept.empty() ? weight : e.select(kept[place], weight, f32(0));
}

float AttentionBlock::keptFactor() const {
  return attention.dropoutRatio ? static_cast<float>(1 / (1 - *attention.dropoutRatio)) : 1;
}

} // namespace mpc::gpu
