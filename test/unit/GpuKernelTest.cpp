//===- GpuKernelTest.cpp - GPU kernels on the simulator: sizes that matter on a GPU ---------===//
//
// CodegenTest.cpp runs in this program too, on the simulator. Here are the shapes that choose
// another grid: wide accesses, long rows, many chunks.
//
//===--------------------------------------------------------------------------------------===//

#include "KernelRunner.h"
#include "llvm/Support/FileSystem.h"

using namespace mpc::test;

namespace {
std::string filled(std::string text,
                   std::initializer_list<std::pair<const char *, std::string>> words) {
  for (auto &[key, value] : words)
    for (size_t at; (at = text.find(key)) != std::string::npos;)
      text.replace(at, std::strlen(key), value);
  return text;
}

const char *const kSoftmax = R"(
    func.func private @k(%x: tensor<ROWSxCOLSxTYPE>) -> (tensor<ROWSxCOLSxTYPE>, tensor<ROWSxf32>)
        attributes {mpc.kernel = #mpc.kernel<row, domain = [ROWS, COLS], split = 1, aliases = [ALIAS, -1]>} {
      %0 = arith.extf %x : tensor<ROWSxCOLSxTYPE> to tensor<ROWSxCOLSxf32>
      %1 = mpc.reduce max %0 {axes = array<i64: 1>} : tensor<ROWSxCOLSxf32> -> tensor<ROWSxf32>
      %2 = mpc.broadcast %1 {dimensions = array<i64: 0>} : tensor<ROWSxf32> -> tensor<ROWSxCOLSxf32>
      %3 = arith.subf %0, %2 : tensor<ROWSxCOLSxf32>
      %4 = math.exp %3 : tensor<ROWSxCOLSxf32>
      %5 = mpc.reduce sum %4 {axes = array<i64: 1>} : tensor<ROWSxCOLSxf32> -> tensor<ROWSxf32>
      %6 = mpc.broadcast %5 {dimensions = array<i64: 0>} : tensor<ROWSxf32> -> tensor<ROWSxCOLSxf32>
      %7 = arith.divf %4, %6 : tensor<ROWSxCOLSxf32>
      %8 = arith.truncf %7 : tensor<ROWSxCOLSxf32> to tensor<ROWSxCOLSxTYPE>
      %9 = math.log %5 : tensor<ROWSxf32>
      return %8, %9 : tensor<ROWSxCOLSxTYPE>, tensor<ROWSxf32>
    })";
} // namespace

// Rows of a warp, of a block whose threads keep them, and of a block that reads them again; counts
// that no access width divides; one row; in place.
TEST(GpuKernel, RowsOfEveryLength) {
  struct Shape {
    int rows, columns;
  };
  for (Shape shape : {Shape{3, 1}, Shape{1, 1}, Shape{9, 31}, Shape{2, 333}, Shape{17, 1024},
                      Shape{2, 1025}, Shape{1, 7}, Shape{1, 5000}, Shape{2, 8192}, Shape{2, 9001}})
    for (const char *type : {"f16", "bf16"})
      for (const char *alias : {"-1", "0"}) {
        SCOPED_TRACE(std::to_string(shape.rows) + " " + std::to_string(shape.columns) + " " + type);
        expectMatchesReference(filled(kSoftmax, {{"ROWS", std::to_string(shape.rows)},
                                                 {"COLS", std::to_string(shape.columns)},
                                                 {"TYPE", type},
                                                 {"ALIAS", alias}}),
                               3, 1e-5);
      }
}

// An argument with one element per row is overwritten by a result of that shape: every thread of
// the row's group has read it before.
TEST(GpuKernel, NarrowResultInPlace) {
  for (const char *columns : {"40", "3000"})
    expectMatchesReference(filled(R"(
    func.func private @k(%x: tensor<5xCOLSxf32>, %m: tensor<5xf32>) -> (tensor<5xCOLSxf32>, tensor<5xf32>)
        attributes {mpc.kernel = #mpc.kernel<row, domain = [5, COLS], split = 1, aliases = [-1, 1]>} {
      %0 = mpc.broadcast %m {dimensions = array<i64: 0>} : tensor<5xf32> -> tensor<5xCOLSxf32>
      %1 = arith.mulf %x, %0 : tensor<5xCOLSxf32>
      %2 = mpc.reduce sum %1 {axes = array<i64: 1>} : tensor<5xCOLSxf32> -> tensor<5xf32>
      %3 = arith.addf %2, %m : tensor<5xf32>
      return %1, %3 : tensor<5xCOLSxf32>, tensor<5xf32>
    })",
                                  {{"COLS", columns}}),
                           3, 1e-4);
}

