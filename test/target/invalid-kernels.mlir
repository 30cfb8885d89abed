// RUN: mpc-opt %s --convert-kernels-to-llvm -split-input-file -verify-diagnostics

// What the kernel form does not allow is reported, with the kernel's name.

func.func private @other_row(%x: tensor<4x8xf32>) -> tensor<4x8xf32>
    attributes {mpc.kernel = #mpc.kernel<row, domain = [4, 8], split = 1, aliases = [-1]>} {
  // expected-error @below {{code generation of kernel 'other_row': mpc.reduce is read for another row, or before it is known}}
  %0 = mpc.reduce sum %x {axes = array<i64: 1>} : tensor<4x8xf32> -> tensor<4xf32>
  %1 = mpc.slice %0 {starts = array<i64: 3>, steps = array<i64: -1>} : tensor<4xf32> -> tensor<4xf32>
  %2 = mpc.broadcast %1 {dimensions = array<i64: 0>} : tensor<4xf32> -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// -----

func.func private @two_passes(%x: tensor<8x4xf32>) -> tensor<4xf32>
    attributes {mpc.kernel = #mpc.kernel<column, domain = [8, 4], split = 1, aliases = [-1]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<8x4xf32> -> tensor<4xf32>
  %1 = mpc.broadcast %0 {dimensions = array<i64: 1>} : tensor<4xf32> -> tensor<8x4xf32>
  %2 = arith.subf %x, %1 : tensor<8x4xf32>
  // expected-error @below {{code generation of kernel 'two_passes': a column reduction may not depend on another one of the same kernel}}
  %3 = mpc.reduce sum %2 {axes = array<i64: 0>} : tensor<8x4xf32> -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// -----

func.func private @reduction_in_a_map(%x: tensor<8x4xf32>) -> tensor<8xf32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [8], split = 0, aliases = [-1]>} {
  // expected-error @below {{code generation of kernel 'reduction_in_a_map': mpc.reduce is not possible at this place of a kernel of kind map}}
  %0 = mpc.reduce sum %x {axes = array<i64: 1>} : tensor<8x4xf32> -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

func.func private @table(%x: tensor<3xf32>) -> tensor<3xf32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [3], split = 0, aliases = [-1]>} {
  // expected-error @below {{code generation of kernel 'table': arith.constant of different elements must be an argument of the kernel}}
  %c = arith.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %0 = arith.addf %x, %c : tensor<3xf32>
  return %0 : tensor<3xf32>
}
