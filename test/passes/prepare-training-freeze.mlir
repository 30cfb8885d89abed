// RUN: mpc-opt %s --prepare-training=freeze='^(bn|w1)' | FileCheck %s
// RUN: not mpc-opt %s --prepare-training=freeze='(' 2>&1 | FileCheck %s --check-prefix=INVALID

// Frozen parameters are constants, and a BatchNormalization with frozen scale keeps its running statistics.
// CHECK: mpc.notes = ["--freeze=^(bn|w1): 3 parameters are not trained", "training mode: 1 BatchNormalization frozen, by its running statistics"]
// CHECK-LABEL: func.func @forward
// CHECK-SAME: {mpc.frozen, mpc.name = "w1", mpc.role = "constant"}
// CHECK-SAME: {mpc.name = "w2", mpc.role = "parameter"}
// CHECK-SAME: {mpc.name = "bn.mean", mpc.role = "statistic"}
// CHECK: mpc.batch_norm_inference

// INVALID: error: --freeze=(: not a POSIX extended regular expression: parentheses not balanced
func.func @forward(%x: tensor<4x2xf32> {mpc.role = "input", mpc.name = "x"}, %w1: tensor<4x2xf32> {mpc.role = "parameter", mpc.name = "w1"},
    %w2: tensor<4x2xf32> {mpc.role = "parameter", mpc.name = "w2"},
    %s: tensor<2xf32> {mpc.role = "parameter", mpc.name = "bn.scale"}, %b: tensor<2xf32> {mpc.role = "parameter", mpc.name = "bn.bias"},
    %m: tensor<2xf32> {mpc.role = "statistic", mpc.name = "bn.mean"}, %v: tensor<2xf32> {mpc.role = "statistic", mpc.name = "bn.var"})
    -> (tensor<4x2xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = arith.mulf %x, %w1 : tensor<4x2xf32>
  %1 = arith.mulf %0, %w2 : tensor<4x2xf32>
  %2 = mpc.batch_norm_inference %1, %s, %b, %m, %v {epsilon = 1.0e-5, momentum = 0.9}
    : (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  return %2 : tensor<4x2xf32>
}
