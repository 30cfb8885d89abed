//===- RaisePatterns.cpp - linear layers, GELU and layer norms as one operation --===//
//
// Exporters write these three out in pieces. As one operation each has its own precision
// class, derivative and library call, which its pieces could not have; so they are
// recognized here, once, for every target:
//
//   add(matmul(x, w), broadcast(b))                   → matmul x, w bias b
//                                                       (also behind a reshape, and conv)
//   0.5·x·(1 + erf(x/√2)), in any arrangement         → gelu x
//   0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))        → gelu x {approximate}
//   (x - mean x)/√(mean (x - mean x)² + ε) · s + b    → layer_norm x, s bias b
//
// Only whole matches: an intermediate value with another use stays, and so does all of it. Numbers
// may differ from these by what an exporter's f32 arithmetic makes of them.
//
//===----------------------------------------------------------------------------===//

#include "FunctionArguments.h"
#include "Passes.h"
#include "RaiseGelu.h"
#include "compiler/ops/Build.h"

namespace mpc {
#define GEN_PASS_DEF_RAISEPATTERNS
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {
struct RaisePatterns : mpc::impl::RaisePatternsBase<RaisePatterns> {
  void runOnOperation() override;
};
} // namespace

//===----------------------------------------------------------------------------===//
// Bias
//===----------------------------------------------------------------------------===//

// The per-channel vector that `v` repeats along all other dimensions of its shape, null if it is
// none.
static Value vectorAlong(Value v, int64_t dimension) {
  auto repeated = v.getDefiningOp<BroadcastOp>();
  if (!repeated)
    return {};
  ArrayRef<int64_t> dimensions = repeated.getDimensions();
  if (dimensions.size() == 1 && dimensions[0] == dimension)
    return repeated.getInput();
  return {};
}

// add(product, broadcast(bias)); behind a reshape that keeps the last dimension, too.
static bool raiseBias(arith::AddFOp sum) {
  for (unsigned side : {0u, 1u}) {
    Value product = sum->getOperand(side), repeated = sum->getOperand(1 - side);
    if (!product.hasOneUse())
      continue;
    int64_t rank = shapeOf(product).size();
    if (auto conv = product.getDefiningOp<ConvOp>()) {
      Value bias = vectorAlong(repeated, conv.getChannelsLast() ? rank - 1 : 1);
      if (!bias || conv.getBias() || conv.getRelu() ||
          elementType(bias) != elementType(conv.getInput()))
        continue;
      conv->moveBefore(sum); // behind the bias
      conv.getBiasMutable().assign(bias);
      sum.getResult().replaceAllUsesWith(product);
      sum.erase();
      return true;
    }
    auto reshaped = product.getDefiningOp<ReshapeOp>();
    Value inner = reshaped ? reshaped.getInput() : product;
    auto matmul = inner.getDefiningOp<MatmulOp>();
    if (!matmul || matmul.getBias() || matmul.getRelu() || !inner.hasOneUse() || rank == 0 ||
        shapeOf(inner).back() != shapeOf(product).back())
      continue;
    Value bias = vectorAlong(repeated, rank - 1);
    if (!bias || elementType(bias) != elementType(matmul.getLhs()) ||
        shapeOf(bias)[0] != shapeOf(inner).back())
      continue;
    matmul->moveBefore(sum);
    matmul.getBiasMutable().assign(bias);
    if (reshaped)
      reshaped->moveAfter(matmul);
    sum.getResult().replaceAllUsesWith(product);
    sum.erase();
    return true;
  }
  return false;
}

//===----------------------------------------------------------------------------===//
// Layer normalization
//===----------------------------------------------------------------------------===//

namespace {
/// Matches from the quotient d / √(var + ε) upwards.
struct NormMatch {
  Value input;
  int64_t axis;
  double epsilon;
  SmallVector<Operation *> inside; ///< operations whose values must have no use outside

