// RUN: mpc-opt %s --split-input-file --convert-onnx-to-mpc --canonicalize | FileCheck %s

// Labels of both operands and the result are batch dimensions, those of the operands alone are contracted.
// CHECK-LABEL: @forward
// CHECK-NEXT: mpc.matmul %arg0, %arg1 {mpc.node = "e", mpc.op = "Einsum", transpose_rhs} : (tensor<2x3x4x5xf32>, tensor<2x3x6x5xf32>) -> tensor<2x3x4x6xf32>
func.func @graph(%x: tensor<2x3x4x5xf32> {mpc.role = "input", mpc.name = "x"}, %y: tensor<2x3x6x5xf32> {mpc.role = "input", mpc.name = "y"})
    -> (tensor<2x3x4x6xf32> {mpc.role = "output", mpc.name = "z"}) {
  %0 = onnx.node "Einsum" 12 "e" (%x, %y) {equation = "bhqd,bhkd->bhqk"} : (tensor<2x3x4x5xf32>, tensor<2x3x6x5xf32>) -> tensor<2x3x4x6xf32>
  return %0 : tensor<2x3x4x6xf32>
}

// -----

// A label that comes twice is a diagonal: every (n+1)-th element. Without "->" the result has the ellipsis and the labels that come once.
// CHECK-LABEL: @forward
// CHECK-NEXT: %[[R:.*]] = mpc.reshape %arg0 {{.*}} : tensor<2x3x3xf32> -> tensor<2x9xf32>
// CHECK-NEXT: %[[D:.*]] = mpc.slice %[[R]] {{{.*}}steps = array<i64: 1, 4>} : tensor<2x9xf32> -> tensor<2x3xf32>
// CHECK-NEXT: mpc.matmul %[[D]], %arg1 {{.*}} : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
func.func @graph(%x: tensor<2x3x3xf32> {mpc.role = "input", mpc.name = "x"}, %y: tensor<3x2xf32> {mpc.role = "input", mpc.name = "y"})
    -> (tensor<2x2xf32> {mpc.role = "output", mpc.name = "z"}) {
  %0 = onnx.node "Einsum" 12 "d" (%x) {equation = "bii->bi"} : (tensor<2x3x3xf32>) -> tensor<2x3xf32>
  %1 = onnx.node "Einsum" 12 "e" (%0, %y) {equation = "...i,ij"} : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
  return %1 : tensor<2x2xf32>
}
