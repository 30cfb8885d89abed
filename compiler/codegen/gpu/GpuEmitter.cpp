//===- GpuEmitter.cpp - the frame of a GPU function: threads, shuffles, shared memory --===//

#include "compiler/codegen/gpu/GpuEmitter.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace mpc::gpu {

constexpr unsigned kSharedSpace = 3;
constexpr int32_t kAllLanes = -1, kClamp = 31;

GpuEmitter::GpuEmitter(func::FuncOp kernel, const Function &function, int64_t scratchBytes)
    : Emitter(kernel), function(function) {
  constexpr int64_t kScalarBytes = 8;
  MLIRContext *context = builder.getContext();
  Type pointer = LLVM::LLVMPointerType::get(context);
  SmallVector<KernelBuffer> buffers = distinctBuffers(kernel, scratchBytes);
  outer =
      func::FuncOp::create(builder, loc, function.name,
                           builder.getFunctionType(SmallVector<Type>(buffers.size(), pointer), {}));
  outer->setAttr(kThreadsAttr, builder.getI32IntegerAttr(static_cast<int32_t>(function.block)));
  for (unsigned i = 0; i < buffers.size(); ++i) {
    outer.setArgAttr(i, "llvm.noalias", builder.getUnitAttr());
    outer.setArgAttr(i, "llvm.noundef", builder.getUnitAttr());
    // Those of up to 8 bytes may be elements of a table (Group.h).
    int64_t bytes = buffers[i].bytes;
    bool isScalar = bytes > 0 && bytes <= kScalarBytes;
    outer.setArgAttr(i, "llvm.align",
                     builder.getI64IntegerAttr(isScalar ? bytes & -bytes : kPlanAlignment));
  }
  Block *entry = outer.addEntryBlock();
  enter(entry, 0);

  OpBuilder &b = at(0);
  Type i32 = b.getI32Type();
  thread = addBase(0, function.block - 1, 0, 0, identifier(NVVM::ThreadIdXOp::create(b, loc, i32)));
  block = function.grid == 1 ? Affine(0)
                             : addBase(0, function.grid - 1, 0, 0,
                                       identifier(NVVM::BlockIdXOp::create(b, loc, i32)));
}

void GpuEmitter::preferRegisters() { outer->setAttr(kRegistersFirstAttr, builder.getUnitAttr()); }

Value GpuEmitter::identifier(Value i32) {
  return arith::ExtUIOp::create(at(0), loc, builder.getI64Type(), i32);
}

/// In 32 bits where the index is that small: a GPU has no 64-bit division, and a slow
/// multiplication.
std::pair<Value, Value> GpuEmitter::divideValues(const Affine &index, int64_t divisor) {
  if (!within(index, 0, int64_t(1) << 31))
    return Emitter::divideValues(index, divisor);
  Value value = this->index(index);
  OpBuilder &b = at(depth(index));
  Type i32 = b.getI32Type(), i64 = b.getI64Type();
  value = arith::TruncIOp::create(b, loc, i32, value);
  Value by = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(divisor)));
  Value quotient = arith::DivUIOp::create(b, loc, value, by);
  Value rest = arith::RemUIOp::create(b, loc, value, by);
  return {arith::ExtUIOp::create(b, loc, i64, quotient), arith::ExtUIOp::create(b, loc, i64, rest)};
}

Value GpuEmitter::lesser(Value a, Value b) { return arith::MinSIOp::create(here(), loc, a, b); }

Value GpuEmitter::select(Value condition, Value yes, Value no) {
  return condition ? arith::SelectOp::create(here(), loc, condition, yes, no).getResult() : yes;
}

