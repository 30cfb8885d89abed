// RUN: mpc-opt %s --split-input-file --prepare-training | FileCheck %s

// A BatchNormalization exported in inference mode trains by the batch's statistics in @forward: the running statistics become a working
// copy, updated by ONNX's momentum and tied to its argument. @predict keeps the inference form.
// CHECK: mpc.notes = ["training mode: 1 BatchNormalization by the batch's statistics (1 exported in inference mode)"]
// CHECK-LABEL: func.func @forward
// CHECK-SAME: %[[M:arg[0-9]+]]: tensor<2xf32> {mpc.name = "bn.mean", mpc.role = "working_statistic", mpc.weights = #mpc.weights<"m.onnx", 0, 8, f32>}
// CHECK-SAME: %[[V:arg[0-9]+]]: tensor<2xf32> {mpc.name = "bn.var", mpc.role = "working_statistic"}
// CHECK-SAME: %[[N:arg[0-9]+]]: tensor<i64> {mpc.name = "samples", mpc.role = "samples"}
// CHECK-SAME: -> (tensor<4x2xf32> {mpc.name = "y", mpc.role = "output"}, tensor<2xf32> {mpc.name = "bn.mean", mpc.role = "working_statistic", mpc.tied = 3 : i64}, tensor<2xf32> {mpc.name = "bn.var", mpc.role = "working_statistic", mpc.tied = 4 : i64})
// CHECK: %[[Y:.*]], %[[BM:.*]], %[[BV:.*]] = mpc.batch_norm %{{.*}}, %{{.*}}, %{{.*}}, %[[N]] {{.*}}mpc.node = "bn"
// CHECK: %[[OLD:.*]] = arith.mulf %[[M]], %{{.*}}
// CHECK: %[[NEW:.*]] = arith.mulf %[[BM]], %{{.*}}
// CHECK: %[[SUM:.*]] = arith.addf %[[OLD]], %[[NEW]]
// CHECK: return %[[Y]], %[[SUM]], %{{.*}}
// CHECK-LABEL: func.func @predict
// CHECK-NOT: samples
// CHECK: mpc.batch_norm_inference
module attributes {mpc.batch = 4 : i64} {
func.func @forward(%x: tensor<4x2xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<2xf32> {mpc.role = "parameter", mpc.name = "bn.scale"},
    %b: tensor<2xf32> {mpc.role = "parameter", mpc.name = "bn.bias"},
    %m: tensor<2xf32> {mpc.role = "statistic", mpc.name = "bn.mean", mpc.weights = #mpc.weights<"m.onnx", 0, 8, f32>},
    %v: tensor<2xf32> {mpc.role = "statistic", mpc.name = "bn.var"}) -> (tensor<4x2xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.batch_norm_inference %x, %s, %b, %m, %v {epsilon = 1.0e-5, momentum = 0.9, mpc.node = "bn", mpc.op = "BatchNormalization"}
    : (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}
}

// -----

// Dropout is the identity in @predict, which then needs no random state.
// CHECK: mpc.notes = ["training mode: 1 Dropout active"]
// CHECK-LABEL: func.func @forward
// CHECK: mpc.dropout
// CHECK-LABEL: func.func @predict(%arg0: tensor<4x2xf32> {mpc.name = "x", mpc.role = "input"})
// CHECK-NEXT: return %arg0
func.func @forward(%x: tensor<4x2xf32> {mpc.role = "input", mpc.name = "x"}, %r: tensor<2xi64> {mpc.role = "random_state", mpc.name = "random_state"})
    -> (tensor<4x2xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.dropout %x, %r {ratio = 0.5, operator_id = 0 : i64, seed = 0 : i64} : tensor<4x2xf32>, tensor<2xi64> -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}

// -----

// What a node in training mode puts out is in @forward the statistic that it has moved, also for the next node; in @predict nothing moves.
// CHECK-LABEL: func.func @forward
// CHECK-SAME: %[[M:arg[0-9]+]]: tensor<2xf32> {mpc.name = "m", mpc.role = "working_statistic"}
// CHECK: mpc.batch_norm %{{.*}} {{.*}}mpc.node = "one"
// CHECK: %[[FROM:.*]] = arith.mulf %[[M]]
// CHECK: %[[BY:.*]] = arith.mulf
// CHECK: %[[ONE:.*]] = arith.addf %[[FROM]], %[[BY]]
// CHECK: mpc.stop_gradient %[[ONE]] {mpc.new_statistic}
// CHECK: mpc.batch_norm %{{.*}} {{.*}}mpc.node = "two"
// CHECK: arith.mulf %[[ONE]]
// CHECK-LABEL: func.func @predict
// CHECK: mpc.stop_gradient %arg3
func.func @forward(%x: tensor<4x2xf32> {mpc.role = "input", mpc.name = "x"}, %s: tensor<2xf32> {mpc.role = "parameter", mpc.name = "s"},
                   %b: tensor<2xf32> {mpc.role = "parameter", mpc.name = "b"}, %m: tensor<2xf32> {mpc.role = "statistic", mpc.name = "m"},
                   %v: tensor<2xf32> {mpc.role = "statistic", mpc.name = "v"}) -> (tensor<4x2xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.batch_norm_inference %x, %s, %b, %m, %v {epsilon = 1.0e-5, momentum = 0.9, training, mpc.node = "one", mpc.op = "BatchNormalization"}
    : (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %1 = mpc.stop_gradient %m {mpc.new_statistic} : tensor<2xf32>
  %2 = mpc.batch_norm_inference %0, %s, %b, %1, %v {epsilon = 1.0e-5, momentum = 0.9, training, mpc.node = "two", mpc.op = "BatchNormalization"}
    : (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  return %2 : tensor<4x2xf32>
}
