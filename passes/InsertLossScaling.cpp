//===- InsertLossScaling.cpp - scale the loss seed, unscale and check gradients -===//
//
// fp16 gradients below 2^-24 vanish. Multiplying the seed of the backward pass by
// `scale` moves them into range; the inverse is applied in f32 in the optimizer's
// update, together with clipping, as one factor. A step whose gradients, loss or new
// running statistics are not all finite is skipped: nothing but the scale changes. A step
// in which no loss element counts (every label is --ignore-index) has no loss and no
// gradients: nothing at all changes.
//
//   @gradients(…, %seed)  →  @gradients(…, %scale)
//   @apply(%g…, %loss, %count, %working…, %statistic…, %scale, %tracker, %applied, %hyper)
//     sumsq_i = Σ f64(g_i)²                              one reading of each gradient
//     finite  = Σ sumsq, loss and statistics are finite
//     ok      = finite and count > 0
//     weight  = scale, or scale · Σ count for @apply_accumulated
//     norm    = √(Σ sumsq) / weight                      in f64: it may be beyond f32
//     factor  = min(1, clip / (norm + 1e-6)) / weight    as torch.nn.utils.clip_grad_norm_
//     scale', tracker' as torch.amp.GradScaler, with a floor of 1
//
//===----------------------------------------------------------------------------===//

#include "ApplyValues.h"
#include "FunctionArguments.h"
#include "Passes.h"
#include "compiler/ops/Build.h"

namespace mpc {
#define GEN_PASS_DEF_INSERTLOSSSCALING
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

namespace {
struct InsertLossScaling : mpc::impl::InsertLossScalingBase<InsertLossScaling> {
  using InsertLossScalingBase::InsertLossScalingBase;
  void runOnOperation() override;
};

/// Builds the head of @apply or @apply_accumulated.
struct ApplyHead {
  func::FuncOp f, gradients;
  OpBuilder b;
  Location loc;
  Type real; // f32; f64 under fp64
  bool accumulated;

  ApplyHead(func::FuncOp f, func::FuncOp gradients, Type real, bool accumulated)
      : f(f), gradients(gradients), b(terminatorOf(f)), loc(f.getLoc()), real(real),
        accumulated(accumulated) {}

  Type scalar(Type element) { return RankedTensorType::get({}, element); }
  Value constant(double value) { return scalarTensor(b, loc, real, value); }
  Value wide(Value v) { return castTo(b, loc, v, b.getF64Type()); }
  Value wide(double value) { return scalarTensor(b, loc, b.getF64Type(), value); }
  Value hyper(int64_t row) { return applyHyper(b, loc, hyperArgument, row); }
  Value isFinite(Value v);
  Value select(Value condition, Value yes, Value no) {
    return arith::SelectOp::create(b, loc, condition, yes, no);
  }
  Value squareSum(Value gradient);
  void build(bool dynamic);
  void commitStatistics(Value ok);
  void nextScale(Value finite, Value ok, Value scale);
  Value addCount();

  Value hyperArgument;
};
} // namespace

Value mpc::applyHyper(OpBuilder &b, Location loc, Value hyper, int64_t row) {
  return reshape(b, loc, slice(b, loc, hyper, {row}, {1}, {1}), {});
}

// |x| < ∞, false for NaN
Value ApplyHead::isFinite(Value v) {
  Value infinity = splat(b, loc, v.getType(), std::numeric_limits<double>::infinity());
  return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, math::AbsFOp::create(b, loc, v),
                               infinity);
}

// Σ f64(g)²: in f64 the square of no finite f32 overflows.
Value ApplyHead::squareSum(Value gradient) {
  Value g = wide(gradient);
  Value square = mul(b, loc, g, g);
  return mpc::reduce(b, loc, ReductionKind::sum, square,
                     llvm::to_vector(llvm::seq<int64_t>(0, tensorType(gradient).getRank())));
}

// A skipped step leaves the statistics, and takes the working copy back to them.
void ApplyHead::commitStatistics(Value ok) {
  for (BlockArgument working : argumentsOf(f, "working_statistic")) {
    StringRef name = argumentName(f, working.getArgNumber());
    Value statistic = findArgument(f, "statistic", name);
    Value committed = select(broadcastScalar(b, loc, ok, shapeOf(working)), working, statistic);
    addResult(f, committed, "statistic", name, statistic);
    addResult(f, committed, "working_statistic", name, working);
  }
}

// As torch.amp.GradScaler: after an overflow scale · backoff and the count starts again; after
// `interval` clean steps scale · growth. A step without a loss is neither.
void ApplyHead::nextScale(Value finite, Value ok, Value scale) {
  Value tracker = addArgument(f, "growth_tracker", "growth_tracker", scalar(b.getI32Type()));
  Value interval = hyper(4), growth = hyper(5), backoff = hyper(6);
  Value clean = add(b, loc, tracker, scalarTensor(b, loc, b.getI32Type(), 1));
  Value due = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, castTo(b, loc, clean, real),
                                    interval);
  Value grown = mul(b, loc, scale, growth);
  grown = select(isFinite(grown), grown, scale);
  Value reduced = arith::MaximumFOp::create(b, loc, mul(b, loc, scale, backoff), constant(1));
  Value zero = scalarTensor(b, loc, b.getI32Type(), 0);
  auto next = [&](Value ifDue, Value ifClean, Value otherwise, Value ifNot) {
    return select(finite, select(ok, select(due, ifDue, ifClean), otherwise), ifNot);
  };
  addResult(f, next(grown, scale, scale, reduced), "loss_scale", "loss_scale", scale);
  addResult(f, next(zero, clean, tracker, zero), "growth_tracker", "growth_tracker", tracker);
}

