// RUN: mpc-opt %s --split-input-file --convert-onnx-to-mpc | FileCheck %s

// The bias is an operation of its own here; raise-patterns moves it into the product.
// CHECK-LABEL: @forward
// CHECK-NEXT: %[[Y:.*]] = mpc.matmul %arg0, %arg1 {mpc.node = "fc", mpc.op = "Gemm", transpose_rhs} : (tensor<2x3xf32>, tensor<5x3xf32>) -> tensor<2x5xf32>
// CHECK-NEXT: %[[B:.*]] = mpc.broadcast %arg2 {dimensions = array<i64: 1>, {{.*}}} : tensor<5xf32> -> tensor<2x5xf32>
// CHECK-NEXT: arith.addf %[[Y]], %[[B]]
func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<5x3xf32> {mpc.role = "parameter", mpc.name = "w"},
                 %b: tensor<5xf32> {mpc.role = "parameter", mpc.name = "b"}) -> (tensor<2x5xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "Gemm" 13 "fc" (%x, %w, %b) {transB = 1 : i64} : (tensor<2x3xf32>, tensor<5x3xf32>, tensor<5xf32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// -----

// alpha and beta; C is scaled before it is broadcast.
// CHECK-LABEL: @forward
// CHECK: %[[Y:.*]] = mpc.matmul
// CHECK: %[[AY:.*]] = arith.mulf %[[Y]], %{{.*}} : tensor<2x5xf32>
// CHECK: %[[BC:.*]] = arith.mulf %arg2, %{{.*}} : tensor<f32>
// CHECK: %[[C:.*]] = mpc.broadcast %[[BC]] {{.*}} : tensor<f32> -> tensor<2x5xf32>
// CHECK: arith.addf %[[AY]], %[[C]]
func.func @graph(%x: tensor<2x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<3x5xf32> {mpc.role = "parameter", mpc.name = "w"},
                 %b: tensor<f32> {mpc.role = "parameter", mpc.name = "b"}) -> (tensor<2x5xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "Gemm" 13 "fc" (%x, %w, %b) {alpha = 5.0e-01 : f32, beta = 2.0 : f32} : (tensor<2x3xf32>, tensor<3x5xf32>, tensor<f32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// -----

// One weight for many rows: the leading dimensions are flattened, so that the weight's gradient is one product.
// CHECK-LABEL: @forward
// CHECK-NEXT: %[[X:.*]] = mpc.reshape %arg0 {{.*}} : tensor<2x7x3xf32> -> tensor<14x3xf32>
// CHECK-NEXT: %[[Y:.*]] = mpc.matmul %[[X]], %arg1 {{.*}} : (tensor<14x3xf32>, tensor<3x5xf32>) -> tensor<14x5xf32>
// CHECK-NEXT: mpc.reshape %[[Y]] {{.*}} : tensor<14x5xf32> -> tensor<2x7x5xf32>
func.func @graph(%x: tensor<2x7x3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<3x5xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<2x7x5xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "MatMul" 13 "mm" (%x, %w) {} : (tensor<2x7x3xf32>, tensor<3x5xf32>) -> tensor<2x7x5xf32>
  return %0 : tensor<2x7x5xf32>
}

// -----

// numpy's batch dimensions, and a vector on the left.
// CHECK-LABEL: @forward
// CHECK: %[[R:.*]] = mpc.reshape %arg0 {{.*}} : tensor<3xf32> -> tensor<1x3xf32>
// CHECK: %[[B:.*]] = mpc.broadcast %[[R]] {dimensions = array<i64: 1, 2>, {{.*}}} : tensor<1x3xf32> -> tensor<2x1x3xf32>
// CHECK: %[[Y:.*]] = mpc.matmul %[[B]], %arg1 {{.*}} : (tensor<2x1x3xf32>, tensor<2x3x5xf32>) -> tensor<2x1x5xf32>
// CHECK: mpc.reshape %[[Y]] {{.*}} : tensor<2x1x5xf32> -> tensor<2x5xf32>
func.func @graph(%x: tensor<3xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<2x3x5xf32> {mpc.role = "input", mpc.name = "w"})
    -> (tensor<2x5xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "MatMul" 13 "mm" (%x, %w) {} : (tensor<3xf32>, tensor<2x3x5xf32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}
