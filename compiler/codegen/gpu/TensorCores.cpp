//===- TensorCores.cpp - what a warp does with tensor cores -----------------------------===//

#include "compiler/codegen/gpu/TensorCores.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace mpc::gpu {

bool hasTensorCores(Type element) { return element.isF16() || element.isBF16(); }

Mma mmaOf(unsigned architecture, Type element) {
  constexpr unsigned kFirstOfMatrices = 75;
  if (!hasTensorCores(element))
    return Mma::none;
  if (architecture >= kFirstBf16Architecture)
    return Mma::m16n8k16;
  if (element.isBF16())
    return Mma::none;
  return architecture >= kFirstOfMatrices ? Mma::m16n8k8 : Mma::m8n8k4;
}

Value TensorCores::operand(Value word) {
  if (element.isBF16())
    return word;
  return LLVM::BitcastOp::create(e.here(), e.loc, VectorType::get(2, element), word);
}

TensorCores::Fragment TensorCores::leftOf(ArrayRef<Value> words) {
  Fragment fragment;
  for (Value word : words)
    fragment.words.push_back(operand(word));
  return fragment;
}

SmallVector<Value> TensorCores::multiply(ArrayRef<Value> left, ArrayRef<Value> right,
                                         ValueRange sums, std::array<int64_t, 3> shape,
                                         bool leftAlongDepth, bool rightAlongDepth) {
  using NVVM::MMALayout;
  OpBuilder &b = e.here();
  SmallVector<Type> types(sums.size(), b.getF32Type());
  NVVM::MMATypes type = element.isBF16() ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
  Value result =
      NVVM::MmaOp::create(b, e.loc, LLVM::LLVMStructType::getLiteral(b.getContext(), types), left,
                          right, sums, shape, std::nullopt, std::nullopt, std::array{type, type},
                          std::array{leftAlongDepth ? MMALayout::row : MMALayout::col,
                                     rightAlongDepth ? MMALayout::col : MMALayout::row});
  SmallVector<Value> next;
  for (size_t i = 0; i < sums.size(); ++i)
    next.push_back(LLVM::ExtractValueOp::create(b, e.loc, result, i));
  return next;
}

//===--------------------------------------------------------------------------------------===//
// From sm_75 on
//===--------------------------------------------------------------------------------------===//

namespace {
/// mma.sync.m16n8k16, or m16n8k8 twice: the halves of the depth. With g = lane / 4 and
/// p = 2 · (lane mod 4), the words of
///   left   (16×16)  (g, p) (g + 8, p) (g, p + 8) (g + 8, p + 8)    two neighbors of the depth each
///   right  (16×8)   (p, g) (p + 8, g)                              likewise
///   sums   (16×8)   (g, p) (g, p + 1) (g + 8, p) (g + 8, p + 1)    one f32 each
class MatrixCores : public TensorCores {
public:
  MatrixCores(GpuEmitter &e, Mma mma, Type element, const Affine &lane)
      : TensorCores(e, element, lane), depth(mma == Mma::m16n8k16 ? 16 : 8) {
    rowLanes = 4;
    laneDistance = 1;
    auto [group, place] = e.divide(lane, rowLanes);
    rows = {group, group + Affine(8)};
    columns = {place * 2, place * 2 + Affine(8)};
    for (const Affine &column : columns)
      for (const Affine &row : rows)
        leftPlaces.push_back({row, column});
  }

  Fragment load(const SharedTile &tile, const Affine &outer, const Affine &depth,
                Side side) override;
  Fragment leftOfSums(ArrayRef<Value> words) override { return leftOf(words); }
  SmallVector<Value> multiplyAdd(const Fragment &left, const Fragment &right,
                                 ValueRange sums) override;

private:
  int64_t depth; ///< of one mma
};
} // namespace

//   ldmatrix brings four 8×8 matrices of halves at once into the order of mma, lane l giving the
//   address of row l mod 8 of matrix l / 8. The second matrix is the one further in the depth (the
//   right side of two products), or in the outer index (a left side).
TensorCores::Fragment MatrixCores::load(const SharedTile &tile, const Affine &outer,
                                        const Affine &depth, Side side) {
  auto [matrix, row] = e.divide(lane, 8);
  auto [far, near] = e.divide(matrix, 2);
  Affine outers = (side == kRight ? far : near) * 8, depths = (side == kRight ? near : far) * 8;
  bool transposed = tile.layout.depthStride != 1;
  (transposed ? depths : outers) = (transposed ? depths : outers) + row;
  MLIRContext *context = e.here().getContext();
  Value address =
      addressOf(e, tile.memory, element, e.index(tile.at(outer + outers, depth + depths)));
  OpBuilder &b = e.here();
  constexpr unsigned kSharedSpace = 3;
  address = LLVM::AddrSpaceCastOp::create(
      b, e.loc, LLVM::LLVMPointerType::get(context, kSharedSpace), address);
  Type word = b.getI32Type();
  Value loaded = NVVM::LdMatrixOp::create(
      b, e.loc, LLVM::LLVMStructType::getLiteral(context, {word, word, word, word}), address,
      /*num=*/4, transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row,
      NVVM::LdStMatrixShapeAttr::get(context, 8, 8), NVVM::LdStMatrixEltType::B16);
  Fragment fragment;
  for (int64_t i = 0; i < 4; ++i)
    fragment.words.push_back(operand(LLVM::ExtractValueOp::create(b, e.loc, loaded, i)));
  return fragment;
}

