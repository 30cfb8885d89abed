//===- AttentionTiles.cpp - tiles of scores, by tensor cores or in registers ------------===//

#include "compiler/codegen/gpu/EmitAttention.h"
#include "compiler/codegen/gpu/TensorCores.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace mpc::gpu {

/// Rows of a matrix as one side of a product: its columns are the depth, or its rows are.
static ProductSide sideOf(const AttentionBlock &block, const AttentionMatrix &matrix,
                          bool alongDepth) {
  int64_t widest = kAccessBytes / storedBytes(block.attention.element);
  return {0, alongDepth, dividing(matrix.columns, widest),
          [&block, rows = matrix.rows, columns = matrix.columns,
           alongDepth](GpuEmitter &, const Affine &, const Affine &outer, const Affine &depth) {
            const Affine &row = alongDepth ? outer : depth, &column = alongDepth ? depth : outer;
            return ProductElement{block.at(rows, columns, row, column), {}};
          }};
}

// Pieces of a tile that a thread may keep while it multiplies another, with tensor cores and
// without. Only those of one or two elements are more, of matrices with an odd number of columns,
// or nearly.
constexpr int64_t kMostPiecesAhead = 8, kMostRegisterPiecesAhead = 4;

//===--------------------------------------------------------------------------------------===//
// Tensor cores
//===--------------------------------------------------------------------------------------===//

namespace {
// A warp has 16 rows. The two moving tiles have a place in shared memory each, and while one is
// multiplied the other is on its way:
//
//   shared[0] = piece 0;  piece 1 = read;                 barrier;  scores of pair 0
//   shared[1] = piece 1;  piece 0 = read the next tile's; barrier;  scores of pair 1, sums
//
// Who fills a tile again has met everybody who multiplied it at the barrier in between; where
// pair 0 has sums too, at a third one. Fixed rows are words of mma: they stay in registers or
// shared memory where there is room, else they are read for every tile, in a loop that is not
// unrolled, so that nobody keeps them all the same.
class TensorCoreTiles : public AttentionTiles {
public:
  TensorCoreTiles(AttentionBlock &block, ArrayRef<AttentionPair> pairs, Mma mma);

  SmallVector<Run> runs(unsigned pair) override { return runsOf(pairs[pair].matrices.chunk); }
  SmallVector<Value> start() override;
  void enter(const Affine &tile, ValueRange carried) override;
  void open(unsigned pair) override;
  SmallVector<Value> scores(unsigned pair) override;
  SmallVector<Value> addUp(unsigned pair, ValueRange weights, ValueRange sums) override;
  SmallVector<Value> leave() override;

private:
  static constexpr int64_t kRows = TensorCores::kRows, kColumns = TensorCores::kColumns,
                           kDepth = TensorCores::kDepth, kSums = TensorCores::kSums;

  struct Pair {
    AttentionPair matrices;
    TileReader moving;
    Affine from;                                 ///< the first column in shared memory
    std::optional<TileReader> fixed;             ///< in shared memory
    SmallVector<TensorCores::Fragment> resident; ///< in registers: one per 16 columns
  };
  TileReader reader(const AttentionMatrix &matrix, int64_t rows, const Affine &first, int64_t span);
  SmallVector<Value> read(Pair &pair, const Affine &tile);
  SmallVector<Value> readAhead(Pair &pair, const Affine &tile) {
    return pair.moving.isLate ? SmallVector<Value>() : read(pair, tile);
  }
  Value word(const AttentionMatrix &matrix, const Affine &row, const Affine &column);
  SmallVector<Run> runsOf(int64_t columns);
  TensorCores::Fragment fixedRows(const Pair &pair, const Affine &depth);
  void multiply(const TensorCores::Fragment &left, const SharedTile &right, int64_t outers,
                const Affine &outer, const Affine &depth, SmallVectorImpl<Value> &sums);

  AttentionBlock &block;
  GpuEmitter &e;
  Type element;
  Affine warp;
  std::unique_ptr<TensorCores> cores;
  AttentionPlan plan;
  SmallVector<Pair, 2> pairs;
  Affine tile;
  SmallVector<Value> ahead; ///< read, and not yet in shared memory
};
} // namespace

