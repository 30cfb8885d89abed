// RUN: mpc-opt %s --raise-patterns | FileCheck %s

// The bias of a linear layer moves into the product, behind a reshape too.
// CHECK-LABEL: func.func @linear
// CHECK: %[[Y:.*]] = mpc.matmul %{{.*}}, %{{.*}} bias %{{.*}} {mpc.node = "fc"
// CHECK: %[[R:.*]] = mpc.reshape %[[Y]]
// CHECK-NEXT: return %[[R]]
func.func @linear(%x: tensor<6x4xf32>, %w: tensor<4x5xf32>, %b: tensor<5xf32>) -> tensor<2x3x5xf32> {
  %0 = mpc.matmul %x, %w {mpc.node = "fc", mpc.op = "MatMul"} : (tensor<6x4xf32>, tensor<4x5xf32>) -> tensor<6x5xf32>
  %1 = mpc.reshape %0 : tensor<6x5xf32> -> tensor<2x3x5xf32>
  %2 = mpc.broadcast %b {dimensions = array<i64: 2>} : tensor<5xf32> -> tensor<2x3x5xf32>
  %3 = arith.addf %2, %1 : tensor<2x3x5xf32>
  return %3 : tensor<2x3x5xf32>
}

// A convolution's bias is along axis 1.
// CHECK-LABEL: func.func @conv
// CHECK: mpc.conv %{{.*}}, %{{.*}} bias %{{.*}}
// CHECK-NEXT: return
func.func @conv(%x: tensor<1x2x4x4xf32>, %w: tensor<3x2x1x1xf32>, %b: tensor<3xf32>) -> tensor<1x3x4x4xf32> {
  %0 = mpc.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>, tensor<3x2x1x1xf32>) -> tensor<1x3x4x4xf32>
  %1 = mpc.broadcast %b {dimensions = array<i64: 1>} : tensor<3xf32> -> tensor<1x3x4x4xf32>
  %2 = arith.addf %0, %1 : tensor<1x3x4x4xf32>
  return %2 : tensor<1x3x4x4xf32>
}

// A product that someone else reads stays as it is.
// CHECK-LABEL: func.func @shared_product
// CHECK: mpc.matmul
// CHECK-NOT: bias
// CHECK: arith.addf
func.func @shared_product(%x: tensor<6x4xf32>, %w: tensor<4x5xf32>, %b: tensor<5xf32>) -> (tensor<6x5xf32>, tensor<6x5xf32>) {
  %0 = mpc.matmul %x, %w : (tensor<6x4xf32>, tensor<4x5xf32>) -> tensor<6x5xf32>
  %1 = mpc.broadcast %b {dimensions = array<i64: 1>} : tensor<5xf32> -> tensor<6x5xf32>
  %2 = arith.addf %0, %1 : tensor<6x5xf32>
  return %0, %2 : tensor<6x5xf32>, tensor<6x5xf32>
}

// GELU by erf, as PyTorch's exporter writes it, after a sum that is not part of it.
// CHECK-LABEL: func.func @gelu_erf
// CHECK: %[[X:.*]] = arith.addf
// CHECK-NEXT: %[[G:.*]] = mpc.gelu %[[X]] {mpc.node = "mul_1", mpc.op = "Gelu"}
// CHECK-NEXT: return %[[G]]
func.func @gelu_erf(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %root2 = arith.constant dense<1.41421354> : tensor<4xf32>
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %half = arith.constant dense<0.5> : tensor<4xf32>
  %x = arith.addf %a, %b : tensor<4xf32>
  %0 = arith.divf %x, %root2 : tensor<4xf32>
  %1 = math.erf %0 : tensor<4xf32>
  %2 = arith.addf %1, %one : tensor<4xf32>
  %3 = arith.mulf %x, %2 : tensor<4xf32>
  %4 = arith.mulf %3, %half {mpc.node = "mul_1", mpc.op = "Mul"} : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// GELU by tanh, with x³ as x·x·x and 0.5 on another factor.
// CHECK-LABEL: func.func @gelu_tanh
// CHECK-NEXT: mpc.gelu %{{.*}} {approximate
// CHECK-NEXT: return
func.func @gelu_tanh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = arith.constant dense<0.0447149985> : tensor<4xf32>
  %d = arith.constant dense<0.797884583> : tensor<4xf32>
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %half = arith.constant dense<0.5> : tensor<4xf32>
  %0 = arith.mulf %x, %x : tensor<4xf32>
  %1 = arith.mulf %0, %x : tensor<4xf32>
  %2 = arith.mulf %1, %c : tensor<4xf32>
  %3 = arith.addf %x, %2 : tensor<4xf32>
  %4 = arith.mulf %3, %d : tensor<4xf32>
  %5 = math.tanh %4 : tensor<4xf32>
  %6 = arith.addf %5, %one : tensor<4xf32>
  %7 = arith.mulf %x, %half : tensor<4xf32>
  %8 = arith.mulf %7, %6 : tensor<4xf32>
  return %8 : tensor<4xf32>
}