// Enough elements for 16-byte accesses in halves, of every kind of type at once.
TEST(GpuKernel, LargeMaps) {
  for (const char *size : {"262144", "4099"})
    expectMatchesReference(filled(R"(
    func.func private @k(%x: tensor<8xSIZExf16>, %m: tensor<8xSIZExi1>, %b: tensor<SIZExbf16>) -> (tensor<8xSIZExf16>, tensor<8xSIZExi1>)
        attributes {mpc.kernel = #mpc.kernel<map, domain = [8, SIZE], split = 1, aliases = [0, -1]>} {
      %0 = arith.extf %x : tensor<8xSIZExf16> to tensor<8xSIZExf32>
      %1 = mpc.broadcast %b {dimensions = array<i64: 1>} : tensor<SIZExbf16> -> tensor<8xSIZExbf16>
      %2 = arith.extf %1 : tensor<8xSIZExbf16> to tensor<8xSIZExf32>
      %3 = arith.addf %0, %2 : tensor<8xSIZExf32>
      %z = arith.constant dense<0.0> : tensor<8xSIZExf32>
      %4 = arith.cmpf ogt, %3, %z : tensor<8xSIZExf32>
      %5 = arith.andi %4, %m : tensor<8xSIZExi1>
      %6 = arith.select %5, %3, %z : tensor<8xSIZExi1>, tensor<8xSIZExf32>
      %7 = arith.truncf %6 : tensor<8xSIZExf32> to tensor<8xSIZExf16>
      return %7, %5 : tensor<8xSIZExf16>, tensor<8xSIZExi1>
    })",
                                  {{"SIZE", size}}));
}

// Columns: fewer than a warp has lanes, an odd count, several stripes of them; rows for one chunk
// and for many. Several sums in one reading; what follows from them is computed by the second
// function.
TEST(GpuKernel, ColumnsOfEveryShape) {
  struct Shape {
    int rows, columns;
  };
  for (Shape shape : {Shape{3, 2}, Shape{700, 5}, Shape{1, 40}, Shape{300, 257}, Shape{5000, 10},
                      Shape{64, 4096}, Shape{65, 1030}}) {
    SCOPED_TRACE(std::to_string(shape.rows) + " " + std::to_string(shape.columns));
    expectMatchesReference(
        filled(R"(
    func.func private @k(%x: tensor<ROWSxCOLSxf16>, %y: tensor<ROWSxCOLSxf32>, %old: tensor<COLSxf32>) -> (tensor<COLSxf32>, tensor<COLSxf32>, tensor<COLSxf16>)
        attributes {mpc.kernel = #mpc.kernel<column, domain = [ROWS, COLS], split = 1, aliases = [2, -1, -1]>} {
      %0 = arith.extf %x : tensor<ROWSxCOLSxf16> to tensor<ROWSxCOLSxf32>
      %1 = arith.mulf %0, %y : tensor<ROWSxCOLSxf32>
      %2 = mpc.reduce sum %0 {axes = array<i64: 0>} : tensor<ROWSxCOLSxf32> -> tensor<COLSxf32>
      %3 = mpc.reduce sum %1 {axes = array<i64: 0>} : tensor<ROWSxCOLSxf32> -> tensor<COLSxf32>
      %4 = mpc.reduce max %y {axes = array<i64: 0>} : tensor<ROWSxCOLSxf32> -> tensor<COLSxf32>
      %5 = arith.addf %2, %old : tensor<COLSxf32>
      %6 = arith.mulf %3, %2 : tensor<COLSxf32>
      %7 = arith.truncf %4 : tensor<COLSxf32> to tensor<COLSxf16>
      return %5, %6, %7 : tensor<COLSxf32>, tensor<COLSxf32>, tensor<COLSxf16>
    })",
               {{"ROWS", std::to_string(shape.rows)}, {"COLS", std::to_string(shape.columns)}}),
        3, 1e-4);
  }
}

