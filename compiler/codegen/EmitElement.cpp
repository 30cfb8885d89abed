//===- EmitElement.cpp - an element of a kernel's value ---------------------------===//
//
// Elementwise operations become the same operation on scalars; everything else maps the
// index.
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/Emitter.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace mpc {

Value Emitter::emit(Value tensor, const Affine &at) {
  if (resolve)
    if (Value value = resolve(tensor, at))
      return value;
  unsigned id = interned.try_emplace(at, interned.size()).first->second;
  auto known = elements.find({tensor, id});
  if (known != elements.end())
    return known->second;
  Value value = emitOperation(tensor, at);
  elements[{tensor, id}] = value;
  return value;
}

Value Emitter::emitted(Value tensor, const Affine &at) const {
  auto id = interned.find(at);
  return id == interned.end() ? Value() : elements.lookup({tensor, id->second});
}

/// True if every element of `value` is a number of the narrower type `half`: one of its values, or
/// chosen among such.
static bool isExact(Value value, Type half, int depth = 4) {
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0)
    return false;
  auto operandsFrom = [&](unsigned first) {
    return llvm::all_of(op->getOperands().drop_front(first),
                        [&](Value operand) { return isExact(operand, half, depth - 1); });
  };
  FloatAttr splat;
  DenseFPElementsAttr dense;
  if (matchPattern(value, m_Constant(&dense)) && dense.isSplat())
    splat = dense.getSplatValue<FloatAttr>();
  if (splat || matchPattern(value, m_Constant(&splat))) {
    APFloat number = splat.getValue();
    bool loses = true;
    number.convert(cast<FloatType>(half).getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
    return !loses;
  }
  if (auto widened = dyn_cast<arith::ExtFOp>(op))
    return getElementTypeOrSelf(widened.getIn().getType()) == half;
  if (isa<arith::MaximumFOp, arith::MinimumFOp, arith::NegFOp, math::AbsFOp>(op) || isView(op))
    return operandsFrom(0);
  return isa<arith::SelectOp>(op) && operandsFrom(1);
}

Value Emitter::emitOperation(Value tensor, const Affine &at) {
  Type element = getElementTypeOrSelf(tensor.getType());
  if (auto argument = dyn_cast<BlockArgument>(tensor))
    return load(arguments[argument.getArgNumber()], element, at);
  Operation *op = tensor.getDefiningOp();
  if (isView(op))
    return emit(op->getOperand(0), viewedIndex(*this, op, at));
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](arith::ConstantOp op) { return emitConstant(op); })
      .Case([&](math::PowFOp op) { return emitPower(op, at); })
      .Case([&](arith::ExtFOp op) {
        // A rounding that changes nothing, as of a ReLU of rounded values.
        auto rounded = op.getIn().getDefiningOp<arith::TruncFOp>();
        if (rounded && rounded.getIn().getType() == op.getType() &&
            isExact(rounded.getIn(), getElementTypeOrSelf(rounded.getType())))
          return emit(rounded.getIn(), at);
        return emitElementwise(op, at);
      })
      .Case([&](PadOp op) { return emitPad(op, at); })
      .Case([&](ConcatOp op) { return emitConcat(op, at); })
      .Case([&](GatherOp op) { return emitGather(op, at); })
      .Case([&](IotaOp op) { return emitIota(op, at); })
      .Case([&](RandomUniformOp op) { return emitRandom(op, at); })
      .Case([&](MaxPoolOp op) { return emitMaxPool(op, tensor, at); })
      .Case([&](MaxPoolGradOp op) { return emitMaxPoolGrad(op, at); })
      .Case([&](AveragePoolOp op) { return emitAveragePool(op, at); })
      .Case([&](AveragePoolGradOp op) { return emitAveragePoolGrad(op, at); })
      .Default([&](Operation *op) -> Value {
        if (op->getDialect() && (isa<arith::ArithDialect>(op->getDialect()) ||
                                 isa<math::MathDialect>(op->getDialect())))
          return emitElementwise(op, at);
        fail(op, "is not possible at this place of a kernel of kind " +
                     stringifyKernelKind(getKernelAttr(kernel).getKind()));
        return LLVM::PoisonOp::create(this->at(0), loc, element);
      });
}

