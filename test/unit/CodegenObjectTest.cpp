//===- CodegenObjectTest.cpp - the object file that defines mpc_program --------------===//

#include "KernelRunner.h"
#include "runtime/core/Program.h"
#include "llvm/Support/FileSystem.h"

using namespace mpc::test;

namespace {
/// Kernel number i adds i to every element.
std::string addingKernels(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text +=
        "func.func private @k" + std::to_string(i) +
        R"((%x: tensor<100xf32>) -> tensor<100xf32> attributes {mpc.kernel = #mpc.kernel<map, domain = [100], split = 0, aliases = [-1]>} {
      %c = arith.constant dense<)" +
        std::to_string(i) + R"(.0> : tensor<100xf32>
      %0 = arith.addf %x, %c : tensor<100xf32>
      return %0 : tensor<100xf32>
    })" +
        "\n";
  return text;
}

const mpc::MakeDevice kNoDevice = nullptr;

struct LoadedProgram {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  const MpcProgram *program = nullptr;
};

LoadedProgram compileAndLoad(int kernels, unsigned threads, const std::string &json,
                             const std::string &bytes) {
  mlir::MLIRContext context;
  context.loadDialect<mpc::MpcDialect, mlir::arith::ArithDialect, mlir::math::MathDialect,
                      mlir::func::FuncDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(addingKernels(kernels), &context);
  llvm::SmallString<128> object, data;
  llvm::sys::fs::createTemporaryFile("program", "o", object);
  llvm::sys::fs::createTemporaryFile("program data", "bin", data); // with a space
  {
    std::error_code error;
    llvm::raw_fd_ostream(data, error) << bytes;
  }
  mpc::CpuTargetOptions options;
  options.threads = threads;
  llvm::Error error =
      mpc::emitProgramObject(*module, {json, data.str().str(), bytes.size()}, options, object);
  LoadedProgram loaded;
  if (error) {
    ADD_FAILURE() << llvm::toString(std::move(error));
    return loaded;
  }
  loaded.jit = llvm::cantFail(llvm::orc::LLJITBuilder().create());
  // The runtime's, which a trainer is linked with.
  llvm::cantFail(loaded.jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(
      {{loaded.jit->mangleAndIntern("mpc_make_cpu_device"),
        {llvm::orc::ExecutorAddr::fromPtr(&kNoDevice), llvm::JITSymbolFlags::Exported}}})));
  auto buffer = llvm::MemoryBuffer::getFile(object);
  llvm::cantFail(loaded.jit->addObjectFile(std::move(*buffer)));
  loaded.program = llvm::cantFail(loaded.jit->lookup("mpc_program")).toPtr<const MpcProgram *>();
  llvm::sys::fs::remove(object);
  llvm::sys::fs::remove(data);
  return loaded;
}
} // namespace

// One part, and several parts joined: the same table, text and data.
TEST(CodegenObject, DefinesTheProgram) {
  for (auto [kernels, threads] : {std::pair(3, 1u), std::pair(40, 2u)}) {
    SCOPED_TRACE(kernels);
    std::string json = R"({"abi": 1})", bytes(10000, 'w');
    LoadedProgram loaded = compileAndLoad(kernels, threads, json, bytes);
    ASSERT_TRUE(loaded.program);
    const MpcProgram &program = *loaded.program;
    EXPECT_EQ(program.abi, MPC_PROGRAM_ABI);
    EXPECT_EQ(program.kernel_count, uint32_t(kernels));
    EXPECT_EQ(program.make_device, &kNoDevice);
    EXPECT_EQ(std::string(program.json, program.json_size), json);
    EXPECT_EQ(std::string(reinterpret_cast<const char *>(program.data), program.data_size), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(program.data) % 64, 0u);
    Storage x(400), y(400);
    for (int k = 0; k < kernels; ++k) {
      std::fill_n(x.as<float>(), 100, 2.0f);
      void *buffers[] = {x.data(), y.data()};
      program.kernels[k](10, 90, buffers);
      EXPECT_EQ(y.as<float>()[10], 2.0f + k);
      EXPECT_EQ(y.as<float>()[89], 2.0f + k);
    }
  }
}

// Errors name the file.
TEST(CodegenObject, ReportsWhatItCannotWrite) {
  mlir::MLIRContext context;
  context.loadDialect<mpc::MpcDialect, mlir::arith::ArithDialect, mlir::math::MathDialect,
                      mlir::func::FuncDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(addingKernels(1), &context);
  llvm::Error error = mpc::emitProgramObject(*module, {"{}", "", 0}, {}, "/nonexistent/program.o");
  EXPECT_NE(llvm::toString(std::move(error)).find("/nonexistent/program.o"), std::string::npos);
}
