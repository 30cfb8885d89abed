//===- EmitProduct.cpp - a tiled matrix product ------------------------------------------===//
//
//   block (split, b, i, j):
//     piece = read(step 0)
//     for step in [0, steps):
//       shared[step mod 2] = piece;  barrier;  piece = read(step + 1)
//       sums += left tile · right tile
//     result tile = epilogue(sums), or scratch[split] = sums, which another function adds up
//
// What lies outside of an operand is read as zero, from its first element: no branch stands in
// the way of the next access. While a tile is multiplied, the next one is on its way, and no
// second barrier is needed: who fills a buffer again has met everybody who multiplied it.
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/Depthwise.h"
#include "compiler/codegen/gpu/TileReader.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace mpc::gpu {

namespace {
struct ProductKernel {
  ProductKernel(func::FuncOp frame, Operation *command, unsigned architecture)
      : frame(frame), map(command), grid(productGrid(command)), function(productFunctions(command)),
        scratch(productScratchBytes(command)), mma(mmaOf(architecture, map.element)) {}

  func::FuncOp frame;
  ProductMap map;
  ProductGrid grid;
  SmallVector<Function, 2> function;
  int64_t scratch;
  Mma mma;
  std::map<Affine, Value> biases; ///< read so far

  SmallVector<Value> sumTile(GpuEmitter &e, TileProduct &product, ArrayRef<Affine> block);
  Value bias(GpuEmitter &e, const Affine &batch, const Affine &row, const Affine &column);
  Value finished(GpuEmitter &e, Value sum, const Affine &batch, const Affine &row,
                 const Affine &column);
  /// Where the scratch has partial sum number `at`.
  Affine partialAt(const Affine &at) const {
    return at + Affine(map.packedBytes() / storedBytes(map.accumulator));
  }
  Affine partialAt(const Affine &split, const Affine &batch, const Affine &row,
                   const Affine &column) const {
    return partialAt(((split * map.batch + batch) * map.rows + row) * map.columns + column);
  }
  void storeRun(GpuEmitter &e, const SumRun &run, ValueRange sums, ArrayRef<Affine> block);
  const Function &tiles() const { return function[map.packedElements ? 1 : 0]; }

  LogicalResult emitFilter();
  void storeNeighbors(GpuEmitter &e, DepthwiseBatch batch, const Affine &row, ValueRange sums);
  LogicalResult emitDepthwise();
  LogicalResult emitTiles();
  LogicalResult emitCombine();
  LogicalResult emitGradient();
};
} // namespace

/// The sums of this thread over the block's part of the depth.
SmallVector<Value> ProductKernel::sumTile(GpuEmitter &e, TileProduct &product,
                                          ArrayRef<Affine> block) {
  bool tensorCores = mma != Mma::none;
  int64_t depth = tileDepth(tensorCores), threads = grid.tile.threads;
  SmallVector<Value> sums(grid.tile.rows * grid.tile.columns / threads,
                          e.identity(ReductionKind::sum, map.accumulator));
  if (map.isZero())
    return sums;
  auto reader = [&](const ProductSide &side, int64_t outers, int64_t limit, const Affine &tile) {
    Value pointer = side.operand == kPacked ? e.scratch : e.arguments[side.operand];
    TileReader reader{side, map.element, pointer, outers, limit, tile * outers, depth, map.depth};
    reader.layout = sharedLayout(map, side, outers, tensorCores);
    reader.share(e, threads, /*buffers=*/2);
    return reader;
  };
  TileReader left = reader(map.left, grid.tile.rows, map.rows, block[2]);
  TileReader right = reader(map.right, grid.tile.columns, map.columns, block[3]);
  int64_t steps = llvm::divideCeil(grid.splits == 1 ? map.depth : grid.splitDepth, depth);
  return multiplyAlong(e, product, left, right, block[1], block[0] * grid.splitDepth, steps,
                       std::move(sums));
}

//===--------------------------------------------------------------------------------------===//
// From sums to the result
//===--------------------------------------------------------------------------------------===//

