// RUN: mpc-opt %s --convert-kernels-to-nvvm=scalar | FileCheck %s
// RUN: mpc-opt %s --convert-kernels-to-nvvm | FileCheck %s --check-prefix=LLVM

// Three updates in place as one launch. A block finds its member by the members' first blocks, in halves, then its pointer and number of elements; the factor is
// everybody's. Four elements are computed together where as many are left, else one by one.
// CHECK-LABEL: func.func @update(
// CHECK-SAME:    %[[S:arg0]]: !llvm.ptr {llvm.align = 4 : i64,
// CHECK-SAME:    %[[TABLE:arg1]]: !llvm.ptr {{{.*}}llvm.byval = !llvm.array<3 x struct<(ptr<1>, i32, i32)>>}) attributes {mpc.threads = 256 : i32}
// CHECK:         nvvm.read.ptx.sreg.ctaid.x
// CHECK-COUNT-2: llvm.getelementptr inbounds %[[TABLE]][0, %{{.*}}, 1]
// CHECK:         %[[POINTER:.*]] = llvm.load {{.*}} -> !llvm.ptr<1>
// CHECK:         %[[X:.*]] = llvm.addrspacecast %[[POINTER]] : !llvm.ptr<1> to !llvm.ptr
// CHECK:         llvm.intr.assume {{.*}} ["align"(%[[X]], %c64_i64
// CHECK:         scf.if
// CHECK-COUNT-4: llvm.getelementptr inbounds %[[X]]
// CHECK:         scf.for
// CHECK:           llvm.getelementptr inbounds %[[X]]
// CHECK:           llvm.store
func.func private @update(%x: tensor<1073741824xf32>, %s: tensor<f32>) -> tensor<1073741824xf32>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [1073741824], split = 0, aliases = [0]>,
                mpc.group_layout = {members = 3, width = 4, reduction = false, chunked = false, own = array<i64: 0>}} {
  %0 = mpc.broadcast %s {dimensions = array<i64>} : tensor<f32> -> tensor<1073741824xf32>
  %1 = arith.mulf %x, %0 : tensor<1073741824xf32>
  return %1 : tensor<1073741824xf32>
}

// The table is read where it is passed.
// LLVM-LABEL: llvm.func @update(
// LLVM-SAME:    llvm.byval = !llvm.array<3 x struct<(ptr<1>, i32, i32)>>, nvvm.grid_constant}
// LLVM-SAME:    nvvm.kernel

// Sums of chunks, and a warp per member that adds them.
// CHECK-LABEL: func.func @sum$partial(
// CHECK-SAME:    llvm.byval = !llvm.array<2 x struct<(ptr<1>, ptr<1>, ptr<1>, i32, i32, i32, i32)>>}) attributes {mpc.threads = 256 : i32}
// CHECK:         scf.for
// CHECK:         scf.for
// CHECK-COUNT-5: nvvm.shfl.sync
// CHECK:         nvvm.barrier
// CHECK:         scf.if
// CHECK:           llvm.store
// CHECK-LABEL: func.func @sum$combine({{.*}} attributes {mpc.threads = 32 : i32}
// CHECK-NOT:     llvm.getelementptr inbounds %arg0[0, %{{.*}}, 3]
// CHECK:         scf.for
// CHECK-COUNT-5: nvvm.shfl.sync
// CHECK:         scf.if
// CHECK:           llvm.store
func.func private @sum(%x: tensor<1073741824xf32>) -> tensor<f32>
    attributes {mpc.kernel = #mpc.kernel<column, domain = [1073741824], split = 1, aliases = [-1]>,
                mpc.group_layout = {members = 2, width = 4, reduction = true, chunked = true, own = array<i64: 0, 1, 2>}} {
  %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<1073741824xf32> -> tensor<f32>
  return %0 : tensor<f32>
}

// A block per member, where all are small.
// CHECK-LABEL: func.func @largest({{.*}} attributes {mpc.threads = 256 : i32}
// CHECK:         nvvm.barrier
// CHECK:         llvm.store
// CHECK:         return
func.func private @largest(%x: tensor<1073741824xf32>) -> tensor<f32>
    attributes {mpc.kernel = #mpc.kernel<column, domain = [1073741824], split = 1, aliases = [-1]>,
                mpc.group_layout = {members = 40, width = 4, reduction = true, chunked = false, own = array<i64: 0, 1>}} {
  %0 = mpc.reduce max %x {axes = array<i64: 0>} : tensor<1073741824xf32> -> tensor<f32>
  return %0 : tensor<f32>
}
