//===- Plan.cpp - a region and an offset for every value -----------------------------===//
//
// Tensors become buffers at fixed offsets, so that a step allocates nothing and the program is
// a list of commands on addresses known at compile time. Arguments and results of entry
// functions get their place by role and name: what @gradients returns, @apply reads. A result
// that is tied to an argument is written over it, which is right once every other reader of
// the argument has run; operations are reordered to that end, and where it cannot be, a copy
// at the end of the function does it. All else shares the arena by lifetime (Arena.cpp).
//
//===--------------------------------------------------------------------------------===//

#include "compiler/codegen/Kernel.h"
#include "compiler/codegen/gpu/Group.h"
#include "compiler/codegen/gpu/LibraryCode.h"
#include "mlir/IR/SymbolTable.h"
#include "passes/Arena.h"
#include "passes/Clustering.h"
#include "passes/Grouping.h"
#include "passes/Passes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSwitch.h"
#include <map>
#include <queue>

namespace mpc {
#define GEN_PASS_DEF_PLAN
#include "Passes.h.inc"
} // namespace mpc

using namespace mlir;
using namespace mpc;

static int64_t aligned(int64_t bytes) {
  return llvm::alignTo(std::max<int64_t>(bytes, 1), kPlanAlignment);
}

static std::optional<mpc::RegionKind> regionOfRole(StringRef role) {
  return llvm::StringSwitch<std::optional<mpc::RegionKind>>(role)
      .Cases({"parameter", "statistic", "working_statistic", "optimizer_state", "half_copy",
              "loss_scale", "growth_tracker", "applied_steps", "accumulated_count"},
             mpc::RegionKind::states)
      .Cases({"input", "labels", "samples", "random_state", "hyper", "schedule", "weight_decay"},
             mpc::RegionKind::inputs)
      .Case("gradient", mpc::RegionKind::gradients)
      .Case("accumulator", mpc::RegionKind::accumulators)
      .Case("constant", mpc::RegionKind::constants)
      .Cases({"output", "loss", "count", "correct", "ok", "grad_norm", "gradient_square_sums"},
             mpc::RegionKind::outputs)
      .Default(std::nullopt);
}

namespace {

/// The regions that outlive a call: one place per role and name.
class Regions {
public:
  explicit Regions(MLIRContext *context) : context(context) {}
  BufferAttr place(mpc::RegionKind region, const std::string &key, int64_t bytes);
  BufferAttr placeConstant(Attribute value, int64_t bytes);
  void growArena(int64_t bytes) {
    sizes[mpc::RegionKind::arena] = std::max(sizes[mpc::RegionKind::arena], bytes);
  }
  DictionaryAttr bytes() const;

private:
  MLIRContext *context;
  std::map<mpc::RegionKind, int64_t> sizes;
  std::map<std::pair<mpc::RegionKind, std::string>, std::pair<int64_t, int64_t>>
      places; // → offset, bytes
  DenseMap<Attribute, BufferAttr> constants;
};

class EntryPlan {
public:
  EntryPlan(func::FuncOp function, Regions &regions, SymbolTable &symbols, bool isGpu)
      : function(function), block(function.getBody().front()), regions(regions), symbols(symbols),
        isGpu(isGpu), b(function.getContext()) {}
  LogicalResult run();

private:
  func::FuncOp function;
  Block &block;
  Regions &regions;
  SymbolTable &symbols;
  bool isGpu;
  int64_t groups = 0;
  OpBuilder b;
  DenseMap<Value, BufferAttr> buffers; ///< of values that are no reshapes
  DenseMap<Operation *, SmallVector<Operation *>>
      before; ///< readers that have to run before an operation overwrites
  DenseMap<Value, std::pair<Value, int64_t>> places; ///< of scalars: a table, and the byte there
  DenseMap<Operation *, int64_t> memberScratch;      ///< of the launches of groups

  FailureOr<BufferAttr> placeNamed(DictionaryAttr attributes, Type type, Twine what);
  struct Target {
    BufferAttr buffer;
    BlockArgument replaced; ///< null: nothing is there before
  };
  FailureOr<Target> targetOf(unsigned i);
  LogicalResult placeArguments();
  LogicalResult placeResults();
  bool canOverwrite(OpResult result, BlockArgument argument);
  bool runsBefore(Operation *first, Operation *second);
  Value copyOf(Value v);
  void dropAliases();
  void placeTables();
  void reorder();
  void markGroup(ArrayRef<Operation *> members);
  DenseMap<Operation *, int> positions();
  int64_t scratchOf(Operation *op);
  void placeArena();
  void annotate();
};

struct Plan : mpc::impl::PlanBase<Plan> {
  using PlanBase::PlanBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    Regions regions(&getContext());
    SmallVector<func::FuncOp> entries;
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal() && !function->hasAttr(MpcDialect::kKernelAttr))
        entries.push_back(function);
    for (func::FuncOp function : entries)
      if (failed(EntryPlan(function, regions, symbols, target == "cuda").run()))
        return signalPassFailure();
    module->setAttr("mpc.region_bytes", regions.bytes());
  }
};

} // namespace

