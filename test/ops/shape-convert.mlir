// RUN: mpc-opt %s --split-input-file --convert-onnx-to-mpc | FileCheck %s

// 0 copies the input's dimension, -1 is what remains.
// CHECK-LABEL: @forward
// CHECK-NEXT: mpc.reshape %arg0 {{.*}} : tensor<2x3x4xf32> -> tensor<2x12xf32>
func.func @graph(%x: tensor<2x3x4xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<2x12xf32> {mpc.role = "output", mpc.name = "y"}) {
  %s = arith.constant dense<[0, -1]> : tensor<2xi64>
  %0 = onnx.node "Reshape" 14 "r" (%x, %s) {} : (tensor<2x3x4xf32>, tensor<2xi64>) -> tensor<2x12xf32>
  return %0 : tensor<2x12xf32>
}

// -----

// The chain that exporters write for x.view(x.size(0), -1) is one reshape.
// CHECK-LABEL: @forward
// CHECK-NEXT: %[[R:.*]] = mpc.reshape %arg0 {{.*}} : tensor<2x3x4xf32> -> tensor<2x12xf32>
// CHECK-NEXT: return %[[R]]
func.func @graph(%x: tensor<2x3x4xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<2x12xf32> {mpc.role = "output", mpc.name = "y"}) {
  %zero = arith.constant dense<0> : tensor<i64>
  %minus = arith.constant dense<-1> : tensor<1xi64>
  %0 = onnx.node "Shape" 15 "shape" (%x) {} : (tensor<2x3x4xf32>) -> tensor<3xi64>
  %1 = onnx.node "Gather" 13 "gather" (%0, %zero) {} : (tensor<3xi64>, tensor<i64>) -> tensor<i64>
  %2 = onnx.node "Unsqueeze" 11 "unsqueeze" (%1) {axes = array<i64: 0>} : (tensor<i64>) -> tensor<1xi64>
  %3 = onnx.node "Concat" 13 "concat" (%2, %minus) {axis = 0 : i64} : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
  %4 = onnx.node "Reshape" 14 "reshape" (%x, %3) {} : (tensor<2x3x4xf32>, tensor<2xi64>) -> tensor<2x12xf32>
  return %4 : tensor<2x12xf32>
}

// -----

// A transpose that moves only dimensions of size 1 moves no data.
// CHECK-LABEL: @forward
// CHECK-NEXT: mpc.reshape %arg0 {{.*}} : tensor<2x1x4xf32> -> tensor<1x2x4xf32>
func.func @graph(%x: tensor<2x1x4xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<1x2x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "Transpose" 13 "t" (%x) {perm = array<i64: 1, 0, 2>} : (tensor<2x1x4xf32>) -> tensor<1x2x4xf32>
  return %0 : tensor<1x2x4xf32>
}

// -----

// Expand drops the stretched dimension before the broadcast; Tile is a broadcast and a reshape.
// CHECK-LABEL: @forward
// CHECK-NEXT: %[[R:.*]] = mpc.reshape %arg0 {{.*}} : tensor<3x1xf32> -> tensor<3xf32>
// CHECK-NEXT: %[[E:.*]] = mpc.broadcast %[[R]] {dimensions = array<i64: 1>, {{.*}}} : tensor<3xf32> -> tensor<2x3x4xf32>
// CHECK-NEXT: %[[B:.*]] = mpc.broadcast %arg0 {dimensions = array<i64: 1, 2>, {{.*}}} : tensor<3x1xf32> -> tensor<2x3x1xf32>
// CHECK-NEXT: %[[T:.*]] = mpc.reshape %[[B]] {{.*}} : tensor<2x3x1xf32> -> tensor<6x1xf32>
// CHECK-NEXT: return %[[E]], %[[T]]
func.func @graph(%x: tensor<3x1xf32> {mpc.role = "input", mpc.name = "x"})
    -> (tensor<2x3x4xf32> {mpc.role = "output", mpc.name = "y"}, tensor<6x1xf32> {mpc.role = "output", mpc.name = "z"}) {
  %s = arith.constant dense<[2, 1, 4]> : tensor<3xi64>
  %r = arith.constant dense<[2, 1]> : tensor<2xi64>
  %0 = onnx.node "Expand" 13 "e" (%x, %s) {} : (tensor<3x1xf32>, tensor<3xi64>) -> tensor<2x3x4xf32>
  %1 = onnx.node "Tile" 13 "t" (%x, %r) {} : (tensor<3x1xf32>, tensor<2xi64>) -> tensor<6x1xf32>
  return %0, %1 : tensor<2x3x4xf32>, tensor<6x1xf32>
}
