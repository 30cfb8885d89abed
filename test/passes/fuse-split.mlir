// RUN: mpc-opt %s --fuse | FileCheck %s

// The gradient of a split: padded parts side by side are a concatenation, in blocks that the transposes in front of it keep.
// CHECK-LABEL: func.func @split_gradient
// CHECK-NEXT:    mpc.launch @[[JOIN:[a-z_0-9]+]](%arg0, %arg1) : {{.*}} -> tensor<16x64x2x4x32xf32>
// CHECK:       func.func private @[[JOIN]]
// CHECK:         mpc.concat
// CHECK-NOT:     mpc.pad
func.func @split_gradient(%a: tensor<16x4x64x32xf32>, %b: tensor<16x4x64x32xf32>) -> tensor<16x64x256xf32> {
  %zero = arith.constant 0.0 : f32
  %ta = mpc.transpose %a {permutation = array<i64: 0, 2, 1, 3>} : tensor<16x4x64x32xf32> -> tensor<16x64x4x32xf32>
  %tb = mpc.transpose %b {permutation = array<i64: 0, 2, 1, 3>} : tensor<16x4x64x32xf32> -> tensor<16x64x4x32xf32>
  %ra = mpc.reshape %ta : tensor<16x64x4x32xf32> -> tensor<16x64x128xf32>
  %rb = mpc.reshape %tb : tensor<16x64x4x32xf32> -> tensor<16x64x128xf32>
  %pa = mpc.pad %ra, %zero {low = array<i64: 0, 0, 0>, high = array<i64: 0, 0, 128>, interior = array<i64: 0, 0, 0>} : tensor<16x64x128xf32>, f32 -> tensor<16x64x256xf32>
  %pb = mpc.pad %rb, %zero {low = array<i64: 0, 0, 128>, high = array<i64: 0, 0, 0>, interior = array<i64: 0, 0, 0>} : tensor<16x64x128xf32>, f32 -> tensor<16x64x256xf32>
  %s = arith.addf %pa, %pb : tensor<16x64x256xf32>
  return %s : tensor<16x64x256xf32>
}
