// RUN: mpc-opt %s --autodiff | FileCheck %s

// Backward draws the same mask again (same state, operator and seed); the mask of absent samples applies to the cotangent as well.
// CHECK-LABEL: func.func @gradients
// CHECK:         %[[Y:.*]] = mpc.dropout %arg0, %arg1 {operator_id = 3 : i64, ratio = 5.000000e-01 : f64, seed = 1 : i64}
// CHECK:         mpc.mask_samples %[[Y]], %arg2 {axis = 0 : i64, factor = 2 : i64}
// CHECK:         %[[DY:.*]] = mpc.broadcast %arg3
// CHECK:         %[[MASKED:.*]] = mpc.mask_samples %[[DY]], %arg2 {axis = 0 : i64, factor = 2 : i64}
// CHECK:         %[[DX:.*]] = mpc.dropout %[[MASKED]], %arg1 {operator_id = 3 : i64, ratio = 5.000000e-01 : f64, seed = 1 : i64}
// CHECK:         return %{{.*}}, %[[DX]]
func.func @forward(%x: tensor<4x8xf32> {mpc.role = "parameter", mpc.name = "x"}, %s: tensor<2xi64>, %n: tensor<i64>) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = mpc.dropout %x, %s {ratio = 0.5 : f64, operator_id = 3 : i64, seed = 1 : i64} : tensor<4x8xf32>, tensor<2xi64> -> tensor<4x8xf32>
  %1 = mpc.mask_samples %0, %n {axis = 0 : i64, factor = 2 : i64} : tensor<4x8xf32>, tensor<i64>
  %2 = mpc.reduce sum %1 {axes = array<i64: 0, 1>} : tensor<4x8xf32> -> tensor<f32>
  return %2 : tensor<f32>
}
