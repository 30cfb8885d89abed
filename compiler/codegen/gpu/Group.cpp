//===- Group.cpp - equal kernels of an entry point as one launch -----------------------===//

#include "compiler/codegen/gpu/Group.h"
#include "compiler/codegen/Access.h"
#include "compiler/codegen/gpu/Uniform.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/STLExtras.h"
#include <numeric>

using namespace mlir;

namespace mpc::gpu {

// What a kernel's parameters may be together, from PTX 8.1 on (before: 4352 bytes).
constexpr int64_t kParameterBytes = 32764;
/// Bytes of a partial result, whatever its type.
constexpr int64_t kPartialBytes = 8;

//===- Layout ---------------------------------------------------------------------------===//

DictionaryAttr GroupLayout::attribute(MLIRContext *context) const {
  Builder b(context);
  return b.getDictionaryAttr({b.getNamedAttr("members", b.getI64IntegerAttr(members)),
                              b.getNamedAttr("width", b.getI64IntegerAttr(width)),
                              b.getNamedAttr("reduction", b.getBoolAttr(isReduction)),
                              b.getNamedAttr("chunked", b.getBoolAttr(isChunked)),
                              b.getNamedAttr("own", b.getDenseI64ArrayAttr(own))});
}

FailureOr<GroupLayout> GroupLayout::of(func::FuncOp uniform) {
  auto refuse = [&](const Twine &why) -> FailureOr<GroupLayout> {
    uniform.emitOpError() << kLayoutAttr << ": " << why << " (launches with " << kGroupAttr
                          << " give their kernel a layout)";
    return failure();
  };
  auto attribute = uniform->getAttrOfType<DictionaryAttr>(kLayoutAttr);
  if (!attribute)
    return refuse("is no dictionary");
  auto members = attribute.getAs<IntegerAttr>("members"),
       width = attribute.getAs<IntegerAttr>("width");
  auto isReduction = attribute.getAs<BoolAttr>("reduction"),
       isChunked = attribute.getAs<BoolAttr>("chunked");
  auto own = attribute.getAs<DenseI64ArrayAttr>("own");
  if (!members || !width || !isReduction || !isChunked || !own)
    return refuse("has not all of members, width, reduction, chunked, own");
  GroupLayout layout{members.getInt(), width.getInt(), isReduction.getValue(), isChunked.getValue(),
                     llvm::to_vector(own.asArrayRef())};

  KernelAttr kernel = getKernelAttr(uniform);
  if (!kernel || kernel.getDomain().asArrayRef() != ArrayRef<int64_t>{kUniformElements} ||
      kernel.getKind() != (layout.isReduction ? KernelKind::column : KernelKind::map))
    return refuse("is not for this kernel");
  if (layout.members < 1 || !llvm::is_contained({2, 4, 8}, layout.width) ||
      (layout.isChunked && !layout.isReduction))
    return refuse("there is no such group");
  auto buffers = static_cast<int64_t>(distinctBuffers(uniform, layout.scratchBytes()).size());
  for (auto [i, buffer] : llvm::enumerate(layout.own))
    if (buffer < 0 || buffer >= buffers || (i > 0 && buffer <= layout.own[i - 1]))
      return refuse("own is no ascending list of the kernel's buffers");
  return layout;
}

static int64_t elementsIn(func::FuncOp kernel) {
  return elementsOf(getKernelAttr(kernel).getDomain().asArrayRef());
}

/// Of what has an element per element of the domain.
static int64_t wideAccess(func::FuncOp uniform) {
  return elementsPerAccess(uniform, kUniformElements);
}

/// What a block takes in a step: each thread an access.
static int64_t stepElements(int64_t width) { return kBlockThreads * width; }

/// Steps of a chunk, from the member's size alone.
static int64_t chunkSteps(int64_t elements, int64_t width) {
  int64_t wanted =
      std::max(kChunkElements, static_cast<int64_t>(llvm::divideCeil(elements, kMaxChunks)));
  return llvm::divideCeil(wanted, stepElements(width));
}

bool isChunked(ArrayRef<func::FuncOp> kernels) {
  return getKernelAttr(kernels.front()).getKind() != KernelKind::map &&
         llvm::any_of(kernels,
                      [](func::FuncOp kernel) { return elementsIn(kernel) > kChunkElements; });
}

int64_t memberScratchBytes(func::FuncOp kernel) {
  OwningOpRef<func::FuncOp> uniform = uniformKernel(kernel);
  int64_t width = wideAccess(*uniform), elements = elementsIn(kernel);
  int64_t reductions = llvm::range_size(uniform->getOps<ReduceOp>());
  int64_t chunks = llvm::divideCeil(elements, chunkSteps(elements, width) * stepElements(width));
  return chunks * reductions * kPartialBytes;
}

//===- Buffers --------------------------------------------------------------------------===//

/// Of a kernel's distinct buffers, those that are another one in some launch: all results and
/// scratch, and arguments that are not the same everywhere.
static SmallVector<int64_t> ownBuffers(ArrayRef<LaunchOp> launches, func::FuncOp kernel,
                                       int64_t scratch) {
  ArrayRef<int64_t> aliases = getKernelAttr(kernel).getAliases().asArrayRef();
  SmallVector<int64_t> own;
  for (auto [i, buffer] : llvm::enumerate(distinctBuffers(kernel, scratch))) {
    unsigned position = buffer.position;
    bool isShared = position < kernel.getNumArguments() &&
                    !llvm::is_contained(aliases, static_cast<int64_t>(position)) &&
                    llvm::all_of(
                        launches,
                        [&](LaunchOp launch) {
                          return stripReshapes(launch.getInputs()[position]) ==
                                 stripReshapes(LaunchOp(launches.front()).getInputs()[position]);
                        });
    if (!isShared)
      own.push_back(i);
  }
  return own;
}

size_t mostMembers(ArrayRef<LaunchOp> launches, func::FuncOp kernel) {
  GroupLayout layout;
  layout.isReduction = getKernelAttr(kernel).getKind() != KernelKind::map;
  int64_t scratch = layout.isReduction ? kPartialBytes : 0;
  layout.own = ownBuffers(launches, kernel, scratch);
  int64_t shared = distinctBuffers(kernel, scratch).size() - layout.own.size();
  int64_t room = std::max<int64_t>(0, kParameterBytes - 8 * shared);
  return room / layout.recordBytes();
}

//===- Functions ------------------------------------------------------------------------===//

SmallVector<Function, 2> groupFunctions(func::FuncOp uniform, const GroupLayout &layout) {
  std::string name = uniform.getName().str();
  if (!layout.isReduction)
    return {{name, 0, kBlockThreads}};
  int64_t ofWarps = sharedBytes(uniform, kBlockThreads / kWarp);
  if (!layout.isChunked)
    return {{name, 0, kBlockThreads, ofWarps}};
  return {{name + "$partial", 0, kBlockThreads, ofWarps}, {name + "$combine", 0, kWarp}};
}

/// Grids and words of a group whose kernel and layout are known.
static void placeMembers(Group &group, ArrayRef<int64_t> elements) {
  const GroupLayout &layout = group.layout;
  group.functions = groupFunctions(group.kernel, layout);
  int64_t blocks = 0;
  for (int64_t n : elements) {
    int64_t steps = layout.isReduction ? chunkSteps(n, layout.width) : 1;
    group.words.push_back({blocks, n});
    if (layout.isReduction)
      group.words.back().append({steps, 0});
    bool isOneBlock = layout.isReduction && !layout.isChunked;
    blocks += isOneBlock ? 1 : llvm::divideCeil(n, steps * stepElements(layout.width));
  }
  group.functions.front().grid = blocks;
  if (layout.isChunked)
    group.functions.back().grid = layout.members;
}

//===- Index ----------------------------------------------------------------------------===//

void GroupIndex::add(ArrayRef<LaunchOp> launches, SymbolTable &symbols) {
  auto kernelOf = [&](LaunchOp launch) { return symbols.lookup<func::FuncOp>(launch.getKernel()); };
  SmallVector<func::FuncOp> kernels = llvm::map_to_vector(launches, kernelOf);
  OwningOpRef<func::FuncOp> made = uniformKernel(kernels.front());
  auto group = std::make_unique<Group>();
  group->launches.assign(launches.begin(), launches.end());
  GroupLayout &layout = group->layout;
  layout.members = launches.size();
  layout.isReduction = getKernelAttr(*made).getKind() != KernelKind::map;
  layout.isChunked = isChunked(kernels);
  layout.own = ownBuffers(launches, kernels.front(), layout.scratchBytes());
  SmallVector<int64_t> elements = llvm::map_to_vector(kernels, elementsIn);
  layout.width = wideAccess(*made);
  // Never less than 16 bytes of f32.
  int64_t total = std::accumulate(elements.begin(), elements.end(), int64_t(0));
  while (!layout.isReduction && layout.width > kAccessBytes / 4 &&
         total / layout.width < kFillThreads)
    layout.width /= 2;

  made.get()->setAttr(kLayoutAttr, layout.attribute(made->getContext()));
  made->setName("kernel");
  std::string text;
  llvm::raw_string_ostream(text) << *made;
  func::FuncOp &known = byText[text];
  if (!known) {
    std::string name = (kernels.front().getName() + "$group").str();
    if (llvm::any_of(uniform, [&](const auto &other) { return other.get().getName() == name; }))
      name += std::to_string(uniform.size());
    made->setName(name);
    known = *made;
    uniform.push_back(std::move(made));
  }
  group->kernel = known;
  placeMembers(*group, elements);
  for (auto [i, buffer] :
       llvm::enumerate(distinctBuffers(kernels.front(), layout.scratchBytes()))) {
    bool isOwn = llvm::is_contained(layout.own, static_cast<int64_t>(i));
    (isOwn ? group->own : group->shared).push_back(buffer.position);
  }
  byFirst[group->launches.front()] = group.get();
  groups.push_back(std::move(group));
}

GroupIndex::GroupIndex(ModuleOp planned) {
  SymbolTable symbols(planned);
  KernelIndex table = kernelIndex(planned);
  // By the table's entry: equal kernels share their functions.
  auto entryOf = [&](LaunchOp launch) {
    auto kernel = symbols.lookup<func::FuncOp>(launch.getKernel());
    return table.index.lookup(kernelFunctions(kernel)[0].name);
  };
  DenseSet<unsigned> launched, silent;
  for (auto entry : planned.getOps<func::FuncOp>()) {
    if (entry.isExternal() || getKernelAttr(entry))
      continue;
    SmallVector<LaunchOp> members;
    int64_t number = -1;
    auto finish = [&] {
      if (!members.empty())
        add(members, symbols);
      members.clear();
    };
    for (LaunchOp launch : entry.getOps<LaunchOp>()) {
      (isSilent(launch) ? silent : launched).insert(entryOf(launch));
      auto own = launch->getAttrOfType<IntegerAttr>(kGroupAttr);
      if (!own || own.getInt() != number)
        finish();
      if (own)
        members.push_back(launch);
      number = own ? own.getInt() : -1;
    }
    finish();
  }
  for (func::FuncOp kernel : distinctKernels(table)) {
    unsigned index = table.index.lookup(kernelFunctions(kernel)[0].name);
    if (launched.contains(index) || !silent.contains(index))
      alone.push_back(kernel);
  }
}

SmallVector<func::FuncOp> GroupIndex::kernels() const {
  SmallVector<func::FuncOp> all(alone);
  for (const OwningOpRef<func::FuncOp> &kernel : uniform)
    all.push_back(*kernel);
  return all;
}

} // namespace mpc::gpu
