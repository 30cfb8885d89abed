//===- Losses.cpp - PyTorch's losses in core operations -------------------------===//
//
// Formulas are those of torch.nn.functional with reduction="mean", written so that
// neither the value nor the derivative of a saturated element becomes NaN.
//
//===----------------------------------------------------------------------------===//

#include "Losses.h"
#include "compiler/ops/Expression.h"

using namespace mlir;
using namespace mpc;

Value LossBuilder::masked(Value v, int64_t samplesAxis) {
  if (axis < 0)
    return v;
  return MaskSamplesOp::create(b, loc, v.getType(), v, samples, b.getI64IntegerAttr(samplesAxis),
                               b.getI64IntegerAttr(factor));
}

// `axis` first, the others in order.
static SmallVector<int64_t> toFront(int64_t axis, int64_t rank) {
  SmallVector<int64_t> permutation{axis};
  for (int64_t d = 0; d < rank; ++d)
    if (d != axis)
      permutation.push_back(d);
  return permutation;
}

LossResult LossBuilder::classLoss(Value labels, int64_t classAxis, int64_t ignoreIndex,
                                  bool logProbabilities) {
  Value logits = output, present = samples;
  if (axis < 0) { // every row counts
    present = scalarTensor(b, loc, b.getI64Type(), shapeOf(output)[0]);
  } else if (axis > 0) { // the operation has the samples on axis 0
    SmallVector<int64_t> order = toFront(axis, shapeOf(output).size());
    logits = transpose(b, loc, logits, order);
    labels = transpose(b, loc, labels, toFront(axis - (classAxis < axis), shapeOf(labels).size()));
    classAxis = llvm::find(order, classAxis) - order.begin();
  }
  auto scalar = RankedTensorType::get({}, computeType(elementType(output)));
  auto op = CrossEntropyOp::create(b, loc, TypeRange{scalar, scalar},
                                   ValueRange{logits, labels, present});
  op.setClassAxis(classAxis);
  op.setFactor(axis < 0 ? 1 : factor);
  op.setIgnoreIndex(ignoreIndex);
  op.setLogProbabilities(logProbabilities);
  return {op.getLoss(), op.getCount()};
}

Value LossBuilder::correct(Value labels, int64_t classAxis, int64_t ignoreIndex) {
  // A label l is right where no j has logit_j > logit_l, or logit_j = logit_l with j < l. NaN is
  // never right.
  Value logits = castTo(b, loc, output, computeType(elementType(output)));
  RankedTensorType type = tensorType(logits);
  auto indexType = RankedTensorType::get(type.getShape(), b.getI64Type());
  SmallVector<int64_t> others;
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (d != classAxis)
      others.push_back(d);
  Value index = IotaOp::create(b, loc, indexType, b.getI64IntegerAttr(classAxis));
  Value label = broadcast(b, loc, labels, others, type.getShape());
  Value isLabel = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, index, label);
  Value lowest = splat(b, loc, type, -std::numeric_limits<double>::infinity());
  Value chosen = arith::SelectOp::create(b, loc, isLabel, logits, lowest);
  chosen = mpc::reduce(b, loc, ReductionKind::max, chosen, {classAxis});
  chosen = broadcast(b, loc, chosen, others, type.getShape());
  Value larger = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGT, logits, chosen);
  Value equal = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, logits, chosen);
  Value earlier = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, index, label);
  Value better =
      arith::OrIOp::create(b, loc, larger, arith::AndIOp::create(b, loc, equal, earlier));
  Value one = splat(b, loc, type, 1), zero = splat(b, loc, type, 0);
  Value anyBetter = mpc::reduce(b, loc, ReductionKind::max,
                                arith::SelectOp::create(b, loc, better, one, zero), {classAxis});

  auto rowType = RankedTensorType::get(shapeOf(labels), type.getElementType());
  Value rowOne = splat(b, loc, rowType, 1), rowZero = splat(b, loc, rowType, 0);
  Value right = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, anyBetter, rowZero);
  Value counts = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, labels,
                                       splat(b, loc, labels.getType(), ignoreIndex));
  Value rows = arith::SelectOp::create(b, loc, arith::AndIOp::create(b, loc, right, counts), rowOne,
                                       rowZero);
  rows = masked(rows, axis - (classAxis < axis));
  return mpc::reduce(b, loc, ReductionKind::sum, rows,
                     llvm::to_vector(llvm::seq<int64_t>(0, rowType.getRank())));
}

static Expr withoutGradient(const Expr &v) { return v.unary<StopGradientOp>(); }