//===--------------------------------------------------------------------------------===//
// Regions
//===--------------------------------------------------------------------------------===//

BufferAttr Regions::place(mpc::RegionKind region, const std::string &key, int64_t bytes) {
  auto [it, isNew] = places.try_emplace({region, key}, std::pair(sizes[region], bytes));
  if (isNew)
    sizes[region] += aligned(bytes);
  else if (it->second.second != bytes)
    return {};
  return BufferAttr::get(context, region, it->second.first);
}

BufferAttr Regions::placeConstant(Attribute value, int64_t bytes) {
  BufferAttr &buffer = constants[value];
  if (!buffer) {
    buffer =
        BufferAttr::get(context, mpc::RegionKind::constants, sizes[mpc::RegionKind::constants]);
    sizes[mpc::RegionKind::constants] += aligned(bytes);
  }
  return buffer;
}

DictionaryAttr Regions::bytes() const {
  Builder b(context);
  SmallVector<NamedAttribute> entries;
  for (mpc::RegionKind region :
       {mpc::RegionKind::states, mpc::RegionKind::inputs, mpc::RegionKind::arena,
        mpc::RegionKind::gradients, mpc::RegionKind::accumulators, mpc::RegionKind::constants,
        mpc::RegionKind::outputs}) {
    auto it = sizes.find(region);
    entries.push_back(b.getNamedAttr(stringifyRegionKind(region),
                                     b.getI64IntegerAttr(it == sizes.end() ? 0 : it->second)));
  }
  return b.getDictionaryAttr(entries);
}

//===--------------------------------------------------------------------------------===//
// Arguments and results
//===--------------------------------------------------------------------------------===//

FailureOr<BufferAttr> EntryPlan::placeNamed(DictionaryAttr attributes, Type type, Twine what) {
  auto role = attributes ? attributes.getAs<StringAttr>(MpcDialect::kRoleAttr) : StringAttr();
  auto name = attributes ? attributes.getAs<StringAttr>(MpcDialect::kNameAttr) : StringAttr();
  std::optional<mpc::RegionKind> region = role ? regionOfRole(role.getValue()) : std::nullopt;
  if (!region) {
    function.emitOpError() << what << " has no role that the memory plan knows (mpc.role)";
    return failure();
  }
  std::string key = role.getValue().str() + "/" + (name ? name.getValue().str() : "");
  BufferAttr buffer = regions.place(*region, key, tensorBytes(type));
  if (!buffer) {
    function.emitOpError() << what << " (" << key
                           << ") has another size here than in another function";
    return failure();
  }
  return buffer;
}

LogicalResult EntryPlan::placeArguments() {
  for (BlockArgument argument : block.getArguments()) {
    unsigned i = argument.getArgNumber();
    auto buffer =
        placeNamed(function.getArgAttrDict(i), argument.getType(), "argument " + Twine(i));
    if (failed(buffer))
      return failure();
    buffers[argument] = *buffer;
    function.setArgAttr(i, MpcDialect::kBufferAttr, *buffer);
  }
  return success();
}

/// `first` already has to run before `second`: by a value, or because `second` overwrites what
/// `first` reads.
bool EntryPlan::runsBefore(Operation *first, Operation *second) {
  SmallVector<Operation *> stack = {second};
  llvm::SmallPtrSet<Operation *, 32> seen;
  while (!stack.empty()) {
    Operation *op = stack.pop_back_val();
    if (op == first)
      return true;
    if (!seen.insert(op).second)
      continue;
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        stack.push_back(producer);
    auto it = before.find(op);
    if (it != before.end())
      stack.append(it->second.begin(), it->second.end());
  }
  return false;
}

