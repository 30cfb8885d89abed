// RUN: mpc-opt %s --fuse | FileCheck %s

// Dimensions that are neither leading nor trailing are brought there by a transpose inside the kernel: to the end if the
// last one is reduced (rows), else to the front (columns).
// CHECK-LABEL: func.func @middle
// CHECK:         mpc.launch @[[ROWS:.*]](%arg0)
// CHECK:         mpc.launch @[[COLUMNS:.*]](%arg0)
func.func @middle(%x: tensor<16x32x64xf32>) -> (tensor<32xf32>, tensor<16x64xf32>) {
  %r = mpc.reduce sum %x {axes = array<i64: 0, 2>} : tensor<16x32x64xf32> -> tensor<32xf32>
  %c = mpc.reduce max %x {axes = array<i64: 1>} : tensor<16x32x64xf32> -> tensor<16x64xf32>
  return %r, %c : tensor<32xf32>, tensor<16x64xf32>
}

// A sum of everything: small ones in one piece (no rows), large ones in chunks that are combined in order.
// CHECK-LABEL: func.func @whole
// CHECK:         mpc.launch @[[SMALL:.*]](%arg0)
// CHECK:         mpc.launch @[[LARGE:.*]](%{{.*}})
func.func @whole(%x: tensor<10xf32>, %y: tensor<512x784xf32>) -> (tensor<f32>, tensor<f32>) {
  %r = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<10xf32> -> tensor<f32>
  %c = mpc.reduce sum %y {axes = array<i64: 0, 1>} : tensor<512x784xf32> -> tensor<f32>
  return %r, %c : tensor<f32>, tensor<f32>
}

// CHECK:       func.func private @[[ROWS]]
// CHECK-SAME:    #mpc.kernel<row, domain = [32, 16, 64], split = 1
// CHECK:         mpc.transpose
// CHECK:         mpc.reduce sum %{{.*}} {axes = array<i64: 1, 2>}
// CHECK:       func.func private @[[COLUMNS]]
// CHECK-SAME:    #mpc.kernel<column, domain = [32, 16, 64], split = 1
// CHECK:         mpc.reduce max %{{.*}} {axes = array<i64: 0>}
// CHECK:       func.func private @[[SMALL]]
// CHECK-SAME:    #mpc.kernel<row, domain = [10], split = 0
// CHECK:       func.func private @[[LARGE]]
// CHECK-SAME:    #mpc.kernel<column, domain = [401408], split = 1
