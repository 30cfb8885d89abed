//===- EmitKernel.cpp - map, row and scatter kernels --------------------------------===//

#include "compiler/codegen/Emitter.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace mpc {

static ValueRange resultsOf(func::FuncOp kernel) {
  return kernel.front().getTerminator()->getOperands();
}

LogicalResult emitKernel(func::FuncOp kernel) {
  KernelAttr attr = getKernelAttr(kernel);
  if (elementsOf(attr.getDomain().asArrayRef()) == 0)
    return Emitter(kernel, kernel.getName()).finish();
  if (getScatterRoot(kernel))
    return emitScatterKernel(kernel);
  switch (attr.getKind()) {
  case KernelKind::map:
    return emitMapKernel(kernel);
  case KernelKind::row:
    return emitRowKernel(kernel);
  case KernelKind::column:
    return emitColumnKernel(kernel);
  }
  return failure();
}

//===----------------------------------------------------------------------------===//
// map
//===----------------------------------------------------------------------------===//

LogicalResult emitMapKernel(func::FuncOp kernel) {
  NestLoops loops = mapLoops(kernel);
  Emitter e(kernel, kernel.getName());
  // All elements are computed before the first is stored: a result may overwrite an argument.
  auto element = [&](const Affine &at) {
    SmallVector<Value> values;
    for (Value result : resultsOf(kernel))
      values.push_back(e.emit(result, at));
    for (auto [i, value] : llvm::enumerate(values))
      e.store(e.results[i], value, at);
  };
  e.rangeLoop(loops.rows, loops.inner, [&](const Affine &row) {
    e.loop(loops.inner / loops.together, loops.together, {}, [&](const Affine &k, ValueRange) {
      for (int64_t i = 0; i < loops.together; ++i)
        element(row * loops.inner + k * loops.together + i);
      return SmallVector<Value>();
    });
  });
  return e.finish();
}

//===----------------------------------------------------------------------------===//
// row
//===----------------------------------------------------------------------------===//

namespace {
// A value this expensive, needed again in a later phase, is kept instead of computed again.
constexpr double kKeepCost = 9;
// Bytes of a row that may be kept in the frame: about half of a second-level cache, and far less
// than a thread's stack.
constexpr int64_t kKeepBytes = 256 << 10;

/// Which reductions run together, and which values of a row are kept from phase to phase.
///
///   softmax:  phase 1: max x;  phase 2: Σ exp(x - max), keep exp;  last phase: exp / Σ
struct RowPhases {
  /// Reductions per phase; the last phase has none, it stores.
  SmallVector<SmallVector<ReduceOp>> reductions;
  struct Kept {
    unsigned phase;      ///< computes and stores it
    int64_t result = -1; ///< in this result's buffer, else in the frame
    Value array;
  };
  llvm::MapVector<Value, Kept> kept;
  /// Per phase: whether it draws random numbers, which come in blocks of four.
  SmallVector<bool> random;

  RowPhases(func::FuncOp kernel, int64_t rows, int64_t columns);

private:
  struct Reach {
    SmallVector<Value> elements; ///< read at the running element, users first
    SmallVector<ReduceOp> reductions;
  };
  Reach reach(ArrayRef<Value> roots) const;
  void choose(func::FuncOp kernel, ArrayRef<Reach> perPhase);
  int64_t rows, columns;
};

RowPhases::Reach RowPhases::reach(ArrayRef<Value> roots) const {
  AccessWalk walk;
  Affine row = walk.addBase(0, rows - 1, 1),
         element = row * columns + walk.addBase(0, columns - 1, 2);
  for (Value root : roots)
    walk.visit(root, elementsOf(tensorShape(root)) == rows * columns ? element : row);
  Reach reach;
  for (auto &[value, at] : walk.reached) {
    if (auto reduce = value.getDefiningOp<ReduceOp>())
      reach.reductions.push_back(reduce);
    else if (at == element)
      reach.elements.push_back(value);
  }
  return reach;
}

/// What computing the values again would cost: `elements` beginning with `value`, without what
/// other kept values hold.
double coneCost(Value value, const SmallPtrSetImpl<Operation *> &atElement,
                llvm::function_ref<bool(Value)> isKept) {
  SetVector<Value> cone;
  cone.insert(value);
  double cost = 0;
  for (size_t i = 0; i < cone.size(); ++i) {
    Operation *op = cone[i].getDefiningOp();
    if (!op) {
      cost += 1;
      continue;
    }
    cost += operationCost(op);
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()) && (i == 0 || !isKept(cone[i])) &&
          (!operand.getDefiningOp() || atElement.contains(operand.getDefiningOp())))
        cone.insert(operand);
  }
  return cost;
}

