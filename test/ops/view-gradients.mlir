// RUN: mpc-opt %s --split-input-file --autodiff --canonicalize | FileCheck %s

// The derivatives of index maps are index maps. Each function is loss = Σ view(w) · c.

// A slice that reads backwards with step 2: the cotangent is reversed, then a zero goes between neighbors.
// CHECK-LABEL: @gradients
// CHECK: %[[R:.*]] = mpc.slice %{{.*}} {starts = array<i64: 2>, steps = array<i64: -1>} : tensor<3xf32> -> tensor<3xf32>
// CHECK: mpc.pad %[[R]], %{{.*}} {high = array<i64: 1>, interior = array<i64: 1>, low = array<i64: 0>} : tensor<3xf32>, f32 -> tensor<6xf32>
func.func @forward(%w: tensor<6xf32> {mpc.role = "parameter", mpc.name = "w"}, %c: tensor<3xf32> {mpc.role = "input", mpc.name = "c"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"}) {
  %0 = mpc.slice %w {starts = array<i64: 4>, steps = array<i64: -2>} : tensor<6xf32> -> tensor<3xf32>
  %1 = arith.mulf %0, %c : tensor<3xf32>
  %2 = mpc.reduce sum %1 {axes = array<i64: 0>} : tensor<3xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %2, %one : tensor<f32>, tensor<f32>
}

// -----

// A concat's gradient is slices; a broadcast's is one sum.
// CHECK-LABEL: @gradients
// CHECK: %[[D:.*]] = mpc.slice %{{.*}} {starts = array<i64: 0, 1>, steps = array<i64: 1, 1>} : tensor<4x3xf32> -> tensor<4x2xf32>
// CHECK: mpc.reduce sum %[[D]] {axes = array<i64: 0>} : tensor<4x2xf32> -> tensor<2xf32>
func.func @forward(%w: tensor<2xf32> {mpc.role = "parameter", mpc.name = "w"}, %x: tensor<4x1xf32> {mpc.role = "input", mpc.name = "x"},
                   %c: tensor<4x3xf32> {mpc.role = "input", mpc.name = "c"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"}) {
  %b = mpc.broadcast %w {dimensions = array<i64: 1>} : tensor<2xf32> -> tensor<4x2xf32>
  %0 = mpc.concat %x, %b {axis = 1 : i64} : (tensor<4x1xf32>, tensor<4x2xf32>) -> tensor<4x3xf32>
  %1 = arith.mulf %0, %c : tensor<4x3xf32>
  %2 = mpc.reduce sum %1 {axes = array<i64: 0, 1>} : tensor<4x3xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %2, %one : tensor<f32>, tensor<f32>
}

// -----

// A gather's gradient is a scatter_add in f32.
// CHECK-LABEL: @gradients
// CHECK: mpc.scatter_add %arg1, %{{.*}} {axis = 0 : i64} : (tensor<3xi64>, tensor<3x2xf32>) -> tensor<5x2xf32>
func.func @forward(%w: tensor<5x2xf32> {mpc.role = "parameter", mpc.name = "w"}, %i: tensor<3xi64> {mpc.role = "input", mpc.name = "i"},
                   %c: tensor<3x2xf32> {mpc.role = "input", mpc.name = "c"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"}) {
  %0 = mpc.gather %w, %i {axis = 0 : i64} : tensor<5x2xf32>, tensor<3xi64> -> tensor<3x2xf32>
  %1 = arith.mulf %0, %c : tensor<3x2xf32>
  %2 = mpc.reduce sum %1 {axes = array<i64: 0, 1>} : tensor<3x2xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %2, %one : tensor<f32>, tensor<f32>
}

// -----

// A scatter_add's gradients: the cotangent itself for what it starts from, and what stands at the indices for the updates.
// CHECK-LABEL: @gradients
// CHECK-SAME:    %[[I:[^:]*]]: tensor<3xi64> {{.*}} %[[C:[^:]*]]: tensor<5x2xf32> {{.*}} %[[SEED:[^:]*]]: tensor<f32>
// CHECK:         %[[S:.*]] = mpc.broadcast %[[SEED]]
// CHECK:         %[[D:.*]] = arith.mulf %[[S]], %[[C]]
// CHECK:         %[[G:.*]] = mpc.gather %[[D]], %[[I]] {axis = 0 : i64} : tensor<5x2xf32>, tensor<3xi64> -> tensor<3x2xf32>
// CHECK:         return %{{.*}}, %{{.*}}, %[[D]], %[[G]] : tensor<f32>, tensor<f32>, tensor<5x2xf32>, tensor<3x2xf32>
func.func @forward(%w: tensor<5x2xf32> {mpc.role = "parameter", mpc.name = "w"}, %u: tensor<3x2xf32> {mpc.role = "parameter", mpc.name = "u"},
                   %i: tensor<3xi64> {mpc.role = "input", mpc.name = "i"}, %c: tensor<5x2xf32> {mpc.role = "input", mpc.name = "c"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"}) {
  %0 = mpc.scatter_add %i, %u init %w {axis = 0 : i64} : (tensor<3xi64>, tensor<3x2xf32>, tensor<5x2xf32>) -> tensor<5x2xf32>
  %1 = arith.mulf %0, %c : tensor<5x2xf32>
  %2 = mpc.reduce sum %1 {axes = array<i64: 0, 1>} : tensor<5x2xf32> -> tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  return %2, %one : tensor<f32>, tensor<f32>
}
