//===- Loss.cpp - losses over class labels ----------------------------------------===//
//
// mpc.cross_entropy, which --loss attaches, and ONNX's own loss operators. A label picks its
// logit by comparison with an iota, so that one reading of the logits gives everything; a
// label outside the classes picks nothing (the trainer refuses such labels beforehand).
//
//===----------------------------------------------------------------------------===//

#include "Pointwise.h"
#include "Rows.h"

using namespace mlir;

namespace mpc {

namespace {
/// What both directions of the loss share: rows of classes, and which of them count.
struct ClassRows {
  Rows rows;
  Value labels;
  Value isLabel; ///< i1, of the rows' shape: the class is the label
  Value counts;  ///< i1, per row

  ClassRows(OpBuilder &b, Location loc, Value logits, Value labels, Value samples,
            int64_t classAxis, int64_t ignoreIndex, int64_t factor)
      : rows(b, loc, shapeOf(logits), classAxis), labels(labels) {
    Type i32 = b.getI32Type();
    ArrayRef<int64_t> labelShape = shapeOf(labels);
    int64_t classDim = rows.rowShape.size() - 1;
    Value ignored = splat(b, loc, labels.getType(), ignoreIndex);
    counts = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, labels, ignored);
    if (!labelShape.empty()) {
      Value present = presentRows(b, loc, samples, labelShape[0], factor);
      counts = arith::AndIOp::create(b, loc, counts, broadcast(b, loc, present, {0}, labelShape));
    }
    Value classes = IotaOp::create(b, loc, RankedTensorType::get(rows.rowShape, i32),
                                   b.getI64IntegerAttr(classDim));
    Value label = broadcast(b, loc, castTo(b, loc, labels, i32), rows.outer, rows.rowShape);
    isLabel = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, classes, label);
  }
};
} // namespace

/// loss = Σ_rows -(x[label] - max - log Σ exp(x - max)) / count
SmallVector<Value> CrossEntropyOp::expand(OpBuilder &b) {
  Location loc = getLoc();
  ClassRows c(b, loc, getLogits(), getLabels(), getSamples(), getClassAxis(), getIgnoreIndex(),
              getFactor());
  const Rows &rows = c.rows;
  Expr x = rows.in(getLogits()), isLabel = x.with(c.isLabel), counts = x.with(c.counts);
  Expr rowLoss;
  if (getLogProbabilities()) {
    rowLoss = -rows.sum(select(isLabel, x, 0));
  } else {
    Expr shifted = rows.shifted(x);
    rowLoss = log(rows.sum(exp(shifted))) - rows.sum(select(isLabel, shifted, 0));
  }
  auto all = [&](const Expr &v) {
    SmallVector<int64_t> axes = llvm::to_vector(llvm::seq<int64_t>(0, shapeOf(v).size()));
    return v.with(reduce(b, loc, ReductionKind::sum, v, axes));
  };
  Expr count = all(select(counts, rowLoss.number(1), 0)), total = all(select(counts, rowLoss, 0));
  return {total / max(count, 1), count};
}

SmallVector<Value> CrossEntropyOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  SmallVector<Value> result(3);
  if (!cotangents[0] || !wanted[0])
    return result;
  Value seed = castTo(b, getLoc(), cotangents[0], elementType(getLoss()));
  result[0] = CrossEntropyGradOp::create(b, getLoc(), tensorType(getLogits()).clone(wanted[0]),
                                         seed, getLogits(), getLabels(), getSamples(), getCount(),
                                         getClassAxisAttr(), getIgnoreIndexAttr(),
                                         getLogProbabilitiesAttr(), getFactorAttr());
  return result;
}

/// (softmax - onehot) · seed / count for the rows that count
SmallVector<Value> CrossEntropyGradOp::expand(OpBuilder &b) {
  Location loc = getLoc();
  ClassRows c(b, loc, getLogits(), getLabels(), getSamples(), getClassAxis(), getIgnoreIndex(),
              getFactor());
  const Rows &rows = c.rows;
  Expr x = rows.in(getLogits()), isLabel = x.with(c.isLabel);
  Expr seed(b, loc, getSeed()), count(b, loc, getCount());
  // One factor per row, 0 for those that do not count.
  Expr perRow = x.with(broadcastScalar(b, loc, seed / max(count, 1), shapeOf(c.counts)));
  Expr factor = rows.spread(select(x.with(c.counts), perRow, 0));
  Expr onehot = select(isLabel, x.number(1), 0);
  Expr gradient;
  if (getLogProbabilities()) {
    gradient = -(onehot * factor);
  } else {
    Expr e = exp(rows.shifted(x));
    gradient = (e / rows.spread(rows.sum(e)) - onehot) * factor;
  }
  // A row that does not count may hold anything, NaN too: its gradient is an exact zero.
  Expr counted = x.with(broadcast(b, loc, c.counts, rows.outer, rows.rowShape));
  return {rows.out(select(counted, gradient, 0), elementType(getResult()))};
}

