//===- OperatorText.h - what a message says about an operation's operator -----------------===//

#ifndef MPC_OPS_OPERATORTEXT_H
#define MPC_OPS_OPERATORTEXT_H

#include "mlir/IR/Operation.h"
#include <string>

namespace mpc {

/// "(OP, opset N)" as in the messages of the conversion; without a number where the module does not
/// tell its opset (`mpc.opset`).
std::string operatorText(mlir::Operation *op);

} // namespace mpc

#endif // MPC_OPS_OPERATORTEXT_H