SmallVector<Value> MatrixCores::multiplyAdd(const Fragment &left, const Fragment &right,
                                            ValueRange sums) {
  size_t parts = kDepth / depth, lefts = 4 / parts, rights = 2 / parts;
  SmallVector<Value> all;
  for (size_t column = 0; column < 2; ++column) {
    SmallVector<Value> next(sums.slice(4 * column, 4));
    for (size_t part = 0; part < parts; ++part)
      next = multiply(ArrayRef(left.words).slice(part * lefts, lefts),
                      ArrayRef(right.words).slice(2 * column + part * rights, rights), next,
                      {16, 8, depth});
    all.append(next);
  }
  return all;
}

//===--------------------------------------------------------------------------------------===//
// sm_70
//===--------------------------------------------------------------------------------------===//

namespace {
/// mma.sync.m8n8k4: four products of 8×8 sums at once, by the lanes 4·q … 4·q + 3 and those + 16
/// for each q. Here they are the quarters of 16×16 sums, and four instructions take 4 of the depth
/// each. With the bits of a lane's number (upper, down, across, high, low), and t = 2 · high + low:
///   left    row 8 · down + 4 · upper + t,       4 neighbors of the depth; or
///           depth t,                            4 neighbors of the rows from 8 · down + 4 · upper
///   right   column 8 · across + 4 · upper + t,  likewise
///   sums    rows 8 · down + 4 · upper + low and that + 2; columns 8 · across + 2 · high and the
///           next, and those + 4
class QuadCores : public TensorCores {
public:
  QuadCores(GpuEmitter &e, Type element, const Affine &lane) : TensorCores(e, element, lane) {
    SmallVector<Affine> bits = e.split(lane, {2, 2, 2, 2, 2});
    const Affine &upper = bits[0], &down = bits[1], &low = bits[4];
    across = bits[2];
    high = bits[3];
    own = high * 2 + low;
    outers = {down * 8 + upper * 4, across * 8 + upper * 4};
    rows = {outers[kLeft] + low, outers[kLeft] + low + Affine(2)};
    columns = {across * 8 + high * 2, across * 8 + high * 2 + Affine(4)};
    rowLanes = 4;
    laneDistance = kHigh;
    for (int64_t depth = 0; depth < kDepth; depth += 2)
      leftPlaces.push_back({outers[kLeft] + own, Affine(depth)});
  }

  Fragment load(const SharedTile &tile, const Affine &outer, const Affine &depth,
                Side side) override;
  Fragment leftOfSums(ArrayRef<Value> words) override;
  SmallVector<Value> multiplyAdd(const Fragment &left, const Fragment &right,
                                 ValueRange sums) override;

private:
  static constexpr int64_t kStep = 4;              ///< of the depth, per instruction
  static constexpr int32_t kHigh = 2, kAcross = 4; ///< the bits as numbers

  Affine across, high, own;
  std::array<Affine, 2> outers; ///< of each side, where four lanes begin
};
} // namespace

TensorCores::Fragment QuadCores::load(const SharedTile &tile, const Affine &outer,
                                      const Affine &depth, Side side) {
  Fragment fragment;
  fragment.alongDepth = tile.layout.depthStride == 1;
  Affine first = outer + outers[side];
  int64_t words = fragment.alongDepth ? kStep : kStep / 2;
  for (int64_t k = 0; k < kDepth; k += fragment.alongDepth ? 2 * kStep : kStep) {
    Affine at = fragment.alongDepth ? tile.at(first + own, depth + Affine(k))
                                    : tile.at(first, depth + own + Affine(k));
    Value address = addressOf(e, tile.memory, element, e.index(at));
    OpBuilder &b = e.here();
    Value loaded = LLVM::LoadOp::create(b, e.loc, VectorType::get(words, b.getI32Type()), address,
                                        words * static_cast<int64_t>(sizeof(uint32_t)));
    for (int64_t i = 0; i < words; ++i)
      fragment.words.push_back(operand(elementAt(e, loaded, i)));
  }
  return fragment;
}

//   Of an 8×8 quarter, lanes that differ in `high` have the same two rows, two of four columns
//   each; on the left each of them has one of the rows. So they exchange a row. Lanes that differ
//   in `across` then have the other eight columns, which are the depth now.
TensorCores::Fragment QuadCores::leftOfSums(ArrayRef<Value> words) {
  Value isLow = e.inside(high, 1), isFirst = e.inside(across, 1);
  SmallVector<Value> near, all;
  for (size_t column = 0; column < 2; ++column) {
    Value upper = words[2 * column], lower = words[2 * column + 1];
    Value got = e.shuffle(e.select(isLow, lower, upper), kHigh);
    near.push_back(e.select(isLow, upper, got));
    near.push_back(e.select(isLow, got, lower));
  }
  SmallVector<Value> far;
  for (Value word : near)
    far.push_back(e.shuffle(word, kAcross));
  for (auto [own, other] : llvm::zip_equal(near, far))
    all.push_back(e.select(isFirst, own, other));
  for (auto [own, other] : llvm::zip_equal(near, far))
    all.push_back(e.select(isFirst, other, own));
  return leftOf(all);
}

SmallVector<Value> QuadCores::multiplyAdd(const Fragment &left, const Fragment &right,
                                          ValueRange sums) {
  constexpr size_t kWords = 2; // of a side, per instruction
  SmallVector<Value> next(sums);
  for (size_t word = 0; word < left.words.size(); word += kWords)
    next = multiply(ArrayRef(left.words).slice(word, kWords),
                    ArrayRef(right.words).slice(word, kWords), next, {8, 8, kStep}, left.alongDepth,
                    right.alongDepth);
  return next;
}

std::unique_ptr<TensorCores> createTensorCores(GpuEmitter &e, Mma mma, Type element,
                                               const Affine &lane) {
  if (mma == Mma::m8n8k4)
    return std::make_unique<QuadCores>(e, element, lane);
  return std::make_unique<MatrixCores>(e, mma, element, lane);
}

} // namespace mpc::gpu
