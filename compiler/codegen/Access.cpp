//===- Access.cpp - which elements a kernel's values are read at ----------------===//

#include "compiler/codegen/Access.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace mpc {

bool isPointwise(Operation *op) {
  return op->getNumResults() == 1 && isa<RankedTensorType>(op->getResult(0).getType()) &&
         isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
         !op->hasTrait<OpTrait::ConstantLike>();
}

Value stripReshapes(Value v) {
  while (auto reshape = v.getDefiningOp<ReshapeOp>())
    v = reshape.getInput();
  return v;
}

bool isView(Operation *op) { return isa<ReshapeOp, TransposeOp, BroadcastOp, SliceOp>(op); }

SmallVector<int64_t, 3> aroundAxis(ArrayRef<int64_t> shape, int64_t axis) {
  return {elementsOf(shape.take_front(axis)), shape[axis], elementsOf(shape.drop_front(axis + 1))};
}

// Neighboring dimensions that stay together are one: fewer divisions.

static Affine broadcastIndex(IndexSpace &space, BroadcastOp op, const Affine &at) {
  ArrayRef<int64_t> shape = tensorShape(op.getResult()), kept = op.getDimensions();
  SmallVector<int64_t> grouped;
  SmallVector<bool> isKept;
  for (size_t d = 0, next = 0; d < shape.size(); ++d) {
    bool here = next < kept.size() && kept[next] == static_cast<int64_t>(d);
    next += here;
    if (!grouped.empty() && isKept.back() == here) {
      grouped.back() *= shape[d];
    } else {
      grouped.push_back(shape[d]);
      isKept.push_back(here);
    }
  }
  SmallVector<Affine> indices = space.split(at, grouped), used;
  SmallVector<int64_t> usedShape;
  for (size_t i = 0; i < grouped.size(); ++i)
    if (isKept[i]) {
      used.push_back(indices[i]);
      usedShape.push_back(grouped[i]);
    }
  return IndexSpace::join(used, usedShape);
}

static Affine transposeIndex(IndexSpace &space, TransposeOp op, const Affine &at) {
  ArrayRef<int64_t> shape = tensorShape(op.getResult()), permutation = op.getPermutation();
  SmallVector<int64_t> grouped; // of the result
  SmallVector<int64_t> firstInput;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d && permutation[d] == permutation[d - 1] + 1) {
      grouped.back() *= shape[d];
    } else {
      grouped.push_back(shape[d]);
      firstInput.push_back(permutation[d]);
    }
  }
  SmallVector<Affine> indices = space.split(at, grouped), ordered;
  SmallVector<int64_t> orderedShape;
  SmallVector<size_t> order = llvm::to_vector(llvm::seq<size_t>(grouped.size()));
  llvm::sort(order, [&](size_t a, size_t b) { return firstInput[a] < firstInput[b]; });
  for (size_t i : order) {
    ordered.push_back(indices[i]);
    orderedShape.push_back(grouped[i]);
  }
  return IndexSpace::join(ordered, orderedShape);
}

static Affine sliceIndex(IndexSpace &space, SliceOp op, const Affine &at) {
  ArrayRef<int64_t> shape = tensorShape(op.getResult()), input = tensorShape(op.getInput());
  SmallVector<int64_t> grouped, groupedInput, start, step;
  bool lastWhole = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    bool whole = shape[d] == input[d] && op.getStarts()[d] == 0 && op.getSteps()[d] == 1;
    if (whole && lastWhole) {
      grouped.back() *= shape[d];
      groupedInput.back() *= input[d];
    } else {
      grouped.push_back(shape[d]);
      groupedInput.push_back(input[d]);
      start.push_back(op.getStarts()[d]);
      step.push_back(op.getSteps()[d]);
    }
    lastWhole = whole;
  }
  SmallVector<Affine> indices = space.split(at, grouped);
  for (size_t i = 0; i < indices.size(); ++i)
    indices[i] = indices[i] * step[i] + start[i];
  return IndexSpace::join(indices, groupedInput);
}

Affine viewedIndex(IndexSpace &space, Operation *view, const Affine &at) {
  if (auto op = dyn_cast<BroadcastOp>(view))
    return broadcastIndex(space, op, at);
  if (auto op = dyn_cast<TransposeOp>(view))
    return transposeIndex(space, op, at);
  if (auto op = dyn_cast<SliceOp>(view))
    return sliceIndex(space, op, at);
  return at; // a reshape keeps the linear index
}

PoolWindow::PoolWindow(Operation *pool) {
  bool last = false;
  TypeSwitch<Operation *>(pool).Case<MaxPoolOp, MaxPoolGradOp, AveragePoolOp, AveragePoolGradOp>(
      [&](auto op) {
        kernel = op.getKernel();
        strides = op.getStrides();
        pads = op.getPads();
        dilations = op.getDilations();
        last = op.getChannelsLast();
      });
  first = last ? 1 : 2;
}