TensorCoreTiles::TensorCoreTiles(AttentionBlock &block, ArrayRef<AttentionPair> list, Mma mma)
    : block(block), e(block.e), element(block.attention.element),
      plan(block.attention, block.pass, mma) {
  columns = plan.columns;
  areOfTensorCores = true;
  auto [warp, lane] = e.divide(e.thread, kWarp);
  this->warp = warp;
  cores = createTensorCores(e, mma, element, lane);
  rowLanes = cores->rowLanes;
  laneDistance = cores->laneDistance;
  for (const Affine &row : cores->rows)
    rows.push_back(warp * kRows + row);
  for (const Run &run : runsOf(columns))
    for (int64_t i = 0; i < run.count; ++i)
      places.push_back({run.row, run.column + Affine(i)});

  for (auto [matrices, span] : llvm::zip_equal(list, plan.spans)) {
    bool hasScores = matrices.fixed.pointer != nullptr;
    Pair pair{matrices, reader(matrices.moving, columns, Affine(0), span), {}, {}, {}};
    if (!hasScores) // no columns but those of the block's own sums
      pair.from = block.chunk * matrices.chunk;
    else if (plan.fixed == AttentionPlan::inSharedMemory)
      pair.fixed = reader(matrices.fixed, kAttentionRows, block.firstRow, span);
    pairs.push_back(std::move(pair));
  }
}

/// Into a tile of so many rows in shared memory.
TileReader TensorCoreTiles::reader(const AttentionMatrix &matrix, int64_t rows, const Affine &first,
                                   int64_t span) {
  TileReader reader{sideOf(block, matrix, /*alongDepth=*/true),
                    element,
                    matrix.pointer,
                    rows,
                    matrix.rows,
                    first,
                    span,
                    matrix.columns};
  int64_t padded = AttentionPlan::padded(span);
  reader.layout = {element, padded, 1, rows * padded};
  reader.share(e, kAttentionThreads, /*buffers=*/1);
  reader.isLate = reader.pieces() > kMostPiecesAhead;
  return reader;
}

/// The sums of so many columns.
SmallVector<AttentionTiles::Run> TensorCoreTiles::runsOf(int64_t columns) {
  SmallVector<Run> runs;
  int64_t sum = 0;
  for (int64_t j = 0; j < columns; j += kColumns)
    for (const Affine &column : cores->columns)
      for (unsigned row = 0; row < rows.size(); ++row, sum += 2)
        runs.push_back({row, column + Affine(j), sum, 2});
  return runs;
}

SmallVector<Value> TensorCoreTiles::read(Pair &pair, const Affine &tile) {
  SmallVector<Value> pieces;
  pair.moving.firstOuter = tile * columns;
  pair.moving.read(e, Affine(0), pair.from, pieces);
  return pieces;
}

/// Two neighbors of a row as one word; zero where they do not exist.
Value TensorCoreTiles::word(const AttentionMatrix &matrix, const Affine &row,
                            const Affine &column) {
  int64_t together = dividing(matrix.columns, 2);
  Type i32 = e.here().getI32Type(), type = e.here().getIntegerType(16 * together);
  Value word;
  for (int64_t i = 0; i < 2; i += together) {
    Affine at = column + Affine(i);
    Value exists = e.both(e.inside(row, matrix.rows), e.inside(at, matrix.columns), e.depth());
    Value offset = e.index(block.at(matrix.rows, matrix.columns, row, at)), none = e.constant(0);
    offset = exists ? e.select(exists, offset, none) : offset;
    Value address = addressOf(e, matrix.pointer, element, offset);
    OpBuilder &b = e.here();
    Value part = LLVM::LoadOp::create(b, e.loc, type, address, together * 2);
    if (together == 1)
      part = arith::ExtUIOp::create(b, e.loc, i32, part);
    Value zero = arith::ConstantOp::create(b, e.loc, b.getI32IntegerAttr(0));
    part = exists ? e.select(exists, part, zero) : part;
    Value shift = arith::ConstantOp::create(b, e.loc, b.getI32IntegerAttr(16));
    word = word ? arith::OrIOp::create(b, e.loc, word, arith::ShLIOp::create(b, e.loc, part, shift))
                      .getResult()
                : part;
  }
  return word;
}

