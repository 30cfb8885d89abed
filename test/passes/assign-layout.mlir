// RUN: mpc-opt %s --assign-layout | FileCheck %s

// Transposes stay at the edges; between the convolutions everything is channels-last.
// CHECK-LABEL: func.func @block
// CHECK-NEXT:    %[[X:.*]] = mpc.transpose %arg0 {permutation = array<i64: 0, 2, 3, 1>}
// CHECK-NEXT:    %[[C:.*]] = mpc.conv %[[X]], %arg1 {channels_last
// CHECK-NEXT:    %[[B:.*]] = mpc.broadcast %arg2 {dimensions = array<i64: 3>}
// CHECK-NEXT:    %[[A:.*]] = arith.addf %[[C]], %[[B]] : tensor<8x16x16x4xf32>
// CHECK-NEXT:    %[[P:.*]], %{{.*}} = mpc.max_pool %[[A]] {channels_last
// CHECK-NEXT:    %[[D:.*]] = mpc.conv %[[P]], %arg1 {channels_last
// CHECK-NEXT:    %[[Y:.*]] = mpc.transpose %[[D]] {permutation = array<i64: 0, 3, 1, 2>}
// CHECK-NEXT:    mpc.reduce sum %[[D]] {axes = array<i64: 0, 1, 2>} : tensor<8x8x8x4xf32> -> tensor<4xf32>
// CHECK-NEXT:    mpc.reshape %[[Y]]
func.func @block(%x: tensor<8x4x16x16xf32>, %w: tensor<4x4x3x3xf32>, %b: tensor<4xf32>) -> (tensor<8x256xf32>, tensor<4xf32>) {
  %c = mpc.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>}
    : (tensor<8x4x16x16xf32>, tensor<4x4x3x3xf32>) -> tensor<8x4x16x16xf32>
  %bb = mpc.broadcast %b {dimensions = array<i64: 1>} : tensor<4xf32> -> tensor<8x4x16x16xf32>
  %a = arith.addf %c, %bb : tensor<8x4x16x16xf32>
  %p, %i = mpc.max_pool %a {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>}
    : (tensor<8x4x16x16xf32>) -> (tensor<8x4x8x8xf32>, tensor<8x4x8x8xi8>)
  %d = mpc.conv %p, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>}
    : (tensor<8x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<8x4x8x8xf32>
  %s = mpc.reduce sum %d {axes = array<i64: 0, 2, 3>} : tensor<8x4x8x8xf32> -> tensor<4xf32>
  %y = mpc.reshape %d : tensor<8x4x8x8xf32> -> tensor<8x256xf32>
  return %y, %s : tensor<8x256xf32>, tensor<4xf32>
}

// One channel: nothing moves, a view is enough.
// CHECK-LABEL: func.func @one_channel
// CHECK:         mpc.reshape %arg0 : tensor<8x1x16x16xf32> -> tensor<8x16x16x1xf32>
// CHECK-NOT:     mpc.transpose %arg0
func.func @one_channel(%x: tensor<8x1x16x16xf32>, %w: tensor<4x1x3x3xf32>) -> tensor<8x4x16x16xf32> {
  %c = mpc.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>}
    : (tensor<8x1x16x16xf32>, tensor<4x1x3x3xf32>) -> tensor<8x4x16x16xf32>
  return %c : tensor<8x4x16x16xf32>
}

// The transposed factor becomes a flag, scaled and reshaped as it is; so does the transpose of a product.
// CHECK-LABEL: func.func @attention
// CHECK:         %[[K:.*]] = mpc.transpose %arg1 {permutation = array<i64: 0, 2, 1, 3>}
// CHECK:         %[[S:.*]] = arith.mulf %[[K]]
// CHECK:         mpc.matmul %arg0, %[[S]] {transpose_rhs}
// CHECK:         %[[T:.*]] = mpc.matmul %arg2, %arg0 {transpose_lhs}
// CHECK-NEXT:    return %{{.*}}, %[[T]]
func.func @attention(%q: tensor<2x4x64x32xf32>, %k: tensor<2x64x4x32xf32>, %g: tensor<2x4x64x64xf32>)
    -> (tensor<2x4x64x64xf32>, tensor<2x4x64x32xf32>) {
  %c = arith.constant dense<0.5> : tensor<2x4x32x64xf32>
  %t = mpc.transpose %k {permutation = array<i64: 0, 2, 1, 3>} : tensor<2x64x4x32xf32> -> tensor<2x4x64x32xf32>
  %r = mpc.reshape %t : tensor<2x4x64x32xf32> -> tensor<8x64x32xf32>
  %u = mpc.transpose %r {permutation = array<i64: 0, 2, 1>} : tensor<8x64x32xf32> -> tensor<8x32x64xf32>
  %v = mpc.reshape %u : tensor<8x32x64xf32> -> tensor<2x4x32x64xf32>
  %s = arith.mulf %v, %c : tensor<2x4x32x64xf32>
  %p = mpc.matmul %q, %s : (tensor<2x4x64x32xf32>, tensor<2x4x32x64xf32>) -> tensor<2x4x64x64xf32>
  %d = mpc.matmul %q, %g {transpose_lhs} : (tensor<2x4x64x32xf32>, tensor<2x4x64x64xf32>) -> tensor<2x4x32x64xf32>
  %e = mpc.transpose %d {permutation = array<i64: 0, 1, 3, 2>} : tensor<2x4x32x64xf32> -> tensor<2x4x64x32xf32>
  return %p, %e : tensor<2x4x64x64xf32>, tensor<2x4x64x32xf32>
}
