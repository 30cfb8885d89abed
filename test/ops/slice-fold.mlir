// RUN: mpc-opt %s --canonicalize | FileCheck %s

// Slices compose: element i of the second is element s₁ + t₁·(s₂ + t₂·i) of the tensor.
// CHECK-LABEL: @slice_of_slice
// CHECK: mpc.slice %arg0 {starts = array<i64: 7>, steps = array<i64: -4>} : tensor<10xf32> -> tensor<2xf32>
func.func @slice_of_slice(%x: tensor<10xf32>) -> tensor<2xf32> {
  %0 = mpc.slice %x {starts = array<i64: 9>, steps = array<i64: -2>} : tensor<10xf32> -> tensor<5xf32>
  %1 = mpc.slice %0 {starts = array<i64: 1>, steps = array<i64: 2>} : tensor<5xf32> -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// A reversal is no identity although the shapes are equal.
// CHECK-LABEL: @reversed
// CHECK: mpc.slice
func.func @reversed(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = mpc.slice %x {starts = array<i64: 2>, steps = array<i64: -1>} : tensor<3xf32> -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: @nothing_to_do
// CHECK-NEXT: return %arg0, %arg0
func.func @nothing_to_do(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %zero = arith.constant 0.0 : f32
  %0 = mpc.pad %x, %zero {low = array<i64: 0>, high = array<i64: 0>, interior = array<i64: 0>} : tensor<3xf32>, f32 -> tensor<3xf32>
  %1 = mpc.concat %x {axis = 0 : i64} : (tensor<3xf32>) -> tensor<3xf32>
  return %0, %1 : tensor<3xf32>, tensor<3xf32>
}

// An operand without elements is left out of a concat.
// CHECK-LABEL: @empty_operand
// CHECK: mpc.concat %arg0, %arg0 {axis = 0 : i64}
func.func @empty_operand(%x: tensor<3xf32>, %e: tensor<0xf32>) -> tensor<6xf32> {
  %0 = mpc.concat %x, %e, %x {axis = 0 : i64} : (tensor<3xf32>, tensor<0xf32>, tensor<3xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// What exporters compute shapes with.
// CHECK-LABEL: @shape_arithmetic
// CHECK-DAG: %[[S:.*]] = arith.constant dense<[4, 2]> : tensor<2xi64>
// CHECK-DAG: %[[P:.*]] = arith.constant dense<[9, 1, 9, 2, 9, 3, 9, 4]> : tensor<8xi64>
// CHECK-DAG: %[[C:.*]] = arith.constant dense<{{\[}}[1, 1, 2], [2, 3, 4]]> : tensor<2x3xi64>
// CHECK-DAG: %[[G:.*]] = arith.constant dense<[2, 2, 4]> : tensor<3xi64>
// CHECK: return %[[S]], %[[P]], %[[C]], %[[G]]
func.func @shape_arithmetic() -> (tensor<2xi64>, tensor<8xi64>, tensor<2x3xi64>, tensor<3xi64>) {
  %c = arith.constant dense<[1, 2, 3, 4]> : tensor<4xi64>
  %a = arith.constant dense<[[1], [2]]> : tensor<2x1xi64>
  %b = arith.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>
  %i = arith.constant dense<[1, 1, 3]> : tensor<3xi64>
  %nine = arith.constant 9 : i64
  %0 = mpc.slice %c {starts = array<i64: 3>, steps = array<i64: -2>} : tensor<4xi64> -> tensor<2xi64>
  %1 = mpc.pad %c, %nine {low = array<i64: 1>, high = array<i64: 0>, interior = array<i64: 1>} : tensor<4xi64>, i64 -> tensor<8xi64>
  %2 = mpc.concat %a, %b {axis = 1 : i64} : (tensor<2x1xi64>, tensor<2x2xi64>) -> tensor<2x3xi64>
  %3 = mpc.gather %c, %i {axis = 0 : i64} : tensor<4xi64>, tensor<3xi64> -> tensor<3xi64>
  return %0, %1, %2, %3 : tensor<2xi64>, tensor<8xi64>, tensor<2x3xi64>, tensor<3xi64>
}
