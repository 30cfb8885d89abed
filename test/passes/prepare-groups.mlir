// RUN: mpc-opt %s --prepare-groups --canonicalize --split-input-file | FileCheck %s

// What every parameter has a scalar of: the sums of squares become a table, whose sum is the norm's, and the largest magnitudes of the running statistics another.
// AdamW's 1 - lr · decay is computed where it is read.
// CHECK-LABEL: func.func @apply(
// CHECK-SAME:    %[[G:.*]]: tensor<3xf32> {{{.*}}"gradient"}, %[[H:.*]]: tensor<5xf32> {{{.*}}"gradient"}, %[[M:.*]]: tensor<2xf32> {{.*}}, %[[V:.*]]: tensor<2xf32> {{.*}}, %[[LR:.*]]: tensor<f32> {{.*}}, %[[DECAY:.*]]: tensor<f32>
// CHECK-DAG:     %[[A:.*]] = mpc.reduce sum {{.*}} : tensor<3xf32> -> tensor<f32>
// CHECK-DAG:     %[[B:.*]] = mpc.reduce sum {{.*}} : tensor<5xf32> -> tensor<f32>
// CHECK-DAG:     %[[A1:.*]] = mpc.reshape %[[A]]
// CHECK-DAG:     %[[B1:.*]] = mpc.reshape %[[B]]
// CHECK:         %[[SUMS:.*]] = mpc.concat %[[A1]], %[[B1]] {axis = 0 : i64, mpc.table}
// CHECK:         %[[TOTAL:.*]] = mpc.reduce sum %[[SUMS]]
// CHECK-NOT:     arith.addf
// CHECK:         math.sqrt %[[TOTAL]]
// CHECK:         %[[LARGEST:.*]] = mpc.concat {{.*}}mpc.table
// CHECK:         %[[MOST:.*]] = mpc.reduce max %[[LARGEST]]
// CHECK:         %[[SIZE:.*]] = math.absf %[[MOST]] : tensor<f32>
// CHECK:         %[[FINITE:.*]] = arith.cmpf olt, %[[SIZE]]
// CHECK-DAG:     %[[LRS:.*]] = mpc.broadcast %[[LR]]
// CHECK-DAG:     %[[DECAYS:.*]] = mpc.broadcast %[[DECAY]]
// CHECK:         %[[PRODUCT:.*]] = arith.mulf %[[LRS]], %[[DECAYS]] : tensor<3xf32>
// CHECK:         %[[KEPT:.*]] = arith.subf %{{.*}}, %[[PRODUCT]] : tensor<3xf32>
// CHECK:         return %[[SUMS]], %{{.*}}, %[[FINITE]], %[[KEPT]]
func.func @apply(%g: tensor<3xf32> {mpc.role = "gradient", mpc.name = "g"}, %h: tensor<5xf32> {mpc.role = "gradient", mpc.name = "h"},
    %m: tensor<2xf32> {mpc.role = "working_statistic", mpc.name = "m"}, %v: tensor<2xf32> {mpc.role = "working_statistic", mpc.name = "v"},
    %lr: tensor<f32> {mpc.role = "loss", mpc.name = "lr"}, %decay: tensor<f32> {mpc.role = "weight_decay", mpc.name = "g"})
    -> (tensor<2xf32> {mpc.role = "gradient_square_sums", mpc.name = "sums"}, tensor<f32> {mpc.role = "grad_norm", mpc.name = "norm"},
        tensor<i1> {mpc.role = "ok", mpc.name = "ok"}, tensor<3xf32> {mpc.role = "output", mpc.name = "kept"}) {
  %infinity = arith.constant dense<0x7F800000> : tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %gg = arith.mulf %g, %g : tensor<3xf32>
  %a = mpc.reduce sum %gg {axes = array<i64: 0>} : tensor<3xf32> -> tensor<f32>
  %hh = arith.mulf %h, %h : tensor<5xf32>
  %b = mpc.reduce sum %hh {axes = array<i64: 0>} : tensor<5xf32> -> tensor<f32>
  %total = arith.addf %a, %b : tensor<f32>
  %norm = math.sqrt %total : tensor<f32>
  %am = math.absf %m : tensor<2xf32>
  %mm = mpc.reduce max %am {axes = array<i64: 0>} : tensor<2xf32> -> tensor<f32>
  %amm = math.absf %mm : tensor<f32>
  %fm = arith.cmpf olt, %amm, %infinity : tensor<f32>
  %av = math.absf %v : tensor<2xf32>
  %mv = mpc.reduce max %av {axes = array<i64: 0>} : tensor<2xf32> -> tensor<f32>
  %amv = math.absf %mv : tensor<f32>
  %fv = arith.cmpf olt, %amv, %infinity : tensor<f32>
  %ok = arith.andi %fm, %fv : tensor<i1>
  %a1 = mpc.reshape %a : tensor<f32> -> tensor<1xf32>
  %b1 = mpc.reshape %b : tensor<f32> -> tensor<1xf32>
  %sums = mpc.concat %a1, %b1 {axis = 0 : i64} : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %step = arith.mulf %lr, %decay : tensor<f32>
  %rest = arith.subf %one, %step : tensor<f32>
  %kept = mpc.broadcast %rest {dimensions = array<i64>} : tensor<f32> -> tensor<3xf32>
  return %sums, %norm, %ok, %kept : tensor<2xf32>, tensor<f32>, tensor<i1>, tensor<3xf32>
}

