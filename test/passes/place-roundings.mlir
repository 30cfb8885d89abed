// RUN: mpc-opt %s --place-roundings | FileCheck %s
// RUN: mpc-opt %s --place-roundings --fuse -o %t

// fuse makes the clusters for which roundings are placed here: it finds nothing to refuse.

// The sum is read by the same kernel only: it never is in memory, and is not rounded; fuse is told that it may not be stored.
// CHECK-LABEL: func.func @inside
// CHECK-SAME:    attributes {mpc.roundings_placed}
// CHECK:         %[[SUM:.*]] = arith.addf {{.*}} {mpc.unrounded = f16}
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

// One reader is in the kernel that computes the exponential, the other sums its columns in a kernel of its own: there is one rounding, and both read it.
// CHECK-LABEL: func.func @inside_and_outside
// CHECK:         %[[EXP:.*]] = math.exp %{{[^ ]*}} :
// CHECK:         %[[ROUNDED:.*]] = arith.truncf %[[EXP]]
// CHECK-NOT:     arith.truncf
// CHECK:         %[[WIDE:.*]] = arith.extf %[[ROUNDED]]
// CHECK-NOT:     arith.extf
// CHECK-DAG:     math.tanh %[[WIDE]]
// CHECK-DAG:     mpc.reduce sum %[[WIDE]]
func.func @inside_and_outside(%x: tensor<64x512xf32>) -> (tensor<64x512xf32>, tensor<512xf32>) {
  %s = math.exp %x : tensor<64x512xf32>
  %h = arith.truncf %s : tensor<64x512xf32> to tensor<64x512xbf16>
  %e = arith.extf %h : tensor<64x512xbf16> to tensor<64x512xf32>
  %t = math.tanh %e : tensor<64x512xf32>
  %r = mpc.reduce sum %e {axes = array<i64: 0>} : tensor<64x512xf32> -> tensor<512xf32>
  return %t, %r : tensor<64x512xf32>, tensor<512xf32>
}

// Without its rounding the exponential would no longer be computed in the kernel of its three readers, but stored for them: it keeps it.
// CHECK-LABEL: func.func @needed_after_all
// CHECK:         %[[ROUNDED:.*]] = arith.truncf %{{.*}} {mpc.keep_rounding} : tensor<128x1024xf32> to tensor<128x1024xf16>
// CHECK-NEXT:    %[[WIDE:.*]] = arith.extf %[[ROUNDED]]
// CHECK-NEXT:    arith.addf %[[WIDE]], %[[WIDE]]
func.func @needed_after_all(%x: tensor<1024xf32>) -> (tensor<128x1024xf32>, tensor<128x1024xf32>) {
  %0 = mpc.broadcast %x {dimensions = array<i64: 0>} : tensor<1024xf32> -> tensor<1024x128xf32>
  %1 = math.exp %0 : tensor<1024x128xf32>
  %2 = mpc.transpose %0 {permutation = array<i64: 1, 0>} : tensor<1024x128xf32> -> tensor<128x1024xf32>
  %3 = mpc.transpose %1 {permutation = array<i64: 1, 0>} : tensor<1024x128xf32> -> tensor<128x1024xf32>
  %4 = arith.truncf %3 : tensor<128x1024xf32> to tensor<128x1024xf16>
  %5 = arith.extf %4 : tensor<128x1024xf16> to tensor<128x1024xf32>
  %6 = arith.addf %5, %5 : tensor<128x1024xf32>
  %7 = arith.cmpf ogt, %5, %2 : tensor<128x1024xf32>
  %8 = arith.select %7, %5, %2 : tensor<128x1024xi1>, tensor<128x1024xf32>
  return %8, %6 : tensor<128x1024xf32>, tensor<128x1024xf32>
}

// The caller gets the rounded value, whether another kernel reads it too or not.
// CHECK-LABEL: func.func @returned
// CHECK:         %[[ROUNDED:.*]] = arith.truncf
// CHECK-NEXT:    %[[WIDE:.*]] = arith.extf %[[ROUNDED]]
// CHECK-NEXT:    return %[[WIDE]]
func.func @returned(%x: tensor<64x512xf16>) -> tensor<64x512xf32> {
  %w = arith.extf %x : tensor<64x512xf16> to tensor<64x512xf32>
  %t = math.tanh %w : tensor<64x512xf32>
  %h = arith.truncf %t : tensor<64x512xf32> to tensor<64x512xf16>
  %e = arith.extf %h : tensor<64x512xf16> to tensor<64x512xf32>
  return %e : tensor<64x512xf32>
}
