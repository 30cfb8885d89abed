//===- ConvertKernelsToNVVM.cpp - from kernels to GPU functions of the LLVM dialect -------===//
//
//   func.func private @k0(%x: tensor<64x512xf32>) -> tensor<64x512xf16> attributes {mpc.kernel = …}
//
// becomes scalar code of one thread (GpuEmitter.h), then
//
//   llvm.func @k0(!llvm.ptr {llvm.noalias}, …)
//       attributes {nvvm.kernel, nvvm.minctasm = 2, nvvm.reqntid = [256, 1, 1]}
//
// A library command becomes a function that computes it without a library (Product.h).
// Mathematics that the approximations of the CPU do not cover is libdevice's (__nv_powf, …).
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/ConvertKernelsToNVVM.h"
#include "compiler/codegen/gpu/GpuEmitter.h"
#include "compiler/codegen/gpu/Product.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace mpc::gpu {

namespace {
struct ConvertKernelsToNVVM : PassWrapper<ConvertKernelsToNVVM, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ConvertKernelsToNVVM)
  ConvertKernelsToNVVM() = default;
  ConvertKernelsToNVVM(const ConvertKernelsToNVVM &other) : PassWrapper(other) {}
  explicit ConvertKernelsToNVVM(HalfSupport half) { bf16 = half.bf16; }

  StringRef getArgument() const override { return "convert-kernels-to-nvvm"; }
  StringRef getDescription() const override {
    return "Kernels become GPU functions of the LLVM dialect; everything else is erased";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                    LLVM::LLVMDialect, math::MathDialect, NVVM::NVVMDialect, scf::SCFDialect>();
  }

  Option<bool> bf16{*this, "bf16", llvm::cl::desc("The GPU rounds to bf16 (sm_80 and later)"),
                    llvm::cl::init(true)};
  Option<bool> scalar{*this, "scalar", llvm::cl::desc("Stop at the scalar code of a thread"),
                      llvm::cl::init(false)};

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(writeKernels(module)))
      return signalPassFailure();
    if (!scalar && failed(lower(module)))
      signalPassFailure();
  }

private:
  LogicalResult writeKernels(ModuleOp module);
  LogicalResult lower(ModuleOp module);
};
} // namespace

namespace {
/// What a GPU has an instruction for needs no library.
template <typename From, typename To> struct ToInstruction : OpConversionPattern<From> {
  ToInstruction(MLIRContext *context) : OpConversionPattern<From>(context, /*benefit=*/20) {}
  LogicalResult matchAndRewrite(From op, typename From::Adaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<To>(op, op.getType(), adaptor.getOperands());
    return success();
  }
};
} // namespace

/// a · b + c · d may become fma(a, b, c · d) or fma(c, d, a · b). LLVM would choose by what happens
/// to stand around it: an element's bits would depend on how many a thread computes together. The
/// second product keeps its rounding.
static void chooseContractions(ModuleOp module) {
  module.walk([](Operation *op) {
    if (!isa<arith::AddFOp, arith::SubFOp>(op))
      return;
    auto first = op->getOperand(0).getDefiningOp<arith::MulFOp>();
    auto second = op->getOperand(1).getDefiningOp<arith::MulFOp>();
    if (first && second && first != second)
      second.setFastmath(second.getFastmath() & ~arith::FastMathFlags::contract);
  });
}

LogicalResult ConvertKernelsToNVVM::writeKernels(ModuleOp module) {
  SmallVector<Operation *> old;
  for (Operation &op : *module.getBody())
    old.push_back(&op);
  for (func::FuncOp kernel : distinctKernels(kernelIndex(module)))
    if (failed(emitKernel(kernel)))
      return failure();
  bool isFailed = false;
  for (Operation *command : distinctProducts(module))
    isFailed |= failed(emitProduct(command, /*tensorCores=*/bf16));
  if (isFailed)
    return failure();
  for (Operation *op : llvm::reverse(old))
    op->erase();
  chooseContractions(module);
  return success();
}

LogicalResult ConvertKernelsToNVVM::lower(ModuleOp module) {
  MLIRContext *context = &getContext();
  RewritePatternSet expansions(context);
  populateScalarExpansions(expansions, {/*f16=*/true, bf16});
  if (failed(applyPatternsGreedily(module, std::move(expansions))))
    return failure();

  LowerToLLVMOptions options(context);
  LLVMTypeConverter types(context, options);
  RewritePatternSet patterns(context);
  populateScalarLowering(types, patterns);
  populateLibDeviceConversionPatterns(types, patterns, /*benefit=*/10);
  patterns
      .add<ToInstruction<math::AbsFOp, LLVM::FAbsOp>, ToInstruction<math::SqrtOp, LLVM::SqrtOp>,
           ToInstruction<math::FloorOp, LLVM::FFloorOp>, ToInstruction<math::CeilOp, LLVM::FCeilOp>,
           ToInstruction<math::TruncOp, LLVM::FTruncOp>,
           ToInstruction<math::RoundEvenOp, LLVM::RoundEvenOp>,
           ToInstruction<math::CopySignOp, LLVM::CopySignOp>,
           ToInstruction<math::FmaOp, LLVM::FMAOp>>(context);
  LLVMConversionTarget target(*context);
  target.addLegalOp<ModuleOp>();
  target.addLegalDialect<NVVM::NVVMDialect>();
  if (failed(applyFullConversion(module, target, std::move(patterns))))
    return failure();
  // Told for how many blocks of a multiprocessor registers have to suffice, ptxas uses what that
  // leaves; else it spills a few for still more blocks.
  constexpr int32_t kResidentBlocks = 2;
  for (auto function : module.getOps<LLVM::LLVMFuncOp>()) {
    auto threads = dyn_cast_or_null<IntegerAttr>(function->removeAttr(kThreadsAttr));
    if (!threads)
      continue;
    OpBuilder b(function);
    int32_t blocks = function->removeAttr(kRegistersFirstAttr) ? 1 : kResidentBlocks;
    function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
    function->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                      b.getDenseI32ArrayAttr({static_cast<int32_t>(threads.getInt()), 1, 1}));
    function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(blocks));
    // Tables by value are read where they are.
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (function.getArgAttr(i, LLVM::LLVMDialect::getByValAttrName()))
        function.setArgAttr(i, NVVM::NVVMDialect::getGridConstantAttrName(), b.getUnitAttr());
  }
  return success();
}

std::unique_ptr<Pass> createConvertKernelsToNVVM(HalfSupport half) {
  return std::make_unique<ConvertKernelsToNVVM>(half);
}

void registerConvertKernelsToNVVM() { PassRegistration<ConvertKernelsToNVVM>(); }

} // namespace mpc::gpu
