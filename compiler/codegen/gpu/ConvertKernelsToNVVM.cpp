//===- ConvertKernelsToNVVM.cpp - from kernels to GPU functions of the LLVM dialect -------===//
//
//   func.func private @k0(%x: tensor<64x512xf32>) -> tensor<64x512xf16> attributes {mpc.kernel = …}
//
// becomes scalar code of one thread (GpuEmitter.h), then
//
//   llvm.func @k0(!llvm.ptr {llvm.noalias}, …)
//       attributes {nvvm.kernel, nvvm.minctasm = 2, nvvm.reqntid = [256, 1, 1]}
//
// A library command becomes functions that compute it without a library (LibraryCode.h).
// Mathematics that the approximations of the CPU do not cover is libdevice's (__nv_powf, …).
//
//===----------------------------------------------------------------------------===//

#include "compiler/codegen/gpu/ConvertKernelsToNVVM.h"
#include "compiler/codegen/gpu/Architecture.h"
#include "compiler/codegen/gpu/GpuEmitter.h"
#include "compiler/codegen/gpu/LibraryCode.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace mpc::gpu {

namespace {
struct ConvertKernelsToNVVM : PassWrapper<ConvertKernelsToNVVM, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ConvertKernelsToNVVM)
  ConvertKernelsToNVVM() = default;
  ConvertKernelsToNVVM(const ConvertKernelsToNVVM &other) : PassWrapper(other) {}
  explicit ConvertKernelsToNVVM(unsigned architecture) { this->architecture = architecture; }

  StringRef getArgument() const override { return "convert-kernels-to-nvvm"; }
  StringRef getDescription() const override {
    return "Kernels become GPU functions of the LLVM dialect; everything else is erased";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                    LLVM::LLVMDialect, math::MathDialect, NVVM::NVVMDialect, scf::SCFDialect>();
  }

  Option<unsigned> architecture{*this, "architecture",
                                llvm::cl::desc("NN of sm_NN, whose instructions are used"),
                                llvm::cl::init(kFirstBf16Architecture)};
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

//===- Contraction ----------------------------------------------------------------------===//

static bool mayContract(Operation *op) {
  auto flagged = dyn_cast_or_null<arith::ArithFastMathInterface>(op);
  auto flags = flagged ? flagged.getFastMathFlagsAttr() : arith::FastMathFlagsAttr();
  return flags && bitEnumContainsAll(flags.getValue(), arith::FastMathFlags::contract);
}

namespace {
/// Decides for the whole module before anything changes.
class Contraction {
public:
  explicit Contraction(ModuleOp module);
  void run();

private:
  /// left · right, or -(left · right); null for any other value.
  struct Product {
    arith::MulFOp op;
    bool isNegative = false;
  };
  Product productIn(Value value) const;
  static bool collectSums(Value value, SmallVectorImpl<Operation *> &sums);
  void fuse(Operation *sum, unsigned at);

  SmallVector<Operation *> flagged;
  llvm::MapVector<Operation *, SmallVector<Operation *>> sumsOf; ///< of a product all of whose
                                                                 ///< readers are sums
};
} // namespace

/// The sums and differences that read the value, or its negation; false if anything else does.
bool Contraction::collectSums(Value value, SmallVectorImpl<Operation *> &sums) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (isa<arith::NegFOp>(user))
      return collectSums(user->getResult(0), sums);
    sums.push_back(user);
    return isa<arith::AddFOp, arith::SubFOp>(user) && mayContract(user);
  });
}

Contraction::Contraction(ModuleOp module) {
  module.walk([&](Operation *op) {
    if (!mayContract(op))
      return;
    flagged.push_back(op);
    SmallVector<Operation *> sums;
    bool isWide = op->getResult(0).getType().isF32() || op->getResult(0).getType().isF64();
    if (isa<arith::MulFOp>(op) && isWide && collectSums(op->getResult(0), sums))
      sumsOf[op] = std::move(sums);
  });
}

Contraction::Product Contraction::productIn(Value value) const {
  Product product;
  while (auto negation = value.getDefiningOp<arith::NegFOp>()) {
    value = negation.getOperand();
    product.isNegative = !product.isNegative;
  }
  auto op = value.getDefiningOp<arith::MulFOp>();
  if (op && sumsOf.contains(op))
    product.op = op;
  return product;
}

