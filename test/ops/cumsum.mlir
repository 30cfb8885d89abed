// RUN: mpc-opt %s --convert-onnx-to-mpc | FileCheck %s --check-prefix=CONVERT
// RUN: mpc-opt %s --convert-onnx-to-mpc --autodiff | FileCheck %s --check-prefix=GRAD
// RUN: mpc-opt %s --convert-onnx-to-mpc --expand-composites | FileCheck %s --check-prefix=EXPAND

// Sums of the elements before each one, along the axis that the constant names; its adjoint sums those behind. The primitive form
// is one reduction under a mask, j < i.
// CONVERT-LABEL: func.func @forward
// CONVERT:         mpc.cumsum %arg0 {axis = 1 : i64, exclusive, mpc.node = "sums", mpc.op = "CumSum"} : tensor<2x3xf32>
// GRAD-LABEL:    func.func @gradients
// GRAD:            %[[DY:.*]] = mpc.broadcast %arg1
// GRAD:            mpc.cumsum %[[DY]] {axis = 1 : i64, exclusive, mpc.node = "sums", mpc.op = "CumSum", reverse}
// EXPAND-LABEL:  func.func @forward
// EXPAND-DAG:      %[[I:.*]] = mpc.iota {axis = 1 : i64{{.*}} : tensor<2x3x3xi32>
// EXPAND-DAG:      %[[J:.*]] = mpc.iota {axis = 2 : i64{{.*}} : tensor<2x3x3xi32>
// EXPAND-DAG:      %[[X:.*]] = mpc.broadcast %arg0 {dimensions = array<i64: 0, 2>
// EXPAND:          %[[MASK:.*]] = arith.cmpi slt, %[[J]], %[[I]]
// EXPAND:          %[[COUNTED:.*]] = arith.select %[[MASK]], %[[X]]
// EXPAND:          mpc.reduce sum %[[COUNTED]] {axes = array<i64: 2>
func.func @graph(%x: tensor<2x3xf32> {mpc.role = "parameter", mpc.name = "x"}) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %axis = arith.constant dense<-1> : tensor<i64>
  %0 = onnx.node "CumSum" 14 "sums" (%x, %axis) {exclusive = 1 : i64} : (tensor<2x3xf32>, tensor<i64>) -> tensor<2x3xf32>
  %1 = onnx.node "ReduceSum" 13 "loss" (%0) {keepdims = 0 : i64} : (tensor<2x3xf32>) -> tensor<f32>
  return %1 : tensor<f32>
}
