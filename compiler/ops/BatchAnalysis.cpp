//===- BatchAnalysis.cpp - where the samples are in every value -----------------===//
//
// Index maps say where each index goes, reshapes as a factor: [N, T, C] has N in front of
// [N·T, C]'s first dimension. Everything that is not known to keep samples apart mixes them.
//
//===----------------------------------------------------------------------------===//

#include "BatchAnalysis.h"
#include "Build.h"

using namespace mlir;

namespace mpc {

static SamplePlaces mix(Operation *op) { return {{}, op}; }
static SamplePlaces pairWithWholeBatch(Operation *op) { return {{}, op, true}; }

BatchAnalysis::BatchAnalysis(func::FuncOp f) {
  start(f);
  for (Operation &op : f.front().without_terminator())
    visit(&op);
}

void BatchAnalysis::start(func::FuncOp f) {
  auto module = f->getParentOfType<ModuleOp>();
  auto size = module->getAttrOfType<IntegerAttr>("mpc.batch");
  auto axes = module->getAttrOfType<DictionaryAttr>("mpc.batch_axes");
  if (!size || size.getInt() <= 1)
    return;
  batch = size.getInt();
  for (BlockArgument input : f.getArguments()) {
    unsigned i = input.getArgNumber();
    auto role = f.getArgAttrOfType<StringAttr>(i, MpcDialect::kRoleAttr);
    auto name = f.getArgAttrOfType<StringAttr>(i, MpcDialect::kNameAttr);
    if (!role || role.getValue() != "input" || !isa<RankedTensorType>(input.getType()))
      continue;
    auto bound = axes && name ? axes.getAs<IntegerAttr>(name.getValue()) : IntegerAttr();
    int64_t axis = bound ? bound.getInt() : 0;
    ArrayRef<int64_t> shape = shapeOf(input);
    if ((bound || !axes) && axis < int64_t(shape.size()) && shape[axis] == batch)
      known[input] = {{{axis}}, nullptr};
  }
}

std::string BatchAnalysis::whyMixed(Value v) const {
  SamplePlaces p = of(v);
  if (!p.mixed())
    return "";
  StringRef node = nodeOf(p.culprit);
  return ("node '" + (node.empty() ? "?" : node) + "' (" + operatorOf(p.culprit) +
          (p.paired ? ") combines the samples with numbers made for a whole batch"
                    : ") mixes the samples of a batch"))
      .str();
}

//===----------------------------------------------------------------------===//
// Elementwise operations
//===----------------------------------------------------------------------===//

// An operand without a place on an axis goes with all samples there only if it is the same for
// each: x + xᵀ of a square x pairs samples with features, and a parameter of N rows has some that a
// smaller batch cannot use.
bool BatchAnalysis::goesWith(Value v, const SamplePlace &p) {
  return of(v).on(p.axis) || fewer.hold(v, partOf(p));
}

// An element of the result belongs to all samples that the operands' elements belong to, so places
// on different axes add up.
SamplePlaces BatchAnalysis::merge(Operation *op) {
  SamplePlaces merged;
  for (Value v : op->getOperands())
    for (SamplePlace p : of(v).places) {
      p.neutral.reset();
      const SamplePlace *other = merged.on(p.axis);
      if (other && !other->samePlace(p))
        return mix(op);
      if (!other)
        merged.places.push_back(p);
    }
  return merged;
}

SamplePlaces BatchAnalysis::ofElementwise(Operation *op) {
  SamplePlaces merged = merge(op);
  // A dropout's random state goes with everything.
  for (Value v : op->getOperands().take_front(isa<DropoutOp>(op) ? 1 : op->getNumOperands()))
    for (const SamplePlace &p : merged.places)
      if (isa<RankedTensorType>(v.getType()) && shapeOf(v) == shapeOf(op->getResult(0)) &&
          !goesWith(v, p))
        return pairWithWholeBatch(op);
  return merged;
}

//===----------------------------------------------------------------------===//
// Index maps
//===----------------------------------------------------------------------===//

SamplePlaces BatchAnalysis::ofReshape(Operation *op) {
  SamplePlaces result;
  // The order stays row-major: the samples' factor starts at the same position and must lie in one
  // dimension again.
  for (const SamplePlace &p : of(op->getOperand(0)).places) {
    auto moved = locate(partOf(p), shapeOf(op->getOperand(0)), shapeOf(op->getResult(0)));
    if (!moved || result.on(moved->axis))
      return mix(op);
    result.places.push_back({moved->axis, moved->outer, moved->inner, p.neutral});
  }
  return result;
}

// All of the samples, whole blocks of them, or only the first sample, which is always there.
SamplePlaces BatchAnalysis::ofSlice(SliceOp op) {
  SamplePlaces result;
  ArrayRef<int64_t> from = shapeOf(op.getInput()), to = shapeOf(op.getResult());
  for (SamplePlace p : of(op.getInput()).places) {
    int64_t start = op.getStarts()[p.axis], step = op.getSteps()[p.axis], size = to[p.axis];
    int64_t last = start + (size - 1) * step, block = batch * p.inner;
    if (size > 0 && std::max(start, last) < p.inner)
      continue;
    bool whole = size == from[p.axis] && step == 1;
    if (!whole && (step != 1 || start % block != 0 || size % block != 0))
      return mix(op);
    p.outer = size / block;
    result.places.push_back(p);
  }
  return result;
}

// Joined along the samples' axis, every operand is a block of its own.
SamplePlaces BatchAnalysis::ofConcat(ConcatOp op) {
  int64_t axis = op.getAxis();
  SamplePlaces others, joined;
  for (Value v : op.getInputs())
    for (SamplePlace p : of(v).places) {
      p.neutral.reset();
      SamplePlaces &group = p.axis == axis ? joined : others;
      const SamplePlace *known = group.on(p.axis);
      if (known && p.axis != axis && !known->samePlace(p))
        return mix(op);
      if (!known || p.axis == axis)
        group.places.push_back(p);
    }
  for (Value v : op.getInputs())
    for (const SamplePlace &p : others.places)
      if (!goesWith(v, p))
        return pairWithWholeBatch(op);
  if (joined.places.empty())
    return others;
  SamplePlace whole{axis, 0, joined.places.front().inner};
  for (const SamplePlace &p : joined.places) {
    if (p.inner != whole.inner)
      return mix(op);
    whole.outer += p.outer;
  }
  if (joined.places.size() != op.getInputs().size())
    return mix(op);
  others.places.push_back(whole);
  return others;
}

SamplePlaces BatchAnalysis::ofGather(GatherOp op) {
  SamplePlaces table = of(op.getInput()), indices = of(op.getIndices()), result;
  int64_t axis = op.getAxis(), rank = shapeOf(op.getIndices()).size();
  if (!op->hasAttr(kSameSamplesAttr))
    for (SamplePlace p : table.places) {
      if (p.axis == axis)
        return mix(op);
      p.axis += p.axis > axis ? rank - 1 : 0;
      p.neutral.reset();
      result.places.push_back(p);
    }
  for (SamplePlace p : indices.places) {
    p.axis += axis;
    p.neutral.reset();
    result.places.push_back(p);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Operations that combine elements
//===----------------------------------------------------------------------===//

// Rows, columns and leading dimensions keep samples apart; of the leading ones, and of the columns
// with a bias, both operands need the same. Contracting over them is a sum: exact if
// both operands are zero for those that are not there.
SamplePlaces BatchAnalysis::ofMatmul(MatmulOp op) {
  if (op.getBias() && !of(op.getBias()).none())
    return mix(op);
  int64_t last = shapeOf(op.getResult()).size() - 1;
  SamplePlaces result;
  SmallVector<SamplePlace> contracted;
  for (bool left : {true, false}) {
    bool transposed = left ? op.getTransposeLhs() : op.getTransposeRhs();
    int64_t kept = left != transposed ? last - 1 : last; // the rows, or the columns
    for (SamplePlace p : of(left ? op.getLhs() : op.getRhs()).places) {
      if (p.axis >= last - 1 && p.axis != kept) {
        contracted.push_back(p);
        continue;
      }
      if (p.axis == kept)
        p.axis = left ? last - 1 : last;
      p.neutral.reset();
      const SamplePlace *other = result.on(p.axis);
      if (other && !other->samePlace(p))
        return mix(op);
      if (!other)
        result.places.push_back(p);
    }
  }
  for (const SamplePlace &p : result.places) {
    bool leading = p.axis < last - 1, biased = p.axis == last && op.getBias();
    if (leading && (!goesWith(op.getLhs(), p) || !goesWith(op.getRhs(), p)))
      return pairWithWholeBatch(op);
    if (biased && !fewer.hold(op.getBias(), {0, p.outer, batch, p.inner}))
      return pairWithWholeBatch(op);
  }
  if (contracted.empty())
    return result;
  bool exact = contracted.size() == 2 && contracted[0].outer == contracted[1].outer &&
               contracted[0].inner == contracted[1].inner &&
               llvm::all_of(contracted,
                            [](const SamplePlace &p) { return p.neutral == ReductionKind::sum; });
  return exact ? result : mix(op);
}

// Rows of samples that are not there are the same whatever filled the batch up: the operand gets a
// place where it had none.
SamplePlaces BatchAnalysis::ofMask(MaskSamplesOp op) {
  SamplePlaces result;
  int64_t axis = op.getAxis();
  std::optional<ReductionKind> neutral;
  if (!op.getKeep())
    neutral = op.getNeutral();
  for (SamplePlace p : of(op.getInput()).places) {
    if (!neutral || p.neutral != neutral)
      p.neutral.reset();
    if (p.axis != axis)
      result.places.push_back(p);
    else if (p.outer != 1 || p.inner != int64_t(op.getFactor()))
      return mix(op);
  }
  result.places.push_back({axis, 1, int64_t(op.getFactor()), neutral});
  return result;
}

SamplePlaces BatchAnalysis::ofReduce(ReduceOp op) {
  SamplePlaces result;
  for (SamplePlace p : of(op.getInput()).places) {
    if (llvm::is_contained(op.getAxes(), p.axis)) {
      if (p.neutral != op.getKind())
        return mix(op);
      continue;
    }
    if (p.neutral != op.getKind())
      p.neutral.reset();
    p.axis -= llvm::count_if(op.getAxes(), [&](int64_t axis) { return axis < p.axis; });
    result.places.push_back(p);
  }
  return result;
}

// Every element along `axis` depends on all of them.
SamplePlaces BatchAnalysis::combined(Operation *op, int64_t axis, ReductionKind kind) {
  SamplePlaces places = of(op->getOperand(0));
  const SamplePlace *p = places.on(axis);
  return p && p->neutral != kind ? mix(op) : merge(op);
}

//===----------------------------------------------------------------------===//
// All operations
//===----------------------------------------------------------------------===//

SamplePlaces BatchAnalysis::transfer(Operation *op) {
  SamplePlaces places = op->getNumOperands() ? of(op->getOperand(0)) : SamplePlaces();
  auto mixIf = [&](bool condition) { return condition ? mix(op) : merge(op); };
  auto anyPlace = [&](function_ref<bool(const SamplePlace &)> test) {
    return llvm::any_of(places.places, test);
  };
  if (isa<ReshapeOp>(op))
    return ofReshape(op);
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    for (SamplePlace &p : places.places)
      p.axis = broadcast.getDimensions()[p.axis];
    return places;
  }
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    for (SamplePlace &p : places.places)
      p.axis = llvm::find(transpose.getPermutation(), p.axis) - transpose.getPermutation().begin();
    return places;
  }
  if (auto slice = dyn_cast<SliceOp>(op))
    return ofSlice(slice);
  if (auto pad = dyn_cast<PadOp>(op))
    return mixIf(anyPlace([&](const SamplePlace &p) {
      return pad.getLow()[p.axis] || pad.getHigh()[p.axis] || pad.getInterior()[p.axis];
    }));
  if (auto concat = dyn_cast<ConcatOp>(op))
    return ofConcat(concat);
  if (auto gather = dyn_cast<GatherOp>(op))
    return ofGather(gather);
  if (auto matmul = dyn_cast<MatmulOp>(op))
    return ofMatmul(matmul);
  // One filter, scale or bias for all samples.
  auto onlyInput = [&] {
    return llvm::all_of(op->getOperands().drop_front(), [&](Value v) { return of(v).none(); });
  };
  if (isa<ConvOp, ConvBackwardDataOp>(op)) // samples on axis 0
    return mixIf(!onlyInput() || anyPlace([](const SamplePlace &p) { return p.axis != 0; }));
  if (auto mask = dyn_cast<MaskSamplesOp>(op))
    return ofMask(mask);
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return ofReduce(reduce);
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    return combined(op, softmax.getAxis(), ReductionKind::max);
  if (auto softmax = dyn_cast<LogSoftmaxOp>(op))
    return combined(op, softmax.getAxis(), ReductionKind::max);
  if (auto sums = dyn_cast<CumSumOp>(op))
    return combined(op, sums.getAxis(), ReductionKind::sum);
  if (auto norm = dyn_cast<LayerNormOp>(op))
    return mixIf(!onlyInput() ||
                 anyPlace([&](const SamplePlace &p) { return p.axis >= int64_t(norm.getAxis()); }));
  if (isa<BatchNormInferenceOp, BatchNormOp>(op)) // a scale and statistics per channel
    return places.on(1) ? pairWithWholeBatch(op) : mixIf(!onlyInput());
  if (isa<MaxPoolOp, AveragePoolOp>(op))
    return mixIf(anyPlace([](const SamplePlace &p) { return p.axis > 1; }));
  bool elementwise = op->hasTrait<OpTrait::Elementwise>() || isa<DropoutOp>(op);
  return elementwise ? ofElementwise(op) : mix(op);
}

void BatchAnalysis::visit(Operation *op) {
  if (batch == 1)
    return;
  // What has no elements has none of a sample: it will be a constant.
  auto isEmpty = [](Type type) { return hasNoElements(type); };
  if (llvm::any_of(op->getOperandTypes(), isEmpty) || llvm::any_of(op->getResultTypes(), isEmpty))
    return;
  bool any = isa<MaskSamplesOp>(op);
  for (Value v : op->getOperands()) {
    SamplePlaces places = of(v);
    if (places.mixed()) {
      for (Value result : op->getResults())
        known[result] = places;
      return;
    }
    any |= !places.none();
  }
  if (!any) {
    for (Value result : op->getResults())
      known.erase(result); // of an erased operation that was there
    return;
  }
  SamplePlaces places = transfer(op);
  for (Value result : op->getResults())
    known[result] = places;
  // The statistics of a batch are none of its samples'; their samples have been counted.
  if (auto norm = dyn_cast<BatchNormOp>(op); norm && !places.mixed())
    known[norm.getMean()] = known[norm.getVariance()] = {};
}

void refuseSmallerBatch(ModuleOp module, const Twine &why) {
  if (std::string text = why.str(); !text.empty() && !module->hasAttr("mpc.tail_refused"))
    module->setAttr("mpc.tail_refused", StringAttr::get(module.getContext(), text));
}

} // namespace mpc
