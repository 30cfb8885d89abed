//===- MpcInterfaces.td - what every core operation can be asked -----------===//

#ifndef MPC_INTERFACES
#define MPC_INTERFACES

include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::mpc";
  let description = [{
    The vector-Jacobian product of an operation. Operations of `arith` and `math` have it as external models (compiler/ops/Elementwise.cpp).
  }];
  let methods = [
    InterfaceMethod<[{
      Builds the gradients of the operands. `cotangents` has one value per result, null where nothing depends on that result.
      `wanted` has one entry per operand: the element type wanted for its gradient, or null where none is wanted. Returns one value per
      operand, of the operand's shape and the wanted element type, null for an exact zero. The operation's operands and results may be
      used: they are what is saved for backward.}],
      "::llvm::SmallVector<::mlir::Value>", "vjp",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$cotangents, "::llvm::ArrayRef<::mlir::Type>":$wanted)>
  ];
}

def ExpandableOpInterface : OpInterface<"ExpandableOpInterface"> {
  let cppNamespace = "::mpc";
  let description = [{
    A composite operation that can be written in primitive ones (arith, math, index maps, reductions), which fusion and code generation
    understand. All arithmetic of the expansion is in f32 (f64 where the operands are f64); halves are widened with arith.extf first and
    results rounded once with arith.truncf.
  }];
  let methods = [
    InterfaceMethod<"Returns one value per result, of the result's type.",
      "::llvm::SmallVector<::mlir::Value>", "expand", (ins "::mlir::OpBuilder &":$builder)>
  ];
}

def CostOpInterface : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::mpc";
  let methods = [
    InterfaceMethod<"Floating-point operations of one execution (a multiply-add counts two).", "int64_t", "flops", (ins)>
  ];
}

#endif
