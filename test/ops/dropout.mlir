// RUN: mpc-opt %s --convert-onnx-to-mpc --split-input-file | FileCheck %s
// RUN: mpc-opt %s --convert-onnx-to-mpc --expand-composites --split-input-file | FileCheck %s --check-prefix=EXPAND

// A Dropout that an exporter left in the graph is active in training. The state is an argument; each operator has a number. Ratio 0 is nothing.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %arg1: tensor<2xi64> {mpc.name = "random_state", mpc.role = "random_state"})
// CHECK:         %[[A:.*]] = mpc.dropout %arg0, %arg1 {{{.*}}operator_id = 0 : i64, ratio = 2.500000e-01 : f64, seed = 0 : i64}
// CHECK:         %[[B:.*]] = mpc.dropout %[[A]], %arg1 {{{.*}}operator_id = 1 : i64, ratio = 5.000000e-01 : f64, seed = 7 : i64}
// CHECK:         return %[[B]]

// The mask depends on the position only; it is drawn and compared in f32.
// EXPAND-LABEL: func.func @forward(
// EXPAND:         %[[X:.*]] = arith.extf %arg0
// EXPAND:         %[[U:.*]] = mpc.random_uniform %arg1 {{{.*}}operator_id = 0 : i64, seed = 0 : i64} : tensor<2xi64> -> tensor<4x8xf32>
// EXPAND:         %[[RATIO:.*]] = arith.constant dense<2.500000e-01> : tensor<4x8xf32>
// EXPAND:         %[[KEPT:.*]] = arith.cmpf oge, %[[U]], %[[RATIO]]
// EXPAND:         %[[SCALED:.*]] = arith.mulf %[[X]]
// EXPAND:         %[[Y:.*]] = arith.select %[[KEPT]], %[[SCALED]]
// EXPAND:         arith.truncf %[[Y]]
func.func @graph(%x: tensor<4x8xf16>) -> tensor<4x8xf16> {
  %quarter = arith.constant dense<0.25> : tensor<f32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %false = arith.constant dense<false> : tensor<i1>
  %0 = onnx.node "Dropout" 13 "first" (%x, %quarter, %false) {} : (tensor<4x8xf16>, tensor<f32>, tensor<i1>) -> tensor<4x8xf16>
  %1 = onnx.node "Dropout" 13 "nothing" (%0, %zero) {} : (tensor<4x8xf16>, tensor<f32>) -> tensor<4x8xf16>
  %2 = onnx.node "Dropout" 10 "second" (%1) {ratio = 0.5 : f32, seed = 7 : i64} : (tensor<4x8xf16>) -> tensor<4x8xf16>
  return %2 : tensor<4x8xf16>
}
