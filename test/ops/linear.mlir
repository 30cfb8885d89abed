// RUN: mpc-opt %s --canonicalize | FileCheck %s

// A transpose of the last two dimensions becomes a flag of the product; one that moves a batch dimension stays.

// CHECK-LABEL: @flags
// CHECK-NEXT: mpc.matmul %arg0, %arg1 {transpose_lhs, transpose_rhs} : (tensor<2x3x4xf32>, tensor<2x5x3xf32>) -> tensor<2x4x5xf32>
func.func @flags(%x: tensor<2x3x4xf32>, %w: tensor<2x5x3xf32>) -> tensor<2x4x5xf32> {
  %0 = mpc.transpose %x {permutation = array<i64: 0, 2, 1>} : tensor<2x3x4xf32> -> tensor<2x4x3xf32>
  %1 = mpc.transpose %w {permutation = array<i64: 0, 2, 1>} : tensor<2x5x3xf32> -> tensor<2x3x5xf32>
  %2 = mpc.matmul %0, %1 : (tensor<2x4x3xf32>, tensor<2x3x5xf32>) -> tensor<2x4x5xf32>
  return %2 : tensor<2x4x5xf32>
}

// CHECK-LABEL: @twice
// CHECK-NEXT: mpc.matmul %arg0, %arg1 : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<2x5xf32>
func.func @twice(%x: tensor<2x3xf32>, %w: tensor<3x5xf32>) -> tensor<2x5xf32> {
  %0 = mpc.transpose %w {permutation = array<i64: 1, 0>} : tensor<3x5xf32> -> tensor<5x3xf32>
  %1 = mpc.matmul %x, %0 {transpose_rhs} : (tensor<2x3xf32>, tensor<5x3xf32>) -> tensor<2x5xf32>
  return %1 : tensor<2x5xf32>
}

// CHECK-LABEL: @batch_moves
// CHECK: mpc.transpose
func.func @batch_moves(%x: tensor<3x2x4xf32>, %w: tensor<2x4x5xf32>) -> tensor<2x3x5xf32> {
  %0 = mpc.transpose %x {permutation = array<i64: 1, 0, 2>} : tensor<3x2x4xf32> -> tensor<2x3x4xf32>
  %1 = mpc.matmul %0, %w : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  return %1 : tensor<2x3x5xf32>
}
