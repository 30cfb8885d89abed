//===- Depthwise.cpp - convolutions of every channel by itself --------------------------===//

#include "compiler/codegen/gpu/Depthwise.h"
#include "compiler/codegen/gpu/EmitProduct.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace mpc::gpu {

// Registers of a thread for the filter's taps, or for the sums of its gradient.
constexpr int64_t kMostTaps = 48;
// With more taps than this one block of a multiprocessor may have all registers: a pixel's reads
// are on their way at the same time.
constexpr int64_t kManyTaps = 16;
constexpr int64_t kPixelsOfRun = 4;
// Of the filter's gradient: pixels of a thread at least, and blocks that keep a large GPU busy.
constexpr int64_t kLeastPixels = 16, kFillBlocks = 1024;

/// The widest access whose channels have room.
static int64_t togetherOf(const ProductMap &map, int64_t perChannel) {
  int64_t most = std::max<int64_t>(1, kMostTaps / perChannel);
  return dividing(map.depthwiseGroups, std::min(most, kAccessBytes / storedBytes(map.element)));
}

DepthwiseGrid::DepthwiseGrid(const ProductMap &map) {
  if (!map.sumsPixels) {
    together = togetherOf(map, map.columns * map.depth);
    pieces = map.depthwiseGroups / together;
    run = kPixelsOfRun;
    threads = kBlockThreads;
    int64_t phases = map.batch / map.depthwiseGroups;
    blocks = llvm::divideCeil(phases * llvm::divideCeil(map.rows, run) * pieces, threads);
    return;
  }
  int64_t sums = map.rows * map.tapsTogether, bytes = storedBytes(map.accumulator);
  together = togetherOf(map, sums);
  threads = kBlockThreads;
  while (sums * together * threads * bytes > kSharedBytes && together > 1)
    together /= 2;
  while (sums * together * threads * bytes > kSharedBytes)
    threads /= 2;
  pieces = map.depthwiseGroups / together;
  sharedBytes = sums * together * threads * bytes;
  lanes = std::min<int64_t>(kWarp, llvm::PowerOf2Ceil(pieces));
  stripes = llvm::divideCeil(pieces, lanes);
  parts = map.columns / map.tapsTogether;
  int64_t at = threads / lanes; // pixels at a time
  splits = std::clamp<int64_t>(map.depth / (at * kLeastPixels), 1,
                               std::max<int64_t>(1, kFillBlocks / (stripes * parts)));
  splitDepth = llvm::alignTo(llvm::divideCeil(map.depth, splits), at);
  splits = std::max<int64_t>(1, llvm::divideCeil(map.depth, splitDepth));
  blocks = splits * parts * stripes;
}

namespace {
struct Depthwise {
  GpuEmitter &e;
  const ProductMap &map;
  const DepthwiseGrid &grid;

  SmallVector<Value> read(const ProductSide &side, DepthwiseBatch batch, const Affine &outer,
                          const Affine &depth, Value exists = {});
  SmallVector<Value> sumPixels(DepthwiseBatch batch, const Affine &firstColumn,
                               const Affine &firstPixel);
  Value multiplyAdd(Value a, Value b, Value sum) {
    return math::FmaOp::create(e.here(), e.loc, a, b, sum);
  }
  Value zero() { return e.identity(ReductionKind::sum, map.accumulator); }
};
} // namespace

/// An element of each of a thread's products, in the accumulator's type; zero where they do not
/// exist, which is the same for all.
SmallVector<Value> Depthwise::read(const ProductSide &side, DepthwiseBatch batch,
                                   const Affine &outer, const Affine &depth, Value exists) {
  SmallVector<Affine> indices;
  for (int64_t i = 0; i < grid.together; ++i) {
    ProductElement element = side.at(e, batch(i), outer, depth);
    if (i == 0)
      exists = e.both(exists, element.exists, e.depth());
    indices.push_back(element.index);
  }
  // What does not exist is read from the operand's first elements, without a branch.
  Affine first = indices[0];
  if (exists) {
    Value offset = e.select(exists, e.index(first), e.constant(0));
    first = e.addBase(0, std::max<int64_t>(0, e.range(first).second), e.depth(), 0, offset);
  }
  Value pointer = e.arguments[side.operand];
  bool adjacent = true;
  for (auto [i, index] : llvm::enumerate(indices))
    adjacent &= index - indices[0] == Affine(i);
  SmallVector<Value> values;
  if (adjacent)
    values = loadTogether(e, pointer, map.element, first, grid.together);
  else
    for (const Affine &index : indices)
      values.push_back(e.loadHere(pointer, map.element, first + (index - indices[0])));
  for (Value &value : values) {
    value = e.convert(value, map.accumulator, e.depth());
    value = exists ? e.select(exists, value, zero()) : value;
  }
  return values;
}