/// The bias of an element, in the accumulator's type. It is read once, whether the element exists
/// or not.
Value ProductKernel::bias(GpuEmitter &e, const Affine &batch, const Affine &row,
                          const Affine &column) {
  Affine at = map.biasPerRow ? e.clamped(row, map.rows) : e.clamped(column, map.columns);
  at = at + batch * map.biasStride;
  Value &known = biases[at];
  if (!known)
    known =
        e.convert(e.load(e.arguments[2], map.element, at), map.accumulator, e.Emitter::depth(at));
  return known;
}

Value ProductKernel::finished(GpuEmitter &e, Value sum, const Affine &batch, const Affine &row,
                              const Affine &column) {
  if (map.hasBias) {
    Value added = bias(e, batch, row, column);
    sum = arith::AddFOp::create(e.here(), e.loc, sum, added);
  }
  if (map.relu) {
    Value zero = e.identity(ReductionKind::sum, map.accumulator);
    sum = arith::MaximumFOp::create(e.here(), e.loc, sum, zero, arith::FastMathFlags::nsz);
  }
  return e.convert(sum, map.result, e.depth());
}

/// Stores neighbors of a row together where they are neighbors in the result.
void ProductKernel::storeRun(GpuEmitter &e, const SumRun &run, ValueRange sums,
                             ArrayRef<Affine> block) {
  bool partial = grid.splits > 1;
  Affine batch = block[1], row = block[2] * grid.tile.rows + run.row,
         column = block[3] * grid.tile.columns + run.column;
  int64_t width = std::min(run.count, partial ? dividing(map.columns, 4) : map.resultWidth);
  for (int64_t i = 0; i < run.count; i += width) {
    Affine first = column + Affine(i);
    Value exists = e.both(e.inside(row, map.rows), e.inside(first, map.columns), e.depth());
    e.guarded(exists, [&] {
      SmallVector<Value> values;
      for (int64_t n = 0; n < width; ++n) {
        Value sum = sums[run.first + i + n];
        values.push_back(partial ? sum : finished(e, sum, batch, row, first + Affine(n)));
      }
      Affine at =
          partial ? partialAt(block[0], batch, row, first) : map.resultAt(e, batch, row, first);
      storeTogether(e, partial ? e.scratch : e.results[0], at, values);
    });
  }
}

//   thread at:  scratch[at] = the filter's element that the product reads there
LogicalResult ProductKernel::emitFilter() {
  const Function &copy = function.front();
  GpuEmitter e(frame, copy, scratch);
  Affine t = e.block * copy.block + e.thread;
  e.guarded(e.inside(t, map.packedElements), [&] {
    Affine at = e.known(t, map.packedElements, e.depth());
    e.store(e.scratch, e.load(e.arguments[1], map.element, map.packedFrom(e, at)), at);
  });
  return e.finish();
}

LogicalResult ProductKernel::emitTiles() {
  GpuEmitter e(frame, tiles(), scratch);
  e.preferRegisters();
  SmallVector<Affine> block =
      e.split(e.block, {grid.splits, map.batch, grid.tileRows, grid.tileColumns});
  std::unique_ptr<TileProduct> product =
      mma == Mma::none ? createRegisterProduct(e, grid.tile, map.accumulator)
                       : createTensorCoreProduct(e, grid.tile, mma, map.element);
  SmallVector<Value> sums = sumTile(e, *product, block);
  for (const SumRun &run : product->runs())
    storeRun(e, run, sums, block);
  return e.finish();
}

/// A pixel's sums of neighboring channels, together where their features are neighbors.
void ProductKernel::storeNeighbors(GpuEmitter &e, DepthwiseBatch batch, const Affine &row,
                                   ValueRange sums) {
  Affine first = map.resultAt(e, batch(0), row, 0);
  int64_t count = sums.size(), width = dividing(count, kAccessBytes / storedBytes(map.result));
  SmallVector<Affine> places;
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i) {
    Affine product = batch(i / map.columns), column = i % map.columns;
    places.push_back(map.resultAt(e, product, row, column));
    values.push_back(finished(e, sums[i], product, row, column));
    if (!(places[i] - first == Affine(i)))
      width = 1;
  }
  for (int64_t i = 0; i < count; i += width)
    storeTogether(e, e.results[0], places[i], ArrayRef(values).slice(i, width));
}