Value GpuEmitter::shuffle(Value value, int32_t distance) {
  OpBuilder &b = here();
  Type type = value.getType(), i32 = b.getI32Type();
  auto constant = [&](int32_t number) -> Value {
    return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(number));
  };
  auto exchange = [&](Value word) -> Value {
    return NVVM::ShflOp::create(b, loc, i32, constant(kAllLanes), word, constant(distance),
                                constant(kClamp), NVVM::ShflKind::bfly, UnitAttr());
  };
  unsigned bits = type.getIntOrFloatBitWidth();
  Type integer = b.getIntegerType(bits);
  Value word =
      isa<FloatType>(type) ? arith::BitcastOp::create(b, loc, integer, value).getResult() : value;
  if (bits < 32) {
    word = exchange(arith::ExtUIOp::create(b, loc, i32, word));
    word = arith::TruncIOp::create(b, loc, integer, word);
  } else if (bits == 32) {
    word = exchange(word);
  } else {
    Value shift = arith::ConstantOp::create(b, loc, b.getIntegerAttr(integer, 32));
    Value low = exchange(arith::TruncIOp::create(b, loc, i32, word));
    Value high =
        exchange(arith::TruncIOp::create(b, loc, i32, arith::ShRUIOp::create(b, loc, word, shift)));
    high = arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, integer, high), shift);
    word = arith::OrIOp::create(b, loc, arith::ExtUIOp::create(b, loc, integer, low), high);
  }
  return isa<FloatType>(type) ? arith::BitcastOp::create(b, loc, type, word).getResult() : word;
}

Value GpuEmitter::combineWarp(ReductionKind kind, Value value, int64_t lanes, int64_t distance) {
  for (int64_t i = lanes / 2; i; i /= 2)
    value = accumulate(here(), kind, value, shuffle(value, static_cast<int32_t>(i * distance)),
                       /*reassociate=*/false);
  return value;
}

Value GpuEmitter::combineBlock(ReductionKind kind, Value value, Value shared) {
  value = combineWarp(kind, value);
  auto [warp, lane] = divide(thread, kWarp);
  guarded(inside(lane, 1), [&] { store(shared, value, warp); });
  barrier();
  Value sum = loadHere(shared, value.getType(), Affine(0));
  for (int64_t w = 1; w < function.block / kWarp; ++w)
    sum = accumulate(here(), kind, sum, loadHere(shared, value.getType(), Affine(w)),
                     /*reassociate=*/false);
  return sum;
}

Value GpuEmitter::sharedArray(Type element, int64_t count) {
  MLIRContext *context = builder.getContext();
  Type pointer = LLVM::LLVMPointerType::get(context);
  if (!sharedMemory) {
    std::string name = function.name + "$shared";
    OpBuilder outside(kernel);
    LLVM::GlobalOp::create(outside, loc,
                           LLVM::LLVMArrayType::get(outside.getI8Type(), function.sharedBytes),
                           /*isConstant=*/false, LLVM::Linkage::Internal, name, Attribute(),
                           /*alignment=*/16, kSharedSpace);
    OpBuilder &b = at(0);
    Type space = LLVM::LLVMPointerType::get(context, kSharedSpace);
    sharedMemory = LLVM::AddrSpaceCastOp::create(b, loc, pointer,
                                                 LLVM::AddressOfOp::create(b, loc, space, name));
  }
  OpBuilder &here = at(0);
  Value array = LLVM::GEPOp::create(here, loc, pointer, here.getI8Type(), sharedMemory,
                                    ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(sharedUsed)},
                                    LLVM::GEPNoWrapFlags::inbounds);
  sharedUsed += count * storedBytes(element);
  return array;
}

void GpuEmitter::barrier() { NVVM::Barrier0Op::create(here(), loc); }

void GpuEmitter::warpBarrier() {
  Value all = arith::ConstantOp::create(here(), loc, here().getI32IntegerAttr(kAllLanes));
  NVVM::SyncWarpOp::create(here(), loc, all);
}

Value GpuEmitter::ballot(Value condition) {
  OpBuilder &b = here();
  Value all = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(kAllLanes));
  return NVVM::VoteSyncOp::create(b, loc, b.getI32Type(), all, condition,
                                  NVVM::VoteSyncKind::ballot);
}

} // namespace mpc::gpu
