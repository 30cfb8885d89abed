//===- TileReader.cpp - from an operand to tiles in shared memory -----------------------===//

#include "compiler/codegen/gpu/TileReader.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace mpc::gpu {

/// A piece travels as words, whatever its elements are.
static Type pieceType(OpBuilder &b, int64_t bytes) {
  Type word = b.getIntegerType(std::min<int64_t>(bytes * 8, 32));
  return bytes > 4 ? Type(VectorType::get(bytes / 4, word)) : word;
}

void TileReader::share(GpuEmitter &e, int64_t threads, int64_t buffers) {
  this->threads = threads;
  width = dividing(outers * depth / threads, side.width);
  if (!memory)
    memory = e.sharedArray(layout.element, buffers * layout.elements);
}

/// Piece number i of a thread: its first element in the tile, (outer, depth).
std::pair<Affine, Affine> TileReader::place(GpuEmitter &e, int64_t i) const {
  int64_t perLine = (side.alongDepth ? depth : outers) / width;
  auto [line, at] = e.divide(e.thread + Affine(i * threads), perLine);
  return side.alongDepth ? std::pair(line, at * width) : std::pair(at * width, line);
}

void TileReader::read(GpuEmitter &e, const Affine &batch, const Affine &first,
                      SmallVectorImpl<Value> &pieces) const {
  if (isResident)
    return;
  int64_t bytes = width * storedBytes(element);
  Type type = pieceType(e.here(), bytes);
  for (int64_t i = 0; i < this->pieces(); ++i) {
    auto [outerAt, depthAt] = place(e, i);
    Affine outer = firstOuter + outerAt, k = first + depthAt;
    ProductElement from = side.at(e, batch, outer, k);
    Value exists = e.both(e.inside(outer, limit), e.inside(k, depthLimit), e.depth());
    exists = e.both(exists, from.exists, e.depth());
    Value offset = e.index(from.index), none = e.constant(0);
    offset = exists ? e.select(exists, offset, none) : offset;
    Value address = addressOf(e, pointer, element, offset);
    OpBuilder &b = e.here();
    Value piece = LLVM::LoadOp::create(b, e.loc, type, address, bytes);
    if (exists) {
      Value zero = arith::ConstantOp::create(b, e.loc, cast<TypedAttr>(b.getZeroAttr(type)));
      piece = e.select(exists, piece, zero);
    }
    pieces.push_back(piece);
  }
}

void TileReader::fill(GpuEmitter &e, const Affine &first, ValueRange pieces) const {
  if (isResident)
    return;
  SharedTile tile{memory, layout, first};
  Type from = element, to = layout.element;
  int64_t step = side.alongDepth ? layout.depthStride : layout.outerStride;
  int64_t together = step == 1 ? dividing(width, 16 / storedBytes(to)) : 1;
  for (auto [i, piece] : llvm::enumerate(pieces)) {
    auto [outer, k] = place(e, i);
    Affine at = tile.at(outer, k);
    if (from == to && together == width) {
      storeBytes(e, memory, to, at, piece, width * storedBytes(to));
      continue;
    }
    Value elements = LLVM::BitcastOp::create(
        e.here(), e.loc, width == 1 ? from : Type(VectorType::get(width, from)), piece);
    SmallVector<Value> values;
    for (int64_t n = 0; n < width; ++n)
      values.push_back(e.convert(elementAt(e, elements, n), to, e.depth()));
    for (int64_t n = 0; n < width; n += together)
      storeTogether(e, memory, at + Affine(n * step), ArrayRef(values).slice(n, together));
  }
}

SharedTile TileReader::tile(GpuEmitter &e, const Affine &step) const {
  if (isResident)
    return {memory, layout, step * (depth * layout.depthStride)};
  return {memory, layout, e.divide(step, 2).second * layout.elements};
}

//   piece = read(step 0)
//   for step:  shared[step mod 2] = piece;  barrier;  piece = read(step + 1);  multiply
SmallVector<Value> multiplyAlong(GpuEmitter &e, TileProduct &product, const TileReader &left,
                                 const TileReader &right, const Affine &batch, const Affine &first,
                                 int64_t steps, SmallVector<Value> sums) {
  size_t count = sums.size(), ofLeft = 0;
  auto readAhead = [&](const Affine &from) {
    SmallVector<Value> pieces;
    if (!left.isLate)
      left.read(e, batch, from, pieces);
    ofLeft = pieces.size();
    if (!right.isLate)
      right.read(e, batch, from, pieces);
    return pieces;
  };
  auto fill = [&](const TileReader &reader, const Affine &to, const Affine &from, ValueRange read) {
    SmallVector<Value> pieces(read);
    if (reader.isLate)
      reader.read(e, batch, from, pieces);
    reader.fill(e, to, pieces);
  };
  sums.append(readAhead(first));
  sums = e.loop(steps, 0, sums, [&](const Affine &step, ValueRange carried) {
    SharedTile tiles[] = {left.tile(e, step), right.tile(e, step)};
    ValueRange old = carried.drop_front(count);
    Affine from = first + step * left.depth;
    fill(left, tiles[0].first, from, old.take_front(ofLeft));
    fill(right, tiles[1].first, from, old.drop_front(ofLeft));
    e.barrier();
    SmallVector<Value> next(old); // after the last step, what was read is left
    if (steps > 1)
      next = readAhead(from + Affine(left.depth));
    SmallVector<Value> all = product.multiply(tiles[0], tiles[1], carried.take_front(count));
    all.append(next);
    return all;
  });
  // Unrolled, it would only keep more addresses in registers.
  Emitter::keepLoop(sums.front());
  sums.truncate(count);
  return sums;
}

} // namespace mpc::gpu
