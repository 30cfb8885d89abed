// RUN: mpc-opt %s --prepare-training --attach-loss='loss-input=h loss=mse' | FileCheck %s
// RUN: mpc-opt %s --prepare-training --attach-loss='loss=none' | FileCheck %s --check-prefix=INFER

// A tensor inside the graph, which the importer gives as one more result, is what the loss reads; @predict gives the model's outputs only.
// CHECK-LABEL: func.func @forward
// CHECK: %[[H:.*]] = arith.mulf
// CHECK: arith.subf %[[H]]
// CHECK-LABEL: func.func @predict
// CHECK-SAME: -> (tensor<4x3xf32> {mpc.name = "y", mpc.role = "output"})
// CHECK-LABEL: func.func @eval_step
// CHECK: %[[E:.*]] = arith.mulf
// CHECK: arith.subf %[[E]]

// INFER: func.func @predict
// INFER-SAME: -> (tensor<4x3xf32> {mpc.name = "y", mpc.role = "output"})
// INFER-NOT: loss_input
module attributes {mpc.batch = 4 : i64} {
func.func @forward(%x: tensor<4x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x3xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<4x3xf32> {mpc.role = "output", mpc.name = "y"}, tensor<4x3xf32> {mpc.role = "loss_input", mpc.name = "h"}) {
  %0 = arith.mulf %x, %w : tensor<4x3xf32>
  %1 = math.exp %0 : tensor<4x3xf32>
  return %1, %0 : tensor<4x3xf32>, tensor<4x3xf32>
}
}
