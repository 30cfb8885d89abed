// RUN: mpc-opt %s --split-input-file --convert-onnx-to-mpc | FileCheck %s

// The nearest element, twice as large: a broadcast. Another factor reads a constant table of positions.
// CHECK-LABEL: @forward
// CHECK: %[[B:.*]] = mpc.broadcast %arg0 {dimensions = array<i64: 0, 1, 2, 4>, {{.*}}} : tensor<1x1x2x2xf32> -> tensor<1x1x2x2x2xf32>
// CHECK: %[[R:.*]] = mpc.reshape %[[B]] {{.*}} -> tensor<1x1x4x2xf32>
// CHECK: %[[I:.*]] = arith.constant dense<[0, 0, 1]> : tensor<3xi64>
// CHECK: mpc.gather %[[R]], %[[I]] {axis = 3 : i64, {{.*}} -> tensor<1x1x4x3xf32>
func.func @graph(%x: tensor<1x1x2x2xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<1x1x4x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %n = onnx.none
  %s = arith.constant dense<[1.0, 1.0, 2.0, 1.7]> : tensor<4xf32>
  %0 = onnx.node "Resize" 13 "r" (%x, %n, %s) {mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"}
    : (tensor<1x1x2x2xf32>, none, tensor<4xf32>) -> tensor<1x1x4x3xf32>
  return %0 : tensor<1x1x4x3xf32>
}

// -----

// Linear: two gathers, weighted by constants.
// CHECK-LABEL: @forward
// CHECK-DAG: arith.constant dense<[0, 0, 0, 1]> : tensor<4xi64>
// CHECK-DAG: arith.constant dense<[0, 1, 1, 1]> : tensor<4xi64>
// CHECK-DAG: arith.constant dense<{{.*}}2.500000e-01, 7.500000e-01, 2.500000e-01, 7.500000e-01]]]> : tensor<1x1x4xf32>
// CHECK: arith.addf
func.func @graph(%x: tensor<1x1x2xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<1x1x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %n = onnx.none
  %s = arith.constant dense<[1, 1, 4]> : tensor<3xi64>
  %0 = onnx.node "Resize" 13 "r" (%x, %n, %n, %s) {mode = "linear"} : (tensor<1x1x2xf32>, none, none, tensor<3xi64>) -> tensor<1x1x4xf32>
  return %0 : tensor<1x1x4xf32>
}
