//===- TensorCores.cpp - what a warp does with tensor cores -----------------------------===//

#include "compiler/codegen/gpu/TensorCores.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace mpc::gpu {

//   ldmatrix brings four 8×8 matrices of halves at once into the order of mma, lane l giving the
//   address of row l mod 8 of matrix l / 8.
std::array<Value, 4> TensorCores::loadMatrices(const SharedTile &tile, const Affine &outer,
                                               const Affine &depth, bool depthFirst) {
  auto [matrix, row] = e.divide(lane, 8);
  auto [far, near] = e.divide(matrix, 2);
  Affine outers = (depthFirst ? far : near) * 8, depths = (depthFirst ? near : far) * 8;
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
  std::array<Value, 4> words;
  for (int64_t i = 0; i < 4; ++i)
    words[i] = LLVM::ExtractValueOp::create(b, e.loc, loaded, i);
  return words;
}

Value TensorCores::operand(Value word) {
  if (element.isBF16())
    return word;
  return LLVM::BitcastOp::create(e.here(), e.loc, VectorType::get(2, element), word);
}

SmallVector<Value> TensorCores::multiplyAdd(ArrayRef<Value> left, ArrayRef<Value> right,
                                            ValueRange sums) {
  OpBuilder &b = e.here();
  Type f32 = b.getF32Type();
  NVVM::MMATypes type = element.isBF16() ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
  Value result = NVVM::MmaOp::create(
      b, e.loc, LLVM::LLVMStructType::getLiteral(b.getContext(), {f32, f32, f32, f32}), left, right,
      sums, {kRows, kColumns, kDepth}, std::nullopt, std::nullopt, std::array{type, type},
      std::array{NVVM::MMALayout::row, NVVM::MMALayout::col});
  SmallVector<Value> next;
  for (int64_t i = 0; i < kSums; ++i)
    next.push_back(LLVM::ExtractValueOp::create(b, e.loc, result, i));
  return next;
}

} // namespace mpc::gpu