/// May the operation that makes `result` write it over `argument`? Then it runs after all readers
/// of the argument.
bool EntryPlan::canOverwrite(OpResult result, BlockArgument argument) {
  Operation *producer = result.getOwner();
  llvm::SmallSetVector<Operation *, 8> readers;
  readersOf(argument, readers);
  for (Operation *reader : readers) {
    if (isa<func::ReturnOp>(reader))
      return false;
    if (reader == producer) {
      auto launch = dyn_cast<LaunchOp>(reader);
      if (!launch)
        return false;
      ArrayRef<int64_t> aliases =
          getKernelAttr(symbols.lookup<func::FuncOp>(launch.getKernel())).getAliases().asArrayRef();
      int64_t aliased = aliases[result.getResultNumber()];
      for (auto [i, input] : llvm::enumerate(launch.getInputs()))
        if (stripReshapes(input) == argument && static_cast<int64_t>(i) != aliased)
          return false;
    } else if (runsBefore(producer, reader)) {
      return false;
    }
  }
  for (Operation *reader : readers)
    if (reader != producer)
      before[producer].push_back(reader);
  return true;
}

/// A launch of a kernel that copies `v`, in front of the return.
Value EntryPlan::copyOf(Value v) {
  Operation *terminator = block.getTerminator();
  Location loc = terminator->getLoc();
  Type type = v.getType();
  auto kernel = func::FuncOp::create(loc, "copy", b.getFunctionType(type, type));
  kernel.setPrivate();
  kernel->setAttr(MpcDialect::kKernelAttr,
                  KernelAttr::get(b.getContext(), KernelKind::map,
                                  b.getDenseI64ArrayAttr(cast<RankedTensorType>(type).getShape()),
                                  0, b.getDenseI64ArrayAttr({-1})));
  Block *body = kernel.addEntryBlock();
  b.setInsertionPointToEnd(body);
  func::ReturnOp::create(b, loc, body->getArguments());
  symbols.insert(kernel);
  b.setInsertionPoint(terminator);
  return LaunchOp::create(b, loc, type, FlatSymbolRefAttr::get(kernel.getSymNameAttr()), v)
      .getResult(0);
}

/// Where result i goes, and the argument that is there.
FailureOr<EntryPlan::Target> EntryPlan::targetOf(unsigned i) {
  if (auto tied = function.getResultAttrOfType<IntegerAttr>(i, MpcDialect::kTiedAttr)) {
    BlockArgument replaced = block.getArgument(tied.getInt());
    return Target{buffers[replaced], replaced};
  }
  Type type = block.getTerminator()->getOperand(i).getType();
  auto buffer = placeNamed(function.getResultAttrDict(i), type, "result " + Twine(i));
  if (failed(buffer))
    return failure();
  Target target{*buffer, {}};
  for (BlockArgument argument : block.getArguments())
    if (buffers[argument] == *buffer)
      target.replaced = argument;
  return target;
}

LogicalResult EntryPlan::placeResults() {
  SmallVector<Target> targets;
  llvm::SmallPtrSet<Value, 8> overwritten;
  for (OpOperand &operand : block.getTerminator()->getOpOperands()) {
    auto target = targetOf(operand.getOperandNumber());
    if (failed(target))
      return failure();
    targets.push_back(*target);
    if (target->replaced && stripReshapes(operand.get()) != target->replaced)
      overwritten.insert(target->replaced);
  }
  // An argument that is returned elsewhere and overwritten is copied first.
  for (OpOperand &operand : block.getTerminator()->getOpOperands())
    if (overwritten.contains(stripReshapes(operand.get())))
      operand.set(copyOf(operand.get()));
  for (OpOperand &operand : block.getTerminator()->getOpOperands()) {
    auto [target, replaced] = targets[operand.getOperandNumber()];
    Value base = stripReshapes(operand.get());
    bool isEmpty = cast<RankedTensorType>(base.getType()).getNumElements() == 0;
    if ((replaced && base == replaced) || isEmpty)
      continue;
    auto result = dyn_cast<OpResult>(base);
    bool direct = result && !isDataConstant(base) && !buffers.count(base) &&
                  (!replaced || canOverwrite(result, replaced));
    if (!direct) {
      operand.set(copyOf(operand.get()));
      base = operand.get();
      if (replaced && !canOverwrite(cast<OpResult>(base), replaced))
        return function.emitOpError()
               << "result " << operand.getOperandNumber() << " overwrites argument "
               << replaced.getArgNumber() << ", which another result returns as it was";
    }
    buffers[base] = target;
  }
  return success();
}

