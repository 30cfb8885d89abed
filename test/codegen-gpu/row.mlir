// RUN: mpc-opt %s --convert-kernels-to-nvvm=scalar | FileCheck %s

// A short row has a warp, eight rows a block: the lanes' sums are exchanged in five steps, in fixed order. The result overwrites what other lanes have read as well: the warp meets before it is stored.
func.func private @warp(%x: tensor<100x64xf32>) -> tensor<100x64xf32>
    attributes {mpc.kernel = #mpc.kernel<row, domain = [100, 64], split = 1, aliases = [0]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 1>} : tensor<100x64xf32> -> tensor<100xf32>
  %1 = mpc.broadcast %0 {dimensions = array<i64: 0>} : tensor<100xf32> -> tensor<100x64xf32>
  %2 = arith.divf %x, %1 : tensor<100x64xf32>
  return %2 : tensor<100x64xf32>
}

// A long row has a block: shared memory holds the sums of its eight warps, which every thread adds up in order.
func.func private @block(%x: tensor<3x5000xf32>) -> tensor<3xf32>
    attributes {mpc.kernel = #mpc.kernel<row, domain = [3, 5000], split = 1, aliases = [-1]>} {
  %0 = mpc.reduce max %x {axes = array<i64: 1>} : tensor<3x5000xf32> -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// Rows of one element: a thread each, nothing to exchange.
func.func private @thread(%x: tensor<1000x1xf32>) -> tensor<1000xf32>
    attributes {mpc.kernel = #mpc.kernel<row, domain = [1000, 1], split = 1, aliases = [-1]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 1>} : tensor<1000x1xf32> -> tensor<1000xf32>
  return %0 : tensor<1000xf32>
}
