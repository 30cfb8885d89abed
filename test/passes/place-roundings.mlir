// RUN: mpc-opt %s --place-roundings | FileCheck %s

// The sum is read by the same kernel only: it never is in memory, and is not rounded.
// CHECK-LABEL: func.func @inside
// CHECK:         %[[SUM:.*]] = arith.addf
// CHECK-NEXT:    math.tanh %[[SUM]]
func.func @inside(%x: tensor<64x512xf16>) -> tensor<64x512xf16> {
  %w = arith.extf %x : tensor<64x512xf16> to tensor<64x512xf32>
  %s = arith.addf %w, %w : tensor<64x512xf32>
  %h = arith.truncf %s : tensor<64x512xf32> to tensor<64x512xf16>
  %e = arith.extf %h : tensor<64x512xf16> to tensor<64x512xf32>
  %t = math.tanh %e : tensor<64x512xf32>
  %y = arith.truncf %t : tensor<64x512xf32> to tensor<64x512xf16>
  return %y : tensor<64x512xf16>
}

// The matmul reads the sum from memory: it is rounded, and tanh, in the kernel that rounds it, reads the rounded value.
// CHECK-LABEL: func.func @stored
// CHECK:         %[[ROUNDED:.*]] = arith.truncf
// CHECK-NEXT:    %[[WIDE:.*]] = arith.extf %[[ROUNDED]]
// CHECK-NEXT:    math.tanh %[[WIDE]]
// CHECK:         mpc.matmul %[[ROUNDED]]
func.func @stored(%x: tensor<64x512xf16>, %m: tensor<512x512xf16>) -> (tensor<64x512xf16>, tensor<64x512xf16>) {
  %w = arith.extf %x : tensor<64x512xf16> to tensor<64x512xf32>
  %s = arith.addf %w, %w : tensor<64x512xf32>
  %h = arith.truncf %s : tensor<64x512xf32> to tensor<64x512xf16>
  %e = arith.extf %h : tensor<64x512xf16> to tensor<64x512xf32>
  %t = math.tanh %e : tensor<64x512xf32>
  %y = arith.truncf %t : tensor<64x512xf32> to tensor<64x512xf16>
  %p = mpc.matmul %h, %m : (tensor<64x512xf16>, tensor<512x512xf16>) -> tensor<64x512xf16>
  return %y, %p : tensor<64x512xf16>, tensor<64x512xf16>
}
