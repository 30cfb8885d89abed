// RUN: mpc-opt %s --fuse --split-input-file --verify-diagnostics

func.func @composite(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @below {{no kernel can hold it: expand-composites comes before fuse}}
  %y = mpc.softmax %x {axis = 1 : i64} : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// place-roundings took the sum for a value that is never in memory, but the product reads it.
func.func @not_rounded(%x: tensor<64x64xf32>, %m: tensor<64x64xf32>) -> tensor<64x64xf32> attributes {mpc.roundings_placed} {
  // expected-error @below {{leaves its kernel without the rounding to 'bf16' that place-roundings dropped, as if one kernel alone read it}}
  %s = arith.addf %x, %x {mpc.unrounded = bf16} : tensor<64x64xf32>
  %y = mpc.matmul %s, %m : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}

// -----

// Two kernels compute the sum again instead of reading it: it crosses kernels all the same.
func.func @not_rounded_twice(%x: tensor<64x64xf32>, %m: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) attributes {mpc.roundings_placed} {
  // expected-error @below {{leaves its kernel without the rounding to 'bf16'}}
  %s = arith.addf %x, %x {mpc.unrounded = bf16} : tensor<64x64xf32>
  %t = math.tanh %s : tensor<64x64xf32>
  %p = mpc.matmul %t, %m : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %e = math.exp %p : tensor<64x64xf32>
  %y = arith.mulf %e, %s : tensor<64x64xf32>
  return %t, %y : tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// Nobody but the kernel itself reads the rounded value.
func.func @rounded_in_vain(%x: tensor<64x64xf32>) -> tensor<64x64xf32> attributes {mpc.roundings_placed} {
  %s = arith.addf %x, %x : tensor<64x64xf32>
  // expected-error @below {{rounds a value that is read inside its kernel alone; place-roundings kept it for another one}}
  %h = arith.truncf %s : tensor<64x64xf32> to tensor<64x64xf16>
  %e = arith.extf %h : tensor<64x64xf16> to tensor<64x64xf32>
  %y = math.tanh %e : tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}