double operationCost(Operation *op) {
  StringRef name = op->getName().getStringRef();
  bool isDouble = op->getNumResults() && getElementTypeOrSelf(op->getResult(0).getType()).isF64();
  double library = isDouble ? 10 : 1; // a call per element
  if (isa<math::ExpOp, math::ExpM1Op>(op))
    return 12 * library;
  if (isa<math::LogOp, math::Log1pOp>(op))
    return 14 * library;
  if (isa<math::TanhOp, math::ErfOp>(op))
    return 20 * library;
  if (isa<arith::DivFOp, math::SqrtOp, math::RsqrtOp, arith::DivSIOp, arith::DivUIOp,
          arith::RemSIOp, arith::RemUIOp>(op))
    return 5;
  if (isa<math::AbsFOp, math::FloorOp, math::CeilOp, math::CopySignOp, math::FmaOp,
          math::RoundEvenOp, math::TruncOp, math::IsNaNOp, math::IsFiniteOp, math::IsInfOp>(op))
    return 1;
  if (name.starts_with("math."))
    return 120;
  if (isa<RandomUniformOp>(op))
    return 60;
  if (isa<GatherOp>(op))
    return 4;
  if (isa<ConcatOp, PadOp>(op))
    return 2;
  if (isa<arith::ConstantOp>(op) || isView(op))
    return 0;
  return 1;
}

std::pair<Value, Value> AccessWalk::divideValues(const Affine &index, int64_t divisor) {
  if (index.terms.size() == 1 && index.terms[0].second == 1 && index.constant == 0)
    if (int64_t unit = base(index.terms[0].first).unit)
      cuts.insert(unit * divisor);
  return {};
}

void AccessWalk::visit(Value value, const Affine &at) {
  if (!isa<RankedTensorType>(value.getType()) ||
      !seen.insert({value.getAsOpaquePointer(), at}).second)
    return;
  reached.push_back({value, at});
  Operation *op = value.getDefiningOp();
  // What does not change from element to element is computed outside of the innermost loop.
  cost += at.isConstant() ? 0 : repeats * (op ? operationCost(op) : 1);
  if (op)
    visitOperands(op, at);
}

void AccessWalk::visitOperands(Operation *op, const Affine &at) {
  if (isa<ReduceOp, ScatterAddOp, IotaOp>(op))
    return;
  if (isView(op))
    return visit(op->getOperand(0), viewedIndex(*this, op, at));
  if (auto pad = dyn_cast<PadOp>(op)) {
    SmallVector<Affine> indices = split(at, tensorShape(pad.getResult()));
    ArrayRef<int64_t> input = tensorShape(pad.getInput());
    for (size_t d = 0; d < input.size(); ++d)
      if (pad.getLow()[d] || pad.getHigh()[d] || pad.getInterior()[d])
        indices[d] = addBase(0, input[d] - 1, depth(indices[d]));
    return visit(pad.getInput(), join(indices, input));
  }
  if (auto concat = dyn_cast<ConcatOp>(op)) {
    SmallVector<Affine> indices =
        split(at, aroundAxis(tensorShape(concat.getResult()), concat.getAxis()));
    for (Value input : concat.getInputs()) {
      SmallVector<int64_t, 3> shape = aroundAxis(tensorShape(input), concat.getAxis());
      visit(input,
            join({indices[0], addBase(0, shape[1] - 1, depth(indices[1])), indices[2]}, shape));
    }
    return;
  }
  if (auto gather = dyn_cast<GatherOp>(op)) {
    SmallVector<int64_t, 3> input = aroundAxis(tensorShape(gather.getInput()), gather.getAxis());
    int64_t count = elementsOf(tensorShape(gather.getIndices()));
    SmallVector<Affine> indices = split(at, {input[0], count, input[2]});
    visit(gather.getIndices(), indices[1]);
    return visit(
        gather.getInput(),
        join({indices[0], addBase(0, input[1] - 1, depth(indices[1])), indices[2]}, input));
  }
  if (isa<MaxPoolOp, MaxPoolGradOp, AveragePoolOp, AveragePoolGradOp>(op)) {
    PoolWindow window(op);
    ArrayRef<int64_t> input = tensorShape(op->getOperand(0));
    SmallVector<Affine> indices = split(at, tensorShape(op->getResult(0)));
    bool forward = isa<MaxPoolOp, AveragePoolOp>(op);
    double saved = repeats;
    for (size_t d = 0; d < window.rank(); ++d) {
      unsigned dim = window.first + d;
      repeats *= forward ? window.kernel[d] : window.covering(d, input[dim]);
      indices[dim] = addBase(0, input[dim] - 1, depth(indices[dim]));
    }
    for (Value operand : op->getOperands())
      visit(operand, join(indices, input));
    repeats = saved;
    return;
  }
  if (auto random = dyn_cast<RandomUniformOp>(op))
    return visit(random.getState(), Affine(0));
  for (Value operand : op->getOperands())
    visit(operand, at);
}

} // namespace mpc
