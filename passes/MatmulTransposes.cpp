//===- MatmulTransposes.cpp - transposes become flags of matrix products --------------===//
//
// Attention multiplies with the transpose of its keys, scaled and rounded on the way:
//
//   %t = mpc.transpose %k [0, 2, 3, 1]              %t = mpc.transpose %k [0, 2, 1, 3]
//   %s = arith.mulf %t, %c                  →       %s = arith.mulf %t, %c
//   %p = mpc.matmul %q, %s                          %p = mpc.matmul %q, %s {transpose_rhs}
//
// and its backward pass transposes such a product. A kernel that swaps the last two dimensions
// reads or writes with a stride; the library packs its operands in either order. So wherever
// the innermost dimension would move one place, the product does it: (a·b)ᵀ = bᵀ·aᵀ.
//
//===----------------------------------------------------------------------------------===//

#include "passes/AssignLayout.h"
#include "passes/Clustering.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mpc;

static RankedTensorType typeOf(Value v) { return cast<RankedTensorType>(v.getType()); }

/// The type with its last two dimensions exchanged.
static RankedTensorType swapped(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return RankedTensorType::get(shape, tensor.getElementType());
}

/// The innermost dimension of the operand becomes the last but one, or that one the innermost.
static bool swapsInnermost(TransposeOp transpose) {
  ArrayRef<int64_t> order = transpose.getPermutation();
  int64_t rank = order.size();
  return rank >= 2 && (order[rank - 2] == rank - 1 || order[rank - 1] == rank - 2) &&
         order[rank - 1] != rank - 1;
}

/// A splat constant, or a number repeated: the same in every order of the dimensions.
static bool isUniform(Value v) {
  if (auto broadcast = v.getDefiningOp<BroadcastOp>())
    return elementCount(broadcast.getInput()) == 1;
  return v.getDefiningOp<arith::ConstantOp>() && !isDataConstant(v);
}

/// `v` with its last two dimensions exchanged, where it is uniform.
static Value swappedUniform(OpBuilder &b, Value v) {
  if (auto broadcast = v.getDefiningOp<BroadcastOp>()) {
    Value input = ReshapeOp::create(
        b, v.getLoc(), RankedTensorType::get({}, typeOf(v).getElementType()), broadcast.getInput());
    return BroadcastOp::create(b, v.getLoc(), swapped(v.getType()), input, ArrayRef<int64_t>());
  }
  auto constant = v.getDefiningOp<arith::ConstantOp>();
  return arith::ConstantOp::create(
      b, v.getLoc(),
      cast<DenseElementsAttr>(constant.getValue()).resizeSplat(swapped(v.getType())));
}

/// The one operand of a pointwise operation that is not uniform; -1 if there are several, or none.
static int onlyOperand(Operation *op) {
  int found = -1;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    if (isUniform(operand))
      continue;
    if (found >= 0)
      return -1;
    found = i;
  }
  return found;
}

/// Every use, through pointwise operations on it alone, is a factor of a matmul.
static bool endsInMatmuls(Value v) {
  return !v.use_empty() && llvm::all_of(v.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isa<MatmulOp>(user))
      return use.getOperandNumber() < 2;
    return isPointwise(user) && onlyOperand(user) >= 0 && endsInMatmuls(user->getResult(0));
  });
}

/// Exchanges the last two dimensions of every use of `old`, whose swapped form is `now`.
static void swapUses(Value old, Value now) {
  for (OpOperand &use : llvm::make_early_inc_range(old.getUses())) {
    Operation *user = use.getOwner();
    if (auto matmul = dyn_cast<MatmulOp>(user)) {
      if (use.getOperandNumber() == 0)
        matmul.setTransposeLhs(!matmul.getTransposeLhs());
      else
        matmul.setTransposeRhs(!matmul.getTransposeRhs());
      use.set(now);
      continue;
    }
    OpBuilder b(user);
    for (OpOperand &operand : user->getOpOperands())
      operand.set(&operand == &use || operand.get() == old ? now
                                                           : swappedUniform(b, operand.get()));
    Operation *copy = user->clone();
    copy->getResult(0).setType(swapped(user->getResult(0).getType()));
    b.insert(copy);
    swapUses(user->getResult(0), copy->getResult(0));
    user->erase();
  }
}

/// The permutation followed by an exchange of the last two dimensions.
static SmallVector<int64_t> withSwap(ArrayRef<int64_t> order) {
  SmallVector<int64_t> result(order);
  std::swap(result[result.size() - 1], result[result.size() - 2]);
  return result;
}

static void sinkIntoFactors(TransposeOp transpose) {
  if (!swapsInnermost(transpose) || !endsInMatmuls(transpose.getResult()))
    return;
  SmallVector<int64_t> order = withSwap(transpose.getPermutation());
  OpBuilder b(transpose);
  Value now = transpose.getInput();
  if (!llvm::is_sorted(order))
    now = TransposeOp::create(b, transpose.getLoc(), swapped(transpose.getType()), now, order);
  swapUses(transpose.getResult(), now);
  transpose.erase();
}

