// RUN: mpc-opt %s --split-input-file --assign-precision --cse | FileCheck %s

// A pointwise operation is half only where all its float inputs are: the graph input is f32. Its f32 sum is rounded for the product.
// CHECK-LABEL: func.func @forward
// CHECK: %[[P:.*]] = mpc.matmul {{.*}} -> tensor<4x4xf16>
// CHECK: %[[F:.*]] = arith.extf %[[P]]
// CHECK: %[[S:.*]] = arith.addf %[[F]], %arg0 {{.*}} : tensor<4x4xf32>
// CHECK: %[[SH:.*]] = arith.truncf %[[S]]
// CHECK: mpc.matmul %[[SH]]
func.func @forward(%x: tensor<4x4xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x4xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<4x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.matmul %x, %w {mpc.node = "a", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = arith.addf %0, %x {mpc.node = "b", mpc.op = "Add"} : tensor<4x4xf32>
  %2 = mpc.matmul %1, %w {mpc.node = "c", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// -----

// A constant that does not fit f16 keeps the sum f32 (a mask's -1e9 must not become -inf); one that fits does not.
// CHECK-LABEL: func.func @forward
// CHECK: %[[A:.*]] = arith.addf %{{.*}} : tensor<4x4xf32>
// CHECK: %[[AH:.*]] = arith.truncf %[[A]]
// CHECK: %[[AF:.*]] = arith.extf %[[AH]]
// CHECK: %[[B:.*]] = arith.addf %[[AF]], %{{.*}} : tensor<4x4xf32>
// CHECK-NOT: arith.truncf %[[B]]
// CHECK: mpc.softmax %[[B]] {{.*}} : tensor<4x4xf32>
func.func @forward(%x: tensor<4x4xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x4xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<4x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %small = arith.constant dense<1.5> : tensor<4x4xf32>
  %large = arith.constant dense<-1.0e9> : tensor<4x4xf32>
  %0 = mpc.matmul %x, %w {mpc.node = "a", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = arith.addf %0, %small {mpc.node = "b", mpc.op = "Add"} : tensor<4x4xf32>
  %2 = arith.addf %1, %large {mpc.node = "c", mpc.op = "Add"} : tensor<4x4xf32>
  %3 = mpc.softmax %2 {axis = 1 : i64, mpc.node = "d", mpc.op = "Softmax"} : tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// -----

// Inside a node of several operations values stay f32: one rounding at its output.
// CHECK-LABEL: func.func @forward
// CHECK: %[[F:.*]] = arith.extf
// CHECK-NEXT: %[[E:.*]] = math.exp %[[F]] {{.*}} : tensor<4x4xf32>
// CHECK-NEXT: %[[M:.*]] = arith.mulf %[[E]], %[[F]] {{.*}} : tensor<4x4xf32>
// CHECK-NEXT: %[[H:.*]] = arith.truncf %[[M]]
// CHECK: mpc.matmul %[[H]]
func.func @forward(%x: tensor<4x4xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x4xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<4x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.matmul %x, %w {mpc.node = "a", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = math.exp %0 {mpc.node = "swish", mpc.op = "Swish"} : tensor<4x4xf32>
  %2 = arith.mulf %1, %0 {mpc.node = "swish", mpc.op = "Swish"} : tensor<4x4xf32>
  %3 = mpc.matmul %2, %w {mpc.node = "c", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// -----

// A lookup table stays f32; a position table, read at places known at compile time, follows the activations.
// CHECK-LABEL: func.func @forward
// CHECK: %[[E:.*]] = mpc.gather %arg1, %arg0 {{.*}} -> tensor<4x4xf32>
// CHECK: %[[EH:.*]] = arith.truncf %[[E]]
// CHECK: %[[Y:.*]] = mpc.matmul %[[EH]]
// CHECK: %[[YF:.*]] = arith.extf %[[Y]]
// CHECK: %[[S:.*]] = arith.addf %[[YF]], %{{.*}} {{.*}} : tensor<4x4xf32>
// CHECK: arith.truncf %[[S]]
func.func @forward(%i: tensor<4xi64> {mpc.role = "input", mpc.name = "i"}, %t: tensor<9x4xf32> {mpc.role = "parameter", mpc.name = "table"},
    %w: tensor<4x4xf32> {mpc.role = "parameter", mpc.name = "w"}) -> (tensor<4x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %places = arith.constant dense<[0, 1, 2, 3]> : tensor<4xi64>
  %0 = mpc.gather %t, %i {axis = 0 : i64, mpc.node = "lookup", mpc.op = "Gather"} : tensor<9x4xf32>, tensor<4xi64> -> tensor<4x4xf32>
  %1 = mpc.matmul %0, %w {mpc.node = "a", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = mpc.gather %w, %places {axis = 0 : i64, mpc.node = "positions", mpc.op = "Gather"} : tensor<4x4xf32>, tensor<4xi64> -> tensor<4x4xf32>
  %3 = arith.addf %1, %2 {mpc.node = "b", mpc.op = "Add"} : tensor<4x4xf32>
  %4 = mpc.matmul %3, %w {mpc.node = "c", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %4 : tensor<4x4xf32>
}

// -----

// A table that is also an output projection is read as its half copy.
// CHECK-LABEL: func.func @forward
// CHECK: %[[T:.*]] = arith.truncf %arg1 : tensor<4x4xf32> to tensor<4x4xf16>
// CHECK: mpc.gather %[[T]], %arg0
// CHECK: mpc.matmul %{{.*}}, %[[T]]
func.func @forward(%i: tensor<4xi64> {mpc.role = "input", mpc.name = "i"}, %t: tensor<4x4xf32> {mpc.role = "parameter", mpc.name = "table"})
    -> (tensor<4x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.gather %t, %i {axis = 0 : i64, mpc.node = "lookup", mpc.op = "Gather"} : tensor<4x4xf32>, tensor<4xi64> -> tensor<4x4xf32>
  %1 = mpc.matmul %0, %t {transpose_rhs, mpc.node = "a", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}

// -----

// Normalization reads and writes half, its scale stays f32; a sum over the batch accumulates and stays f32.
// CHECK-LABEL: func.func @forward
// CHECK: %[[Y:.*]] = mpc.matmul {{.*}} -> tensor<4x4xf16>
// CHECK: %[[N:.*]], %{{.*}}, %{{.*}} = mpc.layer_norm %[[Y]], %arg2 {{.*}} : (tensor<4x4xf16>, tensor<4xf32>) -> (tensor<4x4xf16>, tensor<4xf32>, tensor<4xf32>)
// CHECK: mpc.matmul %[[N]]
// CHECK: mpc.reduce sum %{{.*}} : tensor<4x4xf16> -> tensor<4xf32>
func.func @forward(%x: tensor<4x4xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x4xf32> {mpc.role = "parameter", mpc.name = "w"},
    %s: tensor<4xf32> {mpc.role = "parameter", mpc.name = "s"}) -> (tensor<4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.matmul %x, %w {mpc.node = "a", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1, %m, %r = mpc.layer_norm %0, %s {axis = 1 : i64, epsilon = 1.0e-5, mpc.node = "ln", mpc.op = "LayerNormalization"}
    : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>)
  %2 = mpc.matmul %1, %w {mpc.node = "c", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = mpc.reduce sum %2 {axes = array<i64: 0>, mpc.node = "d", mpc.op = "ReduceSum"} : tensor<4x4xf32> -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// -----

// A constant that is an argument follows the activations like any other, if its elements fit half; else the sum stays f32.
// CHECK-LABEL: func.func @forward
// CHECK: %[[S:.*]] = arith.addf %{{.*}}, %arg2
// CHECK: %[[H:.*]] = arith.truncf %[[S]]
// CHECK: %[[W:.*]] = arith.extf %[[H]]
// CHECK: %[[T:.*]] = arith.addf %[[W]], %arg3
// CHECK-NOT: arith.truncf %[[T]]
// CHECK: mpc.softmax %[[T]]
func.func @forward(%x: tensor<4x4xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x4xf32> {mpc.role = "parameter", mpc.name = "w"},
    %c: tensor<4x4xf32> {mpc.role = "constant", mpc.name = "c", mpc.magnitudes = array<f64: 0.001, 3.0>},
    %d: tensor<4x4xf32> {mpc.role = "constant", mpc.name = "d", mpc.magnitudes = array<f64: 1.0, 1.0e9>}) -> (tensor<4x4xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = mpc.matmul %x, %w {mpc.node = "a", mpc.op = "MatMul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = arith.addf %0, %c {mpc.node = "b", mpc.op = "Add"} : tensor<4x4xf32>
  %2 = arith.addf %1, %d {mpc.node = "c", mpc.op = "Add"} : tensor<4x4xf32>
  %3 = mpc.softmax %2 {axis = 1 : i64, mpc.node = "d", mpc.op = "Softmax"} : tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}
