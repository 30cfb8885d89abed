// RUN: mpc-opt %s --convert-kernels-to-nvvm=scalar | FileCheck %s

// A column sum: blocks add up chunks of rows, each warp its turn of them, through shared memory into the scratch; a thread per column adds up the chunks in order. No atomic operation: the same bits on every run.
// CHECK-LABEL: func.func @columns$partial({{.*}} attributes {mpc.threads = 256 : i32}
// CHECK:         scf.for {{.*}} step %c8_i64 iter_args
// CHECK-COUNT-2:   llvm.load
// CHECK-COUNT-2: llvm.store
// CHECK:         nvvm.barrier0
// CHECK:         scf.if
// CHECK-COUNT-8:   llvm.load
// CHECK:           llvm.store
// CHECK-COUNT-8:   llvm.load
// CHECK:           llvm.store
// CHECK:       llvm.mlir.global internal @columns$partial$shared
// CHECK-LABEL: func.func @columns$combine(
// CHECK:         scf.if
// CHECK:           scf.for
// CHECK:             llvm.load
// CHECK:           llvm.getelementptr inbounds %arg1
// CHECK:           llvm.load
// CHECK:           llvm.getelementptr inbounds %arg1
// CHECK:           llvm.store
// CHECK-NOT:   atomic
func.func private @columns(%x: tensor<4096x64xf32>, %old: tensor<64xf32>) -> tensor<64xf32>
    attributes {mpc.kernel = #mpc.kernel<column, domain = [4096, 64], split = 1, aliases = [1]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<4096x64xf32> -> tensor<64xf32>
  %1 = arith.addf %0, %old : tensor<64xf32>
  return %1 : tensor<64xf32>
}

// To a scalar: the elements in turn; one warp combines the chunks and one lane stores.
// CHECK-LABEL: func.func @scalar$partial(
// CHECK:         scf.for
// CHECK-COUNT-4:   llvm.load
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK:         nvvm.barrier0
// CHECK:         scf.if
// CHECK:           llvm.store
// CHECK-LABEL: func.func @scalar$combine({{.*}} attributes {mpc.threads = 32 : i32}
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK:         scf.if
// CHECK:           llvm.store
func.func private @scalar(%x: tensor<100000xf32>) -> tensor<f32>
    attributes {mpc.kernel = #mpc.kernel<column, domain = [100000], split = 1, aliases = [-1]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<100000xf32> -> tensor<f32>
  return %0 : tensor<f32>
}
