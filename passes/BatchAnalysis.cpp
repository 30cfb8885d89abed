//===- BatchAnalysis.cpp - where the samples are in every value -----------------===//

#include "BatchAnalysis.h"
#include "FunctionArguments.h"
#include "compiler/ops/Build.h"

using namespace mlir;
using namespace mpc;

BatchAnalysis::BatchAnalysis(func::FuncOp f) {
  auto module = f->getParentOfType<ModuleOp>();
  auto size = module->getAttrOfType<IntegerAttr>("mpc.batch");
  auto axes = module->getAttrOfType<DictionaryAttr>("mpc.batch_axes");
  if (!size || size.getInt() <= 1) // a batch of one is never smaller
    return;
  batch = size.getInt();
  for (BlockArgument input : argumentsOf(f, "input")) {
    auto bound =
        axes ? axes.getAs<IntegerAttr>(argumentName(f, input.getArgNumber())) : IntegerAttr();
    int64_t axis = bound ? bound.getInt() : 0;
    ArrayRef<int64_t> shape = shapeOf(input);
    if ((bound || !axes) && axis < int64_t(shape.size()) && shape[axis] == batch)
      places[input] = {SamplePlace::place, axis, 1, 1, nullptr};
  }
  for (Operation &op : f.front().without_terminator())
    visit(&op);
}

std::string BatchAnalysis::whyMixed(Value v) const {
  SamplePlace p = of(v);
  if (p.kind != SamplePlace::mixed)
    return "";
  StringRef node = nodeOf(p.culprit);
  return ("node '" + (node.empty() ? StringRef("?") : node) + "' (" + operatorOf(p.culprit) +
          ") mixes the samples of a batch")
      .str();
}

// Operands of one shape: all that depend on the samples must have them in the same place.
SamplePlace BatchAnalysis::merge(Operation *op, ArrayRef<SamplePlace> operands) {
  SamplePlace merged;
  for (const SamplePlace &p : operands) {
    if (p.kind == SamplePlace::mixed)
      return p;
    if (p.kind == SamplePlace::none)
      continue;
    if (merged.kind == SamplePlace::place && !(merged == p))
      return mix(op);
    merged = p;
  }
  return merged;
}

// A reshape keeps the row-major order: the samples' factor starts at the same position and must lie
// in one dimension again.
SamplePlace BatchAnalysis::locate(Operation *op, SamplePlace p, ArrayRef<int64_t> from,
                                  ArrayRef<int64_t> to) {
  int64_t before = p.outer; // elements of the index before the samples' factor
  for (int64_t d = 0; d < p.axis; ++d)
    before *= from[d];
  int64_t passed = 1;
  for (auto [axis, size] : llvm::enumerate(to)) {
    if (before % passed == 0 && size % (before / passed * batch) == 0 &&
        before / passed * batch <= size)
      return {SamplePlace::place, int64_t(axis), before / passed, size / (before / passed * batch),
              nullptr};
    passed *= size;
    if (passed > before)
      break;
  }
  return mix(op);
}

SamplePlace BatchAnalysis::ofView(Operation *op) {
  SamplePlace p = of(op->getOperand(0));
  if (p.kind == SamplePlace::mixed)
    return p;
  if (auto gather = dyn_cast<GatherOp>(op)) {
    SamplePlace q = of(gather.getIndices());
    int64_t axis = gather.getAxis(), rank = shapeOf(gather.getIndices()).size();
    if (p.kind == SamplePlace::none)
      return q.kind == SamplePlace::place
                 ? SamplePlace{SamplePlace::place, axis + q.axis, q.outer, q.inner, nullptr}
                 : q;
    if (q.kind != SamplePlace::none || p.axis == axis)
      return mix(op);
    p.axis += p.axis > axis ? rank - 1 : 0;
    return p;
  }
  if (auto concat = dyn_cast<ConcatOp>(op)) {
    SmallVector<SamplePlace> all;
    for (Value v : concat.getInputs())
      all.push_back(of(v));
    SamplePlace merged = merge(op, all);
    return keepUnless(merged.kind == SamplePlace::place && merged.axis == int64_t(concat.getAxis()),
                      op, merged);
  }
  if (p.kind == SamplePlace::none)
    return p;
  ArrayRef<int64_t> from = shapeOf(op->getOperand(0)), to = shapeOf(op->getResult(0));
  if (isa<ReshapeOp>(op))
    return locate(op, p, from, to);
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    p.axis = broadcast.getDimensions()[p.axis];
  } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
    p.axis = llvm::find(transpose.getPermutation(), p.axis) - transpose.getPermutation().begin();
  } else if (auto slice = dyn_cast<SliceOp>(op)) {
    return keepUnless(from[p.axis] != to[p.axis] || slice.getSteps()[p.axis] != 1, op, p);
  } else if (auto pad = dyn_cast<PadOp>(op)) {
    return keepUnless(pad.getLow()[p.axis] || pad.getHigh()[p.axis] || pad.getInterior()[p.axis],
                      op, p);
  }
  return p;
}

