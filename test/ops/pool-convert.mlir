// RUN: mpc-opt %s --split-input-file --convert-onnx-to-mpc | FileCheck %s

// ceil_mode keeps the window that hangs over the end.
// CHECK-LABEL: @forward
// CHECK-NEXT: mpc.average_pool %arg0 {count_include_pad, dilations = array<i64: 1, 1>, kernel = array<i64: 3, 3>, {{.*}}pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>} : (tensor<1x1x4x4xf32>) -> tensor<1x1x3x3xf32>
func.func @graph(%x: tensor<1x1x4x4xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<1x1x3x3xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "AveragePool" 19 "p" (%x)
    {kernel_shape = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, ceil_mode = 1 : i64, count_include_pad = 1 : i64}
    : (tensor<1x1x4x4xf32>) -> tensor<1x1x3x3xf32>
  return %0 : tensor<1x1x3x3xf32>
}

// -----

// A global pool is one window over all of the image.
// CHECK-LABEL: @forward
// CHECK-NEXT: mpc.max_pool %arg0 {{{.*}}kernel = array<i64: 2, 2>, {{.*}}} : (tensor<1x3x4x6xf32>) -> (tensor<1x3x2x3xf32>, tensor<1x3x2x3xi8>)
// CHECK-NEXT: mpc.average_pool %{{.*}} {{{.*}}kernel = array<i64: 2, 3>, {{.*}}} : (tensor<1x3x2x3xf32>) -> tensor<1x3x1x1xf32>
func.func @graph(%x: tensor<1x3x4x6xf32> {mpc.role = "input", mpc.name = "x"}) -> (tensor<1x3x1x1xf32> {mpc.role = "output", mpc.name = "y"}) {
  %0 = onnx.node "MaxPool" 12 "p" (%x) {kernel_shape = array<i64: 2, 2>, strides = array<i64: 2, 2>} : (tensor<1x3x4x6xf32>) -> tensor<1x3x2x3xf32>
  %1 = onnx.node "GlobalAveragePool" 1 "g" (%0) {} : (tensor<1x3x2x3xf32>) -> tensor<1x3x1x1xf32>
  return %1 : tensor<1x3x1x1xf32>
}
