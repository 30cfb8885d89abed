//===- FunctionArguments.h - arguments and results by role and name ------------===//
//
// A core-level function says what each argument and result is by `mpc.role` and
// `mpc.name` (docs/architecture.md, "Function arguments"). Passes find, add and remove
// them through these functions, so that the attributes never get out of step.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_PASSES_FUNCTIONARGUMENTS_H
#define MPC_PASSES_FUNCTIONARGUMENTS_H

#include "MpcDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include <optional>

namespace mpc {

mlir::StringRef argumentRole(mlir::func::FuncOp f, unsigned i); ///< empty without one
mlir::StringRef argumentName(mlir::func::FuncOp f, unsigned i);
mlir::StringRef resultRole(mlir::func::FuncOp f, unsigned i);
mlir::StringRef resultName(mlir::func::FuncOp f, unsigned i);
std::optional<int64_t> tiedArgument(mlir::func::FuncOp f, unsigned result); ///< mpc.tied

/// The argument of that role and name; any name where `name` is empty; null if there is none.
mlir::Value findArgument(mlir::func::FuncOp f, mlir::StringRef role, mlir::StringRef name = "");
/// All arguments of a role, in order.
llvm::SmallVector<mlir::BlockArgument> argumentsOf(mlir::func::FuncOp f, mlir::StringRef role);

/// Appends an argument. `weights`: where its initial data lie (may be null).
mlir::Value addArgument(mlir::func::FuncOp f, mlir::StringRef role, mlir::StringRef name,
                        mlir::Type type, mlir::Attribute weights = {});
/// findArgument, or else addArgument.
mlir::Value getOrAddArgument(mlir::func::FuncOp f, mlir::StringRef role, mlir::StringRef name,
                             mlir::Type type, mlir::Attribute weights = {});
void setArgumentRole(mlir::func::FuncOp f, unsigned i, mlir::StringRef role);

/// Appends a result. `tied`: the argument it replaces (may be null).
void addResult(mlir::func::FuncOp f, mlir::Value value, mlir::StringRef role, mlir::StringRef name,
               mlir::Value tied = {});
/// Removes all results for which `drop` is true, from the terminator too.
void removeResults(mlir::func::FuncOp f, llvm::function_ref<bool(unsigned)> drop);

/// Removes arguments that have no use and no tied result, but inputs and labels, which the caller
/// passes in any case.
void removeUnusedArguments(mlir::func::FuncOp f);

/// A function of the module, null if absent.
mlir::func::FuncOp findFunction(mlir::ModuleOp module, mlir::StringRef name);
/// An empty public function without arguments and results, at the end of the module.
mlir::func::FuncOp createFunction(mlir::ModuleOp module, mlir::StringRef name);
mlir::Operation *terminatorOf(mlir::func::FuncOp f);
/// Erases operations without uses and effects.
void eraseDeadOperations(mlir::func::FuncOp f);

/// A tensor of floats (others have neither a precision nor a gradient).
bool isFloatTensor(mlir::Value v);
/// The argument that a value is, seen through casts and index maps of one operand; null for others.
mlir::BlockArgument argumentBehind(mlir::Value v);

/// Appends a line to the module's `mpc.notes`, which the user sees.
void addNote(mlir::ModuleOp module, const llvm::Twine &note);

/// Marks every operation that a builder inserts with the node and operator of `origin`.
struct NodeAttributeListener : mlir::OpBuilder::Listener {
  mlir::Attribute node, op;
  void setOrigin(mlir::Operation *origin);
  void notifyOperationInserted(mlir::Operation *inserted,
                               mlir::OpBuilder::InsertPoint previous) override;
};

} // namespace mpc

#endif // MPC_PASSES_FUNCTIONARGUMENTS_H