// How many loss elements count. @accumulate makes the sum of several NaN after a loss that is not
// finite.
Value ApplyHead::addCount() {
  if (accumulated)
    return addArgument(f, "accumulated_count", "accumulated_count", scalar(real));
  return addArgument(f, "count", "count", scalar(real));
}

void ApplyHead::build(bool dynamic) {
  Value loss = addArgument(f, "loss", "loss", scalar(real));
  Value count = addCount();
  SmallVector<Value> sums;
  Value total;
  for (unsigned i = 0; i < gradients.getNumResults(); ++i) {
    if (resultRole(gradients, i) != "gradient")
      continue;
    Value g = addArgument(f, accumulated ? "accumulator" : "gradient", resultName(gradients, i),
                          gradients.getResultTypes()[i]);
    Value sum = squareSum(g);
    total = total ? add(b, loc, total, sum) : sum;
    sums.push_back(reshape(b, loc, sum, {1}));
  }
  for (unsigned i = 0; i < gradients.getNumResults(); ++i)
    if (auto tied = tiedArgument(gradients, i);
        tied && resultRole(gradients, i) == "working_statistic") {
      Type type = gradients.getResultTypes()[i];
      Attribute weights = gradients.getArgAttr(*tied, MpcDialect::kWeightsAttr);
      addArgument(f, "working_statistic", resultName(gradients, i), type, weights);
      addArgument(f, "statistic", resultName(gradients, i), type, weights);
    }
  Value scale = addArgument(f, "loss_scale", "loss_scale", scalar(real));
  Value applied = addArgument(f, "applied_steps", "applied_steps", scalar(b.getI64Type()));
  hyperArgument = addArgument(f, "hyper", "hyper", RankedTensorType::get({8}, real));

  Value finite = arith::AndIOp::create(b, loc, isFinite(total), isFinite(loss));
  Value weight = wide(scale);
  if (accumulated) {
    // Where no loss element counted all gradients are 0, and 0 / 1 they stay.
    finite = arith::AndIOp::create(b, loc, finite, isFinite(count));
    weight = mul(b, loc, weight, arith::MaximumFOp::create(b, loc, wide(count), wide(1)));
  }
  for (BlockArgument working : argumentsOf(f, "working_statistic")) {
    Value largest =
        mpc::reduce(b, loc, ReductionKind::max, math::AbsFOp::create(b, loc, working), {0});
    finite = arith::AndIOp::create(b, loc, finite, isFinite(largest));
  }
  Value counts = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, count, constant(0));
  Value ok = arith::AndIOp::create(b, loc, finite, counts);
  Value norm = div(b, loc, math::SqrtOp::create(b, loc, total), weight);
  // factor = min(1, clip / (norm + 1e-6)) / weight
  Value clip = div(b, loc, wide(hyper(3)), add(b, loc, norm, wide(1e-6)));
  Value factor =
      castTo(b, loc, div(b, loc, arith::MinimumFOp::create(b, loc, clip, wide(1)), weight), real);

  commitStatistics(ok);
  if (dynamic)
    nextScale(finite, ok, scale);
  addResult(f, add(b, loc, applied, castTo(b, loc, ok, b.getI64Type())), "applied_steps",
            "applied_steps", applied);
  addResult(f, ok, "ok", "ok");
  addResult(f, norm, "grad_norm", "grad_norm");
  Value table =
      sums.size() == 1
          ? sums.front()
          : ConcatOp::create(b, loc, RankedTensorType::get({int64_t(sums.size())}, b.getF64Type()),
                             sums, b.getI64IntegerAttr(0))
                .getResult();
  addResult(f, table, "gradient_square_sums", "gradient_square_sums");
  // The optimizer's updates read the factor; until insert-optimizer has run it is a result like any
  // other.
  addResult(f, factor, kFactorRole, kFactorRole);
}

void InsertLossScaling::runOnOperation() {
  ModuleOp module = getOperation();
  func::FuncOp gradients = findFunction(module, "gradients");
  OpBuilder b(&getContext());
  double constant = 0;
  bool dynamic = mode == "dynamic";
  if (!dynamic && mode != "none" &&
      (StringRef(mode).getAsDouble(constant) || !(constant > 0) || std::isinf(constant))) {
    emitError(module.getLoc()) << "--loss-scale=" << mode
                               << ": dynamic, none, or a positive number";
    return signalPassFailure();
  }
  module->setAttr("mpc.loss_scale", b.getStringAttr(mode));
  if (!gradients)
    return;
  Value seed = findArgument(gradients, "seed");
  if (!seed) {
    emitError(gradients.getLoc(), "@gradients has no argument of role seed: run autodiff first");
    return signalPassFailure();
  }
  setArgumentRole(gradients, cast<BlockArgument>(seed).getArgNumber(), "loss_scale");
  Type real = elementType(seed);
  for (bool accumulated : {false, true}) {
    func::FuncOp f = createFunction(module, accumulated ? "apply_accumulated" : "apply");
    ApplyHead(f, gradients, real, accumulated).build(dynamic);
  }
}
