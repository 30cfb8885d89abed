// RUN: mpc-opt %s --convert-onnx-to-mpc --split-input-file | FileCheck %s

// @graph becomes @forward with the same attributes. Every operation carries the name and the operator of its node; broadcasting is explicit.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32> {mpc.name = "x", mpc.role = "input"}
// CHECK-SAME:    %[[W:.*]]: tensor<8xf32> {mpc.name = "w", mpc.role = "parameter"})
// CHECK-SAME:    -> (tensor<4x8xf32> {mpc.name = "y", mpc.role = "output"})
// CHECK:         %[[B:.*]] = mpc.broadcast %[[W]] {dimensions = array<i64: 1>, mpc.node = "add", mpc.op = "Add"}
// CHECK:         %[[Y:.*]] = arith.addf %[[X]], %[[B]] {mpc.node = "add", mpc.op = "Add"}
// CHECK:         return %[[Y]]
// CHECK-NOT:   @graph
func.func @graph(%x: tensor<4x8xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<8xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<4x8xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "Add" 14 "add" (%x, %w) {} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// A model that holds halves itself computes in f32 and rounds each node's result once.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[X:.*]] = arith.extf %arg0 {{.*}} : tensor<4xf16> to tensor<4xf32>
// CHECK:         %[[Y:.*]] = arith.extf %arg1 {{.*}} : tensor<4xf16> to tensor<4xf32>
// CHECK:         %[[S:.*]] = arith.addf %[[X]], %[[Y]] {{.*}} : tensor<4xf32>
// CHECK:         %[[R:.*]] = arith.truncf %[[S]] {{.*}} : tensor<4xf32> to tensor<4xf16>
// CHECK:         return %[[R]]
func.func @graph(%x: tensor<4xf16>, %y: tensor<4xf16>) -> tensor<4xf16> {
  %0 = onnx.node "Add" 14 "add" (%x, %y) {} : (tensor<4xf16>, tensor<4xf16>) -> tensor<4xf16>
  return %0 : tensor<4xf16>
}

// -----

// Shape arithmetic folds: of Shape, Gather, Mul and Concat only the Reshape is left, and the head's size in floats is a constant.
// CHECK-LABEL: module attributes {mpc.batch = 2 : i64} {
// CHECK-LABEL: func.func @forward
// CHECK-NEXT:    %[[R:.*]] = mpc.reshape %arg0 {mpc.node = "reshape", mpc.op = "Reshape"} : tensor<2x3x4xf32> -> tensor<6x4xf32>
// CHECK-NEXT:    %[[C:.*]] = arith.constant dense<4.000000e+00> : tensor<6x4xf32>
// CHECK-NEXT:    %[[D:.*]] = arith.divf %[[R]], %[[C]]
// CHECK-NEXT:    return %[[D]]
module attributes {mpc.batch = 2 : i64} {
  func.func @graph(%x: tensor<2x3x4xf32> {mpc.role = "input", mpc.name = "x"}) -> tensor<6x4xf32> {
    %i = arith.constant dense<[0, 1]> : tensor<2xi64>
    %last = arith.constant dense<2> : tensor<i64>
    %axes = arith.constant dense<0> : tensor<1xi64>
    %minus = arith.constant dense<-1> : tensor<1xi64>
    %0 = onnx.node "Shape" 15 "shape" (%x) {} : (tensor<2x3x4xf32>) -> tensor<3xi64>
    %1 = onnx.node "Gather" 13 "gather" (%0, %i) {axis = 0 : i64} : (tensor<3xi64>, tensor<2xi64>) -> tensor<2xi64>
    %2 = onnx.node "ReduceProd" 18 "rows" (%1) {keepdims = 1 : i64} : (tensor<2xi64>) -> tensor<1xi64>
    %3 = onnx.node "Concat" 13 "concat" (%2, %minus) {axis = 0 : i64} : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
    %4 = onnx.node "Reshape" 14 "reshape" (%x, %3) {} : (tensor<2x3x4xf32>, tensor<2xi64>) -> tensor<6x4xf32>
    %5 = onnx.node "Gather" 13 "head" (%0, %last) {axis = 0 : i64} : (tensor<3xi64>, tensor<i64>) -> tensor<i64>
    %6 = onnx.node "Cast" 13 "cast" (%5) {to = 1 : i64} : (tensor<i64>) -> tensor<f32>
    %7 = onnx.node "Div" 14 "div" (%4, %6) {} : (tensor<6x4xf32>, tensor<f32>) -> tensor<6x4xf32>
    return %7 : tensor<6x4xf32>
  }
}

// -----

// An If whose condition is known is the branch it takes; the branch reads values of the outer graph.
// CHECK-LABEL: func.func @forward
// CHECK-NEXT:    %[[N:.*]] = arith.negf %arg0 {mpc.node = "neg", mpc.op = "Neg"}
// CHECK-NEXT:    return %[[N]]
func.func @graph(%x: tensor<4xf32>) -> tensor<4xf32> {
  %false = arith.constant dense<false> : tensor<i1>
  %0 = onnx.node "If" 16 "if" (%false) {} {
    onnx.yield %x : tensor<4xf32>
  }, {
    %1 = onnx.node "Neg" 13 "neg" (%x) {} : (tensor<4xf32>) -> tensor<4xf32>
    onnx.yield %1 : tensor<4xf32>
  } : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A uint8 is held in i16. What is computed is reduced modulo 256, constants too; inputs and outputs have 8 bits.
// CHECK-LABEL: func.func @forward
// CHECK-SAME:    %[[X:.*]]: tensor<2xi8> {mpc.name = "x", mpc.role = "input"}) -> (tensor<2xi8> {mpc.name = "y", mpc.role = "output"})
// CHECK:         %[[WIDE:.*]] = arith.extui %[[X]] : tensor<2xi8> to tensor<2xi16>
// CHECK:         %[[NEW:.*]] = arith.constant dense<[44, 1]> : tensor<2xi16>
// CHECK:         %[[S:.*]] = arith.subi %[[WIDE]], %[[NEW]]
// CHECK:         %[[MASK:.*]] = arith.constant dense<255> : tensor<2xi16>
// CHECK:         %[[Y:.*]] = arith.andi %[[S]], %[[MASK]] {mpc.node = "sub", mpc.op = "Sub"}
// CHECK:         %[[OUT:.*]] = arith.trunci %[[Y]] : tensor<2xi16> to tensor<2xi8>
// CHECK:         return %[[OUT]]
module attributes {mpc.unsigned = ["x", "y"]} {
  func.func @graph(%x: tensor<2xi8> {mpc.role = "input", mpc.name = "x"}) -> (tensor<2xi16> {mpc.role = "output", mpc.name = "y"}) {
    %a = arith.constant {mpc.unsigned = array<i64: 8>} dense<[100, 1]> : tensor<2xi16>
    %b = arith.constant {mpc.unsigned = array<i64: 8>} dense<[200, 0]> : tensor<2xi16>
    %0 = onnx.node "Add" 14 "add" (%a, %b) {mpc.unsigned = array<i64: 8>} : (tensor<2xi16>, tensor<2xi16>) -> tensor<2xi16>
    %1 = onnx.node "Sub" 14 "sub" (%x, %0) {mpc.unsigned = array<i64: 8>} : (tensor<2xi8>, tensor<2xi16>) -> tensor<2xi16>
    return %1 : tensor<2xi16>
  }
}

// -----

// A uint64 has no wider type: its order is that of the bits with the sign inverted, its conversion and division are unsigned.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[SIGN:.*]] = arith.constant dense<-9223372036854775808> : tensor<2xi64>
// CHECK:         %[[A:.*]] = arith.xori %arg0, %[[SIGN]]
// CHECK:         arith.cmpi slt, %[[A]], %{{.*}}
// CHECK:         arith.uitofp %arg0 {{.*}} : tensor<2xi64> to tensor<2xf32>
// CHECK:         arith.divui %arg0, %{{.*}}
module attributes {mpc.unsigned = ["x", "y"]} {
  func.func @graph(%x: tensor<2xi64> {mpc.role = "input", mpc.name = "x"}, %y: tensor<2xi64> {mpc.role = "input", mpc.name = "y"})
      -> (tensor<2xi1>, tensor<2xf32>, tensor<2xi64>) {
    %0 = onnx.node "Less" 13 "less" (%x, %y) {} : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi1>
    %1 = onnx.node "Cast" 13 "cast" (%x) {to = 1 : i64} : (tensor<2xi64>) -> tensor<2xf32>
    %2 = onnx.node "Div" 14 "div" (%x, %y) {mpc.unsigned = array<i64: 64>} : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64>
    return %0, %1, %2 : tensor<2xi1>, tensor<2xf32>, tensor<2xi64>
  }
}
