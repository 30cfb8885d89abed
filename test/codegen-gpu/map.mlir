// RUN: mpc-opt %s --convert-kernels-to-nvvm=scalar | FileCheck %s

// A map: a thread per element, guarded by their number. The scalar is read outside of the guard; index maps cost nothing.
// CHECK-LABEL: func.func @small({{.*}} attributes {mpc.threads = 256 : i32}
// CHECK:         %[[T:.*]] = nvvm.read.ptx.sreg.tid.x
// CHECK:         %[[I:.*]] = arith.extui %[[T]]
// CHECK:         %[[IN:.*]] = arith.cmpi ult, %[[I]], %c240_i64
// CHECK:         llvm.load {{.*}} -> f32
// CHECK:         scf.if %[[IN]]
// CHECK:           llvm.getelementptr inbounds %arg0[%[[I]]]
// CHECK:           llvm.load {{.*}} -> f16
// CHECK:           %[[Y:.*]] = arith.truncf
// CHECK:           llvm.getelementptr inbounds %arg2[%[[I]]]
// CHECK:           llvm.store %[[Y]]
func.func private @small(%x: tensor<6x40xf16>, %s: tensor<f32>) -> tensor<240xf16>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [240], split = 0, aliases = [-1]>} {
  %0 = arith.extf %x : tensor<6x40xf16> to tensor<6x40xf32>
  %1 = mpc.reshape %0 : tensor<6x40xf32> -> tensor<240xf32>
  %2 = mpc.broadcast %s {dimensions = array<i64>} : tensor<f32> -> tensor<240xf32>
  %3 = arith.mulf %1, %2 : tensor<240xf32>
  %4 = arith.truncf %3 : tensor<240xf32> to tensor<240xf16>
  return %4 : tensor<240xf16>
}

// A large one: a thread has eight halves, which are one access of 16 bytes. They are computed before the first is stored: the result overwrites the argument.
// CHECK-LABEL: func.func @large(
// CHECK-NOT:     scf.if
// CHECK-COUNT-8: llvm.load
// CHECK-COUNT-8: llvm.store
// CHECK-NEXT:    return
func.func private @large(%x: tensor<4194304xf16>) -> tensor<4194304xf16>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [4194304], split = 0, aliases = [0]>} {
  %0 = arith.addf %x, %x : tensor<4194304xf16>
  return %0 : tensor<4194304xf16>
}

// One element: one thread.
// CHECK-LABEL: func.func @one({{.*}} attributes {mpc.threads = 1 : i32}
// CHECK-NOT:     scf.if
// CHECK:         llvm.store
func.func private @one(%x: tensor<f32>) -> tensor<f32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [], split = 0, aliases = [0]>} {
  %0 = arith.negf %x : tensor<f32>
  return %0 : tensor<f32>
}
