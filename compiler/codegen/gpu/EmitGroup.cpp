//===- EmitGroup.cpp - the code of a group of equal kernels ----------------------------===//
//
// As the code of one kernel, but that a block first finds its member, and that the number of
// elements is a value. Memory is read 16 bytes at a time as long as that many elements are left;
// what does not fill an access at a member's end is taken element by element.
//
//===----------------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/GpuEmitter.h"
#include "compiler/codegen/gpu/Group.h"
#include "compiler/codegen/gpu/Uniform.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/BitVector.h"

using namespace mlir;

namespace mpc::gpu {

namespace {
constexpr int64_t kWarps = kBlockThreads / kWarp;
/// What a group's grid has at most.
constexpr int64_t kMostBlocks = (int64_t(1) << 31) - 1;
constexpr unsigned kGlobalSpace = 1;

class GroupEmitter : public GpuEmitter {
public:
  GroupEmitter(func::FuncOp kernel, Function &function, const GroupLayout &layout);

  /// Finds the block's member by the table's first blocks; `local` is the block among the
  /// member's.
  void findMember();
  /// Or takes the one of the block's number.
  void takeMember();
  LogicalResult finishGroup();

  /// Word i of the member's record, as i64.
  Value word(int64_t i);
  Affine local;
  OpBuilder &b() { return here(); }
  Value add(Value x, Value y) {
    return arith::AddIOp::create(b(), loc, x, y, arith::IntegerOverflowFlags::nsw);
  }
  Value times(Value x, int64_t factor) {
    Value by = constant(factor);
    return arith::MulIOp::create(b(), loc, x, by, arith::IntegerOverflowFlags::nsw);
  }
  Value over(Value x, int64_t divisor) {
    Value by = constant(divisor);
    return arith::DivUIOp::create(b(), loc, x, by);
  }

private:
  static Function &withAllBlocks(Function &function) {
    function.grid = kMostBlocks;
    return function;
  }
  Value field(Value member, int64_t i);
  void loadPointers();

