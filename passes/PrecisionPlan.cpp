//===- PrecisionPlan.cpp - which values of a function are stored in half --------===//
//
// One walk forward decides values in program order; one walk backward before it tells
// for F° results whether a consumer computes in half.
//
//===----------------------------------------------------------------------------===//

#include "PrecisionPlan.h"
#include "FunctionArguments.h"
#include "compiler/ops/Build.h"

using namespace mlir;
using namespace mpc;
using enum PrecisionClass;

PrecisionKind mpc::precisionKind(Operation *op) {
  if (isa<MatmulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(op))
    return PrecisionKind::library;
  if (isa<LayerNormOp, BatchNormOp, BatchNormInferenceOp, SoftmaxOp, LogSoftmaxOp>(op))
    return PrecisionKind::norm;
  if (isa<BroadcastOp, ReshapeOp, TransposeOp, SliceOp, PadOp, ConcatOp, GatherOp, MaskSamplesOp,
          MaxPoolOp, AveragePoolOp>(op))
    return PrecisionKind::view;
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return reduce.getKind() == ReductionKind::max || reduce.getKind() == ReductionKind::min
               ? PrecisionKind::view
               : PrecisionKind::sum;
  if (isa<CrossEntropyOp>(op))
    return PrecisionKind::loss;
  return PrecisionKind::elementwise;
}

SmallVector<unsigned> mpc::viewOperands(Operation *op) {
  if (isa<ConcatOp>(op))
    return llvm::to_vector(llvm::seq<unsigned>(0, op->getNumOperands()));
  return {0};
}

static bool isF32(Value v) {
  auto type = dyn_cast<RankedTensorType>(v.getType());
  return type && type.getElementType().isF32();
}

bool PrecisionPlan::concerns(Operation *op) {
  bool any = false;
  for (ValueRange values : {ValueRange(op->getOperands()), ValueRange(op->getResults())})
    for (Value v : values) {
      if (isFloatTensor(v) && !isF32(v))
        return false;
      any |= isF32(v);
    }
  return any;
}

PrecisionPlan::PrecisionPlan(func::FuncOp f, Type half, const PrecisionOverrides &overrides)
    : f(f), half(cast<FloatType>(half)), overrides(overrides) {
  decideWanted();
  decideArguments();
  for (Operation &op : f.front().without_terminator())
    decideOperation(&op);
  for (Operation &op : f.front().without_terminator())
    decideStored(&op);
}

const PrecisionPlan::Decision *PrecisionPlan::decision(Operation *op) const {
  auto it = decisions.find(op);
  return it == decisions.end() ? nullptr : &it->second;
}

// By the node's name, the names of graph outputs the operation makes, or weights it reads, also
// through casts and index maps.
PrecisionPlan::Forced PrecisionPlan::forced(Operation *op) {
  SmallVector<StringRef> names{nodeOf(op)};
  for (OpOperand &use : terminatorOf(f)->getOpOperands())
    if (use.get().getDefiningOp() == op)
      names.push_back(resultName(f, use.getOperandNumber()));
  for (Value operand : op->getOperands())
    if (BlockArgument argument = argumentBehind(operand)) {
      StringRef role = argumentRole(f, argument.getArgNumber());
      if (role == "parameter" || role == "constant")
        names.push_back(argumentName(f, argument.getArgNumber()));
    }
  if (llvm::any_of(names, [&](StringRef name) { return overrides.keepFp32.names(name); }))
    return Forced::f32;
  if (llvm::any_of(names, [&](StringRef name) { return overrides.allowHalf.names(name); }))
    return Forced::half;
  return Forced::no;
}

// The operator's class, as far as the operation leaves a choice.
PrecisionClass PrecisionPlan::classOf(Operation *op, PrecisionKind kind) {
  const PrecisionEntry *entry = findPrecision(operatorOf(op));
  bool deniesHalf = entry && entry->precision == F;
  switch (kind) {
  case PrecisionKind::library:
    return deniesHalf ? F : H;
  case PrecisionKind::norm:
    return deniesHalf ? F : FHalf;
  case PrecisionKind::view:
    return K;
  case PrecisionKind::loss:
    return F;
  case PrecisionKind::sum: // inside a node of class P or F° an intermediate value
    return entry && (entry->precision == P || entry->precision == FHalf) ? entry->precision : F;
  case PrecisionKind::elementwise:
    return !entry || entry->precision == H ? P : entry->precision;
  }
  return P;
}

static bool sameNode(Operation *a, Operation *b) {
  return !nodeOf(a).empty() && nodeOf(a) == nodeOf(b) && operatorOf(a) == operatorOf(b);
}

