// RUN: mpc-opt %s --split-input-file --convert-onnx-to-mpc | FileCheck %s

// ONNX keeps the normalized dimensions of the statistics with size 1; mpc.layer_norm drops them.
// CHECK-LABEL: @forward
// CHECK-NEXT: %[[Y:.*]], %[[M:.*]], %[[R:.*]] = mpc.layer_norm %arg0, %arg1 bias %arg2 {axis = 1 : i64, epsilon = {{.*}} : f64, {{.*}}} : (tensor<2x3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> (tensor<2x3x4xf32>, tensor<2xf32>, tensor<2xf32>)
// CHECK-NEXT: mpc.reshape %[[M]] {{.*}} : tensor<2xf32> -> tensor<2x1x1xf32>
func.func @graph(%x: tensor<2x3x4xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<3x4xf32> {mpc.role = "parameter", mpc.name = "s"},
                 %b: tensor<3x4xf32> {mpc.role = "parameter", mpc.name = "b"})
    -> (tensor<2x3x4xf32> {mpc.role = "output", mpc.name = "y"}, tensor<2x1x1xf32> {mpc.role = "output", mpc.name = "m"}) {
  %0:2 = onnx.node "LayerNormalization" 17 "ln" (%x, %s, %b) {axis = -2 : i64} : (tensor<2x3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x1x1xf32>)
  return %0#0, %0#1 : tensor<2x3x4xf32>, tensor<2x1x1xf32>
}

// -----

// A scale per row is a factor behind the normalization.
// CHECK-LABEL: @forward
// CHECK: %[[S:.*]] = mpc.broadcast %arg1 {{.*}} : tensor<3x4xf32> -> tensor<2x3x4xf32>
// CHECK: %[[ONES:.*]] = arith.constant dense<1.000000e+00> : tensor<4xf32>
// CHECK: %[[Y:.*]], %{{.*}}, %{{.*}} = mpc.layer_norm %arg0, %[[ONES]] {axis = 2 : i64,
// CHECK: arith.mulf %[[Y]], %[[S]]
func.func @graph(%x: tensor<2x3x4xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<3x4xf32> {mpc.role = "parameter", mpc.name = "s"})
    -> (tensor<2x3x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "LayerNormalization" 17 "ln" (%x, %s) {} : (tensor<2x3x4xf32>, tensor<3x4xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// -----

// Batch norm comes in as its inference form. What a training-mode node puts out is the statistic, marked for prepare-training, which moves it.
// CHECK-LABEL: @forward
// CHECK-NEXT: %[[Y:.*]] = mpc.batch_norm_inference %arg0, %arg1, %arg2, %arg3, %arg4 {epsilon = {{.*}}, momentum = {{.*}}, {{.*}}training}
// CHECK-NEXT: %[[NEW:.*]] = mpc.stop_gradient %arg3 {mpc.new_statistic,
// CHECK-NEXT: return %[[Y]], %[[NEW]]
func.func @graph(%x: tensor<2x3x4xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<3xf32> {mpc.role = "parameter", mpc.name = "s"},
                 %b: tensor<3xf32> {mpc.role = "parameter", mpc.name = "b"}, %m: tensor<3xf32> {mpc.role = "statistic", mpc.name = "m"},
                 %v: tensor<3xf32> {mpc.role = "statistic", mpc.name = "v"})
    -> (tensor<2x3x4xf32> {mpc.role = "output", mpc.name = "y"}, tensor<3xf32> {mpc.role = "output", mpc.name = "rm"}) {
  %0:3 = onnx.node "BatchNormalization" 15 "bn" (%x, %s, %b, %m, %v) {training_mode = 1 : i64}
    : (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
  return %0#0, %0#1 : tensor<2x3x4xf32>, tensor<3xf32>
}

// -----

// Group norm: a layer norm of each group's elements, then scale and bias per channel.
// CHECK-LABEL: @forward
// CHECK: %[[R:.*]] = mpc.reshape %arg0 {{.*}} : tensor<2x6x5xf32> -> tensor<6x10xf32>
// CHECK: %[[Y:.*]], %{{.*}}, %{{.*}} = mpc.layer_norm %[[R]], %{{.*}} {axis = 1 : i64,
// CHECK: mpc.reshape %[[Y]] {{.*}} : tensor<6x10xf32> -> tensor<2x6x5xf32>
// CHECK: arith.mulf
// CHECK: arith.addf
func.func @graph(%x: tensor<2x6x5xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<6xf32> {mpc.role = "parameter", mpc.name = "s"},
                 %b: tensor<6xf32> {mpc.role = "parameter", mpc.name = "b"}) -> (tensor<2x6x5xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "GroupNormalization" 21 "gn" (%x, %s, %b) {num_groups = 3 : i64} : (tensor<2x6x5xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<2x6x5xf32>
  return %0 : tensor<2x6x5xf32>
}