void emitDepthwisePixels(
    GpuEmitter &e, const ProductMap &map, const DepthwiseGrid &grid,
    llvm::function_ref<void(DepthwiseBatch, const Affine &row, ValueRange)> store) {
  Depthwise kernel{e, map, grid};
  if (map.columns * map.depth > kManyTaps)
    e.preferRegisters();
  int64_t phases = map.batch / map.depthwiseGroups, runs = llvm::divideCeil(map.rows, grid.run),
          total = phases * runs * grid.pieces;
  Affine thread = e.block * grid.threads + e.thread;
  e.guarded(e.inside(thread, total), [&] {
    Affine own = e.known(thread, total, e.depth());
    SmallVector<Affine> place = e.split(own, {phases, runs, grid.pieces});
    auto batch = [&](int64_t i) {
      return (place[2] * grid.together + Affine(i)) * phases + place[0];
    };
    SmallVector<SmallVector<Value>> filter; // of (n, k)
    for (int64_t n = 0; n < map.columns; ++n)
      for (int64_t k = 0; k < map.depth; ++k)
        filter.push_back(kernel.read(map.right, batch, n, k));
    e.loop(grid.run, 0, {}, [&](const Affine &i, ValueRange) {
      Affine at = place[1] * grid.run + i;
      e.guarded(e.inside(at, map.rows), [&] {
        Affine row = e.known(at, map.rows, e.depth());
        SmallVector<Value> sums(grid.together * map.columns, kernel.zero());
        for (int64_t k = 0; k < map.depth; ++k)
          for (auto [i, x] : llvm::enumerate(kernel.read(map.left, batch, row, k)))
            for (int64_t n = 0; n < map.columns; ++n) {
              Value &sum = sums[i * map.columns + n];
              sum = kernel.multiplyAdd(x, filter[n * map.depth + k][i], sum);
            }
        store(batch, row, sums);
      });
      return SmallVector<Value>();
    });
  });
}

/// This thread's sums, number (m · tapsTogether + n) · together + i, over every some pixel from
/// `firstPixel` on.
SmallVector<Value> Depthwise::sumPixels(DepthwiseBatch batch, const Affine &firstColumn,
                                        const Affine &firstPixel) {
  int64_t at = grid.threads / grid.lanes;
  SmallVector<Value> sums(map.rows * map.tapsTogether * grid.together, zero());
  if (map.isZero())
    return sums;
  sums = e.loop(grid.splitDepth / at, 0, sums, [&](const Affine &step, ValueRange carried) {
    Affine pixel = firstPixel + step * at;
    Value exists = e.inside(pixel, map.depth);
    Affine known = e.clamped(pixel, map.depth);
    SmallVector<Value> next(carried);
    SmallVector<SmallVector<Value>> gradients;
    for (int64_t m = 0; m < map.rows; ++m)
      gradients.push_back(read(map.left, batch, m, known, exists));
    for (int64_t n = 0; n < map.tapsTogether; ++n)
      for (auto [i, x] : llvm::enumerate(read(map.right, batch, firstColumn + n, known, exists)))
        for (int64_t m = 0; m < map.rows; ++m) {
          Value &sum = next[(m * map.tapsTogether + n) * grid.together + i];
          sum = multiplyAdd(gradients[m][i], x, sum);
        }
    return next;
  });
  Emitter::keepLoop(sums.front());
  return sums;
}

void emitDepthwiseFilterGradient(
    GpuEmitter &e, const ProductMap &map, const DepthwiseGrid &grid,
    llvm::function_ref<void(const Affine &split, const Affine &batch, const Affine &row,
                            const Affine &column, Value)>
        store) {
  Depthwise kernel{e, map, grid};
  if (map.rows * map.tapsTogether > kManyTaps)
    e.preferRegisters();
  SmallVector<Affine> block = e.split(e.block, {grid.splits, grid.parts, grid.stripes});
  Affine split = block[0], firstColumn = block[1] * map.tapsTogether, stripe = block[2];
  auto [turn, lane] = e.divide(e.thread, grid.lanes);
  Affine own = e.clamped(stripe * grid.lanes + lane, grid.pieces);
  auto batch = [&](int64_t i) { return own * grid.together + Affine(i); };
  SmallVector<Value> sums = kernel.sumPixels(batch, firstColumn, split * grid.splitDepth + turn);

  Value shared = e.sharedArray(map.accumulator, sums.size() * grid.threads);
  for (auto [i, sum] : llvm::enumerate(sums))
    e.store(shared, sum, e.thread + Affine(i * grid.threads));
  e.barrier();
  // A thread per element of the stripe's filters: (m, n), i, lane.
  int64_t perSum = grid.together * grid.lanes, total = map.rows * map.tapsTogether * perSum;
  e.loop(llvm::divideCeil(total, grid.threads), 0, {}, [&](const Affine &step, ValueRange) {
    Affine index = step * grid.threads + e.thread;
    e.guarded(e.inside(index, total), [&] {
      Affine known = e.known(index, total, e.depth());
      SmallVector<Affine> place =
          e.split(known, {map.rows, map.tapsTogether, grid.together, grid.lanes});
      Affine piece = stripe * grid.lanes + place[3];
      auto [number, itsLane] = e.divide(known, grid.lanes);
      Value sum = e.loop(
          grid.threads / grid.lanes, 0, kernel.zero(), [&](const Affine &turn, ValueRange carried) {
            Affine at = number * grid.threads + turn * grid.lanes + itsLane;
            Value part = e.loadHere(shared, map.accumulator, at);
            return SmallVector<Value>{arith::AddFOp::create(e.here(), e.loc, carried[0], part)};
          })[0];
      e.guarded(e.inside(piece, grid.pieces), [&] {
        Affine own = e.known(piece, grid.pieces, e.depth());
        store(split, own * grid.together + place[2], place[0], firstColumn + place[1], sum);
      });
    });
    return SmallVector<Value>();
  });
}

} // namespace mpc::gpu
