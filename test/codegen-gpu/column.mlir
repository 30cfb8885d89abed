// RUN: mpc-opt %s --convert-kernels-to-nvvm=scalar | FileCheck %s

// A column sum: blocks add up chunks of rows, each warp its turn of them, through shared memory into the scratch; a thread per column adds up the chunks in order. No atomic operation: the same bits on every run.
func.func private @columns(%x: tensor<4096x64xf32>, %old: tensor<64xf32>) -> tensor<64xf32>
    attributes {mpc.kernel = #mpc.kernel<column, domain = [4096, 64], split = 1, aliases = [1]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<4096x64xf32> -> tensor<64xf32>
  %1 = arith.addf %0, %old : tensor<64xf32>
  return %1 : tensor<64xf32>
}

// To a scalar: the elements in turn; one warp combines the chunks and one lane stores.
func.func private @scalar(%x: tensor<100000xf32>) -> tensor<f32>
    attributes {mpc.kernel = #mpc.kernel<column, domain = [100000], split = 1, aliases = [-1]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<100000xf32> -> tensor<f32>
  return %0 : tensor<f32>
}
