//===- OnnxDialect.h - the graph as it stands in the file ---------------------===//

#ifndef MPC_DIALECT_ONNXDIALECT_H
#define MPC_DIALECT_ONNXDIALECT_H

#include "MpcDialect.h"

#include "OnnxDialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "OnnxTypes.h.inc"
#define GET_OP_CLASSES
#include "OnnxOps.h.inc"

#endif // MPC_DIALECT_ONNXDIALECT_H
