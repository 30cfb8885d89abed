//===- AssignLayout.cpp - channels-last convolutions ----------------------------------===//
//
// Libraries convolve fastest where the channels of a pixel lie side by side, and sums per
// channel become sums of columns. Every convolution is made channels-last; the transposes
// around it move down the function, through all operations that do not care, and meet:
//
//   %1 = mpc.conv %x …                        %xl = mpc.transpose %x [0, 2, 3, 1]
//   %2 = arith.maximumf %1, %0        →       %1  = mpc.conv %xl … {channels_last}
//   %3 = mpc.conv %2 …                        %2  = arith.maximumf %1, %0
//                                             %3  = mpc.conv %2 … {channels_last}
//
// What is left stands at the edges: the graph's input, a flattening reshape. There a transpose
// is an index map in the kernel that reads it. Dropout stays as it is: its numbers follow the
// position in the model's shape.
//
//===----------------------------------------------------------------------------------===//

#include "passes/AssignLayout.h"
#include "passes/Clustering.h"
#include "passes/Passes.h"
#include "llvm/ADT/STLExtras.h"

namespace mpc {
#define GEN_PASS_DEF_ASSIGNLAYOUT
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

static RankedTensorType typeOf(Value v) { return cast<RankedTensorType>(v.getType()); }
static int64_t rankOf(Value v) { return typeOf(v).getRank(); }

/// [0, 2, …, rank - 1, 1]: result dimension i of a channels-last value is dimension lastOrder[i] of
/// the plain one.
static SmallVector<int64_t> lastOrder(int64_t rank) {
  SmallVector<int64_t> order = {0};
  for (int64_t d = 2; d < rank; ++d)
    order.push_back(d);
  order.push_back(1);
  return order;
}

/// Where dimension d of the plain layout lies in the channels-last one.
static int64_t lastPlace(int64_t d, int64_t rank) {
  return d == 0 ? 0 : (d == 1 ? rank - 1 : d - 1);
}

template <typename T> static SmallVector<T> permuted(ArrayRef<T> values, ArrayRef<int64_t> order) {
  SmallVector<T> result;
  for (int64_t d : order)
    result.push_back(values[d]);
  return result;
}

static RankedTensorType lastType(RankedTensorType plain) {
  return RankedTensorType::get(permuted(plain.getShape(), lastOrder(plain.getRank())),
                               plain.getElementType());
}

/// A transpose, or a reshape where it moves nothing but dimensions of size 1.
static Value transposed(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> order) {
  if (llvm::is_sorted(order))
    return v;
  auto type =
      RankedTensorType::get(permuted(typeOf(v).getShape(), order), typeOf(v).getElementType());
  SmallVector<int64_t> moved;
  for (int64_t d : order)
    if (typeOf(v).getDimSize(d) != 1)
      moved.push_back(d);
  if (llvm::is_sorted(moved))
    return ReshapeOp::create(b, loc, type, v);
  return TransposeOp::create(b, loc, type, v, order);
}

namespace {

class LayoutRewriter {
public:
  explicit LayoutRewriter(func::FuncOp function)
      : block(function.getBody().front()), b(function.getContext()) {}
  void run();

private:
  Block &block;
  OpBuilder b;
  /// A value in the plain layout → the same one channels-last. Keys whose producer is a transpose
  /// to plain are free.
  DenseMap<Value, Value> last;
  DenseSet<Value> free;

  Value inLast(Value v);
  void replace(Operation *op, Operation *copy, ArrayRef<unsigned> activations);
  void convertConvolution(Operation *op, ArrayRef<unsigned> operands, bool resultIsFilter);
  bool passThrough(Operation *op);
  void passReduce(ReduceOp op);
  void setOrder(Operation *copy, StringRef name, ArrayRef<int64_t> order);
};

struct AssignLayout : mpc::impl::AssignLayoutBase<AssignLayout> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal()) {
        LayoutRewriter(function).run();
        moveTransposesIntoMatmuls(function);
      }
  }
};

} // namespace

/// `v` channels-last, made where `v` is made.
Value LayoutRewriter::inLast(Value v) {
  if (auto it = last.find(v); it != last.end())
    return it->second;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(v);
  int64_t rank = rankOf(v);
  Value result;
  if (auto constant = v.getDefiningOp<arith::ConstantOp>(); constant && !isDataConstant(v)) {
    result = arith::ConstantOp::create(
        b, v.getLoc(),
        cast<DenseElementsAttr>(constant.getValue()).resizeSplat(lastType(typeOf(v))));
  } else if (auto broadcast = v.getDefiningOp<BroadcastOp>()) {
    // The operand's dimensions in their new order, sorted by where they come to lie.
    SmallVector<std::pair<int64_t, int64_t>> places;
    for (auto [i, d] : llvm::enumerate(broadcast.getDimensions()))
      places.push_back({lastPlace(d, rank), i});
    llvm::sort(places);
    SmallVector<int64_t> order, dimensions;
    for (auto [place, i] : places) {
      dimensions.push_back(place);
      order.push_back(i);
    }
    Value input = transposed(b, v.getLoc(), broadcast.getInput(), order);
    result = BroadcastOp::create(b, v.getLoc(), lastType(typeOf(v)), input, dimensions);
  } else {
    result = transposed(b, v.getLoc(), v, lastOrder(rank));
  }
  return last[v] = result;
}