TensorCores::Fragment TensorCoreTiles::fixedRows(const Pair &pair, const Affine &depth) {
  if (pair.fixed) {
    SharedTile shared{pair.fixed->memory, pair.fixed->layout, Affine(0)};
    return cores->load(shared, warp * kRows, depth, TensorCores::kLeft);
  }
  SmallVector<Value> words;
  for (const auto &[row, column] : cores->leftPlaces)
    words.push_back(word(pair.matrices.fixed, block.firstRow + warp * kRows + row, depth + column));
  return cores->leftOf(words);
}

SmallVector<Value> TensorCoreTiles::start() {
  for (Pair &pair : pairs) {
    if (pair.fixed) { // the barrier is that of the first tile
      SmallVector<Value> pieces;
      pair.fixed->read(e, Affine(0), Affine(0), pieces);
      pair.fixed->fill(e, Affine(0), pieces);
    }
    if (plan.fixed == AttentionPlan::inRegisters && pair.matrices.fixed.pointer)
      for (int64_t k = 0; k < pair.matrices.fixed.columns; k += kDepth)
        pair.resident.push_back(fixedRows(pair, Affine(k)));
  }
  return readAhead(pairs[0], Affine(0));
}

void TensorCoreTiles::enter(const Affine &tile, ValueRange carried) {
  this->tile = tile;
  ahead.assign(carried.begin(), carried.end());
}

void TensorCoreTiles::open(unsigned number) {
  Pair &pair = pairs[number];
  pair.moving.fill(e, Affine(0), pair.moving.isLate ? read(pair, tile) : ahead);
  if (number == 0)
    ahead = readAhead(pairs[1], tile);
  else if (block.tiles(columns) > 1) // after the last tile, what was read is left
    ahead = readAhead(pairs[0], tile + Affine(1));
  else
    ahead.clear();
  e.barrier();
}

/// sums += left · right, over 16 of the depth; of so many columns (outer indices on the right).
void TensorCoreTiles::multiply(const TensorCores::Fragment &left, const SharedTile &right,
                               int64_t outers, const Affine &outer, const Affine &depth,
                               SmallVectorImpl<Value> &sums) {
  for (int64_t j = 0, sum = 0; j < outers; j += kColumns, sum += kSums)
    llvm::copy(cores->multiplyAdd(left,
                                  cores->load(right, outer + Affine(j), depth, TensorCores::kRight),
                                  ArrayRef(sums).slice(sum, kSums)),
               sums.begin() + sum);
}

SmallVector<Value> TensorCoreTiles::scores(unsigned number) {
  open(number);
  Pair &pair = pairs[number];
  SmallVector<Value> sums(places.size(), block.f32(0));
  int64_t steps = llvm::divideCeil(pair.matrices.fixed.columns, kDepth);
  SharedTile moving{pair.moving.memory, pair.moving.layout, Affine(0)};
  if (plan.fixed != AttentionPlan::inMemory) {
    for (int64_t k = 0; k < steps; ++k) {
      Affine depth(k * kDepth);
      multiply(pair.fixed ? fixedRows(pair, depth) : pair.resident[k], moving, columns, Affine(0),
               depth, sums);
    }
    return sums;
  }
  sums = e.loop(steps, 0, sums, [&](const Affine &k, ValueRange carried) {
    SmallVector<Value> next(carried);
    multiply(fixedRows(pair, k * kDepth), moving, columns, Affine(0), k * kDepth, next);
    return next;
  });
  Emitter::keepLoop(sums.front());
  return sums;
}