RowPhases::RowPhases(func::FuncOp kernel, int64_t rows, int64_t columns)
    : rows(rows), columns(columns) {
  // A reduction's phase follows those of the reductions that its operand needs; body order is
  // dependency order.
  DenseMap<Operation *, unsigned> phaseOf;
  auto after = [&](const Reach &reach) {
    unsigned phase = 0;
    for (ReduceOp needed : reach.reductions)
      phase = std::max(phase, phaseOf[needed] + 1);
    return phase;
  };
  for (ReduceOp reduce : kernel.getOps<ReduceOp>()) {
    unsigned phase = after(reach({reduce.getInput()}));
    phaseOf[reduce] = phase;
    if (reductions.size() <= phase)
      reductions.resize(phase + 1);
    reductions[phase].push_back(reduce);
  }
  reductions.emplace_back();

  SmallVector<Reach> perPhase;
  for (ArrayRef<ReduceOp> phase : ArrayRef(reductions).drop_back()) {
    SmallVector<Value> roots;
    for (ReduceOp reduce : phase)
      roots.push_back(reduce.getInput());
    perPhase.push_back(reach(roots));
  }
  SmallVector<Value> stored;
  for (Value result : resultsOf(kernel))
    if (elementsOf(tensorShape(result)) == rows * columns)
      stored.push_back(result);
  perPhase.push_back(reach(stored));
  choose(kernel, perPhase);
  SmallPtrSet<Operation *, 2> drawn;
  for (const Reach &reach : perPhase) {
    random.push_back(false);
    for (Value value : reach.elements)
      if (auto draw = value.getDefiningOp<RandomUniformOp>())
        random.back() |= drawn.insert(draw).second;
  }
}

void RowPhases::choose(func::FuncOp kernel, ArrayRef<Reach> perPhase) {
  DenseMap<Value, unsigned> first; // the phase that computes it first
  for (auto [phase, reach] : llvm::enumerate(perPhase))
    for (Value value : reach.elements)
      first.try_emplace(value, phase);
  ArrayRef<int64_t> aliases = getKernelAttr(kernel).getAliases().asArrayRef();
  int64_t bytes = 0;
  for (unsigned phase = 1; phase < perPhase.size(); ++phase) {
    SmallPtrSet<Operation *, 32> atElement;
    for (Value value : perPhase[phase].elements)
      if (Operation *op = value.getDefiningOp())
        atElement.insert(op);
    // Users come first, so the largest computation that an earlier phase has done is met before its
    // parts.
    SmallPtrSet<Value, 32> covered;
    auto cover = [&](Value value) {
      SmallVector<Value> work{value};
      while (!work.empty()) {
        Value next = work.pop_back_val();
        if (Operation *op = next.getDefiningOp(); op && covered.insert(next).second)
          work.append(op->operand_begin(), op->operand_end());
      }
    };
    for (Value value : perPhase[phase].elements) {
      if (first[value] == phase || covered.contains(value) || !value.getDefiningOp())
        continue;
      if (kept.count(value)) {
        cover(value);
        continue;
      }
      if (coneCost(value, atElement, [&](Value v) { return kept.count(v) != 0; }) < kKeepCost)
        continue;
      Kept keep{first[value], -1, {}};
      for (auto [i, result] : llvm::enumerate(resultsOf(kernel)))
        if (result == value && aliases[i] < 0)
          keep.result = i;
      int64_t size = columns * storedBytes(getElementTypeOrSelf(value.getType()));
      if (keep.result < 0 && bytes + size > kKeepBytes)
        continue;
      bytes += keep.result < 0 ? size : 0;
      kept.insert({value, keep});
      cover(value);
    }
  }
}
} // namespace

