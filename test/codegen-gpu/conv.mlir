// RUN: mpc-opt %s --convert-kernels-to-nvvm=scalar --split-input-file | FileCheck %s

// Forward: a row is a pixel of the 2·8·8, the depth is 9 taps of 16 channels. Eight channels of a tap's pixel are one access, if the pixel is inside of the image. A filter's channels lie 9 elements apart: it is read half by half.
// CHECK-LABEL: func.func @conv_128x24x144_{{[0-9a-f]+}}(
// CHECK-SAME:    %[[X:arg0]]: {{.*}}, %[[W:arg1]]: {{.*}}, %[[Y:arg2]]:
// CHECK:         scf.for
// CHECK:           nvvm.barrier0
// CHECK:           arith.divui
// CHECK:           arith.cmpi ult, {{.*}}, %[[C8:.*]] : i64
// CHECK:           arith.cmpi ult, {{.*}}, %[[C8]] : i64
// CHECK:           %[[INSIDE:.*]] = arith.andi
// CHECK:           %[[EXISTS:.*]] = arith.andi {{.*}}, %[[INSIDE]] : i1
// CHECK:           arith.select %[[EXISTS]], {{.*}} : i64
// CHECK:           llvm.getelementptr inbounds %[[X]]
// CHECK:           llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xi32>
// CHECK:           llvm.getelementptr inbounds %[[W]]
// CHECK:           llvm.load {{.*}} {alignment = 2 : i64} : !llvm.ptr -> i16
// CHECK:           nvvm.mma.sync
func.func @forward(%x: tensor<2x8x8x16xf16>, %w: tensor<24x16x3x3xf16>) -> tensor<2x8x8x24xf16> {
  %0 = mpc.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<2x8x8x16xf16>, tensor<24x16x3x3xf16>) -> tensor<2x8x8x24xf16>
  return %0 : tensor<2x8x8x24xf16>
}

// -----

// The input's gradient with stride 2, by phases: four products of the batch, whose pixels are even or odd in each dimension. A dimension's tap is 0, 1 or 2 as (phase + pad) mod 2 + 2 · step; the step beyond does not exist. Without phases the depth would be 216.
// CHECK-LABEL: func.func @conv_backward_data_4x32x16x96_
// CHECK:         scf.for
// CHECK:           nvvm.barrier0
// CHECK:           arith.cmpi ult, {{.*}}, %[[C3:.*]] : i64
// CHECK:           arith.cmpi ult, {{.*}}, %[[C3]] : i64
// CHECK:           arith.cmpi ult, {{.*}}, %[[C4:.*]] : i64
// CHECK:           arith.cmpi ult, {{.*}}, %[[C4]] : i64
// CHECK:           arith.select
func.func @data(%g: tensor<2x4x4x24xf16>, %w: tensor<24x16x3x3xf16>) -> tensor<2x8x8x16xf16> {
  %0 = mpc.conv_backward_data %g, %w {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<2x4x4x24xf16>, tensor<24x16x3x3xf16>) -> tensor<2x8x8x16xf16>
  return %0 : tensor<2x8x8x16xf16>
}

// -----

// The filter's gradient is a sum over the pixels of all images, in parts; the result is in the filter's order, features by channels by taps.
// CHECK-LABEL: func.func @conv_backward_weights_24x144x2048_{{[0-9a-f]+}}$partial(
// CHECK:         nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK-LABEL: func.func @conv_backward_weights_24x144x2048_{{[0-9a-f]+}}$combine(
// CHECK:         llvm.store {{.*}} : f32
func.func @weights(%x: tensor<8x16x16x16xf16>, %g: tensor<8x16x16x24xf16>) -> tensor<24x16x3x3xf32> {
  %0 = mpc.conv_backward_weights %x, %g {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<8x16x16x16xf16>, tensor<8x16x16x24xf16>) -> tensor<24x16x3x3xf32>
  return %0 : tensor<24x16x3x3xf32>
}

// -----

// No phases where the stride does not divide the image: a pixel meets an output where the distance to it is a multiple of the stride.
// CHECK-LABEL: func.func @conv_backward_data_162x16x216_
// CHECK:         nvvm.barrier0
// CHECK:           arith.remui {{.*}}, %c2_i32{{.*}} : i32
func.func @odd(%g: tensor<2x5x5x24xf16>, %w: tensor<24x16x3x3xf16>) -> tensor<2x9x9x16xf16> {
  %0 = mpc.conv_backward_data %g, %w {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, channels_last}
    : (tensor<2x5x5x24xf16>, tensor<24x16x3x3xf16>) -> tensor<2x9x9x16xf16>
  return %0 : tensor<2x9x9x16xf16>
}
