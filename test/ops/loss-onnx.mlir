// RUN: mpc-opt %s --convert-onnx-to-mpc --split-input-file | FileCheck %s

// ONNX's own loss: log-softmax, the label's class picked by comparison, an ignored label is no class, the mean is over the weights of the labels (0 / 0 where all
// are ignored). The second output is the log-softmax.
// CHECK-LABEL: func.func @forward
// CHECK:         %[[L:.*]] = mpc.log_softmax %arg0 {axis = 1 : i64
// CHECK:         %[[CLASS:.*]] = mpc.iota {axis = 1 : i64
// CHECK:         %[[IS_LABEL:.*]] = arith.cmpi eq, %[[CLASS]]
// CHECK:         %[[IS_IGNORED:.*]] = arith.cmpi eq, %[[CLASS]]
// CHECK:         %[[PICKS:.*]] = arith.select %[[IS_IGNORED]], %{{.*}}, %[[IS_LABEL]]
// CHECK:         %[[W:.*]] = mpc.broadcast %arg2
// CHECK:         %[[WL:.*]] = arith.mulf %[[W]], %[[L]]
// CHECK:         arith.select %[[PICKS]], %[[WL]]
// CHECK:         arith.select %[[PICKS]], %[[W]]
// CHECK:         %[[MEAN:.*]] = arith.divf
// CHECK:         return %[[MEAN]], %[[L]]
func.func @graph(%x: tensor<4x3xf32>, %l: tensor<4xi64>, %w: tensor<3xf32>) -> (tensor<f32>, tensor<4x3xf32>) {
  %0:2 = onnx.node "SoftmaxCrossEntropyLoss" 13 "loss" (%x, %l, %w) {ignore_index = 1 : i64} : (tensor<4x3xf32>, tensor<4xi64>, tensor<3xf32>) -> (tensor<f32>, tensor<4x3xf32>)
  return %0#0, %0#1 : tensor<f32>, tensor<4x3xf32>
}
