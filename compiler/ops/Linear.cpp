//===- Linear.cpp - matrix products -----------------------------------------===//
//
// mpc.matmul: verifier, canonical form, derivative and cost, and the ONNX operators MatMul
// and Gemm. A transpose of an operand's last two dimensions becomes a flag, which the
// libraries take for nothing. Weights have rank 2: inputs of higher rank are flattened, so that
// a weight's gradient is one product and not a sum over a batch.
//
//===----------------------------------------------------------------------===//

#include "compiler/ops/Build.h"
#include "compiler/ops/OnnxConversion.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mpc;

//===----------------------------------------------------------------------===//
// The operation
//===----------------------------------------------------------------------===//

// [..., rows, columns] after the transpose flag.
static std::pair<int64_t, int64_t> matrixOf(Value v, bool transposed) {
  int64_t rows = shapeOf(v).drop_back().back(), columns = shapeOf(v).back();
  return transposed ? std::pair(columns, rows) : std::pair(rows, columns);
}

LogicalResult MatmulOp::verify() {
  auto type = cast<RankedTensorType>(getType());
  ArrayRef<int64_t> lhs = shapeOf(getLhs()), rhs = shapeOf(getRhs()), out = type.getShape();
  Type element = elementType(getLhs());
  if (lhs.size() < 2 || rhs.size() != lhs.size() || out.size() != lhs.size())
    return emitOpError("needs operands and a result of one rank, 2 or more");
  if (!isa<FloatType>(element) || elementType(getRhs()) != element)
    return emitOpError("needs two operands of one floating-point type, has ")
           << element << " and " << elementType(getRhs());
  if (type.getElementType() != element && type.getElementType() != computeType(element))
    return emitOpError("makes ") << type.getElementType() << " of " << element
                                 << "; the result has the operands' type or f32";
  if (lhs.drop_back(2) != rhs.drop_back(2) || lhs.drop_back(2) != out.drop_back(2))
    return emitOpError("has leading dimensions that differ");
  auto [m, k] = matrixOf(getLhs(), getTransposeLhs());
  auto [k2, n] = matrixOf(getRhs(), getTransposeRhs());
  if (k != k2)
    return emitOpError("multiplies rows of ") << k << " with columns of " << k2 << " elements";
  if (out.drop_back().back() != m || out.back() != n)
    return emitOpError("makes a ") << m << "×" << n << " matrix, not " << type;
  if (getBias() &&
      (shapeOf(getBias()) != ArrayRef<int64_t>(n) || elementType(getBias()) != element))
    return emitOpError("needs a bias of ")
           << n << " elements of type " << element << ", not " << getBias().getType();
  return success();
}

int64_t MatmulOp::flops() {
  return 2 * tensorType(getResult()).getNumElements() *
         matrixOf(getLhs(), getTransposeLhs()).second;
}

namespace {
/// matmul(transpose(x), w) → matmul(x, w) {transpose_lhs}, where the transpose swaps the last two
/// dimensions only.
struct FoldTransposes : OpRewritePattern<MatmulOp> {
  using OpRewritePattern::OpRewritePattern;

  static Value swapped(Value operand) {
    auto transpose = operand.getDefiningOp<TransposeOp>();
    if (!transpose)
      return {};
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    int64_t rank = permutation.size();
    bool leading = llvm::equal(permutation.drop_back(2), llvm::seq<int64_t>(0, rank - 2));
    return leading && permutation[rank - 2] == rank - 1 ? transpose.getInput() : Value();
  }

  LogicalResult matchAndRewrite(MatmulOp op, PatternRewriter &rewriter) const override {
    Value lhs = swapped(op.getLhs()), rhs = swapped(op.getRhs());
    if (!lhs && !rhs)
      return rewriter.notifyMatchFailure(op, "no operand is transposed in its last two dimensions");
    rewriter.modifyOpInPlace(op, [&] {
      if (lhs) {
        op.getLhsMutable().assign(lhs);
        op.setTransposeLhs(!op.getTransposeLhs());
      }
      if (rhs) {
        op.getRhsMutable().assign(rhs);
        op.setTransposeRhs(!op.getTransposeRhs());
      }
    });
    return success();
  }
};
} // namespace

void MatmulOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<FoldTransposes>(context);
}

// [..., M, K] · [..., K, N].
static Value product(OpBuilder &b, Location loc, Value lhs, Value rhs, bool transposeLhs,
                     bool transposeRhs, Type element) {
  SmallVector<int64_t> shape(shapeOf(lhs).drop_back(2));
  shape.push_back(matrixOf(lhs, transposeLhs).first);
  shape.push_back(matrixOf(rhs, transposeRhs).second);
  return MatmulOp::create(b, loc, RankedTensorType::get(shape, element), lhs, rhs, Value(),
                          transposeLhs, transposeRhs, /*relu=*/false);
}

// C = op(A) · op(B), cotangent G of C:
//   op(A)' = G · op(B)ᵀ, so A' = G · op(B)ᵀ, or op(B) · Gᵀ where A is transposed
//   op(B)' = op(A)ᵀ · G, so B' = op(A)ᵀ · G, or Gᵀ · op(A) where B is transposed
//   bias'  = Σ G over all but the last dimension
// A gradient that is wanted in f32 comes from half operands without a rounding: the product
// accumulates in f32 anyway.
SmallVector<Value> MatmulOp::vjp(OpBuilder &b, ValueRange cotangents, ArrayRef<Type> wanted) {
  SmallVector<Value> gradients(getNumOperands());
  if (!cotangents[0])
    return gradients;
  Type operand = elementType(getLhs());
  Value g = castTo(b, getLoc(), cotangents[0], operand);
  auto resultType = [&](Type type) { return type == computeType(operand) ? type : operand; };
  bool tl = getTransposeLhs(), tr = getTransposeRhs();
  if (wanted[0]) {
    Value d = tl ? product(b, getLoc(), getRhs(), g, tr, true, resultType(wanted[0]))
                 : product(b, getLoc(), g, getRhs(), false, !tr, resultType(wanted[0]));
    gradients[0] = castTo(b, getLoc(), d, wanted[0]);
  }
  if (wanted[1]) {
    Value d = tr ? product(b, getLoc(), g, getLhs(), true, tl, resultType(wanted[1]))
                 : product(b, getLoc(), getLhs(), g, !tl, false, resultType(wanted[1]));
    gradients[1] = castTo(b, getLoc(), d, wanted[1]);
  }
  if (getBias() && wanted[2]) {
    SmallVector<int64_t> axes = llvm::to_vector(llvm::seq<int64_t>(0, shapeOf(g).size() - 1));
    Value sum = reduce(b, getLoc(), ReductionKind::sum, cotangents[0], axes,
                       computeType(elementType(cotangents[0])));
    gradients[2] = castTo(b, getLoc(), sum, wanted[2]);
  }
  return gradients;
}

//===----------------------------------------------------------------------===//
// MatMul
//===----------------------------------------------------------------------===//

static bool checkFloats(NodeContext &node, Value a, Value b) {
  if (isa<FloatType>(elementType(a)) && elementType(a) == elementType(b))
    return true;
  node.error() << "multiplies " << a.getType() << " and " << b.getType()
               << "; only floating-point products of one type are supported";
  return false;
}

// numpy's rules for operands of rank 2 or more.
static Value batchedProduct(NodeContext &node, Value a, Value b) {
  OpBuilder &builder = node.b;
  Location loc = node.loc;
  auto [m, k] = matrixOf(a, false);
  auto [k2, n] = matrixOf(b, false);
  std::optional<SmallVector<int64_t>> batch =
      broadcastShape(shapeOf(a).drop_back(2), shapeOf(b).drop_back(2));
  if (k != k2 || !batch) {
    node.error() << "cannot multiply " << a.getType() << " and " << b.getType();
    return {};
  }
  SmallVector<int64_t> result(*batch);
  result.append({m, n});
  // One matrix on the right for all on the left: [N, T, C] · [C, D] is [N·T, C] · [C, D].
  if (llvm::all_of(shapeOf(b).drop_back(2), [](int64_t size) { return size == 1; }) &&
      shapeOf(a).size() > 2 && shapeOf(b).size() <= shapeOf(a).size()) {
    int64_t rows = llvm::product_of(shapeOf(a).drop_back());
    Value y = product(builder, loc, reshape(builder, loc, a, {rows, k}),
                      reshape(builder, loc, b, {k, n}), false, false, elementType(a));
    return reshape(builder, loc, y, result);
  }
  SmallVector<int64_t> left(*batch), right(*batch);
  left.append({m, k});
  right.append({k, n});
  return product(builder, loc, broadcastTo(builder, loc, a, left),
                 broadcastTo(builder, loc, b, right), false, false, elementType(a));
}