// wanted[v]: some consumer of v, looked through P and K, is H. Inside a node of class F° it is
// known of the node's result.
void PrecisionPlan::decideWanted() {
  for (Operation &op : llvm::reverse(f.front().without_terminator())) {
    forces[&op] = forced(&op);
    if (!concerns(&op))
      continue;
    PrecisionClass precision = classOf(&op, precisionKind(&op));
    bool wants = false;
    if (forces[&op] == Forced::f32)
      continue;
    if (precision == H)
      wants = true;
    else if (precision != F)
      wants = llvm::any_of(op.getResults(), [&](Value v) { return wanted.lookup(v); });
    if (!wants)
      continue;
    for (Value operand : op.getOperands())
      if (isF32(operand) && (precision != FHalf ||
                             (operand.getDefiningOp() && sameNode(&op, operand.getDefiningOp()))))
        wanted[operand] = true;
  }
}

void PrecisionPlan::decideArguments() {
  for (BlockArgument argument : f.getArguments()) {
    if (!isF32(argument))
      continue;
    unsigned i = argument.getArgNumber();
    StringRef role = argumentRole(f, i), name = argumentName(f, i);
    bool follows = role == "parameter" || role == "constant";
    states[argument] = follows ? State::follow : State::f32;
    // A constant that is too large to stand in the text: the importer has looked at its elements.
    if (auto range = f.getArgAttrOfType<DenseF64ArrayAttr>(i, "mpc.magnitudes"))
      misfits[argument] =
          !llvm::all_of(range.asArrayRef(), [&](double x) { return fitsHalf(APFloat(x)); });
    if (overrides.keepFp32.names(name))
      states[argument] = State::f32;
    else if (role == "input" && overrides.allowHalf.names(name))
      states[argument] = State::half;
  }
}

// No finite value overflows, none but zero becomes zero.
bool PrecisionPlan::fitsHalf(APFloat x) {
  if (!x.isFinite() || x.isZero())
    return true;
  bool lossy;
  x.convert(half.getFloatSemantics(), APFloat::rmNearestTiesToEven, &lossy);
  return x.isFinite() && !x.isZero();
}

bool PrecisionPlan::fitsHalf(Attribute constant) {
  auto elements = dyn_cast_or_null<DenseFPElementsAttr>(constant);
  if (!elements)
    return true;
  if (elements.isSplat())
    return fitsHalf(elements.getSplatValue<APFloat>());
  return llvm::all_of(elements.getValues<APFloat>(), [&](APFloat x) { return fitsHalf(x); });
}

// Known at compile time: made of constants alone.
bool PrecisionPlan::isStatic(Value v) {
  auto it = statics.find(v);
  if (it != statics.end())
    return it->second;
  Operation *op = v.getDefiningOp();
  bool known = op && !isa<RandomUniformOp>(op) &&
               llvm::all_of(op->getOperands(), [&](Value operand) { return isStatic(operand); });
  return statics[v] = known;
}

// Made of the number of samples and constants: it stands for a constant of the whole batch.
bool PrecisionPlan::countsSamples(Value v) {
  if (auto argument = dyn_cast<BlockArgument>(v))
    return argumentRole(f, argument.getArgNumber()) == "samples";
  auto it = counts.find(v);
  if (it != counts.end())
    return it->second;
  auto operands = v.getDefiningOp()->getOperands();
  bool known = llvm::all_of(operands, [&](Value o) { return isStatic(o) || countsSamples(o); }) &&
               llvm::any_of(operands, [&](Value o) { return countsSamples(o); });
  return counts[v] = known;
}

// The gather of a table at places that the data name.
bool PrecisionPlan::isLookup(Operation *op) {
  auto gather = dyn_cast<GatherOp>(op);
  return gather && !isStatic(gather.getIndices()) && !countsSamples(gather.getIndices());
}

// A parameter, through index maps, is an operand of a product.
bool PrecisionPlan::feedsLibrary(Value table) {
  return llvm::any_of(table.getUsers(), [&](Operation *user) {
    PrecisionKind kind = precisionKind(user);
    if (kind == PrecisionKind::library)
      return forces.lookup(user) != Forced::f32 && classOf(user, kind) == H;
    return isa<BroadcastOp, ReshapeOp, TransposeOp, SliceOp, ConcatOp>(user) &&
           feedsLibrary(user->getResult(0));
  });
}

// Every user belongs to the node that makes the value.
bool PrecisionPlan::isInternal(Value v) {
  Operation *op = v.getDefiningOp();
  if (nodeOf(op).empty() || v.use_empty())
    return false;
  return llvm::all_of(v.getUsers(), [&](Operation *user) { return sameNode(user, op); });
}

std::string PrecisionPlan::describe(Value v) {
  if (auto argument = dyn_cast<BlockArgument>(v))
    return (argumentRole(f, argument.getArgNumber()) + " '" +
            argumentName(f, argument.getArgNumber()) + "'")
        .str();
  StringRef node = nodeOf(v.getDefiningOp());
  return node.empty() ? operatorOf(v.getDefiningOp()).str() : "'" + node.str() + "'";
}

