//===- MpcDialect.h - the core-level dialect ----------------------------------===//
//
// Operations, attributes and interfaces of the `mpc` dialect, as declared in the .td
// files beside this one. An operation's methods stand in compiler/ops/, one file per
// family.
//
//===----------------------------------------------------------------------===//

#ifndef MPC_DIALECT_MPCDIALECT_H
#define MPC_DIALECT_MPCDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "MpcDialect.h.inc"
#include "MpcEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "MpcAttrs.h.inc"
#include "MpcInterfaces.h.inc"
#define GET_OP_CLASSES
#include "MpcOps.h.inc"

#endif // MPC_DIALECT_MPCDIALECT_H
