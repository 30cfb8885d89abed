// RUN: mpc-opt %s --convert-onnx-to-mpc --split-input-file | FileCheck %s
// RUN: mpc-opt %s --convert-onnx-to-mpc --expand-composites --split-input-file | FileCheck %s --check-prefix=EXPAND

// Before opset 13 a softmax is over everything from the axis on (1, if it is not given), flattened to two dimensions.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[FLAT:.*]] = mpc.reshape %arg0 {{.*}} : tensor<2x3x4xf32> -> tensor<2x12xf32>
// CHECK:         %[[Y:.*]] = mpc.softmax %[[FLAT]] {axis = 1 : i64
// CHECK:         mpc.reshape %[[Y]] {{.*}} : tensor<2x12xf32> -> tensor<2x3x4xf32>
func.func @graph(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = onnx.node "Softmax" 11 "old" (%x) {} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// -----

// From opset 13 on it is over one axis, the last if it is not given. Half in, half out: the primitive form widens, subtracts the maximum, and rounds once.
// CHECK-LABEL:  func.func @forward
// CHECK:          mpc.softmax %arg0 {axis = 2 : i64, mpc.node = "new", mpc.op = "Softmax"} : tensor<2x3x4xf16>
// EXPAND-LABEL: func.func @forward(%arg0: tensor<2x3x4xf16>)
// EXPAND:         %[[X:.*]] = arith.extf %arg0
// EXPAND:         %[[M:.*]] = mpc.reduce max %[[X]] {axes = array<i64: 2>
// EXPAND:         %[[MB:.*]] = mpc.broadcast %[[M]] {dimensions = array<i64: 0, 1>
// EXPAND:         %[[D:.*]] = arith.subf %[[X]], %[[MB]]
// EXPAND:         %[[E:.*]] = math.exp %[[D]]
// EXPAND:         %[[S:.*]] = mpc.reduce sum %[[E]] {axes = array<i64: 2>
// EXPAND:         %[[SB:.*]] = mpc.broadcast %[[S]]
// EXPAND:         %[[Y:.*]] = arith.divf %[[E]], %[[SB]]
// EXPAND:         %[[R:.*]] = arith.truncf %[[Y]]
// EXPAND:         return %[[R]]
func.func @graph(%x: tensor<2x3x4xf16>) -> tensor<2x3x4xf16> {
  %0 = onnx.node "Softmax" 13 "new" (%x) {} : (tensor<2x3x4xf16>) -> tensor<2x3x4xf16>
  return %0 : tensor<2x3x4xf16>
}

// -----

// An inner axis comes last in the primitive form, so that every reduction is over a row.
// EXPAND-LABEL: func.func @forward
// EXPAND:         mpc.transpose %arg0 {{.*}}permutation = array<i64: 0, 2, 1>
// EXPAND:         mpc.reduce max {{.*}}axes = array<i64: 2>
// EXPAND:         mpc.transpose %{{.*}} {{.*}}permutation = array<i64: 0, 2, 1>
// CHECK-LABEL:  func.func @forward
// CHECK:          mpc.log_softmax %arg0 {axis = 1 : i64
func.func @graph(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = onnx.node "LogSoftmax" 13 "log" (%x) {axis = 1 : i64} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// -----

// PyTorch's softmax of rows that a mask may leave nothing of: a safe one, which is zero there; the choice is left with rows of NaN.
// CHECK-LABEL:  func.func @forward
// CHECK:          %[[P:.*]] = mpc.softmax %arg0 {axis = 1 : i64, mpc.node = "p", mpc.op = "Softmax", safe} : tensor<2x3xf16>
// CHECK:          %[[W:.*]] = arith.extf %[[P]]
// CHECK:          %[[N:.*]] = arith.cmpf uno, %[[W]], %[[W]]
// CHECK:          %[[X:.*]] = arith.extf %[[P]]
// CHECK:          arith.select %[[N]], %{{.*}}, %[[X]]
// EXPAND-LABEL: func.func @forward
// EXPAND:         %[[M:.*]] = mpc.reduce max
// EXPAND:         %[[LOWEST:.*]] = arith.constant dense<-3.40282347E+38> : tensor<2xf32>
// EXPAND:         arith.maximumf %[[M]], %[[LOWEST]]
// EXPAND:         %[[S:.*]] = mpc.reduce sum
// EXPAND:         %[[E:.*]] = arith.cmpf oeq, %[[S]]
// EXPAND:         %[[ONE:.*]] = arith.constant dense<1.000000e+00> : tensor<2xf32>
// EXPAND:         arith.select %[[E]], %[[ONE]], %[[S]]
func.func @graph(%x: tensor<2x3xf16>) -> tensor<2x3xf16> {
  %zero = arith.constant dense<0.0> : tensor<f16>
  %0 = onnx.node "Softmax" 13 "p" (%x) {} : (tensor<2x3xf16>) -> tensor<2x3xf16>
  %1 = onnx.node "IsNaN" 13 "none" (%0) {} : (tensor<2x3xf16>) -> tensor<2x3xi1>
  %2 = onnx.node "Where" 16 "safe" (%1, %zero, %0) {} : (tensor<2x3xi1>, tensor<f16>, tensor<2x3xf16>) -> tensor<2x3xf16>
  return %2 : tensor<2x3xf16>
}
