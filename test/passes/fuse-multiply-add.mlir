// RUN: mpc-opt %s --fuse-multiply-add | FileCheck %s

// The signs: a · b - c, c - a · b, -(a · b) + c, a² + c.
// CHECK-LABEL: func.func @signs
// CHECK-SAME: %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>, %[[C:[a-z0-9]+]]: tensor<4xf32>
// CHECK: %[[NC:.*]] = arith.negf %[[C]]
// CHECK: %[[R:.*]] = math.fma %[[A]], %[[B]], %[[NC]]
// CHECK: %[[NB:.*]] = arith.negf %[[B]]
// CHECK: %[[S:.*]] = math.fma %[[NB]], %[[C]], %[[C]]
// CHECK: %[[NA:.*]] = arith.negf %[[A]]
// CHECK: %[[T:.*]] = math.fma %[[NA]], %[[C]], %[[C]]
// CHECK: %[[U:.*]] = math.fma %[[A]], %[[A]], %[[C]]
// CHECK: return %[[R]], %[[S]], %[[T]], %[[U]]
func.func @signs(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %ab = arith.mulf %a, %b : tensor<4xf32>
  %0 = arith.subf %ab, %c : tensor<4xf32>
  %bc = arith.mulf %b, %c : tensor<4xf32>
  %1 = arith.subf %c, %bc : tensor<4xf32>
  %ac = arith.mulf %a, %c : tensor<4xf32>
  %minus = arith.negf %ac : tensor<4xf32>
  %2 = arith.addf %minus, %c : tensor<4xf32>
  %aa = arith.mulf %a, %a : tensor<4xf32>
  %3 = arith.addf %aa, %c : tensor<4xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// A product with another reader is rounded for both: p - min(p) has no negative element, and p - p is zero. Two products are both rounded: equal ones cancel.
// So is a square that is subtracted, as in E(x²) - E(x)². Halves are rounded as well.
// CHECK-LABEL: func.func @kept
// CHECK-NOT: math.fma
// CHECK: return
func.func @kept(%a: tensor<4xf32>, %b: tensor<4xf32>, %h: tensor<4xf16>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf16>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %p = arith.mulf %a, %b : tensor<4xf32>
  %least = mpc.reduce min %p {axes = array<i64: 0>} : tensor<4xf32> -> tensor<f32>
  %all = mpc.broadcast %least {dimensions = array<i64>} : tensor<f32> -> tensor<4xf32>
  %0 = arith.subf %p, %all : tensor<4xf32>
  %q = arith.mulf %b, %b : tensor<4xf32>
  %1 = arith.subf %q, %q : tensor<4xf32>
  %half = arith.mulf %h, %h : tensor<4xf16>
  %2 = arith.addf %half, %h : tensor<4xf16>
  %r = arith.mulf %a, %a : tensor<4xf32>
  %3 = arith.addf %r, %b : tensor<4xf32>
  %ab = arith.mulf %a, %b : tensor<4xf32>
  %ba = arith.mulf %b, %a : tensor<4xf32>
  %minus = arith.negf %ba : tensor<4xf32>
  %4 = arith.addf %ab, %minus : tensor<4xf32>
  %square = arith.mulf %a, %a : tensor<4xf32>
  %5 = arith.subf %b, %square : tensor<4xf32>
  return %0, %1, %2, %r, %4, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf16>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
