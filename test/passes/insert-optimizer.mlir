// RUN: mpc-opt %s --insert-loss-scaling --insert-optimizer | FileCheck %s
// RUN: mpc-opt %s --insert-loss-scaling --insert-optimizer=optimizer=sgd-nesterov | FileCheck %s --check-prefix=SGD
// RUN: not mpc-opt %s --insert-loss-scaling --insert-optimizer=optimizer=lion 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not mpc-opt %s --insert-optimizer 2>&1 | FileCheck %s --check-prefix=ORDER

// The rounding of the parameter is an argument now: @apply writes it beside the master, @refresh after weights are loaded.
// CHECK-LABEL: func.func @gradients
// CHECK-SAME: {mpc.name = "loss_scale", mpc.role = "loss_scale"}, %[[H:arg[0-9]+]]: tensor<3xf16> {mpc.name = "w", mpc.role = "half_copy"})
// CHECK-NEXT: arith.extf %[[H]]
// CHECK-LABEL: func.func @apply(
// CHECK-SAME: %[[G:arg[0-9]+]]: tensor<3xf32> {mpc.name = "w", mpc.role = "gradient"}
// CHECK-SAME: %[[K:arg[0-9]+]]: tensor<i64> {mpc.name = "applied_steps", mpc.role = "applied_steps"}
// CHECK-SAME: %[[S:arg[0-9]+]]: tensor<4096x4xf32> {mpc.name = "schedule", mpc.role = "schedule"}
// CHECK-SAME: %[[W:arg[0-9]+]]: tensor<3xf32> {mpc.name = "w", mpc.role = "parameter", mpc.weights = #mpc.weights<"m.onnx", 0, 12, f32>}
// CHECK-SAME: %[[D:arg[0-9]+]]: tensor<f32> {mpc.name = "w", mpc.role = "weight_decay"}
// CHECK-SAME: %[[M:arg[0-9]+]]: tensor<3xf32> {mpc.name = "exp_avg/w", mpc.role = "optimizer_state"}
// CHECK-SAME: %[[V:arg[0-9]+]]: tensor<3xf32> {mpc.name = "exp_avg_sq/w", mpc.role = "optimizer_state"}
// CHECK-SAME: tensor<3xf16> {mpc.name = "w", mpc.role = "half_copy", mpc.tied = {{[0-9]+}} : i64})
// CHECK: %[[LAST:.*]] = arith.constant dense<4095> : tensor<i64>
// CHECK: %[[I:.*]] = arith.andi %[[K]], %[[LAST]]
// CHECK: %[[ROW:.*]] = mpc.gather %[[S]], %[[I]]
// CHECK: %[[NEW:.*]], %{{.*}}, %{{.*}} = mpc.adam_update %[[W]], %[[M]], %[[V]], %[[G]], %{{.*}}, %{{.*}}, %[[ROW]], %{{.*}}, %[[D]] {decoupled}
// CHECK: arith.truncf %[[NEW]] : tensor<3xf32> to tensor<3xf16>
// CHECK-LABEL: func.func @apply_accumulated
// CHECK: mpc.adam_update
// CHECK-LABEL: func.func @accumulate
// CHECK: mpc.broadcast
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK-LABEL: func.func @refresh(%arg0: tensor<3xf32> {mpc.name = "w", mpc.role = "parameter"
// CHECK: arith.truncf %arg0

// SGD: mpc.sgd_update %{{.*}} {nesterov}
// UNKNOWN: error: --optimizer=lion: unknown; one of sgd, sgd-nesterov, adam, adamw
// ORDER: error: there is no @apply: run insert-loss-scaling first
func.func @gradients(%w: tensor<3xf32> {mpc.role = "parameter", mpc.name = "w", mpc.weights = #mpc.weights<"m.onnx", 0, 12, f32>},
    %seed: tensor<f32> {mpc.role = "seed", mpc.name = "loss_scale"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"},
        tensor<3xf32> {mpc.role = "gradient", mpc.name = "w"}) {
  %0 = arith.truncf %w : tensor<3xf32> to tensor<3xf16>
  %1 = arith.extf %0 : tensor<3xf16> to tensor<3xf32>
  return %seed, %seed, %1 : tensor<f32>, tensor<f32>, tensor<3xf32>
}
