// RUN: mpc-opt %s --expand-composites --canonicalize | FileCheck %s

// Half in, half out, f32 inside; one reduction over the inner dimensions per sum, the variance in a second pass.
// CHECK-LABEL: @layer_norm
// CHECK: %[[X:.*]] = arith.extf %arg0
// CHECK: %[[S:.*]] = mpc.reduce sum %[[X]] {axes = array<i64: 1, 2>} : tensor<2x3x4xf32> -> tensor<2xf32>
// CHECK: %[[M:.*]] = arith.divf %[[S]]
// CHECK: %[[B:.*]] = mpc.broadcast %[[M]] {dimensions = array<i64: 0>} : tensor<2xf32> -> tensor<2x3x4xf32>
// CHECK: %[[D:.*]] = arith.subf %[[X]], %[[B]]
// CHECK: %[[Q:.*]] = arith.mulf %[[D]], %[[D]]
// CHECK: mpc.reduce sum %[[Q]] {axes = array<i64: 1, 2>}
// CHECK: math.sqrt
// CHECK: arith.truncf %{{.*}} : tensor<2x3x4xf32> to tensor<2x3x4xf16>
func.func @layer_norm(%x: tensor<2x3x4xf16>, %s: tensor<3x4xf32>, %b: tensor<3x4xf32>) -> tensor<2x3x4xf16> {
  %y, %m, %r = mpc.layer_norm %x, %s bias %b {axis = 1 : i64, epsilon = 1.0e-5 : f64}
    : (tensor<2x3x4xf16>, tensor<3x4xf32>, tensor<3x4xf32>) -> (tensor<2x3x4xf16>, tensor<2xf32>, tensor<2xf32>)
  return %y : tensor<2x3x4xf16>
}

// Channels last: one reduction over all leading dimensions. Samples that are not there count nowhere.
// CHECK-LABEL: @channels_last
// CHECK: mpc.slice %arg0 {{.*}} : tensor<4x2x2x3xf32> -> tensor<1x1x1x3xf32>
// CHECK: %[[D:.*]] = arith.select {{.*}} : tensor<4x2x2x3xi1>, tensor<4x2x2x3xf32>
// CHECK: mpc.reduce sum %[[D]] {axes = array<i64: 0, 1, 2>} : tensor<4x2x2x3xf32> -> tensor<3xf32>
// CHECK: %[[Q:.*]] = arith.mulf %[[D]], %[[D]]
// CHECK: mpc.reduce sum %[[Q]] {axes = array<i64: 0, 1, 2>} : tensor<4x2x2x3xf32> -> tensor<3xf32>
func.func @channels_last(%x: tensor<4x2x2x3xf32>, %s: tensor<3xf32>, %b: tensor<3xf32>, %n: tensor<i64>) -> (tensor<4x2x2x3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %y, %m, %v = mpc.batch_norm %x, %s, %b, %n {epsilon = 1.0e-5 : f64, channels_last}
    : (tensor<4x2x2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<i64>) -> (tensor<4x2x2x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return %y, %m, %v : tensor<4x2x2x3xf32>, tensor<3xf32>, tensor<3xf32>
}

// Channels first: over the positions, then over the samples.
// CHECK-LABEL: @channels_first
// CHECK: %[[P:.*]] = mpc.reduce sum %{{.*}} {axes = array<i64: 2, 3>} : tensor<4x3x2x2xf32> -> tensor<4x3xf32>
// CHECK: mpc.reduce sum %[[P]] {axes = array<i64: 0>} : tensor<4x3xf32> -> tensor<3xf32>
func.func @channels_first(%x: tensor<4x3x2x2xf32>, %s: tensor<3xf32>, %b: tensor<3xf32>, %n: tensor<i64>) -> (tensor<3xf32>, tensor<3xf32>) {
  %y, %m, %v = mpc.batch_norm %x, %s, %b, %n {epsilon = 1.0e-5 : f64}
    : (tensor<4x3x2x2xf32>, tensor<3xf32>, tensor<3xf32>, tensor<i64>) -> (tensor<4x3x2x2xf32>, tensor<3xf32>, tensor<3xf32>)
  return %m, %v : tensor<3xf32>, tensor<3xf32>
}

// f64 stays f64 throughout.
// CHECK-LABEL: @double
// CHECK-NOT: f32
// CHECK: return
func.func @double(%dy: tensor<4x3xf64>, %x: tensor<4x3xf64>, %s: tensor<3xf64>, %m: tensor<4xf64>, %r: tensor<4xf64>) -> (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>) {
  %dx, %ds, %db = mpc.layer_norm_grad %dy, %x, %s, %m, %r {axis = 1 : i64}
    : (tensor<4x3xf64>, tensor<4x3xf64>, tensor<3xf64>, tensor<4xf64>, tensor<4xf64>) -> (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>)
  return %dx, %ds, %db : tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>
}