  bool match(Value normalized);

private:
  Value through(Operation *op, unsigned operand);
  Value perRow(Value v);
  Value meanOf(Value v);
  bool matchDeviation(Value v);
};
} // namespace

Value NormMatch::through(Operation *op, unsigned operand) {
  inside.push_back(op);
  return op->getOperand(operand);
}

// Strips a repetition along the last dimensions, and dimensions of size one.
Value NormMatch::perRow(Value v) {
  if (auto repeated = v.getDefiningOp<BroadcastOp>()) {
    if (!llvm::equal(repeated.getDimensions(),
                     llvm::seq<int64_t>(0, repeated.getDimensions().size())))
      return {};
    v = through(repeated, 0);
  }
  while (auto reshaped = v.getDefiningOp<ReshapeOp>())
    v = through(reshaped, 0);
  return v;
}

// v if `mean` is Σ v / n over the last dimensions, however the division is written.
Value NormMatch::meanOf(Value mean) {
  mean = perRow(mean);
  if (!mean)
    return {};
  double factor = 0;
  if (auto quotient = mean.getDefiningOp<arith::DivFOp>()) {
    if (auto n = numberOf(quotient.getRhs()))
      factor = 1 / *n;
  } else if (auto product = mean.getDefiningOp<arith::MulFOp>()) {
    if (auto n = numberOf(product.getRhs()))
      factor = *n;
  }
  if (factor == 0)
    return {};
  Value sum = perRow(through(mean.getDefiningOp(), 0));
  auto reduce = sum ? sum.getDefiningOp<ReduceOp>() : ReduceOp();
  if (!reduce || reduce.getKind() != ReductionKind::sum)
    return {};
  int64_t rank = shapeOf(reduce.getInput()).size(), first = rank - int64_t(reduce.getAxes().size());
  SmallVector<int64_t> axes(reduce.getAxes());
  llvm::sort(axes);
  if (axes.empty() || !llvm::equal(axes, llvm::seq<int64_t>(first, rank)))
    return {};
  int64_t count = llvm::product_of(shapeOf(reduce.getInput()).drop_front(first));
  if (std::abs(factor * count - 1) > 1e-6 || (axis >= 0 && axis != first))
    return {};
  axis = first;
  return through(reduce, 0);
}

// x - mean x
bool NormMatch::matchDeviation(Value v) {
  auto difference = v.getDefiningOp<arith::SubFOp>();
  if (!difference)
    return false;
  inside.push_back(difference);
  Value x = difference.getLhs();
  if (meanOf(difference.getRhs()) != x || (input && input != x))
    return false;
  input = x;
  return true;
}

bool NormMatch::match(Value normalized) {
  axis = -1;
  // d / √v, d · (1/√v) or d · rsqrt(v)
  Value deviation, variance;
  if (auto quotient = normalized.getDefiningOp<arith::DivFOp>()) {
    deviation = quotient.getLhs();
    inside.push_back(quotient);
    Value root = perRow(quotient.getRhs());
    auto sqrt = root ? root.getDefiningOp<math::SqrtOp>() : math::SqrtOp();
    if (!sqrt)
      return false;
    variance = through(sqrt, 0);
  } else if (auto product = normalized.getDefiningOp<arith::MulFOp>()) {
    inside.push_back(product);
    for (unsigned side : {0u, 1u}) {
      Value inverse = perRow(product->getOperand(1 - side));
      if (!inverse)
        continue;
      if (auto rsqrt = inverse.getDefiningOp<math::RsqrtOp>()) {
        variance = through(rsqrt, 0);
      } else if (auto reciprocal = inverse.getDefiningOp<arith::DivFOp>();
                 reciprocal && numberOf(reciprocal.getLhs()) == 1.0) {
        Value root = perRow(through(reciprocal, 1));
        if (auto sqrt = root ? root.getDefiningOp<math::SqrtOp>() : math::SqrtOp())
          variance = through(sqrt, 0);
      }
      if (variance) {
        deviation = product->getOperand(side);
        break;
      }
    }
  }
  if (!variance)
    return false;
  // v = mean d² + ε
  variance = perRow(variance);
  auto shifted = variance ? variance.getDefiningOp<arith::AddFOp>() : arith::AddFOp();
  auto constant = shifted ? numberOf(shifted.getRhs()) : std::nullopt;
  if (!constant)
    return false;
  epsilon = *constant;
  Value square = meanOf(through(shifted, 0));
  auto product = square ? square.getDefiningOp<arith::MulFOp>() : arith::MulFOp();
  if (!product || product.getLhs() != product.getRhs())
    return false;
  inside.push_back(product);
  return matchDeviation(deviation) &&
         (product.getLhs() == deviation || matchDeviation(product.getLhs()));
}

// A parameter-like tensor repeated along all dimensions before `axis`.
static Value affineOperand(Value v, Value input, int64_t axis) {
  auto repeated = v.getDefiningOp<BroadcastOp>();
  int64_t rank = shapeOf(input).size();
  if (repeated && llvm::equal(repeated.getDimensions(), llvm::seq<int64_t>(axis, rank)) &&
      shapeOf(repeated.getInput()) == shapeOf(input).drop_front(axis))
    return repeated.getInput();
  return {};
}

static bool closed(ArrayRef<Operation *> inside, Operation *root) {
  return llvm::all_of(inside, [&](Operation *op) {
    return op == root || llvm::all_of(op->getUsers(), [&](Operation *user) {
             return user == root || llvm::is_contained(inside, user);
           });
  });
}

// [y · s] + b, where y is normalized
static bool raiseLayerNorm(arith::AddFOp sum) {
  for (unsigned biasSide : {1u, 0u}) {
    auto product = sum->getOperand(1 - biasSide).getDefiningOp<arith::MulFOp>();
    if (!product)
      continue;
    for (unsigned scaleSide : {1u, 0u}) {
      NormMatch norm;
      if (!norm.match(product->getOperand(1 - scaleSide)))
        continue;
      Value scale = affineOperand(product->getOperand(scaleSide), norm.input, norm.axis);
      Value bias = affineOperand(sum->getOperand(biasSide), norm.input, norm.axis);
      norm.inside.push_back(product);
      if (!scale || !bias || !closed(norm.inside, sum))
        continue;
      OpBuilder b(sum);
      ArrayRef<int64_t> rows = shapeOf(norm.input).take_front(norm.axis);
      auto rowType = RankedTensorType::get(rows, computeType(elementType(norm.input)));
      auto op = LayerNormOp::create(b, sum.getLoc(), sum.getType(), rowType, rowType, norm.input,
                                    scale, bias, b.getI64IntegerAttr(norm.axis),
                                    b.getF64FloatAttr(norm.epsilon));
      if (!nodeOf(sum).empty())
        op->setDiscardableAttr(MpcDialect::kNodeAttr, b.getStringAttr(nodeOf(sum)));
      op->setDiscardableAttr(MpcDialect::kOpAttr, b.getStringAttr("LayerNormalization"));
      sum.getResult().replaceAllUsesWith(op.getResult());
      sum.erase();
      return true;
    }
  }
  return false;
}

void RaisePatterns::runOnOperation() {
  for (func::FuncOp f : getOperation().getOps<func::FuncOp>()) {
    if (f.isExternal())
      continue;
    SmallVector<arith::AddFOp> sums;
    SmallVector<Operation *> functions;
    f.walk([&](Operation *op) {
      if (auto sum = dyn_cast<arith::AddFOp>(op))
        sums.push_back(sum);
      if (isa<math::ErfOp, math::TanhOp>(op))
        functions.push_back(op);
    });
    for (arith::AddFOp sum : sums)
      if (!raiseBias(sum))
        raiseLayerNorm(sum);
    for (Operation *function : functions)
      raiseGelu(function);
    eraseDeadOperations(f);
  }
}
