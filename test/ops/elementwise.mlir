// RUN: mpc-opt %s --convert-onnx-to-mpc --split-input-file | FileCheck %s

// Clip keeps NaN (maximumf, minimumf), each bound may be left out, and before opset 11 the bounds are attributes.
// CHECK-LABEL: func.func @forward
// CHECK-DAG:     %[[SIX:.*]] = arith.constant dense<6.000000e+00>
// CHECK:         arith.minimumf %arg0, %[[SIX]]
// CHECK:         %[[LOW:.*]] = arith.constant dense<-1.000000e+00>
// CHECK:         %[[M:.*]] = arith.maximumf %arg0, %[[LOW]]
// CHECK:         %[[HIGH:.*]] = arith.constant dense<1.000000e+00>
// CHECK:         arith.minimumf %[[M]], %[[HIGH]]
func.func @graph(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %none = onnx.none
  %high = arith.constant dense<6.0> : tensor<f32>
  %0 = onnx.node "Clip" 13 "upper" (%x, %none, %high) {} : (tensor<4xf32>, none, tensor<f32>) -> tensor<4xf32>
  %1 = onnx.node "Clip" 6 "attributes" (%x) {min = -1.0 : f32, max = 1.0 : f32} : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Small constant powers are products and roots; others stay powf.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[SQUARE:.*]] = arith.mulf %arg0, %arg0 {mpc.node = "cube"
// CHECK:         arith.mulf %[[SQUARE]], %arg0 {mpc.node = "cube"
// CHECK:         math.sqrt %arg0 {mpc.node = "root"
// CHECK:         math.powf %arg0, %arg1 {mpc.node = "power"
func.func @graph(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %three = arith.constant dense<3> : tensor<i64>
  %half = arith.constant dense<0.5> : tensor<1xf32>
  %0 = onnx.node "Pow" 15 "cube" (%x, %three) {} : (tensor<4xf32>, tensor<i64>) -> tensor<4xf32>
  %1 = onnx.node "Pow" 15 "root" (%x, %half) {} : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
  %2 = onnx.node "Pow" 15 "power" (%x, %y) {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Integer division goes towards zero; the remainder has the divisor's sign.
// CHECK-LABEL: func.func @forward
// CHECK-DAG:     %[[DIV:.*]] = arith.constant dense<[-2, 2, 2, -2]>
// CHECK-DAG:     %[[MOD:.*]] = arith.constant dense<[2, 1, -1, -2]>
// CHECK-DAG:     %[[FMOD:.*]] = arith.constant dense<[-1, 1, -1, 1]>
// CHECK:         return %[[DIV]], %[[MOD]], %[[FMOD]]
func.func @graph() -> (tensor<4xi64>, tensor<4xi64>, tensor<4xi64>) {
  %x = arith.constant dense<[-7, 7, -7, 7]> : tensor<4xi64>
  %y = arith.constant dense<[3, 3, -3, -3]> : tensor<4xi64>
  %0 = onnx.node "Div" 14 "div" (%x, %y) {} : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>
  %1 = onnx.node "Mod" 13 "mod" (%x, %y) {} : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>
  %2 = onnx.node "Mod" 13 "fmod" (%x, %y) {fmod = 1 : i64} : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>
  return %0, %1, %2 : tensor<4xi64>, tensor<4xi64>, tensor<4xi64>
}

// -----

// Casts of constants fold with one rounding to nearest even; masks made of constants fold, infinities stay infinite.
// CHECK-LABEL: func.func @forward
// CHECK:         arith.constant dense<[2.048000e+03, 0x7C00]> : tensor<2xf16>
// CHECK:         arith.constant dense<[true, false]>
// CHECK:         arith.constant dense<[0xFF800000, 1.000000e+00]>
func.func @graph() -> (tensor<2xf16>, tensor<2xi1>, tensor<2xf32>) {
  %x = arith.constant dense<[2049.0, 1.0e9]> : tensor<2xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %inf = arith.constant dense<0xFF800000> : tensor<f32>
  %mask = arith.constant dense<[0.0, 1.0]> : tensor<2xf32>
  %0 = onnx.node "Cast" 13 "half" (%x) {to = 10 : i64} : (tensor<2xf32>) -> tensor<2xf16>
  %1 = onnx.node "Equal" 13 "equal" (%mask, %zero) {} : (tensor<2xf32>, tensor<f32>) -> tensor<2xi1>
  %2 = onnx.node "Where" 16 "where" (%1, %inf, %mask) {} : (tensor<2xi1>, tensor<f32>, tensor<2xf32>) -> tensor<2xf32>
  return %0, %1, %2 : tensor<2xf16>, tensor<2xi1>, tensor<2xf32>
}

// -----

// A float becomes a truth value by comparison with 0, a truth value a float by its bit, an integer by its sign.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[T:.*]] = arith.cmpf une, %arg0
// CHECK:         arith.uitofp %[[T]]
// CHECK:         arith.sitofp %arg1
func.func @graph(%x: tensor<2xf32>, %i: tensor<2xi64>) -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = onnx.node "Cast" 13 "truth" (%x) {to = 9 : i64} : (tensor<2xf32>) -> tensor<2xi1>
  %1 = onnx.node "Cast" 13 "number" (%0) {to = 1 : i64} : (tensor<2xi1>) -> tensor<2xf32>
  %2 = onnx.node "Cast" 13 "integer" (%i) {to = 1 : i64} : (tensor<2xi64>) -> tensor<2xf32>
  return %1, %2 : tensor<2xf32>, tensor<2xf32>
}
