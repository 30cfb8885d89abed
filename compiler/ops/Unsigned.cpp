//===- Unsigned.cpp - unsigned integers, held in signed types -------------------===//

#include "Unsigned.h"
#include "Expression.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace mpc {

unsigned unsignedBits(Value v) {
  if (auto argument = dyn_cast<BlockArgument>(v)) {
    auto graph = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    auto names = graph ? graph->getParentOp()->getAttrOfType<ArrayAttr>(kUnsignedAttr) : nullptr;
    Attribute name =
        names ? graph.getArgAttr(argument.getArgNumber(), MpcDialect::kNameAttr) : Attribute();
    return name && llvm::is_contained(names, name)
               ? cast<ShapedType>(v.getType()).getElementTypeBitWidth()
               : 0;
  }
  auto result = cast<OpResult>(v);
  auto node = dyn_cast<onnx::NodeOp>(result.getOwner());
  auto bits = node ? node.getOnnxAttributes().getAs<DenseI64ArrayAttr>(kUnsignedAttr)
                   : result.getOwner()->getAttrOfType<DenseI64ArrayAttr>(kUnsignedAttr);
  return bits ? bits[result.getResultNumber()] : 0;
}

bool isUint64(NodeContext &node, unsigned operand) {
  return node.has(operand) && unsignedBits(node.op.getInputs()[operand]) == 64;
}

// Forms. ------------------------------------------------------------------------------------

Value held(OpBuilder &b, Location loc, Value v) {
  unsigned bits = elementType(v).getIntOrFloatBitWidth();
  if (bits == 64)
    return v;
  return arith::ExtUIOp::create(b, loc, tensorType(v).clone(b.getIntegerType(2 * bits)), v);
}

static llvm::StringSet<> names(StringRef list) {
  llvm::StringSet<> set;
  for (StringRef name : llvm::split(list, ' '))
    set.insert(name);
  return set;
}

/// Results are elements of the operands.
static bool onlyMoves(StringRef op) {
  static const llvm::StringSet<> moves =
      names("Concat ConcatFromSequence DepthToSpace Expand Flatten Gather GatherElements GatherND "
            "Identity Reshape SequenceAt SequenceConstruct SequenceInsert Slice SpaceToDepth Split "
            "SplitToSequence Squeeze Tile Transpose Trilu Unsqueeze Where");
  return moves.contains(op);
}

/// Casts of an unsigned integer to one that has every value of its type.
static bool onlyWidens(NodeContext &node, unsigned bits) {
  if (node.type() != "Cast" && node.type() != "CastLike")
    return false;
  unsigned from = unsignedBits(node.op.getInputs()[0]);
  return from != 0 && from <= bits;
}

Value wrapped(NodeContext &node, Value v, unsigned bits) {
  unsigned width = elementType(v).getIntOrFloatBitWidth();
  if (bits == 0 || bits >= width || onlyMoves(node.type()) || onlyWidens(node, bits))
    return v;
  Value mask = node.splat(v.getType(), double((uint64_t(1) << bits) - 1));
  return node.b.createOrFold<arith::AndIOp>(node.loc, v, mask);
}

Value flipped(OpBuilder &b, Location loc, Value v) {
  return b.createOrFold<arith::XOrIOp>(loc, v, splat(b, loc, v.getType(), -0x1p63));
}

// Casts. ------------------------------------------------------------------------------------

Value castOperand(NodeContext &node, unsigned operand, Value v, Type to) {
  if (isa<FloatType>(to) && isUint64(node, operand))
    return node.b.createOrFold<arith::UIToFPOp>(node.loc, tensorType(v).clone(to), v);
  return castTo(node.b, node.loc, v, to);
}

/// x < 2⁶³ ? x : (x - 2⁶³) + 2⁶³, the latter in integers.
Value castToUint64(NodeContext &node, Value v) {
  Expr x(node.b, node.loc, widen(node.b, node.loc, v)), isLarge = x >= 0x1p63;
  Value low = select(isLarge, x - 0x1p63, x).cast(node.b.getI64Type());
  return node.b.createOrFold<arith::SelectOp>(node.loc, isLarge, flipped(node.b, node.loc, low),
                                              low);
}

// 64 bits. ----------------------------------------------------------------------------------

bool checkUint64(NodeContext &node) {
  // Modulo 2⁶⁴ sums and products are those of signed integers; the rest has been seen to.
  static const llvm::StringSet<> right = names(
      "Abs Add ArgMax ArgMin BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Clip "
      "ConstantOfShape CumSum Div Equal EyeLike Greater GreaterOrEqual Less LessOrEqual Max Min "
      "Mod Mul OneHot Pad Pow ReduceMax ReduceMin ReduceProd ReduceSum ReduceSumSquare Resize "
      "Scatter ScatterElements ScatterND Shape Sign Size Sub Upsample");
  for (unsigned i = 0, n = node.operandCount(); i < n; ++i)
    if (isUint64(node, i) && !onlyMoves(node.type()) && !right.contains(node.type())) {
      node.unsupported() << "operand " << i
                         << " is uint64, which is not supported for this operator; Cast it to "
                            "int64, which is the same below 2^63";
      return false;
    }
  return true;
}

} // namespace mpc
