//===- MpcOps.td - all operations of the mpc dialect --------------------------===//

include "MpcDialect.td"
include "MpcInterfaces.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"

include "ElementwiseOps.td"
include "ShapeOps.td"
include "ReductionOps.td"
include "LinearOps.td"
include "AttentionOps.td"
include "NormOps.td"
include "PoolOps.td"
include "ProgramOps.td"
