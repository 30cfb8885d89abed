// RUN: mpc-opt %s --split-input-file --convert-onnx-to-mpc | FileCheck %s

// Ends are clamped, INT64_MAX is the end and INT64_MIN before the begin of an axis; steps may be negative.
// CHECK-LABEL: @forward
// CHECK-NEXT: mpc.slice %arg0 {{{.*}}starts = array<i64: 1, 5>, steps = array<i64: 2, -2>} : tensor<5x6xf32> -> tensor<2x3xf32>
func.func @graph(%x: tensor<5x6xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<2x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %starts = arith.constant dense<[1, -1]> : tensor<2xi64>
  %ends = arith.constant dense<[9223372036854775807, -9223372036854775808]> : tensor<2xi64>
  %axes = arith.constant dense<[0, -1]> : tensor<2xi64>
  %steps = arith.constant dense<[2, -2]> : tensor<2xi64>
  %0 = onnx.node "Slice" 13 "s" (%x, %starts, %ends, %axes, %steps) {}
    : (tensor<5x6xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// num_outputs that does not divide: the last part is smaller.
// CHECK-LABEL: @forward
// CHECK-NEXT: mpc.slice %arg0 {{{.*}}starts = array<i64: 0>{{.*}}} : tensor<7xf32> -> tensor<3xf32>
// CHECK-NEXT: mpc.slice %arg0 {{{.*}}starts = array<i64: 3>{{.*}}} : tensor<7xf32> -> tensor<3xf32>
// CHECK-NEXT: mpc.slice %arg0 {{{.*}}starts = array<i64: 6>{{.*}}} : tensor<7xf32> -> tensor<1xf32>
func.func @graph(%x: tensor<7xf32> {mpc.role = "input", mpc.name = "x"})
    -> (tensor<3xf32> {mpc.role = "output", mpc.name = "a"}, tensor<3xf32> {mpc.role = "output", mpc.name = "b"}, tensor<1xf32> {mpc.role = "output", mpc.name = "c"}) {
  %0:3 = onnx.node "Split" 18 "s" (%x) {num_outputs = 3 : i64} : (tensor<7xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<1xf32>)
  return %0#0, %0#1, %0#2 : tensor<3xf32>, tensor<3xf32>, tensor<1xf32>
}

// -----

// Reflected pads read by a constant table of positions, one axis at a time.
// CHECK-LABEL: @forward
// CHECK-NEXT: %[[I:.*]] = arith.constant dense<[2, 1, 0, 1, 2, 1]> : tensor<6xi64>
// CHECK-NEXT: mpc.gather %arg0, %[[I]] {axis = 1 : i64, {{.*}}} : tensor<2x3xf32>, tensor<6xi64> -> tensor<2x6xf32>
func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<2x6xf32> {mpc.role = "output", mpc.name = "y"}) {
  %p = arith.constant dense<[0, 2, 0, 1]> : tensor<4xi64>
  %0 = onnx.node "Pad" 13 "p" (%x, %p) {mode = "reflect"} : (tensor<2x3xf32>, tensor<4xi64>) -> tensor<2x6xf32>
  return %0 : tensor<2x6xf32>
}

// -----

// Negative pads crop. The value is a scalar constant.
// CHECK-LABEL: @forward
// CHECK: %[[V:.*]] = arith.constant -1.500000e+00 : f32
// CHECK-NEXT: mpc.pad %arg0, %[[V]] {high = array<i64: 0, 2>, interior = array<i64: 0, 0>, low = array<i64: 0, -1>, {{.*}}} : tensor<2x3xf32>, f32 -> tensor<2x4xf32>
func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<2x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %p = arith.constant dense<[-1, 2]> : tensor<2xi64>
  %v = arith.constant dense<-1.5> : tensor<f32>
  %a = arith.constant dense<-1> : tensor<1xi64>
  %0 = onnx.node "Pad" 18 "p" (%x, %p, %v, %a) {} : (tensor<2x3xf32>, tensor<2xi64>, tensor<f32>, tensor<1xi64>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

// A causal mask made of ones is a constant; an activation is masked by comparing positions.
// CHECK-LABEL: @forward
// CHECK-DAG: %[[M:.*]] = arith.constant dense<{{\[}}[1.000000e+00, 0.000000e+00], [1.000000e+00, 1.000000e+00]]> : tensor<2x2xf32>
// CHECK-DAG: %[[R:.*]] = mpc.iota {axis = 0 : i64, {{.*}}} : tensor<2x2xi32>
// CHECK-DAG: %[[C:.*]] = mpc.iota {axis = 1 : i64, {{.*}}} : tensor<2x2xi32>
// CHECK: arith.cmpi sle, %[[C]]
// CHECK: %[[Y:.*]] = arith.select {{.*}} %arg0
// CHECK: return %[[M]], %[[Y]]
func.func @graph(%x: tensor<2x2xf32> {mpc.role = "input", mpc.name = "x"})
    -> (tensor<2x2xf32> {mpc.role = "output", mpc.name = "m"}, tensor<2x2xf32> {mpc.role = "output", mpc.name = "y"}) {
  %o = arith.constant dense<1.0> : tensor<2x2xf32>
  %0 = onnx.node "Trilu" 14 "mask" (%o) {upper = 0 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = onnx.node "Trilu" 14 "masked" (%x) {upper = 0 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %0, %1 : tensor<2x2xf32>, tensor<2x2xf32>
}

// -----

// Sequences exist at compile time only.
// CHECK-LABEL: @forward
// CHECK-NEXT: %[[L:.*]] = mpc.slice %arg0 {{{.*}}starts = array<i64: 2, 0>{{.*}}} : tensor<4x3xf32> -> tensor<2x3xf32>
// CHECK-NEXT: return %[[L]]
func.func @graph(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<2x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %two = arith.constant dense<2> : tensor<i64>
  %last = arith.constant dense<-1> : tensor<i64>
  %0 = onnx.node "SplitToSequence" 11 "split" (%x, %two) {axis = 0 : i64} : (tensor<4x3xf32>, tensor<i64>) -> !onnx.sequence
  %1 = onnx.node "SequenceAt" 11 "at" (%0, %last) {} : (!onnx.sequence, tensor<i64>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}