/// The sum and the product that its operand `at` is become one operation.
void Contraction::fuse(Operation *sum, unsigned at) {
  OpBuilder b(sum);
  auto withSign = [&](Value v, bool isNegative) -> Value {
    return isNegative ? arith::NegFOp::create(b, sum->getLoc(), v).getResult() : v;
  };
  Product product = productIn(sum->getOperand(at));
  bool isDifference = isa<arith::SubFOp>(sum);
  Value left = withSign(product.op.getLhs(), product.isNegative != (isDifference && at == 1));
  Value added = withSign(sum->getOperand(1 - at), isDifference && at == 0);
  Value fused = math::FmaOp::create(b, sum->getLoc(), left, product.op.getRhs(), added);
  sum->getResult(0).replaceAllUsesWith(fused);
}

//   a · b + c   →   fma(a, b, c)         c - a · b      →   fma(-a, b, c)
//   a · b - c   →   fma(a, b, -c)        -(a · b) + c   →   fma(-a, b, c)
//
// where nothing but such sums reads the product, so that nobody has to multiply as well. Of two
// such products in a sum, the first; a product minus itself is zero. LLVM (and ptxas) would choose
// by what happens to stand around in a block: an element's bits would depend on how many a thread
// computes together. So nothing is left to choose: no operation keeps the flag.
void Contraction::run() {
  llvm::MapVector<Operation *, unsigned> chosen; // of a sum: the operand
  for (Operation *op : flagged) {
    if (!isa<arith::AddFOp, arith::SubFOp>(op))
      continue;
    arith::MulFOp first = productIn(op->getOperand(0)).op, second = productIn(op->getOperand(1)).op;
    if (first != second)
      chosen[op] = first ? 0 : 1;
  }
  llvm::SmallPtrSet<Operation *, 16> fused;
  for (auto &[product, sums] : sumsOf)
    if (llvm::all_of(sums, [&, product = product](Operation *sum) {
          auto entry = chosen.find(sum);
          return entry != chosen.end() && productIn(sum->getOperand(entry->second)).op == product;
        }))
      fused.insert(product);
  for (auto [sum, at] : chosen)
    if (fused.contains(productIn(sum->getOperand(at)).op))
      fuse(sum, at);
  for (Operation *op : llvm::reverse(flagged)) {
    if (op->use_empty()) {
      op->erase();
      continue;
    }
    auto kept = cast<arith::ArithFastMathInterface>(op);
    arith::FastMathFlags flags = kept.getFastMathFlagsAttr().getValue();
    op->setAttr(
        kept.getFastMathAttrName(),
        arith::FastMathFlagsAttr::get(op->getContext(), flags & ~arith::FastMathFlags::contract));
  }
}

//===- Stages ---------------------------------------------------------------------------===//

LogicalResult ConvertKernelsToNVVM::writeKernels(ModuleOp module) {
  SmallVector<Operation *> old;
  for (Operation &op : *module.getBody())
    old.push_back(&op);
  for (func::FuncOp kernel : distinctKernels(kernelIndex(module)))
    if (failed(emitKernel(kernel)))
      return failure();
  bool isFailed = false;
  for (Operation *command : distinctLibraryCommands(module))
    isFailed |= failed(emitLibraryCode(command, architecture));
  if (isFailed)
    return failure();
  for (Operation *op : llvm::reverse(old))
    op->erase();
  return success();
}

LogicalResult ConvertKernelsToNVVM::lower(ModuleOp module) {
  MLIRContext *context = &getContext();
  RewritePatternSet expansions(context);
  populateScalarExpansions(expansions,
                           {/*f16=*/true, /*bf16=*/architecture >= kFirstBf16Architecture});
  if (failed(applyPatternsGreedily(module, std::move(expansions))))
    return failure();
  Contraction(module).run();

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

std::unique_ptr<Pass> createConvertKernelsToNVVM(unsigned architecture) {
  return std::make_unique<ConvertKernelsToNVVM>(architecture);
}

void registerConvertKernelsToNVVM() { PassRegistration<ConvertKernelsToNVVM>(); }

} // namespace mpc::gpu
