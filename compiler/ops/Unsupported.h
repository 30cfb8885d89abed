//===- Unsupported.h - errors about what mpc does not have -------------------------------===//
//
// A model that mpc does not support is no failure of mpc-run's tests, one that it reads wrongly is.
// Where an error is made it is known which of the two it is: the diagnostic carries that as
// metadata, which no message shows.
//
//===------------------------------------------------------------------------------------===//

#ifndef MPC_OPS_UNSUPPORTED_H
#define MPC_OPS_UNSUPPORTED_H

#include "mlir/IR/Diagnostics.h"

namespace mpc {

constexpr llvm::StringLiteral kUnsupportedMark = "unsupported";

/// The error names an operator, a type or a form of one that mpc does not have.
inline void markUnsupported(mlir::InFlightDiagnostic &error) {
  if (mlir::Diagnostic *diagnostic = error.getUnderlyingDiagnostic())
    diagnostic->getMetadata().emplace_back(llvm::StringRef(kUnsupportedMark));
}

inline bool isUnsupported(mlir::Diagnostic &error) {
  return llvm::any_of(error.getMetadata(), [](const mlir::DiagnosticArgument &mark) {
    return mark.getKind() == mlir::DiagnosticArgument::DiagnosticArgumentKind::String &&
           mark.getAsString() == kUnsupportedMark;
  });
}

} // namespace mpc

#endif // MPC_OPS_UNSUPPORTED_H
