// RUN: mpc-opt %s --split-input-file --convert-onnx-to-mpc | FileCheck %s

// auto_pad: an odd pad's larger half is at the end for SAME_UPPER, at the begin for SAME_LOWER.
// CHECK-LABEL: @forward
// CHECK: mpc.conv {{.*}}pads = array<i64: 0, 0, 1, 1>
// CHECK: mpc.conv {{.*}}pads = array<i64: 1, 1, 0, 0>
func.func @graph(%x: tensor<1x2x6x6xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x2x2x2xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<1x4x6x6xf32> {mpc.role = "output", mpc.name = "y"}, tensor<1x4x6x6xf32> {mpc.role = "output", mpc.name = "z"}) {
  %0 = onnx.node "Conv" 11 "upper" (%x, %w) {auto_pad = "SAME_UPPER"} : (tensor<1x2x6x6xf32>, tensor<4x2x2x2xf32>) -> tensor<1x4x6x6xf32>
  %1 = onnx.node "Conv" 11 "lower" (%x, %w) {auto_pad = "SAME_LOWER"} : (tensor<1x2x6x6xf32>, tensor<4x2x2x2xf32>) -> tensor<1x4x6x6xf32>
  return %0, %1 : tensor<1x4x6x6xf32>, tensor<1x4x6x6xf32>
}

// -----

// Groups, strides, dilations, asymmetric pads, and the bias as an operand.
// CHECK-LABEL: @forward
// CHECK-NEXT: mpc.conv %arg0, %arg1 bias %arg2 {dilations = array<i64: 2, 1>, groups = 2 : i64, {{.*}}pads = array<i64: 1, 0, 2, 1>, strides = array<i64: 2, 1>} : (tensor<1x4x9x6xf32>, tensor<6x2x3x3xf32>, tensor<6xf32>) -> tensor<1x6x4x5xf32>
func.func @graph(%x: tensor<1x4x9x6xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<6x2x3x3xf32> {mpc.role = "parameter", mpc.name = "w"},
                 %b: tensor<6xf32> {mpc.role = "parameter", mpc.name = "b"}) -> (tensor<1x6x4x5xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "Conv" 11 "c" (%x, %w, %b) {group = 2 : i64, strides = array<i64: 2, 1>, dilations = array<i64: 2, 1>, pads = array<i64: 1, 0, 2, 1>}
    : (tensor<1x4x9x6xf32>, tensor<6x2x3x3xf32>, tensor<6xf32>) -> tensor<1x6x4x5xf32>
  return %0 : tensor<1x6x4x5xf32>
}

// -----

// A transposed convolution is the gradient of one; output_padding is what the convolution does not read. With group = 2 the result has
// twice the filter's channels.
// CHECK-LABEL: @forward
// CHECK-NEXT: mpc.conv_backward_data %arg0, %arg1 {{{.*}}groups = 2 : i64, {{.*}}strides = array<i64: 2>} : (tensor<1x4x5xf32>, tensor<4x3x3xf32>) -> tensor<1x6x12xf32>
func.func @graph(%x: tensor<1x4x5xf32> {mpc.role = "input", mpc.name = "x"}, %w: tensor<4x3x3xf32> {mpc.role = "parameter", mpc.name = "w"})
    -> (tensor<1x6x12xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "ConvTranspose" 11 "c" (%x, %w) {group = 2 : i64, strides = array<i64: 2>, output_padding = array<i64: 1>}
    : (tensor<1x4x5xf32>, tensor<4x3x3xf32>) -> tensor<1x6x12xf32>
  return %0 : tensor<1x6x12xf32>
}