LogicalResult ProductKernel::emitDepthwise() {
  GpuEmitter e(frame, tiles(), scratch);
  DepthwiseGrid own(map);
  if (map.sumsPixels)
    emitDepthwiseFilterGradient(e, map, own,
                                [&](const Affine &split, const Affine &batch, const Affine &row,
                                    const Affine &column, Value sum) {
                                  if (grid.splits > 1)
                                    e.store(e.scratch, sum, partialAt(split, batch, row, column));
                                  else
                                    e.store(e.results[0], finished(e, sum, batch, row, column),
                                            map.resultAt(e, batch, row, column));
                                });
  else
    emitDepthwisePixels(e, map, own, [&](DepthwiseBatch batch, const Affine &row, ValueRange sums) {
      storeNeighbors(e, batch, row, sums);
    });
  return e.finish();
}

//   thread (b, m, n):  result = epilogue(Σ scratch[split, b, m, n] over the splits in order)
LogicalResult ProductKernel::emitCombine() {
  const Function &combine = *std::next(&tiles());
  GpuEmitter e(frame, combine, scratch);
  int64_t total = map.batch * map.rows * map.columns;
  Affine t = e.block * combine.block + e.thread;
  e.guarded(e.inside(t, total), [&] {
    Affine at = e.known(t, total, e.depth());
    Value zero = e.identity(ReductionKind::sum, map.accumulator);
    Value sum = e.loop(grid.splits, 0, zero, [&](const Affine &split, ValueRange carried) {
      Value part = e.loadHere(e.scratch, map.accumulator, partialAt(split * total + at));
      return SmallVector<Value>{arith::AddFOp::create(e.here(), e.loc, carried[0], part)};
    })[0];
    SmallVector<Affine> index = e.split(at, {map.batch, map.rows, map.columns});
    Value value = finished(e, sum, index[0], index[1], index[2]);
    e.store(e.results[0], value, map.resultAt(e, index[0], index[1], index[2]));
  });
  return e.finish();
}

//   thread at:  the result's element = scratch[at], which a library has left there
LogicalResult ProductKernel::emitGradient() {
  const Function &copy = function.back();
  GpuEmitter e(frame, copy, scratch);
  Affine t = e.block * copy.block + e.thread;
  e.guarded(e.inside(t, map.unpackedElements), [&] {
    Affine at = e.known(t, map.unpackedElements, e.depth());
    e.store(e.results[0], e.load(e.scratch, map.result, at), map.unpackedTo(e, at));
  });
  return e.finish();
}

/// A kernel with the command's operands and result: the emitter's frame.
static func::FuncOp frameOf(Operation *command) {
  OpBuilder b(command->getParentOfType<func::FuncOp>());
  auto frame = func::FuncOp::create(
      b, command->getLoc(), "product",
      b.getFunctionType(command->getOperandTypes(), command->getResultTypes()));
  frame.setPrivate();
  ArrayRef<int64_t> shape = tensorShape(command->getResult(0));
  frame->setAttr(MpcDialect::kKernelAttr,
                 KernelAttr::get(b.getContext(), KernelKind::map, b.getDenseI64ArrayAttr(shape), 0,
                                 b.getDenseI64ArrayAttr({-1})));
  return frame;
}

LogicalResult emitProduct(Operation *command, unsigned architecture) {
  if (productFunctions(command).empty())
    return success();
  func::FuncOp frame = frameOf(command);
  ProductKernel kernel(frame, command, architecture);
  LogicalResult done = kernel.map.packedElements ? kernel.emitFilter() : success();
  if (succeeded(done))
    done = kernel.map.depthwiseGroups ? kernel.emitDepthwise() : kernel.emitTiles();
  kernel.biases.clear();
  if (succeeded(done) && kernel.grid.splits > 1)
    done = kernel.emitCombine();
  if (succeeded(done) && kernel.map.unpackedElements)
    done = kernel.emitGradient();
  frame.erase();
  return done;
}

} // namespace mpc::gpu
