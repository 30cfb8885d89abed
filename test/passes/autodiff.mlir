// RUN: mpc-opt %s --split-input-file --autodiff --cse | FileCheck %s

// The gradient of a half activation is half; the parameter's comes from its product in f32 and passes the cast and the transpose as it is.
// Nobody wants the input's gradient.
// CHECK-LABEL: func.func @gradients
// CHECK-SAME: %[[SEED:arg[0-9]+]]: tensor<f32> {mpc.name = "loss_scale", mpc.role = "seed"})
// CHECK-SAME: -> (tensor<f32> {mpc.name = "loss", mpc.role = "loss"}, tensor<f32> {mpc.name = "count", mpc.role = "count"}, tensor<5x3xf32> {mpc.name = "w", mpc.role = "gradient"})
// CHECK: %[[Y:.*]] = mpc.matmul
// CHECK: %[[L:.*]], %[[C:.*]] = mpc.cross_entropy %[[Y]]
// CHECK: %[[DY:.*]] = mpc.cross_entropy_grad %[[SEED]], %[[Y]], %{{.*}} -> tensor<4x5xf16>
// CHECK-NOT: -> tensor<4x3xf16>
// CHECK: %[[DW:.*]] = mpc.matmul %{{.*}}, %[[DY]] {mpc.node = "fc", mpc.op = "Gemm", transpose_lhs} {{.*}} -> tensor<3x5xf32>
// CHECK: %[[DWT:.*]] = mpc.transpose %[[DW]] {{.*}} : tensor<3x5xf32> -> tensor<5x3xf32>
// CHECK: return %[[L]], %[[C]], %[[DWT]]
func.func @forward(%x: tensor<4x3xf16> {mpc.role = "input", mpc.name = "x"}, %w: tensor<5x3xf32> {mpc.role = "parameter", mpc.name = "w"},
    %l: tensor<4xi64> {mpc.role = "labels", mpc.name = "labels"}, %n: tensor<i64> {mpc.role = "samples", mpc.name = "samples"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}, tensor<f32> {mpc.role = "count", mpc.name = "count"}) {
  %0 = arith.truncf %w : tensor<5x3xf32> to tensor<5x3xf16>
  %1 = mpc.transpose %0 {permutation = array<i64: 1, 0>} : tensor<5x3xf16> -> tensor<3x5xf16>
  %2 = mpc.matmul %x, %1 {mpc.node = "fc", mpc.op = "Gemm"} : (tensor<4x3xf16>, tensor<3x5xf16>) -> tensor<4x5xf16>
  %3, %4 = mpc.cross_entropy %2, %l, %n {class_axis = 1 : i64, ignore_index = -100 : i64} : (tensor<4x5xf16>, tensor<4xi64>, tensor<i64>) -> (tensor<f32>, tensor<f32>)
  return %3, %4 : tensor<f32>, tensor<f32>
}

// -----

// A value used twice: two half gradients are added in f32 and rounded once.
// CHECK-LABEL: func.func @gradients
// CHECK: %[[A:.*]] = mpc.matmul %{{.*}}, %{{.*}} {{.*}}transpose_rhs} : {{.*}} -> tensor<3x3xf16>
// CHECK: %[[B:.*]] = mpc.transpose
// CHECK-DAG: %[[AF:.*]] = arith.extf %[[A]]
// CHECK-DAG: %[[BF:.*]] = arith.extf %[[B]]
// CHECK: %[[SUM:.*]] = arith.addf %{{.*}}, %{{.*}} : tensor<3x3xf32>
// CHECK: %[[SH:.*]] = arith.truncf %[[SUM]]
// CHECK: mpc.matmul %{{.*}}, %[[SH]] {transpose_lhs} : {{.*}} -> tensor<3x3xf32>
func.func @forward(%x: tensor<3x3xf16> {mpc.role = "input", mpc.name = "x"}, %w: tensor<3x3xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = arith.truncf %w : tensor<3x3xf32> to tensor<3x3xf16>
  %1 = mpc.matmul %x, %0 : (tensor<3x3xf16>, tensor<3x3xf16>) -> tensor<3x3xf16>
  %2 = mpc.transpose %1 {permutation = array<i64: 1, 0>} : tensor<3x3xf16> -> tensor<3x3xf16>
  %3 = mpc.matmul %2, %x : (tensor<3x3xf16>, tensor<3x3xf16>) -> tensor<3x3xf16>
  %4 = mpc.matmul %1, %x : (tensor<3x3xf16>, tensor<3x3xf16>) -> tensor<3x3xf16>
  %5 = arith.extf %3 : tensor<3x3xf16> to tensor<3x3xf32>
  %6 = arith.extf %4 : tensor<3x3xf16> to tensor<3x3xf32>
  %7 = arith.mulf %5, %6 : tensor<3x3xf32>
  %8 = mpc.reduce sum %7 {axes = array<i64: 0, 1>} : tensor<3x3xf32> -> tensor<f32>
  return %8 : tensor<f32>
}

