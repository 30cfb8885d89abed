//===- CombineSamples.cpp - samples that are not there, among those that are ---------===//
//
// What the model computes for no sample might become infinite, and times the zero that is its
// gradient NaN. So a sample that is not there gets what it would have among those that are: it is
// a copy of the first. Two things would make it another.
//
// An operation along the samples reads the neutral element, and would make 0 or -∞ of it:
//
//   softmax x        →  e / Σ e                e = exp d
//   log_softmax x    →  d - log Σ exp d        d = x - max x, at most 0
//   cumsum x         →  s, or s₀ of the first      s = cumsum x
//
// max and Σ are of the samples that are there (CountSamples.cpp).
//
// A dropout has random numbers for each place in the batch. Where its samples meet what has been
// made of all of them (√(max y - y), of which no y is above max y but one that is not there), the
// first sample's result is taken instead.
//
//===--------------------------------------------------------------------------------===//

#include "OnnxConverter.h"
#include "Rows.h"

using namespace mlir;
using namespace mpc;

static Value softmaxAlong(Operation *op, int64_t axis, OpBuilder &b) {
  Location loc = op->getLoc();
  Expr x(b, loc, widen(b, loc, op->getOperand(0)));
  SmallVector<int64_t> shape(shapeOf(x)), others;
  for (int64_t d = 0, rank = shape.size(); d < rank; ++d)
    if (d != axis)
      others.push_back(d);
  auto reduced = [&](ReductionKind kind, const Expr &v) {
    return v.with(reduce(b, loc, kind, v, {axis}));
  };
  auto spread = [&](const Expr &v) { return v.with(broadcast(b, loc, v, others, shape)); };
  auto softmax = dyn_cast<SoftmaxOp>(op);
  bool isSafe = softmax && softmax.getSafe();
  // Any number would do in its place, so that it has no gradient.
  Expr largest = reduced(ReductionKind::max, x).unary<StopGradientOp>();
  Expr d = x - spread(isSafe ? safeLargest(largest) : largest);
  Expr e = exp(d), sum = reduced(ReductionKind::sum, e);
  Expr y = softmax ? e / spread(isSafe ? safeSum(sum) : sum) : d - log(spread(sum));
  return y.cast(elementType(op->getResult(0)));
}

Value OnnxConverter::alongSamples(Operation *op) {
  if (!isa<SoftmaxOp, LogSoftmaxOp, CumSumOp>(op))
    return {};
  Location loc = op->getLoc();
  int64_t axis = op->getAttrOfType<IntegerAttr>("axis").getInt();
  SamplePlaces places = analysis.of(op->getOperand(0));
  const SamplePlace *place = places.on(axis);
  if (!place)
    return {};
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  if (!isa<CumSumOp>(op))
    return softmaxAlong(op, axis, b);
  // The mask is one of the samples, too: 1 for those that are there.
  return replaced(loc, b.clone(*op)->getResult(0), *place, [&](Value sums, int64_t axis) -> Value {
    Value ones = splat(b, loc, tensorType(sums).clone(b.getI1Type()), 1);
    Value there =
        MaskSamplesOp::create(b, loc, ones.getType(), ones, samples(), axis, place->inner);
    return arith::SelectOp::create(b, loc, there, sums,
                                   copiesOfFirst(loc, sums, axis, place->inner));
  });
}

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

/// An element of its result is made of several samples.
static bool combinesSamples(Operation *op, const BatchAnalysis &analysis) {
  auto isAlong = [&](Value v, ArrayRef<int64_t> axes) {
    return llvm::any_of(axes, [&](int64_t axis) { return analysis.of(v).on(axis); });
  };
  if (auto reduction = dyn_cast<ReduceOp>(op))
    return isAlong(reduction.getInput(), reduction.getAxes());
  if (auto sums = dyn_cast<CumSumOp>(op))
    return isAlong(sums.getInput(), int64_t(sums.getAxis()));
  auto matmul = dyn_cast<MatmulOp>(op);
  int64_t rank = matmul ? shapeOf(matmul.getResult()).size() : 0;
  return matmul && isAlong(matmul.getLhs(), matmul.getTransposeLhs() ? rank - 2 : rank - 1);
}

/// Adds the dropouts that the value, sample by sample, comes from.
static void addDropouts(Value v, const llvm::DenseSet<Value> &random,
                        llvm::SetVector<Operation *> &dropouts, llvm::DenseSet<Value> &visited) {
  SmallVector<Value> open{v};
  while (!open.empty()) {
    Value next = open.pop_back_val();
    if (!random.contains(next) || !visited.insert(next).second)
      continue;
    Operation *op = next.getDefiningOp();
    if (isa<DropoutOp>(op))
      dropouts.insert(op);
    llvm::append_range(open, op->getOperands());
  }
}

/// The dropouts whose samples, on some way, meet what has been made of all of them.
static llvm::SetVector<Operation *> dropoutsAmongSamples(func::FuncOp forward,
                                                         const BatchAnalysis &analysis) {
  llvm::SetVector<Operation *> dropouts;
  llvm::DenseSet<Value> random; // samples behind a dropout
  llvm::DenseSet<Value> combined, visited;
  for (Operation &op : forward.front().without_terminator()) {
    auto isRandom = [&](Value v) { return random.contains(v); };
    auto isCombined = [&](Value v) { return combined.contains(v); };
    for (Value v : op.getOperands())
      if (isRandom(v) && llvm::any_of(op.getOperands(),
                                      [&](Value other) { return other != v && isCombined(other); }))
        addDropouts(v, random, dropouts, visited);
    bool makesRandom = isa<DropoutOp>(op) || llvm::any_of(op.getOperands(), isRandom),
         makesCombined =
             combinesSamples(&op, analysis) || llvm::any_of(op.getOperands(), isCombined);
    for (Value result : op.getResults()) {
      if (makesRandom && !analysis.of(result).places.empty())
        random.insert(result);
      if (makesCombined)
        combined.insert(result);
    }
  }
  return dropouts;
}

/// Gives these the first sample's result for a sample that is not there. It has no gradient.
void OnnxConverter::repeatDropouts() {
  if (!trace.active())
    return;
  analysis = BatchAnalysis(forward);
  for (Operation *dropout : dropoutsAmongSamples(forward, analysis)) {
    Location loc = dropout->getLoc();
    Value y = dropout->getResult(0), same = y;
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : y.getUses())
      uses.push_back(&use);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(dropout);
    Operation *next = dropout->getNextNode();
    for (const SamplePlace &place : analysis.of(y).places)
      same = replaced(loc, same, place, [&](Value part, int64_t axis) {
        Value first = copiesOfFirst(loc, part, axis, place.inner);
        return whereThere(loc, part, b.createOrFold<StopGradientOp>(loc, first), axis, place.inner);
      });
    for (OpOperand *use : uses)
      use->set(same);
    for (Operation &made : llvm::make_range(std::next(dropout->getIterator()), next->getIterator()))
      if (!made.hasTrait<OpTrait::ConstantLike>())
        for (StringRef name : {MpcDialect::kNodeAttr, MpcDialect::kOpAttr})
          if (Attribute value = dropout->getAttr(name))
            made.setAttr(name, value);
  }
}
