// RUN: mpc-opt %s --autodiff | FileCheck %s
// RUN: mpc-opt %s --autodiff --expand-composites --canonicalize | FileCheck %s --check-prefix=EXPAND

// The gradients read the saved output: y · (dy - Σ dy · y), and dy - exp(y) · Σ dy.
// CHECK-LABEL:  func.func @gradients
// CHECK:          %[[Y:.*]] = mpc.softmax %arg0
// CHECK:          %[[L:.*]] = mpc.log_softmax %[[Y]]
// CHECK:          %[[DL:.*]] = mpc.log_softmax_grad %{{.*}}, %[[L]]
// CHECK:          mpc.softmax_grad %[[DL]], %[[Y]]
// EXPAND-LABEL: func.func @gradients
// EXPAND:         %[[Y:.*]] = arith.divf
// EXPAND:         math.log
// EXPAND:         %[[E:.*]] = math.exp
// EXPAND:         arith.mulf %[[E]]
// EXPAND:         %[[DL:.*]] = arith.subf
// EXPAND:         %[[P:.*]] = arith.mulf %[[DL]], %[[Y]]
// EXPAND:         %[[S:.*]] = mpc.reduce sum %[[P]]
// EXPAND:         %[[SB:.*]] = mpc.broadcast %[[S]]
// EXPAND:         %[[D:.*]] = arith.subf %[[DL]], %[[SB]]
// EXPAND:         arith.mulf %[[Y]], %[[D]]
func.func @forward(%x: tensor<2x3xf32> {mpc.role = "parameter", mpc.name = "x"}, %t: tensor<2x3xf32>) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = mpc.softmax %x {axis = 1 : i64} : tensor<2x3xf32>
  %1 = mpc.log_softmax %0 {axis = 1 : i64} : tensor<2x3xf32>
  %2 = arith.mulf %1, %t : tensor<2x3xf32>
  %3 = mpc.reduce sum %2 {axes = array<i64: 0, 1>} : tensor<2x3xf32> -> tensor<f32>
  return %3 : tensor<f32>
}