// Another constant is another function.
// CHECK-LABEL: func.func @not_gelu
// CHECK-NOT: mpc.gelu
// CHECK: math.erf
func.func @not_gelu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = arith.constant dense<1.5> : tensor<4xf32>
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %half = arith.constant dense<0.5> : tensor<4xf32>
  %0 = arith.divf %x, %c : tensor<4xf32>
  %1 = math.erf %0 : tensor<4xf32>
  %2 = arith.addf %1, %one : tensor<4xf32>
  %3 = arith.mulf %x, %2 : tensor<4xf32>
  %4 = arith.mulf %3, %half : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// Mean, variance, scale and bias over the last dimension are a layer norm.
// CHECK-LABEL: func.func @layer_norm
// CHECK-NEXT: %[[Y:.*]], %{{.*}}, %{{.*}} = mpc.layer_norm %{{.*}}, %{{.*}} bias %{{.*}} {axis = 1 : i64, epsilon = {{.*}}, mpc.op = "LayerNormalization"}
// CHECK-NEXT: return %[[Y]]
func.func @layer_norm(%x: tensor<2x4xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  %n = arith.constant dense<4.0> : tensor<2xf32>
  %eps = arith.constant dense<9.99999974E-6> : tensor<2x1xf32>
  %0 = mpc.reduce sum %x {axes = array<i64: 1>} : tensor<2x4xf32> -> tensor<2xf32>
  %1 = arith.divf %0, %n : tensor<2xf32>
  %2 = mpc.broadcast %1 {dimensions = array<i64: 0>} : tensor<2xf32> -> tensor<2x4xf32>
  %3 = arith.subf %x, %2 : tensor<2x4xf32>
  %4 = arith.mulf %3, %3 : tensor<2x4xf32>
  %5 = mpc.reduce sum %4 {axes = array<i64: 1>} : tensor<2x4xf32> -> tensor<2xf32>
  %6 = arith.divf %5, %n : tensor<2xf32>
  %7 = mpc.reshape %6 : tensor<2xf32> -> tensor<2x1xf32>
  %8 = arith.addf %7, %eps : tensor<2x1xf32>
  %9 = math.sqrt %8 : tensor<2x1xf32>
  %10 = mpc.reshape %9 : tensor<2x1xf32> -> tensor<2xf32>
  %11 = mpc.broadcast %10 {dimensions = array<i64: 0>} : tensor<2xf32> -> tensor<2x4xf32>
  %12 = arith.divf %3, %11 : tensor<2x4xf32>
  %13 = mpc.broadcast %s {dimensions = array<i64: 1>} : tensor<4xf32> -> tensor<2x4xf32>
  %14 = arith.mulf %12, %13 : tensor<2x4xf32>
  %15 = mpc.broadcast %b {dimensions = array<i64: 1>} : tensor<4xf32> -> tensor<2x4xf32>
  %16 = arith.addf %14, %15 : tensor<2x4xf32>
  return %16 : tensor<2x4xf32>
}
