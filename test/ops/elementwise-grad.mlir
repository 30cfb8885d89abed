// RUN: mpc-opt %s --convert-onnx-to-mpc --autodiff --canonicalize --split-input-file | FileCheck %s

// Relu passes no gradient at 0.
// CHECK-LABEL: func.func @gradients
// CHECK:         %[[DY:.*]] = mpc.broadcast %arg1
// CHECK:         %[[POSITIVE:.*]] = arith.cmpf ogt, %arg0, %[[ZERO:.*]] {
// CHECK:         arith.select %[[POSITIVE]], %[[DY]], %[[ZERO]]
func.func @graph(%x: tensor<4xf32> {mpc.role = "parameter", mpc.name = "x"}) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = onnx.node "Relu" 14 "relu" (%x) {} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = onnx.node "ReduceSum" 13 "sum" (%0) {keepdims = 0 : i64} : (tensor<4xf32>) -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// Clip passes the whole gradient on its bounds.
// CHECK-LABEL: func.func @gradients
// CHECK:         %[[DY:.*]] = mpc.broadcast %arg1
// CHECK:         %[[INSIDE:.*]] = arith.cmpf oge, %arg0
// CHECK:         arith.select %[[INSIDE]], %[[DY]]
func.func @graph(%x: tensor<4xf32> {mpc.role = "parameter", mpc.name = "x"}) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %low = arith.constant dense<1.0> : tensor<f32>
  %0 = onnx.node "Clip" 13 "clip" (%x, %low) {} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = onnx.node "ReduceSum" 13 "sum" (%0) {keepdims = 0 : i64} : (tensor<4xf32>) -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// Max: half the gradient to each operand of a tie.
// CHECK-LABEL: func.func @gradients
// CHECK:         %[[HALF:.*]] = arith.constant dense<5.000000e-01>
// CHECK:         %[[DY:.*]] = mpc.broadcast %arg2
// CHECK:         %[[SHARE:.*]] = arith.mulf %[[DY]], %[[HALF]]
// CHECK:         %[[EQUAL:.*]] = arith.cmpf oeq, %arg0, %arg1
// CHECK:         %[[TIE:.*]] = arith.select %[[EQUAL]], %[[SHARE]]
// CHECK:         %[[WINS:.*]] = arith.cmpf ogt, %arg0, %arg1
// CHECK:         arith.select %[[WINS]], %[[DY]], %[[TIE]]
func.func @graph(%x: tensor<4xf32> {mpc.role = "parameter", mpc.name = "x"}, %y: tensor<4xf32>) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = onnx.node "Max" 13 "max" (%x, %y) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = onnx.node "ReduceSum" 13 "sum" (%0) {keepdims = 0 : i64} : (tensor<4xf32>) -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// Where(c, sqrt(x), x): the branch not taken gets an exact 0, and sqrt hands a 0 on although its derivative may be infinite.
// CHECK-LABEL: func.func @gradients
// CHECK:         %[[ZERO:.*]] = arith.constant dense<0.000000e+00>
// CHECK:         %[[DY:.*]] = mpc.broadcast %arg2
// CHECK:         %[[TAKEN:.*]] = arith.select %arg1, %[[DY]], %[[ZERO]]
// CHECK:         %[[D:.*]] = arith.divf %[[TAKEN]]
// CHECK:         %[[NONE:.*]] = arith.cmpf oeq, %[[TAKEN]], %[[ZERO]]
// CHECK:         arith.select %[[NONE]], %[[ZERO]], %[[D]]
func.func @graph(%x: tensor<4xf32> {mpc.role = "parameter", mpc.name = "x"}, %c: tensor<4xi1>) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = onnx.node "Sqrt" 13 "sqrt" (%x) {} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = onnx.node "Where" 16 "where" (%c, %0, %x) {} : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = onnx.node "ReduceSum" 13 "sum" (%1) {keepdims = 0 : i64} : (tensor<4xf32>) -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// A product is guarded only where the other factor comes from an operation with a pole: here 1/n.
// CHECK-LABEL: func.func @gradients
// CHECK:         arith.mulf %{{.*}} {mpc.node = "plain"
// CHECK:         %[[DY:.*]] = arith.mulf %{{.*}} {mpc.node = "plain"
// CHECK-NOT:     arith.select %{{.*}} {mpc.node = "plain"
// CHECK:         %[[D:.*]] = arith.mulf %[[DY]], %{{.*}} {mpc.node = "guarded"
// CHECK:         %[[NONE:.*]] = arith.cmpf oeq, %[[DY]]
// CHECK:         arith.select %[[NONE]], %{{.*}}, %[[D]] {mpc.node = "guarded"
func.func @graph(%x: tensor<4xf32> {mpc.role = "parameter", mpc.name = "x"}, %n: tensor<4xf32>) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = onnx.node "Reciprocal" 13 "reciprocal" (%n) {} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = onnx.node "Mul" 14 "guarded" (%x, %0) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = onnx.node "Mul" 14 "plain" (%1, %n) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = onnx.node "ReduceSum" 13 "sum" (%2) {keepdims = 0 : i64} : (tensor<4xf32>) -> tensor<f32>
  return %3 : tensor<f32>
}

// -----

// stop_gradient: x · stop(x) has the derivative stop(x).
// CHECK-LABEL: func.func @gradients
// CHECK:         %[[DY:.*]] = mpc.broadcast %arg1
// CHECK:         %[[DX:.*]] = arith.mulf %[[DY]], %[[STOPPED:[^ ]*]]
// CHECK-NOT:     arith
// CHECK:         return %{{.*}}, %[[DX]]
func.func @graph(%x: tensor<4xf32> {mpc.role = "parameter", mpc.name = "x"}) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %stopped = mpc.stop_gradient %x : tensor<4xf32>
  %product = arith.mulf %x, %stopped : tensor<4xf32>
  %sum = mpc.reduce sum %product {axes = array<i64: 0>} : tensor<4xf32> -> tensor<f32>
  return %sum : tensor<f32>
}
