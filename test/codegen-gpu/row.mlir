// RUN: mpc-opt %s --convert-kernels-to-nvvm=scalar | FileCheck %s

// A short row has a warp, eight rows a block: the lanes' sums are exchanged in five steps, in fixed order. The result overwrites what other lanes have read as well: the warp meets before it is stored.
// CHECK-LABEL: func.func @warp({{.*}} attributes {mpc.threads = 256 : i32}
// CHECK:         scf.if
// CHECK-COUNT-2:   llvm.load
// CHECK-COUNT-5:   nvvm.shfl.sync bfly
// CHECK-NOT:       nvvm.shfl.sync
// CHECK:           nvvm.bar.warp.sync
// CHECK-NOT:       llvm.load
// CHECK-COUNT-2:   llvm.store
func.func private @warp(%x: tensor<100x64xf32>) -> tensor<100x64xf32>
    attributes {mpc.kernel = #mpc.kernel<row, domain = [100, 64], split = 1, aliases = [0]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 1>} : tensor<100x64xf32> -> tensor<100xf32>
  %1 = mpc.broadcast %0 {dimensions = array<i64: 0>} : tensor<100xf32> -> tensor<100x64xf32>
  %2 = arith.divf %x, %1 : tensor<100x64xf32>
  return %2 : tensor<100x64xf32>
}

// A long row has a block: shared memory holds the sums of its eight warps, which every thread adds up in order.
// CHECK-LABEL: func.func @block({{.*}} attributes {mpc.threads = 256 : i32}
// CHECK-COUNT-20: llvm.load
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK:         scf.if
// CHECK:           llvm.store
// CHECK:         nvvm.barrier0
// CHECK-COUNT-8: llvm.load
// CHECK:         scf.if
// CHECK:           llvm.store
// CHECK:       llvm.mlir.global internal @block$shared() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<32 x i8>
func.func private @block(%x: tensor<3x5000xf32>) -> tensor<3xf32>
    attributes {mpc.kernel = #mpc.kernel<row, domain = [3, 5000], split = 1, aliases = [-1]>} {
  %0 = mpc.reduce max %x {axes = array<i64: 1>} : tensor<3x5000xf32> -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// Rows of one element: a thread each, nothing to exchange.
// CHECK-LABEL: func.func @thread(
// CHECK:         scf.if
// CHECK:           llvm.load
// CHECK-NOT:       nvvm.
// CHECK:           llvm.store
func.func private @thread(%x: tensor<1000x1xf32>) -> tensor<1000xf32>
    attributes {mpc.kernel = #mpc.kernel<row, domain = [1000, 1], split = 1, aliases = [-1]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 1>} : tensor<1000x1xf32> -> tensor<1000xf32>
  return %0 : tensor<1000xf32>
}
