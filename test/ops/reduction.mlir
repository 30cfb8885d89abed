// RUN: mpc-opt %s --convert-onnx-to-mpc --split-input-file | FileCheck %s

// The reduced dimensions disappear; keepdims is a reshape. Axes are an attribute or a constant operand.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[S:.*]] = mpc.reduce sum %arg0 {axes = array<i64: 0, 2>, {{.*}}} : tensor<2x3x4xf32> -> tensor<3xf32>
// CHECK:         %[[N:.*]] = arith.constant dense<8.000000e+00>
// CHECK:         %[[M:.*]] = arith.divf %[[S]], %[[N]]
// CHECK:         mpc.reshape %[[M]] {{.*}} : tensor<3xf32> -> tensor<1x3x1xf32>
// CHECK:         mpc.reduce max %arg0 {axes = array<i64: 1>, {{.*}}} : tensor<2x3x4xf32> -> tensor<2x4xf32>
func.func @graph(%x: tensor<2x3x4xf32>) -> (tensor<1x3x1xf32>, tensor<2x4xf32>) {
  %axes = arith.constant dense<[-1, 0]> : tensor<2xi64>
  %0 = onnx.node "ReduceMean" 18 "mean" (%x, %axes) {} : (tensor<2x3x4xf32>, tensor<2xi64>) -> tensor<1x3x1xf32>
  %1 = onnx.node "ReduceMax" 11 "max" (%x) {axes = array<i64: 1>, keepdims = 0 : i64} : (tensor<2x3x4xf32>) -> tensor<2x4xf32>
  return %0, %1 : tensor<1x3x1xf32>, tensor<2x4xf32>
}

// -----

// No axes: all of them, or with noop_with_empty_axes none.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[S:.*]] = mpc.reduce sum %arg0 {axes = array<i64: 0, 1>
// CHECK:         return %[[S]], %arg0
func.func @graph(%x: tensor<2x3xf32>) -> (tensor<f32>, tensor<2x3xf32>) {
  %none = onnx.none
  %0 = onnx.node "ReduceSum" 13 "all" (%x, %none) {keepdims = 0 : i64} : (tensor<2x3xf32>, none) -> tensor<f32>
  %1 = onnx.node "ReduceSum" 13 "noop" (%x) {noop_with_empty_axes = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0, %1 : tensor<f32>, tensor<2x3xf32>
}

// -----

// A half operand is summed in f32 and rounded once.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[X:.*]] = arith.extf %arg0
// CHECK:         %[[S:.*]] = mpc.reduce sum %[[X]] {{.*}} : tensor<4xf32> -> tensor<f32>
// CHECK:         arith.truncf %[[S]] {{.*}} : tensor<f32> to tensor<f16>
func.func @graph(%x: tensor<4xf16>) -> tensor<f16> {
  %0 = onnx.node "ReduceSum" 13 "sum" (%x) {keepdims = 0 : i64} : (tensor<4xf16>) -> tensor<f16>
  return %0 : tensor<f16>
}

// -----

// Constants fold.
// CHECK-LABEL: func.func @forward
// CHECK-DAG:     arith.constant dense<[24, 5]> : tensor<2xi64>
// CHECK-DAG:     arith.constant dense<[2.000000e+00, 0x7FC00000]> : tensor<2xf32>
// CHECK-NOT:     mpc.reduce
func.func @graph() -> (tensor<2xi64>, tensor<2xf32>) {
  %i = arith.constant dense<[[2, 3, 4], [1, 1, 5]]> : tensor<2x3xi64>
  %f = arith.constant dense<[[1.0, 2.0], [1.0, 0x7FC00000]]> : tensor<2x2xf32>
  %0 = onnx.node "ReduceProd" 13 "product" (%i) {axes = array<i64: 1>, keepdims = 0 : i64} : (tensor<2x3xi64>) -> tensor<2xi64>
  %1 = onnx.node "ReduceMax" 13 "nan stays" (%f) {axes = array<i64: 1>, keepdims = 0 : i64} : (tensor<2x2xf32>) -> tensor<2xf32>
  return %0, %1 : tensor<2xi64>, tensor<2xf32>
}

// -----

// ArgMax: the first index that compares equal to the maximum.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[MAX:.*]] = mpc.reduce max %arg0 {axes = array<i64: 1>
// CHECK:         %[[ALL:.*]] = mpc.broadcast %[[MAX]]
// CHECK:         %[[WINS:.*]] = arith.cmpf oeq, %arg0, %[[ALL]]
// CHECK:         %[[I:.*]] = mpc.iota {axis = 1 : i64
// CHECK:         %[[C:.*]] = arith.select %[[WINS]], %[[I]]
// CHECK:         %[[FIRST:.*]] = mpc.reduce min %[[C]]
// CHECK:         arith.extsi %[[FIRST]] {{.*}} : tensor<2xi32> to tensor<2xi64>
func.func @graph(%x: tensor<2x3xf32>) -> tensor<2xi64> {
  %0 = onnx.node "ArgMax" 13 "argmax" (%x) {axis = 1 : i64, keepdims = 0 : i64} : (tensor<2x3xf32>) -> tensor<2xi64>
  return %0 : tensor<2xi64>
}