Value Emitter::emitConstant(arith::ConstantOp op) {
  TypedAttr value = op.getValue();
  if (auto dense = dyn_cast<DenseElementsAttr>(value)) {
    if (!dense.isSplat()) {
      fail(op, "of different elements must be an argument of the kernel");
      return LLVM::PoisonOp::create(at(0), loc, dense.getElementType());
    }
    value = dense.getSplatValue<TypedAttr>();
  }
  return arith::ConstantOp::create(at(0), loc, value);
}

/// Whether sums of a reduction are all that reads a value.
static bool isOnlySummed(Value tensor) {
  return llvm::all_of(tensor.getUsers(), [](Operation *user) {
    if (auto reduce = dyn_cast<ReduceOp>(user))
      return reduce.getKind() == ReductionKind::sum;
    return isView(user) && isOnlySummed(user->getResult(0));
  });
}

/// A product may become one operation with the sum of a reduction. With what adds it element by
/// element it is one already, where it may be (fuse-multiply-add).
static void allowContraction(arith::MulFOp product, Value tensor) {
  if (isOnlySummed(tensor))
    product.setFastmath(product.getFastmath() | arith::FastMathFlags::contract);
}

Value Emitter::emitElementwise(Operation *op, const Affine &at) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(emit(operand, at));
  OperationState state(loc, op->getName());
  state.addOperands(operands);
  for (Type type : op->getResultTypes())
    state.addTypes(getElementTypeOrSelf(type));
  for (NamedAttribute attribute : op->getAttrs())
    if (!attribute.getName().getValue().starts_with("mpc."))
      state.attributes.append(attribute);
  Operation *scalar = this->at(depth(at)).create(state);
  if (auto product = dyn_cast<arith::MulFOp>(scalar))
    allowContraction(product, op->getResult(0));
  if (op->getNumResults() == 1)
    return scalar->getResult(0);
  fail(op, "has several results");
  return scalar->getResult(0);
}

/// Powers that exporters write for squares, roots and reciprocals: a few instructions instead of a
/// call per element.
Value Emitter::emitPower(math::PowFOp op, const Affine &at) {
  FloatAttr splat;
  DenseFPElementsAttr dense;
  if (!matchPattern(op.getRhs(), m_Constant(&dense)) || !dense.isSplat()) {
    if (!matchPattern(op.getRhs(), m_Constant(&splat)))
      return emitElementwise(op, at);
  } else {
    splat = dense.getSplatValue<FloatAttr>();
  }
  double exponent = splat.getValueAsDouble();
  Value x = emit(op.getLhs(), at);
  OpBuilder &b = this->at(depth(at));
  Type type = x.getType();
  auto constant = [&](double value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
  };
  if (exponent == 1)
    return x;
  if (exponent == 2)
    return arith::MulFOp::create(b, loc, x, x);
  if (exponent == 3)
    return arith::MulFOp::create(b, loc, arith::MulFOp::create(b, loc, x, x), x);
  if (exponent == -1)
    return arith::DivFOp::create(b, loc, constant(1), x);
  if (exponent == 0.5 || exponent == -0.5) {
    // pow(-0, ½) is +0 and pow(-∞, ½) is +∞, unlike the root.
    Value root = math::SqrtOp::create(b, loc, arith::AddFOp::create(b, loc, x, constant(0)));
    Value infinity = constant(INFINITY);
    Value isLow = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, x, constant(-INFINITY));
    root = arith::SelectOp::create(b, loc, isLow, infinity, root);
    return exponent > 0 ? root : arith::DivFOp::create(b, loc, constant(1), root);
  }
  return emitElementwise(op, at);
}

Value Emitter::convert(Value scalar, Type type, unsigned depth) {
  auto from = dyn_cast<FloatType>(scalar.getType()), to = dyn_cast<FloatType>(type);
  if (!from || !to || from == to)
    return scalar;
  if (from.getWidth() < to.getWidth())
    return arith::ExtFOp::create(at(depth), loc, to, scalar);
  return arith::TruncFOp::create(at(depth), loc, to, scalar);
}