  const GroupLayout &layout;
  Value table, member; ///< member: i32
  Type recordType, tableType;
  SmallVector<KernelBuffer> buffers;
};
} // namespace

/// The function has all of the kernel's pointers until finishGroup(), which takes away those that
/// the table holds.
GroupEmitter::GroupEmitter(func::FuncOp kernel, Function &function, const GroupLayout &layout)
    : GpuEmitter(kernel, withAllBlocks(function), layout.scratchBytes()), layout(layout),
      buffers(distinctBuffers(kernel, layout.scratchBytes())) {
  MLIRContext *context = kernel.getContext();
  SmallVector<Type> fields(layout.own.size(), LLVM::LLVMPointerType::get(context, kGlobalSpace));
  fields.append(layout.words(), IntegerType::get(context, 32));
  recordType = LLVM::LLVMStructType::getLiteral(context, fields);
  tableType = LLVM::LLVMArrayType::get(recordType, layout.members);
  Builder types(context);
  auto attributes = types.getDictionaryAttr(
      {types.getNamedAttr(LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(tableType)),
       types.getNamedAttr(LLVM::LLVMDialect::getAlignAttrName(), types.getI64IntegerAttr(8))});
  (void)outer.insertArgument(outer.getNumArguments(), LLVM::LLVMPointerType::get(context),
                             attributes, loc);
  table = outer.getArguments().back();
}

Value GroupEmitter::field(Value member, int64_t i) {
  Type type = cast<LLVM::LLVMStructType>(recordType).getBody()[i];
  Value address =
      LLVM::GEPOp::create(b(), loc, table.getType(), tableType, table,
                          ArrayRef<LLVM::GEPArg>{0, LLVM::GEPArg(member), static_cast<int32_t>(i)},
                          LLVM::GEPNoWrapFlags::inbounds);
  return LLVM::LoadOp::create(b(), loc, type, address);
}

Value GroupEmitter::word(int64_t i) {
  Value value = field(member, layout.own.size() + i);
  return arith::ExtUIOp::create(b(), loc, b().getI64Type(), value);
}

void GroupEmitter::loadPointers() {
  Type generic = LLVM::LLVMPointerType::get(b().getContext());
  unsigned known = 0;
  auto pointerOf = [&](unsigned i, Value otherwise) -> Value {
    if (!llvm::is_contained(layout.own, static_cast<int64_t>(i)))
      return otherwise;
    Value global = field(member, known++);
    Value pointer = LLVM::AddrSpaceCastOp::create(b(), loc, generic, global);
    if (buffers[i].bytes >= kPlanAlignment) {
      Value yes = arith::ConstantOp::create(b(), loc, b().getBoolAttr(true));
      Value alignment = constant(kPlanAlignment);
      LLVM::AssumeOp::create(b(), loc, yes, LLVM::AssumeAlignTag(), pointer, alignment);
    }
    return pointer;
  };
  ArrayRef<int64_t> aliases = getKernelAttr(kernel).getAliases().asArrayRef();
  unsigned next = 0;
  for (Value &argument : arguments) {
    argument = pointerOf(next, argument);
    ++next;
  }
  for (auto [i, result] : llvm::enumerate(results)) {
    if (aliases[i] >= 0) {
      result = arguments[aliases[i]];
      continue;
    }
    result = pointerOf(next, result);
    ++next;
  }
  scratch = layout.scratchBytes() ? pointerOf(next, scratch) : Value();
}

//   member = the last one whose first block is not behind this one: of `count` candidates from
//   `member` on, one half is left at each step
void GroupEmitter::findMember() {
  Type i32 = b().getI32Type();
  auto number = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b(), loc, b().getI32IntegerAttr(static_cast<int32_t>(value)));
  };
  Value own = arith::TruncIOp::create(b(), loc, i32, index(block));
  member = number(0);
  for (int64_t count = layout.members; count > 1; count -= count / 2) {
    Value middle = arith::AddIOp::create(b(), loc, member, number(count / 2));
    Value first = field(middle, layout.own.size());
    Value isBehind = arith::CmpIOp::create(b(), loc, arith::CmpIPredicate::ule, first, own);
    member = arith::SelectOp::create(b(), loc, isBehind, middle, member);
  }
  Value first = field(member, layout.own.size());
  Value rest = arith::SubIOp::create(b(), loc, own, first);
  int64_t most = kUniformElements / kBlockThreads / layout.width - 1;
  local = addBase(0, most, 0, 0, arith::ExtUIOp::create(b(), loc, b().getI64Type(), rest));
  loadPointers();
}

void GroupEmitter::takeMember() {
  member = arith::TruncIOp::create(b(), loc, b().getI32Type(), index(block));
  local = Affine(0);
  loadPointers();
}

LogicalResult GroupEmitter::finishGroup() {
  if (mlir::failed(GpuEmitter::finish()))
    return failure();
  BitVector own(outer.getNumArguments());
  for (int64_t i : layout.own)
    own.set(i);
  return outer.eraseArguments(own);
}

//===- Maps -----------------------------------------------------------------------------===//

//   thread t of the member's: elements [t · width, (t + 1) · width), or what is left of them
static LogicalResult emitGroupMap(func::FuncOp kernel, const GroupLayout &layout) {
  Function function = groupFunctions(kernel, layout)[0];
  GroupEmitter e(kernel, function, layout);
  e.findMember();
  Value elements = e.word(1);
  int64_t width = layout.width;
  Affine thread = e.local * kBlockThreads + e.thread;
  Value first = e.times(e.index(thread), width);
  Value end = e.add(first, e.constant(width));
  Value isWhole = arith::CmpIOp::create(e.here(), e.loc, arith::CmpIPredicate::ule, end, elements);
  e.guarded(isWhole, [&] {
    Value own = e.index(thread);
    Affine from = e.addBase(0, kUniformElements / width - 1, e.depth(), 0, own) * width;
    // All elements are computed before the first is stored: a result may overwrite an argument.
    SmallVector<SmallVector<Value>> values(width);
    for (int64_t i = 0; i < width; ++i)
      for (Value result : kernelResults(kernel))
        values[i].push_back(e.emit(result, from + i));
    for (unsigned r = 0; r < kernel.getNumResults(); ++r)
      for (int64_t i = 0; i < width; ++i)
        e.store(e.results[r], values[i][r], from + i);
  });
  Value low = e.select(isWhole, elements, first);
  Value one = e.constant(1);
  SmallVector<Value> counted = e.loop(low, elements, 1, 0, kUniformElements - 1, 0, one,
                                      [&](const Affine &i, ValueRange carried) {
                                        SmallVector<Value> values;
                                        for (Value result : kernelResults(kernel))
                                          values.push_back(e.emit(result, i));
                                        for (auto [r, value] : llvm::enumerate(values))
                                          e.store(e.results[r], value, i);
                                        return SmallVector<Value>(carried);
                                      });
  Emitter::keepLoop(counted[0]);
  return e.finishGroup();
}