LogicalResult emitRowKernel(func::FuncOp kernel) {
  NestLoops loops = rowLoops(kernel);
  int64_t columns = loops.innerOuter * loops.inner;
  RowPhases phases(kernel, loops.rows, columns);
  Emitter e(kernel, kernel.getName());
  for (auto &[value, keep] : phases.kept)
    keep.array = keep.result >= 0 ? e.results[keep.result]
                                  : e.array(getElementTypeOrSelf(value.getType()), columns);

  e.rangeLoop(loops.rows, columns, [&](const Affine &row) {
    DenseMap<Value, Value> reduced;
    unsigned phase = 0;
    Affine element, column; // of the loop being built
    auto place = [&](const RowPhases::Kept &keep) { return keep.result >= 0 ? element : column; };
    e.resolve = [&](Value tensor, const Affine &at) -> Value {
      if (auto reduce = tensor.getDefiningOp<ReduceOp>()) {
        if (Value value = at == row ? reduced.lookup(tensor) : Value())
          return value;
        e.fail(reduce, "is read for another row, or before it is known");
        return e.identity(reduce.getKind(), getElementTypeOrSelf(reduce.getType()));
      }
      auto keep = phases.kept.find(tensor);
      if (keep != phases.kept.end() && keep->second.phase < phase && at == element)
        return e.loadHere(keep->second.array, getElementTypeOrSelf(tensor.getType()),
                          place(keep->second));
      return {};
    };
    // for j: for k, at element row · columns + j · inner + k
    auto overRow = [&](ValueRange inits, llvm::function_ref<SmallVector<Value>(ValueRange)> body) {
      int64_t together = phases.random[phase] ? loops.together : 1;
      return e.loop(loops.innerOuter, loops.inner, inits, [&](const Affine &j, ValueRange outer) {
        return e.loop(loops.inner / together, together, outer,
                      [&](const Affine &k, ValueRange carried) {
                        SmallVector<Value> next(carried);
                        for (int64_t i = 0; i < together; ++i) {
                          column = j * loops.inner + k * together + i;
                          element = row * columns + column;
                          next = body(next);
                        }
                        return next;
                      });
      });
    };

    for (; phase + 1 < phases.reductions.size(); ++phase) {
      MutableArrayRef<ReduceOp> reductions = phases.reductions[phase];
      SmallVector<Value> inits;
      for (ReduceOp reduce : reductions)
        inits.push_back(e.startCarried(reduce));
      SmallVector<Value> sums = overRow(inits, [&](ValueRange carried) {
        SmallVector<Value> next, operands;
        for (ReduceOp reduce : reductions)
          operands.push_back(e.operandOf(reduce, element));
        for (auto &[value, keep] : phases.kept)
          if (keep.phase == phase)
            e.store(keep.array, e.emit(value, element), place(keep));
        for (auto [i, reduce] : llvm::enumerate(reductions))
          next.push_back(e.carryOn(reduce, carried[i], operands[i]));
        return next;
      });
      for (auto [i, reduce] : llvm::enumerate(reductions))
        reduced[reduce.getResult()] = e.convert(e.endCarried(reduce, sums[i]),
                                                getElementTypeOrSelf(reduce.getType()), e.depth());
    }

    // Last phase: what has the domain's shape, then what has one element per row.
    SmallVector<unsigned> wide, narrow;
    for (auto [i, result] : llvm::enumerate(resultsOf(kernel))) {
      auto keep = phases.kept.find(result);
      if (columns == 1 || elementsOf(tensorShape(result)) != loops.rows)
        (keep != phases.kept.end() && keep->second.result == static_cast<int64_t>(i))
            ? void()
            : wide.push_back(i);
      else
        narrow.push_back(i);
    }
    auto storeAll = [&](ArrayRef<unsigned> which, const Affine &at) {
      SmallVector<Value> values;
      for (unsigned i : which)
        values.push_back(e.emit(resultsOf(kernel)[i], at));
      for (auto [i, value] : llvm::zip(which, values))
        e.store(e.results[i], value, at);
    };
    if (!wide.empty())
      overRow({}, [&](ValueRange) {
        storeAll(wide, element);
        return SmallVector<Value>();
      });
    element = Affine(-1); // no kept value beyond this
    storeAll(narrow, row);
    e.resolve = nullptr;
  });
  return e.finish();
}