/// Puts `copy` in the place of `op`. Its results at `activations` are channels-last; readers that
/// want them plain get a transpose, which disappears if nobody does.
void LayoutRewriter::replace(Operation *op, Operation *copy, ArrayRef<unsigned> activations) {
  b.setInsertionPointAfter(copy);
  for (auto [i, result] : llvm::enumerate(copy->getResults())) {
    Value plain = result;
    if (llvm::is_contained(activations, i)) {
      int64_t rank = rankOf(op->getResult(i));
      SmallVector<int64_t> order;
      for (int64_t d = 0; d < rank; ++d)
        order.push_back(lastPlace(d, rank));
      plain = transposed(b, op->getLoc(), result, order);
      last[plain] = result;
      free.insert(plain);
    }
    op->getResult(i).replaceAllUsesWith(plain);
  }
  op->erase();
}

void LayoutRewriter::convertConvolution(Operation *op, ArrayRef<unsigned> operands,
                                        bool resultIsFilter) {
  b.setInsertionPoint(op);
  Operation *copy = op->clone();
  for (unsigned i : operands)
    copy->setOperand(i, inLast(op->getOperand(i)));
  b.insert(copy);
  copy->setAttr("channels_last", b.getUnitAttr());
  if (!resultIsFilter)
    copy->getResult(0).setType(lastType(typeOf(op->getResult(0))));
  replace(op, copy, resultIsFilter ? ArrayRef<unsigned>() : ArrayRef<unsigned>({0}));
}

void LayoutRewriter::setOrder(Operation *copy, StringRef name, ArrayRef<int64_t> order) {
  copy->setAttr(name, b.getDenseI64ArrayAttr(permuted(
                          copy->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef(), order)));
}

/// What is kept stays in order, unless the channels come to lie behind a kept spatial dimension.
void LayoutRewriter::passReduce(ReduceOp op) {
  int64_t rank = rankOf(op.getInput());
  SmallVector<int64_t> axes, order = lastOrder(rank), kept;
  for (int64_t d : op.getAxes())
    axes.push_back(lastPlace(d, rank));
  llvm::sort(axes);
  for (int64_t d : order) // plain dimensions, as they lie in the new result
    if (!llvm::is_contained(op.getAxes(), d))
      kept.push_back(d);
  SmallVector<int64_t> sorted(kept), back;
  llvm::sort(sorted);
  for (int64_t d : sorted)
    back.push_back(llvm::find(kept, d) - kept.begin());
  SmallVector<int64_t> shape;
  for (int64_t d : kept)
    shape.push_back(typeOf(op.getInput()).getDimSize(d));
  b.setInsertionPoint(op);
  auto type = RankedTensorType::get(shape, typeOf(op.getResult()).getElementType());
  Value reduced = ReduceOp::create(b, op.getLoc(), type, op.getKind(), inLast(op.getInput()), axes);
  op.getResult().replaceAllUsesWith(transposed(b, op.getLoc(), reduced, back));
  op.erase();
}

/// An operation with a channels-last operand that can work on that layout; false if it is none of
/// them.
bool LayoutRewriter::passThrough(Operation *op) {
  SmallVector<unsigned> operands; // the activations among them
  SmallVector<unsigned> results;
  bool flag = isPool(op) || isPoolGradient(op);
  if (isa<BatchNormOp, BatchNormInferenceOp, MaskSamplesOp>(op)) {
    operands = {0};
    results = {0};
  } else if (isa<BatchNormGradOp>(op)) {
    operands = {0, 1};
    results = {0};
  } else if (isPointwise(op) || flag ||
             isa<SigmoidOp, SoftplusOp, GeluOp, StopGradientOp, ConcatOp, SliceOp, PadOp>(op)) {
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      if (isa<RankedTensorType>(operand.getType()))
        operands.push_back(i);
    results = llvm::to_vector(llvm::seq<unsigned>(0, op->getNumResults()));
  }
  if (llvm::none_of(operands, [&](unsigned i) { return free.contains(op->getOperand(i)); }))
    return false;

  b.setInsertionPoint(op);
  Operation *copy = op->clone();
  for (unsigned i : operands)
    copy->setOperand(i, inLast(op->getOperand(i)));
  b.insert(copy);
  int64_t rank = rankOf(op->getResult(0));
  SmallVector<int64_t> order = lastOrder(rank);
  for (unsigned i : results)
    copy->getResult(i).setType(lastType(typeOf(op->getResult(i))));
  if (flag || isa<BatchNormOp, BatchNormInferenceOp, BatchNormGradOp>(op))
    copy->setAttr("channels_last", b.getUnitAttr());
  if (isa<ConcatOp, MaskSamplesOp>(op))
    copy->setAttr("axis", b.getI64IntegerAttr(
                              lastPlace(copy->getAttrOfType<IntegerAttr>("axis").getInt(), rank)));
  if (isa<SliceOp>(op))
    for (StringRef name : {"starts", "steps"})
      setOrder(copy, name, order);
  if (isa<PadOp>(op))
    for (StringRef name : {"low", "high", "interior"})
      setOrder(copy, name, order);
  replace(op, copy, results);
  return true;
}

void LayoutRewriter::run() {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    auto flag = op.getAttrOfType<UnitAttr>("channels_last");
    if (!flag && isa<ConvOp, ConvBackwardDataOp>(op)) {
      convertConvolution(&op, {0}, false);
    } else if (!flag && isa<ConvBackwardWeightsOp>(op)) {
      convertConvolution(&op, {0, 1}, true);
    } else if (auto reduce = dyn_cast<ReduceOp>(op)) {
      if (free.contains(reduce.getInput()))
        passReduce(reduce);
    } else if (!flag) {
      passThrough(&op);
    }
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isa<TransposeOp, ReshapeOp, BroadcastOp, arith::ConstantOp>(op) && op.use_empty())
      op.erase();
}
