// RUN: mpc-opt %s --prepare-training --attach-loss | FileCheck %s
// RUN: mpc-opt %s --prepare-training --attach-loss='loss=mse loss-input=y' | FileCheck %s --check-prefix=MSE
// RUN: mpc-opt %s --prepare-training --attach-loss='loss=bce-with-logits' | FileCheck %s --check-prefix=BCE
// RUN: mpc-opt %s --prepare-training --attach-loss='loss=none' | FileCheck %s --check-prefix=INFER
// RUN: mpc-opt %s --prepare-training --attach-loss='class-axis=-1 ignore-index=7 loss-input=z' | FileCheck %s --check-prefix=ROWS
module attributes {mpc.batch = 4 : i64} {

// Class labels have the output's shape without the class axis; @eval_step counts the labels that are the first largest logit.
// CHECK: module attributes {mpc.batch = 4 : i64, mpc.classes = 3 : i64, mpc.ignore_index = -100 : i64, mpc.loss = "cross-entropy", mpc.output_samples = {y = array<i64: 0, 1>, z = array<i64: 0, 1>}}
// CHECK-LABEL: func.func @forward
// CHECK-SAME: %[[N:arg[0-9]+]]: tensor<i64> {mpc.name = "samples", mpc.role = "samples"}
// CHECK-SAME: %[[L:arg[0-9]+]]: tensor<4xi64> {mpc.name = "labels", mpc.role = "labels"}
// CHECK-SAME: -> (tensor<f32> {mpc.name = "loss", mpc.role = "loss"}, tensor<f32> {mpc.name = "count", mpc.role = "count"})
// CHECK: mpc.cross_entropy %{{.*}}, %[[L]], %[[N]] {class_axis = 1 : i64, ignore_index = -100 : i64, mpc.node = "loss", mpc.op = "Loss"}
// CHECK-LABEL: func.func @predict
// CHECK-NOT: mpc.cross_entropy
// CHECK-LABEL: func.func @eval_step
// CHECK-SAME: tensor<f32> {mpc.name = "correct", mpc.role = "correct"})
// CHECK: mpc.cross_entropy
// CHECK: %[[LARGER:.*]] = arith.cmpf ugt
// CHECK: %[[EQUAL:.*]] = arith.cmpf oeq
// CHECK: %[[EARLIER:.*]] = arith.cmpi slt
// CHECK: mpc.mask_samples %{{.*}} {axis = 0 : i64, factor = 1 : i64

// The mean is over the elements of the samples that are there, and a batch without any gives 0.
// MSE-LABEL: func.func @forward
// MSE-SAME: tensor<4x3xf32> {mpc.name = "labels", mpc.role = "labels"}
// MSE: %[[D:.*]] = arith.subf
// MSE: %[[S:.*]] = arith.mulf %[[D]], %[[D]]
// MSE: %[[M:.*]] = mpc.mask_samples %[[S]]
// MSE: %[[SUM:.*]] = mpc.reduce sum %[[M]] {axes = array<i64: 0, 1>
// MSE: %[[N:.*]] = arith.muli %{{.*}} : tensor<i64>
// MSE: %[[COUNT:.*]] = arith.sitofp %[[N]]
// MSE: %[[DIVISOR:.*]] = arith.maximumf %[[COUNT]], %{{.*}}
// MSE: %[[LOSS:.*]] = arith.divf %[[SUM]], %[[DIVISOR]]
// MSE: return %[[LOSS]], %[[COUNT]]
// MSE-LABEL: func.func @eval_step
// MSE: %[[UNKNOWN:.*]] = arith.constant dense<-1.000000e+00> : tensor<f32>
// MSE: return %{{.*}}, %{{.*}}, %[[UNKNOWN]]

// BCE-LABEL: func.func @forward
// BCE: mpc.softplus

// INFER-NOT: func.func @forward
// INFER: func.func @predict
// INFER-NOT: func.func @eval_step

// Rows of an output with several per sample count as long as their sample is there.
// ROWS: mpc.cross_entropy %{{.*}} {class_axis = 1 : i64, factor = 2 : i64, ignore_index = 7 : i64
func.func @forward(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<3xf32> {mpc.role = "parameter", mpc.name = "w"},
    %u: tensor<3xf32> {mpc.role = "parameter", mpc.name = "u"})
    -> (tensor<4x3xf32> {mpc.role = "output", mpc.name = "y"}, tensor<8x3xf32> {mpc.role = "output", mpc.name = "z"}) {
  %rows = mpc.broadcast %w {dimensions = array<i64: 1>} : tensor<3xf32> -> tensor<4x3xf32>
  %0 = arith.mulf %x, %rows : tensor<4x3xf32>
  %1 = mpc.broadcast %x {dimensions = array<i64: 0, 2>} : tensor<4x3xf32> -> tensor<4x2x3xf32>
  %2 = mpc.reshape %1 : tensor<4x2x3xf32> -> tensor<8x3xf32>
  %all = mpc.broadcast %u {dimensions = array<i64: 1>} : tensor<3xf32> -> tensor<8x3xf32>
  %3 = arith.mulf %2, %all : tensor<8x3xf32>
  return %0, %3 : tensor<4x3xf32>, tensor<8x3xf32>
}
}
