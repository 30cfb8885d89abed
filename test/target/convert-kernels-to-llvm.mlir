// RUN: mpc-opt %s --convert-kernels-to-llvm=loops | FileCheck %s
// RUN: mpc-opt %s --convert-kernels-to-llvm | FileCheck %s --check-prefix=LLVM

// A map: one loop over the elements, index maps cost nothing, memory is one pointer per buffer.
func.func private @map(%x: tensor<6x40xf16>, %s: tensor<f32>) -> tensor<240xf16>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [240], split = 0, aliases = [-1]>} {
  %0 = arith.extf %x : tensor<6x40xf16> to tensor<6x40xf32>
  %1 = mpc.reshape %0 : tensor<6x40xf32> -> tensor<240xf32>
  %2 = mpc.broadcast %s {dimensions = array<i64>} : tensor<f32> -> tensor<240xf32>
  %3 = arith.mulf %1, %2 : tensor<240xf32>
  %4 = arith.truncf %3 : tensor<240xf32> to tensor<240xf16>
  return %4 : tensor<240xf16>
}

// A row with a scale per channel: the innermost loop is 20 long, the scale is read outside of it.
func.func private @row(%x: tensor<4x3x20xf32>, %g: tensor<3xf32>) -> tensor<4xf32>
    attributes {mpc.kernel = #mpc.kernel<row, domain = [4, 3, 20], split = 1, aliases = [-1]>} {
  %0 = mpc.broadcast %g {dimensions = array<i64: 1>} : tensor<3xf32> -> tensor<4x3x20xf32>
  %1 = arith.mulf %x, %0 : tensor<4x3x20xf32>
  %2 = mpc.reduce max %1 {axes = array<i64: 1, 2>} : tensor<4x3x20xf32> -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// A column sum: partial sums per chunk of rows, then a combination in fixed order. The new value overwrites the argument.
func.func private @column(%x: tensor<4096x32xf32>, %old: tensor<32xf32>) -> tensor<32xf32>
    attributes {mpc.kernel = #mpc.kernel<column, domain = [4096, 32], split = 1, aliases = [1]>} {
  %0 = mpc.reduce sum %x {axes = array<i64: 0>} : tensor<4096x32xf32> -> tensor<32xf32>
  %1 = arith.addf %0, %old : tensor<32xf32>
  return %1 : tensor<32xf32>
}

// Code for one body only.
func.func private @map_again(%x: tensor<6x40xf16>, %s: tensor<f32>) -> tensor<240xf16>
    attributes {mpc.kernel = #mpc.kernel<map, domain = [240], split = 0, aliases = [-1]>} {
  %0 = arith.extf %x {mpc.node = "elsewhere"} : tensor<6x40xf16> to tensor<6x40xf32>
  %1 = mpc.reshape %0 : tensor<6x40xf32> -> tensor<240xf32>
  %2 = mpc.broadcast %s {dimensions = array<i64>} : tensor<f32> -> tensor<240xf32>
  %3 = arith.mulf %1, %2 : tensor<240xf32>
  %4 = arith.truncf %3 : tensor<240xf32> to tensor<240xf16>
  return %4 : tensor<240xf16>
}

// CHECK-LABEL: func.func private @map.body(
// CHECK-SAME:    %[[BEGIN:.*]]: i64, %[[END:.*]]: i64, %[[X:[^:]*]]: !llvm.ptr {{.*}}llvm.noalias{{.*}}, %[[S:[^:]*]]: !llvm.ptr {{.*}}, %[[R:[^:]*]]: !llvm.ptr
// CHECK:         %[[SCALE:.*]] = llvm.load {{.*}} -> f32
// CHECK:         scf.for %[[I:.*]] = %[[BEGIN]] to %[[END]]
// CHECK-NEXT:      %[[AT:.*]] = llvm.getelementptr inbounds %[[X]][%[[I]]]
// CHECK-NEXT:      %[[HALF:.*]] = llvm.load %[[AT]] {{.*}} -> f16
// CHECK-NEXT:      %[[WIDE:.*]] = arith.extf %[[HALF]] : f16 to f32
// CHECK-NEXT:      %[[PRODUCT:.*]] = arith.mulf %[[WIDE]], %[[SCALE]] : f32
// CHECK-NEXT:      %[[ROUNDED:.*]] = arith.truncf %[[PRODUCT]] : f32 to f16
// CHECK-NEXT:      %[[TO:.*]] = llvm.getelementptr inbounds %[[R]][%[[I]]]
// CHECK-NEXT:      llvm.store %[[ROUNDED]], %[[TO]]

// CHECK-LABEL: func.func @map(
// CHECK-SAME:    %[[FROM:.*]]: i64, %[[UNTIL:.*]]: i64, %[[BUFFERS:.*]]: !llvm.ptr)
// CHECK:         arith.cmpi slt, %[[FROM]], %[[UNTIL]]
// CHECK:         scf.if
// CHECK-COUNT-3:   llvm.load
// CHECK:           call @map.body

// CHECK-LABEL: func.func private @row.body(
// CHECK:         scf.for
// CHECK:           scf.for {{.*}} iter_args
// CHECK:             llvm.load
// CHECK:             scf.for {{.*}} iter_args
// CHECK-NEXT:          arith.addi
// CHECK-NOT:           arith.divui
// CHECK:               arith.maximumf {{.*}} fastmath<nsz>

// CHECK-LABEL: func.func private @column.partial.body(
// CHECK-SAME:    %{{.*}}: i64, %{{.*}}: i64, %{{[^:]*}}: !llvm.ptr {{[^%]*}}, %{{[^:]*}}: !llvm.ptr {{[^%]*}}, %{{[^:]*}}: !llvm.ptr {{[^%]*}})
// CHECK:         llvm.alloca
// CHECK-LABEL: func.func @column.partial(
// CHECK-LABEL: func.func private @column.combine.body(
// CHECK-LABEL: func.func @column.combine(
// CHECK-NOT:   map_again

// LLVM-LABEL: llvm.func @map.body(%{{.*}}: i64, %{{.*}}: i64, %{{.*}}: !llvm.ptr {llvm.align = 64 : i64, llvm.dereferenceable = 480 : i64, llvm.noalias, llvm.noundef}
// LLVM-LABEL: llvm.func @map(%{{.*}}: i64, %{{.*}}: i64, %{{.*}}: !llvm.ptr)
// LLVM-NOT:   func.func
// LLVM-NOT:   tensor<
