//===- Emitter.cpp - functions, scopes, indices and memory of generated code ------===//

#include "compiler/codegen/Emitter.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace mpc {

Emitter::Emitter(func::FuncOp kernel)
    : kernel(kernel), loc(kernel.getLoc()), builder(kernel.getContext()) {
  builder.setInsertionPoint(kernel);
}

void Emitter::enter(Block *block, unsigned first) {
  ArrayRef<int64_t> aliases = getKernelAttr(kernel).getAliases().asArrayRef();
  scopes.push_back({block, nullptr});
  for (unsigned i = 0; i < kernel.getNumArguments(); ++i)
    arguments.push_back(block->getArgument(first++));
  for (unsigned i = 0; i < kernel.getNumResults(); ++i)
    results.push_back(aliases[i] < 0 ? block->getArgument(first++) : arguments[aliases[i]]);
  if (first < block->getNumArguments())
    scratch = block->getArgument(first);
}

Emitter::Emitter(func::FuncOp kernel, StringRef name) : Emitter(kernel) {
  Type i64 = builder.getI64Type(), pointer = LLVM::LLVMPointerType::get(builder.getContext());

  // The body has one pointer per distinct buffer, so that all of them are noalias.
  SmallVector<KernelBuffer> buffers = distinctBuffers(kernel, scratchBytes(kernel));
  SmallVector<Type> types{i64, i64};
  types.append(buffers.size(), pointer);
  auto body = func::FuncOp::create(builder, loc, (name + ".body").str(),
                                   builder.getFunctionType(types, {}));
  body.setPrivate();
  for (auto [i, buffer] : llvm::enumerate(buffers)) {
    body.setArgAttr(i + 2, "llvm.noalias", builder.getUnitAttr());
    body.setArgAttr(i + 2, "llvm.noundef", builder.getUnitAttr());
    body.setArgAttr(i + 2, "llvm.align", builder.getI64IntegerAttr(kPlanAlignment));
    if (buffer.bytes > 0)
      body.setArgAttr(i + 2, "llvm.dereferenceable", builder.getI64IntegerAttr(buffer.bytes));
  }
  auto outer =
      func::FuncOp::create(builder, loc, name, builder.getFunctionType({i64, i64, pointer}, {}));

  // NAME: an empty range does nothing; else loads the pointers and calls NAME.body.
  Block *entry = outer.addEntryBlock();
  builder.setInsertionPointToEnd(entry);
  Value nonEmpty = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt,
                                         entry->getArgument(0), entry->getArgument(1));
  auto guard = scf::IfOp::create(builder, loc, nonEmpty, /*withElseRegion=*/false);
  func::ReturnOp::create(builder, loc);
  builder.setInsertionPointToStart(guard.thenBlock());
  SmallVector<Value> operands{entry->getArgument(0), entry->getArgument(1)};
  for (const KernelBuffer &buffer : buffers) {
    Value slot = LLVM::GEPOp::create(builder, loc, pointer, pointer, entry->getArgument(2),
                                     ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(buffer.position)},
                                     LLVM::GEPNoWrapFlags::inbounds);
    operands.push_back(LLVM::LoadOp::create(builder, loc, pointer, slot));
  }
  func::CallOp::create(builder, loc, body, operands);

  Block *block = body.addEntryBlock();
  begin = block->getArgument(0);
  end = block->getArgument(1);
  enter(block, 2);
}

LogicalResult Emitter::finish() {
  func::ReturnOp::create(at(0), loc);
  return failure(failed);
}

void Emitter::fail(Operation *op, const Twine &why) {
  if (!failed)
    op->emitError("code generation of kernel '")
        << kernel.getName() << "': " << op->getName() << " " << why;
  failed = true;
}

OpBuilder &Emitter::at(unsigned depth) {
  const Scope &scope = scopes[depth];
  if (scope.child)
    builder.setInsertionPoint(scope.child);
  else
    builder.setInsertionPointToEnd(scope.block);
  return builder;
}

/// Runs fn with the block as the scope inside `parent`; the scopes inside `parent` so far come back
/// afterwards.
template <typename Fn>
auto Emitter::inScope(unsigned parent, Operation *child, Block *block, Fn fn) {
  SmallVector<Scope> inner(scopes.begin() + parent + 1, scopes.end());
  scopes.truncate(parent + 1);
  Operation *outerChild = std::exchange(scopes.back().child, child);
  scopes.push_back({block, nullptr});
  auto result = fn();
  scopes.truncate(parent + 1);
  scopes.back().child = outerChild;
  scopes.append(inner.begin(), inner.end());
  return result;
}

static constexpr int64_t kShortestVectorLoop = 16, kLongestUnrolled = 128;

