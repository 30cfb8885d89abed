// RUN: mpc-opt %s --fuse | FileCheck %s

// A softmax is one row kernel: both reductions and what is computed from them stay in it.
// CHECK-LABEL: func.func @softmax
// CHECK-NEXT:    %[[Y:.*]] = mpc.launch @[[SOFTMAX:[a-z_0-9]+]](%arg0)
// CHECK-NEXT:    return %[[Y]]
func.func @softmax(%x: tensor<64x10xf32>) -> tensor<64x10xf32> {
  %m = mpc.reduce max %x {axes = array<i64: 1>} : tensor<64x10xf32> -> tensor<64xf32>
  %mb = mpc.broadcast %m {dimensions = array<i64: 0>} : tensor<64xf32> -> tensor<64x10xf32>
  %d = arith.subf %x, %mb : tensor<64x10xf32>
  %e = math.exp %d : tensor<64x10xf32>
  %s = mpc.reduce sum %e {axes = array<i64: 1>} : tensor<64x10xf32> -> tensor<64xf32>
  %sb = mpc.broadcast %s {dimensions = array<i64: 0>} : tensor<64xf32> -> tensor<64x10xf32>
  %y = arith.divf %e, %sb : tensor<64x10xf32>
  return %y : tensor<64x10xf32>
}

// Dimensions collapse as far as the index maps allow: four become two here. The value that both the convolution and the
// sum want is computed once and stored; the library applies the first relu.
// CHECK-LABEL: func.func @residual
// CHECK:         mpc.conv {{.*}}relu
// CHECK:         mpc.launch @[[ADD:add_.*]](%{{.*}}, %arg2, %{{.*}}) : (tensor<50176x32xf32>, tensor<32xf32>, tensor<50176x32xf32>) -> tensor<50176x32xf32>
// CHECK:         mpc.conv
// CHECK:         mpc.launch @[[SUM:sum_.*]](%{{.*}}) : (tensor<50176x32xf32>) -> tensor<32xf32>
// CHECK-NOT:     mpc.launch
func.func @residual(%x: tensor<64x28x28x32xf32>, %w: tensor<32x32x3x3xf32>, %b: tensor<32xf32>)
    -> (tensor<64x28x28x32xf32>, tensor<32xf32>) {
  %zero = arith.constant dense<0.0> : tensor<64x28x28x32xf32>
  %c = mpc.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<64x28x28x32xf32>, tensor<32x32x3x3xf32>) -> tensor<64x28x28x32xf32>
  %r = arith.maximumf %c, %zero : tensor<64x28x28x32xf32>
  %bb = mpc.broadcast %b {dimensions = array<i64: 3>} : tensor<32xf32> -> tensor<64x28x28x32xf32>
  %a0 = arith.addf %r, %bb : tensor<64x28x28x32xf32>
  %a = arith.addf %a0, %x : tensor<64x28x28x32xf32>
  %y = mpc.conv %a, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<64x28x28x32xf32>, tensor<32x32x3x3xf32>) -> tensor<64x28x28x32xf32>
  %s = mpc.reduce sum %a {axes = array<i64: 0, 1, 2>} : tensor<64x28x28x32xf32> -> tensor<32xf32>
  return %y, %s : tensor<64x28x28x32xf32>, tensor<32xf32>
}

// A transpose is an index map of the kernel that reads it; for the library it is a copy.
// CHECK-LABEL: func.func @transposes
// CHECK-NEXT:    %[[T:.*]] = mpc.launch @transpose_{{[0-9]+}}(%arg0)
// CHECK-NEXT:    %[[E:.*]] = mpc.launch @[[EXP:transpose_exp_.*]](%arg1)
// CHECK-NEXT:    %[[V:.*]] = mpc.reshape %[[E]]
// CHECK-NEXT:    mpc.matmul %[[T]], %[[V]]
func.func @transposes(%x: tensor<4x8x16xf32>, %y: tensor<4x8x16xf32>) -> tensor<4x16x16xf32> {
  %t = mpc.transpose %x {permutation = array<i64: 0, 2, 1>} : tensor<4x8x16xf32> -> tensor<4x16x8xf32>
  %u = mpc.transpose %y {permutation = array<i64: 1, 0, 2>} : tensor<4x8x16xf32> -> tensor<8x4x16xf32>
  %e = math.exp %u : tensor<8x4x16xf32>
  %v = mpc.reshape %e : tensor<8x4x16xf32> -> tensor<4x8x16xf32>
  %m = mpc.matmul %t, %v : (tensor<4x16x8xf32>, tensor<4x8x16xf32>) -> tensor<4x16x16xf32>
  return %m : tensor<4x16x16xf32>
}

// One reading of x and g gives both column sums; arithmetic on the columns follows in the same kernel.
// CHECK-LABEL: func.func @columns
// CHECK-NEXT:    %[[S:.*]]:2 = mpc.launch @[[COLUMNS:[a-z_0-9]+]](%arg0, %arg1)
// CHECK-NEXT:    return %[[S]]#0, %[[S]]#1
func.func @columns(%x: tensor<512x32xf32>, %g: tensor<512x32xf32>) -> (tensor<32xf32>, tensor<32xf32>) {
  %p = arith.mulf %x, %g : tensor<512x32xf32>
  %s = mpc.reduce sum %p {axes = array<i64: 0>} : tensor<512x32xf32> -> tensor<32xf32>
  %r = math.sqrt %s : tensor<32xf32>
  %t = mpc.reduce sum %g {axes = array<i64: 0>} : tensor<512x32xf32> -> tensor<32xf32>
  return %r, %t : tensor<32xf32>, tensor<32xf32>
}

// An update overwrites its parameter: it reads the old value only at the element that it writes.
// CHECK-LABEL: func.func @update
// CHECK:         mpc.launch @[[UPDATE:[a-z_0-9]+]](
func.func @update(%w: tensor<128x256xf32>, %g: tensor<128x256xf32>, %lr: tensor<f32>) -> (tensor<128x256xf32> {mpc.tied = 0 : i64}) {
  %l = mpc.broadcast %lr {dimensions = array<i64>} : tensor<f32> -> tensor<128x256xf32>
  %d = arith.mulf %l, %g : tensor<128x256xf32>
  %n = arith.subf %w, %d : tensor<128x256xf32>
  return %n : tensor<128x256xf32>
}

// CHECK:       func.func private @[[SOFTMAX]]
// CHECK-SAME:    mpc.kernel = #mpc.kernel<row, domain = [64, 10], split = 1, aliases = [-1]>
// CHECK:       func.func private @[[ADD]]
// CHECK-SAME:    mpc.kernel = #mpc.kernel<map, domain = [50176, 32]
// CHECK:       func.func private @[[SUM]]
// CHECK-SAME:    mpc.kernel = #mpc.kernel<column, domain = [50176, 32], split = 1, aliases = [-1]>
// CHECK:       func.func private @[[EXP]]
// CHECK-SAME:    mpc.kernel = #mpc.kernel<map, domain = [8, 4, 16]
// CHECK:       func.func private @[[COLUMNS]]
// CHECK-SAME:    mpc.kernel = #mpc.kernel<column, domain = [512, 32], split = 1, aliases = [-1, -1]>
// CHECK:       func.func private @[[UPDATE]]
// CHECK-SAME:    mpc.kernel = #mpc.kernel<map, domain = [8, 4096], split = 0, aliases = [0]>
