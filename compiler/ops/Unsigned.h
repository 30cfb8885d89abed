//===- Unsigned.h - unsigned integers, held in signed types ---------------------===//
//
// An unsigned integer of n bits is held in the signed type of 2n bits, in which comparisons,
// divisions and conversions are right as they are; what computes is reduced modulo 2ⁿ
// afterwards. 64 bits have no wider type: where order or size matters, handlers ask isUint64.
// Memory that the host sees (inputs, outputs, large constants) has n bits.
//
//===----------------------------------------------------------------------------===//

#ifndef MPC_OPS_UNSIGNED_H
#define MPC_OPS_UNSIGNED_H

#include "OnnxConversion.h"

namespace mpc {

/// Beside a node's ONNX attributes, and of a constant of @graph, an array: the bits of each result
/// that is an unsigned integer, 0 of the others. Of the module, the names of @graph's arguments and
/// results that are.
inline constexpr llvm::StringLiteral kUnsignedAttr = "mpc.unsigned";

/// The bits of a value of @graph if it is an unsigned integer, else 0.
unsigned unsignedBits(mlir::Value v);
bool isUint64(NodeContext &node, unsigned operand);

/// An argument's n bits in the type that holds them.
mlir::Value held(mlir::OpBuilder &b, mlir::Location loc, mlir::Value v);
/// A node's result as its type has it: modulo 2ⁿ.
mlir::Value wrapped(NodeContext &node, mlir::Value v, unsigned bits);
/// The sign bit inverted, so that signed comparisons give the order of uint64; its own inverse.
mlir::Value flipped(mlir::OpBuilder &b, mlir::Location loc, mlir::Value v);
/// castTo of a value of the type of `operand`.
mlir::Value castOperand(NodeContext &node, unsigned operand, mlir::Value v, mlir::Type to);
/// Floats from 0 to 2⁶⁴ as uint64.
mlir::Value castToUint64(NodeContext &node, mlir::Value v);

/// False after an error: the operator reads a uint64 and is not known to be right for every one.
bool checkUint64(NodeContext &node);

} // namespace mpc

#endif // MPC_OPS_UNSIGNED_H
