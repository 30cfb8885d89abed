//===- EmitMap.cpp - map and scatter kernels on a GPU --------------------------------===//

#include "compiler/codegen/gpu/GpuEmitter.h"
#include "compiler/codegen/gpu/Group.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;

namespace mpc::gpu {

LogicalResult emitKernel(func::FuncOp kernel) {
  if (elementsOf(getKernelAttr(kernel).getDomain().asArrayRef()) == 0)
    return success();
  if (kernel->hasAttr(kLayoutAttr))
    return emitGroup(kernel);
  if (getScatterRoot(kernel))
    return emitScatter(kernel);
  switch (getKernelAttr(kernel).getKind()) {
  case KernelKind::map:
    return emitMap(kernel);
  case KernelKind::row:
    return emitRow(kernel);
  case KernelKind::column:
    return emitColumn(kernel);
  }
  return failure();
}

//   thread t: elements [t · together, (t + 1) · together)
LogicalResult emitMap(func::FuncOp kernel) {
  MapGrid grid = mapGrid(kernel);
  Function function = functions(kernel)[0];
  GpuEmitter e(kernel, function);
  Affine t = e.block * function.block + e.thread;
  e.guarded(e.inside(t, grid.threads), [&] {
    Affine first = e.known(t, grid.threads, e.depth()) * grid.together;
    // All elements are computed before the first is stored: a result may overwrite an argument.
    SmallVector<SmallVector<Value>> values(grid.together);
    for (int64_t i = 0; i < grid.together; ++i)
      for (Value result : kernelResults(kernel))
        values[i].push_back(e.emit(result, first + i));
    for (unsigned r = 0; r < kernel.getNumResults(); ++r)
      for (int64_t i = 0; i < grid.together; ++i)
        e.store(e.results[r], values[i][r], first + i);
  });
  return e.finish();
}

// Every element of the result belongs to one thread, which adds up its updates in the order of
// the indices: a warp looks at 32 indices at once.
//
//   block (before, v), thread k:  sum = init[before, v, k]
//     for i by 32:  for each set bit l of ballot(indices[i + lane] = v), ascending:
//       sum += updates[before, i + l, k]
LogicalResult emitScatter(func::FuncOp kernel) {
  ScatterAddOp scatter = getScatterRoot(kernel);
  ScatterLoops loops = scatterLoops(scatter);
  Function function = functions(kernel)[0];
  GpuEmitter e(kernel, function);
  if (kernel.getNumResults() != 1)
    e.fail(scatter, "must be the kernel's only result");
  Type type = getElementTypeOrSelf(scatter.getType());
  Type i32 = e.here().getI32Type(), i64 = e.here().getI64Type();
  auto [before, v] = e.divide(e.block, loops.size);
  Affine lane = e.divide(e.thread, kWarp).second;
  Value row = e.index(v);

  int64_t rounds = llvm::divideCeil(loops.behind, function.block);
  e.loop(rounds, 0, {}, [&](const Affine &round, ValueRange) {
    // All threads of a warp take part in the ballots: those behind the end repeat the last column.
    Affine column = round * function.block + e.thread, k = e.clamped(column, loops.behind);
    Affine at = e.block * loops.behind + k;
    Value init = scatter.getInit() ? e.convert(e.emit(scatter.getInit(), at), type, e.depth())
                                   : e.identity(ReductionKind::sum, type);
    SmallVector<Value> sums = e.loop(
        llvm::divideCeil(loops.count, kWarp), 0, init, [&](const Affine &group, ValueRange sum) {
          Affine i = group * kWarp + lane;
          Value exists = e.inside(i, loops.count);
          Value position = e.emit(scatter.getIndices(), e.clamped(i, loops.count));
          Value low = e.constant(0), high = e.constant(loops.size - 1);
          OpBuilder &b = e.here();
          if (!position.getType().isInteger(64))
            position = arith::ExtSIOp::create(b, e.loc, i64, position);
          position = arith::MinSIOp::create(b, e.loc,
                                            arith::MaxSIOp::create(b, e.loc, position, low), high);
          Value isHere = arith::CmpIOp::create(b, e.loc, arith::CmpIPredicate::eq, position, row);
          if (exists)
            isHere = arith::AndIOp::create(b, e.loc, isHere, exists);
          Value found = e.ballot(isHere);
          Value count = arith::ExtUIOp::create(e.here(), e.loc, i64,
                                               math::CtPopOp::create(e.here(), e.loc, found));
          SmallVector<Value> next = e.loop(
              e.constant(0), count, 1, 0, kWarp - 1, 0, {sum[0], found},
              [&](const Affine &, ValueRange carried) -> SmallVector<Value> {
                OpBuilder &b = e.here();
                Value bits = carried[1];
                Value bit = arith::ExtUIOp::create(
                    b, e.loc, i64, math::CountTrailingZerosOp::create(b, e.loc, bits));
                Affine l = e.addBase(0, kWarp - 1, e.depth(), 0, bit);
                Affine update = e.known(group * kWarp + l, loops.count, e.depth());
                Value x = e.convert(e.emit(scatter.getUpdates(),
                                           (before * loops.count + update) * loops.behind + k),
                                    type, e.depth());
                Value total = e.accumulate(e.here(), ReductionKind::sum, carried[0], x, false);
                Value one =
                    arith::ConstantOp::create(e.here(), e.loc, e.here().getIntegerAttr(i32, 1));
                Value rest = arith::AndIOp::create(
                    e.here(), e.loc, bits, arith::SubIOp::create(e.here(), e.loc, bits, one));
                return {total, rest};
              });
          return SmallVector<Value>{next[0]};
        });
    // Threads behind the end have read what the last column's overwrites.
    Value exists = e.inside(column, loops.behind);
    if (exists && worksInPlace(kernel))
      e.barrier();
    e.guarded(exists, [&] { e.store(e.results[0], sums[0], at); });
    return SmallVector<Value>();
  });
  return e.finish();
}

} // namespace mpc::gpu