// ONNX's loss operators. ---------------------------------------------------------------------

/// Weighted negative log-likelihood of log-probabilities [N, C, …] and labels [N, …]:
/// row = -w[label] · x[label]; mean = Σ row / Σ w[label]; rows with the label ignore_index are 0.
static Value negativeLogLikelihood(NodeContext &node, Value logProbabilities, Value labels) {
  OpBuilder &b = node.b;
  Location loc = node.loc;
  Rows rows(b, loc, shapeOf(logProbabilities), 1);
  int64_t classDim = rows.rowShape.size() - 1;
  Expr x = rows.in(logProbabilities);
  Value classes = IotaOp::create(b, loc, RankedTensorType::get(rows.rowShape, elementType(labels)),
                                 b.getI64IntegerAttr(classDim));
  auto is = [&](Value v, Value w) {
    return x.with(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, v, w));
  };
  Expr isLabel = is(classes, broadcast(b, loc, labels, rows.outer, rows.rowShape));
  if (node.attr("ignore_index")) {
    Expr ignored = is(classes, node.splat(classes.getType(), node.intAttr("ignore_index", 0)));
    isLabel =
        select(ignored, 0, isLabel); // the ignored label is no class, even if its number is one
  }
  Expr weights =
      node.has(2)
          ? x.with(broadcast(b, loc, widen(b, loc, node.operand(2)), {classDim}, rows.rowShape))
          : x.number(1);
  Expr rowLoss = -rows.sum(select(isLabel, node.has(2) ? weights * x : x, 0));
  std::string reduction = node.stringAttr("reduction", "mean");
  if (reduction == "none")
    return rowLoss;
  auto all = [&](const Expr &v) {
    SmallVector<int64_t> axes = llvm::to_vector(llvm::seq<int64_t>(0, shapeOf(v).size()));
    return v.with(reduce(b, loc, ReductionKind::sum, v, axes));
  };
  Expr total = all(rowLoss);
  if (reduction == "sum")
    return total;
  // Where every label is ignored 0 / 0, as ONNX has it: a training step without a loss is skipped.
  return total / all(rows.sum(select(isLabel, weights, 0)));
}

static LogicalResult convertLoss(NodeContext &node, bool softmax) {
  Value scores = node.operand(0), labels = scores ? node.operand(1) : Value();
  if (!labels)
    return failure();
  SmallVector<int64_t> expected(shapeOf(scores));
  std::string reduction = node.stringAttr("reduction", "mean");
  if (reduction != "none" && reduction != "mean" && reduction != "sum") {
    node.error() << "attribute reduction is \"" << reduction << "\"; it may be none, mean or sum";
    return failure();
  }
  if (expected.size() >= 2)
    expected.erase(expected.begin() + 1);
  if (shapeOf(scores).size() < 2 || shapeOf(labels) != ArrayRef(expected)) {
    node.error() << "labels of type " << labels.getType() << " do not fit scores of type "
                 << scores.getType();
    return failure();
  }
  Value logProbabilities = scores;
  if (softmax)
    logProbabilities = LogSoftmaxOp::create(node.b, node.loc, scores.getType(), scores, 1);
  Value loss = castTo(node.b, node.loc, negativeLogLikelihood(node, logProbabilities, labels),
                      elementType(scores));
  if (!softmax)
    return node.results({loss});
  return node.results({loss, logProbabilities});
}

void registerLossHandlers(OnnxRegistry &r) {
  r.add("SoftmaxCrossEntropyLoss", {12, 13},
        [](NodeContext &node) { return convertLoss(node, true); });
  r.add("NegativeLogLikelihoodLoss", {12, 13, 22},
        [](NodeContext &node) { return convertLoss(node, false); });
}

} // namespace mpc
