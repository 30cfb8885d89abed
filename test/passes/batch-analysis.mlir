// RUN: mpc-opt %s --split-input-file --prepare-training --attach-loss='loss=cross-entropy class-axis=-1' | FileCheck %s

// Samples on axis 1 of the output: the loss brings them to axis 0, three rows of time each.
// CHECK-NOT: mpc.tail_refused
// CHECK-LABEL: func.func @forward
// CHECK-SAME: tensor<3x4xi64> {mpc.name = "labels", mpc.role = "labels"}
// CHECK: %[[Y:.*]] = mpc.transpose %{{.*}} permutation = array<i64: 1, 0, 2>} : tensor<3x4x5xf32> -> tensor<4x3x5xf32>
// CHECK: %[[L:.*]] = mpc.transpose %{{.*}} permutation = array<i64: 1, 0>} : tensor<3x4xi64> -> tensor<4x3xi64>
// CHECK: mpc.cross_entropy %[[Y]], %[[L]], %{{.*}} {class_axis = 2
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 1 : i64}} {
func.func @forward(%x: tensor<3x4x5xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<5x5xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<3x4x5xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.reshape %x : tensor<3x4x5xf32> -> tensor<12x5xf32>
  %1 = mpc.matmul %0, %w : (tensor<12x5xf32>, tensor<5x5xf32>) -> tensor<12x5xf32>
  %2 = mpc.reshape %1 : tensor<12x5xf32> -> tensor<3x4x5xf32>
  return %2 : tensor<3x4x5xf32>
}
}

// -----

// Heads merged with the batch and split off again: two rows per sample.
// CHECK-NOT: mpc.tail_refused
// CHECK: mpc.cross_entropy {{.*}} factor = 2 : i64
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<8x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.reshape %x : tensor<4x6xf32> -> tensor<8x3xf32>
  return %0 : tensor<8x3xf32>
}
}

// -----

// A sum over the batch mixes samples: a smaller last batch would come out wrong, and the trainer is told why.
// CHECK: mpc.tail_refused = "node 'total' (ReduceSum) mixes the samples of a batch"
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<4x6xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.reduce sum %x {axes = array<i64: 0>, mpc.node = "total", mpc.op = "ReduceSum"} : tensor<4x6xf32> -> tensor<6xf32>
  %1 = mpc.broadcast %0 {dimensions = array<i64: 1>} : tensor<6xf32> -> tensor<4x6xf32>
  %2 = arith.subf %x, %1 : tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}
}

// -----

// A normalization whose rows are not the samples counts all of them.
// CHECK: mpc.tail_refused = "node 'bn' (BatchNormalization) normalizes rows that are not the samples"
// CHECK: %[[ALL:.*]] = arith.constant dense<8> : tensor<i64>
// CHECK: mpc.batch_norm %{{.*}}, %{{.*}}, %{{.*}}, %[[ALL]]
module attributes {mpc.batch = 4 : i64, mpc.batch_axes = {x = 0 : i64}} {
func.func @forward(%x: tensor<4x6xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<3xf32> {mpc.role = "parameter", mpc.name = "s"},
    %m: tensor<3xf32> {mpc.role = "statistic", mpc.name = "m"}, %v: tensor<3xf32> {mpc.role = "statistic", mpc.name = "v"})
    -> (tensor<8x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.reshape %x : tensor<4x6xf32> -> tensor<8x3xf32>
  %1 = mpc.batch_norm_inference %0, %s, %s, %m, %v {epsilon = 1.0e-5, momentum = 0.9, mpc.node = "bn", mpc.op = "BatchNormalization"}
    : (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<8x3xf32>
  return %1 : tensor<8x3xf32>
}
}
