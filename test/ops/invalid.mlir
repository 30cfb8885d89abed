// RUN: mpc-opt %s --split-input-file --verify-diagnostics

// What the verifiers of index maps, products, convolutions and pools refuse.

func.func @f(%x: tensor<3xf32>) -> tensor<2x4xf32> {
  // expected-error @below {{maps dimension 0 of size 3 to one of size 4}}
  %0 = mpc.broadcast %x {dimensions = array<i64: 1>} : tensor<3xf32> -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

func.func @f(%x: tensor<3x3xf32>) -> tensor<3x3x3xf32> {
  // expected-error @below {{dimensions that do not increase strictly}}
  %0 = mpc.broadcast %x {dimensions = array<i64: 1, 1>} : tensor<3x3xf32> -> tensor<3x3x3xf32>
  return %0 : tensor<3x3x3xf32>
}

// -----

func.func @f(%x: tensor<3xf32>) -> tensor<4xf32> {
  // expected-error @below {{makes 4 elements of 3}}
  %0 = mpc.reshape %x : tensor<3xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<3xf32>) -> tensor<3xf16> {
  // expected-error @below {{changes the element type from 'f32' to 'f16'}}
  %0 = mpc.reshape %x : tensor<3xf32> -> tensor<3xf16>
  return %0 : tensor<3xf16>
}

// -----

func.func @f(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // expected-error @below {{result shape that is not the permuted operand shape}}
  %0 = mpc.transpose %x {permutation = array<i64: 1, 0>} : tensor<2x3xf32> -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

func.func @f(%x: tensor<2x3xf32>) -> tensor<2x2xf32> {
  // expected-error @below {{permutation that is none of 0 to 1}}
  %0 = mpc.transpose %x {permutation = array<i64: 0, 0>} : tensor<2x3xf32> -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}

// -----

func.func @f(%x: tensor<5xf32>) -> tensor<3xf32> {
  // expected-error @below {{reads elements 1 to 5 of dimension 0 of size 5}}
  %0 = mpc.slice %x {starts = array<i64: 1>, steps = array<i64: 2>} : tensor<5xf32> -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

func.func @f(%x: tensor<5xf32>, %v: f32) -> tensor<7xf32> {
  // expected-error @below {{makes 6 elements of dimension 0, not 7}}
  %0 = mpc.pad %x, %v {low = array<i64: 2>, high = array<i64: -1>, interior = array<i64: 0>} : tensor<5xf32>, f32 -> tensor<7xf32>
  return %0 : tensor<7xf32>
}

// -----

func.func @f(%x: tensor<2x5xf32>, %y: tensor<3x5xf32>) -> tensor<2x10xf32> {
  // expected-error @below {{joins operands that differ in dimension 0}}
  %0 = mpc.concat %x, %y {axis = 1 : i64} : (tensor<2x5xf32>, tensor<3x5xf32>) -> tensor<2x10xf32>
  return %0 : tensor<2x10xf32>
}

// -----

func.func @f(%x: tensor<7x5xf32>, %i: tensor<2xf32>) -> tensor<2x5xf32> {
  // expected-error @below {{needs integer indices, not 'f32'}}
  %0 = mpc.gather %x, %i {axis = 0 : i64} : tensor<7x5xf32>, tensor<2xf32> -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// -----

func.func @f(%i: tensor<2xi64>, %u: tensor<2x5xf16>) -> tensor<7x5xf16> {
  // expected-error @below {{sums in its result's element type, which cannot be 'f16'}}
  %0 = mpc.scatter_add %i, %u {axis = 0 : i64} : (tensor<2xi64>, tensor<2x5xf16>) -> tensor<7x5xf16>
  return %0 : tensor<7x5xf16>
}

// -----

func.func @f(%x: tensor<2x3xf32>, %w: tensor<4x5xf32>) -> tensor<2x5xf32> {
  // expected-error @below {{multiplies rows of 3 with columns of 4 elements}}
  %0 = mpc.matmul %x, %w : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// -----

func.func @f(%x: tensor<2x3xf16>, %w: tensor<3x5xf16>, %b: tensor<5xf32>) -> tensor<2x5xf16> {
  // expected-error @below {{needs a bias of 5 elements of type 'f16', not 'tensor<5xf32>'}}
  %0 = mpc.matmul %x, %w bias %b : (tensor<2x3xf16>, tensor<3x5xf16>, tensor<5xf32>) -> tensor<2x5xf16>
  return %0 : tensor<2x5xf16>
}

// -----

func.func @f(%x: tensor<1x4x8x8xf32>, %w: tensor<6x4x3x3xf32>) -> tensor<1x6x6x6xf32> {
  // expected-error @below {{needs a filter [6, 2, kernel...]}}
  %0 = mpc.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 2 : i64}
    : (tensor<1x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%x: tensor<1x4x8x8xf32>, %w: tensor<6x4x3x3xf32>) -> tensor<1x6x7x6xf32> {
  // expected-error @below {{which is not what its window makes of}}
  %0 = mpc.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>}
    : (tensor<1x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<1x6x7x6xf32>
  return %0 : tensor<1x6x7x6xf32>
}

// -----

func.func @f(%x: tensor<1x4x8x8xf16>, %g: tensor<1x6x6x6xf16>) -> tensor<6x4x3x3xf16> {
  // expected-error @below {{the gradient of a filter is f32}}
  %0 = mpc.conv_backward_weights %x, %g {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>}
    : (tensor<1x4x8x8xf16>, tensor<1x6x6x6xf16>) -> tensor<6x4x3x3xf16>
  return %0 : tensor<6x4x3x3xf16>
}

// -----

func.func @f(%x: tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32> {
  // expected-error @below {{needs an index of the result's shape and type 'i8', not}}
  %0, %1 = mpc.max_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>}
    : (tensor<1x4x8x8xf32>) -> (tensor<1x4x4x4xf32>, tensor<1x4x4x4xi32>)
  return %0 : tensor<1x4x4x4xf32>
}

// -----

// 256 places are too many for a byte.
func.func @f(%x: tensor<1x4x16x16xf32>) -> tensor<1x4x1x1xf32> {
  // expected-error @below {{needs an index of the result's shape and type 'i32', not}}
  %0, %1 = mpc.max_pool %x {kernel = array<i64: 16, 16>, strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>}
    : (tensor<1x4x16x16xf32>) -> (tensor<1x4x1x1xf32>, tensor<1x4x1x1xi8>)
  return %0 : tensor<1x4x1x1xf32>
}
