//===- ConvertKernelsToLLVM.cpp - from kernels to the LLVM dialect ------------------------===//
//
//   func.func private @k0(%x: tensor<64x512xf32>) -> tensor<64x512xf16> attributes {mpc.kernel = …}
//
// becomes loops over pointers (Emitter.h), then
//
//   llvm.func @k0(i64, i64, !llvm.ptr)          // MpcKernel of runtime/core/Program.h
//   llvm.func @k0.body(i64, i64, !llvm.ptr {llvm.noalias}, …)
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/Emitter.h"
#include "compiler/codegen/Passes.h"
#include "compiler/codegen/gpu/ConvertKernelsToNVVM.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace mpc {

namespace {
struct ConvertKernelsToLLVM : PassWrapper<ConvertKernelsToLLVM, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ConvertKernelsToLLVM)
  ConvertKernelsToLLVM() = default;
  ConvertKernelsToLLVM(const ConvertKernelsToLLVM &other) : PassWrapper(other) {}
  explicit ConvertKernelsToLLVM(HalfSupport half) {
    f16 = half.f16;
    bf16 = half.bf16;
    bf16Width = half.bf16Width;
  }

  StringRef getArgument() const override { return "convert-kernels-to-llvm"; }
  StringRef getDescription() const override {
    return "Kernels become functions of the LLVM dialect; everything else is erased";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                    LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect>();
  }

  Option<bool> f16{*this, "f16", llvm::cl::desc("The CPU converts f16 (F16C)"),
                   llvm::cl::init(false)};
  Option<bool> bf16{*this, "bf16", llvm::cl::desc("The CPU rounds to bf16 (AVX512-BF16)"),
                    llvm::cl::init(false)};
  Option<int> bf16Width{*this, "bf16-width", llvm::cl::desc("Elements that it rounds at once"),
                        llvm::cl::init(16)};
  Option<bool> loops{*this, "loops", llvm::cl::desc("Stop at scalar loops"), llvm::cl::init(false)};

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(writeKernels(module)))
      return signalPassFailure();
    if (!loops && failed(lower(module)))
      signalPassFailure();
  }

private:
  LogicalResult writeKernels(ModuleOp module);
  LogicalResult lower(ModuleOp module);
};
} // namespace

LogicalResult ConvertKernelsToLLVM::writeKernels(ModuleOp module) {
  SmallVector<Operation *> old;
  for (Operation &op : *module.getBody())
    old.push_back(&op);
  func::FuncOp last;
  for (auto &[name, kernel] : kernelIndex(module).entries) {
    if (kernel == last)
      continue; // NAME.partial and NAME.combine come together
    last = kernel;
    if (bf16)
      kernel->setAttr(kBf16WidthAttr,
                      IntegerAttr::get(IntegerType::get(&getContext(), 32), bf16Width));
    if (failed(emitKernel(kernel)))
      return failure();
  }
  for (Operation *op : llvm::reverse(old))
    op->erase();
  return success();
}

void populateScalarExpansions(RewritePatternSet &patterns, HalfSupport half) {
  populateMathApproximations(patterns);
  populateHalfConversions(patterns, half);
  arith::populateCeilFloorDivExpandOpsPatterns(patterns);
  math::populateExpansionPatterns(patterns, {"clampf"});
}

void populateScalarLowering(LLVMTypeConverter &types, RewritePatternSet &patterns) {
  populateSCFToControlFlowConversionPatterns(patterns);
  cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
  arith::populateArithToLLVMConversionPatterns(types, patterns);
  populateMathToLLVMConversionPatterns(types, patterns, /*approximateLog1p=*/false);
  populateFuncToLLVMConversionPatterns(types, patterns);
}

namespace {
/// One instruction where the CPU has it, else two: never a call per element.
struct FmaToMultiplyAdd : OpConversionPattern<math::FmaOp> {
  FmaToMultiplyAdd(MLIRContext *context) : OpConversionPattern(context, /*benefit=*/20) {}
  LogicalResult matchAndRewrite(math::FmaOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<LLVM::FMulAddOp>(op, op.getType(), adaptor.getOperands());
    return success();
  }
};
} // namespace

LogicalResult ConvertKernelsToLLVM::lower(ModuleOp module) {
  MLIRContext *context = &getContext();
  RewritePatternSet expansions(context);
  populateScalarExpansions(expansions, {f16, bf16});
  if (failed(applyPatternsGreedily(module, std::move(expansions))))
    return failure();

  LowerToLLVMOptions options(context);
  LLVMTypeConverter types(context, options);
  RewritePatternSet patterns(context);
  populateScalarLowering(types, patterns);
  patterns.add<FmaToMultiplyAdd>(context);
  populateMathToLibmConversionPatterns(patterns, /*benefit=*/0);
  LLVMConversionTarget target(*context);
  target.addLegalOp<ModuleOp>();
  return applyFullConversion(module, target, std::move(patterns));
}

std::unique_ptr<Pass> createConvertKernelsToLLVM(HalfSupport half) {
  return std::make_unique<ConvertKernelsToLLVM>(half);
}

void registerCodegenPasses() {
  PassRegistration<ConvertKernelsToLLVM>();
  gpu::registerConvertKernelsToNVVM();
}

} // namespace mpc
