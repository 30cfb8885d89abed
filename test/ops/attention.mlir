// RUN: mpc-opt %s --split-input-file --verify-diagnostics --autodiff | FileCheck %s

// Backward reads the operands, the result and a number per row: nothing of the scores' size is kept. The mask gets no gradient.
// CHECK-LABEL: func.func @gradients
// CHECK: %[[O:.*]], %[[L:.*]], %[[S:.*]] = mpc.attention %[[Q:.*]], %[[Q]], %[[V:.*]] bias %[[M:.*]] {bias_dimensions = array<i64: 0, 3>
// CHECK: %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]] = mpc.attention_grad %{{.*}}, %[[Q]], %[[Q]], %[[V]], %[[O]], %[[L]], %[[S]] bias %[[M]] {bias_dimensions = array<i64: 0, 3>, scale = 5.000000e-01 : f32}
// CHECK-SAME: -> (tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>)
// CHECK-DAG: arith.extf %[[DQ]]
// CHECK-DAG: arith.extf %[[DK]]
func.func @forward(%x: tensor<12x2xf16> {mpc.role = "input", mpc.name = "x"}, %w: tensor<2x2xf32> {mpc.role = "parameter", mpc.name = "w"},
    %mask: tensor<1x4xf32> {mpc.role = "input", mpc.name = "mask"}) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %0 = arith.truncf %w : tensor<2x2xf32> to tensor<2x2xf16>
  %1 = mpc.matmul %x, %0 : (tensor<12x2xf16>, tensor<2x2xf16>) -> tensor<12x2xf16>
  %2 = mpc.reshape %1 : tensor<12x2xf16> -> tensor<1x4x2x3xf16>
  %3 = mpc.reshape %x : tensor<12x2xf16> -> tensor<1x4x2x3xf16>
  %4, %l, %s = mpc.attention %2, %2, %3 bias %mask {scale = 0.5 : f32, bias_dimensions = array<i64: 0, 3>} : (tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<1x4xf32>) -> (tensor<1x4x2x3xf16>, tensor<1x2x4xf32>, tensor<2x1x2x4xf32>)
  %6 = arith.extf %4 : tensor<1x4x2x3xf16> to tensor<1x4x2x3xf32>
  %7 = mpc.reduce sum %6 {axes = array<i64: 0, 1, 2, 3>} : tensor<1x4x2x3xf32> -> tensor<f32>
  return %7 : tensor<f32>
}

// -----

// Dropout of the weights: the gradient draws the same mask again.
// CHECK-LABEL: func.func @gradients
// CHECK: mpc.attention %{{.*}} dropout %[[STATE:.*]], %[[STREAM:.*]] {bias_dimensions = array<i64>, ratio = 1.000000e-01 : f64, scale = 5.000000e-01 : f32}
// CHECK: mpc.attention_grad %{{.*}} dropout %[[STATE]], %[[STREAM]] {bias_dimensions = array<i64>, ratio = 1.000000e-01 : f64, scale = 5.000000e-01 : f32}
func.func @forward(%x: tensor<1x4x2x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<1x4x2x3xf32> {mpc.role = "parameter", mpc.name = "w"},
    %state: tensor<2xi64> {mpc.role = "random_state", mpc.name = "random_state"}) -> (tensor<f32> {mpc.role = "loss", mpc.name = "loss"}) {
  %stream = arith.constant dense<[3, 7]> : tensor<2xi64>
  %0, %1, %2 = mpc.attention %w, %w, %x dropout %state, %stream {scale = 0.5 : f32, bias_dimensions = array<i64>, ratio = 0.1 : f64}
    : (tensor<1x4x2x3xf32>, tensor<1x4x2x3xf32>, tensor<1x4x2x3xf32>, tensor<2xi64>, tensor<2xi64>) -> (tensor<1x4x2x3xf32>, tensor<1x2x4xf32>, tensor<2x1x2x4xf32>)
  %3 = mpc.reduce sum %0 {axes = array<i64: 0, 1, 2, 3>} : tensor<1x4x2x3xf32> -> tensor<f32>
  return %3 : tensor<f32>
}