// Contracting over the samples mixes them; rows, columns and leading dimensions keep them apart.
SamplePlace BatchAnalysis::ofProduct(Operation *op) {
  SamplePlace a = of(op->getOperand(0)), b = of(op->getOperand(1));
  for (Value operand : op->getOperands().drop_front(2))
    if (of(operand).kind != SamplePlace::none)
      return mix(op);
  if (a.kind == SamplePlace::mixed || b.kind == SamplePlace::mixed)
    return a.kind == SamplePlace::mixed ? a : b;
  auto matmul = dyn_cast<MatmulOp>(op);
  if (!matmul) // convolutions: samples on axis 0, one filter for all
    return keepUnless(b.kind == SamplePlace::place || (a.kind == SamplePlace::place && a.axis != 0),
                      op, a);
  int64_t last = shapeOf(matmul.getResult()).size() - 1;
  if (a.kind == SamplePlace::place && a.axis >= last - 1) {
    int64_t rows = matmul.getTransposeLhs() ? last : last - 1;
    if (a.axis != rows || b.kind == SamplePlace::place)
      return mix(op);
    a.axis = last - 1;
    return a;
  }
  if (b.kind == SamplePlace::place && b.axis >= last - 1) {
    int64_t columns = matmul.getTransposeRhs() ? last - 1 : last;
    if (b.axis != columns || a.kind == SamplePlace::place)
      return mix(op);
    b.axis = last;
    return b;
  }
  return merge(op, {a, b});
}

void BatchAnalysis::visit(Operation *op) {
  SmallVector<SamplePlace> operands;
  bool any = false;
  for (Value v : op->getOperands()) {
    operands.push_back(of(v));
    any |= operands.back().kind != SamplePlace::none;
  }
  if (!any)
    return;
  SamplePlace p;
  if (isa<BroadcastOp, ReshapeOp, TransposeOp, SliceOp, PadOp, ConcatOp, GatherOp>(op)) {
    p = ofView(op);
  } else if (isa<MatmulOp, ConvOp, ConvBackwardDataOp>(op)) {
    p = ofProduct(op);
  } else if (op->hasTrait<OpTrait::Elementwise>() ||
             isa<DropoutOp, MaskSamplesOp, BatchNormInferenceOp, BatchNormOp>(op)) {
    p = merge(op, operands);
  } else if (p = merge(op, operands); p.kind != SamplePlace::place) {
    // mixed before
  } else if (auto reduce = dyn_cast<ReduceOp>(op)) {
    p = keepUnless(llvm::is_contained(reduce.getAxes(), p.axis), op, p);
    if (p.kind == SamplePlace::place)
      p.axis -= llvm::count_if(reduce.getAxes(), [&](int64_t axis) { return axis < p.axis; });
  } else if (auto softmax = dyn_cast<SoftmaxOp>(op)) {
    p = keepUnless(int64_t(softmax.getAxis()) == p.axis, op, p);
  } else if (auto logSoftmax = dyn_cast<LogSoftmaxOp>(op)) {
    p = keepUnless(int64_t(logSoftmax.getAxis()) == p.axis, op, p);
  } else if (auto sums = dyn_cast<CumSumOp>(op)) {
    p = keepUnless(int64_t(sums.getAxis()) == p.axis, op, p);
  } else if (auto norm = dyn_cast<LayerNormOp>(op)) {
    p = keepUnless(p.axis >= int64_t(norm.getAxis()), op, p);
  } else if (isa<MaxPoolOp, AveragePoolOp>(op)) {
    p = keepUnless(p.axis > 1, op, p);
  } else {
    p = mix(op);
  }
  for (Value result : op->getResults())
    places[result] = p;
}
