//===- OnnxDialect.cpp - registration ------------------------------------------===//

#include "OnnxDialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "OnnxDialect.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "OnnxTypes.cpp.inc"
#define GET_OP_CLASSES
#include "OnnxOps.cpp.inc"

void mpc::onnx::OnnxDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "OnnxOps.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "OnnxTypes.cpp.inc"
      >();
}
