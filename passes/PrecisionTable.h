//===- PrecisionTable.h - precision class of every ONNX operator ----------------===//

#ifndef MPC_PASSES_PRECISIONTABLE_H
#define MPC_PASSES_PRECISIONTABLE_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringRef.h"

namespace mpc {

enum class PrecisionClass {
  H,     ///< half operands, f32 accumulator, one rounding at the result
  F,     ///< f32
  FHalf, ///< F°: f32 inside, result stored half where a consumer computes in half
  P,     ///< pointwise: half exactly where all float inputs are
  K,     ///< no arithmetic: the producer's type
};

struct PrecisionEntry {
  llvm::StringLiteral op; ///< ONNX operator type
  PrecisionClass precision;
  llvm::StringLiteral source; ///< who puts this operator, or the nearest one, there
};

/// Null for an operator that is not in the table.
const PrecisionEntry *findPrecision(llvm::StringRef op);
llvm::StringRef nameOf(PrecisionClass precision); ///< "H", "F", "F°", "P", "K"
/// The class of an operator, for the support table; operators outside the table are pointwise.
inline llvm::StringRef precisionClassName(llvm::StringRef op) {
  const PrecisionEntry *entry = findPrecision(op);
  return nameOf(entry ? entry->precision : PrecisionClass::P);
}

} // namespace mpc

#endif // MPC_PASSES_PRECISIONTABLE_H
