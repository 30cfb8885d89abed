// RUN: mpc-opt %s --convert-kernels-to-nvvm | FileCheck %s

// Which sum and product are fused is decided here and not by LLVM's optimizer, which would look at what stands around in a block. Of the tensors' own
// products it is those that only sums of a reduction read: x · y, but not y · y, which the largest reads too, and not x · x, whose sum with y is none of a
// reduction (fuse-multiply-add fuses it, or it stays). No operation may be contracted any more.
// CHECK-NOT:     contract
// CHECK-LABEL: llvm.func @sums(
// CHECK:         %[[YY:.*]] = llvm.fmul %[[Y:.*]], %[[Y]] : f32
// CHECK:         llvm.fadd %[[YY]], %{{.*}} : f32
// CHECK:         llvm.intr.fma(%{{.*}}, %[[Y]], %{{.*}})
// CHECK-NOT:     contract
// CHECK:         llvm.return
func.func private @sums(%x: tensor<4x37xf32>, %y: tensor<4x37xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
    attributes {mpc.kernel = #mpc.kernel<row, domain = [4, 37], split = 1, aliases = [-1, -1, -1]>} {
  %yy = arith.mulf %y, %y : tensor<4x37xf32>
  %0 = mpc.reduce max %yy {axes = array<i64: 1>} : tensor<4x37xf32> -> tensor<4xf32>
  %1 = mpc.reduce sum %yy {axes = array<i64: 1>} : tensor<4x37xf32> -> tensor<4xf32>
  %xy = arith.mulf %x, %y : tensor<4x37xf32>
  %2 = mpc.reduce sum %xy {axes = array<i64: 1>} : tensor<4x37xf32> -> tensor<4xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: llvm.func @element(
// CHECK:         %[[XX:.*]] = llvm.fmul %[[X:.*]], %[[X]] : f32
// CHECK:         llvm.fadd %[[XX]], %{{.*}} : f32
// CHECK:         llvm.intr.fma(%[[X]], %{{.*}}, %{{.*}})
// CHECK-NOT:     contract
// CHECK:         llvm.return
func.func private @element(%x: tensor<37xf32>, %y: tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>)
    attributes {mpc.kernel = #mpc.kernel<map, domain = [37], split = 0, aliases = [-1, -1]>} {
  %xx = arith.mulf %x, %x : tensor<37xf32>
  %sum = arith.addf %xx, %y : tensor<37xf32>
  %fused = math.fma %x, %y, %y : tensor<37xf32>
  return %sum, %fused : tensor<37xf32>, tensor<37xf32>
}

// The inside of a function: the range reduction x - n · ln 2 of exp.
// CHECK-LABEL: llvm.func @inside(
// CHECK:         %[[NEGATIVE:.*]] = llvm.fneg %{{.*}} : f32
// CHECK:         llvm.intr.fma(%[[NEGATIVE]], %{{.*}}, %{{.*}})
// CHECK-NOT:     contract
// CHECK:         llvm.return
func.func private @inside(%x: tensor<37xf32>) -> tensor<37xf32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [37], split = 0, aliases = [-1]>} {
  %0 = math.exp %x : tensor<37xf32>
  return %0 : tensor<37xf32>
}
func.func @entry(%x: tensor<4x37xf32>, %y: tensor<4x37xf32>, %u: tensor<37xf32>, %v: tensor<37xf32>) {
  %r:3 = mpc.launch @sums(%x, %y) : (tensor<4x37xf32>, tensor<4x37xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  %s:2 = mpc.launch @element(%u, %v) : (tensor<37xf32>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>)
  %t = mpc.launch @inside(%u) : (tensor<37xf32>) -> tensor<37xf32>
  return
}