// A 1-D operand is a row on the left and a column on the right; its dimension is not in the result.
static LogicalResult convertMatMul(NodeContext &node) {
  Value a = node.operand(0), b = node.operand(1);
  if (!a || !b || !checkFloats(node, a, b))
    return failure();
  bool row = shapeOf(a).size() == 1, column = shapeOf(b).size() == 1;
  if (shapeOf(a).empty() || shapeOf(b).empty())
    return node.error() << "needs operands of rank 1 or more";
  if (row)
    a = reshape(node.b, node.loc, a, {1, shapeOf(a)[0]});
  if (column)
    b = reshape(node.b, node.loc, b, {shapeOf(b)[0], 1});
  Value y = batchedProduct(node, a, b);
  if (!y)
    return failure();
  SmallVector<int64_t> shape(shapeOf(y));
  if (column)
    shape.pop_back();
  if (row)
    shape.erase(shape.end() - (column ? 1 : 2));
  return node.results({reshape(node.b, node.loc, y, shape)});
}

//===----------------------------------------------------------------------===//
// Gemm
//===----------------------------------------------------------------------===//

static Value scaled(NodeContext &node, Value v, double factor) {
  return factor == 1 ? v : mul(node.b, node.loc, v, node.splat(v.getType(), factor));
}

// One value per column of `columns`: what raise-patterns makes a product's bias.
static bool isBias(Value c, int64_t columns) {
  return !shapeOf(c).empty() && shapeOf(c).back() == columns &&
         tensorType(c).getNumElements() == columns;
}

// Y = alpha · op(A) · op(B) + beta · C, C broadcast to the result. The bias is added by an
// operation of its own, which raise-patterns moves into the product where it is one value per
// column.
static LogicalResult convertGemm(NodeContext &node) {
  Value a = node.operand(0), b = node.operand(1);
  if (!a || !b || !checkFloats(node, a, b))
    return failure();
  bool transposeA = node.intAttr("transA", 0), transposeB = node.intAttr("transB", 0);
  if (shapeOf(a).size() != 2 || shapeOf(b).size() != 2 ||
      matrixOf(a, transposeA).second != matrixOf(b, transposeB).first)
    return node.error() << "cannot multiply " << a.getType() << (transposeA ? " transposed" : "")
                        << " and " << b.getType() << (transposeB ? " transposed" : "");
  Type element = elementType(a);
  double alpha = node.floatAttr("alpha", 1), beta = node.floatAttr("beta", 1);
  Value c = node.has(2) && beta != 0 ? node.operand(2) : Value();
  // Of halves the product is f32 where something follows that no library call takes in.
  bool plain = alpha == 1 && (!c || (beta == 1 && isBias(c, matrixOf(b, transposeB).second)));
  Value y = product(node.b, node.loc, a, b, transposeA, transposeB,
                    plain ? element : computeType(element));
  y = scaled(node, y, alpha);
  if (c) {
    if (elementType(c) != element ||
        broadcastShape(shapeOf(c), shapeOf(y)) != SmallVector<int64_t>(shapeOf(y)))
      return node.error() << "C of type " << c.getType() << " does not broadcast to "
                          << y.getType();
    c = scaled(node, castTo(node.b, node.loc, c, elementType(y)), beta);
    y = add(node.b, node.loc, y, broadcastTo(node.b, node.loc, c, shapeOf(y)));
  }
  return node.results({castTo(node.b, node.loc, y, element)});
}

namespace mpc {
void registerEinsumHandlers(OnnxRegistry &r); // Einsum.cpp
}

void mpc::registerLinearHandlers(OnnxRegistry &r) {
  r.add("MatMul", {1, 9, 13}, convertMatMul);
  r.add("Gemm", {1, 6, 7, 9, 11, 13}, convertGemm);
  registerEinsumHandlers(r);
}
