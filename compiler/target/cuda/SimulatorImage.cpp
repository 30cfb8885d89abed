//===- SimulatorImage.cpp - GPU kernels as code of this CPU, for the simulator ------------===//
//
//   %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()     %t = call i32 @mpc_sim_tid_x()
//   %v = load float, ptr addrspace(3) %p           →   call void @mpc_sim_access(ptr %p, i32 4, i32
//   0, i32 4)
//                                                      %v = load float, ptr %p
//
// Every access is announced, so that the simulator can tell what lies outside of a buffer and
// which threads race for a byte. The kernels are otherwise not touched: their index
// arithmetic and their synchronization are what runs on a GPU. Mathematics of NVIDIA's device
// library is the C library's.
//
//===--------------------------------------------------------------------------------------===//

#include "compiler/target/cuda/SimulatorImage.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cpu/Machine.h"
#include "runtime/sim/Image.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/ReplaceConstant.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include <map>

using namespace llvm;

namespace mpc {

namespace {
constexpr unsigned kSharedSpace = 3;

class SimulatorCode {
public:
  explicit SimulatorCode(Module &module)
      : module(module), context(module.getContext()), i32(Type::getInt32Ty(context)),
        pointer(PointerType::getUnqual(context)) {}

  Error convert();

private:
  struct Kernel {
    Function *function;
    bool synchronizes = false;
    uint64_t sharedBytes = 0;
    AllocaInst *words = nullptr; ///< what a lane brings to tensor cores and gets from them
  };

  Value *call(IRBuilder<> &b, StringRef name, Type *result, ArrayRef<Value *> arguments);
  Error replaceIntrinsic(IntrinsicInst &intrinsic, Kernel &kernel);
  void replaceLibraryFunctions();
  void replaceRoundings(Kernel &kernel);
  void replaceShared(Kernel &kernel, GlobalVariable &shared);
  Value *words(Kernel &kernel, IRBuilder<> &b, ArrayRef<Value *> values);
  Value *resultWords(Kernel &kernel, IRBuilder<> &b, Type *result);
  void announce(Kernel &kernel);
  void announce(Instruction &access, Value *address, Value *bytes, bool isStore, Align alignment);
  Constant *text(StringRef value);
  Function *caller(Function &kernel);
  Constant *parameterBytes(Function &kernel);
  void addTable(ArrayRef<Kernel> kernels);