// More sums of f64 in one reading than shared memory has room for at the widest accesses.
TEST(GpuKernel, ManySumsOfColumns) {
  std::string body, results, types;
  for (int i = 0; i < 9; ++i) {
    std::string n = std::to_string(i);
    body += "%f" + n + " = arith.constant dense<" + n + ".5> : tensor<40x512xf64>\n" + "%m" + n +
            " = arith.mulf %w, %f" + n + " : tensor<40x512xf64>\n" + "%s" + n +
            " = mpc.reduce sum %m" + n +
            " {axes = array<i64: 0>} : tensor<40x512xf64> -> tensor<512xf64>\n";
    results += (i ? ", %s" : "%s") + n;
    types += i ? ", tensor<512xf64>" : "tensor<512xf64>";
  }
  expectMatchesReference(filled(R"(
    func.func private @k(%x: tensor<40x512xf16>) -> (TYPES)
        attributes {mpc.kernel = #mpc.kernel<column, domain = [40, 512], split = 1, aliases = [-1, -1, -1, -1, -1, -1, -1, -1, -1]>} {
      %w = arith.extf %x : tensor<40x512xf16> to tensor<40x512xf64>
      BODY
      return RESULTS : TYPES
    })",
                                {{"BODY", body}, {"RESULTS", results}, {"TYPES", types}}),
                         3, 1e-12);
}

// To a scalar: less than a thread each, several chunks, a count that no access width divides.
TEST(GpuKernel, ScalarsOfEverySize) {
  for (const char *size : {"1", "33", "4096", "100000", "2000003"}) {
    SCOPED_TRACE(size);
    expectMatchesReference(filled(R"(
    func.func private @k(%x: tensor<SIZExf16>) -> (tensor<f64>, tensor<f32>, tensor<i1>)
        attributes {mpc.kernel = #mpc.kernel<column, domain = [SIZE], split = 1, aliases = [-1, -1, -1]>} {
      %0 = arith.extf %x : tensor<SIZExf16> to tensor<SIZExf32>
      %1 = arith.extf %x : tensor<SIZExf16> to tensor<SIZExf64>
      %2 = arith.mulf %1, %1 : tensor<SIZExf64>
      %3 = mpc.reduce sum %2 {axes = array<i64: 0>} : tensor<SIZExf64> -> tensor<f64>
      %4 = mpc.reduce max %0 {axes = array<i64: 0>} : tensor<SIZExf32> -> tensor<f32>
      %c = arith.constant dense<3.0> : tensor<f32>
      %5 = arith.cmpf olt, %4, %c : tensor<f32>
      return %3, %4, %5 : tensor<f64>, tensor<f32>, tensor<i1>
    })",
                                  {{"SIZE", size}}),
                           3, 1e-10);
  }
}

// A vocabulary's gradient: more indices than a warp looks at together, more columns than a block
// has threads, and the first columns of a warp only.
TEST(GpuKernel, ScatterOfEveryWidth) {
  for (const char *behind : {"1", "48", "300"})
    for (const char *count : {"5", "32", "77"}) {
      SCOPED_TRACE(std::string(behind) + " " + count);
      expectMatchesReference(filled(R"(
    func.func private @k(%i: tensor<COUNTxi64>, %u: tensor<2xCOUNTxBEHINDxf16>, %s: tensor<2x7xBEHINDxf32>) -> tensor<2x7xBEHINDxf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [2, 7, BEHIND], split = 0, aliases = [2]>} {
      %0 = arith.extf %u : tensor<2xCOUNTxBEHINDxf16> to tensor<2xCOUNTxBEHINDxf32>
      %1 = mpc.scatter_add %i, %0 init %s {axis = 1 : i64} : (tensor<COUNTxi64>, tensor<2xCOUNTxBEHINDxf32>, tensor<2x7xBEHINDxf32>) -> tensor<2x7xBEHINDxf32>
      return %1 : tensor<2x7xBEHINDxf32>
    })",
                                    {{"COUNT", count}, {"BEHIND", behind}}),
                             9);
    }
}