/// fuse lets a kernel write a result over an argument before anyone knows whether all other readers
/// of the argument can run first. Where they cannot, or the result's place is another one, the
/// kernel gets a buffer of its own for it.
void EntryPlan::dropAliases() {
  for (LaunchOp launch : block.getOps<LaunchOp>()) {
    auto kernel = symbols.lookup<func::FuncOp>(launch.getKernel());
    KernelAttr attribute = getKernelAttr(kernel);
    SmallVector<int64_t> aliases(attribute.getAliases().asArrayRef());
    for (auto [result, alias] : llvm::zip_equal(launch.getResults(), aliases)) {
      if (alias < 0)
        continue;
      BufferAttr place = buffers.lookup(result);
      if (!place || place != buffers.lookup(stripReshapes(launch.getInputs()[alias])))
        alias = -1;
    }
    if (ArrayRef(aliases) == attribute.getAliases().asArrayRef())
      continue;
    func::FuncOp own = kernel.clone();
    own->setAttr(MpcDialect::kKernelAttr,
                 KernelAttr::get(b.getContext(), attribute.getKind(), attribute.getDomain(),
                                 attribute.getSplit(), b.getDenseI64ArrayAttr(aliases)));
    launch.setKernelAttr(FlatSymbolRefAttr::get(symbols.insert(own)));
    if (SymbolTable::symbolKnownUseEmpty(kernel, symbols.getOp()))
      symbols.erase(kernel);
  }
}

/// A launch that does nothing but join scalars to a table, which this function alone writes, is not
/// needed where each is computed in its place. Only launches may read such a scalar: what else does
/// counts on a buffer's alignment.
void EntryPlan::placeTables() {
  if (!isGpu)
    return;
  for (LaunchOp launch : block.getOps<LaunchOp>()) {
    SmallVector<OpResult> scalars = joinedScalars(launch, symbols);
    Value table = launch->getNumResults() ? launch->getResult(0) : Value();
    auto known = buffers.find(table);
    bool isFree =
        known == buffers.end() || llvm::none_of(block.getArguments(), [&](BlockArgument argument) {
          return buffers[argument] == known->second;
        });
    bool fits = !scalars.empty() && isFree && llvm::all_of(scalars, [&](OpResult scalar) {
      llvm::SmallSetVector<Operation *, 8> readers;
      readersOf(scalar, readers);
      return !buffers.count(scalar) && !places.count(scalar) &&
             llvm::all_of(readers, llvm::IsaPred<LaunchOp>);
    });
    if (!fits)
      continue;
    int64_t bytes = tensorBytes(table.getType()) / static_cast<int64_t>(scalars.size());
    for (auto [i, scalar] : llvm::enumerate(scalars))
      places[scalar] = {table, static_cast<int64_t>(i) * bytes};
    launch->setAttr(gpu::kPlacedAttr, b.getUnitAttr());
  }
}

/// Keeps the order, but for operations that wait until what they overwrite has been read, and on a
/// GPU for launches that run together.
void EntryPlan::reorder() {
  SmallVector<Operation *> ops;
  DenseMap<Operation *, int> position;
  for (Operation &op : block.without_terminator()) {
    position[&op] = ops.size();
    ops.push_back(&op);
  }
  SmallVector<llvm::SmallSetVector<int, 4>> next(ops.size());
  SmallVector<int> waiting(ops.size(), 0);
  for (auto [i, op] : llvm::enumerate(ops)) {
    auto waitFor = [&](Operation *other) {
      if (next[position[other]].insert(i))
        ++waiting[i];
    };
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        waitFor(producer);
    for (Operation *reader : before.lookup(op))
      waitFor(reader);
  }
  // Operations that run together are one unit, the number of its first.
  SmallVector<int> unit = llvm::to_vector(llvm::seq<int>(0, ops.size()));
  if (isGpu)
    unit = groupLaunches(ops, next, symbols, [&](Value v) {
      return isa<BlockArgument>(v) || buffers.count(v) || places.count(v);
    });
  SmallVector<SmallVector<int, 1>> members(ops.size());
  std::fill(waiting.begin(), waiting.end(), 0);
  for (size_t i = 0; i < ops.size(); ++i) {
    members[unit[i]].push_back(i);
    for (int user : next[i])
      waiting[unit[user]] += unit[user] != unit[i];
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t i = 0; i < ops.size(); ++i)
    if (waiting[i] == 0 && !members[i].empty())
      ready.push(i);
  while (!ready.empty()) {
    int i = ready.top();
    ready.pop();
    SmallVector<Operation *> together;
    for (int member : members[i]) {
      together.push_back(ops[member]);
      ops[member]->moveBefore(block.getTerminator());
      for (int user : next[member])
        if (unit[user] != i && --waiting[unit[user]] == 0)
          ready.push(unit[user]);
    }
    if (together.size() > 1)
      markGroup(together);
  }
}

