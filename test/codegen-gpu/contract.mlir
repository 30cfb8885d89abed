// RUN: mpc-opt %s --convert-kernels-to-nvvm | FileCheck %s

// Which sum and product are fused is decided here and not by LLVM's optimizer, which would look at what stands around in a block: products that only sums
// read, also negated (here x · y, y · c, but not x · x, which is returned); a product minus itself is zero. No operation may be contracted any more.
// CHECK-NOT:     contract
// CHECK-LABEL: llvm.func @k(
// CHECK:         %[[X:.*]] = llvm.load
// CHECK:         %[[XX:.*]] = llvm.fmul %[[X]], %[[X]] : f32
// CHECK:         %[[Y:.*]] = llvm.load
// CHECK:         %[[NX:.*]] = llvm.fneg %[[X]] : f32
// CHECK:         %[[A:.*]] = llvm.intr.fma(%[[NX]], %[[Y]], %[[XX]])
// CHECK:         %[[NA:.*]] = llvm.fneg %[[A]] : f32
// CHECK:         %[[C:.*]] = llvm.intr.fma(%[[X]], %[[Y]], %[[NA]])
// CHECK:         %[[NY:.*]] = llvm.fneg %[[Y]] : f32
// CHECK:         llvm.intr.fma(%[[NY]], %[[C]], %[[C]])
// CHECK:         %[[YY:.*]] = llvm.fmul %[[Y]], %[[Y]] : f32
// CHECK:         llvm.fsub %[[YY]], %[[YY]]
// CHECK-NOT:     contract
// CHECK:         llvm.return
func.func private @k(%x: tensor<37xf32>, %y: tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>)
    attributes {mpc.kernel = #mpc.kernel<map, domain = [37], split = 0, aliases = [-1, -1, -1]>} {
  %xx = arith.mulf %x, %x : tensor<37xf32>
  %xy = arith.mulf %x, %y : tensor<37xf32>
  %minus = arith.negf %xy : tensor<37xf32>
  %a = arith.addf %xx, %minus : tensor<37xf32>
  %c = arith.subf %xy, %a : tensor<37xf32>
  %yc = arith.mulf %y, %c : tensor<37xf32>
  %d = arith.subf %c, %yc : tensor<37xf32>
  %yy = arith.mulf %y, %y : tensor<37xf32>
  %zero = arith.subf %yy, %yy : tensor<37xf32>
  return %xx, %d, %zero : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}
func.func @entry(%x: tensor<37xf32>, %y: tensor<37xf32>) {
  %r:3 = mpc.launch @k(%x, %y) : (tensor<37xf32>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>)
  return
}
