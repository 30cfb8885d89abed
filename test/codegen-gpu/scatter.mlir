// RUN: mpc-opt %s --convert-kernels-to-nvvm=scalar | FileCheck %s

// The gradient of an embedding: a block per row of the table. A warp looks at 32 indices at once; a vote tells which of them are this row's, and their updates are added in order.
// CHECK-LABEL: func.func @embedding({{.*}} attributes {mpc.threads = 64 : i32}
// CHECK:         %[[SUM:.*]] = scf.for {{.*}} iter_args(%[[SO_FAR:.*]] = %cst) -> (f32)
// CHECK:           %[[EXISTS:.*]] = arith.cmpi ult, {{.*}}, %c50_i64
// CHECK:           %[[EQUAL:.*]] = arith.cmpi eq
// CHECK:           %[[OURS:.*]] = arith.andi %[[EQUAL]], %[[EXISTS]]
// CHECK:           %[[FOUND:.*]] = nvvm.vote.sync ballot {{.*}}, %[[OURS]]
// CHECK:           math.ctpop %[[FOUND]]
// CHECK:           scf.for {{.*}} iter_args({{.*}} = %[[SO_FAR]], {{.*}} = %[[FOUND]])
// CHECK:             math.cttz
// CHECK:             llvm.load {{.*}} -> f32
// CHECK:             arith.addf
// CHECK-NOT:     scf.if
// CHECK:         llvm.store %[[SUM]]
func.func private @embedding(%i: tensor<50xi64>, %u: tensor<50x64xf32>) -> tensor<11x64xf32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [11, 64], split = 0, aliases = [-1]>} {
  %0 = mpc.scatter_add %i, %u {axis = 0 : i64} : (tensor<50xi64>, tensor<50x64xf32>) -> tensor<11x64xf32>
  return %0 : tensor<11x64xf32>
}