  Module &module;
  LLVMContext &context;
  Type *i32;
  PointerType *pointer;
};
} // namespace

Value *SimulatorCode::call(IRBuilder<> &b, StringRef name, Type *result,
                           ArrayRef<Value *> arguments) {
  SmallVector<Type *> types;
  for (Value *argument : arguments)
    types.push_back(argument->getType());
  return b.CreateCall(module.getOrInsertFunction(name, FunctionType::get(result, types, false)),
                      arguments);
}

/// The kernel's array of words, filled with these values of 32 bits each.
Value *SimulatorCode::words(Kernel &kernel, IRBuilder<> &b, ArrayRef<Value *> values) {
  constexpr unsigned kWords = 12;
  if (!kernel.words) {
    IRBuilder<> entry(&*kernel.function->getEntryBlock().getFirstInsertionPt());
    kernel.words = entry.CreateAlloca(ArrayType::get(i32, kWords));
  }
  for (auto [i, value] : enumerate(values))
    b.CreateStore(b.CreateBitCast(value, i32), b.CreateConstInBoundsGEP1_32(i32, kernel.words, i));
  return kernel.words;
}

/// The first words as the structure that an intrinsic returns.
Value *SimulatorCode::resultWords(Kernel &kernel, IRBuilder<> &b, Type *result) {
  Value *all = PoisonValue::get(result);
  for (unsigned i = 0; i < result->getStructNumElements(); ++i) {
    Value *word = b.CreateLoad(result->getStructElementType(i),
                               b.CreateConstInBoundsGEP1_32(i32, kernel.words, i));
    all = b.CreateInsertValue(all, word, i);
  }
  return all;
}

/// What the simulator calls the intrinsic of an mma.sync.
static uint32_t multiplication(Intrinsic::ID mma) {
  switch (mma) {
  case Intrinsic::nvvm_mma_m16n8k16_row_col_bf16:
    return MPC_SIM_M16N8K16_BF16;
  case Intrinsic::nvvm_mma_m16n8k8_row_col_f32_f32:
    return MPC_SIM_M16N8K8;
  case Intrinsic::nvvm_mma_m8n8k4_row_col_f32_f32:
    return MPC_SIM_M8N8K4;
  case Intrinsic::nvvm_mma_m8n8k4_row_row_f32_f32:
    return MPC_SIM_M8N8K4 + MPC_SIM_ROW_B;
  case Intrinsic::nvvm_mma_m8n8k4_col_col_f32_f32:
    return MPC_SIM_M8N8K4 + MPC_SIM_COLUMN_A;
  case Intrinsic::nvvm_mma_m8n8k4_col_row_f32_f32:
    return MPC_SIM_M8N8K4 + MPC_SIM_COLUMN_A + MPC_SIM_ROW_B;
  default:
    return MPC_SIM_M16N8K16_F16;
  }
}

Error SimulatorCode::replaceIntrinsic(IntrinsicInst &intrinsic, Kernel &kernel) {
  static const std::map<Intrinsic::ID, StringRef> registers = {
      {Intrinsic::nvvm_read_ptx_sreg_tid_x, "mpc_sim_tid_x"},
      {Intrinsic::nvvm_read_ptx_sreg_tid_y, "mpc_sim_tid_y"},
      {Intrinsic::nvvm_read_ptx_sreg_tid_z, "mpc_sim_tid_z"},
      {Intrinsic::nvvm_read_ptx_sreg_ctaid_x, "mpc_sim_ctaid_x"},
      {Intrinsic::nvvm_read_ptx_sreg_ctaid_y, "mpc_sim_ctaid_y"},
      {Intrinsic::nvvm_read_ptx_sreg_ctaid_z, "mpc_sim_ctaid_z"}};
  IRBuilder<> b(&intrinsic);
  auto argument = [&](unsigned i) { return intrinsic.getArgOperand(i); };
  auto number = [&](uint32_t value) -> Value * { return b.getInt32(value); };
  Value *replacement = nullptr;
  if (auto entry = registers.find(intrinsic.getIntrinsicID()); entry != registers.end()) {
    replacement = call(b, entry->second, i32, {});
  } else if (intrinsic.getIntrinsicID() == Intrinsic::nvvm_ex2_approx_ftz) {
    // Subnormal results are zero.
    Value *power = b.CreateUnaryIntrinsic(Intrinsic::exp2, argument(0));
    Type *type = power->getType();
    replacement = b.CreateSelect(b.CreateFCmpOLT(power, ConstantFP::get(type, 0x1p-126)),
                                 ConstantFP::get(type, 0), power);
  } else {
    kernel.synchronizes = true;
    switch (intrinsic.getIntrinsicID()) {
    case Intrinsic::nvvm_shfl_sync_bfly_i32:
      replacement = call(b, "mpc_sim_shuffle", i32,
                         {number(MPC_SIM_BUTTERFLY), argument(0), argument(1), argument(2)});
      break;
    case Intrinsic::nvvm_shfl_sync_idx_i32:
      replacement = call(b, "mpc_sim_shuffle", i32,
                         {number(MPC_SIM_INDEX), argument(0), argument(1), argument(2)});
      break;
    case Intrinsic::nvvm_vote_ballot_sync:
      replacement = call(b, "mpc_sim_ballot", i32, {argument(0), b.CreateZExt(argument(1), i32)});
      break;
    case Intrinsic::nvvm_barrier_cta_sync_aligned_all:
      replacement = call(b, "mpc_sim_barrier", Type::getVoidTy(context), {});
      break;
    case Intrinsic::nvvm_bar_warp_sync:
      replacement = call(b, "mpc_sim_warp_barrier", Type::getVoidTy(context), {argument(0)});
      break;
    case Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32:
    case Intrinsic::nvvm_mma_m16n8k16_row_col_bf16:
    case Intrinsic::nvvm_mma_m16n8k8_row_col_f32_f32:
    case Intrinsic::nvvm_mma_m8n8k4_row_col_f32_f32:
    case Intrinsic::nvvm_mma_m8n8k4_row_row_f32_f32:
    case Intrinsic::nvvm_mma_m8n8k4_col_col_f32_f32:
    case Intrinsic::nvvm_mma_m8n8k4_col_row_f32_f32: {
      Value *lane = words(kernel, b, SmallVector<Value *>(intrinsic.args()));
      call(b, "mpc_sim_multiply", Type::getVoidTy(context),
           {number(multiplication(intrinsic.getIntrinsicID())), lane});
      replacement = resultWords(kernel, b, intrinsic.getType());
      break;
    }
    case Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16:
    case Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16: {
      bool transposed =
          intrinsic.getIntrinsicID() == Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16;
      Value *row = b.CreateAddrSpaceCast(argument(0), pointer);
      call(b, "mpc_sim_load_matrices", Type::getVoidTy(context),
           {number(transposed), row, words(kernel, b, {})});
      replacement = resultWords(kernel, b, intrinsic.getType());
      break;
    }
    default:
      return createStringError("the simulator does not know " +
                               Intrinsic::getBaseName(intrinsic.getIntrinsicID()) + " in kernel " +
                               kernel.function->getName());
    }
  }
  intrinsic.replaceAllUsesWith(replacement);
  intrinsic.eraseFromParent();
  return Error::success();
}

/// float __nv_powf(float, float) is float powf(float, float).
void SimulatorCode::replaceLibraryFunctions() {
  for (Function &function : make_early_inc_range(module)) {
    StringRef name = function.getName();
    if (!function.isDeclaration() || !name.consume_front("__nv_"))
      continue;
    if (name != "rsqrt" && name != "rsqrtf") {
      function.replaceAllUsesWith(
          module.getOrInsertFunction(name, function.getFunctionType()).getCallee());
      continue;
    }
    for (User *user : make_early_inc_range(function.users())) {
      auto *call = cast<CallInst>(user);
      IRBuilder<> b(call);
      Value *root = b.CreateUnaryIntrinsic(Intrinsic::sqrt, call->getArgOperand(0));
      call->replaceAllUsesWith(b.CreateFDiv(ConstantFP::get(call->getType(), 1), root));
      call->eraseFromParent();
    }
  }
}

void SimulatorCode::replaceRoundings(Kernel &kernel) {
  for (Instruction &instruction : make_early_inc_range(instructions(*kernel.function))) {
    auto *round = dyn_cast<FPTruncInst>(&instruction);
    if (!round || !round->getType()->isBFloatTy() || !round->getSrcTy()->isFloatTy())
      continue;
    IRBuilder<> b(round);
    Value *bits = call(b, "mpc_sim_round_bf16", b.getInt16Ty(), {round->getOperand(0)});
    round->replaceAllUsesWith(b.CreateBitCast(bits, round->getType()));
    round->eraseFromParent();
  }
}

/// Uses of the block's shared memory in this kernel.
void SimulatorCode::replaceShared(Kernel &kernel, GlobalVariable &shared) {
  Value *base = nullptr;
  for (Use &use : make_early_inc_range(shared.uses())) {
    auto *user = cast<Instruction>(use.getUser());
    if (user->getFunction() != kernel.function)
      continue;
    if (!base) {
      IRBuilder<> b(&*kernel.function->getEntryBlock().getFirstInsertionPt());
      base = b.CreateAddrSpaceCast(call(b, "mpc_sim_shared", pointer, {}), shared.getType());
      kernel.sharedBytes = module.getDataLayout().getTypeAllocSize(shared.getValueType());
    }
    use.set(base);
  }
}

void SimulatorCode::announce(Instruction &access, Value *address, Value *bytes, bool isStore,
                             Align alignment) {
  if (isa<AllocaInst>(getUnderlyingObject(address)))
    return;
  IRBuilder<> b(&access);
  if (address->getType() != pointer)
    address = b.CreateAddrSpaceCast(address, pointer);
  call(b, "mpc_sim_access", Type::getVoidTy(context),
       {address, bytes, b.getInt32(isStore), b.getInt32(alignment.value())});
}

void SimulatorCode::announce(Kernel &kernel) {
  const DataLayout &layout = module.getDataLayout();
  auto size = [&](Type *type) { return ConstantInt::get(i32, layout.getTypeStoreSize(type)); };
  for (Instruction &instruction : make_early_inc_range(instructions(*kernel.function))) {
    if (auto *load = dyn_cast<LoadInst>(&instruction))
      announce(*load, load->getPointerOperand(), size(load->getType()), false, load->getAlign());
    else if (auto *store = dyn_cast<StoreInst>(&instruction))
      announce(*store, store->getPointerOperand(), size(store->getValueOperand()->getType()), true,
               store->getAlign());
    else if (auto *memory = dyn_cast<MemIntrinsic>(&instruction)) {
      IRBuilder<> b(memory);
      Value *bytes = b.CreateTrunc(memory->getLength(), i32);
      announce(*memory, memory->getRawDest(), bytes, true, Align());
      if (auto *transfer = dyn_cast<MemTransferInst>(memory))
        announce(*memory, transfer->getRawSource(), bytes, false, Align());
    }
  }
}

Constant *SimulatorCode::text(StringRef value) {
  Constant *data = ConstantDataArray::getString(context, value);
  return new GlobalVariable(module, data->getType(), /*isConstant=*/true,
                            GlobalValue::PrivateLinkage, data);
}

/// void caller(void **parameters): parameters[i] points to argument i, as in cuLaunchKernel.
Function *SimulatorCode::caller(Function &kernel) {
  Function *function =
      Function::Create(FunctionType::get(Type::getVoidTy(context), {pointer}, false),
                       GlobalValue::InternalLinkage, kernel.getName() + ".call", module);
  IRBuilder<> b(BasicBlock::Create(context, "", function));
  SmallVector<Value *> arguments;
  for (Argument &argument : kernel.args()) {
    Value *slot = b.CreateLoad(
        pointer, b.CreateConstInBoundsGEP1_64(pointer, function->getArg(0), argument.getArgNo()));
    bool isByValue = argument.hasByValAttr();
    arguments.push_back(isByValue ? slot : b.CreateLoad(argument.getType(), slot));
  }
  b.CreateCall(&kernel, arguments);
  b.CreateRetVoid();
  return function;
}

/// A structure by value is where the caller has it.
static void passByReference(Function &kernel) {
  for (Argument &argument : kernel.args())
    if (argument.hasByValAttr())
      kernel.removeParamAttr(argument.getArgNo(), Attribute::ByVal);
}

Constant *SimulatorCode::parameterBytes(Function &kernel) {
  SmallVector<uint32_t> bytes;
  for (Argument &argument : kernel.args())
    bytes.push_back(module.getDataLayout().getTypeAllocSize(
        argument.hasByValAttr() ? argument.getParamByValType() : argument.getType()));
  Constant *data = ConstantDataArray::get(context, bytes);
  return new GlobalVariable(module, data->getType(), /*isConstant=*/true,
                            GlobalValue::PrivateLinkage, data);
}

/// MpcSimKernel mpc_sim_kernels[], ended by one without a name.
void SimulatorCode::addTable(ArrayRef<Kernel> kernels) {
  auto *type = StructType::get(context, {pointer, pointer, i32, i32, i32, i32, pointer});
  SmallVector<Constant *> entries;
  auto number = [&](uint64_t value) { return ConstantInt::get(i32, value); };
  for (const Kernel &kernel : kernels) {
    uint64_t threads = 0;
    Attribute required = kernel.function->getFnAttribute("nvvm.reqntid");
    if (required.isValid())
      required.getValueAsString().split(',').first.getAsInteger(10, threads);
    entries.push_back(ConstantStruct::get(
        type, {text(kernel.function->getName()), caller(*kernel.function),
               number(kernel.function->arg_size()), number(kernel.synchronizes),
               number(kernel.sharedBytes), number(threads), parameterBytes(*kernel.function)}));
  }
  entries.push_back(Constant::getNullValue(type));
  auto *array = ArrayType::get(type, entries.size());
  new GlobalVariable(module, array, /*isConstant=*/true, GlobalValue::ExternalLinkage,
                     ConstantArray::get(array, entries), "mpc_sim_kernels");
}

Error SimulatorCode::convert() {
  SmallVector<Kernel> kernels;
  for (Function &function : module)
    if (function.getCallingConv() == CallingConv::PTX_Kernel)
      kernels.push_back({&function});
  SmallVector<GlobalVariable *> shared;
  for (GlobalVariable &global : module.globals())
    if (global.getAddressSpace() == kSharedSpace)
      shared.push_back(&global);
  SmallVector<Constant *> constants(shared.begin(), shared.end());
  convertUsersOfConstantsToInstructions(constants);
  replaceLibraryFunctions();
  for (Kernel &kernel : kernels) {
    for (GlobalVariable *global : shared)
      replaceShared(kernel, *global);
    for (Instruction &instruction : make_early_inc_range(instructions(*kernel.function)))
      if (auto *intrinsic = dyn_cast<IntrinsicInst>(&instruction);
          intrinsic && intrinsic->getCalledFunction()->getName().starts_with("llvm.nvvm."))
        if (Error error = replaceIntrinsic(*intrinsic, kernel))
          return error;
    replaceRoundings(kernel);
    announce(kernel);
  }
  for (GlobalVariable *global : shared)
    global->eraseFromParent();
  addTable(kernels);
  for (Kernel &kernel : kernels)
    passByReference(*kernel.function);
  for (Function &function : module) {
    function.setCallingConv(CallingConv::C);
    function.removeFnAttr("target-cpu");
    function.removeFnAttr("target-features");
    if (function.isDeclaration())
      continue;
    function.addFnAttr(Attribute::NoUnwind);
    if (function.hasExternalLinkage())
      function.setLinkage(GlobalValue::InternalLinkage);
    for (BasicBlock &block : function)
      for (Instruction &instruction : block)
        if (auto *callee = dyn_cast<CallBase>(&instruction))
          callee->setCallingConv(CallingConv::C);
  }
  return Error::success();
}

Expected<std::string> compileSimulatorImage(const Module &device) {
  std::unique_ptr<Module> module = CloneModule(device);
  auto cpu = describeCpu("native");
  if (!cpu)
    return cpu.takeError();
  auto machine = createMachine(*cpu, 2);
  if (!machine)
    return machine.takeError();
  module->setTargetTriple((*machine)->getTargetTriple());
  module->setDataLayout((*machine)->createDataLayout());
  if (Error error = SimulatorCode(*module).convert())
    return error;

  SmallString<128> object, image;
  int descriptor = -1;
  std::error_code code = sys::fs::createTemporaryFile("mpc-sim", "o", descriptor, object);
  if (!code)
    code = sys::fs::createTemporaryFile("mpc-sim", "so", image);
  FileRemover removeObject(object), removeImage(image);
  if (code)
    return createStringError("cannot make a temporary file: " + code.message());
  {
    raw_fd_ostream stream(descriptor, /*shouldClose=*/true);
    if (Error error = writeNative(*module, **machine, /*assembly=*/false, stream))
      return error;
    stream.flush();
    if (stream.has_error()) {
      code = stream.error();
      stream.clear_error();
      return createStringError("cannot write " + object.str() + ": " + code.message());
    }
  }
  ErrorOr<std::string> linker = sys::findProgramByName("ld");
  if (!linker)
    return createStringError("--simulate needs the linker ld on PATH");
  StringRef arguments[] = {*linker, "-shared", "-o", image, object};
  std::string message;
  if (sys::ExecuteAndWait(*linker, arguments, std::nullopt, {}, 0, 0, &message) != 0)
    return createStringError("linking the simulator's image failed" +
                             (message.empty() ? "" : ": " + message));
  auto bytes = MemoryBuffer::getFile(image, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!bytes)
    return createStringError("cannot read " + image.str() + ": " + bytes.getError().message());
  return (*bytes)->getBuffer().str();
}

} // namespace mpc
