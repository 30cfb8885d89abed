// RUN: mpc-opt %s --split-input-file --convert-onnx-to-mpc | FileCheck %s

// A table indexed by a graph input: negative indices count from the back, and the trainer is told how large an index may be. Two tables: the smaller.
// CHECK: module attributes {{.*}}mpc.index_limit = {ids = 7 : i64}
// CHECK-LABEL: @forward
// CHECK: %[[N:.*]] = arith.cmpi slt, %arg0
// CHECK: %[[B:.*]] = arith.addi %arg0
// CHECK: %[[I:.*]] = arith.select %[[N]], %[[B]], %arg0
// CHECK: mpc.gather %arg1, %[[I]] {axis = 0 : i64, {{.*}}} : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
module {
  func.func @graph(%ids: tensor<2x3xi64> {mpc.role = "input", mpc.name = "ids"}, %w: tensor<9x4xf32> {mpc.role = "parameter", mpc.name = "w"},
                   %v: tensor<7x4xf32> {mpc.role = "parameter", mpc.name = "v"})
      -> (tensor<2x3x4xf32> {mpc.role = "output", mpc.name = "y"}, tensor<2x3x4xf32> {mpc.role = "output", mpc.name = "z"}) {
    %0 = onnx.node "Gather" 13 "w" (%w, %ids) {} : (tensor<9x4xf32>, tensor<2x3xi64>) -> tensor<2x3x4xf32>
    %1 = onnx.node "Gather" 13 "v" (%v, %ids) {} : (tensor<7x4xf32>, tensor<2x3xi64>) -> tensor<2x3x4xf32>
    return %0, %1 : tensor<2x3x4xf32>, tensor<2x3x4xf32>
  }
}

// -----

// One position, or evenly spaced ones, are a slice: the gradient is a pad.
// CHECK-LABEL: @forward
// CHECK: %[[S:.*]] = mpc.slice %arg0 {{{.*}}starts = array<i64: 0, 2, 0>{{.*}}} : tensor<2x3x4xf32> -> tensor<2x1x4xf32>
// CHECK: mpc.reshape %[[S]] {{.*}} : tensor<2x1x4xf32> -> tensor<2x4xf32>
// CHECK: mpc.slice %arg0 {{{.*}}starts = array<i64: 0, 2, 0>, steps = array<i64: 1, -1, 1>} : tensor<2x3x4xf32> -> tensor<2x3x4xf32>
func.func @graph(%x: tensor<2x3x4xf32> {mpc.role = "input", mpc.name = "x"})
    -> (tensor<2x4xf32> {mpc.role = "output", mpc.name = "y"}, tensor<2x3x4xf32> {mpc.role = "output", mpc.name = "z"}) {
  %i = arith.constant dense<-1> : tensor<i64>
  %r = arith.constant dense<[2, 1, 0]> : tensor<3xi64>
  %0 = onnx.node "Gather" 13 "last" (%x, %i) {axis = 1 : i64} : (tensor<2x3x4xf32>, tensor<i64>) -> tensor<2x4xf32>
  %1 = onnx.node "Gather" 13 "reverse" (%x, %r) {axis = 1 : i64} : (tensor<2x3x4xf32>, tensor<3xi64>) -> tensor<2x3x4xf32>
  return %0, %1 : tensor<2x4xf32>, tensor<2x3x4xf32>
}

// -----

// Constant indices are resolved: 3·4 + ..., one position per element of the flattened tensor.
// CHECK-LABEL: @forward
// CHECK: %[[F:.*]] = mpc.reshape %arg0 {{.*}} : tensor<3x4xf32> -> tensor<12xf32>
// CHECK: mpc.gather %[[F]], %{{.*}} {axis = 0 : i64, {{.*}}} : tensor<12xf32>, tensor<4xi64> -> tensor<4xf32>
func.func @graph(%x: tensor<3x4xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<1x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %i = arith.constant dense<[[0, 1, 2, -1]]> : tensor<1x4xi64>
  %0 = onnx.node "GatherElements" 13 "g" (%x, %i) {axis = 0 : i64} : (tensor<3x4xf32>, tensor<1x4xi64>) -> tensor<1x4xf32>
  return %0 : tensor<1x4xf32>
}

// -----

// CHECK-LABEL: @forward
// CHECK: %[[R:.*]] = arith.constant dense<[1.500000e+00, 2.000000e+00, 2.500000e+00]> : tensor<3xf32>
// CHECK: return %[[R]]
func.func @graph() -> (tensor<3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %s = arith.constant dense<1.5> : tensor<f32>
  %l = arith.constant dense<3.0> : tensor<f32>
  %d = arith.constant dense<0.5> : tensor<f32>
  %0 = onnx.node "Range" 11 "r" (%s, %l, %d) {} : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

// The numbers of a tuple go into one position: each is brought into its own axis. One limit holds for all of an input's.
// CHECK: module attributes {{.*}}mpc.index_limit = {at = 4 : i64}
// CHECK-LABEL: @forward
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: mpc.gather %{{.*}} : tensor<12xf32>, tensor<5xi64> -> tensor<5xf32>
module {
  func.func @graph(%x: tensor<3x4xf32> {mpc.role = "input", mpc.name = "x"}, %i: tensor<5x2xi64> {mpc.role = "input", mpc.name = "at"})
      -> (tensor<5xf32> {mpc.role = "output", mpc.name = "y"}) {
    %0 = onnx.node "GatherND" 13 "g" (%x, %i) {} : (tensor<3x4xf32>, tensor<5x2xi64>) -> tensor<5xf32>
    return %0 : tensor<5xf32>
  }
}

// -----

// An unsigned input is widened before it is cast; the trainer checks it all the same. Widening it further needs no mask.
// CHECK: module attributes {{.*}}mpc.index_limit = {ids = 9 : i64}
// CHECK-LABEL: @forward
// CHECK: arith.extui %arg0 : tensor<3xi8> to tensor<3xi16>
// CHECK-NOT: arith.andi
// CHECK: mpc.gather
module attributes {mpc.unsigned = ["ids"]} {
  func.func @graph(%ids: tensor<3xi8> {mpc.role = "input", mpc.name = "ids"}, %w: tensor<9x4xf32> {mpc.role = "parameter", mpc.name = "w"})
      -> (tensor<3x4xf32> {mpc.role = "output", mpc.name = "y"}) {
    %0 = onnx.node "Cast" 13 "wider" (%ids) {to = 4 : i64, mpc.unsigned = array<i64: 16>} : (tensor<3xi8>) -> tensor<3xi32>
    %1 = onnx.node "Cast" 13 "i" (%0) {to = 7 : i64} : (tensor<3xi32>) -> tensor<3xi64>
    %2 = onnx.node "Gather" 13 "w" (%w, %1) {} : (tensor<9x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
    return %2 : tensor<3x4xf32>
  }
}
