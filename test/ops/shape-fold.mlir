// RUN: mpc-opt %s --canonicalize | FileCheck %s

// Chains of views become one view, and views of constants become constants.

// CHECK-LABEL: @reshape_of_reshape
// CHECK-NEXT: %[[R:.*]] = mpc.reshape %arg0 : tensor<2x3x4xf32> -> tensor<4x6xf32>
// CHECK-NEXT: return %[[R]]
func.func @reshape_of_reshape(%x: tensor<2x3x4xf32>) -> tensor<4x6xf32> {
  %0 = mpc.reshape %x : tensor<2x3x4xf32> -> tensor<24xf32>
  %1 = mpc.reshape %0 : tensor<24xf32> -> tensor<4x6xf32>
  return %1 : tensor<4x6xf32>
}

// There and back is nothing.
// CHECK-LABEL: @identities
// CHECK-NEXT: return %arg0, %arg0, %arg0, %arg0
func.func @identities(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = mpc.reshape %x : tensor<2x3xf32> -> tensor<6xf32>
  %1 = mpc.reshape %0 : tensor<6xf32> -> tensor<2x3xf32>
  %2 = mpc.transpose %x {permutation = array<i64: 1, 0>} : tensor<2x3xf32> -> tensor<3x2xf32>
  %3 = mpc.transpose %2 {permutation = array<i64: 1, 0>} : tensor<3x2xf32> -> tensor<2x3xf32>
  %4 = mpc.broadcast %x {dimensions = array<i64: 0, 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  %5 = mpc.slice %x {starts = array<i64: 0, 0>, steps = array<i64: 1, 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  return %1, %3, %4, %5 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// Result dimension i is dimension inner[outer[i]].
// CHECK-LABEL: @transpose_of_transpose
// CHECK: mpc.transpose %arg0 {permutation = array<i64: 0, 2, 1>} : tensor<2x3x4xf32> -> tensor<2x4x3xf32>
func.func @transpose_of_transpose(%x: tensor<2x3x4xf32>) -> tensor<2x4x3xf32> {
  %0 = mpc.transpose %x {permutation = array<i64: 1, 0, 2>} : tensor<2x3x4xf32> -> tensor<3x2x4xf32>
  %1 = mpc.transpose %0 {permutation = array<i64: 1, 2, 0>} : tensor<3x2x4xf32> -> tensor<2x4x3xf32>
  return %1 : tensor<2x4x3xf32>
}

// CHECK-LABEL: @broadcast_of_broadcast
// CHECK: mpc.broadcast %arg0 {dimensions = array<i64: 2>} : tensor<4xf32> -> tensor<2x3x4xf32>
func.func @broadcast_of_broadcast(%x: tensor<4xf32>) -> tensor<2x3x4xf32> {
  %0 = mpc.broadcast %x {dimensions = array<i64: 1>} : tensor<4xf32> -> tensor<3x4xf32>
  %1 = mpc.broadcast %0 {dimensions = array<i64: 1, 2>} : tensor<3x4xf32> -> tensor<2x3x4xf32>
  return %1 : tensor<2x3x4xf32>
}

// CHECK-LABEL: @constants
// CHECK-DAG: %[[T:.*]] = arith.constant dense<{{\[}}[1, 4], [2, 5], [3, 6]]> : tensor<3x2xi64>
// CHECK-DAG: %[[R:.*]] = arith.constant dense<{{\[}}[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi64>
// CHECK-DAG: %[[B:.*]] = arith.constant dense<{{\[}}[true, true], [false, false]]> : tensor<2x2xi1>
// CHECK: return %[[T]], %[[R]], %[[B]]
func.func @constants() -> (tensor<3x2xi64>, tensor<3x2xi64>, tensor<2x2xi1>) {
  %c = arith.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi64>
  %m = arith.constant dense<[true, false]> : tensor<2xi1>
  %0 = mpc.transpose %c {permutation = array<i64: 1, 0>} : tensor<2x3xi64> -> tensor<3x2xi64>
  %1 = mpc.reshape %c : tensor<2x3xi64> -> tensor<3x2xi64>
  %2 = mpc.broadcast %m {dimensions = array<i64: 0>} : tensor<2xi1> -> tensor<2x2xi1>
  return %0, %1, %2 : tensor<3x2xi64>, tensor<3x2xi64>, tensor<2x2xi1>
}

// A splat stays a splat of any size; other constants are not blown up to the size of activations.
// CHECK-LABEL: @sizes
// CHECK-DAG: arith.constant dense<1.000000e+00> : tensor<4096x4096xf32>
// CHECK-DAG: %[[C:.*]] = arith.constant dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>
// CHECK: mpc.broadcast %[[C]] {{.*}} -> tensor<4096x2xf32>
func.func @sizes() -> (tensor<4096x4096xf32>, tensor<4096x2xf32>) {
  %s = arith.constant dense<1.0> : tensor<4096xf32>
  %c = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = mpc.broadcast %s {dimensions = array<i64: 1>} : tensor<4096xf32> -> tensor<4096x4096xf32>
  %1 = mpc.broadcast %c {dimensions = array<i64: 1>} : tensor<2xf32> -> tensor<4096x2xf32>
  return %0, %1 : tensor<4096x4096xf32>, tensor<4096x2xf32>
}
