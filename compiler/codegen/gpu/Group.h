//===- Group.h - equal kernels of an entry point as one launch -------------------------===//
//
// An optimizer's step is the same few kernels once per parameter, and most parameters are small:
// a launch each would cost more than the work. `plan` marks launches whose kernels differ in
// their shapes alone (Uniform.h) and that nothing orders; they become one GPU function, launched
// once over the concatenation of their grids. What differs between its members lies in a table, a
// parameter passed by value, so that a step needs no work of the host:
//
//   struct { T *own[…]; uint32_t words[…]; } table[members]
//
//   map       words: first block, elements
//   reduction words: first block, elements, steps of a chunk, 0
//
// Buffers that all members share are parameters of their own, before the table.
//
//===----------------------------------------------------------------------------------===//

#ifndef MPC_CODEGEN_GPU_GROUP_H
#define MPC_CODEGEN_GPU_GROUP_H

#include "compiler/codegen/gpu/Launch.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringMap.h"

namespace mpc::gpu {

/// Of launches in a planned module: those of an entry point with the same number stand next to each
/// other and run as one.
inline constexpr llvm::StringLiteral kGroupAttr = "mpc.group";
/// Of a launch in a planned module: its operands are written where its result lies. Nothing runs.
inline constexpr llvm::StringLiteral kPlacedAttr = "mpc.placed";
/// Of a uniform kernel: the layout of the group whose code it becomes (GroupLayout).
inline constexpr llvm::StringLiteral kLayoutAttr = "mpc.group_layout";

/// What the code of a group depends on, beside its uniform kernel.
struct GroupLayout {
  int64_t members = 0;
  /// Elements that a thread has together: 2, 4 or 8. Reductions: the same in every group, so that a
  /// member's bits do not depend on the others.
  int64_t width = 1;
  bool isReduction = false;
  /// A reduction of which some member has several blocks: partial and combine.
  bool isChunked = false;
  /// Those of the kernel's distinct buffers that differ between members, ascending.
  llvm::SmallVector<int64_t> own;

  int64_t words() const { return isReduction ? 4 : 2; }
  int64_t recordBytes() const { return 8 * static_cast<int64_t>(own.size()) + 4 * words(); }
  mlir::DictionaryAttr attribute(mlir::MLIRContext *context) const;
  /// Of a uniform kernel; says what is wrong with one that has none, or one that is not for it.
  static llvm::FailureOr<GroupLayout> of(mlir::func::FuncOp uniform);
  /// Of a uniform kernel with this layout: whether it has scratch, as the last buffer.
  int64_t scratchBytes() const { return isChunked ? 8 : 0; }
};

/// The functions of a uniform kernel with this layout, with grids of no blocks: those follow from
/// the members.
llvm::SmallVector<Function, 2> groupFunctions(mlir::func::FuncOp uniform,
                                              const GroupLayout &layout);

/// Launches that run as one.
struct Group {
  llvm::SmallVector<LaunchOp> launches;
  mlir::func::FuncOp kernel; ///< uniform, with its layout; its name is the function's
  GroupLayout layout;
  llvm::SmallVector<Function, 2> functions;
  llvm::SmallVector<llvm::SmallVector<int64_t, 4>> words; ///< per launch

  /// The distinct buffers by their positions in a launch (arguments, results, scratch): those of
  /// all, in order, and those of each member.
  llvm::SmallVector<unsigned> shared, own;
};

/// The groups of a planned module, and the kernels that something launches by itself.
class GroupIndex {
public:
  explicit GroupIndex(mlir::ModuleOp planned);
  /// The group whose first launch this is, or null.
  const Group *find(LaunchOp launch) const { return byFirst.lookup(launch.getOperation()); }
  /// True of a launch that has no command of its own: it is in a group, or placed.
  static bool isSilent(LaunchOp launch) {
    return launch->hasAttr(kGroupAttr) || launch->hasAttr(kPlacedAttr);
  }
  /// The kernels that have to be compiled: all of the module but those that only silent launches
  /// name, then one for every function of a group.
  llvm::SmallVector<mlir::func::FuncOp> kernels() const;

private:
  void add(llvm::ArrayRef<LaunchOp> launches, mlir::SymbolTable &symbols);

  llvm::SmallVector<mlir::func::FuncOp> alone;
  std::vector<mlir::OwningOpRef<mlir::func::FuncOp>> uniform;
  llvm::StringMap<mlir::func::FuncOp> byText;
  std::vector<std::unique_ptr<Group>> groups;
  llvm::DenseMap<mlir::Operation *, Group *> byFirst;
};

// For `plan`.
/// True if a group of launches of these kernels, which are uniform and equal, adds up chunks.
bool isChunked(llvm::ArrayRef<mlir::func::FuncOp> kernels);
/// Bytes of scratch of a member of such a group.
int64_t memberScratchBytes(mlir::func::FuncOp kernel);
/// How many launches like these have room in a table.
size_t mostMembers(llvm::ArrayRef<LaunchOp> launches, mlir::func::FuncOp kernel);

} // namespace mpc::gpu

#endif // MPC_CODEGEN_GPU_GROUP_H
