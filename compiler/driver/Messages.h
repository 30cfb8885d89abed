//===- Messages.h - diagnostics as users read them ------------------------------------------===//

#ifndef MPC_DRIVER_MESSAGES_H
#define MPC_DRIVER_MESSAGES_H

#include "mlir/IR/Diagnostics.h"

namespace mpc {

/// The diagnostic's text: tensor types as 'float32[2, 3]'; control characters, and bytes that are
/// no UTF-8, of names in the model as \xNN.
std::string messageText(const mlir::Diagnostic &diagnostic);

/// Only the escaping.
std::string printable(llvm::StringRef text);

} // namespace mpc

#endif // MPC_DRIVER_MESSAGES_H
