//===- RaiseAttention.cpp - attention written out becomes one operation --------------===//
//
// For a GPU, in training and inference:
//
//   dropout(softmax(c · q·kᵀ + b)) · v   →   mpc.attention q, k, v bias b dropout s {scale = c}
//
// and p = softmax(…), a safe one, in select(p is NaN, 0, p)   →   {safe} (ops/Softmax.cpp),
//
// with the scores' factor in any place (also on q or k), a bias that is repeated in any way or
// comes of a mask, and the roundings of mixed precision in between, which disappear with the
// scores: neither is stored, nor is the mask of a dropout, if there is one. Precision is assigned
// before, so that every node has the class that it has on the CPU; derivatives come behind. What
// the operation does not do stays as it is: a bias that is trained, weights that are read
// elsewhere, dropout of anything but the weights.
//
//===----------------------------------------------------------------------------------===//

#include "FunctionArguments.h"
#include "Passes.h"
#include "RaiseGelu.h"
#include "compiler/codegen/gpu/Attention.h"
#include "compiler/ops/Build.h"
#include <cmath>
#include <limits>

namespace mpc {
#define GEN_PASS_DEF_RAISEATTENTION
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {
/// What the scores that a softmax reads are made of.
struct Scores {
  MatmulOp product; ///< q·kᵀ
  double scale = 1;
  Value bias;                          ///< null: none
  SmallVector<int64_t> biasDimensions; ///< as in mpc.broadcast

  /// Follows `v`, which the softmax reads, to the product.
  bool match(Value v);

private:
  bool takeBias(Value v);
  bool takeMask(arith::SelectOp select);
};

struct RaiseAttention : mpc::impl::RaiseAttentionBase<RaiseAttention> {
  void runOnOperation() override;
};
} // namespace

/// Seen through widening and rounding, of values that nothing else reads.
static Value throughCasts(Value v) {
  while (v.hasOneUse() && isa_and_nonnull<arith::ExtFOp, arith::TruncFOp>(v.getDefiningOp()))
    v = v.getDefiningOp()->getOperand(0);
  return v;
}

/// v = factor · rest, where v is a product or quotient with a constant.
static std::optional<std::pair<Value, double>> factorOf(Value v) {
  if (auto product = v.getDefiningOp<arith::MulFOp>())
    for (unsigned side : {0u, 1u})
      if (auto number = numberOf(product->getOperand(side)))
        return std::pair(product->getOperand(1 - side), *number);
  if (auto quotient = v.getDefiningOp<arith::DivFOp>())
    if (auto number = numberOf(quotient.getRhs()); number && *number != 0)
      return std::pair(quotient.getLhs(), 1 / *number);
  return std::nullopt;
}

//===----------------------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------------------===//

/// Depends on a parameter, which would want a gradient.
static bool isTrained(Value v) {
  SmallVector<Value> stack{v};
  llvm::SmallPtrSet<Value, 16> seen;
  while (!stack.empty()) {
    Value next = stack.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    if (auto argument = dyn_cast<BlockArgument>(next)) {
      auto f = cast<func::FuncOp>(argument.getOwner()->getParentOp());
      StringRef role = argumentRole(f, argument.getArgNumber());
      if (role == "parameter" || role == "half_copy")
        return true;
      continue;
    }
    llvm::append_range(stack, next.getDefiningOp()->getOperands());
  }
  return false;
}

bool Scores::takeBias(Value v) {
  if (!elementType(v).isF32() || isTrained(v))
    return false;
  if (auto repeated = v.getDefiningOp<BroadcastOp>()) {
    bias = repeated.getInput();
    biasDimensions.assign(repeated.getDimensions().begin(), repeated.getDimensions().end());
    return true;
  }
  bias = v;
  biasDimensions = llvm::to_vector(llvm::seq<int64_t>(0, shapeOf(v).size()));
  return true;
}

/// Of a constant mask, stored by rows: every row has an element that is `kept`.
static bool everyRowKeeps(Value mask, bool kept) {
  DenseElementsAttr elements;
  if (!matchPattern(mask, m_Constant(&elements)))
    return false;
  int64_t columns = shapeOf(mask).empty() ? 1 : shapeOf(mask).back(), at = 0;
  bool keeps = true;
  for (bool element : elements.getValues<bool>()) {
    keeps = (at % columns && keeps) || element == kept;
    if (++at % columns == 0 && !keeps)
      return false;
  }
  return true;
}

// mask ? s : fill is s + (mask ? 0 : -∞) where the fill is -∞; where it is only very low, a row of
// nothing else would be different.
bool Scores::takeMask(arith::SelectOp select) {
  Value mask = select.getCondition();
  if (!isa<RankedTensorType>(mask.getType()))
    return false;
  constexpr double kLow = -1e4; // as low as models that run in f16 write it
  std::optional<double> other = numberOf(select.getFalseValue());
  bool keptWhere = true;
  if (!other) {
    other = numberOf(select.getTrueValue());
    keptWhere = false;
  }
  auto repeated = mask.getDefiningOp<BroadcastOp>();
  Value stored = repeated ? repeated.getInput() : mask;
  bool alongKeys =
      !repeated || (!repeated.getDimensions().empty() &&
                    repeated.getDimensions().back() == int64_t(shapeOf(mask).size()) - 1);
  if (!other || !(*other <= kLow) ||
      (!std::isinf(*other) && !(alongKeys && everyRowKeeps(stored, keptWhere))))
    return false;
  OpBuilder b(select);
  Location loc = select.getLoc();
  auto type = RankedTensorType::get(shapeOf(stored), b.getF32Type());
  Value none = splat(b, loc, type, 0),
        never = splat(b, loc, type, -std::numeric_limits<double>::infinity());
  bias =
      arith::SelectOp::create(b, loc, stored, keptWhere ? none : never, keptWhere ? never : none);
  if (repeated)
    biasDimensions.assign(repeated.getDimensions().begin(), repeated.getDimensions().end());
  else
    biasDimensions = llvm::to_vector(llvm::seq<int64_t>(0, shapeOf(mask).size()));
  return true;
}

bool Scores::match(Value v) {
  for (;;) {
    v = throughCasts(v);
    if (!v.hasOneUse())
      return false;
    if (auto matmul = v.getDefiningOp<MatmulOp>()) {
      product = matmul;
      return !matmul.getBias() && !matmul.getRelu();
    }
    if (auto factor = factorOf(v)) {
      v = factor->first;
      scale *= factor->second;
      continue;
    }
    if (bias || scale != 1) // (s + b) · c
      return false;
    if (auto sum = v.getDefiningOp<arith::AddFOp>()) {
      // The side that is no bias leads to the product.
      for (unsigned side : {0u, 1u}) {
        Scores rest;
        if (rest.match(sum->getOperand(side)) && !rest.bias &&
            takeBias(sum->getOperand(1 - side))) {
          product = rest.product;
          scale = rest.scale;
          return true;
        }
      }
      return false;
    }
    auto select = v.getDefiningOp<arith::SelectOp>();
    if (!select || !takeMask(select))
      return false;
    v = numberOf(select.getFalseValue()) ? select.getTrueValue() : select.getFalseValue();
  }
}

//===----------------------------------------------------------------------------------===//
// The operation
//===----------------------------------------------------------------------------------===//

/// A factor that stands on the whole of an operand, rounded or not, goes to the scores.
static Value withoutFactor(Value v, double &scale) {
  Type element = elementType(v);
  Value inner = throughCasts(v);
  auto factor = inner.hasOneUse() ? factorOf(inner) : std::nullopt;
  if (!factor)
    return v;
  auto widened = factor->first.getDefiningOp<arith::ExtFOp>();
  Value rest = widened ? widened.getIn() : factor->first;
  if (elementType(rest) != element)
    return v;
  scale *= factor->second;
  return rest;
}

/// [B, H, rows, columns] or [B, rows, columns], transposed if told so → [B, rows, H, columns].
static Value headsInside(OpBuilder &b, Location loc, Value v, bool transposed) {
  int64_t rank = shapeOf(v).size();
  if (rank == 3) {
    if (transposed)
      v = transpose(b, loc, v, {0, 2, 1});
    return reshape(b, loc, v, {shapeOf(v)[0], shapeOf(v)[1], 1, shapeOf(v)[2]});
  }
  return transposed ? transpose(b, loc, v, {0, 3, 1, 2}) : transpose(b, loc, v, {0, 2, 1, 3});
}

/// The dropout of the weights, which are then what it reads; one that keeps nothing stays.
static DropoutOp takeDropout(Value &weights) {
  auto dropout = weights.getDefiningOp<DropoutOp>();
  if (!dropout || !weights.hasOneUse() || dropout.getRatio().convertToDouble() >= 1)
    return nullptr;
  weights = throughCasts(dropout.getInput());
  return dropout;
}

/// The softmax that the weights are, behind a guard select(p is NaN, 0, p) if it is a safe one;
/// null where they are something else, or something else reads them.
static SoftmaxOp takeSoftmax(Value weights) {
  auto softmaxOf = [](Value v) {
    while (isa_and_nonnull<arith::ExtFOp, arith::TruncFOp>(v.getDefiningOp()))
      v = v.getDefiningOp()->getOperand(0);
    return v.getDefiningOp<SoftmaxOp>();
  };
  if (!weights.hasOneUse())
    return nullptr;
  auto select = weights.getDefiningOp<arith::SelectOp>();
  if (!select) {
    auto softmax = weights.getDefiningOp<SoftmaxOp>();
    return softmax && !softmax.getSafe() ? softmax : nullptr;
  }
  auto isNaN = select.getCondition().getDefiningOp<arith::CmpFOp>();
  SoftmaxOp softmax = softmaxOf(select.getFalseValue());
  if (!softmax || !softmax.getSafe() || !isNaN || !isNaN->hasOneUse() ||
      isNaN.getPredicate() != arith::CmpFPredicate::UNO || softmaxOf(isNaN.getLhs()) != softmax ||
      softmaxOf(isNaN.getRhs()) != softmax || numberOf(select.getTrueValue()) != 0.0)
    return nullptr;
  SmallVector<Operation *> readers(softmax->getUsers());
  while (!readers.empty()) {
    Operation *reader = readers.pop_back_val();
    if (isa<arith::ExtFOp, arith::TruncFOp>(reader))
      llvm::append_range(readers, reader->getUsers());
    else if (reader != select && reader != isNaN)
      return nullptr;
  }
  return softmax;
}

/// What tells the dropout's random numbers from those of others: operator_id and seed.
static Value streamOf(OpBuilder &b, DropoutOp dropout) {
  int64_t values[] = {int64_t(dropout.getOperatorId()), int64_t(dropout.getSeed())};
  auto type = RankedTensorType::get({2}, b.getI64Type());
  return arith::ConstantOp::create(b, dropout.getLoc(),
                                   DenseElementsAttr::get(type, ArrayRef<int64_t>(values)));
}

/// weights · value, where the weights are a softmax of scores.
static void raise(MatmulOp product) {
  Type element = elementType(product.getLhs());
  int64_t rank = shapeOf(product.getLhs()).size();
  if (product.getBias() || product.getRelu() || product.getTransposeLhs() || element.isF64() ||
      elementType(product.getResult()) != element || rank < 3 || rank > 4 ||
      hasNoElements(product.getResult()))
    return;
  Value weights = throughCasts(product.getLhs());
  DropoutOp dropout = takeDropout(weights);
  SoftmaxOp softmax = takeSoftmax(weights);
  if (!softmax || int64_t(softmax.getAxis()) != rank - 1)
    return;
  Scores scores;
  if (!scores.match(softmax.getInput()))
    return;
  MatmulOp inner = scores.product;
  if (elementType(inner.getLhs()) != element || hasNoElements(inner.getLhs()))
    return;

  OpBuilder b(product);
  NodeAttributeListener listener;
  listener.setOrigin(product);
  b.setListener(&listener);
  Location loc = product.getLoc();
  auto turned = [&](Value v, bool isTransposed) { return headsInside(b, loc, v, isTransposed); };
  double scale = scores.scale;
  Value q = withoutFactor(inner.getLhs(), scale), k = withoutFactor(inner.getRhs(), scale);
  Value query = turned(q, inner.getTransposeLhs()), key = turned(k, !inner.getTransposeRhs()),
        value = turned(product.getRhs(), product.getTransposeRhs());
  if (std::max(shapeOf(query)[3], shapeOf(value)[3]) > gpu::kMostAttentionChannels ||
      !std::isfinite(static_cast<float>(scale)))
    return;
  ArrayRef<int64_t> q4 = shapeOf(query);
  auto result = RankedTensorType::get({q4[0], q4[1], q4[2], shapeOf(value)[3]}, element);
  auto rows = RankedTensorType::get({q4[0], q4[2], q4[1]}, computeType(element));
  auto statistics = RankedTensorType::get({2, q4[0], q4[2], q4[1]}, computeType(element));
  SmallVector<int64_t> dimensions(scores.biasDimensions);
  if (rank == 3) // behind the only head
    for (int64_t &dimension : dimensions)
      dimension += dimension > 0;
  auto op = AttentionOp::create(
      b, loc, TypeRange{result, rows, statistics}, query, key, value, scores.bias,
      dropout ? dropout.getState() : Value(), dropout ? streamOf(b, dropout) : Value(),
      b.getF32FloatAttr(float(scale)), b.getDenseI64ArrayAttr(dimensions),
      dropout ? dropout.getRatioAttr() : FloatAttr(), softmax.getSafeAttr());
  Value back = rank == 3 ? reshape(b, loc, op.getResult(), shapeOf(product.getResult()))
                         : transpose(b, loc, op.getResult(), {0, 2, 1, 3});
  product.getResult().replaceAllUsesWith(back);
  product.erase();
}

void RaiseAttention::runOnOperation() {
  for (func::FuncOp f : getOperation().getOps<func::FuncOp>()) {
    if (f.isExternal())
      continue;
    for (MatmulOp product : llvm::to_vector(f.getOps<MatmulOp>()))
      raise(product);
    eraseDeadOperations(f);
  }
}
