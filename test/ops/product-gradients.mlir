// RUN: mpc-opt %s --split-input-file --autodiff --canonicalize | FileCheck %s

// Products of halves: a weight's gradient is f32 from half operands, an activation's is half.

// y = x · wᵀ + b: dw = dyᵀ · x, db = Σ dy in f32, dx = dy · w.
// CHECK-LABEL: @gradients
// CHECK-DAG: mpc.reduce sum %[[DY:.*]] {axes = array<i64: 0>} : tensor<2x5xf16> -> tensor<5xf32>
// CHECK-DAG: mpc.matmul %[[DY]], %{{.*}} {transpose_lhs} : (tensor<2x5xf16>, tensor<2x3xf16>) -> tensor<5x3xf32>
// CHECK-DAG: mpc.matmul %[[DY]], %{{.*}} : (tensor<2x5xf16>, tensor<5x3xf16>) -> tensor<2x3xf16>
func.func @forward(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<3xf32> {mpc.role = "parameter", mpc.name = "s"},
                   %w: tensor<5x3xf32> {mpc.role = "parameter", mpc.name = "w"}, %b: tensor<5xf32> {mpc.role = "parameter", mpc.name = "b"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"}) {
  %sb = mpc.broadcast %s {dimensions = array<i64: 1>} : tensor<3xf32> -> tensor<2x3xf32>
  %xs = arith.mulf %x, %sb : tensor<2x3xf32>
  %xh = arith.truncf %xs : tensor<2x3xf32> to tensor<2x3xf16>
  %wh = arith.truncf %w : tensor<5x3xf32> to tensor<5x3xf16>
  %bh = arith.truncf %b : tensor<5xf32> to tensor<5xf16>
  %y = mpc.matmul %xh, %wh bias %bh {transpose_rhs} : (tensor<2x3xf16>, tensor<5x3xf16>, tensor<5xf16>) -> tensor<2x5xf16>
  %yf = arith.extf %y : tensor<2x5xf16> to tensor<2x5xf32>
  %l = mpc.reduce sum %yf {axes = array<i64: 0, 1>} : tensor<2x5xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %l, %one : tensor<f32>, tensor<f32>
}

// -----

// The input's gradient is not built where nobody wants it.
// CHECK-LABEL: @gradients
// CHECK-NOT: mpc.conv_backward_data
// CHECK: mpc.conv_backward_weights %{{.*}}, %{{.*}} {dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x2x4x4xf16>, tensor<1x3x2x2xf16>) -> tensor<3x2x3x3xf32>
// CHECK-NOT: mpc.conv_backward_data
func.func @forward(%x: tensor<1x2x4x4xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<3x2x3x3xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"}) {
  %xh = arith.truncf %x : tensor<1x2x4x4xf32> to tensor<1x2x4x4xf16>
  %wh = arith.truncf %w : tensor<3x2x3x3xf32> to tensor<3x2x3x3xf16>
  %y = mpc.conv %xh, %wh {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x2x4x4xf16>, tensor<3x2x3x3xf16>) -> tensor<1x3x2x2xf16>
  %yf = arith.extf %y : tensor<1x3x2x2xf16> to tensor<1x3x2x2xf32>
  %l = mpc.reduce sum %yf {axes = array<i64: 0, 1, 2, 3>} : tensor<1x3x2x2xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %l, %one : tensor<f32>, tensor<f32>
}

// -----

// Max pooling saves the winner's place in a byte, so that its gradient goes to one element per window.
// CHECK-LABEL: @gradients
// CHECK: %{{.*}}, %[[I:.*]] = mpc.max_pool
// CHECK: mpc.max_pool_grad %{{.*}}, %[[I]] {{.*}} : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xi8>) -> tensor<1x2x4x4xf32>
func.func @forward(%w: tensor<1x2x4x4xf32> {mpc.role = "parameter", mpc.name = "w"}, %c: tensor<1x2x2x2xf32> {mpc.role = "input", mpc.name = "c"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"}) {
  %y, %i = mpc.max_pool %w {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>}
    : (tensor<1x2x4x4xf32>) -> (tensor<1x2x2x2xf32>, tensor<1x2x2x2xi8>)
  %z = arith.mulf %y, %c : tensor<1x2x2x2xf32>
  %l = mpc.reduce sum %z {axes = array<i64: 0, 1, 2, 3>} : tensor<1x2x2x2xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %l, %one : tensor<f32>, tensor<f32>
}
