// RUN: mpc-opt %s --insert-loss-scaling | FileCheck %s
// RUN: mpc-opt %s --insert-loss-scaling=mode=none | FileCheck %s --check-prefix=FIXED
// RUN: mpc-opt %s --insert-loss-scaling=mode=1024 | FileCheck %s --check-prefix=FIXED
// RUN: not mpc-opt %s --insert-loss-scaling=mode=-1 2>&1 | FileCheck %s --check-prefix=INVALID

// The seed is the scale. One reading of each gradient gives the norm and the finite check; loss and new statistics are checked too.
// CHECK: module attributes {mpc.loss_scale = "dynamic"}
// CHECK-LABEL: func.func @gradients
// CHECK-SAME: {mpc.name = "loss_scale", mpc.role = "loss_scale"}
// CHECK-LABEL: func.func @apply(
// CHECK-SAME: %[[LOSS:arg[0-9]+]]: tensor<f32> {mpc.name = "loss", mpc.role = "loss"}
// CHECK-SAME: %[[COUNT:arg[0-9]+]]: tensor<f32> {mpc.name = "count", mpc.role = "count"}
// CHECK-SAME: %[[G:arg[0-9]+]]: tensor<3xf32> {mpc.name = "w", mpc.role = "gradient"}
// CHECK-SAME: %[[WORKING:arg[0-9]+]]: tensor<2xf32> {mpc.name = "m", mpc.role = "working_statistic"}
// CHECK-SAME: %[[STATISTIC:arg[0-9]+]]: tensor<2xf32> {mpc.name = "m", mpc.role = "statistic"}
// CHECK-SAME: %[[SCALE:arg[0-9]+]]: tensor<f32> {mpc.name = "loss_scale", mpc.role = "loss_scale"}
// CHECK: %[[G64:.*]] = arith.extf %[[G]] : tensor<3xf32> to tensor<3xf64>
// CHECK: %[[SQ:.*]] = arith.mulf %[[G64]], %[[G64]]
// CHECK: %[[SUM:.*]] = mpc.reduce sum %[[SQ]] {axes = array<i64: 0>} : tensor<3xf64> -> tensor<f64>
// CHECK: math.absf %[[LOSS]]
// CHECK: math.absf %[[SUM]]
// CHECK: %[[ABS:.*]] = math.absf %[[WORKING]]
// CHECK: mpc.reduce max %[[ABS]]
// CHECK: %[[FINITE:.*]] = arith.andi
// A step in which no loss element counts changes nothing; only one that is not finite lowers the scale.
// CHECK: %[[COUNTS:.*]] = arith.cmpf ogt, %[[COUNT]]
// CHECK: %[[OK:.*]] = arith.andi %[[FINITE]], %[[COUNTS]]
// factor = min(1, clip / (norm + 1e-6)) / scale, in f64: finite gradients may have a norm beyond f32
// CHECK: %[[CLIP:.*]] = arith.minimumf {{.*}} : tensor<f64>
// CHECK: %[[WIDE:.*]] = arith.divf %[[CLIP]], %{{.*}} : tensor<f64>
// CHECK: arith.truncf %[[WIDE]] : tensor<f64> to tensor<f32>
// A skipped step keeps the statistics, and takes the working copy back to them.
// CHECK: %[[OKS:.*]] = mpc.broadcast %[[OK]]
// CHECK: %[[COMMITTED:.*]] = arith.select %[[OKS]], %[[WORKING]], %[[STATISTIC]]
// CHECK: return %[[COMMITTED]], %[[COMMITTED]], %{{.*}}
// CHECK-LABEL: func.func @apply_accumulated
// CHECK-SAME: mpc.role = "accumulated_count"
// CHECK-SAME: mpc.role = "accumulator"

// A fixed scale has no growth tracker; the finite check stays.
// FIXED-LABEL: func.func @apply(
// FIXED-NOT: growth_tracker
// FIXED: arith.cmpf olt

// INVALID: error: --loss-scale=-1: dynamic, none, or a positive number
func.func @gradients(%w: tensor<3xf32> {mpc.role = "parameter", mpc.name = "w"}, %m: tensor<2xf32> {mpc.role = "working_statistic", mpc.name = "m"},
    %seed: tensor<f32> {mpc.role = "seed", mpc.name = "loss_scale"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"},
        tensor<2xf32> {mpc.role = "working_statistic", mpc.name = "m", mpc.tied = 1 : i64}, tensor<3xf32> {mpc.role = "gradient", mpc.name = "w"}) {
  return %seed, %seed, %m, %w : tensor<f32>, tensor<f32>, tensor<2xf32>, tensor<3xf32>
}