PrecisionPlan::Inputs PrecisionPlan::inputsOf(Operation *op, ArrayRef<unsigned> operands) {
  Inputs inputs;
  for (unsigned i : operands) {
    Value v = op->getOperand(i);
    if (!isF32(v))
      continue;
    State s = state(v);
    if (s == State::follow) {
      inputs.misfit |= misfits.lookup(v);
      continue;
    }
    inputs.any = true;
    if (s != State::half) {
      inputs.allHalf = false;
      if (inputs.f32Name.empty())
        inputs.f32Name = describe(v);
    }
  }
  return inputs;
}

void PrecisionPlan::decideOperation(Operation *op) {
  PrecisionKind kind = precisionKind(op);
  auto setResults = [&](State first, State others) {
    for (OpResult result : op->getResults())
      if (isF32(result))
        states[result] = result.getResultNumber() == 0 ? first : others;
  };
  if (op->hasTrait<OpTrait::ConstantLike>() || isa<RandomUniformOp>(op)) {
    Attribute constant;
    if (matchPattern(op, m_Constant(&constant)))
      misfits[op->getResult(0)] = !fitsHalf(constant);
    return setResults(State::follow, State::follow);
  }
  if (!concerns(op))
    return setResults(State::f32, State::f32);

  Decision &decision = decisions[op];
  decision.precision = classOf(op, kind);
  auto decide = [&](State s, const Twine &reason) {
    decision.reason = reason.str();
    setResults(s, State::f32);
  };
  std::string halfName;
  llvm::raw_string_ostream(halfName) << Type(half);
  SmallVector<unsigned> all = llvm::to_vector(llvm::seq<unsigned>(0, op->getNumOperands()));
  Inputs inputs = inputsOf(op, kind == PrecisionKind::view ? viewOperands(op) : all);
  // Bounds and signs (K) do no harm: no result is larger than the half operand.
  bool misfit = inputs.misfit && (decision.precision == H || decision.precision == P ||
                                  (kind == PrecisionKind::view && inputs.any));
  bool misfitPad = false;
  if (auto pad = dyn_cast<PadOp>(op)) {
    Attribute value;
    if (matchPattern(pad.getValue(), m_Constant(&value)))
      if (auto number = dyn_cast<FloatAttr>(value))
        misfitPad =
            !fitsHalf(DenseElementsAttr::get(RankedTensorType::get({}, number.getType()), number));
  }

  if (op->getNumResults() == 1 && countsSamples(op->getResult(0)))
    return decide(State::follow, "a number of samples: follows its consumers");
  if (forces[op] == Forced::f32)
    return decide(State::f32, "--keep-fp32");
  if (misfit || misfitPad)
    return decide(State::f32, "a constant does not fit " + halfName);
  if (forces[op] == Forced::half && kind != PrecisionKind::loss)
    return decide(State::half, "--allow-half");
  if (isa<arith::ExtFOp, arith::TruncFOp, arith::SIToFPOp, arith::UIToFPOp>(op))
    return decide(State::f32, "an explicit cast");
  switch (decision.precision) {
  case H:
    return decide(State::half, "half operands, f32 accumulation");
  case F:
    return decide(State::f32, "f32 by its class");
  case FHalf: {
    bool half = llvm::any_of(op->getResults(), [&](Value v) { return wanted.lookup(v); });
    return decide(half ? State::half : State::f32,
                  half ? "f32 inside, a consumer computes in half"
                       : "f32 inside, no consumer computes in half");
  }
  case P:
  case K:
    break;
  }
  if (isLookup(op) && state(op->getOperand(0)) == State::follow) {
    bool feeds = feedsLibrary(op->getOperand(0));
    return decide(feeds ? State::half : State::f32,
                  feeds ? "the table also feeds a product" : "a lookup table stays f32");
  }
  if (!inputs.any) {
    bool follows = decision.precision == K;
    if (follows)
      misfits[op->getResult(0)] = inputs.misfit;
    return decide(follows ? State::follow : State::f32,
                  follows ? "of parameters and constants: follows its consumers"
                          : "of parameters and constants alone");
  }
  if (inputs.allHalf)
    return decide(State::half,
                  decision.precision == K ? "follows its producer" : "all float inputs are half");
  return decide(State::f32, inputs.f32Name + " is f32");
}

// Values inside a node stay f32; views have their operands' type where that is possible.
void PrecisionPlan::decideStored(Operation *op) {
  PrecisionKind kind = precisionKind(op);
  for (Value v : op->getResults()) {
    if (state(v) != State::half)
      continue;
    bool inside = (kind == PrecisionKind::elementwise || kind == PrecisionKind::sum ||
                   kind == PrecisionKind::view) &&
                  isInternal(v);
    if (inside && kind == PrecisionKind::view)
      inside = llvm::any_of(viewOperands(op), [&](unsigned i) {
        return state(op->getOperand(i)) != State::follow && !storedHalf(op->getOperand(i));
      });
    stored[v] = !inside;
  }
  // An input that --allow-half names is read as if it were half; the rounding is at its uses.
}