void EntryPlan::markGroup(ArrayRef<Operation *> members) {
  SmallVector<func::FuncOp> kernels;
  for (Operation *member : members)
    kernels.push_back(symbols.lookup<func::FuncOp>(cast<LaunchOp>(member).getKernel()));
  bool isChunked = gpu::isChunked(kernels);
  for (auto [member, kernel] : llvm::zip_equal(members, kernels)) {
    member->setAttr(gpu::kGroupAttr, b.getI64IntegerAttr(groups));
    memberScratch[member] = isChunked ? gpu::memberScratchBytes(kernel) : 0;
  }
  ++groups;
}

//===--------------------------------------------------------------------------------===//
// Arena
//===--------------------------------------------------------------------------------===//

/// Bytes that running `op` needs besides its operands and results.
int64_t EntryPlan::scratchOf(Operation *op) {
  if (auto member = memberScratch.find(op); member != memberScratch.end())
    return member->second;
  if (auto launch = dyn_cast<LaunchOp>(op)) {
    auto kernel = symbols.lookup<func::FuncOp>(launch.getKernel());
    return isGpu ? gpu::scratchBytes(kernel) : scratchBytes(kernel);
  }
  return isGpu ? gpu::libraryScratchBytes(op) : 0;
}

/// When an operation runs; those of a group at once.
DenseMap<Operation *, int> EntryPlan::positions() {
  DenseMap<Operation *, int> position;
  int now = -1;
  Attribute last;
  for (Operation &op : block) {
    Attribute group = op.getAttr(gpu::kGroupAttr);
    now += !group || group != last;
    last = group;
    position[&op] = now;
  }
  return position;
}

void EntryPlan::placeArena() {
  DenseMap<Operation *, int> position = positions();
  DenseMap<Value, std::pair<int, int>> tables; // from the first scalar's writer to the last reader
  for (auto &[scalar, place] : places) {
    int written = position.lookup(scalar.getDefiningOp());
    auto [entry, isNew] = tables.try_emplace(place.first, written, lastUse(place.first, position));
    entry->second.first = std::min(entry->second.first, written);
    entry->second.second = std::max(entry->second.second, lastUse(scalar, position));
  }
  SmallVector<ArenaValue> lifetimes;
  SmallVector<Value> values;
  SmallVector<Operation *> scratchOwners;
  for (Operation &op : block.without_terminator()) {
    if (isa<ReshapeOp, arith::ConstantOp>(op))
      continue;
    for (Value result : op.getResults()) {
      if (buffers.count(result) || places.count(result))
        continue;
      std::pair<int, int> used{position[&op], lastUse(result, position)};
      if (auto table = tables.find(result); table != tables.end())
        used = table->second;
      lifetimes.push_back({aligned(tensorBytes(result.getType())), used.first, used.second});
      values.push_back(result);
    }
  }
  for (Operation &op : block.without_terminator())
    if (int64_t bytes = scratchOf(&op)) {
      lifetimes.push_back({aligned(bytes), position[&op], position[&op]});
      scratchOwners.push_back(&op);
    }
  regions.growArena(layOutArena(lifetimes));
  for (auto [i, value] : llvm::enumerate(values))
    buffers[value] = BufferAttr::get(b.getContext(), mpc::RegionKind::arena, lifetimes[i].offset);
  for (auto &[scalar, place] : places) {
    BufferAttr table = buffers[place.first];
    buffers[scalar] =
        BufferAttr::get(b.getContext(), table.getRegion(), table.getOffset() + place.second);
  }
  for (auto [i, owner] : llvm::enumerate(scratchOwners))
    owner->setAttr("mpc.scratch", BufferAttr::get(b.getContext(), mpc::RegionKind::arena,
                                                  lifetimes[values.size() + i].offset));
}

void EntryPlan::annotate() {
  for (Operation &op : block.without_terminator()) {
    SmallVector<Attribute> own;
    for (Value result : op.getResults())
      own.push_back(buffers[stripReshapes(result)]);
    op.setAttr(MpcDialect::kBuffersAttr, b.getArrayAttr(own));
  }
}

LogicalResult EntryPlan::run() {
  for (Operation &op : block)
    if (!isa<LaunchOp, ReshapeOp, arith::ConstantOp, func::ReturnOp>(op) && !isLibraryOp(&op))
      return op.emitOpError(
          "cannot be planned: only kernels, library operations and views are left after fuse");
  for (auto constant : block.getOps<arith::ConstantOp>())
    buffers[constant] = regions.placeConstant(constant.getValue(), tensorBytes(constant.getType()));
  if (failed(placeArguments()) || failed(placeResults()))
    return failure();
  dropAliases();
  placeTables();
  reorder();
  placeArena();
  annotate();
  return success();
}