Value Emitter::emitPad(PadOp op, const Affine &at) {
  ArrayRef<int64_t> shape = tensorShape(op.getResult()), input = tensorShape(op.getInput());
  SmallVector<Affine> indices = split(at, shape);
  Value valid;
  unsigned validDepth = 0;
  auto require = [&](Value condition, unsigned depth) {
    if (!condition)
      return;
    validDepth = std::max(validDepth, depth);
    valid = both(valid, condition, validDepth);
  };
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!op.getLow()[d] && !op.getHigh()[d] && !op.getInterior()[d])
      continue;
    indices[d] = indices[d] + Affine(-op.getLow()[d]);
    if (int64_t gap = op.getInterior()[d]) {
      auto [quotient, rest] = divide(indices[d], gap + 1);
      require(inside(rest, 1), depth(rest));
      indices[d] = quotient;
    }
    require(inside(indices[d], input[d]), depth(indices[d]));
  }
  if (!valid)
    return emit(op.getInput(), join(indices, input));

  Value padding = emit(op.getValue(), Affine(0));
  unsigned here = depth(at);
  // Where the innermost loop runs across the border, it is masked; a border in an outer dimension
  // only moves the index.
  if (validDepth == here)
    return branch(
        valid, here, padding.getType(),
        [&](unsigned inner) {
          for (size_t d = 0; d < shape.size(); ++d)
            indices[d] = known(indices[d], input[d], inner);
          return emit(op.getInput(), join(indices, input));
        },
        [&](unsigned) { return padding; });
  for (size_t d = 0; d < shape.size(); ++d)
    indices[d] = clamped(indices[d], input[d]);
  Value element = emit(op.getInput(), join(indices, input));
  return arith::SelectOp::create(this->at(here), loc, valid, element, padding);
}

Value Emitter::emitConcat(ConcatOp op, const Affine &at) {
  int64_t axis = op.getAxis();
  SmallVector<Affine> indices = split(at, aroundAxis(tensorShape(op.getResult()), axis));
  Type type = getElementTypeOrSelf(op.getType());
  std::function<Value(unsigned, int64_t, unsigned)> pick = [&](unsigned input, int64_t offset,
                                                               unsigned depth) -> Value {
    Value tensor = op.getInputs()[input];
    SmallVector<int64_t, 3> shape = aroundAxis(tensorShape(tensor), axis);
    Affine along = indices[1] + Affine(-offset);
    auto [low, high] = range(along);
    auto here = [&](unsigned depth) {
      return emit(tensor, join({indices[0], known(along, shape[1], depth), indices[2]}, shape));
    };
    if (input + 1 == op.getInputs().size() || high < shape[1])
      return here(depth);
    if (low >= shape[1])
      return pick(input + 1, offset + shape[1], depth);
    Value position = index(along), limit = constant(shape[1]);
    Value isHere = arith::CmpIOp::create(this->at(this->depth(along)), loc,
                                         arith::CmpIPredicate::slt, position, limit);
    return branch(isHere, depth, type, here,
                  [&](unsigned inner) { return pick(input + 1, offset + shape[1], inner); });
  };
  return pick(0, 0, depth(at));
}

Value Emitter::emitGather(GatherOp op, const Affine &at) {
  SmallVector<int64_t, 3> input = aroundAxis(tensorShape(op.getInput()), op.getAxis());
  int64_t count = elementsOf(tensorShape(op.getIndices()));
  SmallVector<Affine> indices = split(at, {input[0], count, input[2]});
  auto [entry, isNew] = gathered.try_emplace({op, indices[1]});
  if (isNew) {
    Value position = emit(op.getIndices(), indices[1]);
    unsigned depth = this->depth(indices[1]);
    Value low = constant(0), high = constant(input[1] - 1);
    OpBuilder &b = this->at(depth);
    if (!position.getType().isInteger(64))
      position = arith::ExtSIOp::create(b, loc, b.getI64Type(), position);
    position = arith::MinSIOp::create(b, loc, arith::MaxSIOp::create(b, loc, position, low), high);
    entry->second = addBase(0, input[1] - 1, depth, 0, position);
  }
  return emit(op.getInput(), join({indices[0], entry->second, indices[2]}, input));
}

Value Emitter::emitIota(IotaOp op, const Affine &at) {
  Affine along = split(at, aroundAxis(tensorShape(op.getResult()), op.getAxis()))[1];
  Value value = index(along);
  Type type = getElementTypeOrSelf(op.getType());
  return type.isInteger(64) ? value
                            : arith::TruncIOp::create(this->at(depth(along)), loc, type, value);
}

//===----------------------------------------------------------------------------===//
// Philox4x32-10
//===----------------------------------------------------------------------------===//