// -----

func.func @keys_and_values(%q: tensor<1x4x2x3xf16>, %v: tensor<1x5x2x3xf16>) {
  // expected-error @below {{a query 'tensor<1x4x2x3xf16>', a key 'tensor<1x4x2x3xf16>' and a value 'tensor<1x5x2x3xf16>' that do not fit}}
  %0, %1, %2 = mpc.attention %q, %q, %v {scale = 1.0 : f32, bias_dimensions = array<i64>} : (tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<1x5x2x3xf16>) -> (tensor<1x4x2x3xf16>, tensor<1x2x4xf32>, tensor<2x1x2x4xf32>)
  return
}

// -----

func.func @bias(%q: tensor<1x4x2x3xf16>, %b: tensor<2x3xf32>) {
  // expected-error @below {{has a bias 'tensor<2x3xf32>' that does not repeat to its scores}}
  %0, %1, %2 = mpc.attention %q, %q, %q bias %b {scale = 1.0 : f32, bias_dimensions = array<i64: 1, 3>} : (tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<2x3xf32>) -> (tensor<1x4x2x3xf16>, tensor<1x2x4xf32>, tensor<2x1x2x4xf32>)
  return
}

// -----

func.func @doubles(%q: tensor<1x4x2x3xf64>) {
  // expected-error @below {{is for f32, f16 and bf16, not for 'f64'}}
  %0, %1, %2 = mpc.attention %q, %q, %q {scale = 1.0 : f32, bias_dimensions = array<i64>} : (tensor<1x4x2x3xf64>, tensor<1x4x2x3xf64>, tensor<1x4x2x3xf64>) -> (tensor<1x4x2x3xf64>, tensor<1x2x4xf64>, tensor<2x1x2x4xf64>)
  return
}

// -----

func.func @rows(%q: tensor<1x4x2x3xf16>) {
  // expected-error @below {{has 'tensor<1x4x2xf32>' where 'tensor<1x2x4xf32>' belongs}}
  %0, %1, %2 = mpc.attention %q, %q, %q {scale = 1.0 : f32, bias_dimensions = array<i64>} : (tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>) -> (tensor<1x4x2x3xf16>, tensor<1x4x2xf32>, tensor<2x1x4x2xf32>)
  return
}

// -----

func.func @ratio_without_state(%q: tensor<1x4x2x3xf16>) {
  // expected-error @below {{has dropout's state, stream and ratio all or none}}
  %0, %1, %2 = mpc.attention %q, %q, %q {scale = 1.0 : f32, bias_dimensions = array<i64>, ratio = 0.1 : f64} : (tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>) -> (tensor<1x4x2x3xf16>, tensor<1x2x4xf32>, tensor<2x1x2x4xf32>)
  return
}

// -----

func.func @all_dropped(%q: tensor<1x4x2x3xf16>, %state: tensor<2xi64>) {
  // expected-error @below {{needs a ratio of dropout above 0 and below 1, not 1.0}}
  %0, %1, %2 = mpc.attention %q, %q, %q dropout %state, %state {scale = 1.0 : f32, bias_dimensions = array<i64>, ratio = 1.0 : f64} : (tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<2xi64>, tensor<2xi64>) -> (tensor<1x4x2x3xf16>, tensor<1x2x4xf32>, tensor<2x1x2x4xf32>)
  return
}

// -----

func.func @statistics(%q: tensor<1x4x2x3xf16>) {
  // expected-error @below {{has 'tensor<1x2x4xf32>' where 'tensor<2x1x2x4xf32>' belongs}}
  %0, %1, %2 = mpc.attention %q, %q, %q {scale = 1.0 : f32, bias_dimensions = array<i64>} : (tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>, tensor<1x4x2x3xf16>) -> (tensor<1x4x2x3xf16>, tensor<1x2x4xf32>, tensor<1x2x4xf32>)
  return
}