//===- Reductions -----------------------------------------------------------------------===//

namespace {
/// Reductions of all elements of a member.
struct GroupReduction {
  GroupReduction(func::FuncOp kernel, const GroupLayout &layout)
      : kernel(kernel), layout(layout), reductions(kernel.getOps<ReduceOp>()) {}

  func::FuncOp kernel;
  const GroupLayout &layout;
  SmallVector<ReduceOp> reductions;

  Type accumulator(size_t k) const { return Emitter::accumulatorOf(reductions[k]); }
  SmallVector<Value> identities(Emitter &e) const {
    SmallVector<Value> values;
    for (auto [k, reduction] : llvm::enumerate(reductions))
      values.push_back(e.identity(ReduceOp(reduction).getKind(), accumulator(k)));
    return values;
  }
  Value add(Emitter &e, size_t k, Value sum, Value x) const {
    return e.accumulate(e.here(), ReduceOp(reductions[k]).getKind(), sum, x,
                        /*reassociate=*/false);
  }
  /// Element of the scratch that holds reduction k of a chunk: 8 bytes each.
  Affine partial(size_t k, const Affine &chunk) const {
    int64_t count = reductions.size();
    return (chunk * count + Affine(static_cast<int64_t>(k))) * (8 / storedBytes(accumulator(k)));
  }
  SmallVector<Value> sumElements(GroupEmitter &e, Value elements) const;
  SmallVector<Value> sumBlock(GroupEmitter &e, ArrayRef<Value> sums) const;
  void storeResults(GroupEmitter &e, ArrayRef<Value> sums) const;

  LogicalResult emitWhole();
  LogicalResult emitPartial();
  LogicalResult emitCombine();
};
} // namespace

//   piece p of the block's: elements [p · width, (p + 1) · width); thread t has the pieces t,
//   t + 256, …, and, behind the last piece, one of the elements that are left
SmallVector<Value> GroupReduction::sumElements(GroupEmitter &e, Value elements) const {
  int64_t width = layout.width;
  Value pieces = e.over(elements, width), high = pieces, end = elements;
  Value low = e.index(e.thread);
  if (layout.isChunked) {
    Value ofChunk = e.times(e.word(2), kBlockThreads);
    Value begin = arith::MulIOp::create(e.here(), e.loc, e.index(e.local), ofChunk,
                                        arith::IntegerOverflowFlags::nsw);
    Value next = e.add(begin, ofChunk);
    low = e.add(begin, low);
    high = e.lesser(pieces, next);
    end = e.lesser(elements, e.times(next, width));
  }
  auto step = [&](const Affine &at, MutableArrayRef<Value> sums) {
    for (size_t k = 0; k < reductions.size(); ++k)
      sums[k] = add(e, k, sums[k], e.operandOf(reductions[k], at));
  };
  SmallVector<Value> sums = e.loop(low, high, kBlockThreads, 0, kUniformElements / width - 1, 0,
                                   identities(e), [&](const Affine &piece, ValueRange carried) {
                                     SmallVector<Value> next(carried);
                                     for (int64_t i = 0; i < width; ++i)
                                       step(piece * width + i, next);
                                     return next;
                                   });
  Value rest = e.add(e.times(pieces, width), e.index(e.thread));
  return e.loop(rest, end, kBlockThreads, 0, kUniformElements - 1, 0, sums,
                [&](const Affine &at, ValueRange carried) {
                  SmallVector<Value> next(carried);
                  step(at, next);
                  return next;
                });
}