//   rounded sums are the words of a left side
SmallVector<Value> TensorCoreTiles::addUp(unsigned number, ValueRange weights, ValueRange sums) {
  const Pair &pair = pairs[number];
  const SharedLayout &layout = pair.moving.layout;
  // Its columns are the outer index of this product, its rows the depth.
  SharedTile shared{
      pair.moving.memory, {element, 1, layout.outerStride, layout.elements}, Affine(0)};
  Affine first = block.chunk * pair.matrices.chunk - pair.from;
  SmallVector<Value> next(sums);
  for (int64_t c = 0; c < columns; c += kDepth) {
    SmallVector<Value> words;
    for (int64_t i = 0; i < kSums; i += 2) {
      ValueRange two = weights.slice(c / kColumns * kSums + i, 2);
      Value values[] = {e.convert(two[0], element, e.depth()),
                        e.convert(two[1], element, e.depth())};
      Value word = joined(e, values);
      words.push_back(LLVM::BitcastOp::create(e.here(), e.loc, e.here().getI32Type(), word));
    }
    multiply(cores->leftOfSums(words), shared, pair.matrices.chunk, first, Affine(c), next);
  }
  return next;
}

SmallVector<Value> TensorCoreTiles::leave() {
  if (pairs[0].matrices.chunk)
    e.barrier();
  return ahead;
}

//===--------------------------------------------------------------------------------------===//
// Registers
//===--------------------------------------------------------------------------------------===//

// Columns of a tile of scores; fewer where the sums of two wide sides fill a thread's registers.
constexpr int64_t kRegisterColumns = 32, kFewRegisterColumns = 16, kManySums = 128;

/// `outers` of a tile: neighbors are those of the outer index, in f32 (sharedLayout of
/// Product.cpp).
static SharedLayout registerLayout(Type f32, int64_t outers, int64_t depth) {
  constexpr int64_t kPad = 4;
  return {f32, 1, outers + kPad, depth * (outers + kPad)};
}

int64_t registerTilesBytes(int64_t chunk) {
  int64_t depth = tileDepth(/*tensorCores=*/false), elements = 0;
  for (auto [outers, depths] :
       {std::pair(kAttentionRows, 2 * depth), std::pair(kRegisterColumns, 2 * depth),
        std::pair(chunk, 2 * depth), std::pair(kAttentionRows, kRegisterColumns)})
    elements += registerLayout({}, outers, depths).elements;
  return elements * int64_t(sizeof(float));
}

namespace {
// Every product goes along its depth in steps of 16 through shared memory, as those of Product.h
// do, and weights go through it to where they are a left side.
class RegisterTiles : public AttentionTiles {
public:
  RegisterTiles(AttentionBlock &block, ArrayRef<AttentionPair> pairs);

  SmallVector<Run> runs(unsigned pair) override;
  SmallVector<Value> start() override { return {}; }
  void enter(const Affine &tile, ValueRange) override { this->tile = tile; }
  void open(unsigned) override {}
  SmallVector<Value> scores(unsigned pair) override;
  SmallVector<Value> addUp(unsigned pair, ValueRange weights, ValueRange sums) override;
  SmallVector<Value> leave() override { return {}; }

private:
  std::unique_ptr<TileProduct> product(int64_t columns) {
    return createRegisterProduct(e, {kAttentionRows, columns, kAttentionThreads, 0}, f32);
  }
  TileReader reader(const AttentionMatrix &matrix, bool alongDepth, int64_t outers,
                    const Affine &firstOuter, Value memory);

  AttentionBlock &block;
  GpuEmitter &e;
  Type f32;
  SmallVector<AttentionPair, 2> pairs;
  int64_t depth = tileDepth(/*tensorCores=*/false);
  Value fixedMemory, movingMemory, chunkMemory, weightMemory;
  Affine tile;
};
} // namespace

