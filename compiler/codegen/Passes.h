//===- Passes.h - from kernels to the LLVM dialect ------------------------------------===//

#ifndef MPC_CODEGEN_PASSES_H
#define MPC_CODEGEN_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Pass/Pass.h"

namespace mlir {
class LLVMTypeConverter;
}

namespace mpc {

/// What the CPU converts by an instruction of its own; the rest becomes integer arithmetic.
struct HalfSupport {
  bool f16 = false;   ///< F16C: f16 from and to f32
  bool bf16 = false;  ///< AVX512-BF16 or AVX-NE-CONVERT: f32 to bf16
  int bf16Width = 16; ///< elements that the latter rounds at once
};

/// Writes the functions of all kernels of `module` (of those in the table of kernelIndex) and
/// lowers them to the LLVM dialect. Everything else is erased from the module.
std::unique_ptr<mlir::Pass> createConvertKernelsToLLVM(HalfSupport half = {});

/// exp, expm1, log, log1p, tanh and erf of f32 by polynomials that LLVM vectorizes.
void populateMathApproximations(mlir::RewritePatternSet &patterns);
/// Conversions of halves by integer arithmetic where the CPU has no instruction.
void populateHalfConversions(mlir::RewritePatternSet &patterns, HalfSupport half);

/// Operations on scalars that LLVM has no good form of, in terms of others; and the conversion of
/// the rest to the LLVM dialect, which all targets share.
void populateScalarExpansions(mlir::RewritePatternSet &patterns, HalfSupport half);
void populateScalarLowering(mlir::LLVMTypeConverter &types, mlir::RewritePatternSet &patterns);

/// Makes --convert-kernels-to-llvm and --convert-kernels-to-nvvm known to mpc-opt.
void registerCodegenPasses();

} // namespace mpc

#endif // MPC_CODEGEN_PASSES_H