// -----

// One parameter and one statistic have no table; AdamW's factor moves all the same.
// CHECK-LABEL: func.func @apply(
// CHECK-SAME:    attributes {mpc.grouped}
// CHECK-NOT:     mpc.table
// CHECK:         %[[A:.*]] = mpc.reduce sum {{.*}} : tensor<3xf32> -> tensor<f32>
// CHECK-NOT:     mpc.reduce sum
// CHECK:         math.sqrt %[[A]]
// CHECK:         %[[MOST:.*]] = mpc.reduce max {{.*}} : tensor<2xf32> -> tensor<f32>
// CHECK:         %[[SIZE:.*]] = math.absf %[[MOST]]
// CHECK:         arith.cmpf olt, %[[SIZE]]
// CHECK-NOT:     mpc.table
// CHECK:         arith.subf %{{.*}} : tensor<3xf32>
func.func @apply(%g: tensor<3xf32> {mpc.role = "gradient", mpc.name = "g"}, %m: tensor<2xf32> {mpc.role = "working_statistic", mpc.name = "m"},
    %decay: tensor<f32> {mpc.role = "weight_decay", mpc.name = "g"})
    -> (tensor<1xf32> {mpc.role = "gradient_square_sums", mpc.name = "sums"}, tensor<f32> {mpc.role = "grad_norm", mpc.name = "norm"},
        tensor<i1> {mpc.role = "ok", mpc.name = "ok"}, tensor<3xf32> {mpc.role = "output", mpc.name = "kept"}) {
  %infinity = arith.constant dense<0x7F800000> : tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %gg = arith.mulf %g, %g : tensor<3xf32>
  %a = mpc.reduce sum %gg {axes = array<i64: 0>} : tensor<3xf32> -> tensor<f32>
  %norm = math.sqrt %a : tensor<f32>
  %am = math.absf %m : tensor<2xf32>
  %mm = mpc.reduce max %am {axes = array<i64: 0>} : tensor<2xf32> -> tensor<f32>
  %amm = math.absf %mm : tensor<f32>
  %ok = arith.cmpf olt, %amm, %infinity : tensor<f32>
  %a1 = mpc.reshape %a : tensor<f32> -> tensor<1xf32>
  %sums = mpc.concat %a1 {axis = 0 : i64} : (tensor<1xf32>) -> tensor<1xf32>
  %rest = arith.subf %one, %decay : tensor<f32>
  %kept = mpc.broadcast %rest {dimensions = array<i64>} : tensor<f32> -> tensor<3xf32>
  return %sums, %norm, %ok, %kept : tensor<1xf32>, tensor<f32>, tensor<i1>, tensor<3xf32>
}

// -----

// Sums that nothing adds up one after the other stay as they are.
// CHECK-LABEL: func.func @apply(
// CHECK-NOT:     mpc.table
// CHECK:         %[[A:.*]] = mpc.reduce sum {{.*}} : tensor<3xf32> -> tensor<f32>
// CHECK:         %[[B:.*]] = mpc.reduce sum {{.*}} : tensor<5xf32> -> tensor<f32>
// CHECK:         arith.maximumf %[[A]], %[[B]]
// CHECK:         mpc.concat %{{.*}}, %{{.*}} {axis = 0 : i64} :
func.func @apply(%g: tensor<3xf32> {mpc.role = "gradient", mpc.name = "g"}, %h: tensor<5xf32> {mpc.role = "gradient", mpc.name = "h"})
    -> (tensor<2xf32> {mpc.role = "gradient_square_sums", mpc.name = "sums"}, tensor<f32> {mpc.role = "grad_norm", mpc.name = "norm"}) {
  %gg = arith.mulf %g, %g : tensor<3xf32>
  %a = mpc.reduce sum %gg {axes = array<i64: 0>} : tensor<3xf32> -> tensor<f32>
  %hh = arith.mulf %h, %h : tensor<5xf32>
  %b = mpc.reduce sum %hh {axes = array<i64: 0>} : tensor<5xf32> -> tensor<f32>
  %most = arith.maximumf %a, %b : tensor<f32>
  %a1 = mpc.reshape %a : tensor<f32> -> tensor<1xf32>
  %b1 = mpc.reshape %b : tensor<f32> -> tensor<1xf32>
  %sums = mpc.concat %a1, %b1 {axis = 0 : i64} : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  return %sums, %most : tensor<2xf32>, tensor<f32>
}