RegisterTiles::RegisterTiles(AttentionBlock &block, ArrayRef<AttentionPair> list)
    : block(block), e(block.e), f32(block.e.here().getF32Type()), pairs(list) {
  columns =
      block.chunks.depth + block.chunks.width > kManySums ? kFewRegisterColumns : kRegisterColumns;
  auto memory = [&](int64_t outers, int64_t depths) {
    return e.sharedArray(f32, registerLayout(f32, outers, depths).elements);
  };
  fixedMemory = memory(kAttentionRows, 2 * depth);
  movingMemory = memory(kRegisterColumns, 2 * depth);
  chunkMemory = memory(std::max(block.chunks.depth, block.chunks.width), 2 * depth);
  weightMemory = memory(kAttentionRows, kRegisterColumns);

  std::unique_ptr<TileProduct> scores = product(columns);
  for (const SumRun &run : scores->runs()) {
    if (rows.empty() || !(rows.back() == run.row))
      rows.push_back(run.row);
    for (int64_t i = 0; i < run.count; ++i)
      places.push_back({static_cast<unsigned>(rows.size() - 1), run.column + Affine(i)});
  }
  rowLanes = columns / static_cast<int64_t>(places.size() / rows.size());
}

SmallVector<AttentionTiles::Run> RegisterTiles::runs(unsigned pair) {
  int64_t chunk = pairs[pair].chunk, perRow = chunk / rowLanes;
  SmallVector<Run> runs;
  for (const SumRun &run : product(chunk)->runs())
    runs.push_back({static_cast<unsigned>(run.first / perRow), run.column, run.first, run.count});
  return runs;
}

TileReader RegisterTiles::reader(const AttentionMatrix &matrix, bool alongDepth, int64_t outers,
                                 const Affine &firstOuter, Value memory) {
  int64_t limit = matrix.rows, depthLimit = matrix.columns;
  if (!alongDepth)
    std::swap(limit, depthLimit);
  TileReader reader{sideOf(block, matrix, alongDepth),
                    block.attention.element,
                    matrix.pointer,
                    outers,
                    limit,
                    firstOuter,
                    depth,
                    depthLimit,
                    registerLayout(f32, outers, depth),
                    memory};
  reader.share(e, kAttentionThreads, /*buffers=*/2);
  reader.isLate = reader.width == 1 || reader.pieces() > kMostRegisterPiecesAhead;
  return reader;
}

SmallVector<Value> RegisterTiles::scores(unsigned number) {
  const AttentionPair &pair = pairs[number];
  TileReader fixed = reader(pair.fixed, true, kAttentionRows, block.firstRow, fixedMemory);
  TileReader moving = reader(pair.moving, true, columns, tile * columns, movingMemory);
  SmallVector<Value> sums(places.size(), block.f32(0));
  e.barrier(); // others may still multiply the tiles before
  return multiplyAlong(e, *product(columns), fixed, moving, Affine(0), Affine(0),
                       llvm::divideCeil(pair.fixed.columns, depth), std::move(sums));
}

SmallVector<Value> RegisterTiles::addUp(unsigned number, ValueRange weights, ValueRange sums) {
  const AttentionPair &pair = pairs[number];
  TileReader left{{},
                  f32,
                  {},
                  kAttentionRows,
                  0,
                  {},
                  depth,
                  0,
                  registerLayout(f32, kAttentionRows, depth),
                  weightMemory};
  left.isResident = true;
  TileReader right = reader(pair.moving, false, pair.chunk, block.chunk * pair.chunk, chunkMemory);
  e.barrier(); // others may still multiply the weights before
  // A thread's rows are neighbors.
  size_t perRow = places.size() / rows.size();
  for (size_t c = 0; c < perRow; ++c) {
    SmallVector<Value> column;
    for (size_t r = 0; r < rows.size(); ++r)
      column.push_back(weights[r * perRow + c]);
    SharedTile all{weightMemory, left.layout, Affine(0)};
    storeTogether(e, weightMemory, all.at(rows[0], places[c].column), column);
  }
  return multiplyAlong(e, *product(pair.chunk), left, right, Affine(0), tile * columns,
                       columns / depth, SmallVector<Value>(sums));
}

std::unique_ptr<AttentionTiles> createTiles(AttentionBlock &block, ArrayRef<AttentionPair> pairs,
                                            Mma mma) {
  if (mma == Mma::none)
    return std::make_unique<RegisterTiles>(block, pairs);
  return std::make_unique<TensorCoreTiles>(block, pairs, mma);
}

} // namespace mpc::gpu
