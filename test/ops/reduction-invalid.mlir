// RUN: mpc-opt %s --split-input-file --verify-diagnostics

func.func @axes(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'mpc.reduce' op axes must be increasing and in [0, 2)}}
  %0 = mpc.reduce sum %x {axes = array<i64: 1, 0>} : tensor<2x3xf32> -> tensor<f32>
  return
}

// -----

func.func @shape(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'mpc.reduce' op result must have the shape of the dimensions that are left}}
  %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<2x3xf32> -> tensor<2xf32>
  return
}

// -----

func.func @type(%x: tensor<2x3xf16>) {
  // expected-error @+1 {{'mpc.reduce' op result must have the operand's element type; only a sum's may be wider}}
  %0 = mpc.reduce max %x {axes = array<i64: 0>} : tensor<2x3xf16> -> tensor<3xf32>
  return
}