// -----

// Tied weights: the table's scatter_add starts from the projection's gradient, so that there is one sum and no second table.
// CHECK-LABEL: func.func @gradients
// CHECK: %[[DW:.*]] = mpc.matmul {{.*}} -> tensor<9x4xf32>
// CHECK: %[[DT:.*]] = mpc.scatter_add %{{.*}}, %{{.*}} init %[[DW]]
// CHECK-NEXT: return %{{.*}}, %[[DT]]
func.func @forward(%i: tensor<4xi64> {mpc.role = "input", mpc.name = "i"}, %t: tensor<9x4xf32> {mpc.role = "parameter", mpc.name = "table"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = mpc.gather %t, %i {axis = 0 : i64} : tensor<9x4xf32>, tensor<4xi64> -> tensor<4x4xf32>
  %1 = mpc.matmul %0, %t {transpose_rhs} : (tensor<4x4xf32>, tensor<9x4xf32>) -> tensor<4x9xf32>
  %2 = mpc.reduce sum %1 {axes = array<i64: 0, 1>} : tensor<4x9xf32> -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// A gathered sum: the scatter_add is the gradient of both of the addition's operands, one of which has another reader. That one's
// gradient is an addition; one that started the scatter_add from it would be in the other's, too.
// CHECK-LABEL: func.func @gradients
// CHECK: %[[S:.*]] = mpc.scatter_add %{{[0-9a-z_]+}}, %{{[0-9a-z_]+}} {{[{]axis}}
// CHECK-NOT: init
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: return %{{.*}}, %[[S]]
func.func @forward(%i: tensor<4xi64> {mpc.role = "input", mpc.name = "i"}, %x: tensor<9x4xf32> {mpc.role = "input", mpc.name = "x"},
                   %p: tensor<9x4xf32> {mpc.role = "parameter", mpc.name = "p"}, %q: tensor<9x4xf32> {mpc.role = "parameter", mpc.name = "q"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = arith.mulf %x, %q : tensor<9x4xf32>
  %1 = arith.addf %p, %0 : tensor<9x4xf32>
  %2 = math.exp %0 : tensor<9x4xf32>
  %3 = mpc.gather %1, %i {axis = 0 : i64} : tensor<9x4xf32>, tensor<4xi64> -> tensor<4x4xf32>
  %4 = mpc.reduce sum %2 {axes = array<i64: 0, 1>} : tensor<9x4xf32> -> tensor<f32>
  %5 = mpc.reduce sum %3 {axes = array<i64: 0, 1>} : tensor<4x4xf32> -> tensor<f32>
  %6 = arith.addf %4, %5 : tensor<f32>
  return %6 : tensor<f32>
}

// -----

// A parameter that the loss does not depend on gets a zero, and the user is told.
// CHECK: mpc.notes = ["the loss does not depend on parameter 'u': its gradient is zero"]
// CHECK-LABEL: func.func @gradients
// CHECK: arith.constant dense<0.000000e+00> : tensor<7xf32>
func.func @forward(%w: tensor<f32> {mpc.role = "parameter", mpc.name = "w"}, %u: tensor<7xf32> {mpc.role = "parameter", mpc.name = "u"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = arith.mulf %w, %w : tensor<f32>
  return %0 : tensor<f32>
}

// -----

// The derivative of what is stored in half alone reads the half; of what forward also reads as it is, the exact value.
// CHECK-LABEL: func.func @gradients
// CHECK: %[[P:.*]] = math.exp
// CHECK: %[[H:.*]] = arith.truncf %[[P]]
// CHECK: %[[STORED:.*]] = arith.extf %[[H]]
// CHECK: %[[Q:.*]] = math.exp
// CHECK: math.log %[[Q]]
// CHECK: arith.divf %{{.*}}, %[[Q]]
// CHECK: arith.mulf %{{.*}}, %[[Q]]
// CHECK: arith.mulf %{{.*}}, %[[STORED]]
func.func @forward(%x: tensor<4x4xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x4xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = arith.mulf %x, %w : tensor<4x4xf32>
  %1 = math.exp %0 : tensor<4x4xf32>
  %2 = arith.truncf %1 : tensor<4x4xf32> to tensor<4x4xf16>
  %3 = arith.extf %2 : tensor<4x4xf16> to tensor<4x4xf32>
  %4 = math.exp %w : tensor<4x4xf32>
  %5 = arith.truncf %4 : tensor<4x4xf32> to tensor<4x4xf16>
  %6 = math.log %4 : tensor<4x4xf32>
  %7 = mpc.matmul %2, %5 : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf32>
  %8 = arith.addf %7, %6 : tensor<4x4xf32>
  %9 = arith.addf %8, %3 : tensor<4x4xf32>
  %10 = mpc.reduce sum %9 {axes = array<i64: 0, 1>} : tensor<4x4xf32> -> tensor<f32>
  return %10 : tensor<f32>
}