// -(t · log x + (1 - t) · log(1 - x)), logarithms from -100 up, and PyTorch's derivative
// (x - t) / max(x · (1 - x), 1e-12), which no composition of these functions has where x is 0 or 1:
//   value + derivative · (x - x), where only the first x has a gradient
static Value binaryCrossEntropy(const Expr &x, const Expr &t) {
  auto clampedLog = [](const Expr &p) { return select(p <= 0, -100, max(log(p), -100)); };
  Expr value = -(t * clampedLog(x) + (1 - t) * clampedLog(1 - x));
  // Both sides · 1e12, in two steps: the formula is built in f32, which has a million exactly, but
  // neither 1e-12 nor 1e12, and a program in f64 gets f32's constants.
  Expr derivative = (x - t) * 1e6 * 1e6 / max(x * (1 - x) * 1e6 * 1e6, 1);
  return withoutGradient(value) + withoutGradient(derivative) * (x - withoutGradient(x));
}

static Value elementLoss(OpBuilder &b, Location loc, StringRef name, Value x, Value t) {
  Type type = x.getType();
  Value one = splat(b, loc, type, 1);
  if (name == "bce")
    return binaryCrossEntropy({b, loc, x}, {b, loc, t});
  if (name == "bce-with-logits") {
    // (1 - t) · softplus(x) + t · softplus(-x): neither it nor its derivative,
    // (1 - t) · σ(x) - t · σ(-x), cancels where the logit is sure of the target.
    Value no = SoftplusOp::create(b, loc, type, x);
    Value yes = SoftplusOp::create(b, loc, type, arith::NegFOp::create(b, loc, x));
    return add(b, loc, mul(b, loc, sub(b, loc, one, t), no), mul(b, loc, t, yes));
  }
  Value difference = sub(b, loc, x, t);
  Value square = mul(b, loc, difference, difference);
  if (name == "mse")
    return square;
  // |d| by a select, whose derivative at 0 is 0 like torch's: d > 0 ? d : d < 0 ? -d : 0 · d (NaN
  // stays NaN).
  Value zero = splat(b, loc, type, 0);
  Value isPositive = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, difference, zero);
  Value isNegative = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, difference, zero);
  Value otherwise = arith::SelectOp::create(
      b, loc, isNegative, arith::NegFOp::create(b, loc, difference), mul(b, loc, difference, zero));
  Value absolute = arith::SelectOp::create(b, loc, isPositive, difference, otherwise);
  if (name == "l1")
    return absolute;
  // smooth-l1: |d| < 1 ? d² / 2 : |d| - 1/2
  Value half = splat(b, loc, type, 0.5);
  Value near = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, absolute, one);
  return arith::SelectOp::create(b, loc, near, mul(b, loc, square, half),
                                 sub(b, loc, absolute, half));
}

LossResult LossBuilder::elementwiseLoss(StringRef name, Value target) {
  Type real = computeType(elementType(output));
  Value x = castTo(b, loc, output, real), t = castTo(b, loc, target, real);
  Value elements = masked(elementLoss(b, loc, name, x, t), axis);
  ArrayRef<int64_t> shape = shapeOf(elements);
  Value sum = mpc::reduce(b, loc, ReductionKind::sum, elements,
                          llvm::to_vector(llvm::seq<int64_t>(0, shape.size())));
  // loss = Σ / max(count, 1): an empty batch gives 0
  int64_t all = tensorType(elements).getNumElements();
  Value count;
  if (axis >= 0) {
    int64_t perSample = all / shape[axis] * factor;
    Value counted = mul(b, loc, samples, scalarTensor(b, loc, b.getI64Type(), perSample));
    count = castTo(b, loc, counted, real);
  } else {
    count = scalarTensor(b, loc, real, all);
  }
  Value divisor = arith::MaximumFOp::create(b, loc, count, scalarTensor(b, loc, real, 1));
  return {div(b, loc, sum, divisor), count};
}

/// The division that makes the mean of one of ONNX's losses over labels; null if `v` is none.
static arith::DivFOp labelMean(Value v) {
  Operation *op = v.getDefiningOp();
  while (isa_and_nonnull<ReshapeOp, arith::ExtFOp, arith::TruncFOp>(op))
    op = op->getOperand(0).getDefiningOp();
  StringRef node = op ? operatorOf(op) : "";
  bool isLoss = node == "SoftmaxCrossEntropyLoss" || node == "NegativeLogLikelihoodLoss";
  return isLoss ? dyn_cast<arith::DivFOp>(op) : nullptr;
}

// The model's own loss counts by its samples. The mean of a loss over labels has its own weight,
// Σ w[label] of those that are not ignored, and is 0 where that is 0.
LossResult LossBuilder::outputLoss() {
  Type real = computeType(elementType(output));
  auto mean = labelMean(output);
  if (!mean)
    return {castTo(b, loc, reshape(b, loc, output, {}), real), castTo(b, loc, samples, real)};
  Expr total(b, loc, castTo(b, loc, mean.getLhs(), real)),
      count(b, loc, castTo(b, loc, mean.getRhs(), real));
  return {total / select(equal(count, 0), 1, count), count};
}