/// transpose(f(a·b)) → transpose'(f(bᵀ·aᵀ)), where nothing else reads a·b and f(a·b).
static void hoistIntoProduct(TransposeOp transpose) {
  if (!swapsInnermost(transpose))
    return;
  SmallVector<Operation *> chain; // from the transpose upwards
  Value v = transpose.getInput();
  while (v.hasOneUse() && v.getDefiningOp() && isPointwise(v.getDefiningOp()) &&
         onlyOperand(v.getDefiningOp()) >= 0) {
    chain.push_back(v.getDefiningOp());
    v = v.getDefiningOp()->getOperand(onlyOperand(v.getDefiningOp()));
  }
  auto matmul = v.getDefiningOp<MatmulOp>();
  if (!matmul || !v.hasOneUse() || matmul.getBias() || matmul.getRelu())
    return;

  OpBuilder b(matmul);
  auto turned = cast<MatmulOp>(b.clone(*matmul));
  turned.getLhsMutable().set(matmul.getRhs());
  turned.getRhsMutable().set(matmul.getLhs());
  turned.setTransposeLhs(!matmul.getTransposeRhs());
  turned.setTransposeRhs(!matmul.getTransposeLhs());
  turned.getResult().setType(swapped(matmul.getResult().getType()));
  Value now = turned.getResult();
  for (Operation *op : llvm::reverse(chain)) {
    b.setInsertionPoint(op);
    int operand = onlyOperand(op);
    Operation *copy = op->clone();
    for (auto [i, old] : llvm::enumerate(op->getOperands()))
      copy->setOperand(i, static_cast<int>(i) == operand ? now : swappedUniform(b, old));
    copy->getResult(0).setType(swapped(op->getResult(0).getType()));
    b.insert(copy);
    now = copy->getResult(0);
  }

  // The transpose reads a value whose last two dimensions have been exchanged already.
  int64_t rank = typeOf(now).getRank();
  SmallVector<int64_t> order;
  for (int64_t d : transpose.getPermutation())
    order.push_back(d == rank - 1 ? rank - 2 : (d == rank - 2 ? rank - 1 : d));
  b.setInsertionPoint(transpose);
  if (!llvm::is_sorted(order))
    now = TransposeOp::create(b, transpose.getLoc(), transpose.getType(), now, order);
  transpose.getResult().replaceAllUsesWith(now);
  transpose.erase();
  for (Operation *op : chain)
    op->erase();
  matmul.erase();
}

/// Matrices are turned alike however the dimensions in front of them are grouped:
/// reshape(transpose(reshape(x))) with the last two dimensions whole → transpose(x), or of one
/// reshape.
static void turnBehind(ReshapeOp reshape) {
  auto transpose = reshape.getInput().getDefiningOp<TransposeOp>();
  if (!transpose)
    return;
  RankedTensorType result = typeOf(reshape.getResult()), turned = typeOf(transpose.getResult());
  if (turned.getRank() < 2)
    return;
  SmallVector<int64_t> order = withSwap(llvm::to_vector(llvm::seq<int64_t>(0, turned.getRank())));
  if (transpose.getPermutation() != ArrayRef<int64_t>(order) || result.getRank() < 2 ||
      result.getShape().take_back(2) != turned.getShape().take_back(2))
    return;
  OpBuilder b(reshape);
  Value input = stripReshapes(transpose.getInput());
  if (input.getType() != swapped(result))
    input = ReshapeOp::create(b, reshape.getLoc(), swapped(result), transpose.getInput());
  order = withSwap(llvm::to_vector(llvm::seq<int64_t>(0, result.getRank())));
  Value now = TransposeOp::create(b, reshape.getLoc(), result, input, order);
  reshape.getResult().replaceAllUsesWith(now);
  reshape.erase();
}

/// Two transposes in a row are one.
static void compose(TransposeOp transpose) {
  auto inner = transpose.getInput().getDefiningOp<TransposeOp>();
  if (!inner)
    return;
  SmallVector<int64_t> order;
  for (int64_t d : transpose.getPermutation())
    order.push_back(inner.getPermutation()[d]);
  transpose.getInputMutable().set(inner.getInput());
  transpose.setPermutation(order);
}

/// What has lost its readers still counts as one.
static void eraseDead(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isIndexMap(&op) && op.use_empty())
      op.erase();
}

void mpc::moveTransposesIntoMatmuls(func::FuncOp function) {
  auto forEachTranspose = [&](void (*rewrite)(TransposeOp)) {
    for (auto transpose : llvm::make_early_inc_range(function.getOps<TransposeOp>()))
      rewrite(transpose);
    eraseDead(function);
  };
  for (auto reshape : llvm::make_early_inc_range(function.getOps<ReshapeOp>()))
    turnBehind(reshape);
  eraseDead(function);
  forEachTranspose(compose);
  forEachTranspose(sinkIntoFactors);
  forEachTranspose(hoistIntoProduct);
}
