//===- Registration.cpp - every dialect and pass of the project ----------------===//

#include "Registration.h"
#include "OnnxDialect.h"
#include "compiler/codegen/Passes.h"
#include "compiler/ops/Elementwise.h"
#include "mlir/Dialect/Func/Extensions/AllExtensions.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"

using namespace mlir;

void mpc::registerDialects(DialectRegistry &registry) {
  registry.insert<MpcDialect, onnx::OnnxDialect, arith::ArithDialect, math::MathDialect,
                  func::FuncDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  registerElementwiseModels(registry);
  registerAllExtensions(registry);
}

void mpc::registerPasses() {
  registerMpcPasses();
  registerCodegenPasses();
  registerTransformsPasses();
}