// A kernel without elements has no function and is not launched.
TEST(GpuKernel, NoElements) {
  KernelRunner runner(R"(
    func.func private @k(%x: tensor<0x4xf32>) -> tensor<0x4xf32>
        attributes {mpc.kernel = #mpc.kernel<map, domain = [0, 4], split = 1, aliases = [-1]>} {
      %0 = arith.negf %x : tensor<0x4xf32>
      return %0 : tensor<0x4xf32>
    })");
  ASSERT_TRUE(runner.ok());
  EXPECT_TRUE(mpc::gpu::functions(runner.kernel()).empty());
  EXPECT_EQ(mpc::gpu::scratchBytes(runner.kernel()), 0);
}

// What a program will carry: a cubin per architecture, PTX, code for the simulator; one text for
// GPUs that round to bf16 themselves and one for those before. The second time from
// the cache.
TEST(GpuKernel, DeviceImages) {
  if (!llvm::sys::fs::can_execute(MPC_TEST_PTXAS))
    GTEST_SKIP() << "ptxas is not here: scripts/test.sh installs it";
  llvm::SmallString<128> cache;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("mpc-cache", cache));
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  KernelRunner runner(
      filled(kSoftmax, {{"ROWS", "3"}, {"COLS", "5000"}, {"TYPE", "bf16"}, {"ALIAS", "-1"}}));
  ASSERT_TRUE(runner.ok());
  mpc::CudaTargetOptions options;
  options.architectures = {90, 75, 80};
  options.simulate = true;
  std::vector<std::string> cubins;
  for (int time = 0; time < 2; ++time) {
    std::vector<mpc::KernelResources> resources;
    auto images = mpc::compileDeviceImages(*runner.module, options, &resources);
    ASSERT_TRUE(static_cast<bool>(images)) << llvm::toString(images.takeError());
    using mpc::DeviceImage;
    const std::pair<DeviceImage::Kind, unsigned> expected[] = {
        {DeviceImage::simulator, 75}, {DeviceImage::cubin, 75}, {DeviceImage::ptx, 75},
        {DeviceImage::cubin, 80},     {DeviceImage::cubin, 90}, {DeviceImage::ptx, 80}};
    ASSERT_EQ(images->size(), std::size(expected));
    for (size_t i = 0; i < images->size(); ++i) {
      const DeviceImage &image = (*images)[i];
      EXPECT_EQ(image.kind, expected[i].first);
      EXPECT_EQ(image.architecture, expected[i].second);
      EXPECT_EQ(llvm::StringRef(image.bytes)
                    .starts_with("\x7f"
                                 "ELF"),
                image.kind != DeviceImage::ptx);
      if (image.kind == DeviceImage::ptx) { // the driver reads it up to there
        EXPECT_EQ(image.bytes.back(), '\0');
      }
      if (image.kind != DeviceImage::cubin)
        continue;
      if (time == 0)
        cubins.push_back(image.bytes);
      bool isKnown = llvm::is_contained(cubins, image.bytes);
      EXPECT_TRUE(isKnown);
    }
    // Of both texts: its registers, none of them spilled, and the sums of eight warps, twice.
    ASSERT_EQ(resources.size(), 2u);
    for (const mpc::KernelResources &kernel : resources) {
      EXPECT_EQ(kernel.name, "k");
      EXPECT_GT(kernel.registers, 8u);
      EXPECT_EQ(kernel.spillBytes, 0u);
      EXPECT_EQ(kernel.sharedBytes, 64u);
    }
  }
  std::error_code code;
  int kept = 0;
  for (llvm::sys::fs::directory_iterator file(cache + "/mpc/cubins", code), end;
       file != end && !code; file.increment(code))
    kept += llvm::StringRef(file->path()).ends_with(".cubin");
  EXPECT_EQ(kept, 3);
  unsetenv("XDG_CACHE_HOME");
  llvm::sys::fs::remove_directories(cache);
}
