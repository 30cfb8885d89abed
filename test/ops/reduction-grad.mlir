// RUN: mpc-opt %s --autodiff --canonicalize --split-input-file | FileCheck %s

// A sum's gradient is repeated, without arithmetic.
// CHECK-LABEL: func.func @gradients
// CHECK:         mpc.broadcast %arg1
func.func @forward(%x: tensor<2x3xf32> {mpc.role = "parameter", mpc.name = "x"}) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = mpc.reduce sum %x {axes = array<i64: 0, 1>} : tensor<2x3xf32> -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// All elements that are the maximum share the gradient evenly: their number is summed per row.
// CHECK-LABEL: func.func @gradients
// CHECK:         %[[Y:.*]] = mpc.reduce max %arg0
// CHECK:         %[[ALL:.*]] = mpc.broadcast %[[Y]]
// CHECK:         %[[WINS:.*]] = arith.cmpf oeq, %arg0, %[[ALL]]
// CHECK:         %[[ONES:.*]] = arith.select %[[WINS]]
// CHECK:         %[[COUNT:.*]] = mpc.reduce sum %[[ONES]] {axes = array<i64: 1>
// CHECK:         %[[SHARE:.*]] = arith.divf %{{.*}}, %[[COUNT]]
// CHECK:         %[[SPREAD:.*]] = mpc.broadcast %[[SHARE]]
// CHECK:         arith.select %[[WINS]], %[[SPREAD]]
func.func @forward(%x: tensor<2x3xf32> {mpc.role = "parameter", mpc.name = "x"}) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = mpc.reduce max %x {axes = array<i64: 1>} : tensor<2x3xf32> -> tensor<2xf32>
  %1 = mpc.reduce sum %0 {axes = array<i64: 0>} : tensor<2xf32> -> tensor<f32>
  return %1 : tensor<f32>
}