//===----------------------------------------------------------------------------===//
// scatter_add
//===----------------------------------------------------------------------------===//

LogicalResult emitScatterKernel(func::FuncOp kernel) {
  ScatterAddOp scatter = getScatterRoot(kernel);
  ScatterLoops loops = scatterLoops(scatter);
  bool inPlace = getKernelAttr(kernel).getAliases()[0] >= 0;
  Emitter e(kernel, kernel.getName());
  if (kernel.getNumResults() != 1)
    e.fail(scatter, "must be the kernel's only result");
  Type type = getElementTypeOrSelf(scatter.getType());
  Value result = e.results[0];

  // The elements [low, high) behind the axis: every one is initialized, then gets its updates in
  // the order of the indices.
  auto block = [&](const Affine &before, Value low, Value high) {
    auto behind = [&](llvm::function_ref<void(const Affine &)> body) {
      e.loop(low, high, 1, 0, loops.behind - 1, 1, {}, [&](const Affine &k, ValueRange) {
        body(k);
        return SmallVector<Value>();
      });
    };
    Affine first = before * loops.size;
    if (!inPlace)
      e.loop(loops.size, loops.behind, {}, [&](const Affine &v, ValueRange) {
        behind([&](const Affine &k) {
          Affine at = (first + v) * loops.behind + k;
          e.store(result,
                  scatter.getInit() ? e.emit(scatter.getInit(), at)
                                    : e.identity(ReductionKind::sum, type),
                  at);
        });
        return SmallVector<Value>();
      });
    e.loop(loops.count, loops.behind, {}, [&](const Affine &i, ValueRange) {
      Value position = e.emit(scatter.getIndices(), i), zero = e.constant(0),
            last = e.constant(loops.size - 1);
      OpBuilder &b = e.here();
      if (!position.getType().isInteger(64))
        position = arith::ExtSIOp::create(b, e.loc, b.getI64Type(), position);
      position =
          arith::MinSIOp::create(b, e.loc, arith::MaxSIOp::create(b, e.loc, position, zero), last);
      Affine v = e.addBase(0, loops.size - 1, e.depth(), 0, position);
      behind([&](const Affine &k) {
        Affine at = (first + v) * loops.behind + k;
        Value update =
            e.convert(e.emit(scatter.getUpdates(), (before * loops.count + i) * loops.behind + k),
                      type, e.depth());
        Value old = e.loadHere(result, type, at);
        e.store(result, e.accumulate(e.here(), ReductionKind::sum, old, update, false), at);
      });
      return SmallVector<Value>();
    });
  };

  if (loops.before == 1) {
    Value size = e.constant(loops.block), limit = e.constant(loops.behind);
    OpBuilder &b = e.here();
    Value low = arith::MulIOp::create(b, e.loc, e.begin, size);
    Value high =
        arith::MinSIOp::create(b, e.loc, arith::MulIOp::create(b, e.loc, e.end, size), limit);
    block(Affine(0), low, high);
  } else {
    e.rangeLoop(loops.before, loops.behind, [&](const Affine &before) {
      block(before, e.constant(0), e.constant(loops.behind));
    });
  }
  return e.finish();
}

} // namespace mpc
