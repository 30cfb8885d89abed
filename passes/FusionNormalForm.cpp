//===- FusionNormalForm.cpp - the form of a function that clustering reads --------===//
//
// Clustering sees less cases, and finds more, after these rewrites; all of them are exact:
//
//   reduce over any dimensions      →  transpose, then reduce over the trailing or leading ones
//   max(matmul, 0)                  →  matmul {relu} where the library applies it as written
//   pad(a) + pad(b), side by side   →  concat(a, b)
//   return of an argument, or of    →  return of a copy (an mpc.broadcast that adds nothing), which
//   one value twice                     fuse makes a kernel of
//
//===------------------------------------------------------------------------------===//

#include "compiler/ops/Build.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/CSE.h"
#include "passes/Clustering.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mpc;

static RankedTensorType typeOf(Value v) { return cast<RankedTensorType>(v.getType()); }

static Value reshaped(OpBuilder &b, Location loc, Value v, ArrayRef<int64_t> shape) {
  auto type = RankedTensorType::get(shape, typeOf(v).getElementType());
  return type == v.getType() ? v : ReshapeOp::create(b, loc, type, v).getResult();
}

static void eraseDead(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

/// Dimensions of size 1 disappear; what is reduced comes last if the last dimension is among it,
/// else first.
static void normalizeReduce(ReduceOp reduce) {
  OpBuilder b(reduce);
  Location loc = reduce.getLoc();
  RankedTensorType input = typeOf(reduce.getInput()), result = typeOf(reduce.getResult());
  SmallVector<int64_t> shape, reduced, kept;
  for (int64_t d = 0; d < input.getRank(); ++d) {
    if (input.getDimSize(d) == 1)
      continue;
    (llvm::is_contained(reduce.getAxes(), d) ? reduced : kept).push_back(shape.size());
    shape.push_back(input.getDimSize(d));
  }
  Value v = reshaped(b, loc, reduce.getInput(), shape);
  if (reduced.empty()) {
    if (typeOf(v).getElementType() != result.getElementType())
      v = arith::ExtFOp::create(b, loc, typeOf(v).clone(result.getElementType()), v);
  } else {
    SmallVector<int64_t> order;
    bool trailing = reduced.back() == static_cast<int64_t>(shape.size()) - 1;
    llvm::append_range(order, trailing ? kept : reduced);
    llvm::append_range(order, trailing ? reduced : kept);
    SmallVector<int64_t> columns, axes;
    for (int64_t d : kept)
      columns.push_back(shape[d]);
    for (size_t i = 0; i < reduced.size(); ++i)
      axes.push_back(trailing ? kept.size() + i : i);
    if (!llvm::is_sorted(order)) {
      SmallVector<int64_t> permuted;
      for (int64_t d : order)
        permuted.push_back(shape[d]);
      v = TransposeOp::create(b, loc, RankedTensorType::get(permuted, input.getElementType()), v,
                              order);
    }
    if (v == reduce.getInput())
      return;
    v = ReduceOp::create(b, loc, RankedTensorType::get(columns, result.getElementType()),
                         reduce.getKind(), v, axes);
  }
  reduce.getResult().replaceAllUsesWith(reshaped(b, loc, v, result.getShape()));
  reduce.erase();
}

/// The uses of `v` after reshapes and widening; false if one of them is neither max(v, 0) nor v >
/// 0. Both can be read from the rectified value.
static bool onlyRectified(Value v, SmallVectorImpl<arith::MaximumFOp> &maxima) {
  for (OpOperand &use : v.getUses()) {
    Operation *user = use.getOwner();
    if (isa<ReshapeOp, arith::ExtFOp>(user)) {
      if (!onlyRectified(user->getResult(0), maxima))
        return false;
      continue;
    }
    bool first = use.getOperandNumber() == 0;
    if (!isa<arith::MaximumFOp, arith::CmpFOp>(user) ||
        !matchPattern(user->getOperand(first ? 1 : 0), m_PosZeroFloat()))
      return false;
    if (auto maximum = dyn_cast<arith::MaximumFOp>(user))
      maxima.push_back(maximum);
    else if (cast<arith::CmpFOp>(user).getPredicate() !=
             (first ? arith::CmpFPredicate::OGT : arith::CmpFPredicate::OLT))
      return false;
  }
  return true;
}

/// In f16 the library's relu loses NaN, and with it the sign of an overflow: it stays a kernel
/// there.
static void fuseRelu(Operation *op) {
  Type element = typeOf(op->getResult(0)).getElementType();
  if (!isa<MatmulOp, ConvOp>(op) || !(element.isF32() || element.isBF16()))
    return;
  SmallVector<arith::MaximumFOp> maxima;
  if (!onlyRectified(op->getResult(0), maxima) || maxima.empty())
    return;
  if (auto matmul = dyn_cast<MatmulOp>(op))
    matmul.setRelu(true);
  else
    cast<ConvOp>(op).setRelu(true);
  for (arith::MaximumFOp maximum : maxima) {
    Value rectified =
        matchPattern(maximum.getRhs(), m_PosZeroFloat()) ? maximum.getLhs() : maximum.getRhs();
    maximum.getResult().replaceAllUsesWith(rectified); // erased with all that is dead, at the end
  }
}

/// x > 0 exactly where max(x, 0) > 0, and it is the rectified value that is stored for others; as a
/// half if x is one.
static void readMaskFromRectified(arith::CmpFOp compare) {
  if (compare.getPredicate() != arith::CmpFPredicate::OGT ||
      !matchPattern(compare.getRhs(), m_PosZeroFloat()))
    return;
  Value x = compare.getLhs();
  for (Operation *user : x.getUsers()) {
    auto maximum = dyn_cast<arith::MaximumFOp>(user);
    if (!maximum || maximum->getBlock() != compare->getBlock() ||
        !maximum->isBeforeInBlock(compare) ||
        !matchPattern(maximum.getLhs() == x ? maximum.getRhs() : maximum.getLhs(),
                      m_PosZeroFloat()))
      continue;
    Value rectified = maximum.getResult();
    for (Operation *reader : rectified.getUsers())
      if (auto rounded = dyn_cast<arith::TruncFOp>(reader)) {
        auto widened = x.getDefiningOp<arith::ExtFOp>();
        if (!widened || widened.getIn().getType() != rounded.getType() ||
            !rounded->isBeforeInBlock(compare))
          return;
        OpBuilder b(compare);
        rectified =
            arith::ExtFOp::create(b, compare.getLoc(), rectified.getType(), rounded.getResult());
        break;
      }
    compare.getLhsMutable().set(rectified);
    return;
  }
}

/// Rounding a widened half gives the half.
static void foldRounding(arith::TruncFOp truncation) {
  auto extension = truncation.getIn().getDefiningOp<arith::ExtFOp>();
  if (extension && extension.getIn().getType() == truncation.getType())
    truncation.getResult().replaceAllUsesWith(extension.getIn());
}

/// Parts of a sum that are zero but for one range of `axis`: padded values, widened, added and
/// rounded.
struct PaddedSum {
  SmallVector<PadOp> parts;
  SmallVector<Type> roundings; ///< element types to which partial sums are rounded
};

static bool collectPads(Value v, PaddedSum &sum) {
  Operation *op = v.getDefiningOp();
  if (isa_and_nonnull<arith::AddFOp>(op))
    return collectPads(op->getOperand(0), sum) && collectPads(op->getOperand(1), sum);
  if (isa_and_nonnull<arith::ExtFOp>(op))
    return collectPads(op->getOperand(0), sum);
  if (isa_and_nonnull<arith::TruncFOp>(op)) {
    sum.roundings.push_back(typeOf(v).getElementType());
    return collectPads(op->getOperand(0), sum);
  }
  auto pad = dyn_cast_or_null<PadOp>(op);
  if (!pad || !matchPattern(pad.getValue(), m_PosZeroFloat()))
    return false;
  sum.parts.push_back(pad);
  return true;
}

/// The one dimension that is padded, and nothing but padded; -1 if there is none.
static int64_t paddedAxis(PadOp pad) {
  int64_t axis = -1;
  for (auto [d, low, high, interior] :
       llvm::enumerate(pad.getLow(), pad.getHigh(), pad.getInterior())) {
    if (low < 0 || high < 0 || interior != 0 || ((low > 0 || high > 0) && axis >= 0))
      return -1;
    if (low > 0 || high > 0)
      axis = d;
  }
  return axis;
}

/// The gradient of a split: pad(a) + pad(b) + …, where at most one summand is not zero, is a
/// concatenation. A partial sum that is rounded to the parts' own type is exact.
static void joinPads(arith::AddFOp add) {
  PaddedSum sum;
  if (!collectPads(add.getResult(), sum))
    return;
  Type element = typeOf(sum.parts.front().getInput()).getElementType();
  int64_t axis = paddedAxis(sum.parts.front()), end = 0;
  if (axis < 0 || llvm::any_of(sum.roundings, [&](Type type) { return type != element; }))
    return;
  llvm::sort(sum.parts, [&](PadOp x, PadOp y) { return x.getLow()[axis] < y.getLow()[axis]; });
  OpBuilder b(add);
  SmallVector<Value> inputs;
  auto fillTo = [&](int64_t place) {
    if (place == end)
      return;
    SmallVector<int64_t> shape(typeOf(add.getResult()).getShape());
    shape[axis] = place - end;
    inputs.push_back(arith::ConstantOp::create(
        b, add.getLoc(), b.getZeroAttr(RankedTensorType::get(shape, element))));
  };
  for (PadOp part : sum.parts) {
    if (paddedAxis(part) != axis || part.getLow()[axis] < end ||
        typeOf(part.getInput()).getElementType() != element)
      return;
    fillTo(part.getLow()[axis]);
    inputs.push_back(part.getInput());
    end = part.getLow()[axis] + typeOf(part.getInput()).getDimSize(axis);
  }
  fillTo(typeOf(add.getResult()).getDimSize(axis));
  RankedTensorType type = typeOf(add.getResult());
  Value joined = ConcatOp::create(b, add.getLoc(), RankedTensorType::get(type.getShape(), element),
                                  inputs, axis);
  if (element != type.getElementType())
    joined = arith::ExtFOp::create(b, add.getLoc(), type, joined);
  add.getResult().replaceAllUsesWith(joined);
}

/// Each result of the function has a producer of its own, except a tied one that is its own
/// argument unchanged.
static void copyReturned(func::FuncOp function) {
  Operation *terminator = function.getBody().front().getTerminator();
  OpBuilder b(terminator);
  llvm::SmallDenseSet<Value> seen;
  for (OpOperand &operand : terminator->getOpOperands()) {
    if (hasNoElements(operand.get())) // nothing to write
      continue;
    Value base = stripReshapes(operand.get());
    auto tied = function.getResultAttrOfType<IntegerAttr>(operand.getOperandNumber(),
                                                          MpcDialect::kTiedAttr);
    if (auto argument = dyn_cast<BlockArgument>(base);
        argument && tied && tied.getInt() == argument.getArgNumber())
      continue;
    if (!isa<BlockArgument>(base) && !isDataConstant(base) && seen.insert(base).second)
      continue;
    SmallVector<int64_t> all =
        llvm::to_vector(llvm::seq<int64_t>(0, typeOf(operand.get()).getRank()));
    operand.set(
        BroadcastOp::create(b, terminator->getLoc(), operand.get().getType(), operand.get(), all));
  }
}

void mpc::normalizeForFusion(func::FuncOp function) {
  Block &block = function.getBody().front();
  // A kernel is named after its nodes by their locations; as attributes the names would keep equal
  // operations apart.
  for (Operation &op : block)
    if (!isLibraryOp(&op)) {
      op.removeDiscardableAttr(MpcDialect::kNodeAttr);
      op.removeDiscardableAttr(MpcDialect::kOpAttr);
    }
  for (Operation &op : llvm::make_early_inc_range(block))
    if (auto reduce = dyn_cast<ReduceOp>(op))
      normalizeReduce(reduce);
  eraseDead(function);
  IRRewriter rewriter(function.getContext());
  DominanceInfo dominance(function);
  eliminateCommonSubExpressions(rewriter, dominance, function);
  auto sums = llvm::to_vector(function.getOps<arith::AddFOp>());
  for (arith::AddFOp add : llvm::reverse(sums))
    if (!add->use_empty())
      joinPads(add);
  for (Operation &op : llvm::make_early_inc_range(block))
    if (op.getNumResults() == 1 && isa<RankedTensorType>(op.getResult(0).getType())) {
      fuseRelu(&op);
      if (auto truncation = dyn_cast<arith::TruncFOp>(op))
        foldRounding(truncation);
    }
  eraseDead(function);
  for (auto compare : function.getOps<arith::CmpFOp>())
    readMaskFromRectified(compare);
  eliminateCommonSubExpressions(rewriter, dominance, function);
  copyReturned(function);
}
