// RUN: mpc-opt %s --split-input-file --prepare-training | FileCheck %s

// A BatchNormalization keeps its running statistics where its scale, seen through a rounding and a broadcast to its channels, is frozen.
// CHECK: mpc.notes = ["training mode: 1 BatchNormalization frozen, by its running statistics"]
// CHECK-LABEL: func.func @forward
// CHECK-SAME: {mpc.frozen, mpc.name = "bn.scale", mpc.role = "constant"}
// CHECK-SAME: {mpc.name = "bn.mean", mpc.role = "statistic"}
// CHECK: mpc.batch_norm_inference
func.func @forward(%x: tensor<4x2xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<f16> {mpc.role = "constant", mpc.name = "bn.scale", mpc.frozen},
    %b: tensor<2xf32> {mpc.role = "parameter", mpc.name = "bn.bias"},
    %m: tensor<2xf32> {mpc.role = "statistic", mpc.name = "bn.mean"}, %v: tensor<2xf32> {mpc.role = "statistic", mpc.name = "bn.var"})
    -> (tensor<4x2xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = arith.extf %s : tensor<f16> to tensor<f32>
  %1 = mpc.broadcast %0 {dimensions = array<i64>} : tensor<f32> -> tensor<2xf32>
  %2 = mpc.batch_norm_inference %x, %1, %b, %m, %v {epsilon = 1.0e-5, momentum = 0.9}
    : (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  return %2 : tensor<4x2xf32>
}

// -----

// A frozen statistic freezes it too; without any it is trained.
// CHECK: mpc.notes = ["training mode: 1 BatchNormalization by the batch's statistics (1 exported in inference mode), 1 BatchNormalization frozen, by its running statistics"]
// CHECK-LABEL: func.func @forward
// CHECK: mpc.batch_norm_inference
// CHECK: mpc.batch_norm %
func.func @forward(%x: tensor<4x2xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<2xf32> {mpc.role = "parameter", mpc.name = "s"},
    %b: tensor<2xf32> {mpc.role = "parameter", mpc.name = "b"},
    %m: tensor<2xf32> {mpc.role = "statistic", mpc.name = "mean", mpc.frozen}, %v: tensor<2xf32> {mpc.role = "statistic", mpc.name = "var"},
    %m2: tensor<2xf32> {mpc.role = "statistic", mpc.name = "mean2"}, %v2: tensor<2xf32> {mpc.role = "statistic", mpc.name = "var2"})
    -> (tensor<4x2xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.batch_norm_inference %x, %s, %b, %m, %v {epsilon = 1.0e-5, momentum = 0.9}
    : (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %1 = mpc.batch_norm_inference %0, %s, %b, %m2, %v2 {epsilon = 1.0e-5, momentum = 0.9}
    : (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  return %1 : tensor<4x2xf32>
}