/// True if what an innermost loop carries may be summed in any order.
static bool reorders(scf::ForOp loop) {
  return llvm::all_of(loop.getBody()->getTerminator()->getOperands(), [](Value next) {
    auto fast = next.getDefiningOp<arith::ArithFastMathInterface>();
    return fast && arith::bitEnumContainsAny(fast.getFastMathFlagsAttr().getValue(),
                                             arith::FastMathFlags::reassoc);
  });
}

static bool roundsToBf16(scf::ForOp loop) {
  return loop
      .walk([](arith::TruncFOp op) {
        return op.getType().isBF16() ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// `isKept`: not unrolled.
static void setAnnotation(scf::ForOp loop, bool isKept, LLVM::LoopVectorizeAttr vectorize) {
  MLIRContext *context = loop.getContext();
  LLVM::LoopUnrollAttr unroll;
  if (isKept)
    unroll =
        LLVM::LoopUnrollAttr::get(context, BoolAttr::get(context, true), {}, {}, {}, {}, {}, {});
  loop->setAttr("loop_annotation",
                LLVM::LoopAnnotationAttr::get(context, {}, vectorize, {}, unroll, {}, {}, {}, {},
                                              {}, {}, {}, {}, {}, {}, {}));
}

/// What LLVM has to be told about an innermost loop. It unrolls a short one before its vectorizer
/// sees it, and then vectorizes the loop around it, by gathers: keep it a loop. And it thinks that
/// rounding to bf16 is dearer the more elements are rounded at once, though it is one instruction:
/// say how many.
void Emitter::annotate(scf::ForOp loop, int64_t extent, bool isRegular) {
  if (extent < kShortestVectorLoop || !loop.getBody()->getOps<scf::ForOp>().empty())
    return;
  LLVM::LoopVectorizeAttr vectorize;
  auto width = kernel->getAttrOfType<IntegerAttr>(kBf16WidthAttr);
  if (width && isRegular && reorders(loop) && roundsToBf16(loop))
    vectorize = LLVM::LoopVectorizeAttr::get(
        loop.getContext(), BoolAttr::get(loop.getContext(), false), {}, {}, width, {}, {}, {});
  bool isKept = extent <= kLongestUnrolled;
  if (isKept || vectorize)
    setAnnotation(loop, isKept, vectorize);
}

void Emitter::keepLoop(Value carried) {
  if (auto loop = carried.getDefiningOp<scf::ForOp>())
    setAnnotation(loop, /*isKept=*/true, {});
}

SmallVector<Value> Emitter::loop(Value low, Value high, int64_t step, int64_t min, int64_t max,
                                 int64_t unit, ValueRange inits, LoopBody body) {
  Value stepValue = constant(step);
  SmallVector<Value> carried(inits);
  auto loop = scf::ForOp::create(here(), loc, low, high, stepValue, carried);
  Block *block = loop.getBody();
  if (!block->empty())
    block->back().erase();
  unsigned parent = depth();
  return inScope(parent, loop, block, [&]() {
    Affine i = addBase(min, max, parent + 1, unit, loop.getInductionVar());
    auto outer = std::exchange(loopBase, i.isConstant() ? std::nullopt
                                                        : std::optional(i.terms.front().first));
    unsigned before = scattered;
    SmallVector<Value> next = body(i, loop.getRegionIterArgs());
    scf::YieldOp::create(at(parent + 1), loc, next);
    loopBase = outer;
    annotate(loop, max - min + 1, step == 1 && scattered == before);
    return SmallVector<Value>(loop.getResults());
  });
}

SmallVector<Value> Emitter::loop(int64_t extent, int64_t unit, ValueRange inits, LoopBody body) {
  if (extent == 1)
    return body(Affine(0), inits);
  return loop(constant(0), constant(extent), 1, 0, extent - 1, unit, inits, body);
}

void Emitter::rangeLoop(int64_t extent, int64_t unit,
                        llvm::function_ref<void(const Affine &)> body) {
  if (extent == 1)
    return body(Affine(0)); // NAME does not call the body for an empty range
  loop(begin, end, 1, 0, extent - 1, unit, {}, [&](const Affine &i, ValueRange) {
    body(i);
    return SmallVector<Value>();
  });
}

void Emitter::guarded(Value condition, llvm::function_ref<void()> body) {
  if (!condition)
    return body();
  auto op = scf::IfOp::create(here(), loc, condition, /*withElseRegion=*/false);
  Block *block = op.thenBlock();
  block->back().erase();
  unsigned parent = depth();
  inScope(parent, op, block, [&]() {
    body();
    scf::YieldOp::create(at(parent + 1), loc);
    return Value();
  });
}

Value Emitter::branch(Value condition, unsigned parent, Type type, Branch then, Branch otherwise) {
  auto op = scf::IfOp::create(at(parent), loc, TypeRange{type}, condition, /*withElseRegion=*/true);
  for (bool first : {true, false}) {
    Block *block = first ? op.thenBlock() : op.elseBlock();
    if (!block->empty())
      block->back().erase();
    inScope(parent, op, block, [&]() {
      Value value = first ? then(parent + 1) : otherwise(parent + 1);
      scf::YieldOp::create(at(parent + 1), loc, value);
      return value;
    });
  }
  return op.getResult(0);
}

//===----------------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------------===//

static Value add(OpBuilder &b, Location loc, Value x, Value y) {
  return arith::AddIOp::create(b, loc, x, y, arith::IntegerOverflowFlags::nsw);
}

Value Emitter::index(const Affine &index) {
  if (auto known = indexValues.find(index); known != indexValues.end())
    return known->second;
  Value value;
  if (index.isConstant()) {
    builder.setInsertionPointToStart(scopes[0].block);
    value = arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(index.constant));
    return indexValues[index] = value;
  }
  // The part that belongs to outer scopes is summed there, and shared.
  unsigned deepest = depth(index);
  Affine outer(index.constant);
  for (auto term : index.terms)
    if (base(term.first).depth < deepest)
      outer.terms.push_back(term);
  if (!(outer == Affine(0)))
    value = this->index(outer);
  for (auto [id, c] : index.terms) {
    if (base(id).depth < deepest)
      continue;
    Value term = base(id).value;
    if (c != 1) {
      Value factor = constant(c);
      term =
          arith::MulIOp::create(at(deepest), loc, term, factor, arith::IntegerOverflowFlags::nsw);
    }
    value = value ? add(at(deepest), loc, value, term) : term;
  }
  return indexValues[index] = value;
}

std::pair<Value, Value> Emitter::divideValues(const Affine &index, int64_t divisor) {
  Value value = this->index(index), by = constant(divisor);
  OpBuilder &b = at(depth(index));
  Value quotient = arith::DivUIOp::create(b, loc, value, by);
  return {quotient, arith::RemUIOp::create(b, loc, value, by)};
}

Value Emitter::inside(const Affine &index, int64_t size) {
  if (within(index, 0, size))
    return {};
  Value value = this->index(index), limit = constant(size);
  return arith::CmpIOp::create(at(depth(index)), loc, arith::CmpIPredicate::ult, value,
                               limit); // negative is large
}

Affine Emitter::clamped(const Affine &index, int64_t size) {
  if (within(index, 0, size))
    return index;
  auto [entry, isNew] = clampedIndices.try_emplace({index, size});
  if (isNew) {
    Value value = this->index(index), low = constant(0), high = constant(size - 1);
    OpBuilder &b = at(depth(index));
    value = arith::MinSIOp::create(b, loc, arith::MaxSIOp::create(b, loc, value, low), high);
    entry->second = addBase(0, size - 1, depth(index), 0, value);
  }
  return entry->second;
}

Affine Emitter::known(const Affine &index, int64_t size, unsigned depth) {
  if (within(index, 0, size))
    return index;
  return addBase(0, size - 1, depth, 0, this->index(index));
}

//===----------------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------------===//

static Type storedType(Type element) {
  return element.isInteger(1) ? IntegerType::get(element.getContext(), 8) : element;
}

static Value address(OpBuilder &b, Location loc, Value pointer, Type element, Value index) {
  return LLVM::GEPOp::create(b, loc, pointer.getType(), storedType(element), pointer,
                             ArrayRef<LLVM::GEPArg>{index}, LLVM::GEPNoWrapFlags::inbounds);
}

/// Along the innermost loop, elements of memory should follow each other, or be one.
void Emitter::noteAccess(const Affine &index) {
  if (!loopBase)
    return;
  for (auto [id, c] : index.terms)
    if (base(id).depth >= base(*loopBase).depth && (id != *loopBase || c != 1)) {
      ++scattered;
      return;
    }
}

Value Emitter::load(Value pointer, Type element, const Affine &index, unsigned depth) {
  noteAccess(index);
  Value offset = this->index(index);
  OpBuilder &b = at(depth);
  Value value = LLVM::LoadOp::create(
      b, loc, storedType(element), address(b, loc, pointer, element, offset), storedBytes(element));
  if (element.isInteger(1))
    value = arith::TruncIOp::create(b, loc, element, value);
  return value;
}

void Emitter::store(Value pointer, Value scalar, const Affine &index) {
  noteAccess(index);
  Value offset = this->index(index);
  OpBuilder &b = here();
  Value to = address(b, loc, pointer, scalar.getType(), offset);
  Type element = scalar.getType();
  if (element.isInteger(1))
    scalar = arith::ExtUIOp::create(b, loc, storedType(element), scalar);
  LLVM::StoreOp::create(b, loc, scalar, to, storedBytes(element));
}

Value Emitter::array(Type element, int64_t count) {
  Value size = constant(count);
  OpBuilder &b = at(0);
  return LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()),
                                storedType(element), size, 64);
}

} // namespace mpc
