// RUN: mpc-opt %s --convert-kernels-to-nvvm=scalar --split-input-file | FileCheck %s
// RUN: mpc-opt %s --convert-kernels-to-nvvm="scalar=1 architecture=75" --split-input-file | FileCheck %s --check-prefix=SM75
// RUN: mpc-opt %s --convert-kernels-to-nvvm="scalar=1 architecture=70" --split-input-file | FileCheck %s --check-prefix=SM70

// Tiles of 32×32: four blocks along the 100 rows, two along the 40 columns. A thread reads 16 bytes of each side; outside of an operand, its first element, and takes zero instead. The next piece is read before the tile in shared memory is multiplied, by tensor cores: two times 16 of the depth, 16 rows and two times 8 columns per warp. The bias is added to what is in registers, and two columns are stored together.
// CHECK-LABEL: func.func @matmul_100x40x72_{{[0-9a-f]+}}(
// CHECK-SAME:    %[[X:arg0]]: !llvm.ptr {{{.*}}}, %[[W:arg1]]: {{.*}}, %[[B:arg2]]: {{.*}}, %[[Y:arg3]]: {{.*}}) attributes {mpc.registers_first, mpc.threads = 128 : i32}
// CHECK:         %[[AT:.*]] = arith.select %[[INSIDE:.*]], %{{.*}}, %{{.*}} : i64
// CHECK:         %[[ADDRESS:.*]] = llvm.getelementptr inbounds %[[X]][%[[AT]]]
// CHECK:         %[[PIECE:.*]] = llvm.load %[[ADDRESS]] {alignment = 16 : i64} : !llvm.ptr -> vector<4xi32>
// CHECK:         arith.select %[[INSIDE]], %[[PIECE]], %{{.*}} : vector<4xi32>
// CHECK:         llvm.getelementptr inbounds %[[W]]
// CHECK:         scf.for
// CHECK-COUNT-2:   llvm.store {{.*}} {alignment = 16 : i64} : vector<4xi32>
// CHECK:           nvvm.barrier0
// CHECK-COUNT-2:   llvm.load {{.*}} -> vector<4xi32>
// CHECK-COUNT-2:   nvvm.ldmatrix
// CHECK-COUNT-2:   nvvm.mma.sync
// CHECK-COUNT-2:   nvvm.ldmatrix
// CHECK-COUNT-2:   nvvm.mma.sync
// CHECK-NOT:       nvvm.mma.sync
// CHECK:           scf.yield
// CHECK:         llvm.getelementptr inbounds %[[B]]
// CHECK:         scf.if
// CHECK:           arith.addf
// CHECK:           arith.truncf {{.*}} : f32 to f16
// CHECK:           llvm.getelementptr inbounds %[[Y]]
// CHECK:           llvm.store {{.*}} {alignment = 4 : i64} : vector<2xf16>

// sm_75 takes the same words in halves of the depth.
// SM75-LABEL: func.func @matmul_100x40x72_
// SM75:         scf.for
// SM75:           nvvm.barrier0
// SM75-COUNT-2:   nvvm.ldmatrix
// SM75-COUNT-4:   nvvm.mma.sync {{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 8>
// SM75-COUNT-2:   nvvm.ldmatrix
// SM75-COUNT-4:   nvvm.mma.sync {{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 8>
// SM75-NOT:       nvvm.mma.sync

// sm_70 has no ldmatrix: a lane reads 8 of the depth at a time, of a row or a column, and four instructions take 4 each.
// SM70-LABEL: func.func @matmul_100x40x72_
// SM70:         scf.for
// SM70:           nvvm.barrier0
// SM70-NOT:       nvvm.ldmatrix
// SM70-COUNT-4:   llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xi32>
// SM70-COUNT-4:   nvvm.mma.sync {{.*}}shape = #nvvm.shape<m = 8, n = 8, k = 4>
// SM70-COUNT-4:   llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xi32>
// SM70-COUNT-4:   nvvm.mma.sync {{.*}}shape = #nvvm.shape<m = 8, n = 8, k = 4>
// SM70-NOT:       nvvm.mma.sync
func.func @product(%x: tensor<100x72xf16>, %w: tensor<40x72xf16>, %b: tensor<40xf16>) -> tensor<100x40xf16> {
  %0 = mpc.matmul %x, %w bias %b {transpose_rhs} : (tensor<100x72xf16>, tensor<40x72xf16>, tensor<40xf16>) -> tensor<100x40xf16>
  return %0 : tensor<100x40xf16>
}

// -----

// A weight's gradient: one tile and a depth of 4096, which 16 blocks share. Both operands lie across the depth, so that matrices are transposed on their way to registers. A second function adds the parts in order.
// CHECK-LABEL: func.func @matmul_20x32x4096_{{[0-9a-f]+}}$partial(
// CHECK-SAME:    , %[[SCRATCH:arg3]]: !llvm.ptr {{{.*}}}) attributes
// CHECK:         nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK:         nvvm.mma.sync {{.*}}bf16
// CHECK:         llvm.getelementptr inbounds %[[SCRATCH]]
// CHECK-LABEL: func.func @matmul_20x32x4096_{{[0-9a-f]+}}$combine(
// CHECK-SAME:    , %[[RESULT:arg2]]: !llvm.ptr {{{.*}}}, %[[SCRATCH:arg3]]: {{.*}}) attributes {mpc.threads = 256 : i32}
// CHECK:         scf.for
// CHECK:           llvm.getelementptr inbounds %[[SCRATCH]]
// CHECK:           arith.addf
// CHECK:         llvm.getelementptr inbounds %[[RESULT]]

// Before sm_80 tensor cores have no bf16: it becomes f32 on its way to shared memory, and a thread has 2×4 sums.
// SM75-LABEL: func.func @matmul_20x32x4096_
// SM75-NOT:     nvvm.mma.sync
// SM75:         scf.for
// SM75:           arith.extf {{.*}} : bf16 to f32
// SM75:           llvm.store {{.*}} : f32
// SM75:           nvvm.barrier0
// SM75:           scf.for {{.*}} -> (f32, f32, f32, f32, f32, f32, f32, f32)
// SM75:             llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr -> vector<2xf32>
// SM75:             llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// SM75-COUNT-8:     math.fma
func.func @split(%x: tensor<4096x20xbf16>, %g: tensor<4096x32xbf16>) -> tensor<20x32xf32> {
  %0 = mpc.matmul %x, %g {transpose_lhs} : (tensor<4096x20xbf16>, tensor<4096x32xbf16>) -> tensor<20x32xf32>
  return %0 : tensor<20x32xf32>
}

// -----

// f32 stays f32: no tensor core rounds it. Two commands with the same content share a function.
// CHECK-COUNT-1: func.func @
// CHECK-NOT:     func.func @
// CHECK-NOT:     nvvm.mma
func.func @plain(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = mpc.matmul %x, %y {mpc.node = "first"} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = mpc.matmul %0, %y {mpc.node = "second"} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
}