namespace {
/// 32-bit words: (counter[0..3], key[0..1]) → four words; ten rounds of
///   (c0, c1, c2, c3) ← (high(M1·c2) ^ c1 ^ k0, low(M1·c2), high(M0·c0) ^ c3 ^ k1, low(M0·c0)),  k
///   += W.
struct Philox {
  OpBuilder &b;
  Location loc;
  Value word(uint32_t value) const {
    return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(value)));
  }
  Value exclusive(Value x, Value y) const { return arith::XOrIOp::create(b, loc, x, y); }

  std::pair<Value, Value> multiply(uint32_t factor, Value x) const { // low, high
    Value wide = arith::ExtUIOp::create(b, loc, b.getI64Type(), x);
    Value by = arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(factor));
    Value product = arith::MulIOp::create(b, loc, wide, by);
    Value bits = arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(32));
    Value high = arith::ShRUIOp::create(b, loc, product, bits);
    return {arith::TruncIOp::create(b, loc, b.getI32Type(), product),
            arith::TruncIOp::create(b, loc, b.getI32Type(), high)};
  }

  SmallVector<Value> block(std::array<Value, 4> c, std::array<Value, 2> k) const {
    for (int round = 0; round < 10; ++round) {
      if (round) {
        k[0] = arith::AddIOp::create(b, loc, k[0], word(0x9E3779B9));
        k[1] = arith::AddIOp::create(b, loc, k[1], word(0xBB67AE85));
      }
      auto [low0, high0] = multiply(0xD2511F53, c[0]);
      auto [low1, high1] = multiply(0xCD9E8D57, c[2]);
      c = {exclusive(exclusive(high1, c[1]), k[0]), low1, exclusive(exclusive(high0, c[3]), k[1]),
           low0};
    }
    return SmallVector<Value>(c.begin(), c.end());
  }
};
} // namespace

ArrayRef<Value> Emitter::randomWords(const RandomStream &stream, const Affine &counter) {
  SmallVector<Value> &words = blocks[{stream, counter}];
  if (!words.empty())
    return words;
  Value count = index(counter);
  OpBuilder &b = this->at(depth(counter));
  Philox philox{b, loc};
  auto low = [&](Value wide) -> Value {
    return arith::TruncIOp::create(b, loc, b.getI32Type(), wide);
  };
  auto high = [&](Value wide) -> Value {
    Value bits = arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(32));
    return low(arith::ShRUIOp::create(b, loc, wide, bits));
  };
  bool isShort = within(counter, 0, int64_t(1) << 32);
  Value key0 = philox.exclusive(low(stream.run), low(stream.seed));
  words = philox.block(
      {low(count), isShort ? philox.word(0) : high(count), low(stream.micro), high(stream.micro)},
      {key0, low(stream.operatorId)});
  return words;
}

Value Emitter::randomWord(const RandomStream &stream, const Affine &at) {
  auto [counter, which] = divide(at, 4);
  return oneOf(randomWords(stream, counter), which, depth(at));
}

Value Emitter::oneOf(ArrayRef<Value> words, const Affine &which, unsigned depth) {
  if (which.isConstant())
    return words[which.constant];
  Value number = index(which);
  Value one = constant(1), two = constant(2);
  OpBuilder &b = at(depth);
  Value isOdd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                      arith::AndIOp::create(b, loc, number, one), one);
  Value isUpper = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::uge, number, two);
  Value lower = arith::SelectOp::create(b, loc, isOdd, words[1], words[0]);
  Value upper = arith::SelectOp::create(b, loc, isOdd, words[3], words[2]);
  return arith::SelectOp::create(b, loc, isUpper, upper, lower);
}

Value Emitter::emitRandom(RandomUniformOp op, const Affine &at) {
  Value run = emit(op.getState(), Affine(0)), micro = emit(op.getState(), Affine(1));
  Value word = randomWord({run, micro, constant(op.getOperatorId()), constant(op.getSeed())}, at);
  unsigned depth = this->depth(at);
  // (word >> 8) · 2^-24: exact in f32.
  OpBuilder &b = this->at(depth);
  Value bits = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(8));
  Value mantissa = arith::ShRUIOp::create(b, loc, word, bits);
  Type type = getElementTypeOrSelf(op.getType());
  Type computed = type.isF64() ? type : b.getF32Type();
  Value uniform = arith::SIToFPOp::create(b, loc, computed, mantissa);
  Value unit = arith::ConstantOp::create(b, loc, b.getFloatAttr(computed, 0x1p-24));
  return convert(arith::MulFOp::create(b, loc, uniform, unit), type, depth);
}

} // namespace mpc
