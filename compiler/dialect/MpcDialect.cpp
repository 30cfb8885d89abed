//===- MpcDialect.cpp - registration of operations and attributes -------------===//

#include "MpcDialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "MpcDialect.cpp.inc"
#include "MpcEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "MpcAttrs.cpp.inc"
#include "MpcInterfaces.cpp.inc"
#define GET_OP_CLASSES
#include "MpcOps.cpp.inc"

namespace mpc {

void MpcDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "MpcOps.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "MpcAttrs.cpp.inc"
      >();
}

Operation *MpcDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type,
                                           Location loc) {
  return arith::ConstantOp::materialize(builder, value, type, loc);
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel = symbols.lookupNearestSymbolFrom<FunctionOpInterface>(*this, getKernelAttr());
  if (!kernel)
    return emitOpError("launches ") << getKernel() << ", which is not a function of this module";
  if (kernel.getArgumentTypes() != getOperandTypes() || kernel.getResultTypes() != getResultTypes())
    return emitOpError("has other operand or result types than ") << getKernel();
  return success();
}

} // namespace mpc
