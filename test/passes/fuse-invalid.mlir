// RUN: mpc-opt %s --fuse --verify-diagnostics

func.func @composite(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @below {{no kernel can hold it: expand-composites comes before fuse}}
  %y = mpc.softmax %x {axis = 1 : i64} : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