SmallVector<Value> GroupReduction::sumBlock(GroupEmitter &e, ArrayRef<Value> sums) const {
  SmallVector<Value> totals;
  for (size_t k = 0; k < reductions.size(); ++k)
    totals.push_back(e.combineBlock(ReduceOp(reductions[k]).getKind(), sums[k],
                                    e.sharedArray(accumulator(k), kWarps)));
  return totals;
}

/// The first thread stores what follows from the sums.
void GroupReduction::storeResults(GroupEmitter &e, ArrayRef<Value> sums) const {
  e.guarded(e.inside(e.thread, 1), [&] {
    DenseMap<Value, Value> known;
    for (auto [k, reduction] : llvm::enumerate(reductions))
      known[ReduceOp(reduction).getResult()] =
          e.convert(sums[k], getElementTypeOrSelf(ReduceOp(reduction).getType()), e.depth());
    e.resolve = [&](Value tensor, const Affine &) { return known.lookup(tensor); };
    SmallVector<Value> values;
    for (Value result : kernelResults(kernel))
      values.push_back(e.emit(result, Affine(0)));
    for (auto [r, value] : llvm::enumerate(values))
      e.store(e.results[r], value, Affine(0));
    e.resolve = nullptr;
  });
}

LogicalResult GroupReduction::emitWhole() {
  Function function = groupFunctions(kernel, layout)[0];
  GroupEmitter e(kernel, function, layout);
  e.takeMember();
  storeResults(e, sumBlock(e, sumElements(e, e.word(1))));
  return e.finishGroup();
}

LogicalResult GroupReduction::emitPartial() {
  Function function = groupFunctions(kernel, layout)[0];
  GroupEmitter e(kernel, function, layout);
  e.findMember();
  SmallVector<Value> totals = sumBlock(e, sumElements(e, e.word(1)));
  e.guarded(e.inside(e.thread, 1), [&] {
    for (size_t k = 0; k < reductions.size(); ++k)
      e.store(e.scratch, totals[k], partial(k, e.local));
  });
  return e.finishGroup();
}

//   a warp per member:  lane l adds up the chunks l, l + 32, …;  then over the lanes
LogicalResult GroupReduction::emitCombine() {
  Function function = groupFunctions(kernel, layout)[1];
  GroupEmitter e(kernel, function, layout);
  e.takeMember();
  Value ofChunk = e.times(e.word(2), kBlockThreads * layout.width);
  Value one = e.constant(1);
  Value up = arith::SubIOp::create(e.here(), e.loc, e.add(e.word(1), ofChunk), one);
  Value chunks = arith::DivUIOp::create(e.here(), e.loc, up, ofChunk);
  SmallVector<Value> sums =
      e.loop(e.index(e.thread), chunks, kWarp, 0, kUniformElements / kBlockThreads - 1, 0,
             identities(e), [&](const Affine &chunk, ValueRange carried) {
               SmallVector<Value> next;
               for (size_t k = 0; k < reductions.size(); ++k)
                 next.push_back(add(e, k, carried[k],
                                    e.loadHere(e.scratch, accumulator(k), partial(k, chunk))));
               return next;
             });
  for (size_t k = 0; k < reductions.size(); ++k)
    sums[k] = e.combineWarp(ReduceOp(reductions[k]).getKind(), sums[k]);
  storeResults(e, sums);
  return e.finishGroup();
}

LogicalResult emitGroup(func::FuncOp kernel) {
  FailureOr<GroupLayout> layout = GroupLayout::of(kernel);
  if (failed(layout))
    return failure();
  if (!layout->isReduction)
    return emitGroupMap(kernel, *layout);
  GroupReduction reduction(kernel, *layout);
  if (!layout->isChunked)
    return reduction.emitWhole();
  if (failed(reduction.emitPartial()))
    return failure();
  return reduction.emitCombine();
}

} // namespace mpc::gpu
