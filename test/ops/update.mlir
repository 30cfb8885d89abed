// RUN: mpc-opt %s --expand-composites | FileCheck %s

// g = gradient · factor + decay · w; m = momentum · m + g; w -= lr · m. Where ok is false both keep their old bits.
// CHECK-LABEL: func.func @sgd
// CHECK:         mpc.slice %arg6 {starts = array<i64: 0>, steps = array<i64: 1>} : tensor<8xf32> -> tensor<1xf32>
// CHECK-DAG:     %[[U:.*]] = arith.mulf %arg2
// CHECK-DAG:     %[[L2:.*]] = arith.mulf %{{.*}}, %arg0
// CHECK:         %[[G:.*]] = arith.addf %[[U]], %[[L2]]
// CHECK:         %[[B:.*]] = arith.mulf %{{.*}}, %arg1
// CHECK:         %[[M:.*]] = arith.addf %[[B]], %[[G]]
// CHECK:         %[[STEP:.*]] = arith.mulf %{{.*}}, %[[M]]
// CHECK:         %[[W:.*]] = arith.subf %arg0, %[[STEP]]
// CHECK:         %[[NEW_W:.*]] = arith.select %{{.*}}, %[[W]], %arg0
// CHECK:         %[[NEW_M:.*]] = arith.select %{{.*}}, %[[M]], %arg1
// CHECK:         return %[[NEW_W]], %[[NEW_M]]
func.func @sgd(%w: tensor<4xf32>, %m: tensor<4xf32>, %g: tensor<4xf32>, %factor: tensor<f32>, %ok: tensor<i1>, %row: tensor<4xf32>, %hyper: tensor<8xf32>,
               %decay: tensor<f32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0:2 = mpc.sgd_update %w, %m, %g, %factor, %ok, %row, %hyper, %decay
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i1>, tensor<4xf32>, tensor<8xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
}

// AdamW: w is first multiplied by 1 - lr · decay; m += (1-β₁)(g - m); v = β₂v + (1-β₂)g²; w -= step · m / (√v / √(1-β₂^k) + ε).
// CHECK-LABEL: func.func @adamw
// CHECK:         %[[G:.*]] = arith.mulf %arg3
// CHECK:         %[[W:.*]] = arith.mulf %arg0
// CHECK:         %[[D:.*]] = arith.subf %[[G]], %arg1
// CHECK:         %[[DM:.*]] = arith.mulf %{{.*}}, %[[D]]
// CHECK:         %[[M:.*]] = arith.addf %arg1, %[[DM]]
// CHECK:         arith.mulf %[[G]], %[[G]]
// CHECK:         %[[V:.*]] = arith.addf
// CHECK:         %[[ROOT:.*]] = math.sqrt %[[V]]
// CHECK:         arith.divf %[[ROOT]]
// CHECK:         arith.divf %[[M]]
// CHECK:         %[[NEW:.*]] = arith.subf %[[W]]
// CHECK:         arith.select %{{.*}}, %[[NEW]], %arg0
// CHECK:         arith.select %{{.*}}, %[[M]], %arg1
// CHECK:         arith.select %{{.*}}, %[[V]], %arg2
func.func @adamw(%w: tensor<4xf32>, %m: tensor<4xf32>, %v: tensor<4xf32>, %g: tensor<4xf32>, %factor: tensor<f32>, %ok: tensor<i1>, %row: tensor<4xf32>,
                 %hyper: tensor<8xf32>, %decay: tensor<f32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0:3 = mpc.adam_update %w, %m, %v, %g, %factor, %ok, %row, %hyper, %decay {decoupled}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i1>, tensor<4xf32>, tensor<8xf32>, tensor<f32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#1, %0#2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
