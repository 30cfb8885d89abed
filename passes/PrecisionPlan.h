//===- PrecisionPlan.h - which values of a function are stored in half ----------===//
//
// Decides, by the rules of docs/precision-and-loss-scaling.md, without changing anything;
// assign-precision carries the plan out.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_PASSES_PRECISIONPLAN_H
#define MPC_PASSES_PRECISIONPLAN_H

#include "PrecisionTable.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Regex.h"
#include <memory>

namespace mpc {

/// What a core operation is, as far as its types are concerned.
enum class PrecisionKind {
  library,     ///< matrix products and convolutions: operands and result of one type
  norm,        ///< half or f32 in, half or f32 out, f32 inside
  view,        ///< index maps, selections and pooling: the result has the operands' type
  sum,         ///< f32 accumulator and result
  loss,        ///< class-label losses: f32 results
  elementwise, ///< everything else: f32 arithmetic
};
PrecisionKind precisionKind(mlir::Operation *op);
/// The operands of a view whose type the result has.
llvm::SmallVector<unsigned> viewOperands(mlir::Operation *op);

/// --keep-fp32 or --allow-half.
struct PrecisionOverride {
  std::vector<std::shared_ptr<llvm::Regex>> regexes;
  llvm::StringSet<> nodes; ///< named by a result or a constant, which the importer has found

  bool names(llvm::StringRef name) const {
    return !name.empty() &&
           (nodes.contains(name) || llvm::any_of(regexes, [&](auto &r) { return r->match(name); }));
  }
};
struct PrecisionOverrides {
  PrecisionOverride keepFp32, allowHalf;
};

class PrecisionPlan {
public:
  /// What a value is by the rules. follow: parameters, constants and index maps of these have no
  /// type of their own.
  enum class State { none, half, f32, follow };
  struct Decision {
    PrecisionClass precision = PrecisionClass::K;
    std::string reason;
  };

  PrecisionPlan(mlir::func::FuncOp f, mlir::Type half, const PrecisionOverrides &overrides);

  State state(mlir::Value v) const { return states.lookup(v); }
  /// The value is rounded to half where it is made. (A value inside a node that consists of several
  /// operations stays f32.)
  bool storedHalf(mlir::Value v) const { return stored.lookup(v); }
  const Decision *decision(mlir::Operation *op) const;
  /// An operation on f32 values: others (of a model that has halves or doubles itself) are left as
  /// they are.
  static bool concerns(mlir::Operation *op);

private:
  enum class Forced { no, f32, half };
  struct Inputs { // the float inputs of an operation that have a type of their own
    bool any = false, allHalf = true, misfit = false;
    std::string f32Name;
  };

  void decideArguments();
  void decideWanted();
  void decideOperation(mlir::Operation *op);
  void decideStored(mlir::Operation *op);
  PrecisionClass classOf(mlir::Operation *op, PrecisionKind kind);
  Forced forced(mlir::Operation *op);
  Inputs inputsOf(mlir::Operation *op, llvm::ArrayRef<unsigned> operands);
  bool fitsHalf(llvm::APFloat x);
  bool fitsHalf(mlir::Attribute constant);
  bool isStatic(mlir::Value v);
  bool countsSamples(mlir::Value v);
  bool feedsLibrary(mlir::Value table);
  bool isLookup(mlir::Operation *op);
  bool isInternal(mlir::Value v);
  std::string describe(mlir::Value v);

  mlir::func::FuncOp f;
  mlir::FloatType half;
  const PrecisionOverrides &overrides;
  llvm::DenseMap<mlir::Value, State> states;
  llvm::DenseMap<mlir::Value, bool> wanted, stored, statics, counts, misfits;
  llvm::DenseMap<mlir::Operation *, Decision> decisions;
  llvm::DenseMap<mlir::Operation *, Forced> forces;
};

} // namespace mpc

#endif // MPC_PASSES_PRECISIONPLAN_H
